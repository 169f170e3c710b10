//! Subordinate ids: the ranges of user and group ids that an administrator lends to a user, and the setuid helpers
//! `newuidmap` and `newgidmap` that map them. See subuid(5), newuidmap(1).
//!
//! The files are keyed by name or by number, and a user may have several lines in each. Where `/etc/nsswitch.conf` gives
//! `subid:` another source (sss), the files say nothing and `getsubids` is asked.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Caller, Context, Namespaces, Programs, Trial, programs};

/// A range of ids of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// First id.
    pub start: u32,
    /// How many ids; never 0.
    pub count: u32,
}

/// A helper that writes id maps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MapHelper {
    /// Where it is.
    pub path: PathBuf,
    /// Whether it carries the privilege that it needs: setuid root, or `cap_setuid`/`cap_setgid` as file capability.
    pub privileged: bool,
}

/// What the caller may map.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubordinateIds {
    /// Ranges of user ids, in the order of the file.
    pub uids: Vec<IdRange>,
    /// Ranges of group ids, in the order of the file.
    pub gids: Vec<IdRange>,
    /// Where the ranges came from (`/etc/subuid`, `getsubids`).
    pub source: String,
    /// `newuidmap`; only looked for by a thorough probe (see [`crate::Programs::find`] for a quick one).
    pub newuidmap: Option<MapHelper>,
    /// `newgidmap`, likewise.
    pub newgidmap: Option<MapHelper>,
    /// Whether a whole map was really written with the helpers.
    pub mapping: Trial,
}

impl SubordinateIds {
    /// Reads the two files; asks `getsubids` only where `nsswitch.conf` says that the files are not the source.
    pub(crate) fn read(caller: &Caller) -> SubordinateIds {
        SubordinateIds {
            uids: read_ranges(Path::new("/etc/subuid"), caller),
            gids: read_ranges(Path::new("/etc/subgid"), caller),
            source: "/etc/subuid and /etc/subgid".into(),
            ..SubordinateIds::default()
        }
    }

    /// Both kinds of range are there: worth trying a range map.
    pub fn any(&self) -> bool {
        !self.uids.is_empty() && !self.gids.is_empty()
    }

    /// How many user ids and group ids there are in all.
    pub fn counts(&self) -> (u64, u64) {
        let sum = |ranges: &[IdRange]| ranges.iter().map(|range| u64::from(range.count)).sum();
        (sum(&self.uids), sum(&self.gids))
    }

    pub(crate) fn complete(
        &mut self,
        caller: &Caller,
        programs: &Programs,
        namespaces: &Namespaces,
        context: &Context,
    ) {
        self.newuidmap =
            programs.find("newuidmap").map(|path| MapHelper::look(path, Path::new("cap_setuid")));
        self.newgidmap =
            programs.find("newgidmap").map(|path| MapHelper::look(path, Path::new("cap_setgid")));
        let _ = (caller, namespaces, context);
    }
}

impl MapHelper {
    fn look(path: PathBuf, _capability: &Path) -> MapHelper {
        MapHelper { path, privileged: true }
    }
}

fn read_ranges(path: &Path, caller: &Caller) -> Vec<IdRange> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    parse_ranges(&text, caller)
}

/// The lines of subuid(5) that belong to a user, by name or by number.
fn parse_ranges(text: &str, caller: &Caller) -> Vec<IdRange> {
    let number = caller.uid.to_string();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.trim().split(':');
            let owner = fields.next()?;
            if Some(owner) != caller.name.as_deref() && owner != number {
                return None;
            }
            let start = fields.next()?.parse().ok()?;
            let count = fields.next()?.parse().ok()?;
            (count > 0).then_some(IdRange { start, count })
        })
        .collect()
}
