//! Containers of large images, made, run and removed, beyond the start of one that exists; and the
//! start of one that exists, with the index and without.

use super::named;
use crate::names::{self, TRUE};
use crate::places::Place;
use crate::{Bench, Line, milliseconds};
use xtask::shell::Outcome;

/// Every mode that has the index, and the one with an overlay.
const MODES: &[&str] = &["I1", "I2", "F1", "F2", "P1", "P2", "N1"];
const COUNT: usize = 40;
/// Rounds of the ratio of two differences, and of a ratio that is to be near one.
const MORE: usize = 100;

pub(super) fn measure(bench: &Bench, image: &str) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    for mode in MODES {
        let (fresh, existing) = commands(bench, image, mode, &format!("existing-{mode}"))?;
        let times = bench.medians(COUNT, &[fresh, existing])?;
        lines.push(Line {
            what: format!("container of 43,000 names made, run and removed, in {mode}"),
            against: "run of an existing one, difference".to_owned(),
            ours: milliseconds(times[0]),
            theirs: milliseconds(times[1]),
            value: (times[0] - times[1]) * 1000.0,
            aim: 10.0,
            unit: "ms",
        });
    }
    lines.push(by_size(bench, image)?);
    Ok(lines)
}

/// The difference again, for an image of ten times the names.
fn by_size(bench: &Bench, image: &str) -> Outcome<Line> {
    let most = names::most(bench)?;
    let (fresh, existing) = commands(bench, image, "I1", "many")?;
    let (more_fresh, more_existing) = commands(bench, &most.image, "I1", "most")?;
    let times = bench.medians(MORE, &[more_fresh, more_existing, fresh, existing])?;
    let (more, less) = (times[0] - times[1], times[2] - times[3]);
    Ok(Line {
        what: "the same difference for an image of 400,000 names, in I1".to_owned(),
        against: "43,000 names".to_owned(),
        ours: milliseconds(more),
        theirs: milliseconds(less),
        value: more / less,
        aim: 1.2,
        unit: "",
    })
}

/// The words for a fresh container, and for one that has run already.
fn commands(
    bench: &Bench,
    image: &str,
    mode: &str,
    name: &str,
) -> Outcome<(Vec<String>, Vec<String>)> {
    let (program, mode) = (bench.coracle.display().to_string(), format!("--execmode={mode}"));
    let all = |words: &[&str]| -> Vec<String> {
        [&[program.as_str()], words, &TRUE].concat().into_iter().map(str::to_owned).collect()
    };
    bench.coracle(&["create", &mode, "--name", name, image])?;
    Ok((all(&["run", "--rm", &mode, image]), all(&["run", name])))
}

/// The start of a container that exists, as a person waits for it.
pub(super) fn first(bench: &Bench, places: &[Place]) -> Outcome<Vec<Line>> {
    let mut lines = Vec::new();
    for (on, off) in [("I1", "I1, index off"), ("F2", "F2, index off")] {
        let words = |name| -> Outcome<Vec<String>> {
            let prefix = &named(places, name)?.prefix;
            // Those measured here are the user already: what follows is `coracle run NAME`.
            let mut words = prefix[prefix.len() - 3..].to_vec();
            words.push("/bin/true".to_owned());
            Ok(words)
        };
        let times = bench.medians(MORE, &[words(on)?, words(off)?])?;
        lines.push(Line {
            what: format!("run of an existing container in {on}, `true`"),
            against: "index off".to_owned(),
            ours: milliseconds(times[0]),
            theirs: milliseconds(times[1]),
            value: times[0] / times[1],
            aim: 1.02,
            unit: "",
        });
    }
    Ok(lines)
}
