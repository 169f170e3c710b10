//! Carries out `execve` inside the process: passes state to the next program, and takes it over
//! from the previous one (`view::handover`).
//!
//! The current program resolves everything, with its own world and credentials, and holds the new
//! program and its interpreter open: every error is known before its memory is gone. Then it
//! executes the stage again, with the guest's own arguments and environment, and one additional
//! string. All effects of an `execve` in the kernel (on signals, descriptors, threads, memory,
//! `/proc`) happen then.
//!
//! The stage's new image takes the string off its stack and sets up the state that it describes.

use crate::auxiliary::Stack;
use crate::kernel::{Backend, processes};
use crate::load::{self, Image};
use crate::system::{self, Failed};
use crate::{filters, leaving, patched_code, shared, signals, slots, tasks};
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

/// The file that this process executes. A new process's first access to its own `/proc` costs more
/// than finding the stage's file by name, so that is tried first.
const SELF: &CStr = c"/proc/self/exe";

/// The greatest size of the guest's own filters at an `execve`, in bytes: together with escapes
/// they still fit into one string.
const FILTERS_MAX: usize = 48 * 1024;
/// Size of the memory for a string with such filters.
const STRING_MAX: usize = 72 * 1024;

/// Message on standard error for a program that cannot be run in this mode.
const NOT_64_BITS: &[u8] =
    b"coracle: this is a 32-bit program, which the in-process engine cannot run: use --execmode=P1\n";

/// Set if another process may share its descriptor table with this one; set before such a `clone`,
/// in both.
static SHARES_DESCRIPTORS: AtomicBool = AtomicBool::new(false);

/// A process is about to be made that shares its descriptor table with this one.
pub(crate) fn will_share_descriptors() {
    SHARES_DESCRIPTORS.store(true, Ordering::Relaxed);
}

/// Gives a process that is about to execute a program its own descriptor table, as every `execve`
/// does. Otherwise the files that the plan holds open would stay open in the other process for
/// good, because the kernel closes them only in the new program's table. Returns true if that was
/// done; then the plan is void.
pub(crate) fn unshared_descriptors(context: &mut CallContext<'_, Backend<'_>>) -> bool {
    if !SHARES_DESCRIPTORS.load(Ordering::Relaxed) {
        return false;
    }
    SHARES_DESCRIPTORS.store(false, Ordering::Relaxed);
    context.buffers.exec.release(context.backend);
    // SAFETY: touches no memory; it only separates the descriptor tables. If it fails, there is no
    // memory.
    unsafe { system::call(raw::__NR_unshare, [u64::from(raw::CLONE_FILES), 0, 0, 0, 0, 0]) };
    true
}

/// Carries out [`view::Verdict::Exec`]: the plan is in the context's buffers, and the task is in
/// the state for the next program. Returns only with an error.
#[inline(never)]
pub(crate) fn carry_out(context: &mut CallContext<'_, Backend<'_>>, call: &Call) -> i64 {
    let result = match context.buffers.exec.machine {
        // Its vectors have 32-bit pointers, and none of them could point to the hand-over.
        _ if call.arch != ARCH_X86_64 => Err(Errno::ENOSYS),
        _ if leaving::is_shut_out() => Err(Errno::EACCES),
        Machine::X86_64 => execute(context),
        Machine::I386 => Err(Errno::ENOEXEC),
    };
    context.buffers.exec.release(context.backend);
    if let Err(Errno::ENOEXEC | Errno::ENOENT | Errno::EACCES | Errno::EPERM) = result
        && let Some(result) = leaving::by_kernel(call, context.task.root.as_bytes())
    {
        return result;
    }
    if context.buffers.exec.machine == Machine::I386 {
        tell(NOT_64_BITS);
    }
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
    let freed = tasks::before_exec();
    crate::tracing::before_exec();
    processes::becomes(plan.program_guest.as_bytes(), plan.inode, context.task);
    shared::shared().execution_begins();
    let result =
        run_file(&mut context.buffers.output, plan.arguments, environment).or_else(|errno| {
            match errno {
                // The file has been removed, or cannot be reached or executed by its name.
                Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::EPERM | Errno::ELOOP => {
                    run(SELF, plan.arguments, environment)
                }
                errno => Err(errno),
            }
        });
    shared::shared().execution_ends();
    processes::tell(context.task);
    tasks::exec_failed(freed);
    for file in files.into_iter().flatten() {
        let _ = keep(file, false);
    }
    result
}

/// Sets if a descriptor survives the `execve`.
fn keep(file: HostFd, kept: bool) -> Result<(), Errno> {
    let flags = if kept { 0 } else { u64::from(raw::FD_CLOEXEC) };
    let arguments = [file.0 as u64, u64::from(raw::F_SETFD), flags, 0, 0, 0];
    // SAFETY: changes only a flag of a descriptor that the stage holds.
    unsafe { system::checked(raw::__NR_fcntl, arguments) }.map(|_| ())
}

fn run(path: &CStr, arguments: u64, environment: u64) -> Result<(), Errno> {
    let arguments = [path.as_ptr() as u64, arguments, environment, 0, 0, 0];
    // SAFETY: the kernel reads path and vectors, which live until it returns; if it succeeds, this
    // program is gone.
    unsafe { system::checked(raw::__NR_execve, arguments) }.map(|_| ())
}

/// Executes the stage's file, whose name shows its purpose. A memory file has no name that other
/// processes can use: only the process that started the container has it open.
fn run_file(room: &mut [u8], arguments: u64, environment: u64) -> Result<(), Errno> {
    let path = shared::places().stage;
    let room = room.get_mut(..=path.len()).filter(|_| !path.starts_with(b"/proc/self/"));
    let room = room.ok_or(Errno::ENOENT)?;
    room[..path.len()].copy_from_slice(path);
    room[path.len()] = 0;
    let path = CStr::from_bytes_with_nul(room).map_err(|_| Errno::ENOENT)?;
    run(path, arguments, environment)
}

/// Writes the hand-over into scratch memory and returns its address.
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
        // SAFETY: scratch memory of this call, of that length, to which no other reference exists.
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
    // SAFETY: scratch memory of this call, of that length, to which no other reference exists.
    let room = unsafe { core::slice::from_raw_parts_mut(at as *mut u8, STRING_MAX) };
    let length = handover.write(task, room).ok_or(Errno::E2BIG)?;
    room[length] = 0;
    Ok(at)
}

/// Copies the guest's environment with one more string; returns the address of the new vector.
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

/// Sets up the program that the last string of the environment describes; returns the address where
/// it starts.
pub(crate) fn take_over(stack: &mut Stack) -> Result<u64, Failed> {
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
            if !shared::is_mode_f() {
                install(number)?;
            }
        }
        // The previous program has blocked all signals. A program that is started from outside of
        // the container has the caller's mask.
        None => {
            signals::exchange_mask(handover.blocked);
        }
    }
    // The string is not a variable of the program and must not stay in its memory. The name, at the
    // end, stays.
    let rest = length - handover.name.len();
    // SAFETY: the string lies on the stack, and no reference to this part of it is used any more.
    unsafe { core::ptr::write_bytes(start, 0, rest) };
    Ok(entry)
}

/// Maps the file that all processes of the container share.
fn attach(handover: &Handover<'_>) -> Result<(), Failed> {
    // SAFETY: `Handover::read` makes sure that a NUL follows the path.
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
    // SAFETY: the file has just been mapped for good, and nothing has used `shared` before; there
    // is one thread.
    unsafe { shared::attach(at, length, handover.world)? };
    shared::switch_on(handover.switches);
    // The first program of a container's run was executed by the engine, which holds the
    // container's lock.
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

/// In modes without a filter: patches the call sites of the mapped image. If that is not possible,
/// the file cannot be executed, and the process ends as a shell does that cannot execute a program:
/// the user has got a message with the reason.
fn cover(image: &Image, file: u64) -> Result<(), Failed> {
    const CANNOT_EXECUTE: u64 = 126;
    if !shared::is_mode_f() {
        return Ok(());
    }
    let mut refused = false;
    let result = image.each_text(file, |text| {
        let covered = patched_code::cover(&text, file);
        refused |= covered.is_err();
        covered
    });
    if refused {
        // SAFETY: ends the process; nothing of the guest's program has run.
        unsafe { system::call(raw::__NR_exit_group, [CANNOT_EXECUTE, 0, 0, 0, 0, 0]) };
    }
    result
}

/// Installs the filter for this process and all its descendants.
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
    // SAFETY: the kernel reads the header on this stack and the program, which lies in the shared
    // file.
    unsafe {
        system::call(raw::__NR_prctl, [u64::from(PR_SET_NO_NEW_PRIVS), 1, 0, 0, 0, 0]);
        // Without the flag, kernels before 5.16 slow down every process with a filter because of
        // Spectre v4; kernels before 4.17 do not know it.
        system::checked(raw::__NR_seccomp, [SET_MODE_FILTER, SPEC_ALLOW, program, 0, 0, 0])
            .or_else(|_| system::checked(raw::__NR_seccomp, [SET_MODE_FILTER, 0, program, 0, 0, 0]))
            .or_else(|_| {
                // Linux before 3.17 has no `seccomp` call: PR_SET_SECCOMP, SECCOMP_MODE_FILTER.
                system::checked(raw::__NR_prctl, [22, 2, program, 0, 0, 0])
            })
            .map_err(|_| Failed)?;
    }
    Ok(())
}
