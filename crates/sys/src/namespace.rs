//! Leaving and entering namespaces.
//!
//! See [unshare(2)](https://man7.org/linux/man-pages/man2/unshare.2.html) and [setns(2)](https://man7.org/linux/man-pages/man2/setns.2.html).
//! Only namespaces are offered, never the sharing of descriptors or of the working directory between threads.

use crate::life::of_any_thread;
use crate::raw::call;
use linux_raw_sys::general as raw;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::Path;

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

/// Namespaces of a process, held open: they stay what they are whatever becomes of it.
#[derive(Debug)]
pub struct Held(Vec<(Kinds, OwnedFd)>);

impl Held {
    /// Those of these kinds.
    pub fn of(pid: u32, kinds: Kinds) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        of_any_thread(pid, |of| {
            let wanted = Kinds::ALL.into_iter().filter(|(kind, _)| kinds.has(*kind));
            let open = |(kind, name): (Kinds, &str)| {
                let file = rustix::fs::open(of.join("ns").join(name), flags, Mode::empty())?;
                Ok((kind, file))
            };
            wanted.map(open).collect::<Result<_, _>>().map(Self)
        })
    }

    /// Enters them, one by one.
    ///
    /// The caller gets the root and working directory of the mount namespace it enters. A pid
    /// namespace is for future children.
    pub fn enter(&self) -> Result<(), Errno> {
        let enter = |(_, file): &(Kinds, OwnedFd)| {
            rustix::thread::move_into_link_name_space(file.as_fd(), None)
        };
        self.0.iter().try_for_each(enter)
    }
}

/// The kinds in which a process differs from the caller.
pub fn different(pid: u32) -> Result<Kinds, Errno> {
    let inode = |of: &Path| rustix::fs::stat(of).map(|stat| (stat.st_dev, stat.st_ino));
    of_any_thread(pid, |of| {
        let mut all = Kinds::NONE;
        for (kind, name) in Kinds::ALL {
            match (inode(&Path::new("/proc/self/ns").join(name)), inode(&of.join("ns").join(name)))
            {
                (Ok(ours), Ok(theirs)) if ours == theirs => {}
                (Ok(_), Ok(_)) => all = all.with(kind),
                // A kernel without this kind.
                (Err(_), _) => {}
                (Ok(_), Err(errno)) => return Err(errno),
            }
        }
        Ok(all)
    })
}

/// `NS_GET_MNTNS_ID` of `ioctl_nsfs(2)`.
const GET_ID: usize = 0x8008_b705;

/// The number of a mount namespace (its file is one of `/proc/PID/ns/mnt`), which no other gets
/// until the machine is started anew.
///
/// # Errors
/// `ENOTTY` before Linux 6.11.
pub fn mount_namespace_number(file: impl AsFd) -> Result<u64, Errno> {
    let mut number = 0_u64;
    let file = file.as_fd().as_raw_fd() as usize;
    // SAFETY: the kernel writes 8 bytes to the address, which is that of such a number.
    unsafe { call(raw::__NR_ioctl, [file, GET_ID, &raw mut number as usize, 0, 0]) }?;
    Ok(number)
}

/// `struct mnt_id_req` of listmount(2).
#[repr(C)]
struct ListMount {
    size: u32,
    spare: u32,
    mount: u64,
    param: u64,
    namespace: u64,
}

/// Whether a mount namespace of this number ([`mount_namespace_number`]) is still there. Of one
/// whose user namespace is not the caller's or one below it, the kernel says that it is not.
///
/// # Errors
/// Whatever the kernel says where it does not know: `ENOSYS` before Linux 6.8, `EPERM` under some
/// filters.
pub fn is_mount_namespace(number: u64) -> Result<bool, Errno> {
    let size = size_of::<ListMount>();
    // The topmost mount, of which one is enough.
    let request =
        ListMount { size: size as u32, spare: 0, mount: u64::MAX, param: 0, namespace: number };
    let mut first = 0_u64;
    let (request, into) = (&raw const request as usize, &raw mut first as usize);
    // SAFETY: the first address is that of a request whose size it says, the second that of one
    // number, as the third argument says.
    match unsafe { call(raw::__NR_listmount, [request, into, 1, 0, 0]) } {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_differs_from_itself_in_nothing() {
        assert_eq!(different(std::process::id()), Ok(Kinds::NONE));
        let held = Held::of(std::process::id(), Kinds::USER.with(Kinds::PID)).unwrap();
        assert_eq!(held.0.len(), 2);
        assert_eq!(different(4_194_305), Err(Errno::NOENT));
        assert!(Held::of(4_194_305, Kinds::USER).is_err());
    }
}
