//! Memory that processes share through a file, as words that are read and written atomically.
//!
//! # Safety
//! What other processes write there at any time is only seen through atomic loads, so nothing that they do is undefined here. The file must
//! keep its length: who maps it, and all others who can, are the same user's programs, and none of them shortens it.

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A whole file, mapped shared, to be read and written.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: atomic words may be used from any thread, and the mapping belongs to no thread.
unsafe impl Send for SharedWords {}
// SAFETY: likewise.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Gives a new file its length and room on its file system (where that can be asked for: else writing to the memory could end the process
    /// by `SIGBUS`), and maps it. `bytes` is a multiple of eight, and not 0.
    pub fn create(file: impl AsFd, bytes: usize) -> Result<Self, Errno> {
        rustix::fs::ftruncate(&file, bytes as u64)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes as u64) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            result => result?,
        }
        Self::map(file)
    }

    /// Maps a file as long as it is; the last bytes that fill no word are left out. An empty file is `EINVAL`.
    pub fn map(file: impl AsFd) -> Result<Self, Errno> {
        let words = rustix::fs::fstat(&file)?.st_size as usize / size_of::<AtomicU64>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let length = words * size_of::<AtomicU64>();
        // SAFETY: the kernel chooses a place where nothing is.
        let start =
            unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0)? };
        // Else the first word that is touched brings as much of the file into memory as the disk's settings say: all of it, as a rule.
        // SAFETY: our own mapping, of which nothing changes but what the kernel expects.
        let _ = unsafe { madvise(start, length, Advice::Random) };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, words })
    }

    /// The words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words, begins at a page, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_one_writes_the_other_reads() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(SharedWords::map(&file).unwrap_err(), Errno::INVAL);
        let one = SharedWords::create(&file, 8192).unwrap();
        let other = SharedWords::map(&file).unwrap();
        assert_eq!((one.words().len(), other.words().len()), (1024, 1024));
        one.words()[1000].store(7, Ordering::Release);
        assert_eq!(other.words()[1000].load(Ordering::Acquire), 7);
    }
}
