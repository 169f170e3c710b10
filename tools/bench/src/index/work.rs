//! Calls and commands in the places, as ratios within one run.

use super::named;
use crate::places::{Place, timed};
use crate::{Bench, Line, median, milliseconds};
use xtask::shell::Outcome;

/// A piece of work, and its aims by the place that has one.
struct Work {
    what: &'static str,
    words: &'static [&'static str],
    aims: &'static [(&'static str, f64)],
}

/// Work that is measured in pairs of places.
struct Group {
    /// A place, what it is compared with, and how people call that.
    pairs: &'static [(&'static str, &'static str, &'static str)],
    work: &'static [Work],
    /// How often each is done in a place's turn.
    count: usize,
}

const CHROOT: &str = "chroot";
const OFF: &str = "index off";
const I1: (&str, &str, &str) = ("I1", "native", CHROOT);
const F2: (&str, &str, &str) = ("F2", "native", CHROOT);
const ON_AND_OFF: &[(&str, &str, &str)] =
    &[("I1", "I1, index off", OFF), ("F2", "F2, index off", OFF)];

const ANSWERED: &[(&str, f64)] = &[("I1", 0.35), ("F2", 0.45), ("I2", 2.3)];
const NOT_SLOWER: &[(&str, f64)] = &[("I1", 1.1), ("F2", 1.1)];
const SAME: &[(&str, f64)] = &[("I1", 1.02), ("F2", 1.02)];

const GROUPS: &[Group] = &[
    // Calls that the index answers.
    Group {
        pairs: &[
            I1,
            F2,
            ("I2", "native", CHROOT),
            ("P1", "native", CHROOT),
            ("F1", "native", CHROOT),
        ],
        work: &[
            Work {
                what: "`stat` of 4 components, x 20,000",
                words: &["call-loop", "stat", "20000", "/usr/share/doc/base-files"],
                aims: ANSWERED,
            },
            Work {
                what: "`access`, x 20,000",
                words: &["call-loop", "access", "20000", "/usr/share/doc/base-files"],
                aims: ANSWERED,
            },
            Work {
                what: "`readlink`, x 20,000",
                words: &["call-loop", "readlink", "20000", "/usr/share/doc/bench-link"],
                aims: ANSWERED,
            },
            Work {
                what: "`stat` of a missing name, x 20,000",
                words: &["call-loop", "missing", "20000", "/usr/share/doc/no-such-name"],
                aims: ANSWERED,
            },
            Work {
                what: "`stat` of 43,000 names at random",
                words: &["call-loop", "random", "1", "/bench/list"],
                aims: &[("I1", 0.45)],
            },
        ],
        count: 5,
    },
    // Calls that the kernel answers, in a directory of the image and in the container's own.
    Group {
        pairs: ON_AND_OFF,
        work: &[
            Work {
                what: "`stat` from a descriptor, x 20,000",
                words: &["call-loop", "statat", "20000", "/usr/share/doc", "base-files"],
                aims: NOT_SLOWER,
            },
            Work {
                what: "`open` and `close`, x 20,000",
                words: &["call-loop", "open", "20000", "/usr/share/perl5/Debconf/Db.pm"],
                aims: NOT_SLOWER,
            },
            Work {
                what: "`fstat`, x 20,000",
                words: &["call-loop", "fstat", "20000", "/usr/share/perl5/Debconf/Db.pm"],
                aims: NOT_SLOWER,
            },
            Work {
                what: "`stat` from a descriptor of the container's own directory, x 20,000",
                words: &["call-loop", "statat", "20000", "/bench/own", "file50"],
                aims: NOT_SLOWER,
            },
            Work {
                what: "`open` and `close` in the container's own directory, x 20,000",
                words: &["call-loop", "open", "20000", "/bench/own/file50"],
                aims: NOT_SLOWER,
            },
            Work {
                what: "`fstat` in the container's own directory, x 20,000",
                words: &["call-loop", "fstat", "20000", "/bench/own/file50"],
                aims: NOT_SLOWER,
            },
            Work {
                what: "`stat` by path in the container's own directory, x 20,000",
                words: &["call-loop", "stat", "20000", "/bench/own/file50"],
                aims: &[],
            },
        ],
        count: 9,
    },
    // Commands that ask about many files.
    Group {
        pairs: &[I1, F2],
        work: &[
            Work {
                what: "`find / -xdev -size`",
                words: &["find", "/", "-xdev", "-size", "+1M"],
                aims: &[("I1", 1.05)],
            },
            Work {
                what: "`ls -lR` of the image",
                words: &["ls", "-lR", "/bench", "/etc", "/usr", "/var"],
                aims: &[("I1", 0.95)],
            },
            Work {
                what: "perl `-e`, x 100,000",
                words: &["perl", "-e", "-e '/etc/debian_version' or die for 1..100000"],
                aims: &[("I1", 0.6)],
            },
            Work {
                what: "`git status`, 9,000 files",
                words: &["git", "-C", "/bench/git", "status", "--porcelain"],
                aims: &[("I1", 1.1)],
            },
        ],
        count: 5,
    },
    // Programs that start.
    Group {
        pairs: ON_AND_OFF,
        work: &[
            Work {
                what: "500 x fork and exec",
                words: &["sh", "-c", "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done"],
                aims: SAME,
            },
            Work {
                what: "`import numpy`, warm",
                words: &["python3", "-c", "import numpy"],
                aims: SAME,
            },
        ],
        count: 7,
    },
];

pub(super) fn measure(bench: &Bench, places: &[Place]) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    for group in GROUPS {
        let measured: Vec<&Place> = places.iter().filter(|place| group.knows(place.name)).collect();
        let work: Vec<&[&str]> = group.work.iter().map(|work| work.words).collect();
        let mut times = vec![vec![Vec::new(); work.len()]; measured.len()];
        for _ in 0..bench.rounds {
            for (place, times) in measured.iter().zip(&mut times) {
                for (which, time) in timed(place, &work, true, group.count)? {
                    times[which].push(time);
                }
            }
        }
        let middle = |name: &str, at: usize| -> Outcome<f64> {
            let place = named(places, name)?;
            let which = measured.iter().position(|measured| measured.name == place.name);
            Ok(which.map_or(f64::NAN, |which| median(times[which][at].clone())))
        };
        for (at, work) in group.work.iter().enumerate() {
            for (ours, theirs, called) in group.pairs {
                lines.push(work.line(ours, called, middle(ours, at)?, middle(theirs, at)?));
            }
        }
    }
    Ok(lines)
}

impl Group {
    fn knows(&self, place: &str) -> bool {
        self.pairs.iter().any(|(ours, theirs, _)| *ours == place || *theirs == place)
    }
}

impl Work {
    fn line(&self, place: &str, against: &str, ours: f64, theirs: f64) -> Line {
        let aim = self.aims.iter().find(|(name, _)| *name == place);
        Line {
            what: format!("{} in {place}", self.what),
            against: against.to_owned(),
            ours: milliseconds(ours),
            theirs: milliseconds(theirs),
            value: ours / theirs,
            aim: aim.map_or(f64::INFINITY, |(_, aim)| *aim),
            unit: "",
        }
    }
}
