//! The fake host's system calls. Only the owner's permission bits count, because the caller owns
//! everything.

use super::tree::{Body, Found, Id, ROOT, Walk};
use super::{Fake, Open, Result};
use crate::Errno;
use crate::guest::{Dir, HOST_NAME_MAX, Host, HostFd, Straight};
use crate::text::Text;
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, O_CREAT, O_DIRECTORY,
    O_EXCL, O_NOFOLLOW, O_PATH, O_TRUNC, RESOLVE_NO_SYMLINKS, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO,
    S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, STATX_BASIC_STATS, STATX_BTIME, XATTR_CREATE,
    XATTR_REPLACE, statfs64, statx, timespec,
};
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;

impl Fake {
    fn straight_key(&self, path: &[u8], what: Straight) -> (Option<Id>, Vec<u8>, u8) {
        let relative = path.first().is_some_and(|byte| *byte != b'/');
        (relative.then_some(self.cwd.node), path.to_vec(), what as u8)
    }

    fn start(&self, dir: Dir) -> Result<Open> {
        match dir {
            Dir::Root => Ok(Open { node: ROOT, name: None, flags: 0 }),
            Dir::Held(fd) => self.held.get(&fd.0).cloned().ok_or(Errno::EBADF),
            Dir::Guest(fd) => self.guest.get(&fd).cloned().ok_or(Errno::EBADF),
            Dir::Cwd => Ok(self.cwd.clone()),
        }
    }

    fn find(&self, dir: Dir, path: &CStr, how: Walk) -> Result<Found> {
        let path = path.to_bytes();
        if matches!(dir, Dir::Root) {
            assert_eq!(
                path.first(),
                Some(&b'/'),
                "a host path without a directory must be absolute"
            );
        }
        if path.first() == Some(&b'/') {
            return self.tree.walk(ROOT, path, how);
        }
        let start = self.start(dir)?;
        if path.is_empty() {
            return Ok(Found {
                node: Some(start.node),
                name: start.name,
                slash: false,
                last: path.to_vec(),
            });
        }
        self.tree.walk(start.node, path, how)
    }

    /// Finds an existing file.
    fn existing(&self, dir: Dir, path: &CStr, flags: u32) -> Result<Id> {
        let how = Walk { follow: flags & AT_SYMLINK_NOFOLLOW == 0, ..Walk::default() };
        if path.is_empty() && flags & AT_EMPTY_PATH == 0 && matches!(dir, Dir::Root) {
            return Err(Errno::ENOENT);
        }
        self.find(dir, path, how)?.node.ok_or(Errno::ENOENT)
    }

    /// Finds the directory and name of a file that is to be made.
    fn fresh(&mut self, dir: Dir, path: &CStr, directory: bool) -> Result<(Id, std::vec::Vec<u8>)> {
        let found = self.find(dir, path, Walk { parent: true, ..Walk::default() })?;
        let Some((parent, name)) = found.name else { return Err(Errno::EEXIST) };
        if found.node.is_some() || name == b"." || name == b".." {
            return Err(Errno::EEXIST);
        }
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        if found.slash && !directory {
            return Err(Errno::ENOENT);
        }
        self.writable(parent)?;
        Ok((parent, name))
    }

    /// Returns true if a directory is another, or contains it.
    fn is_above(&self, above: Id, mut below: Id) -> bool {
        while below != above && below != ROOT {
            below = self.tree.nodes[below].parent;
        }
        below == above
    }

    fn writable(&self, dir: Id) -> Result<()> {
        if self.tree.nodes[dir].links == 0 {
            return Err(Errno::ENOENT);
        }
        if self.tree.nodes[dir].mode & 0o200 == 0 { Err(Errno::EACCES) } else { Ok(()) }
    }

    fn kind(&self, id: Id) -> u32 {
        match self.tree.nodes[id].body {
            Body::Dir(_) => S_IFDIR,
            Body::File(_) => S_IFREG,
            Body::Link(_) | Body::Magic(_) => S_IFLNK,
            Body::Fifo => S_IFIFO,
            Body::Socket => S_IFSOCK,
            Body::Device => S_IFCHR,
        }
    }

    fn count(&mut self, name: &'static str) {
        self.log.push(name);
    }
}

/// The groups that the caller may give a file.
const CALLERS_GROUPS: [u32; 2] = [1000, 50];

impl Host for Fake {
    fn open(
        &mut self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<HostFd> {
        self.count("open");
        if resolve != 0 && !self.openat2 {
            return Err(Errno::ENOSYS);
        }
        assert_eq!(resolve & !u64::from(RESOLVE_NO_SYMLINKS), 0, "the fake does not support it");
        let exclusive = flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
        let how = Walk {
            follow: flags & O_NOFOLLOW == 0 && !exclusive,
            no_symlinks: resolve != 0,
            parent: false,
        };
        let found = self.find(dir, path, how)?;
        let is_new;
        let node = match found.node {
            Some(_) if exclusive => return Err(Errno::EEXIST),
            Some(node) => {
                is_new = false;
                node
            }
            None if flags & O_CREAT == 0 => return Err(Errno::ENOENT),
            None if found.slash => return Err(Errno::EISDIR),
            None => {
                let (parent, name) = found.name.clone().ok_or(Errno::ENOENT)?;
                self.writable(parent)?;
                is_new = true;
                self.tree.insert(parent, &name, Body::File(std::vec::Vec::new()), mode & 0o7777)
            }
        };
        let is_link = self.kind(node) == S_IFLNK;
        if is_link && (flags & O_PATH == 0) {
            return Err(Errno::ELOOP);
        }
        if flags & O_DIRECTORY != 0 && !self.tree.is_dir(node) {
            return Err(Errno::ENOTDIR);
        }
        if flags & O_PATH == 0 && self.tree.is_dir(node) && (flags & 3 != 0 || flags & O_CREAT != 0)
        {
            return Err(Errno::EISDIR);
        }
        let wanted = [0o400, 0o200, 0o600, 0][(flags & 3) as usize];
        if flags & O_PATH == 0 && !is_new && self.tree.nodes[node].mode & wanted != wanted {
            return Err(Errno::EACCES);
        }
        if flags & O_TRUNC != 0
            && let Body::File(bytes) = &mut self.tree.nodes[node].body
        {
            bytes.clear();
        }
        Ok(self.hold(Open { node, name: found.name, flags }))
    }

    fn has_openat2(&self) -> bool {
        self.openat2
    }

    fn close(&mut self, fd: HostFd) {
        self.count("close");
        assert!(self.held.remove(&fd.0).is_some(), "closed twice: {fd:?}");
    }

    fn statx(&mut self, dir: Dir, path: &CStr, flags: u32, into: &mut statx) -> Result<()> {
        self.count("statx");
        let id = self.existing(dir, path, flags)?;
        let node = &self.tree.nodes[id];
        into.stx_mask = STATX_BASIC_STATS | STATX_BTIME;
        into.stx_mode = u16::try_from(self.kind(id) | node.mode).expect("16 bits");
        (into.stx_uid, into.stx_gid, into.stx_nlink) = (node.uid, node.gid, node.links);
        into.stx_ino = id as u64 + 1;
        (into.stx_dev_major, into.stx_dev_minor) = (8, 1);
        into.stx_btime.tv_sec = 1_000_000 + i64::try_from(id).expect("few inodes");
        into.stx_atime.tv_sec = node.times[0];
        into.stx_mtime.tv_sec = node.times[1];
        into.stx_blksize = 4096;
        into.stx_size = match &node.body {
            Body::File(bytes) | Body::Link(bytes) => bytes.len() as u64,
            _ => 0,
        };
        into.stx_blocks = into.stx_size.div_ceil(512);
        Ok(())
    }

    fn readlink(&mut self, dir: Dir, path: &CStr, into: &mut Text) -> Result<()> {
        self.count("readlink");
        let id = self.existing(dir, path, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH)?;
        match &self.tree.nodes[id].body {
            Body::Link(target) => into.set(target),
            Body::Magic(target) => {
                let mut from = (0..self.tree.nodes.len()).filter_map(|dir| {
                    let names = self.tree.names(dir).ok()?;
                    names.iter().find(|(_, id)| *id == target).map(|(name, _)| (dir, name.clone()))
                });
                let name = from.next();
                into.set(&self.tree.path_of(*target, name.as_ref()))
            }
            _ if path.is_empty() => Err(Errno::ENOENT),
            _ => Err(Errno::EINVAL),
        }
    }

    fn path_of(&mut self, dir: Dir, into: &mut Text) -> Result<()> {
        self.count("path_of");
        let open = self.start(dir)?;
        into.set(&self.tree.path_of(open.node, open.name.as_ref()))?;
        if let Some(act) = self.others_at_name.pop() {
            act(self);
        }
        Ok(())
    }

    fn base_of(&mut self, path: &CStr) -> Option<u32> {
        self.bases.get(&self.tree.get(path.to_str().ok()?)?).copied()
    }

    fn await_move(&mut self) {
        self.count("await_move");
        if let Some(changes) = self.changes {
            changes.move_ends();
        }
    }

    fn seek(&mut self, dir: Dir, offset: u64, whence: u32) -> Result<u64> {
        let Dir::Guest(fd) = dir else { return Err(Errno::EBADF) };
        let position = self.positions.entry(fd).or_default();
        if whence == linux_raw_sys::general::SEEK_SET {
            *position = offset;
        }
        Ok(*position)
    }

    fn access(&mut self, dir: Dir, path: &CStr, mode: u32, flags: u32) -> Result<()> {
        self.count("access");
        let id = self.existing(dir, path, flags)?;
        let has = self.tree.nodes[id].mode >> 6 & 7;
        if mode & !has == 0 { Ok(()) } else { Err(Errno::EACCES) }
    }

    fn pause(&mut self, _: i64) -> bool {
        let other = self.others.pop();
        other.map(|act| act(self)).is_some()
    }

    fn mkdir(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        self.count("mkdir");
        let (parent, name) = self.fresh(dir, path, true)?;
        self.tree.insert(parent, &name, Body::Dir(BTreeMap::new()), mode & 0o7777);
        Ok(())
    }

    fn mknod(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        self.count("mknod");
        let body = match mode & S_IFMT {
            0 | S_IFREG => Body::File(std::vec::Vec::new()),
            S_IFIFO => Body::Fifo,
            S_IFSOCK => Body::Socket,
            S_IFCHR | S_IFBLK => return Err(Errno::EPERM),
            _ => return Err(Errno::EINVAL),
        };
        let (parent, name) = self.fresh(dir, path, false)?;
        self.tree.insert(parent, &name, body, mode & 0o7777);
        Ok(())
    }

    fn unlink(&mut self, dir: Dir, path: &CStr, flags: u32) -> Result<()> {
        self.count("unlink");
        let found = self.find(dir, path, Walk { parent: true, ..Walk::default() })?;
        let directory = flags & AT_REMOVEDIR != 0;
        let Some((parent, name)) = found.name else {
            return Err(if directory { Errno::EBUSY } else { Errno::EISDIR });
        };
        match (name.as_slice(), directory) {
            (b"." | b"..", false) => return Err(Errno::EISDIR),
            (b".", true) => return Err(Errno::EINVAL),
            (b"..", true) => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let id =
            found.node.ok_or(if name.len() > 255 { Errno::ENAMETOOLONG } else { Errno::ENOENT })?;
        if self.tree.is_dir(id) != directory {
            return Err(if directory { Errno::ENOTDIR } else { Errno::EISDIR });
        }
        if found.slash && !directory {
            return Err(Errno::ENOTDIR);
        }
        self.writable(parent)?;
        if directory && !self.tree.names(id)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.tree.names_mut(parent).remove(&name);
        let node = &mut self.tree.nodes[id];
        node.links = if directory { 0 } else { node.links - 1 };
        Ok(())
    }

    fn rename(&mut self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()> {
        self.count("rename");
        let how = Walk { parent: true, ..Walk::default() };
        let (old, new) = (self.find(from.0, from.1, how)?, self.find(to.0, to.1, how)?);
        let (Some((from_dir, from_name)), Some((to_dir, to_name))) = (old.name, new.name) else {
            return Err(Errno::EBUSY);
        };
        let dots = |name: &[u8]| name == b"." || name == b"..";
        if dots(&from_name) || dots(&to_name) {
            return Err(Errno::EBUSY);
        }
        let id = old.node.ok_or(Errno::ENOENT)?;
        let exchanged = new.node.filter(|_| flags & RENAME_EXCHANGE != 0);
        let mut moved = [Some(id), exchanged].into_iter().flatten();
        if self.image_apart && moved.any(|id| self.image.contains_key(&(id as u64 + 1))) {
            return Err(Errno::EXDEV);
        }
        if flags & RENAME_NOREPLACE != 0 && new.node.is_some() {
            return Err(Errno::EEXIST);
        }
        if (old.slash || new.slash) && !self.tree.is_dir(id) {
            return Err(Errno::ENOTDIR);
        }
        if self.is_above(id, to_dir) {
            return Err(Errno::EINVAL);
        }
        if flags & RENAME_EXCHANGE != 0 {
            let other = new.node.ok_or(Errno::ENOENT)?;
            if self.is_above(other, from_dir) {
                return Err(Errno::EINVAL);
            }
            self.tree.names_mut(from_dir).insert(from_name, other);
            self.tree.nodes[other].parent = from_dir;
        } else {
            if new.node == Some(id) {
                return Ok(());
            }
            if let Some(victim) = new.node {
                match (self.tree.is_dir(id), self.tree.is_dir(victim)) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    (true, true) if !self.tree.names(victim)?.is_empty() => {
                        return Err(Errno::ENOTEMPTY);
                    }
                    (true, true) => self.tree.nodes[victim].links = 0,
                    (false, false) => self.tree.nodes[victim].links -= 1,
                }
            }
            self.tree.names_mut(from_dir).remove(&from_name);
        }
        self.tree.names_mut(to_dir).insert(to_name, id);
        self.tree.nodes[id].parent = to_dir;
        Ok(())
    }

    fn link(&mut self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()> {
        self.count("link");
        let nofollow = if flags & AT_SYMLINK_FOLLOW == 0 { AT_SYMLINK_NOFOLLOW } else { 0 };
        let id = self.existing(from.0, from.1, nofollow | AT_EMPTY_PATH)?;
        let (parent, name) = self.fresh(to.0, to.1, false)?;
        if self.tree.is_dir(id) {
            return Err(Errno::EPERM);
        }
        self.tree.names_mut(parent).insert(name, id);
        self.tree.nodes[id].links += 1;
        Ok(())
    }

    fn symlink(&mut self, target: &CStr, dir: Dir, path: &CStr) -> Result<()> {
        self.count("symlink");
        let (parent, name) = self.fresh(dir, path, false)?;
        self.tree.insert(parent, &name, Body::Link(target.to_bytes().to_vec()), 0o777);
        Ok(())
    }

    fn chmod(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        self.count("chmod");
        let id = self.existing(dir, path, AT_EMPTY_PATH)?;
        self.tree.nodes[id].mode = mode & 0o7777;
        Ok(())
    }

    fn chown(&mut self, dir: Dir, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<()> {
        self.count("chown");
        let id = self.existing(dir, path, flags)?;
        let node = &mut self.tree.nodes[id];
        let same = |wanted: u32, has: u32| wanted == u32::MAX || wanted == has;
        if !same(uid, node.uid) || !same(gid, node.gid) && !CALLERS_GROUPS.contains(&gid) {
            return Err(Errno::EPERM);
        }
        node.gid = if gid == u32::MAX { node.gid } else { gid };
        Ok(())
    }

    fn utimens(
        &mut self,
        dir: Dir,
        path: &CStr,
        times: Option<&[timespec; 2]>,
        flags: u32,
    ) -> Result<()> {
        self.count("utimens");
        let id = self.existing(dir, path, flags | AT_EMPTY_PATH)?;
        self.tree.nodes[id].times =
            times.map_or([9_999; 2], |times| [times[0].tv_sec, times[1].tv_sec]);
        Ok(())
    }

    fn truncate(&mut self, dir: Dir, path: &CStr, length: u64) -> Result<()> {
        self.count("truncate");
        let id = self.existing(dir, path, AT_EMPTY_PATH)?;
        match &mut self.tree.nodes[id].body {
            Body::File(bytes) => {
                bytes.resize(usize::try_from(length).map_err(|_| Errno::EFBIG)?, 0);
            }
            Body::Dir(_) => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    fn statfs(&mut self, dir: Dir, path: &CStr, into: &mut statfs64) -> Result<()> {
        self.count("statfs");
        self.existing(dir, path, AT_EMPTY_PATH)?;
        into.f_type = 0xef53;
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
        self.count("getxattr");
        let id = self.existing(dir, path, at_flags(nofollow))?;
        let value = self.tree.nodes[id].attributes.get(name.to_bytes()).ok_or(Errno::ENODATA)?;
        fill(value, into)
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
        self.count("setxattr");
        let id = self.existing(dir, path, at_flags(nofollow))?;
        if !name.to_bytes().starts_with(b"user.") {
            return Err(Errno::EPERM);
        }
        if !matches!(self.tree.nodes[id].body, Body::Dir(_) | Body::File(_)) {
            return Err(Errno::EPERM);
        }
        let attributes = &mut self.tree.nodes[id].attributes;
        let exists = attributes.contains_key(name.to_bytes());
        match flags {
            XATTR_CREATE if exists => return Err(Errno::EEXIST),
            XATTR_REPLACE if !exists => return Err(Errno::ENODATA),
            _ => attributes.insert(name.to_bytes().to_vec(), value.to_vec()),
        };
        Ok(())
    }

    fn listxattr(
        &mut self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        into: &mut [u8],
    ) -> Result<usize> {
        self.count("listxattr");
        let id = self.existing(dir, path, at_flags(nofollow))?;
        let mut all = std::vec::Vec::new();
        for name in self.tree.nodes[id].attributes.keys() {
            all.extend_from_slice(name);
            all.push(0);
        }
        fill(&all, into)
    }

    fn removexattr(&mut self, dir: Dir, path: &CStr, nofollow: bool, name: &CStr) -> Result<()> {
        self.count("removexattr");
        let id = self.existing(dir, path, at_flags(nofollow))?;
        self.tree.nodes[id].attributes.remove(name.to_bytes()).map(|_| ()).ok_or(Errno::ENODATA)
    }

    fn pread(&mut self, fd: HostFd, into: &mut [u8], offset: u64) -> Result<usize> {
        self.count("pread");
        let open = self.held.get(&fd.0).ok_or(Errno::EBADF)?;
        let Body::File(bytes) = &self.tree.nodes[open.node].body else { return Err(Errno::EISDIR) };
        let from = bytes.get(usize::try_from(offset).map_err(|_| Errno::EINVAL)?..).unwrap_or(&[]);
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }

    fn write_all(&mut self, fd: HostFd, from: &[u8]) -> Result<()> {
        self.count("write");
        let node = self.held.get(&fd.0).ok_or(Errno::EBADF)?.node;
        match &mut self.tree.nodes[node].body {
            Body::File(bytes) => bytes.extend_from_slice(from),
            _ => return Err(Errno::EBADF),
        }
        Ok(())
    }

    fn memory_file(&mut self, _name: &CStr) -> Result<HostFd> {
        self.count("memory_file");
        let id = self.tree.nodes.len();
        let mut node = self.tree.nodes[ROOT].clone();
        (node.body, node.mode) = (Body::File(std::vec::Vec::new()), 0o600);
        self.tree.nodes.push(node);
        Ok(self.hold(Open { node: id, name: None, flags: 2 }))
    }

    fn host_name(&mut self, into: &mut [u8; HOST_NAME_MAX]) -> Option<usize> {
        let name = self.host_name.as_ref()?;
        into[..name.len()].copy_from_slice(name);
        Some(name.len())
    }

    fn set_host_name(&mut self, name: &[u8]) -> Result<()> {
        self.host_name = Some(name.to_vec());
        Ok(())
    }

    fn host_name_file(&mut self) -> Result<HostFd> {
        self.memory_file(c"hostname")
    }

    fn image_links(&mut self, inode: u64) -> Option<u32> {
        self.image.get(&inode).copied()
    }

    fn copy_up(&mut self, path: &CStr) -> Result<()> {
        self.count("copy_up");
        let how = Walk { no_symlinks: true, ..Walk::default() };
        let found = self.tree.walk(ROOT, path.to_bytes(), how)?;
        let (id, (parent, name)) =
            (found.node.ok_or(Errno::ENOENT)?, found.name.ok_or(Errno::EISDIR)?);
        let copy = self.tree.nodes.len();
        let mut node = self.tree.nodes[id].clone();
        node.links = 1;
        let mark = crate::calls::support::COPY.to_bytes().to_vec();
        node.attributes.insert(mark, std::format!("{}", id + 1).into_bytes());
        self.tree.nodes.push(node);
        self.tree.nodes[id].links -= 1;
        self.tree.names_mut(parent).insert(name, copy);
        self.copied.push(String::from_utf8_lossy(path.to_bytes()).into_owned());
        Ok(())
    }

    fn note(&mut self, key: &[u8], into: &mut [u8]) -> Option<usize> {
        let record = self.notes.get(key)?;
        fill(record, into).ok()
    }

    fn has_notes(&mut self) -> bool {
        !self.notes.is_empty()
    }

    fn set_note(&mut self, key: &[u8], record: Option<&[u8]>) -> Result<()> {
        match record {
            Some(record) => self.notes.insert(key.to_vec(), record.to_vec()),
            None => self.notes.remove(key),
        };
        Ok(())
    }

    fn only_names(&mut self, descriptor: i32) -> Result<bool> {
        let open = self.guest.get(&descriptor).ok_or(Errno::EBADF)?;
        Ok(open.flags & O_PATH != 0)
    }

    fn is_executed(&mut self, device: (u32, u32), inode: u64) -> bool {
        device == (8, 1) && self.executed.contains(&inode)
    }

    fn is_written(&mut self, file: HostFd) -> bool {
        let node = self.held[&file.0].node;
        self.guest.values().any(|open| open.node == node && open.flags & 3 != 0)
    }

    fn pid(&self) -> u32 {
        self.ids.0
    }

    fn tid(&self) -> u32 {
        self.ids.1
    }

    fn program_of(&mut self, pid: u32, into: &mut Text) -> bool {
        self.programs.get(&pid).is_some_and(|path| into.set(path.as_bytes()).is_ok())
    }

    fn with_task(&mut self, tid: u32, look: &mut dyn FnMut(&crate::Task)) -> bool {
        self.tasks.get(&tid).map(look).is_some()
    }

    /// A magic link `/proc/1/fd/N`; N is the index of the inode.
    fn alias(&mut self, directory: HostFd, _most: usize, into: &mut Text) -> Result<()> {
        self.lend(directory, into)
    }

    fn lend(&mut self, file: HostFd, into: &mut Text) -> Result<()> {
        let node = self.held.remove(&file.0).ok_or(Errno::EBADF)?.node;
        let path = std::format!("/proc/1/fd/{node}");
        if self.tree.get(&path).is_none() {
            self.node(&path, super::tree::Body::Magic(node), 0o777);
        }
        into.set(path.as_bytes())
    }

    fn signal_all(&mut self, signal: u32) -> Result<()> {
        self.signalled.push(signal);
        Ok(())
    }

    fn stat_into(
        &mut self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mask: Option<u32>,
        into: u64,
    ) -> Option<Result<()>> {
        if !self.remembers {
            return None;
        }
        let mut facts = abi::layout::stat::EMPTY_STATX;
        if let Err(errno) = self.statx(dir, path, flags, &mut facts) {
            return Some(Err(errno));
        }
        if mask.is_some() {
            let bytes = abi::layout::stat::statx_bytes(&facts);
            return Some(crate::Guest::write(self, into, &bytes));
        }
        let (bytes, size) = abi::layout::stat::Stat::X86_64.write(&facts).ok()?;
        Some(crate::Guest::write(self, into, &bytes[..size]))
    }

    fn is_plain(&mut self, dir: &[u8], everybody: bool) -> bool {
        self.plain.get(&(dir.to_vec(), everybody)) == Some(&self.generation)
    }

    fn plain_generation(&mut self) -> Option<u64> {
        self.remembers.then_some(self.generation)
    }

    fn set_plain(&mut self, dir: &[u8], everybody: bool, generation: u64) {
        self.plain.insert((dir.to_vec(), everybody), generation);
    }

    fn is_straight(&mut self, path: &[u8], what: Straight) -> bool {
        let key = self.straight_key(path, what);
        self.remembers && self.straight.get(&key) == Some(&self.generation)
    }

    fn set_straight(&mut self, path: &[u8], what: Straight, generation: u64) {
        let key = self.straight_key(path, what);
        self.straight.insert(key, generation);
    }

    fn changed(&mut self) {
        self.generation += 1;
    }

    fn tree_descriptor(&mut self) -> Option<i32> {
        self.tree_descriptor
    }

    fn remembered_cwd(&mut self, into: &mut Text) -> bool {
        let Open { node, name, .. } = &self.cwd;
        let path = self.tree.path_of(*node, name.as_ref());
        self.remembers && into.set(&path).is_ok()
    }
}

fn at_flags(nofollow: bool) -> u32 {
    AT_EMPTY_PATH | if nofollow { AT_SYMLINK_NOFOLLOW } else { 0 }
}

/// Returns an attribute as the kernel does: an empty buffer asks for the size.
fn fill(value: &[u8], into: &mut [u8]) -> Result<usize> {
    if into.is_empty() {
        return Ok(value.len());
    }
    into.get_mut(..value.len()).ok_or(Errno::ERANGE)?.copy_from_slice(value);
    Ok(value.len())
}
