//! The container's log of notes ([`abi::notes`]): records of inodes that cannot carry an attribute.
//!
//! Nothing is held open between calls, and there is no memory for the log's contents: the index in the shared file ([`abi::shared::notes`])
//! says where a record stands, and nearly always that there is none.

use super::at::Name;
use super::calls;
use crate::shared;
use abi::notes::{RECORD, decode, encode};
use abi::shared::notes::{Notes, hash};
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, LOCK_EX, LOCK_UN, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDWR,
    O_TMPFILE,
};
use view::Errno;
use view::errno::Result;

/// The log, open; closed at the end.
struct Log(i32);

impl Drop for Log {
    fn drop(&mut self) {
        calls::close(self.0);
    }
}

impl Log {
    fn open(create: bool) -> Result<Self> {
        let mut name = Name::new();
        let path = host_path(&mut name, shared::places().notes, b"")?;
        let flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
        if create {
            return calls::open_made(path, flags | O_CREAT).map(Self);
        }
        calls::openat(calls::CWD, path, flags, 0).map(Self)
    }

    fn record(&self, number: u64) -> Option<[u8; RECORD]> {
        let mut record = [0; RECORD];
        let length = calls::pread(self.0, &mut record, number * RECORD as u64);
        (length == Ok(RECORD)).then_some(record)
    }

    fn is_of(&self, number: u64, key: &[u8]) -> bool {
        self.record(number).is_some_and(|record| decode(&record).is_some_and(|(of, _)| of == key))
    }

    fn size(&self) -> Result<u64> {
        calls::newfstatat(self.0, c"", AT_EMPTY_PATH).map(|facts| facts.st_size as u64)
    }

    /// Brings the index up to the log. For who has the lock.
    fn complete(&self, index: &Notes<'_>) -> Result<()> {
        let records = self.size()? / RECORD as u64;
        while index.covered() < records {
            match self.record(index.covered()).as_ref().and_then(|record| decode(record)) {
                Some((key, _)) => index.add(hash(key), |number| self.is_of(number, key)),
                None => index.skip(),
            }
        }
        index.set_pending(false);
        Ok(())
    }

    /// The last record of a key.
    fn last(&self, index: &Notes<'_>, key: &[u8]) -> Option<[u8; RECORD]> {
        let of = |record: &[u8; RECORD]| decode(record).is_some_and(|(of, _)| of == key);
        if !index.is_full() {
            return index.find(hash(key)).filter_map(|number| self.record(number)).find(of);
        }
        let records = self.size().ok()? / RECORD as u64;
        (0..records).rev().filter_map(|number| self.record(number)).find(of)
    }
}

/// Where `name` lies in a directory of the host's; the directory itself where `name` is empty.
pub(super) fn host_path<'a>(room: &'a mut Name, directory: &[u8], name: &[u8]) -> Result<&'a CStr> {
    if directory.is_empty() {
        return Err(Errno::ENOENT);
    }
    room.push(directory)?;
    if !name.is_empty() {
        room.push(b"/")?;
        room.push(name)?;
    }
    room.push(b"\0")?;
    room.as_c_str()
}

/// The record of a key: its length, if there is one and `into` has room for it.
pub(super) fn get(key: &[u8], into: &mut [u8]) -> Option<usize> {
    let index = shared::shared().notes();
    let is_known = !index.is_pending() && !index.is_full();
    if is_known && index.find(hash(key)).next().is_none() {
        return None;
    }
    let log = Log::open(false).ok()?;
    if index.is_pending() {
        calls::flock(log.0, LOCK_EX).ok()?;
        let completed = log.complete(&index);
        let _ = calls::flock(log.0, LOCK_UN);
        completed.ok()?;
    }
    let record = log.last(&index, key)?;
    let value = decode(&record)?.1?;
    into.get_mut(..value.len())?.copy_from_slice(value);
    Some(value.len())
}

/// Writes or removes the record of a key. What is too long for a record is `ENOSPC`.
pub(super) fn set(key: &[u8], value: Option<&[u8]>) -> Result<()> {
    let record = encode(key, value).ok_or(Errno::ENOSPC)?;
    if value.is_none() && get(key, &mut [0; RECORD]).is_none() {
        return Ok(());
    }
    let log = Log::open(true)?;
    let index = shared::shared().notes();
    calls::flock(log.0, LOCK_EX)?;
    index.set_pending(true);
    // Over half a record that a crash left there.
    let size = log.size()?;
    calls::pwrite_all(log.0, &record, size - size % RECORD as u64)?;
    log.complete(&index)
}

/// A file that has no name, or had one for a moment only.
pub(super) fn nameless() -> Result<i32> {
    let mut name = Name::new();
    let run = shared::places().run;
    let path = host_path(&mut name, run, b"")?;
    match calls::openat(calls::CWD, path, O_RDWR | O_CLOEXEC | O_TMPFILE | O_DIRECTORY, 0o600) {
        Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL | Errno::ENOENT) => {}
        // It will be opened again, for whom the guest's umask counts.
        result => {
            let file = result?;
            return calls::fchmod(file, 0o600).map(|()| file).inspect_err(|_| calls::close(file));
        }
    }
    let mut name = Name::new();
    name.push(run)?;
    name.push(b"/.text-")?;
    name.push_number(calls::gettid())?;
    name.push(b"\0")?;
    let path = name.as_c_str()?;
    let file = calls::open_made(path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL)?;
    calls::unlinkat(calls::CWD, path, 0)?;
    Ok(file)
}
