//! Clusters over several hosts: simulated ones, each with a network, a `/tmp` and, unless a case
//! says otherwise, a home of its own, where users may not make namespaces.
//!
//! The hosts are reached by a real `sshd` on each, or are nodes of a real Slurm. Driver and hosts
//! share nothing but a directory for the tests' own files. [`ssh::cut`] cuts a link, and must fail:
//! so no case passes because the hosts share a kernel.

mod failures;
mod farm;
mod images;
mod kills;
mod lab;
mod mistakes;
mod neighbours;
mod ranks;
mod readme;
mod registry;
mod slurm;
mod small;
mod ssh;
mod terminals;
mod variables;
mod zones;

use std::process::ExitCode;
use std::sync::OnceLock;

use testkit::harness::{Suite, Wishes};
use testkit::person::everybody;
use testkit::scratch::Scratch;
use testkit::skip::Skip;

use lab::Lab;

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let scratch = Scratch::new("hosts").expect("a directory");
    let people = everybody(&scratch, crate::program::coracle());
    let people = match people {
        Ok(people) => people,
        Err(error) => {
            eprintln!("hosts: {error}");
            return ExitCode::FAILURE;
        }
    };
    // Ranges of ids have no part in this.
    let person = people.iter().find(|person| person.user.kind() == "plain");
    let person = person.or(people.first()).expect("a user").clone();
    let lab: OnceLock<Result<Lab, Skip>> = OnceLock::new();
    let lab = || {
        let made = lab.get_or_init(|| Lab::start(&scratch, &person));
        made.as_ref().map_err(Clone::clone)
    };
    let cases = [
        ssh::CASES,
        images::CASES,
        variables::CASES,
        terminals::CASES,
        slurm::CASES,
        ranks::CASES,
        mistakes::CASES,
        readme::CASES,
        failures::CASES,
        neighbours::CASES,
        zones::CASES,
        farm::CASES,
        kills::CASES,
    ];
    let mut suite = Suite::new("hosts");
    // They share the hosts.
    suite.threads(1);
    for (name, case) in cases.into_iter().flatten() {
        suite.case((*name).to_owned(), || {
            let lab = lab()?;
            lab.begin();
            case(lab)?;
            lab.nothing_is_left();
            Ok(())
        });
    }
    suite.run(wishes)
}
