//! A FUSE file system with faults, in place of a network file system that is not at hand.
//!
//! It shows a directory. Two hosts that mount the same one have nothing in common but its files:
//! each has its own kernel caches and locks. It is like Lustre mounted with `noflock`: no locks, no
//! hard links, no extended attributes, no exchange of names; what another host has changed is seen
//! late; a file that another host has removed is stale, and now and then one is that is there.
//! With [`Faults::errors`] reads, writes and renames fail, and some bytes that were accepted are
//! lost, which only `fsync` and `close` tell.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    symlink,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, SessionACL, TimeOrNow, WriteFlags,
};

/// How long the kernel trusts attributes and names.
const TRUSTED: Duration = Duration::from_secs(1);

/// No faults of chance while this is set; the file system is still one with few features.
pub(crate) static CALM: AtomicBool = AtomicBool::new(false);

/// How often something fails: one time in so many; 0 for never.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// `ESTALE` for names, attributes and opens.
    pub(crate) stale: u64,
    /// `EIO` for reads, writes, syncs and renames.
    pub(crate) errors: u64,
}

/// Shows the directory `backing` at `place` until the session is dropped.
pub(crate) fn mount(backing: &Path, place: &Path, faults: Faults) -> io::Result<BackgroundSession> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName("faulty".into()),
        MountOption::Subtype("faulty".into()),
        MountOption::DefaultPermissions,
    ];
    config.acl = SessionACL::All;
    let top = fs::symlink_metadata(backing)?;
    let mut nodes = Nodes { numbers: HashMap::new(), known: HashMap::new(), next: 2 };
    nodes.numbers.insert(identity(&top), 1);
    nodes.known.insert(1, Node { path: backing.to_owned(), identity: identity(&top) });
    let file_system = Faulty {
        faults,
        count: AtomicU64::new(u64::from(std::process::id()) << 20),
        nodes: Mutex::new(nodes),
        open: Mutex::default(),
    };
    fuser::spawn_mount(file_system, place, &config)
}

/// Tells a file from a later one with the same inode number.
type Identity = (u64, Option<SystemTime>);

fn identity(meta: &Metadata) -> Identity {
    (meta.ino(), meta.created().ok())
}

#[derive(Debug)]
struct Node {
    path: PathBuf,
    identity: Identity,
}

/// The files that the kernel knows.
#[derive(Debug)]
struct Nodes {
    numbers: HashMap<Identity, u64>,
    known: HashMap<u64, Node>,
    next: u64,
}

#[derive(Debug)]
enum Open {
    File {
        file: File,
        /// Bytes were lost.
        lost: bool,
        /// The file is part of a tree, whose programs do not sync each file.
        in_tree: bool,
    },
    Directory(Vec<(u64, FileType, std::ffi::OsString)>),
}

#[derive(Debug)]
struct Faulty {
    faults: Faults,
    count: AtomicU64,
    nodes: Mutex<Nodes>,
    open: Mutex<(u64, HashMap<u64, Open>)>,
}

type Answer<T> = Result<T, Errno>;

fn errno(error: io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::StaleNetworkFileHandle => Errno::ESTALE,
        _ => error.into(),
    }
}

fn kind(meta: &Metadata) -> FileType {
    if meta.is_dir() {
        FileType::Directory
    } else if meta.is_symlink() {
        FileType::Symlink
    } else {
        FileType::RegularFile
    }
}

fn attributes(number: u64, meta: &Metadata) -> FileAttr {
    let time = |seconds: i64, nanos: i64| {
        UNIX_EPOCH + Duration::new(seconds.max(0) as u64, nanos.max(0) as u32)
    };
    FileAttr {
        ino: INodeNo(number),
        size: meta.len(),
        blocks: meta.blocks(),
        atime: time(meta.atime(), meta.atime_nsec()),
        mtime: time(meta.mtime(), meta.mtime_nsec()),
        ctime: time(meta.ctime(), meta.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: kind(meta),
        perm: (meta.mode() & 0o7777) as u16,
        nlink: meta.nlink() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Faulty {
    /// Returns true one time in so many.
    fn strikes(&self, one_in: u64) -> bool {
        if one_in == 0 || CALM.load(Ordering::Relaxed) {
            return false;
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let mixed = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32).is_multiple_of(one_in)
    }

    fn may_be_stale(&self) -> Answer<()> {
        if self.strikes(self.faults.stale) { Err(Errno::ESTALE) } else { Ok(()) }
    }

    fn may_fail(&self) -> Answer<()> {
        if self.strikes(self.faults.errors) { Err(Errno::EIO) } else { Ok(()) }
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a known file, which is stale if something else is there now.
    fn path(&self, number: INodeNo) -> Answer<(PathBuf, Metadata)> {
        let nodes = self.nodes();
        let node = nodes.known.get(&number.0).ok_or(Errno::ESTALE)?;
        let meta = fs::symlink_metadata(&node.path).map_err(|_| Errno::ESTALE)?;
        if identity(&meta) == node.identity {
            Ok((node.path.clone(), meta))
        } else {
            Err(Errno::ESTALE)
        }
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> Answer<PathBuf> {
        Ok(self.path(parent)?.0.join(name))
    }

    /// Makes a path known.
    fn know(&self, path: PathBuf) -> Answer<FileAttr> {
        let meta = fs::symlink_metadata(&path).map_err(errno)?;
        let mut nodes = self.nodes();
        let identity = identity(&meta);
        let Nodes { numbers, next, .. } = &mut *nodes;
        let number = *numbers.entry(identity).or_insert_with(|| {
            *next += 1;
            *next
        });
        nodes.known.insert(number, Node { path, identity });
        Ok(attributes(number, &meta))
    }

    fn opened(&self, open: Open) -> FileHandle {
        let mut table = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        table.0 += 1;
        let handle = table.0;
        table.1.insert(handle, open);
        FileHandle(handle)
    }

    fn with<T>(&self, handle: FileHandle, call: impl FnOnce(&mut Open) -> Answer<T>) -> Answer<T> {
        let mut table = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        call(table.1.get_mut(&handle.0).ok_or(Errno::EBADF)?)
    }

    fn file(path: &Path, file: File) -> Open {
        let in_tree = path.components().any(|part| part.as_os_str() == "tree");
        Open::File { file, lost: false, in_tree }
    }

    /// Fails once if bytes of the file were lost.
    fn tell_loss(&self, handle: FileHandle) -> Answer<()> {
        self.with(handle, |open| match open {
            Open::File { lost, .. } => {
                if std::mem::take(lost) {
                    Err(Errno::EIO)
                } else {
                    Ok(())
                }
            }
            Open::Directory(_) => Ok(()),
        })
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> Answer<FileAttr> {
        self.may_be_stale()?;
        self.know(self.child(parent, name)?)
    }

    fn set(
        &self,
        number: INodeNo,
        mode: Option<u32>,
        size: Option<u64>,
        mtime: Option<TimeOrNow>,
    ) -> Answer<FileAttr> {
        let (path, _) = self.path(number)?;
        if let Some(mode) = mode {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o7777)).map_err(errno)?;
        }
        if let Some(size) = size {
            let file = File::options().write(true).open(&path).map_err(errno)?;
            file.set_len(size).map_err(errno)?;
        }
        if let Some(time) = mtime {
            let time = match time {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => SystemTime::now(),
            };
            File::open(&path).and_then(|file| file.set_modified(time)).map_err(errno)?;
        }
        self.know(path)
    }

    fn moved(&self, from: &Path, to: &Path) {
        for node in self.nodes().known.values_mut() {
            if let Ok(rest) = node.path.strip_prefix(from) {
                node.path = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
            }
        }
    }

    fn names(&self, number: INodeNo) -> Answer<Open> {
        let (path, _) = self.path(number)?;
        let mut names = vec![
            (1, FileType::Directory, OsStr::new(".").to_owned()),
            (1, FileType::Directory, OsStr::new("..").to_owned()),
        ];
        for entry in fs::read_dir(path).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            let Ok(meta) = entry.metadata() else { continue };
            names.push((meta.ino(), kind(&meta), entry.file_name()));
        }
        Ok(Open::Directory(names))
    }
}

/// Answers with an entry that is trusted for a while.
fn entry(reply: ReplyEntry, answer: Answer<FileAttr>) {
    match answer {
        Ok(found) => reply.entry(&TRUSTED, &found, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Faulty {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Locks are asked for here, and refused.
        let locks = InitFlags::FUSE_FLOCK_LOCKS | InitFlags::FUSE_POSIX_LOCKS;
        config.add_capabilities(locks).map_err(|_| io::ErrorKind::Unsupported.into())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        // A name that is not there is asked for each time, as with most file systems of this kind.
        entry(reply, self.look_up(parent, name));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let found = self.may_be_stale().and_then(|()| self.path(ino));
        match found {
            Ok((_, meta)) => reply.attr(&TRUSTED, &attributes(ino.0, &meta)),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.set(ino, mode, size, mtime) {
            Ok(found) => reply.attr(&TRUSTED, &found),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.path(ino).and_then(|(path, _)| fs::read_link(path).map_err(errno));
        match target {
            Ok(target) => reply.data(target.as_os_str().as_encoded_bytes()),
            Err(error) => reply.error(error),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let answer = self.child(parent, name).and_then(|path| {
            fs::DirBuilder::new().mode(mode).create(&path).map_err(errno)?;
            self.know(path)
        });
        entry(reply, answer);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let path = self.child(parent, name);
        empty(reply, path.and_then(|path| fs::remove_file(path).map_err(errno)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let path = self.child(parent, name);
        empty(reply, path.and_then(|path| fs::remove_dir(path).map_err(errno)));
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let answer = self.child(parent, name).and_then(|path| {
            symlink(target, &path).map_err(errno)?;
            self.know(path)
        });
        entry(reply, answer);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            if !flags.is_empty() {
                return Err(Errno::EINVAL);
            }
            self.may_fail()?;
            let (from, to) = (self.child(parent, name)?, self.child(to_parent, to_name)?);
            fs::rename(&from, &to).map_err(errno)?;
            self.moved(&from, &to);
            Ok(())
        };
        empty(reply, rename());
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let open = || {
            self.may_be_stale()?;
            let (path, _) = self.path(ino)?;
            let both = File::options().read(true).write(true).open(&path);
            Ok(Self::file(&path, both.or_else(|_| File::open(&path)).map_err(errno)?))
        };
        match open() {
            Ok(open) => reply.opened(self.opened(open), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let create = || {
            let path = self.child(parent, name)?;
            let mut options = File::options();
            options.read(true).write(true).mode(mode);
            let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
            if flags & exclusive == 0 {
                options.create(true).truncate(false);
            } else {
                options.create_new(true);
            }
            let file = options.open(&path).map_err(errno)?;
            Ok((Self::file(&path, file), self.know(path)?))
        };
        match create() {
            Ok((open, found)) => {
                let handle = self.opened(open);
                reply.created(&TRUSTED, &found, Generation(0), handle, FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let read = self.may_fail().and_then(|()| {
            self.with(handle, |open| {
                let Open::File { file, .. } = open else { return Err(Errno::EISDIR) };
                let mut filled = 0;
                while filled < bytes.len() {
                    match file.read_at(&mut bytes[filled..], offset + filled as u64) {
                        Ok(0) => break,
                        Ok(count) => filled += count,
                        Err(error) => return Err(errno(error)),
                    }
                }
                Ok(filled)
            })
        });
        match read {
            Ok(count) => reply.data(&bytes[..count]),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (fails, loses) = (self.may_fail(), self.strikes(self.faults.errors));
        let written = fails.and_then(|()| {
            self.with(handle, |open| match open {
                Open::File { lost, in_tree: false, .. } if loses => {
                    *lost = true;
                    Ok(())
                }
                Open::File { file, .. } => file.write_all_at(data, offset).map_err(errno),
                Open::Directory(_) => Err(Errno::EISDIR),
            })
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        empty(reply, self.tell_loss(handle));
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        empty(reply, self.may_fail().and_then(|()| self.tell_loss(handle)));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.may_be_stale().and_then(|()| self.names(ino)) {
            Ok(open) => reply.opened(self.opened(open), FopenFlags::empty()),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let added = self.with(handle, |open| {
            let Open::Directory(names) = open else { return Err(Errno::ENOTDIR) };
            for (index, (number, kind, name)) in names.iter().enumerate().skip(offset as usize) {
                if reply.add(INodeNo(*number), index as u64 + 1, *kind, name) {
                    break;
                }
            }
            Ok(())
        });
        match added {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 4096, 255, 4096);
    }
}
