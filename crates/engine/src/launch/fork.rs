//! The forks of a start, and waiting for what they made.
//!
//! | function | the new process is | asks first for the number of threads |
//! |---|---|---|
//! | [`child`] | a child | yes |
//! | [`child_of_one_thread`] | a child | no |
//! | [`sibling`] | a child of the caller's parent | no |
//! | [`borrowing_child`] | a child in the caller's memory | yes |

use crate::error::{Error, Result};
use crate::exit::Ended;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};
use sys::fork::ForkResult;

/// Forks a process of one thread; refuses where it has several.
pub(crate) fn child() -> Result<ForkResult> {
    sys::fork::fork().map_err(|error| Error::Call { doing: "fork".into(), errno: error.into() })
}

/// Does work in a child that borrows the memory of this process, until it executes a program or
/// ends.
pub(crate) fn borrowing_child(work: impl FnOnce() -> i32 + Copy) -> Result<Pid> {
    // A process that enters a container makes itself undumpable, which is a property of memory.
    let before = rustix::process::dumpable_behavior();
    let forked = sys::fork::fork_borrowing(work);
    if let Ok(before) = before {
        let _ = rustix::process::set_dumpable_behavior(before);
    }
    forked.map_err(|error| Error::Call { doing: "fork".into(), errno: error.into() })
}

/// Forks where `/proc` may not show this process, so that its number of threads cannot be read. It
/// was one when the namespaces were left, which the kernel refuses to a process with several.
pub(crate) fn child_of_one_thread() -> Result<ForkResult> {
    sys::fork::fork_single().map_err(|errno| Error::call("fork", errno))
}

/// Makes a child of the caller's parent; `None` in it.
pub(crate) fn sibling() -> Result<Option<Pid>> {
    sys::fork::fork_sibling().map_err(|errno| Error::call("fork", errno))
}

/// Waits for the end of a child.
pub(crate) fn wait(child: Pid) -> Result<Ended, Errno> {
    let status =
        rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), WaitOptions::empty()))?;
    Ok(status.and_then(|(_, status)| Ended::of(status)).unwrap_or(Ended::Unknown))
}
