//! A process on a [`Machine`]: [`Kernel`] in memory, with faults at chosen calls.

use super::layered::Layered;
use super::machine::{Inode, Kind, Machine, ROOT};
use super::turns::Turns;
use crate::at::{self, MagicLink, Missing};
use crate::kernel::{BUFFER, CWD, Feature, Kernel, Target};
use crate::overlay::Layers;
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, LOCK_EX, SEEK_DATA,
    XATTR_CREATE, XATTR_REPLACE, stat, statfs64, statx, timespec,
};
use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::string::{String, ToString};
use std::sync::{Arc, Mutex};
use std::vec;
use std::vec::Vec;
use view::errno::Result;
use view::{Dir, Errno, HostFd, Text};

/// Most bytes that one call reads, writes or copies: so all loops have several rounds.
const PIECE: usize = 100;
/// Most names that one call lists.
const LISTED: usize = 3;
/// Device of all files, minor number.
pub(super) const DEVICE: u32 = 5;

/// What goes wrong, by the number of the call in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// This call fails.
    Error(usize, Errno),
    /// This call and all later ones of its name fail.
    Always(usize, Errno),
    /// The process is killed before this call: it and all later ones do nothing.
    Killed(usize),
}

/// A process.
#[expect(clippy::struct_excessive_bools, reason = "each is a property that a test chooses")]
#[derive(Debug)]
pub(super) struct Process {
    pub(super) machine: Arc<Mutex<Machine>>,
    /// With several processes: whose turn it is, and which process this is.
    pub(super) turns: Option<(Arc<Turns>, usize)>,
    pub(super) thread: u32,
    pub(super) files: RefCell<BTreeMap<i32, (u64, u64)>>,
    /// The directories and names by which they were opened.
    pub(super) opened: RefCell<BTreeMap<i32, (u64, String)>>,
    /// The last names that were listed.
    pub(super) listed: RefCell<BTreeMap<i32, String>>,
    pub(super) fault: Option<Fault>,
    /// Memory that is lent again.
    pub(super) buffer: RefCell<Option<Box<[u8]>>>,
    /// The names of the calls so far.
    pub(super) calls: RefCell<Vec<&'static str>>,
    /// Calls that are not there.
    pub(super) lacking: RefCell<Vec<Feature>>,
    pub(super) umask: u32,
    pub(super) has_reflinks: bool,
    pub(super) has_copy_file_range: bool,
    /// The file system has `RENAME_WHITEOUT`.
    pub(super) has_rename_whiteout: bool,
    /// The container's layers.
    pub(super) layers: Option<Arc<Layered>>,
    /// Another thread has called `fork`: a child has all files open that this process closes.
    pub(super) has_child: bool,
    /// The guest's descriptors are this process's own.
    pub(super) is_own: bool,
    /// An open directory that is the tree at `/tree`.
    pub(super) tree: Cell<Option<HostFd>>,
}

impl Process {
    pub(super) fn new(machine: Machine) -> Self {
        Self::on(&Arc::new(Mutex::new(machine)))
    }

    /// Another process on a machine.
    pub(super) fn on(machine: &Arc<Mutex<Machine>>) -> Self {
        Self {
            machine: Arc::clone(machine),
            turns: None,
            thread: 7,
            files: RefCell::default(),
            opened: RefCell::default(),
            listed: RefCell::default(),
            fault: None,
            buffer: RefCell::default(),
            calls: RefCell::default(),
            lacking: RefCell::default(),
            umask: 0o277,
            has_reflinks: false,
            has_copy_file_range: true,
            has_rename_whiteout: true,
            layers: None,
            has_child: false,
            is_own: true,
            tree: Cell::new(None),
        }
    }

    pub(super) fn with_fault(self, fault: Fault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// The process makes its calls in turn with others.
    pub(super) fn in_turn(self, turns: &Arc<Turns>, number: usize) -> Self {
        let thread = 7 + number as u32;
        Self { turns: Some((Arc::clone(turns), number)), thread, ..self }
    }

    /// The process ends: its files are closed and its locks released. How many were open.
    pub(super) fn end(&self) -> usize {
        let files = self.files.take();
        let is_held = |holder: &u64| files.values().any(|(_, open)| open == holder);
        self.machine().locks.retain(|_, holder| !is_held(holder));
        if let Some((turns, number)) = &self.turns {
            turns.end(*number);
        }
        files.len()
    }

    pub(super) fn machine(&self) -> std::sync::MutexGuard<'_, Machine> {
        self.machine.lock().unwrap()
    }

    /// The name of the call in which the fault has happened.
    pub(super) fn failed_in(&self) -> Option<&'static str> {
        let (Fault::Error(at, _) | Fault::Always(at, _) | Fault::Killed(at)) = self.fault?;
        self.calls.borrow().get(at).copied()
    }

    /// One call, with its fault.
    fn call<T>(
        &self,
        name: &'static str,
        call: impl FnOnce(&mut Machine) -> Result<T>,
    ) -> Result<T> {
        let make = || {
            let number = self.calls.borrow().len();
            self.calls.borrow_mut().push(name);
            match self.fault {
                Some(Fault::Error(at, errno)) if number == at => return Err(errno),
                Some(Fault::Always(at, errno))
                    if number >= at && self.calls.borrow()[at] == name =>
                {
                    return Err(errno);
                }
                Some(Fault::Killed(at)) if number >= at => return Err(Errno::EIO),
                _ => {}
            }
            call(&mut self.machine.lock().unwrap())
        };
        match &self.turns {
            Some((turns, number)) => turns.take(*number, make),
            None => make(),
        }
    }

    fn file(&self, file: HostFd) -> Result<u64> {
        self.files.borrow().get(&file.0).map(|(inode, _)| *inode).ok_or(Errno::EBADF)
    }

    /// Where a path starts, and the path: magic links are taken apart here.
    fn start<'p>(&self, dir: HostFd, path: &'p CStr) -> Result<(u64, &'p str)> {
        let path = path.to_str().unwrap();
        let links = std::format!("/proc/{}/fd/", self.thread);
        if let Some(rest) = path.strip_prefix(&links) {
            let (number, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let file = self.file(HostFd(number.parse().unwrap()));
            return Ok((file.map_err(|_| Errno::ENOENT)?, rest));
        }
        if path.starts_with('/') || dir == CWD {
            return Ok((ROOT, path));
        }
        Ok((self.file(dir)?, path))
    }

    fn find(&self, machine: &Machine, dir: HostFd, path: &CStr, flags: u32) -> Result<u64> {
        if path.is_empty() && flags & AT_EMPTY_PATH == 0 {
            return Err(Errno::ENOENT);
        }
        let (start, path) = self.start(dir, path)?;
        machine.find(start, path, flags & AT_SYMLINK_NOFOLLOW == 0)
    }

    fn target(&self, machine: &Machine, target: Target<'_>) -> Result<u64> {
        match target {
            Target::Path(path) => self.find(machine, CWD, path, 0),
            Target::Link(path) => self.find(machine, CWD, path, AT_SYMLINK_NOFOLLOW),
            Target::File(file) => self.file(file),
        }
    }

    pub(super) fn hold(&self, machine: &mut Machine, inode: u64) -> HostFd {
        machine.opened += 1;
        let mut files = self.files.borrow_mut();
        let number = (3..1000).find(|number| !files.contains_key(number)).unwrap();
        files.insert(number, (inode, machine.opened));
        HostFd(number)
    }
}

pub(super) fn status(number: u64, inode: &Inode) -> stat {
    stat {
        st_dev: DEVICE.into(),
        st_ino: number,
        st_nlink: inode.links.into(),
        st_mode: inode.type_bits() | inode.mode,
        st_uid: 1,
        st_gid: inode.group,
        __pad0: 0,
        st_rdev: 0,
        st_size: inode.size() as i64,
        st_blksize: 4096,
        st_blocks: 8,
        st_atime: inode.times[0] as u64,
        st_atime_nsec: 1,
        st_mtime: inode.times[1] as u64,
        st_mtime_nsec: 2,
        st_ctime: 0,
        st_ctime_nsec: 0,
        __unused: [0; 3],
    }
}

/// Copies what there is into what there is room for; asking for the size copies nothing.
fn give(from: &[u8], into: &mut [u8]) -> Result<usize> {
    if !into.is_empty() {
        into.get_mut(..from.len()).ok_or(Errno::ERANGE)?.copy_from_slice(from);
    }
    Ok(from.len())
}

impl Kernel for Process {
    const APPLIES_UMASK: bool = true;

    fn openat(&self, dir: HostFd, path: &CStr, flags: u32, mode: u32) -> Result<HostFd> {
        self.call("openat", |machine| {
            let (start, path) = self.start(dir, path)?;
            let inode = machine.open(start, path, flags, mode & !self.umask)?;
            let file = self.hold(machine, inode);
            if let Ok(place) = machine.parent(start, path) {
                self.opened.borrow_mut().insert(file.0, place);
            }
            Ok(file)
        })
    }

    fn openat2(&self, dir: HostFd, path: &CStr, flags: u32, mode: u32, _: u64) -> Result<HostFd> {
        self.call("openat2", |machine| {
            let (start, path) = self.start(dir, path)?;
            let inode = machine.open(start, path, flags, mode & !self.umask)?;
            Ok(self.hold(machine, inode))
        })
    }

    fn memfd_create(&self, _: &CStr) -> Result<HostFd> {
        self.call("memfd_create", |machine| {
            let inode = machine.make(ROOT, "/memory", Kind::File(Vec::new()), 0o600)?;
            machine.unlink(ROOT, "/memory")?;
            Ok(self.hold(machine, inode))
        })
    }

    fn close(&self, file: HostFd) {
        let close = |machine: &mut Machine| {
            let Some((_, open)) = self.files.borrow_mut().remove(&file.0) else {
                panic!("{file:?} is closed twice");
            };
            machine.locks.retain(|_, holder| self.has_child || *holder != open);
            self.listed.borrow_mut().remove(&file.0);
            self.opened.borrow_mut().remove(&file.0);
            Ok(())
        };
        // The kernel closes it even where it returns an error. A process that was killed is tidied
        // away by `end`.
        let is_killed = matches!(self.fault, Some(Fault::Killed(_)));
        if self.call("close", close).is_err() && !is_killed {
            let _ = close(&mut self.machine());
        }
    }

    fn statx(&self, dir: HostFd, path: &CStr, flags: u32, into: &mut statx) -> Result<()> {
        self.call("statx", |machine| {
            let number = self.find(machine, dir, path, flags)?;
            let inode = machine.inode(number);
            into.stx_ino = number;
            into.stx_mode = (inode.type_bits() | inode.mode) as u16;
            into.stx_dev_minor = DEVICE;
            into.stx_nlink = inode.links;
            into.stx_size = inode.size() as u64;
            into.stx_mtime.tv_sec = inode.times[1];
            Ok(())
        })
    }

    fn fstatat(&self, dir: HostFd, path: &CStr, flags: u32) -> Result<stat> {
        self.call("fstatat", |machine| {
            let number = self.find(machine, dir, path, flags)?;
            Ok(status(number, machine.inode(number)))
        })
    }

    fn readlinkat(&self, dir: HostFd, path: &CStr, into: &mut [u8]) -> Result<usize> {
        self.call("readlinkat", |machine| {
            let links = std::format!("/proc/{}/fd/", self.thread);
            let number = path.to_str().unwrap().strip_prefix(&links);
            if let Some(number) = number.and_then(|number| number.parse().ok()) {
                let file = self.file(HostFd(number)).map_err(|_| Errno::ENOENT)?;
                let opened = self.opened.borrow().get(&number).cloned();
                return give(machine.path_of(file, &opened.unwrap_or_default()).as_bytes(), into);
            }
            let flags = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
            let number = self.find(machine, dir, path, flags)?;
            match &machine.inode(number).kind {
                Kind::Link(target) => give(target.as_bytes(), into),
                _ if path.is_empty() => Err(Errno::ENOENT),
                _ => Err(Errno::EINVAL),
            }
        })
    }

    fn faccessat2(&self, dir: HostFd, path: &CStr, _: u32, flags: u32) -> Result<()> {
        self.call("faccessat2", |machine| self.find(machine, dir, path, flags).map(drop))
    }

    fn faccessat(&self, dir: HostFd, path: &CStr, _: u32) -> Result<()> {
        self.call("faccessat", |machine| self.find(machine, dir, path, 0).map(drop))
    }

    fn statfs(&self, target: Target<'_>, _: &mut statfs64) -> Result<()> {
        self.call("statfs", |machine| self.target(machine, target).map(drop))
    }

    fn mkdirat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        self.mknodat(dir, path, linux_raw_sys::general::S_IFDIR | mode)
    }

    fn getdents(&self, directory: HostFd, into: &mut [u8]) -> Result<usize> {
        self.call("getdents", |machine| {
            let number = self.file(directory)?;
            let after = self.listed.borrow().get(&directory.0).cloned().unwrap_or_default();
            let own = [(String::from("."), number), (String::from(".."), number)];
            let names = machine.names(number)?.iter().map(|(name, inode)| (name.clone(), *inode));
            let names = own.into_iter().chain(names).filter(|(name, _)| *name > after);
            let mut done = 0;
            for (name, inode) in names.take(LISTED) {
                let length = (19 + name.len() + 1).next_multiple_of(8);
                let Some(entry) = into.get_mut(done..done + length) else { break };
                entry.fill(0);
                entry[..8].copy_from_slice(&inode.to_le_bytes());
                entry[16..18].copy_from_slice(&(length as u16).to_le_bytes());
                entry[18] = (machine.inode(inode).type_bits() >> 12) as u8;
                entry[19..19 + name.len()].copy_from_slice(name.as_bytes());
                self.listed.borrow_mut().insert(directory.0, name);
                done += length;
            }
            Ok(done)
        })
    }

    fn mknodat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        self.call("mknodat", |machine| {
            let (start, path) = self.start(dir, path)?;
            let bits = mode & 0o7777 & !self.umask;
            machine.make(start, path, Machine::kind_of(mode), bits).map(drop)
        })
    }

    fn symlinkat(&self, target: &CStr, dir: HostFd, path: &CStr) -> Result<()> {
        self.call("symlinkat", |machine| {
            let (start, path) = self.start(dir, path)?;
            let kind = Kind::Link(target.to_str().unwrap().to_string());
            machine.make(start, path, kind, 0o777).map(drop)
        })
    }

    fn linkat(&self, from: (HostFd, &CStr), to: (HostFd, &CStr), flags: u32) -> Result<()> {
        self.call("linkat", |machine| {
            let (start, path) = self.start(from.0, from.1)?;
            let number = machine.find(start, path, flags & AT_SYMLINK_FOLLOW != 0)?;
            let (start, path) = self.start(to.0, to.1)?;
            machine.link(number, start, path)
        })
    }

    fn renameat2(&self, from: (HostFd, &CStr), to: (HostFd, &CStr), flags: u32) -> Result<()> {
        self.call("renameat2", |machine| {
            const WHITEOUT: u32 = 4;
            if flags & WHITEOUT != 0 && !self.has_rename_whiteout {
                return Err(Errno::EINVAL);
            }
            machine.rename(self.start(from.0, from.1)?, self.start(to.0, to.1)?, flags)
        })
    }

    fn unlinkat(&self, dir: HostFd, path: &CStr, flags: u32) -> Result<()> {
        self.call("unlinkat", |machine| {
            let (start, path) = self.start(dir, path)?;
            machine.remove(start, path, flags & AT_REMOVEDIR != 0)
        })
    }

    fn fchmodat(&self, dir: HostFd, path: &CStr, mode: u32) -> Result<()> {
        self.call("fchmodat", |machine| {
            let number = self.find(machine, dir, path, 0)?;
            machine.change(number).mode = mode;
            Ok(())
        })
    }

    fn fchmod(&self, file: HostFd, mode: u32) -> Result<()> {
        self.call("fchmod", |machine| {
            machine.change(self.file(file)?).mode = mode;
            Ok(())
        })
    }

    fn fchownat(&self, dir: HostFd, path: &CStr, _: u32, gid: u32, flags: u32) -> Result<()> {
        self.call("fchownat", |machine| {
            let number = self.find(machine, dir, path, flags)?;
            machine.change(number).group = gid;
            Ok(())
        })
    }

    fn utimensat(
        &self,
        dir: HostFd,
        path: Option<&CStr>,
        times: Option<&[timespec; 2]>,
        flags: u32,
    ) -> Result<()> {
        self.call("utimensat", |machine| {
            let number = match path {
                Some(path) => self.find(machine, dir, path, flags)?,
                None => self.file(dir)?,
            };
            machine.clock += 1;
            let now = [machine.clock; 2];
            machine.change(number).times = times.map_or(now, |all| all.map(|time| time.tv_sec));
            Ok(())
        })
    }

    fn truncate(&self, target: Target<'_>, length: u64) -> Result<()> {
        self.call("truncate", |machine| {
            let number = self.target(machine, target)?;
            machine.write(number).resize(length as usize, 0);
            Ok(())
        })
    }

    fn getxattr(&self, target: Target<'_>, name: &CStr, into: &mut [u8]) -> Result<usize> {
        self.call("getxattr", |machine| {
            let number = self.target(machine, target)?;
            let value = machine.inode(number).attributes.get(name.to_str().unwrap());
            give(value.ok_or(Errno::ENODATA)?, into)
        })
    }

    fn setxattr(&self, target: Target<'_>, name: &CStr, value: &[u8], flags: u32) -> Result<()> {
        self.call("setxattr", |machine| {
            let number = self.target(machine, target)?;
            let name = name.to_str().unwrap().to_string();
            let inode = machine.inode(number);
            match inode.attributes.contains_key(&name) {
                _ if !inode.may_have_attributes() => return Err(Errno::EPERM),
                true if flags & XATTR_CREATE != 0 => return Err(Errno::EEXIST),
                false if flags & XATTR_REPLACE != 0 => return Err(Errno::ENODATA),
                _ => {}
            }
            machine.change(number).attributes.insert(name, value.to_vec());
            Ok(())
        })
    }

    fn listxattr(&self, target: Target<'_>, into: &mut [u8]) -> Result<usize> {
        self.call("listxattr", |machine| {
            let number = self.target(machine, target)?;
            let names = machine.inode(number).attributes.keys();
            let list: String = names.flat_map(|name| [name.as_str(), "\0"]).collect();
            give(list.as_bytes(), into)
        })
    }

    fn removexattr(&self, target: Target<'_>, name: &CStr) -> Result<()> {
        self.call("removexattr", |machine| {
            let number = self.target(machine, target)?;
            let removed = machine.change(number).attributes.remove(name.to_str().unwrap());
            removed.map(drop).ok_or(Errno::ENODATA)
        })
    }

    fn pread(&self, file: HostFd, into: &mut [u8], offset: u64) -> Result<usize> {
        self.call("pread", |machine| {
            let bytes = machine.bytes(self.file(file)?);
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            // Whole records are read at once, as from every local file system.
            let length = rest.len().min(into.len());
            into[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        })
    }

    fn pwrite(&self, file: HostFd, from: &[u8], offset: u64) -> Result<usize> {
        self.call("pwrite", |machine| {
            let piece = &from[..from.len().min(PIECE)];
            let bytes = machine.write(self.file(file)?);
            let end = offset as usize + piece.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(piece);
            Ok(piece.len())
        })
    }

    /// At the end, as with `O_APPEND`.
    fn write(&self, file: HostFd, from: &[u8]) -> Result<usize> {
        self.call("write", |machine| {
            let piece = &from[..from.len().min(PIECE)];
            machine.write(self.file(file)?).extend(piece);
            Ok(piece.len())
        })
    }

    /// Zeros are holes.
    fn lseek(&self, file: HostFd, offset: u64, whence: u32) -> Result<u64> {
        self.call("lseek", |machine| {
            let bytes = machine.bytes(self.file(file)?);
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            let is_wanted = |byte: &u8| (*byte != 0) == (whence == SEEK_DATA);
            match rest.iter().position(is_wanted) {
                Some(far) => Ok(offset + far as u64),
                None if whence == SEEK_DATA || rest.is_empty() => Err(Errno::ENXIO),
                None => Ok(bytes.len() as u64),
            }
        })
    }

    fn copy_file_range(
        &self,
        source: HostFd,
        target: HostFd,
        offset: u64,
        length: u64,
    ) -> Result<u64> {
        self.call("copy_file_range", |machine| {
            if !self.has_copy_file_range {
                return Err(Errno::ENOSYS);
            }
            let at = offset as usize;
            let bytes = machine.bytes(self.file(source)?);
            let length = PIECE.min(length as usize).min(bytes.len().saturating_sub(at));
            let piece = bytes[at..at + length].to_vec();
            let copy = machine.write(self.file(target)?);
            copy.resize(copy.len().max(at + length), 0);
            copy[at..at + length].copy_from_slice(&piece);
            Ok(length as u64)
        })
    }

    fn clone_contents(&self, source: HostFd, target: HostFd) -> Result<()> {
        self.call("clone_contents", |machine| {
            if !self.has_reflinks {
                return Err(Errno::EOPNOTSUPP);
            }
            let bytes = machine.bytes(self.file(source)?).to_vec();
            *machine.write(self.file(target)?) = bytes;
            Ok(())
        })
    }

    fn flock(&self, file: HostFd, operation: u32) -> Result<()> {
        loop {
            let done = self.call("flock", |machine| {
                let (inode, open) = *self.files.borrow().get(&file.0).ok_or(Errno::EBADF)?;
                match machine.locks.get(&inode) {
                    _ if operation != LOCK_EX => {
                        machine.locks.retain(|_, holder| *holder != open);
                    }
                    Some(holder) if *holder != open => return Ok(false),
                    _ => {
                        machine.locks.insert(inode, open);
                    }
                }
                Ok(true)
            })?;
            if done {
                return Ok(());
            }
            assert!(self.turns.is_some(), "waits for ever");
        }
    }

    fn thread_id(&self) -> u32 {
        self.thread
    }

    fn lacks(&self, feature: Feature) -> bool {
        self.lacking.borrow().contains(&feature)
    }

    fn set_lacking(&self, feature: Feature) {
        self.lacking.borrow_mut().push(feature);
    }

    fn with_path<T>(&self, parts: &[&[u8]], call: impl FnOnce(&CStr) -> Result<T>) -> Result<T> {
        let mut bytes = parts.concat();
        bytes.push(0);
        call(CStr::from_bytes_with_nul(&bytes).unwrap())
    }

    fn with_buffer<T>(&self, call: impl FnOnce(&mut [u8; BUFFER]) -> Result<T>) -> Result<T> {
        // Not zeros: the stage's is not cleared either.
        let new = || vec![0xa5; BUFFER].into();
        let mut buffer: Box<[u8]> = self.buffer.take().unwrap_or_else(new);
        let result = call(buffer.first_chunk_mut().unwrap());
        self.buffer.replace(Some(buffer));
        result
    }
}

impl at::Process for Process {
    fn descriptor(&self, dir: Dir) -> Result<Option<HostFd>> {
        match dir {
            Dir::Held(fd) => self.file(fd).map(|_| Some(fd)),
            Dir::Guest(fd) if self.is_own => Ok(Some(HostFd(fd))),
            Dir::Cwd if self.is_own => Ok(Some(CWD)),
            _ => Ok(None),
        }
    }

    fn proc_directory(&self, _: Dir, into: &mut MagicLink) {
        into.push(b"/proc/");
        into.push_number(self.thread);
        into.push(b"/");
    }

    fn missing(&self, dir: Dir) -> Missing {
        match dir {
            Dir::Guest(fd) if self.file(HostFd(fd)).is_err() => Missing::Closed,
            _ => Missing::Behind,
        }
    }

    fn in_tree<'p>(&self, path: &'p CStr) -> Option<(HostFd, &'p CStr)> {
        let rest = path.to_bytes_with_nul().strip_prefix(b"/tree/")?;
        Some((self.tree.get()?, CStr::from_bytes_with_nul(rest).unwrap()))
    }

    fn is_tree_lost(&self, errno: Errno) -> bool {
        let is_lost = errno == Errno::EBADF;
        if is_lost {
            self.tree.set(None);
        }
        is_lost
    }

    fn layers(&self) -> Option<Layers<'_>> {
        self.layers.as_deref().map(Layered::layers)
    }

    fn cwd_name(&self, into: &mut Text) -> bool {
        self.is_own && into.set(b"/cwd").is_ok()
    }
}
