//! Reads a container's log: the last lines, a stretch of time, and following across rotation.
//!
//! The files are one sequence, oldest first. Following keeps the file it reads open; when that
//! ends and `log.json` has become another file, the one it reads is found among the rotated
//! ones by its inode, and the next newer follows, so that nothing is skipped unless it was
//! deleted unread. New lines are awaited by looking again, every [`PAUSE`]: `inotify` is silent
//! on NFS when another machine writes, and a look costs two system calls.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{Stream, file};
use crate::supervise::{Error, state};

/// How long following waits before it looks again.
const PAUSE: Duration = Duration::from_millis(100);
const BLOCK: usize = 64 * 1024;

/// What to read.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Only so many lines from the end.
    pub tail: Option<usize>,
    /// Only lines from this time on.
    pub since: Option<SystemTime>,
    /// Only lines up to this time; ends following.
    pub until: Option<SystemTime>,
    /// Go on until the container has ended.
    pub follow: bool,
}

/// One line, or a piece of a long one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where the program wrote it.
    pub stream: Stream,
    /// When, RFC 3339.
    pub time: String,
    /// The bytes as they were written, with the newline if there was one.
    pub bytes: Vec<u8>,
}

#[derive(Deserialize)]
struct Line {
    log: String,
    #[serde(default)]
    stream: String,
    #[serde(default)]
    time: String,
    raw: Option<String>,
}

impl Line {
    fn entry(self) -> Entry {
        let raw = self.raw.and_then(|text| STANDARD.decode(text).ok());
        let stream = if self.stream == "stderr" { Stream::Stderr } else { Stream::Stdout };
        Entry { stream, time: self.time, bytes: raw.unwrap_or_else(|| self.log.into_bytes()) }
    }
}

/// Reads the log of the container in `dir` and passes its entries to `each` until that returns
/// `false`. Lines that are not JSON (torn by a crash of the machine) are left out. Following calls
/// `goes_on` before each pause and ends when it returns `false`.
pub fn read(
    dir: &Path,
    query: &Query,
    goes_on: &dyn Fn() -> bool,
    each: &mut dyn FnMut(Entry) -> bool,
) -> Result<(), Error> {
    let mut place = Place::start(dir, query.tail)?;
    let mut line = Vec::new();
    loop {
        // Asked before reading to the end: what is written after the answer is not missed.
        let over = !query.follow || ended(dir) || past(query.until);
        while let Some(whole) = place.next_line(&mut line)? {
            if !whole && !over {
                break;
            }
            let Ok(parsed) = serde_json::from_slice::<Line>(&line) else {
                line.clear();
                continue;
            };
            line.clear();
            let entry = parsed.entry();
            let time = time_of(&entry);
            if time.is_some_and(|time| query.until.is_some_and(|until| time > until)) {
                return Ok(());
            }
            if time.is_some_and(|time| query.since.is_some_and(|since| time < since)) {
                continue;
            }
            if !each(entry) {
                return Ok(());
            }
        }
        if over || !goes_on() {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

fn past(until: Option<SystemTime>) -> bool {
    until.is_some_and(|until| SystemTime::now() > until)
}

fn ended(dir: &Path) -> bool {
    use state::Observed::{Restarting, Running};
    match state::observe(dir) {
        // Without a supervisor no process writes to the log.
        Ok(Running(running)) => running.supervisor.is_none(),
        Ok(Restarting { .. }) => false,
        // As in Docker, also where it has never run.
        _ => true,
    }
}

fn time_of(entry: &Entry) -> Option<SystemTime> {
    entry.time.parse::<jiff::Timestamp>().ok().map(SystemTime::from)
}

/// Where reading is.
struct Place {
    dir: PathBuf,
    current: Option<BufReader<File>>,
    inode: u64,
}

impl Place {
    fn start(dir: &Path, tail: Option<usize>) -> Result<Self, Error> {
        let mut place = Self { dir: dir.into(), current: None, inode: 0 };
        let mut oldest = 0;
        while file(dir, oldest + 1).exists() {
            oldest += 1;
        }
        let (number, offset) = match tail {
            None => (oldest, 0),
            Some(lines) => tail_position(dir, oldest, lines)?,
        };
        place.open(number)?;
        if let Some(reader) = &mut place.current {
            let seek = reader.seek(SeekFrom::Start(offset));
            seek.map_err(|error| Error::file("read", file(dir, number), error))?;
        }
        Ok(place)
    }

    /// Opens one of the files; `current` stays `None` where there is none yet.
    fn open(&mut self, number: u32) -> Result<(), Error> {
        let path = file(&self.dir, number);
        match File::open(&path) {
            Ok(opened) => {
                let meta = opened.metadata();
                self.inode = meta.map_err(|error| Error::file("read", &path, error))?.ino();
                self.current = Some(BufReader::with_capacity(BLOCK, opened));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::file("open", path, error)),
        }
    }

    /// Appends to `line` up to a newline, going on to newer files at the end of one. `None` at the
    /// very end; `Some(false)` for a last line without newline.
    fn next_line(&mut self, line: &mut Vec<u8>) -> Result<Option<bool>, Error> {
        loop {
            let Some(reader) = &mut self.current else {
                self.open(0)?;
                if self.current.is_none() {
                    return Ok(None);
                }
                continue;
            };
            let read = reader.read_until(b'\n', line);
            let count = read.map_err(|error| Error::file("read", file(&self.dir, 0), error))?;
            if line.last() == Some(&b'\n') {
                return Ok(Some(true));
            }
            if count > 0 {
                return Ok(Some(false));
            }
            let Some(newer) = self.newer()? else {
                return Ok((!line.is_empty()).then_some(false));
            };
            // A line is never continued in another file.
            line.clear();
            self.open(newer)?;
        }
    }

    /// The number of the file after the one that is read, `None` if that is the newest.
    fn newer(&self) -> Result<Option<u32>, Error> {
        let mut oldest = None;
        for number in 0.. {
            let path = file(&self.dir, number);
            let inode = match std::fs::metadata(&path) {
                Ok(meta) => meta.ino(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(Error::file("look at", path, error)),
            };
            if inode == self.inode {
                return Ok(number.checked_sub(1));
            }
            oldest = Some(number);
        }
        Ok(oldest)
    }
}

/// The file and offset where the last `lines` lines begin.
fn tail_position(dir: &Path, oldest: u32, lines: usize) -> Result<(u32, u64), Error> {
    let mut left = lines;
    for number in 0..=oldest {
        let path = file(dir, number);
        let fail = |error: io::Error| Error::file("read", file(dir, number), error);
        let opened = match File::open(path) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(fail(error)),
        };
        match tail_in(&opened, left).map_err(fail)? {
            Ok(offset) => return Ok((number, offset)),
            Err(found) => left -= found,
        }
    }
    Ok((oldest, 0))
}

/// `Ok(offset)` where the last `lines` lines of the file begin, `Err(count)` if it has fewer.
fn tail_in(opened: &File, lines: usize) -> io::Result<Result<u64, usize>> {
    let end = opened.metadata()?.len();
    if lines == 0 {
        return Ok(Ok(end));
    }
    let mut start = end;
    let mut block = vec![0_u8; BLOCK];
    let mut found = 0_usize;
    while start > 0 {
        let before = start.saturating_sub(BLOCK as u64);
        let part = &mut block[..(start - before) as usize];
        opened.read_exact_at(part, before)?;
        for at in (0..part.len()).rev().filter(|&at| part[at] == b'\n') {
            let position = before + at as u64 + 1;
            // The newline at the very end ends the last line; every other begins one after it.
            if position < end {
                found += 1;
                if found == lines {
                    return Ok(Ok(position));
                }
            }
        }
        start = before;
    }
    if end > 0 {
        found += 1;
    }
    Ok(if found >= lines && end > 0 { Ok(0) } else { Err(found) })
}
