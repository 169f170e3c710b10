//! Writes a container's log and rotates it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::{Stream, file};
use crate::spec::LogSpec;
use crate::supervise::Error;

/// Longest piece of a line in one object, as in Docker.
const LONGEST: usize = 16 * 1024;
/// Older files that are looked for when a smaller `max_files` leaves some over.
const MOST_FILES: u32 = 1000;

#[derive(Serialize)]
struct Object<'a> {
    log: &'a str,
    stream: &'static str,
    time: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<String>,
}

/// The log of one container, open for appending.
pub(crate) struct Writer {
    dir: PathBuf,
    spec: LogSpec,
    file: File,
    length: u64,
    /// Where in the file the count for the next rotation begins: 0, unless renaming failed.
    base: u64,
    /// The beginning of a line whose end has not come, per stream.
    partial: [Vec<u8>; 2],
    /// Bytes of output that could not be written (disk full), to be reported when writing works
    /// again.
    lost: u64,
}

impl Writer {
    pub(crate) fn open(dir: &Path, spec: &LogSpec) -> Result<Self, Error> {
        let path = file(dir, 0);
        let (file, length) = open_end(&path).map_err(|error| Error::file("open", path, error))?;
        let partial = [Vec::new(), Vec::new()];
        Ok(Self { dir: dir.into(), spec: spec.clone(), file, length, base: 0, partial, lost: 0 })
    }

    /// Takes a piece of output. Whole lines are written at once, in one `write(2)`.
    ///
    /// Never fails: a log that cannot be written must not stop the program. What was lost is
    /// counted, and said in the log as soon as it takes lines again.
    pub(crate) fn add(&mut self, stream: Stream, bytes: &[u8]) {
        self.add_at(stream, bytes, &crate::supervise::now());
    }

    /// The same for output that came at this time.
    pub(crate) fn add_at(&mut self, stream: Stream, bytes: &[u8], time: &str) {
        let mut lines = Vec::new();
        let mut rest = bytes;
        let index = usize::from(stream.number() - 1);
        let mut partial = std::mem::take(&mut self.partial[index]);
        while !rest.is_empty() {
            let room = LONGEST - partial.len();
            let window = &rest[..rest.len().min(room)];
            let end = window.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
            let (piece, after) = rest.split_at(end.unwrap_or(window.len()));
            rest = after;
            if partial.is_empty() && (end.is_some() || piece.len() == LONGEST) {
                let cut = if end.is_some() { piece.len() } else { whole_characters(piece) };
                object(&piece[..cut], stream, time, &mut lines);
                partial.extend_from_slice(&piece[cut..]);
                continue;
            }
            partial.extend_from_slice(piece);
            if end.is_some() || partial.len() == LONGEST {
                let cut = if end.is_some() { partial.len() } else { whole_characters(&partial) };
                object(&partial[..cut], stream, time, &mut lines);
                partial.drain(..cut);
            }
        }
        if partial.is_empty() {
            partial = Vec::new();
        }
        self.partial[index] = partial;
        self.write(&lines, bytes.len() as u64);
    }

    /// Writes lines that were not ended: when a stream closes or the program is gone.
    pub(crate) fn flush(&mut self) {
        let time = crate::supervise::now();
        let mut lines = Vec::new();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let partial = std::mem::take(&mut self.partial[usize::from(stream.number() - 1)]);
            if !partial.is_empty() {
                object(&partial, stream, &time, &mut lines);
            }
        }
        let size = lines.len() as u64;
        self.write(&lines, size);
    }

    /// Appends lines, each file as full as its limit allows.
    fn write(&mut self, mut lines: &[u8], size: u64) {
        let mut written = true;
        while !lines.is_empty() {
            let used = self.length - self.base;
            let room = self.spec.max_size.saturating_sub(used);
            let (fit, rest) = lines.split_at(fitting(lines, room));
            if fit.is_empty() && used > 0 {
                self.rotate();
                continue;
            }
            // A line longer than a whole file gets one of its own.
            let (now, later) = if fit.is_empty() {
                lines.split_at(
                    lines.iter().position(|&b| b == b'\n').map_or(lines.len(), |at| at + 1),
                )
            } else {
                (fit, rest)
            };
            written &= self.say_what_was_lost() && self.append(now).is_ok();
            lines = later;
        }
        if !written {
            self.lost += size;
        }
    }

    /// `false` while the log still takes nothing.
    fn say_what_was_lost(&mut self) -> bool {
        if self.lost == 0 {
            return true;
        }
        let mut notice = Vec::new();
        let text = format!("coracle: {} bytes of output could not be logged\n", self.lost);
        object(text.as_bytes(), Stream::Stderr, &crate::supervise::now(), &mut notice);
        let said = self.append(&notice).is_ok();
        if said {
            self.lost = 0;
        }
        said
    }

    /// All of `lines` or nothing: half a line would garble the next one too.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        match self.file.write_all(lines) {
            Ok(()) => {
                self.length += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                let _ = self.file.set_len(self.length);
                Err(error)
            }
        }
    }

    /// `log.json` becomes `log.json.1`, and so on; the oldest goes. If renaming fails, the
    /// same file grows on: a log too long is better than none.
    fn rotate(&mut self) {
        let keep = self.spec.max_files.max(1);
        for number in keep - 1..MOST_FILES {
            let path = file(&self.dir, number);
            if number > 0 && fs::remove_file(path).is_err() {
                break;
            }
        }
        for number in (1..keep).rev() {
            let _ = fs::rename(file(&self.dir, number - 1), file(&self.dir, number));
        }
        if keep == 1 {
            let _ = fs::remove_file(file(&self.dir, 0));
        }
        if let Ok((file, length)) = open_end(&file(&self.dir, 0)) {
            self.file = file;
            self.length = length;
        }
        self.base = self.length;
    }
}

/// Opens for appending and cuts off a last line that a killed supervisor did not finish.
fn open_end(path: &Path) -> io::Result<(File, u64)> {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut length = file.metadata()?.len();
    let mut window = [0_u8; 4096];
    while length > 0 {
        let start = length.saturating_sub(window.len() as u64);
        let part = &mut window[..(length - start) as usize];
        file.read_exact_at(part, start)?;
        if let Some(at) = part.iter().rposition(|&byte| byte == b'\n') {
            length = start + at as u64 + 1;
            break;
        }
        length = start;
    }
    file.set_len(length)?;
    Ok((file, length))
}

/// How many of the first bytes are whole lines that fit into `room`.
fn fitting(lines: &[u8], room: u64) -> usize {
    match usize::try_from(room) {
        Ok(room) if room < lines.len() => {
            lines[..room].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1)
        }
        _ => lines.len(),
    }
}

/// How much of `bytes` ends with a whole UTF-8 character; all of it where it is no UTF-8 anyway.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
        _ => bytes.len(),
    }
}

fn object(bytes: &[u8], stream: Stream, time: &str, out: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(bytes);
    let raw = match text {
        std::borrow::Cow::Borrowed(_) => None,
        std::borrow::Cow::Owned(_) => Some(STANDARD.encode(bytes)),
    };
    let object = Object { log: &text, stream: stream.name(), time, raw };
    // Writing to memory cannot fail, and strings are always JSON.
    if serde_json::to_writer(&mut *out, &object).is_ok() {
        out.push(b'\n');
    }
}
