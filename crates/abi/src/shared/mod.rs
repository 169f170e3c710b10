//! The layout of the file that all processes of a container map: the state that they share.
//!
//! Every process with the stage inside maps it shared, at the same place. So do the engine that
//! starts programs, and a tracer of the same container. The file is made anew when a program is
//! started in a container without living processes, and only then.
//!
//! | section | contents | writers |
//! |---|---|---|
//! | header | sizes, counters | |
//! | [`plain`] | directories that can be reached without meeting a symbolic link | all processes |
//! | [`notes`] | position in the log of each inode's last record | holders of the log's lock |
//! | [`processes`] | the processes: program, start, credentials | each process its own entry |
//! | [`interned_paths`] | paths of programs, each once | all processes, append only |
//! | [`records`] | worlds, filters: what programs are started with | holder of the container's lock, append only |
//! | [`image`] | inodes that the container shares with its image | at creation; the mark of a copy by the process that copies |
//! | [`changes`] | what differs from the image's index | all processes |
//!
//! Everything consists of words that are read and written atomically. Except for the log's lock
//! there are no locks, because a process may end at any instruction. Bytes are stored in words in
//! little-endian order. The file is sparse: untouched parts cost nothing. It never leaves the
//! machine, so the order of bytes in words does not matter.

pub mod changes;
pub mod image;
pub mod interned_paths;
pub mod notes;
pub mod plain;
pub mod processes;
pub mod records;
pub mod switches;

pub use switches::Switches;

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// First word of the file. The last digits count versions of the layout.
const MAGIC: u64 = u64::from_le_bytes(*b"CorShr10");

const WORD: usize = 8;
const PAGE_WORDS: usize = 4096 / WORD;

/// Indexes of the header's words.
mod header {
    pub(super) const MAGIC: usize = 0;
    /// Size of the whole file in words.
    pub(super) const LENGTH: usize = 1;
    /// Number of entries in the image's list.
    pub(super) const IMAGE: usize = 2;
    /// Number of words in use by records: in the first part, and in the second.
    pub(super) const RECORDS: [usize; 2] = [3, 8];
    /// Number of words in use by interned paths.
    pub(super) const TEXTS: usize = 4;
    /// Number of records of the log that the index covers.
    pub(super) const NOTES: usize = 5;
    /// Number of entries in that index.
    pub(super) const NOTES_ENTRIES: usize = 6;
    /// Set while the index may be behind the log: a process is writing, or was killed while it was.
    pub(super) const NOTES_PENDING: usize = 7;
    /// Device of the container's tree, with [`KNOWN`](super::KNOWN) set once a process has found it
    /// out.
    pub(super) const TREE_DEVICE: usize = 9;
    /// Number of inodes of the image that were replaced, or more.
    pub(super) const REPLACED: usize = 10;
    /// Number of programs that processes have begun to execute, and number of those that run or
    /// could not be executed.
    pub(super) const EXECUTIONS: [usize; 2] = [11, 12];
    /// Number of records of the image's index.
    pub(super) const RECORDS_OF_INDEX: usize = 13;
    /// Number of directories of the image that got another name, or more.
    pub(super) const REDIRECTS: usize = 14;
    /// Is not 0 if a name of a file with several names was covered.
    pub(super) const LINKS_COVERED: usize = 16;
    /// User and group id of the owner of the image's tree, where there is an index.
    pub(super) const TREE_OWNER: usize = 15;
    /// Is not 0 if the container may have another host name than the one that it started with.
    pub(super) const RENAMED: usize = 17;
    /// Counts beginnings and ends of moves of directories: odd in between.
    pub(super) const MOVES: usize = 18;
    /// Counts changes of directories. Lies in a cache line of its own.
    pub(super) const GENERATION: usize = 64;
}

/// Flag in a word for a device: the device is known. (Numbers of devices have 12 and 20 bits.)
const KNOWN: u64 = 1 << 63;

// A program's start reads the header, its world (as a rule among the first records), the table of
// interned paths and one path. These lie in the first sixteen pages, because the kernel maps
// sixteen pages by one fault. The whole cache of directories also has sixteen pages of its own. All
// of this begins in the 320 KiB that share a page table with the stage's own memory
// (`boot::SHARED`).
const FIRST_RECORDS: Range<usize> = after(PAGE_WORDS, records::FIRST_WORDS);
const TABLE: Range<usize> = after(FIRST_RECORDS.end, interned_paths::TABLE);
const TEXTS: Range<usize> = after(TABLE.end, interned_paths::WORDS);
const PLAIN: Range<usize> = after(TEXTS.end.next_multiple_of(16 * PAGE_WORDS), plain::WORDS);
const RECORDS: Range<usize> = after(PLAIN.end, records::WORDS);
const PROCESSES: Range<usize> = after(RECORDS.end, processes::WORDS);
const NOTES: Range<usize> = after(PROCESSES.end, notes::WORDS);
const IMAGE: usize = NOTES.end;
const _: () = assert!(PLAIN.end <= 80 * PAGE_WORDS);

const fn after(start: usize, words: usize) -> Range<usize> {
    start..start + words.next_multiple_of(PAGE_WORDS)
}

/// The mapped file.
#[derive(Debug, Clone, Copy)]
pub struct Shared<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Shared<'a> {
    /// Where the table of the image's inodes begins, in words.
    pub const TABLE: usize = IMAGE;

    /// Size in bytes of a file for an image with this many shared inodes: a multiple of a page.
    pub const fn size(image_inodes: usize) -> usize {
        (IMAGE + image::words(image_inodes)).next_multiple_of(PAGE_WORDS) * WORD
    }

    /// Size in bytes of a file for an image whose index has this many records.
    pub const fn size_with_index(records: usize) -> usize {
        (IMAGE + changes::words(records)).next_multiple_of(PAGE_WORDS) * WORD
    }

    /// Fills in a new file of zeros, which must have the [`Shared::size`] for its list; `inodes` is
    /// the container's file of that name. `None` if it is too small. No other process may see the
    /// file before this returns.
    pub fn create(words: &'a [AtomicU64], inodes: &[u8]) -> Option<Self> {
        let count = image::count(inodes.len());
        let table = words.get(IMAGE..IMAGE + image::words(count))?;
        image::fill(table, inodes);
        Self::create_over(words, count)
    }

    /// The same in a file that has the table of the image's inodes already: [`image::table`] at
    /// the word [`Shared::TABLE`].
    pub fn create_over(words: &'a [AtomicU64], count: usize) -> Option<Self> {
        if words.len() * WORD < Self::size(count) {
            return None;
        }
        let shared = Self { words };
        shared.header(header::IMAGE).store(count as u64, Ordering::Relaxed);
        Some(shared.begin())
    }

    /// The same for an image whose index has this many records, in a file of
    /// [`Shared::size_with_index`]. Nothing is changed yet.
    pub fn create_with_index(words: &'a [AtomicU64], records: usize) -> Option<Self> {
        if words.len() * WORD < Self::size_with_index(records) {
            return None;
        }
        let shared = Self { words };
        shared.header(header::RECORDS_OF_INDEX).store(records as u64, Ordering::Relaxed);
        Some(shared.begin())
    }

    fn begin(self) -> Self {
        self.header(header::LENGTH).store(self.words.len() as u64, Ordering::Relaxed);
        self.header(header::GENERATION).store(1, Ordering::Relaxed);
        self.header(header::MAGIC).store(MAGIC, Ordering::Release);
        self
    }

    /// Checks that a file is complete; `None` if it is not, or belongs to another version.
    pub fn open(words: &'a [AtomicU64]) -> Option<Self> {
        let shared = Self { words };
        let is_valid = words.len() >= IMAGE
            && shared.header(header::MAGIC).load(Ordering::Acquire) == MAGIC
            && shared.header(header::LENGTH).load(Ordering::Relaxed) == words.len() as u64;
        if !is_valid {
            return None;
        }
        let number = |word| shared.header(word).load(Ordering::Relaxed) as usize;
        let (image, index) = (number(header::IMAGE), number(header::RECORDS_OF_INDEX));
        let behind = words.len() - IMAGE;
        let fits = |count: usize| count <= behind * 64;
        (fits(image) && fits(index) && behind >= image::words(image).max(changes::words(index)))
            .then_some(shared)
    }

    fn header(&self, word: usize) -> &'a AtomicU64 {
        &self.words[word]
    }

    /// Device (major, minor) of the container's tree, once a process has found it out.
    pub fn tree_device(&self) -> Option<(u32, u32)> {
        let word = self.header(header::TREE_DEVICE).load(Ordering::Relaxed);
        (word & KNOWN != 0).then_some((((word & !KNOWN) >> 32) as u32, word as u32))
    }

    /// Stores that device.
    pub fn set_tree_device(&self, (major, minor): (u32, u32)) {
        let word = u64::from(major) << 32 | u64::from(minor) | KNOWN;
        self.header(header::TREE_DEVICE).store(word, Ordering::Relaxed);
    }

    /// Owner (user and group id) of the image's tree, where there is an index.
    pub fn tree_owner(&self) -> (u32, u32) {
        let word = self.header(header::TREE_OWNER).load(Ordering::Relaxed);
        ((word >> 32) as u32, word as u32)
    }

    /// Stores that owner.
    pub fn set_tree_owner(&self, (uid, gid): (u32, u32)) {
        let word = u64::from(uid) << 32 | u64::from(gid);
        self.header(header::TREE_OWNER).store(word, Ordering::Relaxed);
    }

    /// Returns true if a process may have set the container's host name.
    pub fn is_renamed(&self) -> bool {
        self.header(header::RENAMED).load(Ordering::Acquire) != 0
    }

    /// Has all processes look for the host name from now on. Comes before the change, and is never
    /// taken back: a process may end in between.
    pub fn set_renamed(&self) {
        self.header(header::RENAMED).store(1, Ordering::Release);
    }

    /// The calling process is about to execute a program. From then on it does not have the file
    /// mapped, until the program has begun.
    pub fn execution_begins(&self) {
        self.header(header::EXECUTIONS[0]).fetch_add(1, Ordering::SeqCst);
    }

    /// The program has begun and has the file mapped, or it could not be executed.
    pub fn execution_ends(&self) {
        self.header(header::EXECUTIONS[1]).fetch_add(1, Ordering::SeqCst);
    }

    /// The cache of directories without symbolic links on the way.
    pub fn plain(&self) -> plain::Plain<'a> {
        plain::Plain { generation: self.header(header::GENERATION), table: &self.words[PLAIN] }
    }

    /// The image's inodes.
    pub fn image(&self) -> image::Image<'a> {
        let count = self.header(header::IMAGE).load(Ordering::Relaxed) as usize;
        image::Image {
            replaced: self.header(header::REPLACED),
            words: self.words.get(IMAGE..IMAGE + image::words(count)).unwrap_or(&[]),
        }
    }

    /// What differs from the image's index. A container has either that or a list of inodes.
    pub fn changes(&self) -> changes::Changes<'a> {
        let records = self.header(header::RECORDS_OF_INDEX).load(Ordering::Relaxed) as usize;
        changes::Changes {
            redirects: self.header(header::REDIRECTS),
            links: self.header(header::LINKS_COVERED),
            moves: self.header(header::MOVES),
            words: self.words.get(IMAGE..IMAGE + changes::words(records)).unwrap_or(&[]),
        }
    }

    /// The index of the log.
    pub fn notes(&self) -> notes::Notes<'a> {
        notes::Notes {
            covered: self.header(header::NOTES),
            entries: self.header(header::NOTES_ENTRIES),
            pending: self.header(header::NOTES_PENDING),
            table: &self.words[NOTES],
        }
    }

    /// The processes of the container.
    pub fn processes(&self) -> processes::Processes<'a> {
        processes::Processes { words: &self.words[PROCESSES] }
    }

    /// The interned paths.
    pub fn texts(&self) -> interned_paths::Texts<'a> {
        interned_paths::Texts {
            used: self.header(header::TEXTS),
            table: &self.words[TABLE],
            words: &self.words[TEXTS],
        }
    }

    /// The records that programs are started with.
    pub fn records(&self) -> records::Records<'a> {
        let part = |used: usize, words: Range<usize>| records::Part {
            used: self.header(used),
            start: words.start * WORD,
            words: &self.words[words],
        };
        let [first, others] = header::RECORDS;
        records::Records { parts: [part(first, FIRST_RECORDS), part(others, RECORDS)] }
    }
}

/// Number of bytes at the beginning of the file that [`executions`] reads.
pub const EXECUTIONS_END: usize = (header::EXECUTIONS[1] + 1) * WORD;

/// Reads the two counters of executions from the beginning of the file, for a reader that does not
/// map it: programs that processes have begun to execute, and programs that run. They differ while
/// a process is between two programs, and for ever after one was killed there.
pub fn executions(beginning: &[u8; EXECUTIONS_END]) -> [u64; 2] {
    header::EXECUTIONS.map(|word| {
        let mut bytes = [0; WORD];
        bytes.copy_from_slice(&beginning[word * WORD..(word + 1) * WORD]);
        u64::from_le_bytes(bytes)
    })
}

/// A 64-bit hash of bytes, well distributed in every bit. It does not resist malice.
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    // The seed is rotated away from the length: otherwise a length and the next one could
    // compensate for two seeds, because zeros at the beginning of a short text do not count.
    let mut state = FACTOR ^ seed.rotate_right(8) ^ bytes.len() as u64;
    for chunk in bytes.as_chunks::<WORD>().0 {
        state = fold(state ^ u64::from_le_bytes(*chunk));
    }
    // The rest, and as much of the bytes before it as makes a word.
    let last = match bytes.last_chunk::<WORD>() {
        Some(last) => u64::from_le_bytes(*last),
        None => bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    fold(fold(state ^ last))
}

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A product of which both halves are used.
const fn fold(word: u64) -> u64 {
    let product = (word ^ 0x2545_f491_4f6c_dd1d) as u128 * (FACTOR | 1) as u128;
    (product >> 64) as u64 ^ product as u64
}

/// Writes bytes into words, from the beginning of the first.
fn put_bytes(words: &[AtomicU64], bytes: &[u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks(WORD)) {
        let mut whole = [0; WORD];
        whole[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
    }
}

/// Reads bytes out of words.
fn get_bytes(words: &[AtomicU64], into: &mut [u8]) {
    for (word, chunk) in words.iter().zip(into.chunks_mut(WORD)) {
        let whole = word.load(Ordering::Relaxed).to_le_bytes();
        chunk.copy_from_slice(&whole[..chunk.len()]);
    }
}

/// Returns true if words contain these bytes.
fn has_bytes(words: &[AtomicU64], bytes: &[u8]) -> bool {
    words.len() >= bytes.len().div_ceil(WORD)
        && words
            .iter()
            .zip(bytes.chunks(WORD))
            .all(|(word, chunk)| word.load(Ordering::Relaxed).to_le_bytes().starts_with(chunk))
}

#[cfg(test)]
mod tests;
