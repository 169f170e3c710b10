//! Decides a caught call and carries the decision out: from the guest's registers to the result.
//!
//! [`caught`] runs on the slot's stack, outside of any signal handler, with the guest's own signal
//! mask. The decision is made in this order:
//!
//! 1. `filters`: the guest's own seccomp filters, which the kernel would have run first;
//! 2. rules that only a backend inside the process needs: `signals`, `clone`, `memory_guard`,
//!    `filters` (see [`own_rule`]);
//! 3. the view (`view::calls::enter`), whose verdict is carried out here.
//!
//! Calls that the kernel executes for the guest are made on the guest's own stack
//! ([`crate::entry::on_guest_stack`]), because they may block: signal handlers then run on the
//! stack where they would run without the stage. Calls that return twice (`clone`), or never, are
//! made at an exit ([`Ruling::Exit`]).

use crate::frame::Frame;
use crate::kernel::{Backend, Link, calls};
use crate::{
    clone, cwd, entry, exec, fd_exhaustion, filters, leaving, locked_memory, memory_guard,
    patched_code, rewrite, shared, signals, slots, system, tasks, tracing, tree,
};
use abi::calls::Op;
use abi::calls::others::Right;
use core::mem::MaybeUninit;
use linux_raw_sys::general::{__NR_close, __NR_dup3, __NR_openat, AT_FDCWD, O_CLOEXEC};
use view::guest::Host as _;
use view::{After, Call, CallBuffers, CallContext, Errno, HostFd, Task, Verdict};

/// How many times the view may decide one call again, because a file had to be copied or an
/// assumption about a name was wrong: other processes may interfere each time.
const ROUNDS: u32 = 8;

/// One caught call while it is decided.
pub(crate) struct CaughtCall<'a> {
    /// The guest's registers. [`caught`] writes the result of a [`Ruling::Done`] to `rax`.
    pub(crate) frame: &'a mut Frame,
    /// The view's buffers in this call's slot.
    pub(crate) buffers: &'a mut CallBuffers,
    /// Memory in this call's slot for data that the kernel reads instead of the guest's.
    pub(crate) scratch: &'a mut [u8],
    /// Memory in this call's slot for a copy of the thread's state.
    pub(crate) task: &'a mut MaybeUninit<Task>,
    /// A child makes the call in the thread's place ([`fd_exhaustion`]), so changes stay in `task`.
    pub(crate) is_repeated: bool,
    /// The call as the guest made it.
    pub(crate) call: Call,
}

/// The decision of one of the stage's own rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ruling {
    /// None: the view decides.
    View,
    /// The guest gets this result.
    Done(i64),
    /// The kernel executes this call on the guest's stack, and the guest gets the result.
    Kernel(Call),
    /// The call is made at an instruction that belongs to the guest's return address, after the
    /// slot has been given back and all registers are the guest's again: for calls that return
    /// twice, or never. `ENOSYS` if all exits belong to other return addresses.
    Exit(Call),
    /// The same, with the frame already changed.
    Prepared,
}

/// Answers a caught call: when this returns, the result is in `frame.rax`. The instructions in
/// `entry` call it.
pub(crate) extern "C" fn caught(frame: &mut Frame) {
    slots::begin_call(frame);
    let slot = slots::of(frame);
    let call = frame.call();
    // SAFETY: the slot belongs to this call, and these are different members of it.
    let (buffers, scratch, task) =
        unsafe { (&mut (*slot).buffers, &mut (*slot).scratch, &mut (*slot).task) };
    let mut caught = CaughtCall { frame, buffers, scratch, task, is_repeated: false, call };
    let result = answer(&mut caught);
    let frame = caught.frame;
    if let Some(result) = result {
        frame.rax = result as u64;
    }
    if frame.is_by_signal() {
        rewrite::consider(frame);
    }
}

/// The result, or `None` if the call will be made at an exit.
fn answer(caught: &mut CaughtCall<'_>) -> Option<i64> {
    let call = caught.call;
    match filters::before(caught) {
        filters::Answer::Allowed => {}
        filters::Answer::Result(result) => return Some(result),
        filters::Answer::Kernel => return None,
    }
    let Some(entry) = abi::calls::find(call.arch, call.number) else {
        return Some(Errno::ENOSYS.result());
    };
    let passed = if shared::is_mode_f() { patched_code::pass(caught, entry.op) } else { None };
    let ruling = match passed {
        Some(ruling) => ruling,
        None => own_rule(caught, entry.op),
    };
    match ruling {
        Ruling::View => Some(match by_view(caught, entry.op) {
            full if full == Errno::EMFILE.result() => {
                fd_exhaustion::again(caught, entry.op).unwrap_or(full)
            }
            result => result,
        }),
        Ruling::Done(result) => Some(result),
        Ruling::Kernel(made) => {
            // SAFETY: the guest's own call, with its own memory or with memory of the slot that a
            // rule has put in its place.
            Some(unsafe { entry::on_guest_stack(caught.frame, &made, After::Nothing) })
        }
        Ruling::Exit(made) if entry::exit(caught.frame, &made) => None,
        Ruling::Prepared => None,
        Ruling::Exit(_) => Some(Errno::ENOSYS.result()),
    }
}

/// Applies the rules that only a backend inside the process needs. (Kept out of its caller's stack
/// frame: each page of stack that is touched costs memory in every process, and few calls come
/// here.)
#[inline(never)]
pub(crate) fn own_rule(caught: &mut CaughtCall<'_>, op: Op) -> Ruling {
    match op {
        Op::RtSigaction
        | Op::RtSigprocmask
        | Op::RtSigsuspend
        | Op::RtSigpending
        | Op::RtSigtimedwait
        | Op::Sigaltstack
        | Op::Ppoll
        | Op::Pselect6
        | Op::EpollPwait
        | Op::EpollPwait2
        | Op::IoPgetevents => signals::rule(caught, op),
        Op::Execve
        | Op::Execveat
        | Op::Setns
        | Op::PivotRoot
        | Op::Unshare
        | Op::LandlockRestrictSelf
            if shared::world().namespaces =>
        {
            leaving::rule(caught, op)
        }
        Op::Clone
        | Op::Clone3
        | Op::Fork
        | Op::Vfork
        | Op::Unshare
        | Op::Ptrace
        | Op::Wait4
        | Op::Waitid => clone::rule(caught, op),
        Op::Mmap
        | Op::Munmap
        | Op::Mprotect
        | Op::PkeyMprotect
        | Op::Mremap
        | Op::Madvise
        | Op::Mseal
        | Op::RemapFilePages
        | Op::Shmat
        | Op::Brk => memory_guard::rule(caught, op),
        Op::Kill | Op::Tkill | Op::Tgkill => tracing::before_stop(&caught.call, op),
        Op::Mlockall => locked_memory::rule(caught),
        Op::Seccomp | Op::Prctl => filters::rule(caught, op),
        Op::Fstat | Op::Newfstatat | Op::Statx if tree::hides(caught.call.arguments[0]) => {
            Ruling::Done(Errno::EBADF.result())
        }
        _ => Ruling::View,
    }
}

/// Asks the view if the calling thread has a right over another process or thread.
pub(crate) fn may(caught: &mut CaughtCall<'_>, op: Op, process: u32, right: Right) -> bool {
    let mut backend = Backend::new(caught.scratch);
    let call_task = tasks::for_call(op, caught.task);
    view::calls::others::may(&mut backend, shared::world(), call_task.task, process, right).is_ok()
}

/// Asks the view, and carries its verdict out.
pub(crate) fn by_view(caught: &mut CaughtCall<'_>, op: Op) -> i64 {
    let call = caught.call;
    let mut backend = Backend::new(caught.scratch);
    for _ in 0..ROUNDS {
        let rooms = (&mut *caught.buffers, &mut *caught.task);
        let Some(verdict) = enter(&mut backend, rooms, (&call, op), caught.is_repeated) else {
            continue;
        };
        let (made, after) = match verdict {
            Verdict::Done(result) => return result,
            Verdict::Pass => (call, After::Nothing),
            Verdict::Watch(after) => (call, after),
            Verdict::Instead(other, after) => (other, after),
            Verdict::Give(file, flags) => return give(&mut backend, file, flags),
            Verdict::CopyUp => match copy_up(&mut backend, caught.buffers) {
                Ok(()) => continue,
                Err(errno) => return errno.result(),
            },
            // `enter` has tried it already.
            Verdict::Exec => return Errno::ENOSYS.result(),
        };
        let moves = matches!(op, Op::Chdir | Op::Fchdir);
        // The child has the thread's directory.
        if moves && !caught.is_repeated {
            cwd::before_change();
        }
        if matches!(op, Op::CloseRange | Op::Dup2 | Op::Dup3) {
            tree::taken(op, &call.arguments);
        }
        let after = lift(after);
        // SAFETY: the guest's own call, or one that the view has made from it, with the data that
        // it needs in the scratch memory.
        let result = unsafe { entry::on_guest_stack(caught.frame, &made, after) };
        tree::replaced(result);
        if moves {
            cwd::after_change();
        }
        if after == After::Nothing {
            return result;
        }
        if let Some(shown) =
            leave(&mut backend, (caught.buffers, caught.task), (&call, op), after, result)
        {
            return shown;
        }
    }
    Errno::EAGAIN.result()
}

/// The view's verdict, or `None` if the view has to be asked again.
fn enter(
    backend: &mut Backend<'_>,
    (buffers, room): (&mut CallBuffers, &mut MaybeUninit<Task>),
    (call, op): (&Call, Op),
    is_repeated: bool,
) -> Option<Verdict> {
    let call_task = tasks::for_call(op, room);
    let mut context =
        CallContext { backend, world: shared::world(), task: call_task.task, buffers };
    let verdict = view::calls::enter(&mut context, call);
    if verdict == Verdict::Exec {
        if exec::unshared_descriptors(&mut context) {
            return None;
        }
        // The task is now in the state for the next program. If that is not executed, the change is
        // dropped.
        let departure = slots::release_at_exec(slots::at(&raw const *context.buffers as u64));
        let result = exec::carry_out(&mut context, call);
        slots::undo_release(&departure);
        return Some(Verdict::Done(result));
    }
    if !is_repeated {
        call_task.commit();
    }
    Some(verdict)
}

/// Copies the file at `buffers.host`, which belongs to the image.
#[cold]
#[inline(never)]
fn copy_up(backend: &mut Backend<'_>, buffers: &CallBuffers) -> view::errno::Result<()> {
    backend.copy_up(buffers.host.as_c_str())
}

/// The result, or `None` if the view has to be asked again.
#[inline(never)]
fn leave(
    backend: &mut Backend<'_>,
    (buffers, room): (&mut CallBuffers, &mut MaybeUninit<Task>),
    (call, op): (&Call, Op),
    after: After,
    result: i64,
) -> Option<i64> {
    let call_task = tasks::for_call(op, room);
    let mut context =
        CallContext { backend, world: shared::world(), task: call_task.task, buffers };
    if view::calls::again(&mut context, after, result) {
        return None;
    }
    let shown = view::calls::leave(&mut context, after, call, result);
    call_task.commit();
    Some(shown)
}

/// Moves descriptors that are held during a call to high numbers, so that the guest gets the lowest
/// free one.
#[inline]
fn lift(after: After) -> After {
    match after {
        After::Restore(file, mode) => After::Restore(HostFd(calls::lifted(file.0)), mode),
        After::Close(file) => After::Close(HostFd(calls::lifted(file.0))),
        After::Inherited { directory, mode, kind } => {
            After::Inherited { directory: HostFd(calls::lifted(directory.0)), mode, kind }
        }
        other => other,
    }
}

/// Gives the guest a new descriptor of a file that is held. Its number is the lowest free one, as
/// if nothing had been held.
#[inline(never)]
fn give(backend: &mut Backend<'_>, file: HostFd, flags: u32) -> i64 {
    let mut name = Link::new();
    let named = name.push(b"/proc/self/fd/").and_then(|()| name.push_number(file.0 as u32));
    let named = named.and_then(|()| name.push(b"\0")).and_then(|()| name.as_c_str());
    let Ok(named) = named else { return Errno::EMFILE.result() };
    let start = i64::from(AT_FDCWD) as u64;
    let arguments = [start, named.as_ptr() as u64, u64::from(flags), 0, 0, 0];
    // SAFETY: the kernel only reads the name, which lives until the call has returned.
    let opened = unsafe { system::call(__NR_openat, arguments) };
    let held = i64::from(file.0);
    if opened < held {
        backend.close(file);
        return opened;
    }
    // The held descriptor had the number that the guest would have got.
    let keep = u64::from(flags & O_CLOEXEC);
    // SAFETY: both descriptors belong to the stage until the guest gets the number.
    unsafe {
        let moved = system::call(__NR_dup3, [opened as u64, held as u64, keep, 0, 0, 0]);
        system::call(__NR_close, [opened as u64, 0, 0, 0, 0, 0]);
        if moved < 0 { moved } else { held }
    }
}
