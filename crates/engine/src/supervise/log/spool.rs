//! Takes output for the log faster than lines can be written, by leaving out what rotation would
//! remove.
//!
//! A log keeps the last `max_size * max_files` bytes. A program that writes more than that within
//! seconds (`cat` of a large file) must not wait for lines that the next rotation deletes. So a
//! modest rate is written at once. Beyond it, chunks are kept in memory, at most as many as the log
//! can hold, and written when the program pauses, every few seconds, and at the end. What was
//! pushed out of memory meanwhile is what a log of that size would have lost too.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{Stream, Writer};
use crate::spec::LogSpec;

/// Bytes a second that are written at once.
const RATE: u64 = 8 << 20;
/// As many more may come in one burst.
const BURST: u64 = 2 << 20;
/// A pause after which chunks in memory are written.
const PAUSE: Duration = Duration::from_millis(50);
/// They are written after so long without a pause too.
const LONGEST: Duration = Duration::from_secs(5);
/// Writing takes at most one part in so many of the time, until the end: on a busy machine a
/// program pauses often although it writes much.
const SHARE: u32 = 20;
/// A log that keeps more than this is written in full, however long that takes.
const MOST: u64 = 64 << 20;

/// A container's log that is opened with the first output.
pub(crate) struct Spool {
    dir: PathBuf,
    spec: LogSpec,
    writer: Option<Writer>,
    /// The log cannot be opened.
    failed: Option<String>,
    /// What may be written at once, and since when that is counted.
    allowed: (u64, Instant),
    chunks: VecDeque<Chunk>,
    bytes: u64,
    /// When the first of the chunks came, and the last.
    came: (Instant, Instant),
    /// They are not written earlier.
    not_before: Instant,
}

struct Chunk {
    stream: Stream,
    time: Timestamp,
    bytes: Vec<u8>,
}

impl Spool {
    pub(crate) fn new(dir: PathBuf, spec: LogSpec) -> Self {
        let now = Instant::now();
        Self {
            dir,
            spec,
            writer: None,
            failed: None,
            allowed: (BURST, now),
            chunks: VecDeque::new(),
            bytes: 0,
            came: (now, now),
            not_before: now,
        }
    }

    /// Takes a piece of output; gives a buffer back that is free.
    pub(crate) fn add(&mut self, stream: Stream, bytes: Vec<u8>) -> Vec<u8> {
        let now = Instant::now();
        let (left, since) = self.allowed;
        let earned = u128::from(RATE) * now.duration_since(since).as_millis() / 1000;
        let left = (u128::from(left) + earned).min(u128::from(BURST)) as u64;
        let length = bytes.len() as u64;
        if self.chunks.is_empty() && length <= left {
            self.allowed = (left - length, now);
            self.write(stream, Timestamp::now(), &bytes);
            return bytes;
        }
        self.allowed = (left, now);
        self.came = (if self.chunks.is_empty() { now } else { self.came.0 }, now);
        self.bytes += length;
        self.chunks.push_back(Chunk { stream, time: Timestamp::now(), bytes });
        let kept = self.kept();
        if kept > MOST {
            if self.bytes > RATE {
                self.settle();
            }
            return Vec::new();
        }
        match self.chunks.front() {
            Some(oldest) if self.bytes - oldest.bytes.len() as u64 >= kept => self.forget_oldest(),
            _ => Vec::new(),
        }
    }

    /// How much the log keeps.
    fn kept(&self) -> u64 {
        self.spec.max_size.saturating_mul(u64::from(self.spec.max_files.max(1)))
    }

    fn forget_oldest(&mut self) -> Vec<u8> {
        let oldest = self.chunks.pop_front().map(|chunk| chunk.bytes).unwrap_or_default();
        self.bytes -= oldest.len() as u64;
        oldest
    }

    /// How long it is until [`Spool::settle`] is to be called; `None` if nothing waits.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let now = Instant::now();
        let (first, last) = self.came;
        let until = (last + PAUSE).min(first + LONGEST).max(self.not_before);
        (!self.chunks.is_empty()).then(|| until.saturating_duration_since(now))
    }

    /// Writes what waits, as far as the log keeps it.
    pub(crate) fn settle(&mut self) {
        let begun = Instant::now();
        let mut left = self.kept();
        let mut first = self.chunks.len();
        while first > 0 && left > 0 {
            first -= 1;
            left = left.saturating_sub(least(&self.chunks[first].bytes));
        }
        for chunk in std::mem::take(&mut self.chunks).into_iter().skip(first) {
            self.write(chunk.stream, chunk.time, &chunk.bytes);
        }
        self.bytes = 0;
        self.not_before = Instant::now() + begun.elapsed() * SHARE;
    }

    fn write(&mut self, stream: Stream, time: Timestamp, bytes: &[u8]) {
        if self.writer.is_none() && self.failed.is_none() {
            match Writer::open(&self.dir, &self.spec) {
                Ok(writer) => self.writer = Some(writer),
                Err(error) => self.failed = Some(error.to_string()),
            }
        }
        if let Some(writer) = &mut self.writer {
            writer.add_at(stream, bytes, &time.to_string());
        }
    }

    /// Writes everything, also lines that were not ended. Why there is no log, if that is so.
    pub(crate) fn finish(&mut self) -> Option<String> {
        self.settle();
        if let Some(writer) = &mut self.writer {
            writer.flush();
        }
        self.failed.take()
    }
}

/// A lower bound of what output takes in the log: text as it is; other bytes are there twice, once
/// in base64 ([`super`]).
fn least(bytes: &[u8]) -> u64 {
    bytes.split(|&byte| byte == b'\n').map(least_of_line).sum()
}

fn least_of_line(line: &[u8]) -> u64 {
    let length = line.len() as u64;
    // The chunk may begin and end within a character.
    let begun = line.iter().take(3).take_while(|&&byte| byte & 0xc0 == 0x80).count();
    match std::str::from_utf8(&line[begun..]) {
        Err(error) if error.error_len().is_some() => length * 7 / 3,
        _ => length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::log::{Query, read};

    fn lines(dir: &std::path::Path) -> Vec<u8> {
        let mut all = Vec::new();
        read(dir, &Query::default(), &|| false, &mut |entry| {
            all.extend(entry.bytes);
            true
        })
        .unwrap();
        all
    }

    #[test]
    fn a_modest_rate_is_written_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path().into(), LogSpec::default());
        assert!(lines(dir.path()).is_empty());
        spool.add(Stream::Stdout, b"one\n".to_vec());
        spool.add(Stream::Stderr, b"two\nhalf".to_vec());
        assert_eq!((lines(dir.path()), spool.wait()), (b"one\ntwo\n".to_vec(), None));
        assert_eq!(spool.finish(), None);
        assert_eq!(lines(dir.path()), b"one\ntwo\nhalf");
    }

    #[test]
    fn what_rotation_would_remove_is_left_out() {
        for text in [&b"0123456789abcdef\n"[..], &b"\xff123456789abcdef\n"[..]] {
            let (whole, short) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let spec = LogSpec { max_size: 200_000, max_files: 2, ..LogSpec::default() };
            let mut writer = Writer::open(whole.path(), &spec).unwrap();
            let mut spool = Spool::new(short.path().into(), spec);
            spool.allowed.0 = 0;
            for number in 0..600 {
                let mut chunk = text.repeat(1000);
                chunk.extend(format!("{number}\n").into_bytes());
                writer.add_at(Stream::Stdout, &chunk, "now");
                spool.allowed = (0, Instant::now());
                spool.add(Stream::Stdout, chunk);
            }
            assert!(spool.bytes < 500_000 && spool.wait().is_some());
            spool.finish();
            // The next chunk waits in proportion to what that took.
            assert!(spool.not_before > Instant::now() && spool.wait().is_none());
            let (whole, short) = (lines(whole.path()), lines(short.path()));
            // Times have other lengths there, so the log begins a little later.
            assert!(short.len() > 10_000 && whole.ends_with(&short[short.len() - 10_000..]));
            assert!(short.len() * 10 > whole.len() * 6, "{} of {}", short.len(), whole.len());
        }
    }
}
