//! `execve` inside the process: handing over to the next program, and taking over from the last (`view::handover`).
//!
//! The program of before resolves everything, with its own world and credentials, and holds the new program and its interpreter open: every
//! error is known before its memory is gone. Then it executes the stage again, with the guest's own arguments and environment, and one
//! string more. What the kernel does at an `execve` (signals, descriptors, threads, memory, `/proc`) it does there.
//!
//! The stage's new image takes the string off its stack and becomes what the string says.

use crate::auxiliary::Stack;
use crate::kernel::{Backend, processes};
use crate::load::{self, Image};
use crate::system::{self, Failed};
use crate::{filters, patched_code, shared, signals, slots, tasks};
use abi::boot::{self, Boot};
use abi::shared::Switches;
use abi::syscalls::ARCH_X86_64;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::general as raw;
use linux_raw_sys::prctl::PR_SET_NO_NEW_PRIVS;
use view::exec::{ExecPlan, Machine};
use view::guest::Guest;
use view::handover::Handover;
use view::{Call, CallContext, Errno, HostFd};

/// What this process executes, wherever that is. A new process's first look at its own `/proc` costs more than finding the stage's file, so that
/// comes first.
const AGAIN: &CStr = c"/proc/self/exe";

/// Most bytes that the guest's own filters may have at an `execve`: with what escapes NULs they still fit into one string.
const FILTERS_MAX: usize = 48 * 1024;
/// Room for a string with such filters.
const STRING_MAX: usize = 72 * 1024;

/// What is told on standard error where a program cannot be run in this mode.
const NARROW: &[u8] =
    b"coracle: this is a 32-bit program, which the in-process engine cannot run: use --execmode=P1\n";

/// Another process may have its descriptors in common with this one: set before a `clone` that makes it so, in both.
static COMPANY: AtomicBool = AtomicBool::new(false);

/// A process is about to be made that shares its descriptors with this one.
pub(crate) fn has_company() {
    COMPANY.store(true, Ordering::Relaxed);
}

/// Gives a process that is about to execute a program descriptors of its own, as every `execve` does. What the plan holds open would otherwise stay
/// so in the other process, for good: the kernel closes it in the new program's table alone. True where that was done: the plan is void.
pub(crate) fn has_parted(context: &mut CallContext<'_, Backend<'_>>) -> bool {
    if !COMPANY.load(Ordering::Relaxed) {
        return false;
    }
    COMPANY.store(false, Ordering::Relaxed);
    context.buffers.exec.release(context.backend);
    // SAFETY: changes nothing but who sees which descriptors open and closed from now on. Where it fails, there is no memory.
    unsafe { system::call(raw::__NR_unshare, [u64::from(raw::CLONE_FILES), 0, 0, 0, 0, 0]) };
    true
}

/// Carries out [`view::Verdict::Exec`]: the plan is in the context's buffers, and the task is what the next program's shall be. Comes back only
/// with the error.
#[inline(never)]
pub(crate) fn carry_out(context: &mut CallContext<'_, Backend<'_>>, call: &Call) -> i64 {
    let result = match context.buffers.exec.machine {
        // Its vectors have narrow pointers, and none of them could name our string.
        _ if call.arch != ARCH_X86_64 => Err(Errno::ENOSYS),
        Machine::X86_64 => execute(context),
        Machine::I386 => {
            tell(NARROW);
            Err(Errno::ENOEXEC)
        }
    };
    context.buffers.exec.release(context.backend);
    match result {
        Ok(()) => Errno::ENOEXEC.result(),
        Err(errno) => errno.result(),
    }
}

fn tell(words: &[u8]) {
    system::tell(words);
}

fn execute(context: &mut CallContext<'_, Backend<'_>>) -> Result<(), Errno> {
    let mask = signals::hold(slots::at(&raw const *context.buffers as u64));
    let result = execute_with(context, mask);
    signals::exchange_mask(mask);
    result
}

fn execute_with(context: &mut CallContext<'_, Backend<'_>>, mask: u64) -> Result<(), Errno> {
    let string = write(context, mask)?;
    let environment = extend(context, string)?;
    let plan = &context.buffers.exec;
    let files = [plan.program, plan.interpreter];
    for file in files.into_iter().flatten() {
        keep(file, true)?;
    }
    let departed = tasks::departs();
    crate::tracing::before_exec();
    processes::becomes(plan.program_guest.as_bytes(), plan.inode, context.task);
    shared::shared().execution_begins();
    let result =
        run_file(&mut context.buffers.output, plan.arguments, environment).or_else(|errno| {
            match errno {
                // The file has gone since, or cannot be reached or executed by its name.
                Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::EPERM | Errno::ELOOP => {
                    run(AGAIN, plan.arguments, environment)
                }
                errno => Err(errno),
            }
        });
    shared::shared().execution_ends();
    processes::tell(context.task);
    tasks::returned(departed);
    for file in files.into_iter().flatten() {
        let _ = keep(file, false);
    }
    result
}

/// Whether a descriptor survives the `execve`.
fn keep(file: HostFd, kept: bool) -> Result<(), Errno> {
    let flags = if kept { 0 } else { u64::from(raw::FD_CLOEXEC) };
    let arguments = [file.0 as u64, u64::from(raw::F_SETFD), flags, 0, 0, 0];
    // SAFETY: changes a flag of a descriptor of ours.
    unsafe { system::checked(raw::__NR_fcntl, arguments) }.map(|_| ())
}

fn run(path: &CStr, arguments: u64, environment: u64) -> Result<(), Errno> {
    let arguments = [path.as_ptr() as u64, arguments, environment, 0, 0, 0];
    // SAFETY: the kernel reads the vectors; if it succeeds there is nobody to come back to.
    unsafe { system::checked(raw::__NR_execve, arguments) }.map(|_| ())
}

/// Executes the stage's file, whose name says what is in it. One that is in memory has none: only whoever started the container has it open.
fn run_file(room: &mut [u8], arguments: u64, environment: u64) -> Result<(), Errno> {
    let path = shared::places().stage;
    let room = room.get_mut(..=path.len()).filter(|_| !path.starts_with(b"/proc/"));
    let room = room.ok_or(Errno::ENOENT)?;
    room[..path.len()].copy_from_slice(path);
    room[path.len()] = 0;
    let path = CStr::from_bytes_with_nul(room).map_err(|_| Errno::ENOENT)?;
    run(path, arguments, environment)
}

/// Writes the hand-over into scratch memory; its address.
fn write(context: &mut CallContext<'_, Backend<'_>>, mask: u64) -> Result<u64, Errno> {
    let CallContext { backend, task, buffers, .. } = context;
    let plan: &ExecPlan = &buffers.exec;
    let (Some(program), places) = (plan.program, shared::places()) else {
        return Err(Errno::ENOEXEC);
    };
    let filters = if tasks::filters() == 0 {
        &[][..]
    } else {
        let at = backend.scratch_room(FILTERS_MAX, 8)?;
        // SAFETY: memory of this call's, of that length, that nobody else uses.
        let room = unsafe { core::slice::from_raw_parts_mut(at as *mut u8, FILTERS_MAX) };
        let length = filters::save(room).ok_or(Errno::E2BIG)?;
        &room[..length]
    };
    let handover = Handover {
        program: program.0,
        interpreter: plan.interpreter.map(|file| file.0),
        name: plan.name.as_bytes(),
        path: plan.program_guest.as_bytes(),
        inode: plan.inode,
        comm: plan.comm,
        secure: plan.secure,
        ids: plan.ids,
        shared: places.shared,
        world: shared::world_number(),
        filter: None,
        switches: shared::switches(),
        ignored: signals::ignored(),
        blocked: mask,
        filters,
    };
    let buffer = &mut buffers.input;
    if let Some(length) = handover.write(task, &mut buffer[..]) {
        let room = buffer.get_mut(..=length).ok_or(Errno::E2BIG)?;
        room[length] = 0;
        return backend.scratch(room, 1);
    }
    let at = backend.scratch_room(STRING_MAX, 1)?;
    // SAFETY: memory of this call's, of that length, that nobody else uses.
    let room = unsafe { core::slice::from_raw_parts_mut(at as *mut u8, STRING_MAX) };
    let length = handover.write(task, room).ok_or(Errno::E2BIG)?;
    room[length] = 0;
    Ok(at)
}

/// The guest's environment with one string more: the address of the new vector.
fn extend(context: &mut CallContext<'_, Backend<'_>>, string: u64) -> Result<u64, Errno> {
    const WORD: u64 = 8;
    let given = context.buffers.exec.environment;
    let mut count = 0;
    let mut word = [0; 8];
    if given != 0 {
        loop {
            context.backend.read(given + count * WORD, &mut word)?;
            if word == [0; 8] {
                break;
            }
            count += 1;
        }
    }
    let vector = context.backend.scratch_room(((count + 2) * WORD) as usize, 8)?;
    let mut copied = 0;
    let buffer = &mut context.buffers.output;
    while copied < count {
        let piece = ((count - copied) * WORD).min(buffer.len() as u64) as usize;
        context.backend.read(given + copied * WORD, &mut buffer[..piece])?;
        context.backend.write(vector + copied * WORD, &buffer[..piece])?;
        copied += piece as u64 / WORD;
    }
    context.backend.write(vector + count * WORD, &string.to_le_bytes())?;
    context.backend.write(vector + (count + 1) * WORD, &[0; 8])?;
    Ok(vector)
}

/// Becomes the program that the last string of the environment speaks of; where it starts.
pub(crate) fn arrive(stack: &mut Stack) -> Result<u64, Failed> {
    let string = stack.take_last_variable(view::handover::MARK).ok_or(Failed)?;
    let (start, length) = (string.as_mut_ptr(), string.len());
    let task = tasks::first();
    let handover = Handover::read(string, task).ok_or(Failed)?;
    let newest = filters::restore(handover.filters);
    attach(&handover)?;
    let switches = shared::switches();
    slots::prepare(stack.has_fsgsbase(), !switches.has(Switches::NO_WIPE_ON_FORK))?;
    tasks::start(newest);
    processes::enter(handover.path, handover.inode, handover.filter.map(|_| &*task));
    signals::install(handover.ignored);
    let boot = Boot {
        program: b"",
        interpreter: None,
        name: handover.name,
        comm: handover.comm,
        secure: handover.secure,
        ids: handover.ids,
    };
    let entry = load(stack, &boot, &handover, switches)?;
    match handover.filter {
        Some(number) => {
            signals::unblock();
            if !shared::has_texts() {
                install(number)?;
            }
        }
        // All were blocked by the program before; whoever is started from outside has the mask of the caller.
        None => {
            signals::exchange_mask(handover.blocked);
        }
    }
    // What is no variable of the program's does not stay in its memory. The name, at the end, is its own.
    let rest = length - handover.name.len();
    // SAFETY: the string lies on the stack, and nobody looks at it any more.
    unsafe { core::ptr::write_bytes(start, 0, rest) };
    Ok(entry)
}

/// Maps the file that all processes of the container share.
fn attach(handover: &Handover<'_>) -> Result<(), Failed> {
    // SAFETY: a NUL follows the path in the hand-over.
    let path = unsafe { CStr::from_ptr(handover.shared.as_ptr().cast()) };
    let file = system::open_shared(path)?;
    let at = system::base() + boot::SHARED;
    let mapped = system::size(file).and_then(|length| {
        if length > boot::SHARED_ROOM {
            return Err(Failed);
        }
        system::map_shared(at, length, file).map(|()| length)
    });
    system::close(file);
    let length = usize::try_from(mapped?).map_err(|_| Failed)?;
    // SAFETY: it is mapped for good, and nothing has been asked before.
    unsafe { shared::attach(at, length, handover.world)? };
    shared::switch_on(handover.switches);
    // The first program of a container's run was executed by the engine, which holds the turn.
    if handover.filter.is_none() {
        shared::shared().execution_ends();
    }
    Ok(())
}

/// Loads program and interpreter, and closes them.
fn load(
    stack: &mut Stack,
    boot: &Boot<'_>,
    handover: &Handover<'_>,
    switches: Switches,
) -> Result<u64, Failed> {
    let random = stack.randomness();
    let role = load::Role::Program { interpreted: handover.interpreter.is_some(), random };
    let file = handover.program as u64;
    let program = Image::load_file(file, role)?;
    cover(&program, file)?;
    system::close(file);
    let interpreter = match handover.interpreter {
        Some(file) => {
            let image = Image::load_file(file as u64, load::Role::Interpreter)?;
            cover(&image, file as u64)?;
            system::close(file as u64);
            Some(image)
        }
        None => None,
    };
    crate::finish(
        stack,
        boot,
        &program,
        interpreter.as_ref(),
        random,
        !switches.has(Switches::NO_SET_MM),
    )
}

/// Where no filter is there: changes the call sites of what has been mapped. A file of which that cannot be done is one that cannot be executed, and
/// the process ends as a shell's does that could not: the user has been told why.
fn cover(image: &Image, file: u64) -> Result<(), Failed> {
    const CANNOT_EXECUTE: u64 = 126;
    if !shared::has_texts() {
        return Ok(());
    }
    let mut refused = false;
    let result = image.each_text(file, |text| {
        let covered = patched_code::cover(&text, file);
        refused |= covered.is_err();
        covered
    });
    if refused {
        // SAFETY: nothing of the program's has run.
        unsafe { system::call(raw::__NR_exit_group, [CANNOT_EXECUTE, 0, 0, 0, 0, 0]) };
    }
    result
}

/// Installs the filter for this process and all that come of it.
fn install(number: u32) -> Result<(), Failed> {
    #[repr(C)]
    struct Program {
        length: u16,
        instructions: u64,
    }
    const SET_MODE_FILTER: u64 = 1;
    const SPEC_ALLOW: u64 = 1 << 2;
    const INSTRUCTION: usize = 8;
    let range = shared::shared().records().find(number).ok_or(Failed)?;
    let length = u16::try_from(range.len() / INSTRUCTION).map_err(|_| Failed)?;
    let at = system::base() + boot::SHARED + range.start as u64;
    let program = Program { length, instructions: at };
    let program = &raw const program as u64;
    // SAFETY: the kernel reads the program, which lies in the shared file.
    unsafe {
        system::call(raw::__NR_prctl, [u64::from(PR_SET_NO_NEW_PRIVS), 1, 0, 0, 0, 0]);
        // Without the flag kernels before 5.16 slow every filtered process down against Spectre v4; before 4.17 it is not known.
        system::checked(raw::__NR_seccomp, [SET_MODE_FILTER, SPEC_ALLOW, program, 0, 0, 0])
            .or_else(|_| system::checked(raw::__NR_seccomp, [SET_MODE_FILTER, 0, program, 0, 0, 0]))
            .or_else(|_| {
                // Before Linux 3.17 there was no call of its own: PR_SET_SECCOMP, SECCOMP_MODE_FILTER.
                system::checked(raw::__NR_prctl, [22, 2, program, 0, 0, 0])
            })
            .map_err(|_| Failed)?;
    }
    Ok(())
}
