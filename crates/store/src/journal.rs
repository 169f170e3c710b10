//! What happened in a store: a line for each event, the newest last.
//!
//! Each host appends to a file of its own, `events/HOST.jsonl`, by one write: a file system of
//! several machines promises no more. A file that has grown to [`LIMIT`] becomes
//! `events/HOST.jsonl.1`, and the one before it is gone. This crate does not look into the lines.

use std::collections::HashMap;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use rustix::fs::{FlockOperation, OFlags};

use crate::Store;
use crate::error::{Error, Result, Step};
use crate::root::Root;

const DIRECTORY: &str = "events";
const SUFFIX: &str = ".jsonl";
const OLDER: &str = ".1";
/// Bytes of a file that is appended to.
const LIMIT: u64 = 1 << 20;

/// The events of a store.
#[derive(Debug, Clone, Copy)]
pub struct Journal<'a>(pub(crate) &'a Store);

impl Journal<'_> {
    /// Appends lines, each with its line end; those of one call stay together.
    ///
    /// # Errors
    /// A store that cannot be written to.
    pub fn append(self, lines: &[u8]) -> Result<()> {
        self.0.writable()?;
        append(&self.0.inner.root, &host(), lines, LIMIT)
    }
}

/// Reads lines of all hosts, each once.
#[derive(Debug)]
pub struct JournalReader {
    store: Store,
    /// How far each file has been read, by inode: a file keeps it when it becomes the older one.
    read: HashMap<u64, u64>,
}

impl JournalReader {
    /// A reader of everything that is kept.
    pub fn new(store: &Store) -> Self {
        Self { store: store.clone(), read: HashMap::new() }
    }

    /// The whole lines that were appended since the last call, those of one host in their order.
    pub fn lines(&mut self) -> Result<Vec<String>> {
        let root = &self.store.inner.root;
        let mut names: Vec<String> =
            root.list(DIRECTORY)?.into_iter().map(|(name, _)| name).collect();
        // `HOST.jsonl.1` before `HOST.jsonl`.
        names.sort_unstable_by(|a, b| b.cmp(a));
        let mut lines = Vec::new();
        for name in names {
            let path = format!("{DIRECTORY}/{name}");
            let Some(mut file) = root.open_file(&path, OFlags::RDONLY)? else { continue };
            let fail = |error| Error::io(Step::Read, root.join(&path), error);
            let stat = rustix::fs::fstat(&file).map_err(|error| fail(error.into()))?;
            let read = self.read.entry(stat.st_ino).or_default();
            if u64::try_from(stat.st_size).is_ok_and(|size| size < *read) {
                // Another file, with the inode of one that is gone.
                *read = 0;
            }
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(*read)).map_err(fail)?;
            file.read_to_end(&mut bytes).map_err(fail)?;
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            *read += whole as u64;
            lines.extend(String::from_utf8_lossy(&bytes[..whole]).lines().map(str::to_owned));
        }
        Ok(lines)
    }
}

/// This host's name, as the beginning of a file's.
fn host() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    name.chars().map(plain).collect()
}

fn append(root: &Root, host: &str, lines: &[u8], limit: u64) -> Result<()> {
    let path = format!("{DIRECTORY}/{host}{SUFFIX}");
    let fail = |error| Error::io(Step::Write, root.join(&path), error);
    let mut file = root.create_file(&path, OFlags::APPEND)?;
    file.write_all(lines).map_err(fail)?;
    let stat = rustix::fs::fstat(&file).map_err(|error| fail(error.into()))?;
    if u64::try_from(stat.st_size).is_ok_and(|size| size < limit) {
        return Ok(());
    }
    // Of several that see it full, one renames this file; another one's name is not the full one.
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        && root.stat(&path)?.is_some_and(|named| named.st_ino == stat.st_ino)
    {
        root.rename(&path, &format!("{path}{OLDER}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn lines_are_read_once_across_files() {
        let directory = tempfile::tempdir().unwrap();
        let store =
            Store::open(directory.path(), Options { create: true, ..Options::default() }).unwrap();
        let root = &store.inner.root;
        let mut reader = JournalReader::new(&store);
        assert_eq!(reader.lines().unwrap(), Vec::<String>::new());
        let mut expected = Vec::new();
        let mut found = Vec::new();
        for number in 0..40 {
            let line = format!("{{\"number\":{number:03}}}");
            append(root, "here", format!("{line}\n").as_bytes(), 100).unwrap();
            expected.push(line);
            if number % 3 == 0 {
                found.extend(reader.lines().unwrap());
            }
        }
        append(root, "there", b"{\"half\":", 100).unwrap();
        found.extend(reader.lines().unwrap());
        assert_eq!(found, expected);
        append(root, "there", b"1}\n", 100).unwrap();
        assert_eq!(reader.lines().unwrap(), ["{\"half\":1}"]);
        let files: Vec<_> = root.list(DIRECTORY).unwrap();
        assert_eq!(files.len(), 3, "two of one host and one of the other: {files:?}");
    }

    #[test]
    fn what_is_written_at_once_by_many_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let store =
            Store::open(directory.path(), Options { create: true, ..Options::default() }).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for number in 0..50 {
                        let line = format!("{writer}-{number}-{}\n", "x".repeat(500));
                        Journal(store).append(line.as_bytes()).unwrap();
                    }
                });
            }
        });
        let lines = JournalReader::new(&store).lines().unwrap();
        assert_eq!(lines.len(), 200);
        assert!(lines.iter().all(|line| line.ends_with(&"x".repeat(500))));
    }
}
