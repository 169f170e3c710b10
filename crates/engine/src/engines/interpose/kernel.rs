//! [`hostfs::Kernel`] over `rustix`, for a process that makes calls for another one.
//!
//! The guest's descriptors and its working directory are reached through the magic links
//! `/proc/THREAD/fd/N` and `/proc/THREAD/cwd`, as a part of the path. Nothing is opened for that,
//! and nothing is remembered between calls, because the guest may change both at any time.
//!
//! The process must have the umask 0, because modes come with the guest's umask applied.

use super::layers::Mapped;
use hostfs::at::{MagicLink, Missing, Process};
use hostfs::kernel::BUFFER;
use hostfs::overlay::Layers;
use hostfs::{CWD, Feature, Kernel, Target};
use linux_raw_sys::general::{
    AT_SYMLINK_NOFOLLOW, LOCK_EX, UTIME_NOW, stat, statfs64, statx, timespec,
};
use rustix::fs::{
    Access, AtFlags, FileType, FlockOperation, Gid, MemfdFlags, Mode, OFlags, RenameFlags,
    ResolveFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno as Raw, Result as RawResult};
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use view::errno::Result;
use view::{Dir, Errno, HostFd};

/// The kernel, called by this process for the guest's thread that it serves.
#[derive(Debug, Default)]
pub struct HostKernel {
    held: RefCell<Held>,
    thread: Cell<u32>,
    lacking: Cell<u8>,
    tree: Option<Tree>,
    layers: Option<Rc<Mapped>>,
}

/// The open files of this process that a [`HostFd`] names, by number.
#[derive(Debug, Default)]
struct Held(Vec<Option<OwnedFd>>);

impl Held {
    fn get(&self, fd: HostFd) -> Option<&OwnedFd> {
        self.0.get(usize::try_from(fd.0).ok()?)?.as_ref()
    }
}

/// The root of the container's tree, held open: most host paths lead into it, and walking to it
/// takes longer than the rest of them.
#[derive(Debug)]
struct Tree {
    directory: HostFd,
    /// Its path, with a slash behind it.
    prefix: Vec<u8>,
    /// Major and minor number.
    device: (u32, u32),
}

/// An error of `rustix`, in the view's terms.
pub(super) fn errno(raw: Raw) -> Errno {
    Errno(raw.raw_os_error() as u16)
}

impl HostKernel {
    /// The calls are for this thread from now on.
    pub(super) fn serve(&self, thread: u32) {
        self.thread.set(thread);
    }

    /// The thread that the calls are for.
    pub(super) fn thread(&self) -> u32 {
        self.thread.get()
    }

    /// Holds the root of the container's tree open. Not where that is the host's own root, or
    /// cannot be opened.
    pub(super) fn set_tree(&mut self, root: &[u8]) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if root == b"/" {
            return;
        }
        let Ok(directory) = rustix::fs::open(root, flags, Mode::empty()) else { return };
        let Ok(stat) = rustix::fs::fstat(&directory) else { return };
        let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        let directory = self.hold(directory);
        self.tree = Some(Tree { directory, prefix: [root, b"/"].concat(), device });
    }

    /// The container's tree has these layers.
    pub(super) fn set_layers(&mut self, layers: Option<Rc<Mapped>>) {
        self.layers = layers;
    }

    /// Device of the container's tree.
    pub(super) fn tree_device(&self) -> Option<(u32, u32)> {
        self.tree.as_ref().map(|tree| tree.device)
    }

    /// Takes a file over.
    pub(super) fn hold(&self, file: OwnedFd) -> HostFd {
        let number = file.as_raw_fd();
        let mut held = self.held.borrow_mut();
        let index = number as usize;
        if held.0.len() <= index {
            held.0.resize_with(index + 1, || None);
        }
        held.0[index] = Some(file);
        HostFd(number)
    }

    /// Gives a file back.
    pub(super) fn take(&self, fd: HostFd) -> Option<OwnedFd> {
        self.held.borrow_mut().0.get_mut(usize::try_from(fd.0).ok()?)?.take()
    }

    /// Makes a call with a file or directory.
    pub(super) fn with<T>(
        &self,
        fd: HostFd,
        call: impl FnOnce(BorrowedFd<'_>) -> RawResult<T>,
    ) -> Result<T> {
        if fd == CWD {
            return call(rustix::fs::CWD).map_err(errno);
        }
        let held = self.held.borrow();
        call(held.get(fd).ok_or(Errno::EBADF)?.as_fd()).map_err(errno)
    }

    /// Makes a call with two of them.
    fn with_both<T>(
        &self,
        one: HostFd,
        other: HostFd,
        call: impl FnOnce(BorrowedFd<'_>, BorrowedFd<'_>) -> RawResult<T>,
    ) -> Result<T> {
        let held = self.held.borrow();
        let get = |fd| match fd {
            CWD => Ok(rustix::fs::CWD),
            fd => held.get(fd).map(AsFd::as_fd).ok_or(Errno::EBADF),
        };
        call(get(one)?, get(other)?).map_err(errno)
    }

    fn lstat(&self, path: &CStr) -> Result<stat> {
        self.fstatat(CWD, path, AT_SYMLINK_NOFOLLOW)
    }
}

fn at_flags(flags: u32) -> AtFlags {
    AtFlags::from_bits_retain(flags)
}

fn open_flags(flags: u32) -> OFlags {
    OFlags::from_bits_retain(flags) | OFlags::CLOEXEC
}

/// Times of `utimensat`; `None` is now.
fn timestamps(times: Option<&[timespec; 2]>) -> Timestamps {
    let now = timespec { tv_sec: 0, tv_nsec: UTIME_NOW.into() };
    let [access, modification] = times.copied().unwrap_or([now; 2]);
    let stamp = |time: timespec| Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec };
    Timestamps { last_access: stamp(access), last_modification: stamp(modification) }
}

/// Reads into a buffer, or asks for the size where it is empty: the wrappers for reading count
/// what they have written.
fn sized(
    into: &mut [u8],
    size: impl FnOnce() -> RawResult<usize>,
    read: impl FnOnce(&mut [u8]) -> RawResult<usize>,
) -> Result<usize> {
    if into.is_empty() { size() } else { read(into) }.map_err(errno)
}

impl Kernel for HostKernel {
    const APPLIES_UMASK: bool = false;

    fn openat(&self, dir: HostFd, path: &CStr, flags: u32, mode: u32) -> Result<HostFd> {
        let mode = Mode::from_raw_mode(mode);
        let file = self.with(dir, |dir| rustix::fs::openat(dir, path, open_flags(flags), mode))?;
        Ok(self.hold(file))
    }

    fn openat2(
        &self,
        dir: HostFd,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<HostFd> {
        let (flags, mode) = (open_flags(flags), Mode::from_raw_mode(mode));
        let resolve = ResolveFlags::from_bits_retain(resolve);
        let file = self.with(dir, |dir| rustix::fs::openat2(dir, path, flags, mode, resolve))?;
        Ok(self.hold(file))
    }

    fn memfd_create(&self, name: &CStr) -> Result<HostFd> {
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(errno)?;
        Ok(self.hold(file))
    }

    fn close(&self, file: HostFd) {
        drop(self.take(file));
    }

    fn statx(&self, dir: HostFd, path: &CStr, flags: u32, into: &mut statx) -> Result<()> {
        *into = self.with(dir, |dir| sys::fs::calls::statx(dir, path, flags))?;
        Ok(())
    }

    fn fstatat(&self, dir: HostFd, path: &CStr, flags: u32) -> Result<stat> {
        self.with(dir, |dir| sys::fs::calls::fstatat(dir, path, flags))
    }

    fn readlinkat(&self, dir: HostFd, path: &CStr, into: &mut [u8]) -> Result<usize> {
        self.with(dir, |dir| rustix::fs::readlinkat_raw(dir, path, into))
    }

    fn faccessat2(&self, dir: HostFd, path: &CStr, mode: u32, flags: u32) -> Result<()> {
        let mode = Access::from_bits_retain(mode);
        self.with(dir, |dir| rustix::fs::accessat(dir, path, mode, at_flags(flags)))
    }

    fn faccessat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        let mode = Access::from_bits_retain(mode);
        self.with(dir, |dir| rustix::fs::accessat(dir, path, mode, AtFlags::empty()))
    }

    fn statfs(&self, target: Target<'_>, into: &mut statfs64) -> Result<()> {
        *into = match target {
            Target::File(file) => self.with(file, |file| sys::fs::calls::fstatfs(file))?,
            Target::Path(path) | Target::Link(path) => {
                sys::fs::calls::statfs(path).map_err(errno)?
            }
        };
        Ok(())
    }

    fn mkdirat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        self.with(dir, |dir| rustix::fs::mkdirat(dir, path, Mode::from_raw_mode(mode)))
    }

    fn mknodat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        // No type is a regular file.
        let kind = match FileType::from_raw_mode(mode) {
            FileType::Unknown => FileType::RegularFile,
            kind => kind,
        };
        let mode = Mode::from_raw_mode(mode & 0o7777);
        self.with(dir, |dir| rustix::fs::mknodat(dir, path, kind, mode, 0))
    }

    fn symlinkat(&self, target: &CStr, dir: HostFd, path: &CStr) -> Result<()> {
        self.with(dir, |dir| rustix::fs::symlinkat(target, dir, path))
    }

    fn linkat(&self, from: (HostFd, &CStr), to: (HostFd, &CStr), flags: u32) -> Result<()> {
        self.with_both(from.0, to.0, |old, new| {
            rustix::fs::linkat(old, from.1, new, to.1, at_flags(flags))
        })
    }

    fn renameat2(&self, from: (HostFd, &CStr), to: (HostFd, &CStr), flags: u32) -> Result<()> {
        self.with_both(from.0, to.0, |old, new| match flags {
            0 => rustix::fs::renameat(old, from.1, new, to.1),
            flags => {
                let flags = RenameFlags::from_bits_retain(flags);
                rustix::fs::renameat_with(old, from.1, new, to.1, flags)
            }
        })
    }

    fn unlinkat(&self, dir: HostFd, path: &CStr, flags: u32) -> Result<()> {
        self.with(dir, |dir| rustix::fs::unlinkat(dir, path, at_flags(flags)))
    }

    fn fchmodat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode);
        self.with(dir, |dir| rustix::fs::chmodat(dir, path, mode, AtFlags::empty()))
    }

    fn fchmod(&self, file: HostFd, mode: u32) -> Result<()> {
        self.with(file, |file| rustix::fs::fchmod(file, Mode::from_raw_mode(mode)))
    }

    fn fchownat(&self, dir: HostFd, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<()> {
        let uid = (uid != u32::MAX).then(|| Uid::from_raw(uid));
        let gid = (gid != u32::MAX).then(|| Gid::from_raw(gid));
        self.with(dir, |dir| rustix::fs::chownat(dir, path, uid, gid, at_flags(flags)))
    }

    fn utimensat(
        &self,
        dir: HostFd,
        path: Option<&CStr>,
        times: Option<&[timespec; 2]>,
        flags: u32,
    ) -> Result<()> {
        let times = timestamps(times);
        self.with(dir, |dir| match path {
            Some(path) => rustix::fs::utimensat(dir, path, &times, at_flags(flags)),
            None => rustix::fs::futimens(dir, &times),
        })
    }

    fn truncate(&self, target: Target<'_>, length: u64) -> Result<()> {
        match target {
            Target::File(file) => self.with(file, |file| rustix::fs::ftruncate(file, length)),
            Target::Path(path) | Target::Link(path) => {
                sys::fs::calls::truncate(path, length).map_err(errno)
            }
        }
    }

    fn getxattr(&self, target: Target<'_>, name: &CStr, into: &mut [u8]) -> Result<usize> {
        use rustix::fs::{
            fgetxattr, fgetxattr_query, getxattr, getxattr_query, lgetxattr, lgetxattr_query,
        };
        match target {
            Target::Path(path) => {
                sized(into, || getxattr_query(path, name), |into| getxattr(path, name, into))
            }
            Target::Link(path) => {
                sized(into, || lgetxattr_query(path, name), |into| lgetxattr(path, name, into))
            }
            Target::File(file) => self.with(file, |file| {
                if into.is_empty() {
                    return fgetxattr_query(file, name);
                }
                fgetxattr(file, name, into)
            }),
        }
    }

    fn setxattr(&self, target: Target<'_>, name: &CStr, value: &[u8], flags: u32) -> Result<()> {
        let flags = XattrFlags::from_bits_retain(flags);
        match target {
            Target::Path(path) => rustix::fs::setxattr(path, name, value, flags).map_err(errno),
            Target::Link(path) => rustix::fs::lsetxattr(path, name, value, flags).map_err(errno),
            Target::File(file) => {
                self.with(file, |file| rustix::fs::fsetxattr(file, name, value, flags))
            }
        }
    }

    fn listxattr(&self, target: Target<'_>, into: &mut [u8]) -> Result<usize> {
        use rustix::fs::{
            flistxattr, flistxattr_query, listxattr, listxattr_query, llistxattr, llistxattr_query,
        };
        match target {
            Target::Path(path) => {
                sized(into, || listxattr_query(path), |into| listxattr(path, into))
            }
            Target::Link(path) => {
                sized(into, || llistxattr_query(path), |into| llistxattr(path, into))
            }
            Target::File(file) => self.with(file, |file| {
                if into.is_empty() {
                    return flistxattr_query(file);
                }
                flistxattr(file, into)
            }),
        }
    }

    fn removexattr(&self, target: Target<'_>, name: &CStr) -> Result<()> {
        match target {
            Target::Path(path) => rustix::fs::removexattr(path, name).map_err(errno),
            Target::Link(path) => rustix::fs::lremovexattr(path, name).map_err(errno),
            Target::File(file) => self.with(file, |file| rustix::fs::fremovexattr(file, name)),
        }
    }

    fn pread(&self, file: HostFd, into: &mut [u8], offset: u64) -> Result<usize> {
        self.with(file, |file| rustix::io::pread(file, into, offset))
    }

    fn pwrite(&self, file: HostFd, from: &[u8], offset: u64) -> Result<usize> {
        self.with(file, |file| rustix::io::pwrite(file, from, offset))
    }

    fn write(&self, file: HostFd, from: &[u8]) -> Result<usize> {
        self.with(file, |file| rustix::io::write(file, from))
    }

    fn lseek(&self, file: HostFd, offset: u64, whence: u32) -> Result<u64> {
        self.with(file, |file| sys::fs::calls::lseek(file, offset, whence))
    }

    fn copy_file_range(
        &self,
        source: HostFd,
        target: HostFd,
        offset: u64,
        length: u64,
    ) -> Result<u64> {
        let (mut from, mut to) = (offset, offset);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.with_both(source, target, |source, target| {
            rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), length)
        })
        .map(|count| count as u64)
    }

    fn clone_contents(&self, source: HostFd, target: HostFd) -> Result<()> {
        self.with_both(source, target, |source, target| rustix::fs::ioctl_ficlone(target, source))
    }

    fn getdents(&self, directory: HostFd, into: &mut [u8]) -> Result<usize> {
        self.with(directory, |directory| sys::fs::calls::getdents(directory, into))
    }

    fn flock(&self, file: HostFd, operation: u32) -> Result<()> {
        let operation = match operation {
            LOCK_EX => FlockOperation::LockExclusive,
            _ => FlockOperation::Unlock,
        };
        self.with(file, |file| rustix::fs::flock(file, operation))
    }

    fn thread_id(&self) -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    fn lacks(&self, feature: Feature) -> bool {
        // `rustix` has no `getxattrat`, and the tracer's time is not spent on paths.
        feature == Feature::Xattrat || self.lacking.get() & (1 << feature as u8) != 0
    }

    fn set_lacking(&self, feature: Feature) {
        self.lacking.set(self.lacking.get() | 1 << feature as u8);
    }

    fn with_path<T>(&self, parts: &[&[u8]], call: impl FnOnce(&CStr) -> Result<T>) -> Result<T> {
        call(&joined(parts)?)
    }

    fn with_buffer<T>(&self, call: impl FnOnce(&mut [u8; BUFFER]) -> Result<T>) -> Result<T> {
        let mut buffer = vec![0; BUFFER].into_boxed_slice();
        call(buffer.first_chunk_mut().ok_or(Errno::ENOMEM)?)
    }
}

/// One path of several parts. `EINVAL` for a NUL in them.
fn joined(parts: &[&[u8]]) -> Result<CString> {
    CString::new(parts.concat()).map_err(|_| Errno::EINVAL)
}

impl Process for HostKernel {
    fn descriptor(&self, dir: Dir) -> Result<Option<HostFd>> {
        match dir {
            Dir::Held(fd) if self.held.borrow().get(fd).is_none() => Err(Errno::EBADF),
            Dir::Held(fd) => Ok(Some(fd)),
            Dir::Root | Dir::Guest(_) | Dir::Cwd => Ok(None),
        }
    }

    fn proc_directory(&self, dir: Dir, into: &mut MagicLink) {
        into.push(b"/proc/");
        match dir {
            Dir::Held(_) | Dir::Root => into.push(b"self"),
            Dir::Guest(_) | Dir::Cwd => into.push_number(self.thread.get()),
        }
        into.push(b"/");
    }

    fn missing(&self, dir: Dir) -> Missing {
        let link = MagicLink::of(self, dir);
        let is_closed = matches!(dir, Dir::Guest(_))
            && matches!(self.lstat(link.as_c_str()), Err(Errno::ENOENT));
        if is_closed { Missing::Closed } else { Missing::Behind }
    }

    fn layers(&self) -> Option<Layers<'_>> {
        self.layers.as_ref()?.layers()
    }

    fn in_tree<'p>(&self, path: &'p CStr) -> Option<(HostFd, &'p CStr)> {
        let tree = self.tree.as_ref()?;
        let rest = path.to_bytes_with_nul().strip_prefix(tree.prefix.as_slice())?;
        // With another slash before it, it would be the host's; the root itself has no name.
        let is_name = !matches!(rest.first(), Some(b'/' | 0) | None);
        let rest = CStr::from_bytes_with_nul(rest).ok()?;
        is_name.then_some((tree.directory, rest))
    }
}
