//! Parses names under `/proc` that belong to a process or thread.

/// A file of a process or thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'p> {
    /// Process.
    pub(super) process: u32,
    /// Thread, if the name goes through `task`.
    pub(super) thread: Option<u32>,
    /// The path below its directory, without a leading slash; empty for the directory itself.
    pub(super) rest: &'p [u8],
}

impl Entry<'_> {
    /// The thread whose state the file shows: for a process its first thread.
    pub(super) fn task(&self) -> u32 {
        self.thread.unwrap_or(self.process)
    }
}

/// Parses a canonical host path; `pid` and `tid` are the caller's.
pub(super) fn entry(pid: u32, tid: u32, host: &[u8]) -> Option<Entry<'_>> {
    let path = host.strip_prefix(b"/proc/")?;
    let (first, rest) = cut(path);
    let (process, thread) = match first {
        b"self" => (pid, None),
        b"thread-self" => (pid, Some(tid)),
        _ => (number(first)?, None),
    };
    if let (b"task", below) = cut(rest)
        && !below.is_empty()
    {
        let (thread, rest) = cut(below);
        return Some(Entry { process, thread: Some(number(thread)?), rest });
    }
    Some(Entry { process, thread, rest })
}

/// The first component, and the path behind its slash.
pub(super) fn cut(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().position(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (path, b""),
    }
}

/// A decimal number as the kernel writes one.
pub(super) fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || digits.len() > 10 || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    digits.iter().try_fold(0_u32, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}
