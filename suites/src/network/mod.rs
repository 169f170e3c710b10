//! The network suite: the same programs in real network namespaces, and in containers of a network
//! without namespaces (mode `names`), must print the same lines.
//!
//! In mode `names` the engine translates addresses: containers have virtual addresses, all ports
//! and a loopback of their own, while their sockets stand on 127.x.y.z of the host. The kernel with
//! two namespaces and a veth pair between them is the oracle ([`oracle`]). [`known`] lists the
//! lines that differ, each with its reason. What the oracle cannot have, such as foreign processes
//! on the same host, is in [`strangers`]; networks of several hosts are in [`hosts`].
//!
//! Containers with network namespaces (N1) run the programs too, with both kinds of devices. There
//! the kernel is the same as the oracle's, and the agent's switch is between instead of a pair of
//! devices. What only they have is in [`packets`] and [`ipv6`].

mod compare;
mod containers;
mod explained;
mod hosts;
mod ipv6;
mod known;
mod names;
mod oracle;
mod outside;
mod packets;
mod programs;
mod shared;
mod strangers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use testkit::fence::fenced;
use testkit::harness::{Suite, Wishes};
use testkit::person::{Person, everybody};
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, Skip};

use containers::World;
use hosts::Far;
use oracle::Oracle;
use programs::{PROGRAMS, Program};

/// Time limit of one program, in whatever way it runs.
const LIMIT: Duration = Duration::from_mins(1);

/// The modes of the long programs: one inside processes, one that traces, one without kernel
/// features. The others catch the same calls in another way, and run [`Program::short`] ones.
const ALL: [&str; 3] = ["I1", "P1", "F2"];
const SHORT: [&str; 3] = ["I2", "P2", "F1"];

/// What devices are in N1: the cases' name, and what `CORACLE_LINK` says.
const DEVICES: [(&str, &str); 2] = [("N1-tap", "tap"), ("N1-veth", "veth")];

struct Stage {
    oracle: Result<Oracle, String>,
    worlds: Vec<World>,
    missing: Vec<(String, String)>,
    scratch: Scratch,
    person: Person,
    bin: PathBuf,
    far: OnceLock<Result<Far, Skip>>,
}

impl Stage {
    fn set() -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let scratch = Scratch::new("network").map_err(text)?;
        let people = everybody(&scratch, crate::program::coracle()).map_err(text)?;
        // Ranges of ids have no part in this.
        let person = people.iter().find(|person| person.user.kind() == "plain");
        let person = person.or(people.first()).ok_or("no user")?.clone();
        let bin = programs::compile(scratch.path())?;
        let oracle = Oracle::prepare(&scratch, &person.user, &bin);
        let mut missing = Vec::new();
        let ready = person.engines(&mut missing);
        let fence = fenced(&scratch, &person.program);
        if fence.is_none() {
            missing.push(("F".to_owned(), "no C compiler".to_owned()));
        }
        let mut worlds = Vec::new();
        for mode in ALL.into_iter().chain(SHORT) {
            let program = match &fence {
                Some(program) if mode.starts_with('F') => program.clone(),
                _ if ready.iter().any(|name| name == mode) => person.program.clone(),
                _ => continue,
            };
            let person = Person { program, ..person.clone() };
            worlds.push(World::new(&scratch, &person, (mode, mode), &bin)?);
        }
        for (label, device) in DEVICES.iter().filter(|_| ready.iter().any(|name| name == "N1")) {
            if *device == "tap"
                && let Some(why) = person.no_tun()
            {
                missing.push(((*label).to_owned(), why));
                continue;
            }
            let person = person.with_devices(&scratch, device).map_err(text)?;
            worlds.push(World::new(&scratch, &person, ("N1", label), &bin)?);
        }
        Ok(Self { oracle, worlds, missing, scratch, person, bin, far: OnceLock::new() })
    }

    fn far(&self) -> Result<&Far, Skip> {
        hosts::far(&self.far, &self.scratch, &self.person, &self.bin)
    }

    fn oracle(&self) -> Result<&Oracle, Skip> {
        self.oracle.as_ref().map_err(|reason| Skip(reason.clone()))
    }

    /// Runs a program in both, and compares.
    fn compare(&self, world: &World, program: &Program) -> Outcome {
        let right = self.oracle()?.lines(program);
        let here = compare::lines(&world.run(program));
        let mut known = known::of(program.name, world.has_packets());
        compare::expect_same(program, &mut known, (&right, &here));
        Ok(())
    }

    /// The home with the Debian image.
    fn debian(&self, world: &World) -> Result<PathBuf, Skip> {
        static PLACE: OnceLock<Result<PathBuf, Skip>> = OnceLock::new();
        PLACE.get_or_init(|| world.debian(&self.scratch)).clone()
    }

    /// Python's servers and clients; in the containers with the Python of a Debian image.
    fn python(&self, world: &World) -> Outcome {
        let right = self.oracle()?.python()?;
        let home = self.debian(world)?;
        let here = compare::lines(&world.python(&home));
        let mut known = known::of(programs::PYTHON.name, world.has_packets());
        compare::expect_same(&programs::PYTHON, &mut known, (right, &here));
        Ok(())
    }
}

fn add<'a>(suite: &mut Suite<'a>, stage: &'a Stage) {
    for (name, reason) in &stage.missing {
        suite.skipped(name, reason);
    }
    for (name, case) in oracle::CASES {
        suite.case(format!("oracle::{name}"), move || {
            case(stage.oracle()?);
            Ok(())
        });
    }
    for program in PROGRAMS {
        suite.case(format!("oracle::{}", program.name), move || {
            stage.oracle()?.is_steady(program);
            Ok(())
        });
    }
    suite.case("oracle::python".to_owned(), move || stage.oracle()?.python().map(drop));
    // Each world runs one case at a time.
    for program in PROGRAMS {
        for world in &stage.worlds {
            let is_whole = ALL.contains(&world.mode) || world.has_packets();
            if program.runs_in(world.mode) && (program.short || is_whole) {
                suite.case_in(
                    world.label,
                    format!("{}::{}", world.label, program.name),
                    move || stage.compare(world, program),
                );
            }
        }
    }
    let long = || stage.worlds.iter().filter(|world| ALL.contains(&world.mode));
    let packets = || stage.worlds.iter().filter(|world| world.has_packets());
    for world in long().chain(packets()) {
        suite.case_in(world.label, format!("{}::python", world.label), move || stage.python(world));
    }
    for (name, case) in packets::CASES {
        for world in packets() {
            suite.case_in(world.label, format!("{}::{name}", world.label), move || {
                case(world);
                Ok(())
            });
        }
    }
    for (name, case) in names::CASES {
        for world in long().chain(packets()) {
            suite.case_in(world.label, format!("{}::{name}", world.label), move || {
                case(world);
                Ok(())
            });
        }
    }
    for (name, case) in shared::CASES {
        for world in &stage.worlds {
            suite.case_in(world.label, format!("{}::{name}", world.label), move || {
                case(world);
                Ok(())
            });
        }
    }
    for (name, case) in outside::CASES {
        for world in packets() {
            suite.case_in(world.label, format!("{}::{name}", world.label), move || {
                case(world, (&stage.scratch, &stage.debian(world)?, &stage.person))
            });
        }
    }
    for (name, case) in packets::HELPED {
        for world in packets() {
            suite.case_in(world.label, format!("{}::{name}", world.label), move || case(world));
        }
    }
    for (name, case) in ipv6::CASES {
        for world in packets() {
            suite.case_in(world.label, format!("{}::{name}", world.label), move || case(world));
        }
    }
    for world in long().filter(|world| world.mode != "F2") {
        suite.case_in(world.label, format!("{}::ipv6_is_for_packets", world.mode), move || {
            ipv6::for_packets(world);
            Ok(())
        });
    }
    for (name, case) in strangers::CASES.iter().chain(explained::CASES) {
        for world in long() {
            suite.case_in(world.label, format!("{}::{name}", world.mode), move || {
                case(world);
                Ok(())
            });
        }
    }
}

/// Networks of several hosts. All use the same, and the last case looks at what is left.
fn add_hosts<'a>(suite: &mut Suite<'a>, stage: &'a Stage) {
    let has = |mode: &&str| stage.worlds.iter().any(|world| world.mode == *mode);
    let modes = || ALL.into_iter().chain(["N1"]).filter(has);
    let pair = || PROGRAMS.iter().find(|program| program.name == "pair").expect("a pair");
    for mode in modes() {
        suite.case_in("far", format!("{mode}::far_pair"), move || {
            stage.far()?.compare(mode, pair(), (stage.oracle()?, 1));
            Ok(())
        });
        suite.case_in("far", format!("{mode}::near_pair"), move || {
            stage.far()?.compare(mode, pair(), (stage.oracle()?, 0));
            Ok(())
        });
        let beside = hosts::BESIDE.iter().filter(|_| mode != "N1");
        for (name, case) in hosts::CASES.iter().chain(beside) {
            suite.case_in("far", format!("{mode}::{name}"), move || {
                case(stage.far()?, mode);
                Ok(())
            });
        }
    }
    if has(&"N1") {
        suite.case_in("far", "N1::far_ipv6".to_owned(), move || hosts::ipv6(stage.far()?));
    }
    // At the host's own address instead of one of 127.0.0.0/8.
    for program in PROGRAMS.iter().filter(|one| !one.is_pair && one.runs_in("I1")) {
        suite.case_in("far", format!("I1::near_{}", program.name), move || {
            stage.far()?.alone("I1", program, stage.oracle()?);
            Ok(())
        });
    }
    suite.case_in("far", "I1::far_early".to_owned(), move || {
        hosts::early(stage.far()?);
        Ok(())
    });
    suite.case_in("far", "I1::far_sentinel".to_owned(), move || {
        stage.far()?.sentinel("I1", pair(), stage.oracle()?);
        Ok(())
    });
    suite.case("far::faults".to_owned(), move || {
        hosts::faults(&stage.scratch, &stage.person, &stage.bin)
    });
    suite.case_in("far", "far::ends_well".to_owned(), move || {
        stage.far()?.ends_well();
        Ok(())
    });
}

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let stage = Stage::set();
    let mut suite = Suite::new("network");
    suite.threads(3);
    match &stage {
        Err(reason) => suite.skipped("network", reason),
        Ok(stage) => {
            // They are the longest row of cases that run one after another.
            add_hosts(&mut suite, stage);
            add(&mut suite, stage);
        }
    }
    suite.run(wishes)
}
