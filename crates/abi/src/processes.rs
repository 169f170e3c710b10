//! Parses what the kernel reports about a process in `/proc/PID`: see proc(5).

/// `AT_PHDR`: address of the program headers.
const HEADERS: u64 = 3;

/// Address of a program's headers, from `auxv`; `wide` for a 64-bit process.
pub fn headers(auxiliary: &[u8], wide: bool) -> Option<u64> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let width = if wide { 8 } else { 4 };
    let mut pairs = auxiliary.chunks_exact(2 * width).map(|pair| pair.split_at(width));
    pairs.find_map(|(key, value)| (word(key) == HEADERS).then(|| word(value)))
}

/// Addresses and path in a line of `maps`; `None` if it maps no file.
pub fn mapping(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let path = line.get(line.iter().position(|byte| *byte == b'/')?..)?;
    let range = core::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
    let (from, to) = range.split_once('-')?;
    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?, path))
}

/// The life of a process, as far as `stat` shows it.
///
/// The state in `stat` is that of the first thread. A process whose first thread has ended lives on
/// in its other threads. Every `execve` by a thread other than the first passes through this state:
/// the kernel waits until the first thread is a zombie, gives its number and its start time to the
/// thread that executes, and removes it. Meanwhile a reader of `stat` may see the thread that is
/// being removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// A letter: `Z` and `X` stand for first threads that have ended.
    pub state: u8,
    /// Its parent.
    pub parent: u32,
    /// The thread that was read is ending (`PF_EXITING`): it has no files and namespaces any more.
    pub ending: bool,
    /// It is the kernel's own (`PF_KTHREAD`), and executes no program.
    pub is_kernels: bool,
    /// Number of threads, including a first thread that has ended. 0: the thread that was read is
    /// being removed.
    pub threads: u64,
    /// Start time in ticks (`USER_HZ`: 100 a second) since the start of the machine.
    pub start: u64,
}

impl Life {
    /// Length of a tick in nanoseconds.
    pub const TICK: u64 = 10_000_000;
    /// Of the flags in field 9 (the kernel's `include/linux/sched.h`).
    const PF_EXITING: u64 = 4;
    const PF_KTHREAD: u64 = 0x0020_0000;

    /// Parses `stat`.
    pub fn read(text: &[u8]) -> Option<Self> {
        // Start behind the name, which may contain anything.
        let text = text.get(text.iter().rposition(|byte| *byte == b')')? + 2..)?;
        let mut words = text.split(|byte| *byte == b' ');
        let state = *words.next()?.first()?;
        let parent = u32::try_from(number(words.next()?)?).ok()?;
        let flags = number(words.nth(4)?)?;
        let (ending, is_kernels) = (flags & Self::PF_EXITING != 0, flags & Self::PF_KTHREAD != 0);
        let threads = number(words.nth(10)?)?;
        Some(Self { state, parent, ending, is_kernels, threads, start: number(words.nth(1)?)? })
    }

    /// Returns true if all threads have ended. Valid unless [`Self::is_passing`].
    pub fn is_over(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    /// Returns true if the last thread is ending or has ended. Valid unless [`Self::is_passing`].
    pub fn is_ending(&self) -> bool {
        self.ending && self.threads <= 1 || self.is_over()
    }

    /// Returns true if the thread that was read is being removed: it was the last of its process,
    /// or another thread has got its number. Reading again finds the other thread, or nothing.
    pub fn is_passing(&self) -> bool {
        self.threads == 0 || matches!(self.state, b'X' | b'x') && self.threads > 1
    }
}

/// The number of the process that a thread belongs to, from `status`.
pub fn leader(text: &[u8]) -> Option<u32> {
    let mut lines = text.split(|byte| *byte == b'\n');
    u32::try_from(number(lines.find_map(|line| line.strip_prefix(b"Tgid:\t"))?)?).ok()
}

/// Parses a decimal number.
pub fn number(digits: &[u8]) -> Option<u64> {
    core::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn headers_and_maps_are_read() {
        let pairs = [6_u64, 4096, HEADERS, 0x40_0040, 0, 0];
        let wide: Vec<u8> = pairs.iter().flat_map(|word| word.to_le_bytes()).collect();
        let narrow: Vec<u8> = pairs.iter().flat_map(|word| (*word as u32).to_le_bytes()).collect();
        assert_eq!(headers(&wide, true), Some(0x40_0040));
        assert_eq!(headers(&narrow, false), Some(0x40_0040));
        assert_eq!(headers(&[], true), None);
        let text = b"55d4c8a00000-55d4c8a02000 r--p 00000000 08:01 131 /r/usr/bin/a b (deleted)";
        assert_eq!(
            mapping(text),
            Some((0x55d4_c8a0_0000, 0x55d4_c8a0_2000, &b"/r/usr/bin/a b (deleted)"[..]))
        );
        assert_eq!(mapping(b"7ffc0e9f0000-7ffc0ea11000 rw-p 00000000 00:00 0    [stack]"), None);
    }

    #[test]
    fn a_process_lives_as_long_as_any_of_its_threads() {
        let one =
            Life { state: b'S', parent: 1, ending: false, is_kernels: false, threads: 1, start: 1 };
        let life = |state, threads| Life { state, threads, ..one };
        assert!(life(b'Z', 1).is_over() && life(b'X', 1).is_over());
        assert!(!life(b'Z', 2).is_over() && !life(b'S', 1).is_over());
        let ending = |state, threads| Life { ending: true, ..life(state, threads) };
        assert!(ending(b'D', 1).is_ending() && !ending(b'D', 1).is_over());
        assert!(!ending(b'Z', 2).is_ending() && !life(b'S', 1).is_ending());
        assert!(life(b'Z', 0).is_passing() && life(b'X', 2).is_passing());
        assert!(!life(b'Z', 2).is_passing() && !life(b'X', 1).is_passing());
    }

    #[test]
    fn lives_are_read_behind_any_name() {
        let rest =
            b"S 41 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 3 18446744073709551615";
        for name in [&b"(sh)"[..], b"(a) b (c)", b"(\n)"] {
            let text = [b"43 ", name, b" ", rest].concat();
            let life = Life::read(&text).unwrap();
            let known = Life {
                state: b'S',
                parent: 41,
                ending: false,
                is_kernels: false,
                threads: 1,
                start: 987_654,
            };
            assert_eq!(life, known);
            assert!(!life.is_over() && !life.is_passing());
        }
        let flags = b"43 (sh) D 41 42 42 0 -1 4194564 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 3";
        assert!(Life::read(flags).unwrap().is_ending());
        assert_eq!(Life::read(b"43 (sh) Z 41 42"), None);
        assert_eq!(Life::read(b""), None);
        // The data of this process itself.
        let own = std::fs::read("/proc/self/stat").unwrap();
        assert_eq!(Life::read(&own).unwrap().parent, std::os::unix::process::parent_id());
        let status = std::fs::read("/proc/thread-self/status").unwrap();
        assert_eq!(leader(&status), Some(std::process::id()));
        assert_eq!(leader(b"Name:\tx\n"), None);
    }
}
