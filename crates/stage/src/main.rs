//! The stage: loads a guest's program, and is the backend inside the guest's process.
//!
//! The kernel executes this static program instead of the guest's, because it would look for the
//! guest's interpreter in the host's root. The stage maps program and interpreter exactly as the
//! kernel would (`load`), corrects the auxiliary vector in place (`auxiliary`), tells the kernel
//! about it, and jumps. There are two ways to tell it what to load:
//!
//! - A tracer (modes P) writes a boot block before the first instruction here runs ([`abi::boot`]).
//!   Then the loader leaves nothing behind but its own pages, far from all other mappings.
//! - The previous program (modes I and F) puts it into the last string of the environment (`exec`).
//!   Then the stage stays active, and catches every system call that names a path, an id or an
//!   address.
//!
//! The path of a caught call:
//!
//! ```text
//! guest: syscall ──filter──► SIGSYS ──► entry ───────────► dispatch::caught ──► view::calls::enter
//! guest: rewritten site ────jump──────► takes a slot,      filters, signals,    with kernel,
//!                                       saves the registers clone, memory_guard  shared, tasks
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `start`, `routines` | first and last instructions of the loader; memory routines |
//! | `entry`, `frame`, `slots`, `dispatch` | from a guest's call to its result |
//! | `system`, `memory`, `kernel`, `shared` | system calls; the guest's memory; the view's `Host`; state that processes share |
//! | `signals`, `tasks`, `filters`, `clone`, `tracing` | handlers and masks; state of threads; the guest's own filters; new threads and processes; debuggers |
//! | `rewrite` | makes call sites jump to the stage |
//! | `patched_code` | modes without a filter: patches every call site of every file when it is mapped |
//! | `exec`, `load`, `auxiliary`, `memory_guard` | from one program to the next; protection of the stage's memory from accidents |
//! | `leaving` | processes that leave the container's namespaces |
//! | `cwd`, `tree`, `shared_fs`, `compat32` | the working directory's name; a descriptor of the tree; processes with `CLONE_FS`; i386 calls |
//! | `fd_exhaustion` | calls in processes that have no descriptor left |
//!
//! Rules: no standard library, no thread-local storage, no allocation, no initialised variables.
//! Every system call is an instruction in this image (the filter allows them by their address). An
//! error while a program is loaded is past the point of no return, so it ends the process as the
//! kernel would: by `SIGSEGV`.

#![no_std]
#![no_main]

mod auxiliary;
mod clone;
mod compat32;
mod cwd;
mod dispatch;
mod entry;
mod exec;
mod fd_exhaustion;
mod filters;
mod frame;
mod kernel;
mod leaving;
mod load;
mod locked_memory;
mod memory;
mod memory_guard;
mod patched_code;
mod rewrite;
mod routines;
mod shared;
mod shared_fs;
mod signals;
mod slots;
mod start;
mod system;
mod tasks;
mod tracing;
mod tree;

use abi::boot::{BOOT_ROOM, Boot};

use auxiliary::Stack;
use load::Image;
use system::Failed;

/// The boot block. The link script puts it at [`abi::boot::BOOT_AT`]; the kernel zeroes it, the
/// backend fills it.
#[unsafe(link_section = ".bss.0boot")]
#[used]
static BOOT: system::Written<[u8; BOOT_ROOM]> = system::Written::new([0; BOOT_ROOM]);

/// Loads the program that the boot block or the hand-over names; returns the address to jump to.
///
/// # Safety
///
/// `stack` is the stack pointer that the kernel gave a new program, and nothing else has run in
/// this process.
#[unsafe(no_mangle)]
unsafe extern "C" fn boot(stack: *mut u64) -> u64 {
    // SAFETY: the caller passes the stack pointer of a program's first instruction.
    let mut stack = unsafe { Stack::new(stack) };
    match run(&mut stack) {
        Ok(entry) => entry,
        Err(Failed) => system::die(),
    }
}

fn run(stack: &mut Stack) -> Result<u64, Failed> {
    let Some(boot) = Boot::read(BOOT.get()) else { return exec::take_over(stack) };
    let random = stack.randomness();
    let role = load::Role::Program { interpreted: boot.interpreter.is_some(), random };
    let program = Image::load(boot.program, role)?;
    let interpreter = match boot.interpreter {
        Some(path) => Some(Image::load(path, load::Role::Interpreter)?),
        None => None,
    };
    finish(stack, &boot, &program, interpreter.as_ref(), random, true)
}

/// Does what remains after the images are mapped; returns the address where the program starts.
fn finish(
    stack: &mut Stack,
    boot: &Boot<'_>,
    program: &Image,
    interpreter: Option<&Image>,
    random: Option<u64>,
    tells: bool,
) -> Result<u64, Failed> {
    if program.executable_stack {
        stack.make_executable()?;
    }
    let heap = program.heap(interpreter.is_some(), random)?;
    stack.part_from_vdso();
    stack.describe(boot, program, interpreter);
    system::set_name(&boot.comm);
    if !(tells && stack.tell_kernel(program, heap)) {
        memory_guard::lend_heap();
    }
    Ok(interpreter.map_or(program.entry, |image| image.entry))
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    system::die()
}
