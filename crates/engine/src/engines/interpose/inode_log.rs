//! Records of inodes that cannot carry an attribute: an append-only log ([`abi::notes`]), shared by everybody who works in a container.
//!
//! Writers append whole records under a lock on the file, so records never tear between processes; what a crash left half is cut off by the next
//! writer. Readers keep an index in memory, and read what has been added since whenever they are asked: one call to the kernel. Processes
//! that have no memory for that use an index in the container's shared file, which every writer keeps up to date.
//!
//! Nothing is synced: a crash of the machine may lose the last records, as it may lose the files that they are about.

use super::common::Perhaps;
use abi::notes::{RECORD, decode, encode};
use abi::shared::notes::{Notes as Index, hash};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// How much is read at once.
const CHUNK: usize = 64 * RECORD;

/// The log of one container.
#[derive(Debug)]
pub struct InodeLog {
    path: PathBuf,
    /// Open once something was to be read.
    file: Option<OwnedFd>,
    index: HashMap<Box<[u8]>, Box<[u8]>>,
    /// How much of the file the index holds.
    read: u64,
    /// The shared file with the index of the others.
    common: Option<Perhaps>,
}

impl InodeLog {
    /// The log at a path, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, index: HashMap::new(), read: 0, common: None }
    }

    /// Keeps the index up to date that is in the container's shared file, if there is one.
    #[must_use]
    pub fn indexed(self, common: Perhaps) -> Self {
        Self { common: Some(common), ..self }
    }

    /// Brings an index up to the log.
    pub fn index(&mut self, index: &Index<'_>) -> Result<(), Errno> {
        let file = match self.open(false) {
            Err(Errno::NOENT) => return Ok(()),
            result => result?,
        };
        lock(file, FlockOperation::LockExclusive)?;
        let result = complete(file, index);
        result.and(lock(file, FlockOperation::Unlock))
    }

    fn open(&mut self, create: bool) -> Result<&OwnedFd, Errno> {
        if self.file.is_none() {
            let mut flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            flags.set(OFlags::CREATE, create);
            self.file = Some(rustix::fs::open(&self.path, flags, Mode::from_raw_mode(0o600))?);
        }
        self.file.as_ref().ok_or(Errno::IO)
    }

    /// Reads what has been added.
    fn refresh(&mut self) -> Result<(), Errno> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut buffer = [0; CHUNK];
        loop {
            let length = match rustix::io::pread(file, &mut buffer[..], self.read) {
                Err(Errno::INTR) => continue,
                result => result?,
            };
            let whole = length - length % RECORD;
            for record in buffer[..whole].chunks_exact(RECORD) {
                match decode(record) {
                    Some((key, Some(value))) => {
                        self.index.insert(key.into(), value.into());
                    }
                    Some((key, None)) => {
                        self.index.remove(key);
                    }
                    None => {}
                }
            }
            self.read += whole as u64;
            if whole < CHUNK {
                return Ok(());
            }
        }
    }

    /// The record of a key.
    pub fn get(&mut self, key: &[u8]) -> Option<&[u8]> {
        if self.open(false).is_ok() {
            // What cannot be read counts as not there: the file keeps the looks that it has on disk.
            let _ = self.refresh();
        }
        self.index.get(key).map(|value| &**value)
    }

    /// Writes or removes the record of a key. Both together may have [`ROOM`] bytes, else `ENOSPC`.
    pub fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), Errno> {
        let record = encode(key, value).ok_or(Errno::NOSPC)?;
        if value.is_none() && self.get(key).is_none() {
            return Ok(());
        }
        self.open(true)?;
        let file = self.file.as_ref().ok_or(Errno::IO)?;
        lock(file, FlockOperation::LockExclusive)?;
        // Looked for behind the lock: who makes the shared file reads the log under the same one.
        let common = self.common.as_mut().and_then(Perhaps::get);
        let index = common.map(|common| common.shared().notes());
        if let Some(index) = &index {
            index.set_pending(true);
        }
        let result = append(file, &record)
            .and_then(|()| index.map_or(Ok(()), |index| complete(file, &index)));
        let unlocked = lock(file, FlockOperation::Unlock);
        result.and(unlocked)?;
        self.refresh()
    }
}

/// Adds what an index does not have yet. For who has the lock.
fn complete(file: &OwnedFd, index: &Index<'_>) -> Result<(), Errno> {
    let records = rustix::fs::fstat(file)?.st_size as u64 / RECORD as u64;
    let record = |number: u64| -> Option<[u8; RECORD]> {
        let mut record = [0; RECORD];
        let length = rustix::io::pread(file, &mut record[..], number * RECORD as u64);
        (length == Ok(RECORD)).then_some(record)
    };
    let is_of = |number, key: &[u8]| {
        record(number).is_some_and(|record| decode(&record).is_some_and(|(of, _)| of == key))
    };
    while index.covered() < records {
        match record(index.covered()).as_ref().and_then(|record| decode(record)) {
            Some((key, _)) => index.add(hash(key), |number| is_of(number, key)),
            None => index.skip(),
        }
    }
    index.set_pending(false);
    Ok(())
}

/// File systems without locks have one tracer at most that matters; then a record is still one write.
fn lock(file: &OwnedFd, operation: FlockOperation) -> Result<(), Errno> {
    loop {
        match rustix::fs::flock(file, operation) {
            Err(Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(()),
            result => return result,
        }
    }
}

/// At the end, over half a record that a crash left there.
fn append(file: &OwnedFd, record: &[u8]) -> Result<(), Errno> {
    let size = rustix::fs::fstat(file)?.st_size as u64;
    write_at(file, record, size - size % RECORD as u64)
}

fn write_at(file: &OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
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
        assert_eq!(one.set(b"long", Some(&[0; ROOM])), Err(Errno::NOSPC));
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
