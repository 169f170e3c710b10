//! Decides what a user of the container may do to processes of another one.
//!
//! All of them are one user on the host, so the kernel would allow it. [`abi::calls::others`] lists
//! the calls and the right that each needs, [`may`] has the kernel's rule for each right. The same
//! rule guards what `/proc` shows of a process's memory and descriptors ([`crate::proc`]).
//!
//! A process of which the backend does not know the ids is not one of the container: the kernel
//! decides. It also decides about groups of processes and about all processes of a user.

use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Host};
use crate::identity::{Capability, Credentials, Ids};
use crate::task::Task;
use crate::text::Text;
use crate::verdict::Call;
use crate::world::World;
use abi::calls::Op;
use abi::calls::others::{Named, Right, of};
use linux_raw_sys::general as raw;

const SIGCONT: u32 = 18;

/// Checks a call that may reach other processes: `EPERM`.
pub(super) fn check<N: Backend>(
    context: &mut CallContext<'_, N>,
    call: &Call,
    op: Op,
) -> Result<()> {
    let Some((named, right)) = of(op) else { return Ok(()) };
    let CallContext { backend, world, task, buffers } = context;
    // It may be sent to every process of the session; the kernel knows those.
    if right == Right::Signal && call.arguments[1] as u32 == SIGCONT || has_all(world, task, right)
    {
        return Ok(());
    }
    let argument = |index: u8| call.arguments[usize::from(index)] as i32;
    let processes = match named {
        Named::Number(at) => [argument(at), 0],
        Named::Numbers(one, other) => [argument(one), argument(other)],
        Named::If(which, at) if argument(0) as u32 == which => [argument(at), 0],
        Named::If(..) => [0, 0],
        Named::Descriptor(at) => [process_of(*backend, argument(at), &mut buffers.host), 0],
    };
    for process in processes {
        if let Ok(process @ 1..) = u32::try_from(process) {
            may(*backend, world, task, process, right)?;
        }
    }
    Ok(())
}

/// Checks that a thread may do something to another process or thread: `EPERM`.
pub fn may(
    host: &mut impl Host,
    world: &World<'_>,
    task: &Task,
    process: u32,
    right: Right,
) -> Result<()> {
    if has_all(world, task, right) || process == host.pid() || process == host.tid() {
        return Ok(());
    }
    let mut allowed = true;
    host.with_task(process, &mut |target: &Task| allowed = grants(&task.creds, target, right));
    if allowed { Ok(()) } else { Err(Errno::EPERM) }
}

/// Returns true if a thread has a right over every process.
fn has_all(world: &World<'_>, task: &Task, right: Right) -> bool {
    world.identity.is_none() || task.creds.has(Capability(over_all(right)))
}

/// The capability that gives a right over every process.
const fn over_all(right: Right) -> u32 {
    match right {
        Right::Signal => raw::CAP_KILL,
        Right::Inspect => raw::CAP_SYS_PTRACE,
        Right::Schedule | Right::Disk => raw::CAP_SYS_NICE,
        Right::Limit => raw::CAP_SYS_RESOURCE,
    }
}

/// Returns true if a process without such a capability has a right over `target`.
fn grants(who: &Credentials, target: &Task, right: Right) -> bool {
    let Ids { real, effective, .. } = who.uid;
    let (user, group) = (target.creds.uid, target.creds.gid);
    // The caller is, and can only be, the user and the group that the target is.
    let same = user.is_only(real) && group.is_only(who.gid.real);
    match right {
        Right::Signal => [real, effective].iter().any(|id| [user.real, user.saved].contains(id)),
        Right::Inspect => {
            let more = target.creds.capabilities.permitted & !who.capabilities.permitted;
            same && target.dumpable && more == 0
        }
        Right::Schedule => [user.real, user.effective].contains(&effective),
        Right::Disk => [real, effective].contains(&user.real),
        Right::Limit => same,
    }
}

/// The process of a descriptor that `pidfd_open` gave. 0 if it is none, or the process has ended:
/// the kernel says so.
fn process_of(host: &mut impl Host, descriptor: i32, path: &mut Text) -> i32 {
    let mut text = [0; 256];
    let length = crate::proc::about_descriptor(host, descriptor, path, &mut text).unwrap_or(0);
    let mut lines = text[..length].split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(b"Pid:\t"));
    line.and_then(|line| core::str::from_utf8(line).ok()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Groups;

    fn task(uid: u32, gid: u32) -> Task {
        Task::new(Credentials::new(uid, gid, Groups::NONE), 0o22)
    }

    const ALL: [Right; 5] =
        [Right::Signal, Right::Inspect, Right::Schedule, Right::Disk, Right::Limit];

    fn granted(who: &Task, target: &Task) -> [bool; 5] {
        ALL.map(|right| grants(&who.creds, target, right))
    }

    #[test]
    fn rights_follow_the_ids() {
        let user = task(33, 33);
        assert_eq!(granted(&user, &task(33, 33)), [true; 5]);
        assert_eq!(granted(&user, &task(34, 33)), [false; 5]);
        assert_eq!(granted(&user, &task(33, 34)), [true, false, true, true, false]);
        // `su`, called by this user: it has become root, and may be signalled still.
        let mut su = task(0, 33);
        su.creds.uid.real = 33;
        assert_eq!(granted(&user, &su), [true, false, true, true, false]);
        let mut hidden = task(33, 33);
        hidden.dumpable = false;
        assert_eq!(granted(&user, &hidden), [true, false, true, true, true]);
        let mut able = task(33, 33);
        able.creds.capabilities.permitted = 1 << raw::CAP_CHOWN;
        assert_eq!(granted(&user, &able), [true, false, true, true, true]);
        // A program that is a user only for a while.
        let mut other = task(34, 33);
        other.creds.uid.effective = 33;
        assert_eq!(granted(&other, &user), [true, false, true, true, false]);
        assert_eq!(granted(&user, &other), [false, false, true, false, false]);
    }
}
