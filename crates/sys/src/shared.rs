//! Memory that processes share through a file, as words that are read and written atomically.
//!
//! # Safety
//! Other processes may write at any time; this process reads only by atomic loads, so that is not
//! undefined behaviour. The file must keep its length: the processes that map it run this user's
//! programs, and none of them shortens it.

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// `TMPFS_MAGIC` of statfs(2).
const TMPFS: u64 = 0x0102_1994;

/// A whole file, mapped shared, to be read and written.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: atomic words may be used from any thread, and the mapping belongs to no thread.
unsafe impl Send for SharedWords {}
// SAFETY: shared references only give access to atomic words.
unsafe impl Sync for SharedWords {}

/// Writes words into a new file, `at` so many words from its beginning: a page that is written to
/// by way of a mapping costs more than ten times as much. The other words are zeros.
pub fn write(file: impl AsFd, at: usize, words: &mut [AtomicU64]) -> Result<(), Errno> {
    // SAFETY: nobody else uses the words, and any bytes of theirs may be read.
    let bytes =
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) };
    crate::fs::pwrite_all(file, bytes, (at * size_of::<AtomicU64>()) as u64)
}

impl SharedWords {
    /// Sets a new file's length, reserves space on its file system, and maps it. `bytes` is a
    /// multiple of eight, and not 0.
    ///
    /// Where space cannot be reserved, writing to the memory ends the process by `SIGBUS` if the
    /// file system is full. That holds for tmpfs too: to reserve space there is to use and to clear
    /// memory, of which most would never be written.
    pub fn create(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        rustix::fs::ftruncate(&file, bytes as u64)?;
        if rustix::fs::fstatfs(&file).is_ok_and(|found| u64::try_from(found.f_type) != Ok(TMPFS)) {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                result => result?,
            }
        }
        Self::map(file)
    }

    /// Maps a file with its present length; last bytes that fill no word are left out. An empty
    /// file is `EINVAL`.
    pub fn map(file: impl AsFd) -> Result<Self, Errno> {
        let words = rustix::fs::fstat(&file)?.st_size as usize / size_of::<AtomicU64>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let length = words * size_of::<AtomicU64>();
        // SAFETY: without MAP_FIXED the kernel chooses an unused address range, so no existing
        // memory is affected.
        let start =
            unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0)? };
        // Otherwise the first access reads as much of the file into memory as the disk's read-ahead
        // settings say, usually all of it.
        //
        // SAFETY: the range is the mapping just made; the advice changes only how the kernel reads
        // ahead.
        let _ = unsafe { madvise(start, length, Advice::Random) };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, words })
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words, is page-aligned, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

/// A whole file, mapped to be read. Its contents do not change, and it keeps its length: it was
/// written and closed before, by this user, under a mode that lets nobody write.
#[derive(Debug)]
pub struct ReadOnly {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the bytes are only read, and the mapping belongs to no thread.
unsafe impl Send for ReadOnly {}
// SAFETY: shared references only give access to bytes that do not change.
unsafe impl Sync for ReadOnly {}

impl ReadOnly {
    /// Maps a file. An empty one is `EINVAL`.
    pub fn map(file: impl AsFd) -> Result<Self, Errno> {
        let length = rustix::fs::fstat(&file)?.st_size as usize;
        // SAFETY: without MAP_FIXED the kernel chooses an unused address range, so no existing
        // memory is affected.
        let start = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, file, 0)?
        };
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, length })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own mapping, and no reference to it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own mapping, and no reference to it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_share_words() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(SharedWords::map(&file).unwrap_err(), Errno::INVAL);
        write(&file, 1022, &mut [AtomicU64::new(5), AtomicU64::new(6)]).unwrap();
        let one = SharedWords::create(&file, 8192).unwrap();
        assert_eq!([0, 1022, 1023].map(|at| one.words()[at].load(Ordering::Acquire)), [0, 5, 6]);
        let other = SharedWords::map(&file).unwrap();
        assert_eq!((one.words().len(), other.words().len()), (1024, 1024));
        one.words()[1000].store(7, Ordering::Release);
        assert_eq!(other.words()[1000].load(Ordering::Acquire), 7);
    }
}
