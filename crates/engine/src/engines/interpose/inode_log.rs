//! The container's log of records of inodes, for processes that hold its contents in memory.
//!
//! The format and the way of writing are [`hostfs::inode_log`]'s. A process with the standard
//! library keeps what it has read in a map, and reads what has been added since for each look-up:
//! one system call.

use super::common::Perhaps;
use super::kernel::HostKernel;
use abi::notes::RECORD;
use abi::shared::notes::Notes as Index;
use hostfs::Kernel;
use hostfs::inode_log::{self, InodeLog as OpenLog};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use view::errno::Result;
use view::{Errno, HostFd};

/// How much is read at once.
const CHUNK: usize = 64 * RECORD;

/// The log of one container.
#[derive(Debug)]
pub struct InodeLog {
    kernel: HostKernel,
    path: PathBuf,
    /// Open once something was to be read.
    file: Option<HostFd>,
    values: HashMap<Box<[u8]>, Box<[u8]>>,
    /// How many bytes of the file are in `values`.
    read: u64,
    /// The shared file, with the index of the processes without such a map.
    common: Option<Perhaps>,
}

impl InodeLog {
    /// The log at a path, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        let kernel = HostKernel::default();
        Self { kernel, path, file: None, values: HashMap::new(), read: 0, common: None }
    }

    /// Keeps the index up to date that is in the container's shared file, if there is one.
    #[must_use]
    pub fn indexed(self, common: Perhaps) -> Self {
        Self { common: Some(common), ..self }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Brings an index up to the log.
    pub fn index(&mut self, index: &Index<'_>) -> Result<()> {
        match self.open(false) {
            Err(Errno::ENOENT) => Ok(()),
            file => OpenLog::new(&self.kernel, file?).update(index),
        }
    }

    fn open(&mut self, create: bool) -> Result<HostFd> {
        if let Some(file) = self.file {
            return Ok(file);
        }
        let path = self.path.as_os_str().as_bytes();
        let file = self.kernel.with_path(&[path], |path| {
            inode_log::open(&self.kernel, path, create).map(hostfs::OpenFile::keep)
        })?;
        self.file = Some(file);
        Ok(file)
    }

    /// Reads what has been added.
    fn refresh(&mut self, file: HostFd) -> Result<()> {
        let Self { kernel, values, read, .. } = self;
        OpenLog::new(kernel, file).read_from(read, &mut [0; CHUNK], |key, value| {
            if let Some(value) = value {
                values.insert(key.into(), value.into());
            } else {
                values.remove(key);
            }
        })
    }

    /// The value of a key.
    pub fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        // What cannot be read counts as not there: the file appears as it is on disk.
        let _ = self.open(false).and_then(|file| self.refresh(file));
        self.values.get(key).map(|value| &**value)
    }

    /// Writes the value of a key, or removes it. What does not fit into a record is `ENOSPC`.
    pub fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let record = inode_log::record(key, value)?;
        if value.is_none() && self.get(key).is_none() {
            return Ok(());
        }
        let file = self.open(true)?;
        let common = &mut self.common;
        OpenLog::new(&self.kernel, file).append(&record, || {
            let common = common.as_mut().and_then(Perhaps::get)?;
            Some(common.shared().notes())
        })?;
        self.refresh(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::notes::ROOM;

    fn log() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        (dir, path)
    }

    #[test]
    fn what_one_writes_the_other_reads() {
        let (_dir, path) = log();
        let (mut one, mut other) = (InodeLog::new(path.clone()), InodeLog::new(path));
        assert_eq!(one.get(b"a"), None);
        assert_eq!(one.set(b"a", None), Ok(()));
        one.set(b"a", Some(b"1:2:777:l:0:0")).unwrap();
        assert_eq!(other.get(b"a"), Some(&b"1:2:777:l:0:0"[..]));
        other.set(b"a", Some(b"")).unwrap();
        other.set(b"b", Some(b"x")).unwrap();
        assert_eq!(one.get(b"a"), Some(&b""[..]));
        one.set(b"b", None).unwrap();
        assert_eq!(other.get(b"b"), None);
        assert_eq!(other.get(b"a"), Some(&b""[..]));
        assert_eq!(one.set(b"long", Some(&[0; ROOM])), Err(Errno::ENOSPC));
        one.set(b"long", Some(&[7; ROOM - 4])).unwrap();
        assert_eq!(other.get(b"long"), Some(&[7; ROOM - 4][..]));
    }

    #[test]
    fn half_records_and_rubbish_do_not_matter() {
        let (_dir, path) = log();
        let mut notes = InodeLog::new(path.clone());
        notes.set(b"a", Some(b"1")).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend([0xee; RECORD]);
        bytes.extend([0xdd; 100]);
        std::fs::write(&path, &bytes).unwrap();
        let mut notes = InodeLog::new(path.clone());
        assert_eq!(notes.get(b"a"), Some(&b"1"[..]));
        notes.set(b"b", Some(b"2")).unwrap();
        let mut notes = InodeLog::new(path.clone());
        assert_eq!(notes.get(b"a"), Some(&b"1"[..]));
        assert_eq!(notes.get(b"b"), Some(&b"2"[..]));
        assert_eq!(std::fs::metadata(&path).unwrap().len() as usize, 3 * RECORD);
    }

    #[test]
    fn many_writers_lose_nothing() {
        let (_dir, path) = log();
        std::thread::scope(|scope| {
            for writer in 0..4_u8 {
                let path = path.clone();
                scope.spawn(move || {
                    let mut notes = InodeLog::new(path);
                    for at in 0..100_u8 {
                        notes.set(&[writer, at], Some(&[at; 20])).unwrap();
                    }
                });
            }
        });
        let mut notes = InodeLog::new(path.clone());
        for (writer, at) in (0..4_u8).flat_map(|writer| (0..100_u8).map(move |at| (writer, at))) {
            assert_eq!(notes.get(&[writer, at]), Some(&[at; 20][..]));
        }
    }
}
