//! Tests of hostile images, from a registry or an archive to a process.
//!
//! Each image tries to write or read outside its tree, to exhaust the machine, or to present false
//! metadata. For each the suite checks three things: nothing appeared outside (canaries in the
//! home, in `/tmp` and in the host's `/etc`), the command ended by itself with a result (no panic,
//! no signal, no hang), and the store works afterwards. Each image has an expected result:
//! contained or refused.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

mod archives;
mod configurations;
mod layers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use testkit::command::Finished;
use testkit::docker_registry::DockerRegistry;
use testkit::harness::{Suite, Wishes};
use testkit::image::Built;
use testkit::person::{Person, everybody};
use testkit::scratch::Scratch;
use testkit::skip::Outcome;

/// The expected result for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// An error with exit code 1.
    Refused,
    /// Success, with everything inside the tree.
    Contained,
    /// Either; only the outside counts.
    Either,
}

struct Place {
    person: Person,
    registry: DockerRegistry,
    /// Target of hostile entries; must stay unchanged.
    canary: PathBuf,
}

type Case = fn(&Place) -> Outcome;

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let mut trouble = Vec::new();
    let scratch = Scratch::new("hostile").expect("a scratch directory");
    let people = everybody(&scratch, crate::program::coracle()).unwrap_or_else(|error| {
        trouble.push(error.to_string());
        Vec::new()
    });
    let mut places = Vec::new();
    for person in people {
        match DockerRegistry::start() {
            Ok(registry) => {
                let owner = Some((person.user.uid, person.user.gid));
                let name = format!("{}-canary", person.user.name);
                let canary = scratch.dir(&name, owner, 0o755).expect("a canary");
                std::fs::write(canary.join("bird"), "alive").expect("a bird");
                person.give(&canary.join("bird"));
                places.push(Place { person, registry, canary });
            }
            Err(error) => trouble.push(error.to_string()),
        }
    }
    let mut suite = Suite::new("hostile");
    for reason in &trouble {
        suite.skipped("hostile", reason);
    }
    for place in &places {
        let kind = place.person.user.kind();
        for (name, body) in layers::CASES.iter().chain(archives::CASES).chain(configurations::CASES)
        {
            suite.case(format!("{kind}::{name}"), move || body(place));
        }
    }
    suite.run(wishes)
}

impl Place {
    /// Pushes, pulls, and checks the outside; returns the pull's result and the image's name.
    #[track_caller]
    fn pull(&self, name: &str, image: &Built, answer: Answer) -> (Finished, String) {
        let repository = format!("hostile/{name}");
        self.registry.target().image(&repository, "1", image).expect("pushing");
        let full = format!("{}/{repository}:1", self.registry.host());
        let done = self.person.run(&["pull", "-q", "--tls-verify=false", &full]);
        self.judge(name, &done, answer);
        (done, full)
    }

    /// Checks the outside and the kind of result.
    #[track_caller]
    fn judge(&self, name: &str, done: &Finished, answer: Answer) {
        assert!(
            done.status.is_some_and(|status| status.code().is_some()),
            "{name}: no end of its own: {done:?}"
        );
        assert!(!done.err().contains("panicked"), "{name}: {done:?}");
        match answer {
            Answer::Refused => {
                done.expect(1);
                assert!(!done.err().trim().is_empty(), "{name}: refused without a word");
            }
            Answer::Contained => {
                done.ok();
            }
            Answer::Either => {}
        }
        self.walls(name);
    }

    /// Checks that nothing outside was touched.
    #[track_caller]
    fn walls(&self, name: &str) {
        let bird = std::fs::read_to_string(self.canary.join("bird")).unwrap_or_default();
        assert_eq!(bird, "alive", "{name}: a file outside was changed");
        let birds = std::fs::read_dir(&self.canary).map(Iterator::count).unwrap_or_default();
        assert_eq!(birds, 1, "{name}: something was written outside");
        for path in
            ["/etc/coracle-canary", "/tmp/coracle-canary", "/coracle-canary", "/dev/coracle-canary"]
        {
            assert!(!Path::new(path).exists(), "{name}: {path} was made on the host");
        }
        for path in ["coracle-canary", ".ssh", ".bashrc"] {
            assert!(!self.person.home.join(path).exists(), "{name}: {path} was made in the home");
        }
    }

    /// Checks that the store is undamaged and works.
    #[track_caller]
    fn store_works(&self) {
        self.person.run(&["images"]).ok();
        self.person.run(&["ps", "-a"]).ok();
    }
}
