//! Entry and exit of each decision: chooses the rule that decides a call.
//!
//! The backend calls [`enter`] before the kernel sees a call, and [`leave`] after it if the verdict
//! asked for that. The table ([`abi::calls`]) maps a number to an operation, [`arguments`] decodes,
//! and the rule of the call's family decides:
//!
//! | rules | calls |
//! |---|---|
//! | [`open`] | the open family |
//! | [`names`] | making and removing names |
//! | [`files`] | one existing file: times, length, working directory, link targets, watches |
//! | [`stat`], [`owners`], [`attributes`] | status, owners, modes, attributes of files |
//! | [`ids`] | the caller's own ids |
//! | [`process`], [`others`] | processes and the system, mounts, `chroot` |
//! | [`crate::sockets`], [`crate::exec`] | addresses of sockets, programs |
//!
//! A rule gives a verdict, or the error that the guest gets. A call that takes a path and has no
//! rule is `ENOSYS`: the kernel never resolves a path of the guest unless a rule has decided that
//! it may.

mod access;
pub mod arguments;
pub mod attributes;
mod file_systems;
mod files;
pub mod filters;
mod host_name;
pub mod ids;
mod ipc;
mod names;
mod open;
pub mod others;
pub mod owners;
mod prctl;
pub mod process;
pub mod stat;
pub mod support;
#[cfg(test)]
mod tests;

#[cfg(test)]
mod owner_tests;

use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Host};
use crate::paths::moves;
use crate::verdict::{After, Call, Verdict};
use abi::calls::{Class, Op};
use arguments::Arguments;

/// How often a call is decided again while others rename directories.
const MOVES_MAX: u32 = 100;

/// Decides what is to be done with a call that the guest is about to make.
pub fn enter<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Verdict {
    let Some(arguments) = Arguments::of(call) else {
        return Verdict::Done(Errno::ENOSYS.result());
    };
    if context.task.fs_changed {
        context.task.fs_changed = false;
    }
    let mut left = MOVES_MAX;
    loop {
        let before = moves::now(context.world.image.as_ref());
        // Only backends that remember directories have a call decided again that was made.
        context.buffers.moves = before.filter(|_| context.backend.plain_generation().is_some());
        let verdict = decide(context, &arguments);
        let is_looked_up = matches!(arguments.entry.class, Class::Path | Class::Descriptor);
        left -= 1;
        if left == 0
            || !is_looked_up
            || !matches!(verdict, Verdict::Done(result) if is_missing(result))
            || !moves::may_mislead(context.world.image.as_ref(), context.backend, before)
        {
            return verdict;
        }
    }
}

fn decide<N: Backend>(context: &mut CallContext<'_, N>, arguments: &Arguments<'_>) -> Verdict {
    context.buffers.layer = None;
    let verdict = match rule(context, arguments) {
        Ok(verdict) => verdict,
        Err(errno) => Verdict::Done(errno.result()),
    };
    context.buffers.careful = false;
    verdict
}

const fn is_missing(result: i64) -> bool {
    // A whiteout in the place of a directory is not one.
    result == Errno::ENOENT.result() || result == Errno::ENOTDIR.result()
}

fn rule<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let (op, call) = (arguments.op(), arguments.call);
    match op {
        Op::Open | Op::Openat | Op::Openat2 | Op::Creat => open::enter(context, arguments),
        Op::Mkdir
        | Op::Mkdirat
        | Op::Rmdir
        | Op::Unlink
        | Op::Unlinkat
        | Op::Rename
        | Op::Renameat
        | Op::Renameat2
        | Op::Link
        | Op::Linkat
        | Op::Symlink
        | Op::Symlinkat => out_of_line(|| names::enter(context, arguments)),
        Op::Shmctl | Op::Semctl | Op::Msgctl => ipc::enter(context, arguments),
        Op::Readlink | Op::Readlinkat => out_of_line(|| files::readlink(context, arguments)),
        Op::Getcwd => files::getcwd(context, arguments),
        Op::Chdir => files::chdir(context, arguments),
        Op::Fchdir => files::fchdir(context, arguments),
        Op::Truncate | Op::Truncate64 => out_of_line(|| files::truncate(context, arguments)),
        Op::Utime | Op::Utimes | Op::Futimesat | Op::Utimensat | Op::UtimensatTime64 => {
            out_of_line(|| files::utimens(context, arguments))
        }
        Op::Statfs | Op::Statfs64 => out_of_line(|| file_systems::statfs(context, arguments)),
        Op::NameToHandleAt => files::name_to_handle(context, arguments),
        Op::InotifyAddWatch => files::watch(context, arguments),
        // They fail unless the descriptor is open for writing, and a file that was opened so has
        // its own copy.
        Op::Ftruncate | Op::Ftruncate64 | Op::Fstatfs | Op::Fstatfs64 => Ok(Verdict::Pass),
        Op::Getdents | Op::Getdents64 => {
            out_of_line(|| crate::paths::listing::enter(context, arguments))
        }
        Op::Ioctl => match crate::sockets::interfaces::asked(context, arguments) {
            Some(verdict) => Ok(verdict),
            None => out_of_line(|| files::change_flags(context, arguments)),
        },
        Op::Execve | Op::Execveat => Ok(out_of_line(|| crate::exec::plan(context, call))),
        Op::FileGetattr | Op::FileSetattr => Err(Errno::ENOSYS),
        Op::Chroot
        | Op::FanotifyMark
        | Op::PivotRoot
        | Op::Mount
        | Op::Umount
        | Op::Umount2
        | Op::OpenTree
        | Op::OpenTreeAttr
        | Op::MoveMount
        | Op::Fspick
        | Op::MountSetattr
        | Op::Swapon
        | Op::Swapoff
        | Op::Acct
        | Op::Quotactl
        | Op::Uselib => process::enter(context, call, op),
        _ if stat::concerns(op) => stat::rule(context, arguments),
        _ if owners::concerns(op) => owners::rule(context, arguments),
        _ if attributes::concerns(op) => attributes::rule(context, arguments),
        _ => match arguments.entry.class {
            Class::Plain | Class::Descriptor => Ok(Verdict::Pass),
            Class::Process | Class::Refused => process::enter(context, call, op),
            Class::Socket => crate::sockets::enter(context, call, op),
            Class::Identity => ids::rule(context, arguments),
            Class::Path | Class::Exec => Err(Errno::ENOSYS),
        },
    }
}

/// Keeps `work` out of its caller's stack frame, which would become as large: each page of stack
/// that is touched costs memory in every process.
#[inline(never)]
fn out_of_line<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Finishes a call whose verdict asked for it. `call` is the guest's own (not the one made
/// instead), `result` is the kernel's. Returns the result for the guest.
pub fn leave<N: Backend>(
    context: &mut CallContext<'_, N>,
    after: After,
    call: &Call,
    result: i64,
) -> i64 {
    // While the call ran, another thread may have opened something else.
    context.buffers.layer = None;
    match after {
        After::Nothing
        | After::Path { .. }
        | After::Unseen { .. }
        | After::FromTree { .. }
        | After::ByName { .. } => result,
        After::Listing { room } => crate::paths::listing::leave(context, call, room, result),
        After::Close(_) | After::Restore(..) => {
            abandon(context.backend, after);
            result
        }
        After::Entered(binding) => {
            open::note_entered(context, result, binding);
            result
        }
        After::Made => {
            open::opened_new(context, call, result);
            result
        }
        After::Created { gid, kind, clear } => {
            open::record_created(context, result, gid, kind, clear);
            result
        }
        After::Inherited { directory, mode, kind } => {
            open::record_inherited(context, result, (directory, kind), mode);
            abandon(context.backend, after);
            result
        }
        After::Owners { buffer } => {
            ipc::leave(context, buffer, result);
            result
        }
        After::Filter | After::Forgive | After::HostName => {
            process::leave(context, after, call, result)
        }
        After::Interfaces { room } if is_ioctl(call) => {
            crate::sockets::interfaces::told(context, call, room, result)
        }
        After::Address { .. }
        | After::AddressFrom { .. }
        | After::Message { .. }
        | After::Messages { .. }
        | After::Sent { .. }
        | After::Peer
        | After::Bound
        | After::Interfaces { .. } => crate::sockets::leave(context, after, call, result),
    }
}

fn is_ioctl(call: &Call) -> bool {
    abi::calls::find(call.arch, call.number).is_some_and(|entry| entry.op == Op::Ioctl)
}

/// Checks the assumption of [`After::Unseen`], [`After::FromTree`] or [`After::ByName`]; backends
/// call it before [`leave`]. Returns true if it was wrong: the name is a link, its file needs a
/// rule, or a directory was moved during the call. Then the effect of `result` has been undone, and
/// the backend calls [`enter`] again with the same call.
pub fn again<N: Backend>(context: &mut CallContext<'_, N>, after: After, result: i64) -> bool {
    context.buffers.careful = match after {
        After::Unseen { generation, alone, directory, .. } => {
            open::needed_emulation(context, (!alone).then_some(generation), directory, result)
        }
        After::FromTree { .. } => result == Errno::EBADF.result(),
        _ => false,
    };
    let before = match after {
        After::Unseen { moves, .. } | After::FromTree { moves } => moves,
        After::ByName { moves } => Some(moves),
        _ => return context.buffers.careful,
    };
    context.buffers.careful
        || is_missing(result)
            && moves::may_mislead(context.world.image.as_ref(), context.backend, before)
}

/// Releases what is held for the duration of a call: at its end, or if the thread was killed and
/// the end will never be seen.
pub fn abandon(host: &mut impl Host, after: After) {
    match after {
        After::Close(fd) | After::Inherited { directory: fd, .. } => host.close(fd),
        After::Restore(fd, mode) => {
            // The file belongs to the caller. If it was deleted meanwhile, its mode does not
            // matter.
            let _ = host.chmod(Dir::Held(fd), c"", mode);
            host.close(fd);
        }
        _ => {}
    }
}
