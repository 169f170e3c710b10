//! Every way of making a process, and ending one without clean-up.
//!
//! | function | the new process is | may be called by |
//! |---|---|---|
//! | [`fork`] | a child | a process with one thread, which is checked |
//! | [`fork_single`] | a child | a process that is known to have one thread |
//! | [`fork_sibling`] | a child of the caller's parent | as [`fork_single`] |
//! | [`fork_unseen`] | a child that only `__WALL` shows | as [`fork_single`] |
//! | [`fork_apart`] | an orphan from its beginning | as [`fork_single`] |
//! | [`fork_borrowing`] | a child in this process's memory | as [`fork`] |
//!
//! See [fork(2)](https://man7.org/linux/man-pages/man2/fork.2.html) and
//! [clone(2)](https://man7.org/linux/man-pages/man2/clone.2.html).

use crate::event::stat_field;
use crate::raw;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::c_int;
use std::io;
use std::time::{Duration, Instant};

unsafe extern "C" {
    #[link_name = "fork"]
    fn c_fork() -> c_int;
    #[link_name = "_exit"]
    fn c_exit(code: c_int) -> !;
}

/// A joined thread may still be counted for this long: it reports its end a little before the
/// kernel removes it.
const ENDING: Duration = Duration::from_millis(500);

/// Result of [`fork`]: which of the two processes the caller is.
pub enum ForkResult {
    /// The process that called; holds the child's id.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Duplicates the process through the C library, so that its locks and its record of the
/// current thread are correct in the child.
///
/// # Errors
/// `EAGAIN` at the limit of processes, `ENOMEM`; and `EBUSY` if the process has more than one
/// thread: the others would be missing in the child, with all locks that they held.
pub fn fork() -> io::Result<ForkResult> {
    await_one_thread()?;
    // SAFETY: there is one thread, so the child is a whole copy and may do whatever the parent
    // may.
    match unsafe { c_fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(side(pid)),
    }
}

fn await_one_thread() -> Result<(), Errno> {
    let began = Instant::now();
    while threads() != Some(1) {
        if began.elapsed() > ENDING {
            return Err(Errno::BUSY);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Runs `work` in a child that borrows this process's memory, and returns when the child has
/// executed a program or ended: with the number that `work` returns.
///
/// Nothing is copied, which makes it the fastest way to a program. What the child allocates and
/// does not free stays allocated here, and what it changes is changed. Descriptors, the working
/// directory, the mask of signals and credentials are its own; whether the process is dumpable is
/// not. A child that is killed in the middle of `work` leaves memory as it was at that moment.
///
/// `work` must be `Copy`, so that it owns nothing that both processes would drop.
///
/// See [clone(2)](https://man7.org/linux/man-pages/man2/clone.2.html), `CLONE_VM` and
/// `CLONE_VFORK`.
///
/// # Errors
/// As [`fork`].
pub fn fork_borrowing(work: impl FnOnce() -> i32 + Copy) -> io::Result<Pid> {
    await_one_thread()?;
    let flags = u64::from(numbers::CLONE_VM | numbers::CLONE_VFORK | numbers::SIGCHLD);
    let result: i64;
    // SAFETY: the child runs on this stack below all that this process uses of it, which does not
    // run meanwhile (`CLONE_VFORK`), and never returns from `in_child`. `work` lives until then.
    unsafe {
        std::arch::asm!(
            // Below what a leaf function may use without moving the stack pointer.
            "lea rsi, [rsp - 1024]",
            "and rsi, -16",
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") u64::from(numbers::__NR_clone) => result,
            in("rdi") flags,
            out("rsi") _,
            in("rdx") 0_u64,
            in("r10") 0_u64,
            in("r8") 0_u64,
            in("r12") &raw const work,
            in("r13") child_of(&work),
            out("rcx") _,
            out("r11") _,
        );
    }
    let failed = || io::Error::from(Errno::from_raw_os_error(-result as i32));
    if result < 0 { Err(failed()) } else { Pid::from_raw(result as i32).ok_or_else(failed) }
}

/// The function that a child begins with whose work this is.
fn child_of<F: FnOnce() -> i32 + Copy>(_: &F) -> unsafe extern "C" fn(*const F) -> ! {
    in_child::<F>
}

unsafe extern "C" fn in_child<F: FnOnce() -> i32 + Copy>(work: *const F) -> ! {
    // SAFETY: the caller passes a closure that lives, and that may be copied.
    let work = unsafe { *work };
    exit_now(work())
}

/// The result for the number that `fork(2)` returned.
fn side(pid: c_int) -> ForkResult {
    Pid::from_raw(pid).map_or(ForkResult::Child, ForkResult::Parent)
}

/// How many threads this process has, from `/proc/self/stat` field 20; `None` without `/proc`.
fn threads() -> Option<u32> {
    stat_field(20)?.try_into().ok()
}

/// Ends the process at once: no destructors, no `atexit` functions, no flushing of buffers. For
/// children made by `fork`, whose clean-up the parent does.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions; it never returns, so no state of this process is used
    // after it.
    unsafe { c_exit(code) }
}

/// Duplicates the process as a child of the caller's *parent*. Returns `None` in the new process.
///
/// Only for a process with one thread that does little before it executes a program or ends: the C
/// library does not know of the new process. See
/// [clone(2)](https://man7.org/linux/man-pages/man2/clone.2.html), `CLONE_PARENT`.
pub fn fork_sibling() -> Result<Option<Pid>, Errno> {
    clone(numbers::CLONE_PARENT)
}

/// As [`fork`], for a process that is known to have one thread: does not read
/// `/proc`.
pub fn fork_single() -> Result<ForkResult, Errno> {
    // SAFETY: `fork` has no preconditions of its own; the C library resets its locks in the child.
    // With several threads the child could wait forever for a lock of this program that another
    // thread held, but that is not unsound.
    match unsafe { c_fork() } {
        -1 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
        pid => Ok(side(pid)),
    }
}

/// As `fork`, for processes with one thread (not checked), of a child whose end raises no signal:
/// wait(2) reports it only with `__WALL` or `__WCLONE`. Returns `None` in the child.
///
/// The C library is not informed, so its functions about threads must not be used in the child.
pub fn fork_unseen() -> Result<Option<Pid>, Errno> {
    clone(0)
}

/// As [`fork_unseen`], of a process that is not a child of the caller but an orphan from its
/// beginning: not even `__WALL` reports it. Returns `None` in the new process.
///
/// An intermediate process makes it and ends. It only borrows the caller's memory, which is copied
/// once, as by a plain fork. The orphan's parent becomes the nearest process that adopts orphans.
/// If that is the caller, as process 1 of a pid namespace, the orphan is an unseen child after all.
pub fn fork_apart() -> Result<Option<Pid>, Errno> {
    if rustix::process::getpid() == Pid::INIT {
        return fork_unseen();
    }
    let adopts = rustix::process::child_subreaper().is_ok_and(|adopts| adopts.is_some());
    if adopts {
        rustix::process::set_child_subreaper(None)?;
    }
    let forked = fork_twice();
    if adopts && !matches!(forked, Ok(None)) {
        rustix::process::set_child_subreaper(Some(Pid::INIT))?;
    }
    forked
}

fn fork_twice() -> Result<Option<Pid>, Errno> {
    let step_flags = u64::from(numbers::CLONE_VM | numbers::CLONE_VFORK);
    // The result of the second call in the intermediate process.
    let mut said = -i64::from(Errno::INTR.raw_os_error());
    let step: i64;
    // SAFETY: the intermediate process runs on this very stack, so it must not return to Rust: it
    // makes a process, writes down the result, and ends. It touches no other memory, and the caller
    // does not run meanwhile (`CLONE_VFORK`). The process that it makes has a copy of all memory
    // with a stack like the caller's, and leaves the block as after a plain fork.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov eax, {clone}",
            "xor edi, edi",
            "syscall",
            "test rax, rax",
            "jz 2f",
            "mov [{said}], rax",
            "mov eax, {exit}",
            "xor edi, edi",
            "syscall",
            "ud2",
            "2:",
            clone = const numbers::__NR_clone,
            exit = const numbers::__NR_exit,
            said = in(reg) &raw mut said,
            inlateout("rax") u64::from(numbers::__NR_clone) => step,
            inlateout("rdi") step_flags => _,
            in("rsi") 0_u64,
            in("rdx") 0_u64,
            in("r10") 0_u64,
            in("r8") 0_u64,
            out("rcx") _,
            out("r11") _,
        );
    }
    match step {
        0 => return Ok(None),
        1.. => {
            let arguments = [step as usize, 0, numbers::__WALL as usize, 0, 0];
            // SAFETY: waits for the intermediate process, which has ended; the status pointer is
            // null, so nothing is written.
            let waited = || unsafe { raw::call(numbers::__NR_wait4, arguments) };
            rustix::io::retry_on_intr(waited)?;
        }
        _ => return Err(Errno::from_raw_os_error(-step as i32)),
    }
    if said < 0 {
        return Err(Errno::from_raw_os_error(-said as i32));
    }
    Ok(Pid::from_raw(said as i32))
}

fn clone(flags: u32) -> Result<Option<Pid>, Errno> {
    // SAFETY: the stack pointer is 0, so memory is copied as by fork; the other arguments are no
    // pointers either.
    let pid = unsafe { raw::call(numbers::__NR_clone, [flags as usize, 0, 0, 0, 0]) }?;
    Ok(Pid::from_raw(pid as i32))
}

/// Runs a closure in a child and waits for it; returns its error. For processes with one thread.
///
/// `flags` are those of clone(2) without `CLONE_VM`: memory that `work` changes is lost, and its
/// descriptors are closed with the child, unless they are shared (`CLONE_FILES`).
pub(crate) fn in_clone(flags: u32, work: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    let Some(child) = clone(flags & !numbers::CLONE_VM)? else {
        exit_now(work().map_or_else(|errno| errno.raw_os_error() & 0xff, |()| 0));
    };
    let mut status = 0_i32;
    let waited = || {
        let number = child.as_raw_nonzero().get() as usize;
        let arguments = [number, &raw mut status as usize, numbers::__WALL as usize, 0, 0];
        // SAFETY: waits for the child; `status` lives until the call returns.
        unsafe { raw::call(numbers::__NR_wait4, arguments) }
    };
    rustix::io::retry_on_intr(waited)?;
    // The second byte is an exit status, the first a signal.
    match (status & 0x7f, status >> 8 & 0xff) {
        (0, 0) => Ok(()),
        (0, errno) => Err(Errno::from_raw_os_error(errno)),
        _ => Err(Errno::INTR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::WaitOptions;

    fn has_children() -> bool {
        // SAFETY: the status and usage pointers are null, so nothing is written.
        let waited = unsafe { raw::call(numbers::__NR_wait4, [usize::MAX, 0, ALL, 0, 0]) };
        waited != Err(Errno::CHILD)
    }

    const ALL: usize = (numbers::__WALL | numbers::WNOHANG) as usize;

    #[test]
    fn what_is_forked_apart_is_nobodys_child() {
        // A test program has other threads, which fork too.
        let limit = std::time::Duration::from_secs(20);
        for adopts in [false, true] {
            let report = crate::probe::in_child(limit, |_| {
                let this = rustix::process::getpid();
                if adopts && rustix::process::set_child_subreaper(Some(this)).is_err() {
                    return 10;
                }
                let Ok((reader, writer)) = rustix::pipe::pipe() else { return 11 };
                let Ok((held, holder)) = rustix::pipe::pipe() else { return 12 };
                match fork_apart() {
                    Ok(None) => {
                        drop(holder);
                        let _ = rustix::io::read(&held, &mut [0_u8; 1][..]);
                        let own = rustix::process::getpid().as_raw_nonzero().get();
                        let _ = rustix::io::write(&writer, &own.to_ne_bytes());
                        exit_now(0)
                    }
                    Ok(Some(apart)) => {
                        if has_children() {
                            return 1;
                        }
                        drop((holder, writer));
                        let mut own = [0; 4];
                        let _ = rustix::io::read(&reader, &mut own[..]);
                        let kept = rustix::process::child_subreaper().is_ok_and(|s| s.is_some());
                        let told = i32::from_ne_bytes(own) == apart.as_raw_nonzero().get();
                        i32::from(!told) * 2 + i32::from(kept != adopts) * 4
                    }
                    Err(errno) => errno.raw_os_error(),
                }
            });
            assert_eq!(report.unwrap().ended, crate::probe::Ended::Exited(0), "{adopts}");
        }
    }

    #[test]
    fn a_borrowing_child_changes_this_memory_and_nothing_else() {
        let limit = std::time::Duration::from_secs(20);
        let report = crate::probe::in_child(limit, |_| {
            let (seen, deep) = (std::cell::Cell::new(0), std::cell::RefCell::new(Vec::new()));
            let before = rustix::process::umask(rustix::fs::Mode::RWXU);
            let work = || {
                rustix::process::umask(rustix::fs::Mode::empty());
                // Far below the frames of the process that waits.
                let frame = std::hint::black_box([7_u8; 16 << 10]);
                *deep.borrow_mut() = frame.to_vec();
                seen.set(rustix::process::getpid().as_raw_nonzero().get());
                3
            };
            let kept = std::hint::black_box([5_u8; 4096]);
            let Ok(child) = fork_borrowing(work) else { return 1 };
            let waited = rustix::process::waitpid(Some(child), WaitOptions::empty());
            let code = waited.ok().flatten().and_then(|(_, status)| status.exit_status());
            let here = rustix::process::umask(before) == rustix::fs::Mode::RWXU;
            let whole = deep.borrow().len() == 16 << 10 && deep.borrow().iter().all(|b| *b == 7);
            let stays = std::hint::black_box(kept).iter().all(|byte| *byte == 5);
            let number = seen.get() == child.as_raw_nonzero().get();
            let all = [code == Some(3), here, whole, stays, number];
            all.iter().position(|holds| !holds).map_or(0, |which| 10 + which as i32)
        });
        assert_eq!(report.unwrap().ended, crate::probe::Ended::Exited(0));
    }
}
