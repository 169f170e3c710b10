//! Page faults of a process that asks for twenty names, with the index and without.
//!
//! The difference is what the index adds to the memory and the time of a short process. The loader
//! of the program asks for ten names more.

use super::named;
use crate::places::{Place, looped};
use crate::{Bench, Line, median};
use xtask::shell::Outcome;

const COUNT: usize = 15;

/// Names of one directory, and names all over the image.
const WORK: &[(&str, &[&str])] = &[
    (
        "of one directory",
        &[
            "stat",
            "-c",
            "%i",
            "/bench/git/dir7/file10",
            "/bench/git/dir7/file11",
            "/bench/git/dir7/file12",
            "/bench/git/dir7/file13",
            "/bench/git/dir7/file14",
            "/bench/git/dir7/file15",
            "/bench/git/dir7/file16",
            "/bench/git/dir7/file17",
            "/bench/git/dir7/file18",
            "/bench/git/dir7/file19",
            "/bench/git/dir7/file20",
            "/bench/git/dir7/file21",
            "/bench/git/dir7/file22",
            "/bench/git/dir7/file23",
            "/bench/git/dir7/file24",
            "/bench/git/dir7/file25",
            "/bench/git/dir7/file26",
            "/bench/git/dir7/file27",
            "/bench/git/dir7/file28",
            "/bench/git/dir7/file29",
        ],
    ),
    (
        "all over the image",
        &[
            "stat",
            "-c",
            "%i",
            "/bench/git/dir1/file1",
            "/bench/git/dir80/file5",
            "/bench/own/file7",
            "/etc/alternatives/awk",
            "/etc/debian_version",
            "/etc/group",
            "/usr/bin/env",
            "/usr/bin/find",
            "/usr/bin/perl",
            "/usr/lib/apt/methods/http",
            "/usr/lib/git-core/git",
            "/usr/lib/os-release",
            "/usr/lib/python3/dist-packages/numpy/__init__.py",
            "/usr/lib/python3.11/json/__init__.py",
            "/usr/sbin/chroot",
            "/usr/share/common-licenses/GPL-3",
            "/usr/share/debconf/frontend",
            "/usr/share/doc/base-files",
            "/usr/share/perl5/Debconf/Db.pm",
            "/var/lib/dpkg/status",
        ],
    ),
];

pub(super) fn measure(bench: &Bench, places: &[Place]) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    for (on, off) in [("I1", "I1, index off"), ("F2", "F2, index off")] {
        let both = [named(places, on)?, named(places, off)?];
        for (where_, words) in WORK {
            let mut counts = [Vec::new(), Vec::new()];
            for _ in 0..bench.rounds {
                for (place, counts) in both.iter().zip(&mut counts) {
                    let found = looped(place, "fault-loop", &[words], true, COUNT)?;
                    counts.extend(found.into_iter().map(|(_, faults)| faults));
                }
            }
            let [with, without] = counts.map(median);
            lines.push(Line {
                what: format!("page faults of `stat` of 20 names {where_} in {on}"),
                against: "index off".to_owned(),
                ours: with.to_string(),
                theirs: without.to_string(),
                value: with - without,
                aim: 2.0,
                unit: "pages",
            });
        }
    }
    Ok(lines)
}
