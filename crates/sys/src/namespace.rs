//! Leaving and entering namespaces.
//!
//! See [unshare(2)](https://man7.org/linux/man-pages/man2/unshare.2.html) and [setns(2)](https://man7.org/linux/man-pages/man2/setns.2.html).
//! Only namespaces are offered, never the sharing of descriptors or of the working directory between threads.

use linux_raw_sys::general as raw;
use rustix::io::Errno;
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};
use std::os::fd::{AsFd, OwnedFd};

/// A set of kinds of namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Kinds(u32);

impl Kinds {
    /// User and group ids.
    pub const USER: Self = Self(raw::CLONE_NEWUSER);
    /// Mounts.
    pub const MOUNT: Self = Self(raw::CLONE_NEWNS);
    /// Process ids (of future children).
    pub const PID: Self = Self(raw::CLONE_NEWPID);
    /// System V IPC, POSIX queues.
    pub const IPC: Self = Self(raw::CLONE_NEWIPC);
    /// Host name.
    pub const UTS: Self = Self(raw::CLONE_NEWUTS);
    /// Network.
    pub const NET: Self = Self(raw::CLONE_NEWNET);
    /// Control groups.
    pub const CGROUP: Self = Self(raw::CLONE_NEWCGROUP);
    /// None.
    pub const NONE: Self = Self(0);

    /// All kinds with their names under `/proc/PID/ns`, in the order in which they must be entered: the user namespace first, since it
    /// gives the capabilities for the rest, the mounts last, since `/proc` may look different then.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::USER, "user"),
        (Self::IPC, "ipc"),
        (Self::UTS, "uts"),
        (Self::NET, "net"),
        (Self::PID, "pid"),
        (Self::CGROUP, "cgroup"),
        (Self::MOUNT, "mnt"),
    ];

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of the other are in this.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Nothing in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The names, separated by commas.
    pub fn names(self) -> String {
        let names: Vec<&str> =
            Self::ALL.iter().filter(|(kind, _)| self.has(*kind)).map(|(_, name)| *name).collect();
        names.join(", ")
    }
}

/// Makes new namespaces of these kinds for the calling thread.
///
/// With [`Kinds::USER`] the process must have one thread (`EINVAL` otherwise).
pub fn unshare(kinds: Kinds) -> Result<(), Errno> {
    // SAFETY: only CLONE_NEW* flags can be in a `Kinds`; none of them separates descriptors or memory from another thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::from_bits_retain(kinds.0)) }
}

/// Enters the namespaces of a process, all at once where the kernel can (5.8), else one by one.
///
/// The caller gets the root and working directory of the mount namespace it enters. A pid namespace is for future children.
pub fn enter(pid: u32, pidfd: Option<&OwnedFd>, kinds: Kinds) -> Result<(), Errno> {
    if let Some(pidfd) = pidfd {
        let types = ThreadNameSpaceType::from_bits_retain(kinds.0);
        match rustix::thread::move_into_thread_name_spaces(pidfd.as_fd(), types) {
            Err(Errno::INVAL | Errno::BADF) => {}
            result => return result,
        }
    }
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let mut files = Vec::new();
    for (kind, name) in Kinds::ALL {
        if kinds.has(kind) {
            let path = format!("/proc/{pid}/ns/{name}");
            files.push(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?);
        }
    }
    files.iter().try_for_each(|file| rustix::thread::move_into_link_name_space(file.as_fd(), None))
}

/// The kinds in which a process differs from the caller.
pub fn different(pid: u32) -> Result<Kinds, Errno> {
    let mut all = Kinds::NONE;
    for (kind, name) in Kinds::ALL {
        let inode = |who: &str| {
            rustix::fs::stat(format!("/proc/{who}/ns/{name}"))
                .map(|stat| (stat.st_dev, stat.st_ino))
        };
        match (inode("self"), inode(&pid.to_string())) {
            (Ok(ours), Ok(theirs)) if ours == theirs => {}
            (Ok(_), Ok(_)) => all = all.with(kind),
            // A kernel without this kind.
            (Err(_), _) => {}
            (Ok(_), Err(errno)) => return Err(errno),
        }
    }
    Ok(all)
}
