//! The files, locks and inodes of a machine, in memory.

use linux_raw_sys::general::{
    O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_PATH, O_TMPFILE, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG,
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
}

impl Inode {
    fn new(kind: Kind, mode: u32, now: i64) -> Self {
        let links = u32::from(!matches!(kind, Kind::Directory(_)));
        let (group, attributes) = (1, BTreeMap::new());
        Self { kind, mode, group, links, times: [now; 2], attributes, changes: 0 }
    }

    pub(super) fn type_bits(&self) -> u32 {
        match self.kind {
            Kind::File(_) => S_IFREG,
            Kind::Directory(_) => S_IFDIR,
            Kind::Link(_) => S_IFLNK,
        }
    }

    pub(super) fn size(&self) -> usize {
        match &self.kind {
            Kind::File(bytes) => bytes.len(),
            Kind::Directory(names) => names.len(),
            Kind::Link(target) => target.len(),
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
    clock: i64,
}

const ROOT: u64 = 1;

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

    fn names(&self, directory: u64) -> Result<&BTreeMap<String, u64>> {
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
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(start, above, true)?, name.to_string()))
    }

    /// The inode of a path. A link at its end is followed or not.
    pub(super) fn find(&self, start: u64, path: &str, follow: bool) -> Result<u64> {
        let mut at = start;
        let mut names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        names.reverse();
        let mut steps = 0;
        while let Some(name) = names.pop() {
            if name == "." {
                self.names(at)?;
                continue;
            }
            let found = *self.names(at)?.get(name).ok_or(Errno::ENOENT)?;
            at = match &self.inode(found).kind {
                Kind::Link(target) if follow || !names.is_empty() => {
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
        if self.names(parent)?.contains_key(&name) {
            return Err(Errno::EEXIST);
        }
        let now = self.now();
        let number = self.inodes.keys().last().unwrap() + 1;
        self.inodes.insert(number, Inode::new(kind, mode, now));
        self.change_names(parent).insert(name, number);
        Ok(number)
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
                Kind::Link(_) => Err(Errno::ELOOP),
                Kind::File(_) if flags & O_DIRECTORY != 0 => Err(Errno::ENOTDIR),
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
        self.change_names(parent).insert(name, number);
        self.inodes.get_mut(&number).unwrap().links += 1;
        Ok(())
    }

    pub(super) fn rename(&mut self, from: (u64, &str), to: (u64, &str)) -> Result<()> {
        let (old, new) = (self.parent(from.0, from.1)?, self.parent(to.0, to.1)?);
        let number = *self.names(old.0)?.get(&old.1).ok_or(Errno::ENOENT)?;
        let there = self.names(new.0)?.get(&new.1).copied();
        if there == Some(number) {
            return Ok(());
        }
        if let Some(there) = there {
            self.inodes.get_mut(&there).unwrap().links -= 1;
        }
        self.change_names(old.0).remove(&old.1);
        self.change_names(new.0).insert(new.1, number);
        Ok(())
    }

    pub(super) fn unlink(&mut self, start: u64, path: &str) -> Result<()> {
        let (parent, name) = self.parent(start, path)?;
        let number = *self.names(parent)?.get(&name).ok_or(Errno::ENOENT)?;
        self.change_names(parent).remove(&name);
        self.inodes.get_mut(&number).unwrap().links -= 1;
        Ok(())
    }

    /// The type and mode of a new inode.
    pub(super) fn kind_of(mode: u32) -> Kind {
        match mode & S_IFMT {
            S_IFDIR => Kind::Directory(BTreeMap::new()),
            _ => Kind::File(Vec::new()),
        }
    }
}
