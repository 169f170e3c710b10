//! The view's wishes, each as a call of the kernel's.

use super::at::{DirPath, Link, Name, descriptor, dir_path, is_without_thread_self, start};
use super::{Backend, calls, inode_log, processes};
use crate::{cwd, shared, tree};
use abi::shared::Switches;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, Ordering};
use linux_raw_sys::general::{
    AT_EACCESS, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, F_GETFL, O_CLOEXEC,
    O_NOFOLLOW, O_PATH, S_IFLNK, S_IFMT, STATX_BASIC_STATS, stat, statfs64, statx, statx_timestamp,
    timespec,
};
use view::errno::Result;
use view::guest::Straight;
use view::{Dir, Errno, Host, HostFd, Task, Text};

/// Kernels before 5.8 have no `faccessat2`.
static NO_FACCESSAT2: AtomicBool = AtomicBool::new(false);

/// Kernels before 6.13 have no `getxattrat` and `listxattrat`.
static NO_GETXATTRAT: AtomicBool = AtomicBool::new(false);

/// One call at a place.
fn at<T>(dir: Dir, path: &CStr, mut call: impl FnMut(&DirPath<'_>) -> Result<T>) -> Result<T> {
    let mut name = Link::new();
    match call(&dir_path(&mut name, dir, path)?) {
        Err(Errno::ENOENT) if path.is_empty() => explain(dir, || {
            let mut name = Link::new();
            call(&dir_path(&mut name, dir, path)?)
        }),
        result => result,
    }
}

/// What was just made keeps the rights of its owner, which the umask took: it is the guest's, and may take all.
fn keep_owners(at: &DirPath<'_>, mode: u32) -> Result<()> {
    const OWNER: u32 = 0o700;
    if mode & OWNER == 0 {
        return Ok(());
    }
    let facts = calls::newfstatat(at.dir, at.path, AT_SYMLINK_NOFOLLOW)?;
    if mode & OWNER & !facts.st_mode == 0 {
        return Ok(());
    }
    calls::fchmodat(at.dir, at.path, facts.st_mode & 0o7777 | mode & OWNER)
}

/// One call on a path alone, which may be followed or not; a magic link always is.
fn by_path<T>(dir: Dir, path: &CStr, mut call: impl FnMut(&CStr, bool) -> Result<T>) -> Result<T> {
    let dir = start(dir, path)?;
    if dir == Dir::Root || (dir == Dir::Cwd && !path.is_empty()) {
        return call(path, false);
    }
    by_magic_path(dir, path, call)
}

/// The same by a magic link. Not within its caller, whose stack would be as large.
#[inline(never)]
fn by_magic_path<T>(
    dir: Dir,
    path: &CStr,
    mut call: impl FnMut(&CStr, bool) -> Result<T>,
) -> Result<T> {
    let mut name = Name::new();
    match call(name.compose(dir, path)?, path.is_empty()) {
        Err(Errno::ENOENT) => {
            explain(dir, || call(Name::new().compose(dir, path)?, path.is_empty()))
        }
        result => result,
    }
}

/// A call on attributes by a path from the tree's descriptor: gets the descriptor, what follows behind the tree, and `AT_*` flags. `None` where there is
/// no such call, or no such path.
fn from_tree(
    dir: Dir,
    path: &CStr,
    nofollow: bool,
    call: impl FnOnce(i32, &CStr, u32) -> Result<usize>,
) -> Option<Result<usize>> {
    if dir != Dir::Root || NO_GETXATTRAT.load(Ordering::Relaxed) {
        return None;
    }
    let (tree, rest) = tree::split(path)?;
    match call(tree, rest, if nofollow { AT_SYMLINK_NOFOLLOW } else { 0 }) {
        Err(Errno::ENOSYS | Errno::EPERM) => NO_GETXATTRAT.store(true, Ordering::Relaxed),
        Err(Errno::EBADF) => tree::lose(),
        result => return Some(result),
    }
    None
}

/// A magic link is not there: the kernel has no such links, or there is no such descriptor, or something behind it is not there.
#[cold]
fn explain<T>(dir: Dir, mut again: impl FnMut() -> Result<T>) -> Result<T> {
    if let Dir::Guest(fd) | Dir::Held(HostFd(fd)) = dir
        && calls::fcntl(fd, F_GETFL, 0).is_err()
    {
        return Err(Errno::EBADF);
    }
    if is_without_thread_self() { again() } else { Err(Errno::ENOENT) }
}

impl DirPath<'_> {
    /// `AT_*` for a call here.
    fn flags(&self, flags: u32) -> u32 {
        let without = if self.magic { AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW } else { AT_EMPTY_PATH };
        flags & !without
    }
}

/// `openat2`, which may be refused altogether: some containers' filters say `EPERM`.
fn open_resolved(dir: i32, path: &CStr, flags: u32, mode: u32, resolve: u64) -> Result<i32> {
    if shared::switches().has(Switches::NO_OPENAT2) {
        return Err(Errno::ENOSYS);
    }
    let result = calls::openat2(dir, path, flags, mode, resolve);
    let refused = match result {
        Err(Errno::ENOSYS) => true,
        Err(Errno::EPERM) => calls::openat2(calls::CWD, c"/", O_PATH | O_CLOEXEC, 0, 0)
            .inspect(|file| calls::close(*file))
            .is_err(),
        _ => false,
    };
    if refused {
        shared::switch_on(Switches::NO_OPENAT2);
        return Err(Errno::ENOSYS);
    }
    result
}

/// `statx`, which older kernels do not have and older containers refuse.
pub(super) fn look(dir: i32, path: &CStr, flags: u32, into: &mut statx) -> Result<()> {
    if !shared::switches().has(Switches::NO_STATX) {
        match calls::statx(dir, path, flags, into) {
            Err(Errno::ENOSYS | Errno::EPERM) => shared::switch_on(Switches::NO_STATX),
            result => return result,
        }
    }
    let flags = flags & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
    *into = from_stat(&calls::newfstatat(dir, path, flags)?);
    Ok(())
}

/// From `stat`, without the time of birth.
fn from_stat(facts: &stat) -> statx {
    let stamp = |seconds, nanoseconds| statx_timestamp {
        tv_sec: seconds as i64,
        tv_nsec: nanoseconds as u32,
        __reserved: 0,
    };
    let major = |device: u64| ((device >> 8) & 0xfff | (device >> 32) & !0xfff) as u32;
    let minor = |device: u64| (device & 0xff | (device >> 12) & !0xff) as u32;
    statx {
        stx_mask: STATX_BASIC_STATS,
        stx_blksize: facts.st_blksize as u32,
        stx_nlink: facts.st_nlink as u32,
        stx_uid: facts.st_uid,
        stx_gid: facts.st_gid,
        stx_mode: facts.st_mode as u16,
        stx_ino: facts.st_ino,
        stx_size: facts.st_size as u64,
        stx_blocks: facts.st_blocks as u64,
        stx_atime: stamp(facts.st_atime, facts.st_atime_nsec),
        stx_ctime: stamp(facts.st_ctime, facts.st_ctime_nsec),
        stx_mtime: stamp(facts.st_mtime, facts.st_mtime_nsec),
        stx_rdev_major: major(facts.st_rdev),
        stx_rdev_minor: minor(facts.st_rdev),
        stx_dev_major: major(facts.st_dev),
        stx_dev_minor: minor(facts.st_dev),
        ..abi::layout::stat::EMPTY_STATX
    }
}

/// The text of a magic link.
fn link_text(dir: Dir, into: &mut Text) -> Result<()> {
    by_path(dir, c"", |link, _| into.fill(|bytes| calls::readlinkat(calls::CWD, link, bytes)))
}

/// Tells the paths of one start, one world and one question from all others in the table of plain directories, whose own questions are 0 and 1.
/// `None` where the working directory is not remembered.
#[inline]
fn straight_seed(path: &[u8], what: Straight) -> Option<u64> {
    const FROM_CWD: u64 = 4;
    let start = match path.first() {
        None | Some(b'/') => (u64::from(shared::world_number()) + 1) << 3,
        _ => cwd::digest()? << 3 | FROM_CWD,
    };
    Some(start | what as u64)
}

impl Host for Backend<'_> {
    fn open(
        &mut self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<HostFd> {
        let flags = flags | O_CLOEXEC;
        if resolve != 0 && !path.is_empty() {
            let open = |dir, path: &CStr| open_resolved(dir, path, flags, mode, resolve);
            return match start(dir, path)? {
                Dir::Root => tree::by(path, open),
                dir => open(descriptor(dir), path),
            }
            .map(HostFd);
        }
        if dir == Dir::Root && !path.is_empty() {
            return tree::by(path, |dir, path| calls::openat(dir, path, flags, mode)).map(HostFd);
        }
        at(dir, path, |at| {
            let flags = if at.magic { flags & !O_NOFOLLOW } else { flags };
            calls::openat(at.dir, at.path, flags, mode)
        })
        .map(HostFd)
    }

    fn has_openat2(&self) -> bool {
        !shared::switches().has(Switches::NO_OPENAT2)
    }

    fn close(&mut self, fd: HostFd) {
        calls::close(fd.0);
    }

    fn statx(&mut self, dir: Dir, path: &CStr, flags: u32, into: &mut statx) -> Result<()> {
        let dir = start(dir, path)?;
        if path.is_empty() && dir == Dir::Root {
            return Err(Errno::ENOENT);
        }
        let flags = if path.is_empty() { flags | AT_EMPTY_PATH } else { flags & !AT_EMPTY_PATH };
        if dir == Dir::Root {
            let into = core::cell::RefCell::new(into);
            return tree::by(path, |dir, path| look(dir, path, flags, &mut into.borrow_mut()));
        }
        look(descriptor(dir), path, flags, into)
    }

    fn readlink(&mut self, dir: Dir, path: &CStr, into: &mut Text) -> Result<()> {
        // With an empty path it is the file that the descriptor names. The working directory is no link.
        let dir = start(dir, path)?;
        if path.is_empty() && dir == Dir::Root {
            return Err(Errno::ENOENT);
        }
        if path.is_empty() && dir == Dir::Cwd {
            return Err(Errno::EINVAL);
        }
        into.fill(|bytes| match dir {
            Dir::Root => {
                let bytes = core::cell::RefCell::new(bytes);
                tree::by(path, |dir, path| {
                    calls::readlinkat(dir, path, &mut bytes.borrow_mut()[..])
                })
            }
            dir => calls::readlinkat(descriptor(dir), path, bytes),
        })
    }

    fn path_of(&mut self, dir: Dir, into: &mut Text) -> Result<()> {
        match start(dir, c"")? {
            Dir::Root => into.set(b"/"),
            Dir::Cwd => {
                // Quicker than the link, but it does not name what has no name or lies elsewhere.
                let name = into.fill(|bytes| calls::getcwd(bytes).map(|length| length - 1));
                if name.is_ok() && into.as_bytes().first() == Some(&b'/') {
                    return Ok(());
                }
                link_text(Dir::Cwd, into)
            }
            dir => link_text(dir, into),
        }
    }

    fn access(&mut self, dir: Dir, path: &CStr, mode: u32, flags: u32) -> Result<()> {
        at(dir, path, |at| {
            if !NO_FACCESSAT2.load(Ordering::Relaxed) {
                let flags = at.flags(flags) | AT_EACCESS;
                match calls::faccessat2(at.dir, at.path, mode, flags) {
                    Err(Errno::ENOSYS) => NO_FACCESSAT2.store(true, Ordering::Relaxed),
                    // What a filter refuses altogether (EPERM is no answer to this question but for immutable files that are to be written).
                    Err(Errno::EPERM) if mode & 2 == 0 => {}
                    result => return result,
                }
            }
            // Nothing but a look tells links from what they lead to; a link allows everything.
            if at.flags(flags) & AT_SYMLINK_NOFOLLOW != 0 {
                let facts = calls::newfstatat(at.dir, at.path, AT_SYMLINK_NOFOLLOW)?;
                if facts.st_mode & S_IFMT == S_IFLNK {
                    return Ok(());
                }
            }
            calls::faccessat(at.dir, at.path, mode)
        })
    }

    fn mkdir(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        at(dir, path, |at| {
            calls::mkdirat(at.dir, at.path, mode)?;
            keep_owners(at, mode)
        })
    }

    fn mknod(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        at(dir, path, |at| {
            calls::mknodat(at.dir, at.path, mode)?;
            keep_owners(at, mode)
        })
    }

    fn unlink(&mut self, dir: Dir, path: &CStr, flags: u32) -> Result<()> {
        at(dir, path, |at| calls::unlinkat(at.dir, at.path, flags))
    }

    fn rename(&mut self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()> {
        at(from.0, from.1, |from| {
            at(to.0, to.1, |to| calls::renameat2((from.dir, from.path), (to.dir, to.path), flags))
        })
    }

    fn link(&mut self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()> {
        at(from.0, from.1, |from| {
            let follow = if from.magic { AT_SYMLINK_FOLLOW } else { 0 };
            let flags = from.flags(flags) | follow;
            at(to.0, to.1, |to| calls::linkat((from.dir, from.path), (to.dir, to.path), flags))
        })
    }

    fn symlink(&mut self, target: &CStr, dir: Dir, path: &CStr) -> Result<()> {
        at(dir, path, |at| calls::symlinkat(target, at.dir, at.path))
    }

    fn chmod(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        at(dir, path, |at| calls::fchmodat(at.dir, at.path, mode))
    }

    fn chown(&mut self, dir: Dir, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<()> {
        at(dir, path, |at| calls::fchownat(at.dir, at.path, uid, gid, at.flags(flags)))
    }

    fn utimens(
        &mut self,
        dir: Dir,
        path: &CStr,
        times: Option<&[timespec; 2]>,
        flags: u32,
    ) -> Result<()> {
        at(dir, path, |at| calls::utimensat(at.dir, Some(at.path), times, at.flags(flags)))
    }

    fn truncate(&mut self, dir: Dir, path: &CStr, length: u64) -> Result<()> {
        by_path(dir, path, |path, _| calls::truncate(path, length))
    }

    fn statfs(&mut self, dir: Dir, path: &CStr, into: &mut statfs64) -> Result<()> {
        match start(dir, path)? {
            dir @ (Dir::Held(_) | Dir::Guest(_)) if path.is_empty() => {
                calls::fstatfs(descriptor(dir), into)
            }
            dir => by_path(dir, path, |path, _| calls::statfs(path, into)),
        }
    }

    fn getxattr(
        &mut self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        name: &CStr,
        into: &mut [u8],
    ) -> Result<usize> {
        let behind = |tree, path: &CStr, flags| calls::getxattrat(tree, path, flags, name, into);
        if let Some(result) = from_tree(dir, path, nofollow, behind) {
            return result;
        }
        by_path(dir, path, |path, magic| calls::getxattr(path, nofollow && !magic, name, into))
    }

    fn setxattr(
        &mut self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        name: &CStr,
        value: &[u8],
        flags: u32,
    ) -> Result<()> {
        by_path(dir, path, |path, magic| {
            calls::setxattr(path, nofollow && !magic, name, value, flags)
        })
    }

    fn listxattr(
        &mut self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        into: &mut [u8],
    ) -> Result<usize> {
        let behind = |tree, path: &CStr, flags| calls::listxattrat(tree, path, flags, into);
        if let Some(result) = from_tree(dir, path, nofollow, behind) {
            return result;
        }
        by_path(dir, path, |path, magic| calls::listxattr(path, nofollow && !magic, into))
    }

    fn removexattr(&mut self, dir: Dir, path: &CStr, nofollow: bool, name: &CStr) -> Result<()> {
        by_path(dir, path, |path, magic| calls::removexattr(path, nofollow && !magic, name))
    }

    fn pread(&mut self, fd: HostFd, into: &mut [u8], offset: u64) -> Result<usize> {
        calls::pread(fd.0, into, offset)
    }

    fn write_all(&mut self, fd: HostFd, from: &[u8]) -> Result<()> {
        calls::write_all(fd.0, from)
    }

    fn memory_file(&mut self, name: &CStr) -> Result<HostFd> {
        let made = if shared::switches().has(Switches::NO_MEMORY_FILES) {
            Err(Errno::ENOSYS)
        } else {
            calls::memfd_create(name)
        };
        match made {
            Err(Errno::ENOSYS | Errno::EPERM) => super::inode_log::nameless(),
            result => result,
        }
        .map(HostFd)
    }

    fn image_links(&mut self, inode: u64) -> Option<u32> {
        shared::shared().image().links(inode)
    }

    fn was_replaced(&mut self, inode: u64) -> bool {
        shared::shared().image().is_replaced(inode)
    }

    fn is_image_device(&self, major: u32, minor: u32) -> bool {
        shared::tree_device() == Some((major, minor))
    }

    fn label_refusal(&mut self) -> Option<Errno> {
        shared::label_refusal()
    }

    fn copy_up(&mut self, path: &CStr) -> Result<()> {
        super::copy_up::copy_up(path)
    }

    fn note(&mut self, key: &[u8], into: &mut [u8]) -> Option<usize> {
        inode_log::get(key, into)
    }

    fn has_notes(&mut self) -> bool {
        !shared::shared().notes().is_empty()
    }

    fn set_note(&mut self, key: &[u8], record: Option<&[u8]>) -> Result<()> {
        inode_log::set(key, record)
    }

    fn only_names(&mut self, descriptor: i32) -> Result<bool> {
        calls::fcntl(descriptor, F_GETFL, 0).map(|flags| flags & u64::from(O_PATH) != 0)
    }

    fn is_executed(&mut self, device: (u32, u32), inode: u64) -> bool {
        processes::is_executed(device, inode)
    }

    fn is_written(&mut self, file: HostFd) -> bool {
        processes::is_written(file.0)
    }

    fn opens_by_path(&self) -> bool {
        false
    }

    fn pid(&self) -> u32 {
        calls::getpid()
    }

    fn tid(&self) -> u32 {
        calls::gettid()
    }

    fn program_of(&mut self, pid: u32, into: &mut Text) -> bool {
        processes::program_of(pid, into)
    }

    fn with_task(&mut self, tid: u32, look: &mut dyn FnMut(&Task)) -> bool {
        processes::with_task(tid, look)
    }

    fn alias(&mut self, directory: HostFd, most: usize, into: &mut Text) -> Result<()> {
        self.alias_of(directory.0, most, into)
    }

    fn lend(&mut self, file: HostFd, into: &mut Text) -> Result<()> {
        self.lend_to_call(file.0, into)
    }

    fn signal_all(&mut self, signal: u32) -> Result<()> {
        processes::signal_all(signal)
    }

    fn is_plain(&mut self, dir: &[u8], everybody: bool) -> bool {
        shared::shared().plain().is(dir, everybody.into())
    }

    fn plain_generation(&mut self) -> Option<u64> {
        Some(shared::shared().plain().generation())
    }

    fn set_plain(&mut self, dir: &[u8], everybody: bool, generation: u64) {
        shared::shared().plain().set(dir, everybody.into(), generation);
    }

    fn is_straight(&mut self, path: &[u8], what: Straight) -> bool {
        straight_seed(path, what).is_some_and(|seed| shared::shared().plain().is(path, seed))
    }

    fn set_straight(&mut self, path: &[u8], what: Straight, generation: u64) {
        if let Some(seed) = straight_seed(path, what) {
            shared::shared().plain().set(path, seed, generation);
        }
    }

    fn changed(&mut self) {
        shared::shared().plain().changed();
    }

    fn stat_into(
        &mut self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mask: Option<u32>,
        into: u64,
    ) -> Option<Result<()>> {
        if let Some(mask) = mask {
            if shared::switches().has(Switches::NO_STATX) {
                return None;
            }
            return Some(match start(dir, path) {
                Err(errno) => Err(errno),
                Ok(Dir::Root) => {
                    tree::by(path, |dir, path| calls::statx_into(dir, path, flags, mask, into))
                }
                Ok(dir) => calls::statx_into(descriptor(dir), path, flags, mask, into),
            })
            .filter(|result| *result != Err(Errno::ENOSYS) && *result != Err(Errno::EPERM));
        }
        Some(match start(dir, path) {
            Err(errno) => Err(errno),
            Ok(dir) if path.is_empty() => calls::fstat_into(descriptor(dir), into),
            Ok(Dir::Root) => {
                tree::by(path, |dir, path| calls::newfstatat_into(dir, path, flags, into))
            }
            Ok(dir) => calls::newfstatat_into(descriptor(dir), path, flags, into),
        })
    }

    fn tree_descriptor(&mut self) -> Option<i32> {
        tree::descriptor()
    }

    fn remembered_cwd(&mut self, into: &mut Text) -> bool {
        cwd::name(into)
    }
}
