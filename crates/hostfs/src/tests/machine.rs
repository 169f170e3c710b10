//! The files, locks and inodes of a machine, in memory.

use linux_raw_sys::general::{
    O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_TMPFILE, S_IFCHR, S_IFDIR, S_IFIFO,
    S_IFLNK, S_IFMT, S_IFREG,
};
use std::collections::BTreeMap;
use std::string::{String, ToString};
use std::vec::Vec;
use view::Errno;
use view::errno::Result;

/// What an inode is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File(Vec<u8>),
    Directory(BTreeMap<String, u64>),
    Link(String),
    Pipe,
    /// The character device 0:0.
    Whiteout,
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Inode {
    pub(super) kind: Kind,
    /// Without the type.
    pub(super) mode: u32,
    pub(super) group: u32,
    pub(super) links: u32,
    /// Time of access and of modification.
    pub(super) times: [i64; 2],
    pub(super) attributes: BTreeMap<String, Vec<u8>>,
    /// How often anything of it but its number of names was changed.
    pub(super) changes: u32,
    /// Of a directory: the one above it, and its name there.
    pub(super) place: (u64, String),
    /// A directory that was removed.
    pub(super) is_gone: bool,
}

impl Inode {
    fn new(kind: Kind, mode: u32, now: i64) -> Self {
        let links = u32::from(!matches!(kind, Kind::Directory(_)));
        let (group, attributes) = (1, BTreeMap::new());
        let (place, is_gone) = ((ROOT, String::new()), false);
        let times = [now; 2];
        Self { kind, mode, group, links, times, attributes, changes: 0, place, is_gone }
    }

    pub(super) fn type_bits(&self) -> u32 {
        match self.kind {
            Kind::File(_) => S_IFREG,
            Kind::Directory(_) => S_IFDIR,
            Kind::Link(_) => S_IFLNK,
            Kind::Pipe => S_IFIFO,
            Kind::Whiteout => S_IFCHR,
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }

    /// Only files and directories may have attributes of users.
    pub(super) fn may_have_attributes(&self) -> bool {
        matches!(self.kind, Kind::File(_) | Kind::Directory(_))
    }

    pub(super) fn size(&self) -> usize {
        match &self.kind {
            Kind::File(bytes) => bytes.len(),
            Kind::Directory(names) => names.len(),
            Kind::Link(target) => target.len(),
            Kind::Pipe | Kind::Whiteout => 0,
        }
    }
}

/// All that processes share. An open file is an inode and a number of its own.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) inodes: BTreeMap<u64, Inode>,
    /// Inodes that are locked, and by which open file.
    pub(super) locks: BTreeMap<u64, u64>,
    pub(super) opened: u64,
    pub(super) clock: i64,
}

pub(super) const ROOT: u64 = 1;
const NAME_MAX: usize = 255;
/// Flags of `renameat2`.
const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;
const WHITEOUT: u32 = 4;

impl Machine {
    pub(super) fn new() -> Self {
        let root = Inode::new(Kind::Directory(BTreeMap::new()), 0o755, 0);
        let inodes = BTreeMap::from([(ROOT, root)]);
        Self { inodes, locks: BTreeMap::new(), opened: 0, clock: 1000 }
    }

    fn now(&mut self) -> i64 {
        self.clock += 1;
        self.clock
    }

    pub(super) fn inode(&self, number: u64) -> &Inode {
        &self.inodes[&number]
    }

    /// Changes an inode.
    pub(super) fn change(&mut self, number: u64) -> &mut Inode {
        let inode = self.inodes.get_mut(&number).unwrap();
        inode.changes += 1;
        inode
    }

    pub(super) fn bytes(&self, number: u64) -> &[u8] {
        match &self.inode(number).kind {
            Kind::File(bytes) => bytes,
            other => panic!("{other:?} has no contents"),
        }
    }

    /// The bytes of a file, which gets a new time of modification.
    pub(super) fn write(&mut self, number: u64) -> &mut Vec<u8> {
        let now = self.now();
        let inode = self.change(number);
        inode.times[1] = now;
        match &mut inode.kind {
            Kind::File(bytes) => bytes,
            other => panic!("{other:?} has no contents"),
        }
    }

    pub(super) fn names(&self, directory: u64) -> Result<&BTreeMap<String, u64>> {
        match &self.inode(directory).kind {
            Kind::Directory(names) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn change_names(&mut self, directory: u64) -> &mut BTreeMap<String, u64> {
        let now = self.now();
        let inode = self.change(directory);
        inode.times[1] = now;
        match &mut inode.kind {
            Kind::Directory(names) => names,
            other => panic!("{other:?} has no names"),
        }
    }

    /// The directory of a path's last name, and the name.
    pub(super) fn parent(&self, start: u64, path: &str) -> Result<(u64, String)> {
        let path = path.trim_end_matches('/');
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory = self.find(start, above, true)?;
        self.names(directory)?;
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        Ok((directory, name.to_string()))
    }

    /// The inode of a path. A link at its end is followed or not.
    pub(super) fn find(&self, start: u64, path: &str, follow: bool) -> Result<u64> {
        let mut at = start;
        let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        names.reverse();
        let is_directory = path.ends_with('/');
        let mut steps = 0;
        while let Some(name) = names.pop() {
            if name == "." || name == ".." {
                self.names(at)?;
                at = if name == "." { at } else { self.inode(at).place.0 };
                continue;
            }
            if name.len() > NAME_MAX {
                self.names(at)?;
                return Err(Errno::ENAMETOOLONG);
            }
            let found = *self.names(at)?.get(name).ok_or(Errno::ENOENT)?;
            at = match &self.inode(found).kind {
                Kind::Link(target) if follow || is_directory || !names.is_empty() => {
                    steps += 1;
                    if steps > 40 {
                        return Err(Errno::ELOOP);
                    }
                    names.extend(target.split('/').filter(|name| !name.is_empty()).rev());
                    if target.starts_with('/') { ROOT } else { at }
                }
                _ => found,
            };
        }
        if is_directory {
            self.names(at)?;
        }
        Ok(at)
    }

    /// An absolute path, for tests.
    pub(super) fn at(&self, path: &str) -> Result<u64> {
        self.find(ROOT, path, false)
    }

    /// The names in a directory, for tests.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        self.names(self.at(path).unwrap()).unwrap().keys().cloned().collect()
    }

    /// Makes an inode under a new name.
    pub(super) fn make(&mut self, start: u64, path: &str, kind: Kind, mode: u32) -> Result<u64> {
        let (parent, name) = self.parent(start, path)?;
        if name.is_empty() || self.names(parent)?.contains_key(&name) {
            return Err(Errno::EEXIST);
        }
        let is_directory = matches!(kind, Kind::Directory(_));
        if self.inode(parent).is_gone || path.ends_with('/') && !is_directory {
            return Err(Errno::ENOENT);
        }
        let now = self.now();
        let number = self.inodes.keys().last().unwrap() + 1;
        self.inodes.insert(number, Inode::new(kind, mode, now));
        self.put(parent, name, number);
        Ok(number)
    }

    /// Gives an inode a name.
    fn put(&mut self, parent: u64, name: String, number: u64) {
        self.change_names(parent).insert(name.clone(), number);
        let inode = self.inodes.get_mut(&number).unwrap();
        if inode.is_directory() {
            inode.place = (parent, name);
        }
    }

    /// Takes a name away from an inode.
    fn drop_name(&mut self, number: u64) {
        let inode = self.inodes.get_mut(&number).unwrap();
        if inode.is_directory() { inode.is_gone = true } else { inode.links -= 1 }
    }

    /// `mkdir -p`, for tests.
    pub(super) fn directory(&mut self, path: &str) {
        let kind = Kind::Directory(BTreeMap::new());
        self.make(ROOT, path, kind, 0o755).unwrap();
    }

    /// A file with contents, for tests.
    pub(super) fn file(&mut self, path: &str, bytes: &[u8]) -> u64 {
        self.make(ROOT, path, Kind::File(bytes.to_vec()), 0o644).unwrap()
    }

    /// `open` by its flags.
    pub(super) fn open(&mut self, start: u64, path: &str, flags: u32, mode: u32) -> Result<u64> {
        if flags & O_TMPFILE == O_TMPFILE {
            return Err(Errno::EOPNOTSUPP);
        }
        let follow = flags & O_NOFOLLOW == 0 && flags & O_EXCL == 0;
        match self.find(start, path, follow) {
            Err(Errno::ENOENT) if flags & O_CREAT != 0 => {
                self.make(start, path, Kind::File(Vec::new()), mode)
            }
            Ok(_) if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL => Err(Errno::EEXIST),
            Ok(found) => match self.inode(found).kind {
                // By a magic link as a place only.
                _ if path.is_empty() && flags & O_PATH != 0 => Ok(found),
                Kind::Link(_) if flags & (O_PATH | O_DIRECTORY) == O_PATH | O_DIRECTORY => {
                    Err(Errno::ENOTDIR)
                }
                Kind::Link(_) | Kind::Whiteout if flags & O_PATH != 0 => Ok(found),
                Kind::Link(_) => Err(Errno::ELOOP),
                Kind::Whiteout => Err(Errno::ENXIO),
                Kind::File(_) | Kind::Pipe if flags & O_DIRECTORY != 0 => Err(Errno::ENOTDIR),
                Kind::File(_) if self.inode(found).mode & 0o600 == 0 => Err(Errno::EACCES),
                _ => Ok(found),
            },
            result => result,
        }
    }

    /// A second name.
    pub(super) fn link(&mut self, number: u64, start: u64, path: &str) -> Result<()> {
        let (parent, name) = self.parent(start, path)?;
        if self.names(parent)?.contains_key(&name) {
            return Err(Errno::EEXIST);
        }
        if self.inode(parent).is_gone || path.ends_with('/') {
            return Err(Errno::ENOENT);
        }
        if self.inode(number).is_directory() {
            return Err(Errno::EPERM);
        }
        self.change_names(parent).insert(name, number);
        self.inodes.get_mut(&number).unwrap().links += 1;
        Ok(())
    }

    pub(super) fn rename(&mut self, from: (u64, &str), to: (u64, &str), flags: u32) -> Result<()> {
        let exchanges = flags & EXCHANGE != 0;
        if exchanges && flags & (NO_REPLACE | WHITEOUT) != 0 {
            return Err(Errno::EINVAL);
        }
        let (old, new) = (self.parent(from.0, from.1)?, self.parent(to.0, to.1)?);
        let number = *self.names(old.0)?.get(&old.1).ok_or(Errno::ENOENT)?;
        let there = self.names(new.0)?.get(&new.1).copied();
        match there {
            Some(_) if flags & NO_REPLACE != 0 => return Err(Errno::EEXIST),
            None if exchanges => return Err(Errno::ENOENT),
            _ => {}
        }
        let is_slash = from.1.ends_with('/') || !exchanges && to.1.ends_with('/');
        let is_file = |number: u64| !self.inode(number).is_directory();
        let is_slash_there = exchanges && to.1.ends_with('/') && there.is_some_and(is_file);
        if is_slash && is_file(number) || is_slash_there {
            return Err(Errno::ENOTDIR);
        }
        if self.is_above(number, new.0) {
            return Err(Errno::EINVAL);
        }
        if there.is_some_and(|there| self.is_above(there, old.0)) {
            return Err(if exchanges { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        if there == Some(number) {
            return Ok(());
        }
        if self.inode(new.0).is_gone {
            return Err(Errno::ENOENT);
        }
        if let Some(there) = there
            && !exchanges
        {
            self.may_replace(number, there)?;
            self.drop_name(there);
        }
        self.change_names(old.0).remove(&old.1);
        self.put(new.0, new.1, number);
        match there {
            Some(there) if exchanges => self.put(old.0, old.1, there),
            _ if flags & WHITEOUT != 0 => {
                self.make(old.0, &old.1, Kind::Whiteout, 0)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn may_replace(&self, number: u64, there: u64) -> Result<()> {
        match (self.inode(number).is_directory(), self.names(there)) {
            (true, Err(_)) => Err(Errno::ENOTDIR),
            (false, Ok(_)) => Err(Errno::EISDIR),
            (true, Ok(names)) if !names.is_empty() => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Returns true if a directory is another one or above it.
    fn is_above(&self, directory: u64, mut other: u64) -> bool {
        while other != directory && other != ROOT {
            other = self.inode(other).place.0;
        }
        other == directory
    }

    pub(super) fn unlink(&mut self, start: u64, path: &str) -> Result<()> {
        self.remove(start, path, false)
    }

    /// `unlink` or `rmdir`.
    pub(super) fn remove(&mut self, start: u64, path: &str, is_rmdir: bool) -> Result<()> {
        let (parent, name) = self.parent(start, path)?;
        let number = *self.names(parent)?.get(&name).ok_or(Errno::ENOENT)?;
        match self.names(number) {
            Ok(_) if !is_rmdir => return Err(Errno::EISDIR),
            Ok(names) if !names.is_empty() => return Err(Errno::ENOTEMPTY),
            Err(_) if is_rmdir || path.ends_with('/') => return Err(Errno::ENOTDIR),
            _ => {}
        }
        self.change_names(parent).remove(&name);
        self.drop_name(number);
        Ok(())
    }

    /// The kernel's name of an open file, which was opened by this name.
    pub(super) fn path_of(&self, number: u64, opened: &(u64, String)) -> String {
        let inode = self.inode(number);
        let (above, name) = if inode.is_directory() { &inode.place } else { opened };
        if number == ROOT {
            return String::from("/");
        }
        let parent = self.path_of(*above, &(ROOT, String::new()));
        let path = std::format!("{}/{name}", parent.trim_end_matches('/'));
        let is_there = self.names(*above).is_ok_and(|names| names.get(name) == Some(&number));
        if is_there { path } else { path + " (deleted)" }
    }

    /// The type and mode of a new inode.
    pub(super) fn kind_of(mode: u32) -> Kind {
        match mode & S_IFMT {
            S_IFDIR => Kind::Directory(BTreeMap::new()),
            S_IFIFO => Kind::Pipe,
            S_IFCHR => Kind::Whiteout,
            _ => Kind::File(Vec::new()),
        }
    }
}
