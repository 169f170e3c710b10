//! Tests of commands killed at random moments, two at once, concurrent runs of one container, a
//! full disk, damaged files, and power failures: the next command works, and no half-done work
//! counts as finished.
//!
//! The short version runs with all tests. `CORACLE_CRASH_ROUNDS=500 cargo suites crash`
//! is the long one (`cargo xtask crash` for some kinds of cases); `CORACLE_CRASH_SEED` repeats a
//! run (the moments of killing still vary with the machine).

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

mod damage;
mod file_systems;
mod full;
mod kills;
mod losses;
mod mounted;
mod pairs;
mod place;
mod rounds;
mod space;
mod storms;
mod syncs;

use std::process::ExitCode;

use testkit::docker_registry::DockerRegistry;
use testkit::harness::{Suite, Wishes};
use testkit::person::everybody;
use testkit::scratch::Scratch;

use place::{Case, Place, images};

const GROUPS: &[(&str, &[(&str, Case)])] = &[
    ("kill", kills::CASES),
    ("pairs", pairs::CASES),
    ("space", space::CASES),
    ("damage", damage::CASES),
    ("rounds", rounds::CASES),
    ("file_systems", file_systems::CASES),
    ("full", full::CASES),
    ("storms", storms::CASES),
    ("losses", losses::CASES),
    ("syncs", syncs::CASES),
];

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    // A case starts this program again, as the server of the recorded disk.
    if let Some(ended) = testkit::disk::serve() {
        return ended;
    }
    let scratch = Scratch::new("crash").expect("a scratch directory");
    let program = crate::program::coracle();
    let set = everybody(&scratch, program)
        .and_then(|users| Ok((users, DockerRegistry::start()?)))
        .map_err(|error| error.to_string());
    let made = set.as_ref().ok().map(|(_, registry)| images(registry));
    let places: Vec<Place> = match (&set, &made) {
        (Ok((users, _)), Some(made)) => {
            users.iter().map(|person| Place { person, images: made }).collect()
        }
        _ => Vec::new(),
    };
    let mut suite = Suite::new("crash");
    if let Err(reason) = &set {
        suite.skipped("crash", reason);
    }
    for place in &places {
        for (group, cases) in GROUPS {
            for (name, body) in *cases {
                let kind = place.person.user.kind();
                suite.case(format!("{kind}::{group}::{name}"), move || body(place));
            }
        }
    }
    suite.run(wishes)
}
