//! The stage: a guest program's first moments, and the backend inside its process.
//!
//! The kernel executes this static program in place of the guest's, because it would look for the guest's interpreter in the host's
//! root. It maps program and interpreter exactly as the kernel would (`load`), corrects the auxiliary vector in place (`auxiliary`), tells
//! the kernel about it, and jumps. What to load it is told in one of two ways:
//!
//! - by a tracer (modes P), which has written a boot block before the first instruction here runs ([`abi::boot`]): then the loader leaves
//!   nothing behind but its own pages, far from everybody else's;
//! - by the program before (modes I), in the last string of the environment (`exec`): then it stays, and every system call that names
//!   a path, an id or an address comes to it.
//!
//! A call, caught:
//!
//! ```text
//!  guest: syscall ──filter──► SIGSYS ──► gate ─────────────► dispatch::caught ──► view::calls::enter ──► verdict, carried out
//!  guest: rewritten site ─────jump─────► takes a slot,        filters, signals,      with backend, shared (the world),
//!                                        saves registers      clone, memory_guard    tasks (who is asking)
//! ```
//!
//! | module | what |
//! |---|---|
//! | `start`, `routines` | first and last instructions of the loader; memory routines |
//! | `entry`, `frame`, `slots`, `dispatch` | from a guest's call to its result |
//! | `system`, `memory`, `kernel`, `shared` | system calls; the guest's memory; the view's hands; what processes share |
//! | `signals`, `tasks`, `filters`, `clone`, `tracing` | handlers and masks; state of threads; the guest's own filters; new threads and processes; debuggers |
//! | `rewrite` | call sites that jump here by themselves |
//! | `patched_code` | without a filter: every call site of every file, when it is mapped |
//! | `exec`, `load`, `auxiliary`, `memory_guard` | from one program to the next; what protects the stage's memory from accidents |
//! | `fd_exhaustion` | calls in processes that have no descriptor left |
//!
//! Rules: no standard library, no thread-local storage, no allocation, no initialised variables; every system call is an instruction in this
//! image (the filter lets them pass by address). What goes wrong while a program is loaded is past the point of no return, so it ends as
//! the kernel ends it: by `SIGSEGV`.

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
mod load;
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

/// The boot block. The link script puts it at [`abi::boot::BOOT_AT`]; the kernel zeroes it, the backend fills it.
#[unsafe(link_section = ".bss.0boot")]
#[used]
static BOOT: system::Written<[u8; BOOT_ROOM]> = system::Written::new([0; BOOT_ROOM]);

/// Loads what the boot block names; the address to jump to.
///
/// # Safety
/// `stack` is the stack pointer that the kernel gave a new program, and nothing else has run in this process.
#[unsafe(no_mangle)]
unsafe extern "C" fn boot(stack: *mut u64) -> u64 {
    // SAFETY: as the caller says.
    let mut stack = unsafe { Stack::new(stack) };
    match run(&mut stack) {
        Ok(entry) => entry,
        Err(Failed) => system::die(),
    }
}

fn run(stack: &mut Stack) -> Result<u64, Failed> {
    let Some(boot) = Boot::read(BOOT.get()) else { return exec::arrive(stack) };
    let random = stack.randomness();
    let role = load::Role::Program { interpreted: boot.interpreter.is_some(), random };
    let program = Image::load(boot.program, role)?;
    let interpreter = match boot.interpreter {
        Some(path) => Some(Image::load(path, load::Role::Interpreter)?),
        None => None,
    };
    finish(stack, &boot, &program, interpreter.as_ref(), random, true)
}

/// Everything that comes after the images are mapped; where the program starts.
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
