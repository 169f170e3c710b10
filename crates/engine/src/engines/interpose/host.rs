//! Calls on the host's files for a guest, made by a tracer: the view's [`Host`] over `/proc`.
//!
//! Each method is one call to the kernel wherever that is possible. A guest's descriptor and its working directory are reached through the
//! magic links `/proc/THREAD/fd/N` and `/proc/THREAD/cwd`, as a part of the path (see `at`); nothing is opened for it, and nothing is
//! remembered between calls, because the guest may change both at any time.
//!
//! The process has to have the umask 0, because modes come ready-made.

use super::at::{DirPath, Held, Tree, compose, dir_path, open_start, start};
use super::common::Perhaps;
use super::convert::{from_stat, from_statx};
use super::copy_up::{CopyDir, Images};
use super::inode_log::InodeLog;
use linux_raw_sys::general::{
    AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, O_NOFOLLOW, UTIME_NOW, statfs64, statx, timespec,
};
use rustix::fs::{
    Access, AtFlags, CWD, FileType, Gid, MemfdFlags, Mode, OFlags, RenameFlags, ResolveFlags,
    StatxFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno as Raw;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use view::errno::Result;
use view::text::PATH_MAX;
use view::{Dir, Errno, Host, HostFd, Text};

/// What belongs to one container.
#[derive(Debug)]
pub struct Parts {
    /// The inodes of the tree that are the image's.
    pub images: Images,
    /// Records of inodes without attributes.
    pub notes: InodeLog,
    /// Where copies are made.
    pub copy_dir: CopyDir,
    /// A directory for files without names, where the kernel has no `memfd_create`.
    pub run: PathBuf,
}

/// How many files are lent to guests' calls; one call may need 64 (`sendmmsg`).
const LENT_MAX: usize = 256;

/// The host of a tracer.
#[derive(Debug)]
pub struct HostCalls {
    held: Held,
    /// Room for composed paths; some calls take two.
    names: [Vec<u8>; 2],
    thread: u32,
    has_openat2: bool,
    has_statx: bool,
    parts: Parts,
    /// The file that is shared with programs that have the backend inside.
    common: Perhaps,
    /// Directories that are kept as long as the container runs, by device and inode.
    aliases: HashMap<(u64, u64), HostFd>,
    /// Files that guests' calls name, the last at the end. When a call is over is not heard of here.
    lent: VecDeque<HostFd>,
    /// The container's tree.
    tree: Option<Tree>,
    /// Inodes of the image whose place a copy has taken.
    replaced: HashSet<u64>,
}

fn errno(raw: Raw) -> Errno {
    Errno(raw.raw_os_error() as u16)
}

impl HostCalls {
    /// For a container. Asks the kernel what it has.
    pub fn new(mut parts: Parts) -> Self {
        parts.notes = parts.notes.indexed(Perhaps::in_directory(&parts.run));
        let resolve = ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let has_openat2 = rustix::fs::openat2(CWD, c"/", flags, Mode::empty(), resolve).is_ok();
        let wanted = StatxFlags::BASIC_STATS;
        let has_statx = rustix::fs::statx(CWD, c"/", AtFlags::empty(), wanted).is_ok();
        Self {
            held: Held::default(),
            names: [Vec::with_capacity(PATH_MAX), Vec::with_capacity(PATH_MAX)],
            thread: 0,
            has_openat2,
            has_statx,
            common: Perhaps::in_directory(&parts.run),
            parts,
            aliases: HashMap::new(),
            lent: VecDeque::new(),
            tree: None,
            replaced: HashSet::new(),
        }
    }

    /// Most paths will begin with this directory, which is the root of the container's tree and stays that: it is held open, so that its own
    /// path need not be walked each time.
    pub fn rooted_at(&mut self, root: &[u8]) {
        self.tree = Tree::open(root);
    }

    /// From now on the calls are for this thread.
    pub fn serve(&mut self, thread: u32) {
        self.thread = thread;
    }

    /// A copy is about to take the place of this file (an absolute path), made here or by a process of ours.
    pub fn will_copy(&mut self, path: &CStr) {
        let Ok(stat) = rustix::fs::lstat(path) else { return };
        self.replaced.insert(stat.st_ino);
        if let Some(common) = self.common.get() {
            common.shared().image().replace(stat.st_ino);
        }
    }

    /// Lets a program that this process executes find a held file open.
    pub fn hand_on(&self, fd: HostFd) -> Result<()> {
        rustix::io::fcntl_setfd(self.held.get(fd)?, rustix::io::FdFlags::empty()).map_err(errno)
    }

    /// One call at a place.
    fn at<T>(
        &mut self,
        dir: Dir,
        path: &CStr,
        call: impl FnOnce(&DirPath<'_>) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let [name, _] = &mut self.names;
        let result = match (dir, &self.tree) {
            (Dir::Root, Some(tree)) if tree.holds(path) => call(&tree.dir_path(path)),
            _ => call(&dir_path(&self.held, name, self.thread, dir, path)?),
        };
        result.map_err(|raw| self.explain(dir, raw))
    }

    /// One call on a path alone, which may be followed or not; a magic link always is.
    fn by_path<T>(
        &mut self,
        dir: Dir,
        path: &CStr,
        call: impl FnOnce(&CStr, bool) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let dir = start(dir, path)?;
        let result = if dir == Dir::Root {
            call(path, false)
        } else {
            if let Dir::Held(fd) = dir {
                self.held.get(fd)?;
            }
            call(compose(&mut self.names[0], self.thread, dir, path)?, path.is_empty())
        };
        result.map_err(|raw| self.explain(dir, raw))
    }

    /// A descriptor that is not open shows as a name that is not there.
    fn explain(&mut self, dir: Dir, raw: Raw) -> Errno {
        if let (Dir::Guest(fd), Raw::NOENT) = (dir, raw)
            && fd >= 0
            && let Ok(link) = compose(&mut self.names[0], self.thread, dir, c"")
            && rustix::fs::lstat(link).is_err_and(|raw| raw == Raw::NOENT)
        {
            return Errno::EBADF;
        }
        errno(raw)
    }

    /// One call with two places.
    fn between<T>(
        &mut self,
        from: (Dir, &CStr),
        to: (Dir, &CStr),
        call: impl FnOnce(&DirPath<'_>, &DirPath<'_>) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let [first, second] = &mut self.names;
        let result = call(
            &dir_path(&self.held, first, self.thread, from.0, from.1)?,
            &dir_path(&self.held, second, self.thread, to.0, to.1)?,
        );
        result.map_err(|raw| match self.explain(from.0, raw) {
            Errno::EBADF => Errno::EBADF,
            _ => self.explain(to.0, raw),
        })
    }

    /// `open` with an owner.
    fn open_owned(
        &mut self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<OwnedFd> {
        let resolve = ResolveFlags::from_bits_retain(resolve);
        let mode = Mode::from_raw_mode(mode);
        if resolve.is_empty() || path.is_empty() {
            return self.at(dir, path, |at| {
                let flags = if at.magic { flags & !O_NOFOLLOW } else { flags };
                let flags = OFlags::from_bits_retain(flags) | OFlags::CLOEXEC;
                rustix::fs::openat(at, at.path, flags, mode)
            });
        }
        if !self.has_openat2 {
            return Err(Errno::ENOSYS);
        }
        let flags = OFlags::from_bits_retain(flags) | OFlags::CLOEXEC;
        let thread = self.thread;
        match start(dir, path)? {
            // A magic link on the way is what `resolve` could forbid.
            dir @ (Dir::Guest(_) | Dir::Cwd) => {
                let base = open_start(&mut self.names[0], thread, dir)
                    .map_err(|Errno(raw)| self.explain(dir, Raw::from_raw_os_error(raw.into())))?;
                again(|| rustix::fs::openat2(&base, path, flags, mode, resolve)).map_err(errno)
            }
            dir => self.at(dir, path, |at| {
                again(|| rustix::fs::openat2(at, at.path, flags, mode, resolve))
            }),
        }
    }
}

/// `openat2` says `EAGAIN` where something was renamed meanwhile; then it may be asked again.
fn again<T>(call: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    for _ in 0..64 {
        match call() {
            Err(Raw::AGAIN) => {}
            result => return result,
        }
    }
    call()
}

impl Host for HostCalls {
    fn open(
        &mut self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<HostFd> {
        let file = self.open_owned(dir, path, flags, mode, resolve)?;
        Ok(self.held.keep(file))
    }

    fn has_openat2(&self) -> bool {
        self.has_openat2
    }

    fn close(&mut self, fd: HostFd) {
        drop(self.held.take(fd));
    }

    fn statx(&mut self, dir: Dir, path: &CStr, flags: u32, into: &mut statx) -> Result<()> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        if let (Dir::Held(fd), true) = (dir, path.is_empty() && self.has_statx) {
            let flags = AtFlags::from_bits_retain(flags) | AtFlags::EMPTY_PATH;
            let facts = rustix::fs::statx(self.held.get(fd)?, c"", flags, wanted).map_err(errno)?;
            *into = from_statx(&facts);
            return Ok(());
        }
        *into = if self.has_statx {
            let facts =
                self.at(dir, path, |at| rustix::fs::statx(at, at.path, at.flags(flags), wanted))?;
            from_statx(&facts)
        } else {
            let flags = flags & AT_SYMLINK_NOFOLLOW;
            let facts =
                self.at(dir, path, |at| rustix::fs::statat(at, at.path, at.flags(flags)))?;
            from_stat(&facts)
        };
        Ok(())
    }

    fn readlink(&mut self, dir: Dir, path: &CStr, into: &mut Text) -> Result<()> {
        let mut buffer = [0; PATH_MAX];
        let length = if path.is_empty() {
            // The magic link itself can be read, too, but that is `path_of`.
            let opened;
            let link = match start(dir, path)? {
                Dir::Root => return Err(Errno::ENOENT),
                Dir::Held(fd) => self.held.get(fd)?,
                dir => {
                    opened = open_start(&mut self.names[0], self.thread, dir).map_err(
                        |Errno(raw)| self.explain(dir, Raw::from_raw_os_error(raw.into())),
                    )?;
                    opened.as_fd()
                }
            };
            rustix::fs::readlinkat_raw(link, c"", &mut buffer[..]).map_err(errno)?
        } else {
            self.at(dir, path, |at| rustix::fs::readlinkat_raw(at, at.path, &mut buffer[..]))?
        };
        if length == PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        into.set(&buffer[..length])
    }

    fn path_of(&mut self, dir: Dir, into: &mut Text) -> Result<()> {
        let dir = start(dir, c"")?;
        if dir == Dir::Root {
            return into.set(b"/");
        }
        let mut buffer = [0; PATH_MAX];
        let length = self
            .by_path(dir, c"", |link, _| rustix::fs::readlinkat_raw(CWD, link, &mut buffer[..]))?;
        if length == PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        into.set(&buffer[..length])
    }

    fn access(&mut self, dir: Dir, path: &CStr, mode: u32, flags: u32) -> Result<()> {
        let mode = Access::from_bits_retain(mode);
        self.at(dir, path, |at| {
            let flags = at.flags(flags) | AtFlags::EACCESS;
            match rustix::fs::accessat(at, at.path, mode, flags) {
                // Before 5.8 nothing but a look tells links from what they lead to; a link allows everything.
                Err(Raw::NOSYS) => {
                    let stat = rustix::fs::statat(at, at.path, AtFlags::SYMLINK_NOFOLLOW)?;
                    match FileType::from_raw_mode(stat.st_mode) {
                        FileType::Symlink => Ok(()),
                        _ => rustix::fs::accessat(at, at.path, mode, AtFlags::empty()),
                    }
                }
                result => result,
            }
        })
    }

    fn mkdir(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode);
        self.at(dir, path, |at| rustix::fs::mkdirat(at, at.path, mode))
    }

    fn mknod(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        // No type is a regular file.
        let kind = match FileType::from_raw_mode(mode) {
            FileType::Unknown => FileType::RegularFile,
            kind => kind,
        };
        let mode = Mode::from_raw_mode(mode & 0o7777);
        self.at(dir, path, |at| rustix::fs::mknodat(at, at.path, kind, mode, 0))
    }

    fn unlink(&mut self, dir: Dir, path: &CStr, flags: u32) -> Result<()> {
        let flags = AtFlags::from_bits_retain(flags);
        self.at(dir, path, |at| rustix::fs::unlinkat(at, at.path, flags))
    }

    fn rename(&mut self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()> {
        self.between(from, to, |from, to| match flags {
            // Kernels before 3.15 have no flags, and some file systems neither.
            0 => rustix::fs::renameat(from, from.path, to, to.path),
            flags => {
                let flags = RenameFlags::from_bits_retain(flags);
                rustix::fs::renameat_with(from, from.path, to, to.path, flags)
            }
        })
    }

    fn link(&mut self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()> {
        self.between(from, to, |from, to| {
            let mut flags = from.flags(flags);
            if from.magic {
                flags |= AtFlags::from_bits_retain(AT_SYMLINK_FOLLOW);
            }
            rustix::fs::linkat(from, from.path, to, to.path, flags)
        })
    }

    fn symlink(&mut self, target: &CStr, dir: Dir, path: &CStr) -> Result<()> {
        self.at(dir, path, |at| rustix::fs::symlinkat(target, at, at.path))
    }

    fn chmod(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode);
        let none = AtFlags::empty();
        self.at(dir, path, |at| rustix::fs::chmodat(at, at.path, mode, none))
    }

    fn chown(&mut self, dir: Dir, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<()> {
        let uid = (uid != u32::MAX).then(|| Uid::from_raw(uid));
        let gid = (gid != u32::MAX).then(|| Gid::from_raw(gid));
        self.at(dir, path, |at| rustix::fs::chownat(at, at.path, uid, gid, at.flags(flags)))
    }

    fn utimens(
        &mut self,
        dir: Dir,
        path: &CStr,
        times: Option<&[timespec; 2]>,
        flags: u32,
    ) -> Result<()> {
        let now = timespec { tv_sec: 0, tv_nsec: UTIME_NOW.into() };
        let [access, modification] = times.copied().unwrap_or([now; 2]);
        let stamp = |time: timespec| Timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec };
        let times =
            Timestamps { last_access: stamp(access), last_modification: stamp(modification) };
        self.at(dir, path, |at| rustix::fs::utimensat(at, at.path, &times, at.flags(flags)))
    }

    fn truncate(&mut self, dir: Dir, path: &CStr, length: u64) -> Result<()> {
        self.by_path(dir, path, |path, _| sys::fs::calls::truncate(path, length))
    }

    fn statfs(&mut self, dir: Dir, path: &CStr, into: &mut statfs64) -> Result<()> {
        *into = match (dir, path.is_empty()) {
            (Dir::Held(fd), true) => sys::fs::calls::fstatfs(self.held.get(fd)?).map_err(errno)?,
            _ => self.by_path(dir, path, |path, _| sys::fs::calls::statfs(path))?,
        };
        Ok(())
    }

    fn getxattr(
        &mut self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        name: &CStr,
        into: &mut [u8],
    ) -> Result<usize> {
        // The wrappers count what they have written; asking for the size writes nothing.
        let size = into.is_empty();
        self.by_path(dir, path, |path, magic| match (nofollow && !magic, size) {
            (true, true) => rustix::fs::lgetxattr_query(path, name),
            (false, true) => rustix::fs::getxattr_query(path, name),
            (true, false) => rustix::fs::lgetxattr(path, name, into),
            (false, false) => rustix::fs::getxattr(path, name, into),
        })
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
        let flags = XattrFlags::from_bits_retain(flags);
        self.by_path(dir, path, |path, magic| {
            if nofollow && !magic {
                rustix::fs::lsetxattr(path, name, value, flags)
            } else {
                rustix::fs::setxattr(path, name, value, flags)
            }
        })
    }

    fn listxattr(
        &mut self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        into: &mut [u8],
    ) -> Result<usize> {
        let size = into.is_empty();
        self.by_path(dir, path, |path, magic| match (nofollow && !magic, size) {
            (true, true) => rustix::fs::llistxattr_query(path),
            (false, true) => rustix::fs::listxattr_query(path),
            (true, false) => rustix::fs::llistxattr(path, into),
            (false, false) => rustix::fs::listxattr(path, into),
        })
    }

    fn removexattr(&mut self, dir: Dir, path: &CStr, nofollow: bool, name: &CStr) -> Result<()> {
        self.by_path(dir, path, |path, magic| {
            if nofollow && !magic {
                rustix::fs::lremovexattr(path, name)
            } else {
                rustix::fs::removexattr(path, name)
            }
        })
    }

    fn pread(&mut self, fd: HostFd, into: &mut [u8], offset: u64) -> Result<usize> {
        let file = self.held.get(fd)?;
        loop {
            match rustix::io::pread(file, &mut *into, offset) {
                Err(Raw::INTR) => {}
                result => return result.map_err(errno),
            }
        }
    }

    fn write_all(&mut self, fd: HostFd, mut from: &[u8]) -> Result<()> {
        let file = self.held.get(fd)?;
        while !from.is_empty() {
            match rustix::io::write(file, from) {
                Ok(0) => return Err(Errno::EIO),
                Ok(written) => from = &from[written..],
                Err(Raw::INTR) => {}
                Err(raw) => return Err(errno(raw)),
            }
        }
        Ok(())
    }

    fn memory_file(&mut self, name: &CStr) -> Result<HostFd> {
        let file = match rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC) {
            Err(Raw::NOSYS | Raw::PERM) => nameless(&self.parts.run),
            result => result,
        };
        Ok(self.held.keep(file.map_err(errno)?))
    }

    fn image_links(&mut self, inode: u64) -> Option<u32> {
        self.parts.images.links(inode)
    }

    fn is_image_device(&self, major: u32, minor: u32) -> bool {
        self.tree.as_ref().is_some_and(|tree| tree.device == (major, minor))
    }

    fn was_replaced(&mut self, inode: u64) -> bool {
        self.replaced.contains(&inode)
            || self.common.mapped().is_some_and(|common| common.shared().image().is_replaced(inode))
    }

    fn copy_up(&mut self, path: &CStr) -> Result<()> {
        self.will_copy(path);
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        self.parts.copy_dir.copy_up(path).map_err(errno)
    }

    fn note(&mut self, key: &[u8], into: &mut [u8]) -> Option<usize> {
        let record = self.parts.notes.get(key)?;
        into.get_mut(..record.len())?.copy_from_slice(record);
        Some(record.len())
    }

    fn set_note(&mut self, key: &[u8], record: Option<&[u8]>) -> Result<()> {
        self.parts.notes.set(key, record).map_err(errno)
    }

    fn only_names(&mut self, descriptor: i32) -> Result<bool> {
        let dir = Dir::Guest(descriptor);
        let link = compose(&mut self.names[0], self.thread, dir, c"")?;
        let stat = match rustix::fs::lstat(link) {
            Err(Raw::NOENT) => return Err(Errno::EBADF),
            result => result.map_err(errno)?,
        };
        // The link's mode says whether the file may be read and written by it.
        if stat.st_mode & 0o700 != 0 {
            return Ok(false);
        }
        // Neither by `O_PATH` nor by access mode 3, which is for `ioctl` alone.
        let path = format!("/proc/{}/fdinfo/{descriptor}", self.thread);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        Ok(flags.is_none_or(|flags| flags & OFlags::PATH.bits() != 0))
    }

    /// Who traces knows what runs; this alone does not.
    fn is_executed(&mut self, _device: (u32, u32), _inode: u64) -> bool {
        false
    }

    fn is_written(&mut self, file: HostFd) -> bool {
        self.held.get(file).is_ok_and(sys::fs::calls::is_open_for_writing)
    }

    fn pid(&self) -> u32 {
        self.thread
    }

    fn tid(&self) -> u32 {
        self.thread
    }

    /// Others remember what they know of directories; a tracer looks each time.
    fn changed(&mut self) {
        if let Some(common) = self.common.get() {
            common.shared().plain().changed();
        }
    }

    /// Who traces knows its processes; this alone knows none.
    fn program_of(&mut self, _pid: u32, _into: &mut Text) -> bool {
        false
    }

    fn alias(&mut self, directory: HostFd, _most: usize, into: &mut Text) -> Result<()> {
        let Some(file) = self.held.take(directory) else { return Err(Errno::EBADF) };
        let stat = rustix::fs::fstat(&file).map_err(errno)?;
        let held = &mut self.held;
        let kept =
            *self.aliases.entry((stat.st_dev, stat.st_ino)).or_insert_with(|| held.keep(file));
        magic_link(kept, into)
    }

    fn lend(&mut self, file: HostFd, into: &mut Text) -> Result<()> {
        if self.lent.len() == LENT_MAX
            && let Some(oldest) = self.lent.pop_front()
        {
            self.close(oldest);
        }
        self.lent.push_back(file);
        magic_link(file, into)
    }
}

/// As guests reach it.
fn magic_link(file: HostFd, into: &mut Text) -> Result<()> {
    into.set(format!("/proc/{}/fd/{}", std::process::id(), file.0).as_bytes())
}

/// A file that had a name for a moment only.
fn nameless(run: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match rustix::fs::open(run, flags | OFlags::TMPFILE, mode) {
        Err(Raw::OPNOTSUPP | Raw::ISDIR | Raw::INVAL | Raw::NOENT) => {}
        result => return result,
    }
    let name = run.join(format!(".text-{}", std::process::id()));
    let file = rustix::fs::open(&name, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    rustix::fs::unlink(&name)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
