//! Records in `run/.runs` whether a run has been alone in its container.
//!
//! When the program of a supervised run ends, its supervisor ends what the program left behind.
//! What other runs have started stays. Not every engine can tell to which run a process belongs,
//! but whether there was ever more than one run can be told.
//!
//! A run that finds no process in the container writes a word that no other run writes; one that
//! finds a process adds a `+`. Both hold the container's turn meanwhile. So a run that finds at its
//! end the word of its beginning was alone, and all processes in the container are its own. `exec`
//! belongs to the run that it enters, and adds an `x`: without it, all processes of a run descend
//! from its program.

use crate::error::{Error, Result};
use crate::records::Records;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::path::Path;

const NAME: &str = ".runs";
/// How long the file is. The `+` is its last byte, the `x` the one before.
const LENGTH: usize = 64;
const MORE: &str = "+";
const ENTERED: &str = "x";

/// A run begins in the container of these records; `fresh` if no process lives there. The caller
/// holds its lock, and may be in the container's namespaces already.
pub(crate) fn begin(records: &Records, fresh: bool) -> Result<()> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    if fresh {
        let word = format!("{} {}.{}", std::process::id(), now.tv_sec, now.tv_nsec);
        write(records, 0, &format!("{word:LENGTH$}"))
    } else {
        write(records, LENGTH - 1, MORE)
    }
}

/// A program of `exec` begins in the container. The caller holds its lock.
pub(crate) fn enter(records: &Records) -> Result<()> {
    write(records, LENGTH - 2, ENTERED)
}

fn write(records: &Records, place: usize, word: &str) -> Result<()> {
    // Written over: to cut a file off costs more than all else here.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    rustix::fs::openat(records.directory(), NAME, flags, Mode::from_raw_mode(0o600))
        .and_then(|file| rustix::io::pwrite(&file, word.as_bytes(), place as u64))
        .map(drop)
        .map_err(|errno| Error::File {
            doing: "write".into(),
            path: records.path().join(NAME),
            errno: errno.into(),
        })
}

/// What a run remembers of its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beginning(String);

/// What a run finds out at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Since {
    /// Another run joined or followed.
    Shared,
    /// No other run, but programs of `exec`.
    Entered,
    /// No other program was started in the container.
    Alone,
}

impl Beginning {
    /// That of a run which has just begun; `None` where it is not alone.
    pub(crate) fn of(place: &Path) -> Option<Self> {
        read(place).map(|(word, _)| word)
    }

    /// What has happened since.
    pub(crate) fn since(&self, place: &Path) -> Since {
        match read(place) {
            Some((word, true)) if word == *self => Since::Entered,
            Some((word, false)) if word == *self => Since::Alone,
            _ => Since::Shared,
        }
    }

    /// Whether the run has been alone since.
    pub(crate) fn is_last(&self, place: &Path) -> bool {
        self.since(place) != Since::Shared
    }
}

/// The word of a run that is alone, and whether a program of `exec` was started.
fn read(place: &Path) -> Option<(Beginning, bool)> {
    let mut bytes = [0_u8; LENGTH];
    let file = fs::File::open(place.join("run").join(NAME)).ok()?;
    let length = rustix::io::read(&file, &mut bytes).ok()?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    if text.len() != LENGTH || text.ends_with(MORE) {
        return None;
    }
    let (word, entered) = text.split_at(LENGTH - 2);
    Some((Beginning(word.to_owned()), entered.starts_with(ENTERED)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_joined_or_followed_was_not_alone() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path();
        let records = Records::open(place).unwrap();
        assert_eq!(Beginning::of(place), None);
        begin(&records, true).unwrap();
        let first = Beginning::of(place).unwrap();
        assert!(first.is_last(place));
        // Another one joins.
        begin(&records, false).unwrap();
        assert!(!first.is_last(place) && Beginning::of(place).is_none());
        // All have ended, and the next one begins anew.
        begin(&records, true).unwrap();
        let next = Beginning::of(place).unwrap();
        assert!(!first.is_last(place) && next.since(place) == Since::Alone);
        // `exec` belongs to it.
        enter(&records).unwrap();
        assert_eq!((next.since(place), next.is_last(place)), (Since::Entered, true));
        begin(&records, true).unwrap();
        assert_eq!(Beginning::of(place).unwrap().since(place), Since::Alone);
    }
}
