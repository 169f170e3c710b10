//! Who lives in the container: one entry per process, which it writes itself.
//!
//! An entry stands at a place that follows from the process's number, or a little behind. It is there from the first call that is caught in
//! the process (so a child of `fork` is known a little late), and stays when the process has ended: whoever reads checks with the kernel
//! whether it is the same process still, by its start, and whoever wants a place takes that of a dead one. `is_dead` is the caller's
//! question to the kernel.
//!
//! A word that counts changes, odd while one is made, tells readers of halves.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// Words of credentials; what they mean is the view's.
pub const CREDENTIALS: usize = 40;

const ENTRY: usize = 48;
const ENTRIES: usize = 8192;
pub(super) const WORDS: usize = ENTRY * ENTRIES;
/// How far an entry stands from its place at most: so many processes with numbers that are equal but for multiples of [`ENTRIES`], or next to
/// such, can live at once.
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
    /// When the entry was made: nanoseconds of `CLOCK_BOOTTIME`. The process itself is older, so a process with this number that has
    /// started later is another one.
    pub since: u64,
    /// Device of its program: major and minor number.
    pub device: (u32, u32),
    /// Inode of its program.
    pub inode: u64,
    /// Guest path of its program, among the texts; 0 where there was no room.
    pub program: u32,
    /// Number of the record with its world.
    pub world: u32,
}

/// All of them.
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
        // A place that was never taken would have been taken before those behind it.
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

    /// Asks for the page of a process's place at once as one that is written: a look before it would cost a fault of its own.
    fn touch(&self, process: u32) {
        const NOBODY: u64 = u64::MAX;
        if let Some(entry) = self.entries().get(process as usize % ENTRIES) {
            // Changes nothing, but is a write to the processor, as an addition of nothing would not be to the compiler.
            let _ = entry[PROCESS].compare_exchange(
                NOBODY,
                NOBODY,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Writes the entry of the calling process, and its credentials. False where there is no room: then others do not know of it.
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

    /// Writes new credentials of the calling process, where it has an entry.
    pub fn set_credentials(&self, process: u32, credentials: &[u64; CREDENTIALS]) {
        if let Some(words) = self.find(process) {
            change(words, || put_credentials(words, credentials));
        }
    }

    /// What is known of a process. Whether it is still the same is to be asked of the kernel.
    pub fn get(&self, process: u32) -> Option<(Entry, [u64; CREDENTIALS])> {
        let words = self.find(process)?;
        // A writer that was killed leaves its halves; it is dead.
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

    /// Every entry, also of processes that have ended.
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

/// Only what is different: a page that is not written need not be written to disk.
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
    // Odd, whatever somebody who was killed left there.
    let before = words[CHANGES].load(Ordering::Relaxed) | 1;
    words[CHANGES].store(before, Ordering::Relaxed);
    fence(Ordering::Release);
    write();
    words[CHANGES].store(before.wrapping_add(1), Ordering::Release);
}
