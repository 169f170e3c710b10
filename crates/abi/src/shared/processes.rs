//! The table of the container's processes: one entry for each, which the process writes itself.
//!
//! The place of an entry follows from the process's number; it may be a few places further. A
//! process has an entry from its first caught call on (so a child of `fork` becomes known a little
//! late), and the entry stays after the process has ended. Readers compare the start time with the
//! kernel's to see if it is still the same process. A process that needs a place takes that of a
//! dead one; `is_dead` is the caller's question to the kernel.
//!
//! A counter of changes, odd during a change, shows readers that an entry is incomplete.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Number of words for credentials, whose meaning the view defines.
pub const CREDENTIALS: usize = 40;

const ENTRY: usize = 48;
const ENTRIES: usize = 8192;
pub(super) const WORDS: usize = ENTRY * ENTRIES;
/// The greatest distance of an entry from its first place. So many processes can live at once with
/// numbers that are equal except for multiples of [`ENTRIES`], or close to such numbers.
const FAR: usize = 16;

/// Process number, 0 for none.
const PROCESS: usize = 0;
/// Counts changes.
const CHANGES: usize = 1;
const START: usize = 2;
const DEVICE: usize = 3;
const INODE: usize = 4;
const PROGRAM: usize = 5;
const WORLD: usize = 6;
const FIRST_CREDENTIAL: usize = 8;

/// What an entry says of a process's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// Number of the process, as the host knows it.
    pub process: u32,
    /// Time at which the entry was made: nanoseconds of `CLOCK_BOOTTIME`. The process itself is
    /// older, so a process with this number that has started later is another one.
    pub since: u64,
    /// Device of its program: major and minor number.
    pub device: (u32, u32),
    /// Inode of its program.
    pub inode: u64,
    /// Number of the interned guest path of its program; 0 if there was no room.
    pub program: u32,
    /// Number of the record with its world.
    pub world: u32,
}

/// The table of processes.
#[derive(Debug, Clone, Copy)]
pub struct Processes<'a> {
    pub(super) words: &'a [AtomicU64],
}

impl<'a> Processes<'a> {
    fn entries(&self) -> &'a [[AtomicU64; ENTRY]] {
        self.words.as_chunks().0
    }

    fn find(&self, process: u32) -> Option<&'a [AtomicU64; ENTRY]> {
        let entries = self.entries();
        let places = (0..FAR).map(|far| (process as usize).wrapping_add(far) % ENTRIES);
        // The search may stop at a free place: an entry would have taken that one first.
        places
            .filter_map(|place| entries.get(place))
            .map(|entry| (entry, entry[PROCESS].load(Ordering::Acquire)))
            .take_while(|(_, owner)| *owner != 0)
            .find(|(_, owner)| *owner == u64::from(process))
            .map(|(entry, _)| entry)
    }

    fn claim(
        &self,
        process: u32,
        mut is_dead: impl FnMut(u32) -> bool,
    ) -> Option<&'a [AtomicU64; ENTRY]> {
        if let Some(entry) = self.find(process) {
            return Some(entry);
        }
        let entries = self.entries();
        let places = (0..FAR).map(|far| (process as usize).wrapping_add(far) % ENTRIES);
        for entry in places.filter_map(|place| entries.get(place)) {
            let owner = entry[PROCESS].load(Ordering::Acquire);
            if owner != 0 && !is_dead(owner as u32) {
                continue;
            }
            let new = u64::from(process);
            if entry[PROCESS]
                .compare_exchange(owner, new, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Some(entry);
            }
        }
        None
    }

    /// Writes to the page of a process's place: reading it first would cost a page fault of its
    /// own.
    fn touch(&self, process: u32) {
        const NO_PROCESS: u64 = u64::MAX;
        if let Some(entry) = self.entries().get(process as usize % ENTRIES) {
            // This changes nothing, but the processor treats it as a write, and the compiler cannot
            // remove it as it could an addition of zero.
            let _ = entry[PROCESS].compare_exchange(
                NO_PROCESS,
                NO_PROCESS,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Writes the entry of the calling process, and its credentials. Returns false if there is no
    /// room: then other processes do not know it.
    pub fn set(
        &self,
        entry: &Entry,
        credentials: &[u64; CREDENTIALS],
        is_dead: impl FnMut(u32) -> bool,
    ) -> bool {
        self.touch(entry.process);
        let Some(words) = self.claim(entry.process, is_dead) else { return false };
        change(words, || {
            put(&words[START], entry.since);
            put(&words[DEVICE], u64::from(entry.device.0) << 32 | u64::from(entry.device.1));
            put(&words[INODE], entry.inode);
            put(&words[PROGRAM], entry.program.into());
            put(&words[WORLD], entry.world.into());
            put_credentials(words, credentials);
        });
        true
    }

    /// Writes new credentials of the calling process, if it has an entry.
    pub fn set_credentials(&self, process: u32, credentials: &[u64; CREDENTIALS]) {
        if let Some(words) = self.find(process) {
            change(words, || put_credentials(words, credentials));
        }
    }

    /// The entry of a process. The caller has to ask the kernel if it is still the same process.
    pub fn get(&self, process: u32) -> Option<(Entry, [u64; CREDENTIALS])> {
        let words = self.find(process)?;
        // A writer that was killed leaves an incomplete entry; its process is dead.
        for _ in 0..1000 {
            let before = words[CHANGES].load(Ordering::Acquire);
            let mut credentials = [0; CREDENTIALS];
            for (word, from) in credentials.iter_mut().zip(&words[FIRST_CREDENTIAL..]) {
                *word = from.load(Ordering::Relaxed);
            }
            let entry = read(words);
            fence(Ordering::Acquire);
            let same = words[CHANGES].load(Ordering::Relaxed) == before && before.is_multiple_of(2);
            if same && entry.process == process {
                return Some((entry, credentials));
            }
            core::hint::spin_loop();
        }
        None
    }

    /// All entries, including those of processes that have ended.
    pub fn all(&self) -> impl Iterator<Item = Entry> + use<'a> {
        let used = |words: &&[AtomicU64; ENTRY]| words[PROCESS].load(Ordering::Relaxed) != 0;
        self.entries().iter().filter(used).map(read)
    }
}

fn read(words: &[AtomicU64; ENTRY]) -> Entry {
    let word = |index: usize| words[index].load(Ordering::Relaxed);
    let device = word(DEVICE);
    Entry {
        process: word(PROCESS) as u32,
        since: word(START),
        device: ((device >> 32) as u32, device as u32),
        inode: word(INODE),
        program: word(PROGRAM) as u32,
        world: word(WORLD) as u32,
    }
}

/// Writes only a different value: a page that is not written need not be written to disk.
fn put(word: &AtomicU64, value: u64) {
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Relaxed);
    }
}

fn put_credentials(words: &[AtomicU64; ENTRY], credentials: &[u64; CREDENTIALS]) {
    for (word, value) in words[FIRST_CREDENTIAL..].iter().zip(credentials) {
        put(word, *value);
    }
}

fn change(words: &[AtomicU64; ENTRY], write: impl FnOnce()) {
    // Odd, even if a killed process left an odd number.
    let before = words[CHANGES].load(Ordering::Relaxed) | 1;
    words[CHANGES].store(before, Ordering::Relaxed);
    fence(Ordering::Release);
    write();
    words[CHANGES].store(before.wrapping_add(1), Ordering::Release);
}
