//! The container's log of records of inodes that cannot have an extended attribute.
//!
//! A record is 256 bytes with a checksum ([`abi::notes`]); the last record of a key counts.
//! Writers append whole records under a lock on the file, so records never tear between processes.
//! What a crash left half written is overwritten by the next writer.
//!
//! The file that the container's processes share has an index ([`abi::shared::notes`]), which says
//! where a record is, and nearly always that there is none. A writer marks the index as pending
//! before it writes, and brings it up to date before it releases the lock. If it is killed in
//! between, the next process that looks something up completes the index first.
//!
//! Nothing is synced: a crash of the machine may lose the last records, as it may lose the files
//! that they are about.

use crate::io;
use crate::kernel::{Kernel, OpenFile};
use crate::lock::Locked;
use abi::notes::{RECORD, decode, encode};
use abi::shared::notes::{Notes as Index, hash};
use core::ffi::CStr;
use linux_raw_sys::general::{AT_EMPTY_PATH, O_CLOEXEC, O_NOFOLLOW, O_RDWR};
use view::errno::Result;
use view::{Errno, HostFd};

/// The log, open. The descriptor is the caller's.
pub struct InodeLog<'k, K: Kernel> {
    kernel: &'k K,
    file: HostFd,
}

/// Opens the log; with `create`, makes it if it is not there.
pub fn open<'k, K: Kernel>(kernel: &'k K, path: &CStr, create: bool) -> Result<OpenFile<'k, K>> {
    if create {
        return io::open_or_create(kernel, path, O_NOFOLLOW);
    }
    OpenFile::open(kernel, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0)
}

/// A record for the log. Key and value that do not fit into one are `ENOSPC`.
pub fn record(key: &[u8], value: Option<&[u8]>) -> Result<[u8; RECORD]> {
    encode(key, value).ok_or(Errno::ENOSPC)
}

impl<'k, K: Kernel> InodeLog<'k, K> {
    /// The log that is open as `file`.
    pub const fn new(kernel: &'k K, file: HostFd) -> Self {
        Self { kernel, file }
    }

    fn size(&self) -> Result<u64> {
        let status = self.kernel.fstatat(self.file, c"", AT_EMPTY_PATH)?;
        Ok(status.st_size as u64)
    }

    /// A record by its number; `None` past the end.
    fn read(&self, number: u64) -> Result<Option<[u8; RECORD]>> {
        let mut record = [0; RECORD];
        let length = io::pread(self.kernel, self.file, &mut record, number * RECORD as u64)?;
        Ok((length == RECORD).then_some(record))
    }

    /// The record of a key among those that the index has for its hash.
    fn indexed(&self, index: &Index<'_>, key: &[u8]) -> Result<Option<u64>> {
        for number in index.find(hash(key)) {
            let record = self.read(number)?;
            if record.is_some_and(|record| decode(&record).is_some_and(|(of, _)| of == key)) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Adds the records to the index that it does not have yet. The caller has the lock.
    ///
    /// An error of the file leaves the index pending, so that the record is not passed over.
    fn complete(&self, index: &Index<'_>) -> Result<()> {
        let records = self.size()? / RECORD as u64;
        while index.covered() < records {
            let record = self.read(index.covered())?;
            match record.as_ref().and_then(|record| decode(record)) {
                Some((key, _)) => {
                    let same = self.indexed(index, key)?;
                    index.add(hash(key), |number| Some(number) == same);
                }
                None => index.skip(),
            }
        }
        index.set_pending(false);
        Ok(())
    }

    /// Brings an index up to date.
    pub fn update(&self, index: &Index<'_>) -> Result<()> {
        let _locked = Locked::wait(self.kernel, self.file)?;
        self.complete(index)
    }

    /// Appends a record, over half a record that a crash left at the end.
    ///
    /// `index` is asked for behind the lock: a process that makes the shared file reads the log
    /// under the same lock.
    pub fn append<'i>(
        &self,
        record: &[u8; RECORD],
        index: impl FnOnce() -> Option<Index<'i>>,
    ) -> Result<()> {
        let _locked = Locked::wait(self.kernel, self.file)?;
        let index = index();
        if let Some(index) = &index {
            index.set_pending(true);
        }
        let size = self.size()?;
        io::pwrite_all(self.kernel, self.file, record, size - size % RECORD as u64)?;
        index.map_or(Ok(()), |index| self.complete(&index))
    }

    /// The last record of a key, found by an index that is up to date.
    fn last(&self, index: &Index<'_>, key: &[u8]) -> Option<[u8; RECORD]> {
        let of = |record: &[u8; RECORD]| decode(record).is_some_and(|(of, _)| of == key);
        let read = |number| self.read(number).ok().flatten();
        if !index.is_full() {
            return index.find(hash(key)).filter_map(read).find(of);
        }
        let records = self.size().ok()? / RECORD as u64;
        (0..records).rev().filter_map(read).find(of)
    }

    /// Shows every whole record from `position` on, with its key and its value or `None` for a
    /// removal, and advances `position`. `buffer` has room for at least one record.
    pub fn read_from(
        &self,
        position: &mut u64,
        buffer: &mut [u8],
        mut show: impl FnMut(&[u8], Option<&[u8]>),
    ) -> Result<()> {
        loop {
            let length = io::pread(self.kernel, self.file, buffer, *position)?;
            let whole = buffer.get(..length - length % RECORD).unwrap_or_default();
            for record in whole.chunks_exact(RECORD) {
                if let Some((key, value)) = decode(record) {
                    show(key, value);
                }
            }
            *position += whole.len() as u64;
            if whole.is_empty() || length < buffer.len() {
                return Ok(());
            }
        }
    }
}

/// The log of a process without memory for its contents: it is opened for each call, and records
/// are found by the shared index.
#[derive(Clone, Copy)]
pub struct IndexedLog<'a, K: Kernel> {
    /// Makes the calls.
    pub kernel: &'a K,
    /// The log's host path.
    pub path: &'a [u8],
    /// The index in the file that the container's processes share.
    pub index: Index<'a>,
}

impl<K: Kernel> IndexedLog<'_, K> {
    fn open(&self, create: bool) -> Result<OpenFile<'_, K>> {
        self.kernel.with_path(&[self.path], |path| open(self.kernel, path, create))
    }

    /// The length of a key's value, if there is one and `into` has room for it.
    pub fn get(&self, key: &[u8], into: &mut [u8]) -> Option<usize> {
        let index = &self.index;
        let is_known = !index.is_pending() && !index.is_full();
        if is_known && index.find(hash(key)).next().is_none() {
            return None;
        }
        let file = self.open(false).ok()?;
        let log = InodeLog::new(self.kernel, file.fd());
        if index.is_pending() {
            log.update(index).ok()?;
        }
        let record = log.last(index, key)?;
        let value = decode(&record)?.1?;
        into.get_mut(..value.len())?.copy_from_slice(value);
        Some(value.len())
    }

    /// Writes the value of a key, or removes it.
    pub fn set(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let record = record(key, value)?;
        if value.is_none() && self.get(key, &mut [0; RECORD]).is_none() {
            return Ok(());
        }
        let file = self.open(true)?;
        InodeLog::new(self.kernel, file.fd()).append(&record, || Some(self.index))
    }
}
