//! Records in `run/.runs` whether a run has been alone in its container.
//!
//! When the program of a supervised run ends, its supervisor ends what the program left behind.
//! What other runs have started stays. Not every engine can tell to which run a process belongs,
//! but whether there was ever more than one run can be told.
//!
//! A run that finds no process in the container writes a word that no other run writes; one that
//! finds a process adds a `+`. Both hold the container's turn meanwhile. So a run that finds at its
//! end the word of its beginning was alone, and all processes in the container are its own. `exec`
//! belongs to the run that it enters, and writes nothing.

use crate::error::{Error, Result};
use crate::records::Records;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::path::Path;

const NAME: &str = ".runs";
/// How long the file is. The `+` is its last byte.
const LENGTH: usize = 64;
const MORE: char = '+';

/// A run begins in the container of these records; `fresh` if no process lives there. The caller
/// holds its lock, and may be in the container's namespaces already.
pub(crate) fn begin(records: &Records, fresh: bool) -> Result<()> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (place, word) = if fresh {
        let word = format!("{} {}.{}", std::process::id(), now.tv_sec, now.tv_nsec);
        (0, format!("{word:LENGTH$}"))
    } else {
        (LENGTH - 1, MORE.to_string())
    };
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

impl Beginning {
    /// That of a run which has just begun; `None` where it is not alone.
    pub(crate) fn of(place: &Path) -> Option<Self> {
        let word = fs::read_to_string(place.join("run").join(NAME)).ok()?;
        (!word.contains(MORE)).then_some(Self(word))
    }

    /// Whether the run has been alone since.
    pub(crate) fn is_last(&self, place: &Path) -> bool {
        Self::of(place).as_ref() == Some(self)
    }
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
        assert!(!first.is_last(place) && Beginning::of(place).unwrap().is_last(place));
    }
}
