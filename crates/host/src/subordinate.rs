//! Subordinate ids: the ranges of user and group ids that an administrator assigns to a user, and
//! the setuid helpers `newuidmap` and `newgidmap` that map them. See subuid(5), newuidmap(1).
//!
//! The files are keyed by name or by number, and a user may have several lines in each. If
//! `/etc/nsswitch.conf` gives `subid:` another source (sss), the files are empty, and a thorough
//! probe runs `getsubids`.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use sys::probe::Child;

use crate::programs::ask;
use crate::{Caller, Context, Namespaces, Programs, Security, Trial};

/// A range of ids of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// First id.
    pub start: u32,
    /// Number of ids; never 0.
    pub count: u32,
}

/// A helper that writes id maps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MapHelper {
    /// Its path.
    pub path: PathBuf,
    /// True if it has the privilege that it needs: setuid root, or `cap_setuid`/`cap_setgid` as
    /// file capability.
    pub privileged: bool,
}

/// The ids that the caller may map.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubordinateIds {
    /// Ranges of user ids, in the order of the file.
    pub uids: Vec<IdRange>,
    /// Ranges of group ids, in the order of the file.
    pub gids: Vec<IdRange>,
    /// Source of the ranges (`/etc/subuid`, `getsubids`).
    pub source: String,
    /// `newuidmap`; only a thorough probe searches for it (see [`crate::Programs::find`] for a
    /// quick one).
    pub newuidmap: Option<MapHelper>,
    /// `newgidmap`, likewise.
    pub newgidmap: Option<MapHelper>,
    /// Result of writing a whole map with the helpers.
    pub mapping: Trial,
}

impl SubordinateIds {
    /// Reads the two files.
    pub(crate) fn read(caller: &Caller) -> SubordinateIds {
        SubordinateIds {
            uids: read_ranges(Path::new("/etc/subuid"), caller),
            gids: read_ranges(Path::new("/etc/subgid"), caller),
            source: "/etc/subuid and /etc/subgid".into(),
            ..SubordinateIds::default()
        }
    }

    /// Returns true if there are ranges of both kinds, so that a range map is worth trying.
    pub fn any(&self) -> bool {
        !self.uids.is_empty() && !self.gids.is_empty()
    }

    /// Total numbers of user ids and group ids.
    pub fn counts(&self) -> (u64, u64) {
        let sum = |ranges: &[IdRange]| ranges.iter().map(|range| u64::from(range.count)).sum();
        (sum(&self.uids), sum(&self.gids))
    }

    /// Runs `getsubids` if the files have no ranges, checks the helpers, and maps with them.
    pub(crate) fn complete(
        &mut self,
        caller: &Caller,
        programs: &Programs,
        namespaces: &Namespaces,
        security: &Security,
        context: &Context,
    ) {
        let namespaces_work = !namespaces.user.is_fails();
        if namespaces_work
            && caller.uid == 0
            && security.capabilities & u64::from(CAP_SETUID | CAP_SETGID) != 0
        {
            self.mapping = Trial::works(ANY_ID);
            return;
        }
        if !self.any() {
            self.ask_getsubids(caller, programs, context);
        }
        self.newuidmap = programs.find("newuidmap").map(|path| MapHelper::look(path, CAP_SETUID));
        self.newgidmap = programs.find("newgidmap").map(|path| MapHelper::look(path, CAP_SETGID));
        self.mapping = self.try_mapping(caller, namespaces, context);
    }

    fn ask_getsubids(&mut self, caller: &Caller, programs: &Programs, context: &Context) {
        let (Some(program), Some(name)) = (programs.find("getsubids"), caller.name.as_deref())
        else {
            return;
        };
        if name.starts_with('-') {
            return;
        }
        let listed = |arguments: &[&str]| match ask(&program, arguments, &[], context.timeout) {
            Ok((true, answer)) => parse_getsubids(&answer),
            Ok((false, _)) | Err(_) => Vec::new(),
        };
        self.uids = listed(&[name]);
        self.gids = listed(&["-g", name]);
        if self.any() {
            self.source = "getsubids".into();
        }
    }

    /// Writes the whole map with the helpers, for a child that waits in a new user namespace.
    fn try_mapping(&self, caller: &Caller, namespaces: &Namespaces, context: &Context) -> Trial {
        let how = "newuidmap and newgidmap on a child in a new user namespace";
        let advice =
            |what: &str| format!("administrator: {what}; single-id mode does not need this");
        let name = caller.name.clone().unwrap_or_else(|| caller.uid.to_string());
        if namespaces.user.is_fails() {
            return Trial::fails(how, "needs a user namespace");
        }
        if !self.any() {
            let lines = advice(&format!(
                "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}"
            ));
            return Trial::fails("/etc/subuid and /etc/subgid", format!("no ranges for {name}"))
                .with_advice(lines);
        }
        let (Some(for_users), Some(for_groups)) = (&self.newuidmap, &self.newgidmap) else {
            return Trial::fails("PATH", "newuidmap or newgidmap is not installed")
                .with_advice(advice("install the package uidmap (Debian) or shadow-utils"));
        };
        match self.map_child(caller, &for_users.path, &for_groups.path, context.timeout) {
            Ok(()) => Trial::works(how),
            Err(why) => {
                let cure = if for_users.privileged && for_groups.privileged {
                    "check that the ranges do not overlap, and that no_new_privs is not set"
                } else {
                    "give newuidmap and newgidmap the setuid bit or cap_setuid and cap_setgid"
                };
                Trial::fails(how, why).with_advice(advice(cure))
            }
        }
    }

    fn map_child(
        &self,
        caller: &Caller,
        for_users: &Path,
        for_groups: &Path,
        timeout: Duration,
    ) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        let mut child = Child::spawn(|link| {
            let made = link.unshare(UnshareFlags::NEWUSER).is_ok();
            link.send(if made { b"ready" } else { b"no" });
            i32::from(!link.wait_go() || !made)
        })
        .map_err(|error| format!("cannot start a child: {error}"))?;
        if child.receive(deadline) != b"ready" {
            return Err("the child could not make a user namespace".into());
        }
        let pid = child.pid().as_raw_nonzero().to_string();
        for (helper, own, ranges) in
            [(for_users, caller.uid, &self.uids), (for_groups, caller.gid, &self.gids)]
        {
            let mut arguments = vec![pid.clone(), "0".into(), own.to_string(), "1".into()];
            let mut inside = 1_u32;
            for range in ranges {
                arguments
                    .extend([inside, range.start, range.count].map(|number| number.to_string()));
                inside = inside.saturating_add(range.count);
            }
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            match ask(helper, &arguments, &[], timeout) {
                Ok((true, _)) => {}
                Ok((false, _)) => return Err(format!("{} refused", helper.display())),
                Err(error) => return Err(error.to_string()),
            }
        }
        child.go();
        child.finish(deadline).map(drop).map_err(|error| format!("waitpid: {error}"))
    }
}

/// Capabilities as masks, from capabilities(7).
const CAP_SETGID: u32 = 1 << 6;
const CAP_SETUID: u32 = 1 << 7;

/// Source text for a privileged caller, who maps without ranges and helpers.
pub(crate) const ANY_ID: &str = "CAP_SETUID and CAP_SETGID: any id may be mapped";

impl MapHelper {
    fn look(path: PathBuf, capability: u32) -> MapHelper {
        let privileged = std::fs::metadata(&path).is_ok_and(|metadata| {
            let setuid = metadata.permissions().mode() & 0o4000 != 0 && metadata.uid() == 0;
            setuid || file_capabilities(&path) & capability != 0
        });
        MapHelper { path, privileged }
    }
}

/// The permitted capabilities of a file, 0 to 31, as a mask. See `struct vfs_cap_data` in
/// capabilities(7): a word of version and flags, then the lower permitted set, little-endian.
fn file_capabilities(path: &Path) -> u32 {
    let mut value = [0_u8; 64];
    match rustix::fs::getxattr(path, "security.capability", &mut value) {
        Ok(8..) => u32::from_le_bytes([value[4], value[5], value[6], value[7]]),
        _ => 0,
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

/// Parses lines of getsubids(1): `0: ada 100000 65536`.
fn parse_getsubids(answer: &str) -> Vec<IdRange> {
    answer
        .lines()
        .filter_map(|line| {
            let mut last = line.split_whitespace().rev();
            let count = last.next()?.parse().ok()?;
            let start = last.next()?.parse().ok()?;
            (count > 0).then_some(IdRange { start, count })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_by_name_and_by_number() {
        let caller = Caller { uid: 1001, name: Some("bob".into()), ..Caller::default() };
        let text =
            "ada:1:2\nbob:100000:65536\n1001:300000:10\nbob:x:y\nbob:5:0\n#bob:9:9\n10010:7:7\n";
        let expected =
            [IdRange { start: 100_000, count: 65536 }, IdRange { start: 300_000, count: 10 }];
        assert_eq!(parse_ranges(text, &caller), expected);
        let nameless = Caller { name: None, ..caller };
        assert_eq!(parse_ranges(text, &nameless), expected[1..]);
    }

    #[test]
    fn answers_of_getsubids() {
        let expected = [IdRange { start: 100_000, count: 65536 }];
        assert_eq!(parse_getsubids("0: bob 100000 65536\n"), expected);
        assert_eq!(parse_getsubids("Error fetching ranges\n"), []);
    }
}
