//! Leaves and enters namespaces.
//!
//! See [unshare(2)](https://man7.org/linux/man-pages/man2/unshare.2.html) and
//! [setns(2)](https://man7.org/linux/man-pages/man2/setns.2.html). Supports only namespaces, not
//! the sharing of descriptors or of the working directory between threads.

use crate::life::of_any_thread;
use crate::raw::call;
use linux_raw_sys::general as raw;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
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
    /// No kind.
    pub const NONE: Self = Self(0);

    /// All kinds with their names under `/proc/PID/ns`, in the order in which they must be entered:
    /// the user namespace first, since it grants the capabilities for the rest, the mounts last,
    /// since `/proc` may change then.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::USER, "user"),
        (Self::IPC, "ipc"),
        (Self::UTS, "uts"),
        (Self::NET, "net"),
        (Self::PID, "pid"),
        (Self::CGROUP, "cgroup"),
        (Self::MOUNT, "mnt"),
    ];

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True if this set has all kinds of the other.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if the set is empty.
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
    // SAFETY: a `Kinds` has only CLONE_NEW* flags; none of them separates descriptors or memory
    // from another thread.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::from_bits_retain(kinds.0)) }
}

/// Open namespaces of a process: they stay valid after it ends.
#[derive(Debug)]
pub struct Held(Vec<(Kinds, OwnedFd)>);

impl Held {
    /// Opens the namespaces of these kinds.
    ///
    /// A runtime may make the mounts in one user namespace and start the program in another one
    /// below it (crun does, for a user who is not root in the container). Then the one that owns
    /// the mounts is entered first, and the process's own last: in the lower one this process has
    /// no right to the mounts.
    pub fn of(pid: u32, kinds: Kinds) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut held = of_any_thread(pid, |of| {
            let wanted = Kinds::ALL.into_iter().filter(|(kind, _)| kinds.has(*kind));
            let open = |(kind, name): (Kinds, &str)| {
                let file = rustix::fs::open(of.join("ns").join(name), flags, Mode::empty())?;
                Ok((kind, file))
            };
            wanted.map(open).collect::<Result<_, _>>().map(Self)
        })?;
        if kinds.has(Kinds::USER.with(Kinds::MOUNT)) {
            held.put_owner_first()?;
        }
        Ok(held)
    }

    /// Puts the user namespace that owns the mounts in front, if it is not the one that is there.
    fn put_owner_first(&mut self) -> Result<(), Errno> {
        let (Some(user), Some(mounts)) = (self.0.first(), self.0.last()) else { return Ok(()) };
        // A namespace that this process may not see is none that it could enter.
        let Ok(owner) = owner(&mounts.1) else { return Ok(()) };
        if is_same(&owner, &user.1)? {
            return Ok(());
        }
        self.0.rotate_left(1);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let own = rustix::fs::open("/proc/self/ns/user", flags, Mode::empty())?;
        // The kernel lets no process enter the user namespace in which it is.
        if !is_same(&owner, &own)? {
            self.0.insert(0, (Kinds::USER, owner));
        }
        Ok(())
    }

    /// Enters them, one by one.
    ///
    /// The caller gets the root and working directory of the mount namespace that it enters. A pid
    /// namespace takes effect for future children.
    pub fn enter(&self) -> Result<(), Errno> {
        self.0.iter().try_for_each(|(kind, file)| enter(*kind, file))
    }
}

/// Enters a namespace.
///
/// A process with several threads may not enter a user namespace (`setns(2)`, `EINVAL`), and who
/// waits for the end of a thread is told before the kernel has taken it out of the process. So it
/// is tried for a while.
fn enter(kind: Kinds, file: &OwnedFd) -> Result<(), Errno> {
    let mut left = TRIES;
    loop {
        match rustix::thread::move_into_link_name_space(file.as_fd(), None) {
            Err(Errno::INVAL) if kind.has(Kinds::USER) && left > 0 => {
                left -= 1;
                std::thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// How often, and after which pause each.
const TRIES: u32 = 100;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// `NS_GET_USERNS` of `ioctl_ns(2)`.
const GET_OWNER: usize = 0xb701;

/// The user namespace that owns a namespace.
fn owner(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let file = file.as_fd().as_raw_fd() as usize;
    // SAFETY: this request has no argument.
    let owner = unsafe { call(raw::__NR_ioctl, [file, GET_OWNER, 0, 0, 0]) }?;
    // SAFETY: the kernel has made this descriptor for the caller alone.
    Ok(unsafe { OwnedFd::from_raw_fd(owner as i32) })
}

/// Whether two descriptors are of one namespace.
fn is_same(one: &OwnedFd, other: &OwnedFd) -> Result<bool, Errno> {
    let (one, other) = (rustix::fs::fstat(one)?, rustix::fs::fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Leaves the programs that this process executes from now on to the kernel alone, where an engine
/// in the process serves it in namespaces of its container's own: by entering the mount namespace
/// in which it is already, which to such an engine is a change of namespaces. Root and working
/// directory stay.
///
/// `EPERM`: the engine has no namespaces, or the process no right in them.
pub fn leave_engine() -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let here = rustix::fs::open(".", flags, Mode::empty())?;
    Held::of(std::process::id(), Kinds::MOUNT)?.enter()?;
    rustix::process::fchdir(here)
}

/// Whether [`leave_engine`] may work: without effect, since no mount namespace is one of the
/// network. An engine without namespaces refuses every such call.
#[must_use]
pub fn can_leave_engine() -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let kind = Some(LinkNameSpaceType::Network);
    rustix::fs::open("/proc/self/ns/mnt", flags, Mode::empty())
        .and_then(|file| rustix::thread::move_into_link_name_space(file.as_fd(), kind))
        == Err(Errno::INVAL)
}

/// The kinds of namespace in which a process differs from the caller.
pub fn different(pid: u32) -> Result<Kinds, Errno> {
    let inode = |of: &Path| rustix::fs::stat(of).map(|stat| (stat.st_dev, stat.st_ino));
    of_any_thread(pid, |of| {
        let mut all = Kinds::NONE;
        for (kind, name) in Kinds::ALL {
            match (inode(&Path::new("/proc/self/ns").join(name)), inode(&of.join("ns").join(name)))
            {
                (Ok(ours), Ok(theirs)) if ours == theirs => {}
                (Ok(_), Ok(_)) => all = all.with(kind),
                // The kernel lacks this kind.
                (Err(_), _) => {}
                (Ok(_), Err(errno)) => return Err(errno),
            }
        }
        Ok(all)
    })
}

/// `NS_GET_MNTNS_ID` of `ioctl_nsfs(2)`.
const GET_ID: usize = 0x8008_b705;

/// The number of a mount namespace (its file is one of `/proc/PID/ns/mnt`). No other namespace gets
/// it until the machine is restarted.
///
/// # Errors
/// `ENOTTY` before Linux 6.11.
pub fn mount_namespace_number(file: impl AsFd) -> Result<u64, Errno> {
    let mut number = 0_u64;
    let file = file.as_fd().as_raw_fd() as usize;
    // SAFETY: the kernel writes 8 bytes to `number`, which lives during the call.
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

/// Returns true if a mount namespace with this number ([`mount_namespace_number`]) still exists.
/// The kernel reports none if its user namespace is neither the caller's nor a descendant of it.
///
/// # Errors
/// The kernel's error if it cannot tell: `ENOSYS` before Linux 6.8, `EPERM` under some filters.
pub fn is_mount_namespace(number: u64) -> Result<bool, Errno> {
    let size = size_of::<ListMount>();
    // The request asks for the topmost mount, since one is enough.
    let request =
        ListMount { size: size as u32, spare: 0, mount: u64::MAX, param: 0, namespace: number };
    let mut first = 0_u64;
    let (request, into) = (&raw const request as usize, &raw mut first as usize);
    // SAFETY: the first address is that of `request`, which has the size that it states; the second
    // is that of `first`, the one number that the third argument allows the kernel to write.
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
