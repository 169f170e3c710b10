//! The cluster suite: `coracle cluster` on this machine, as users without privileges.
//!
//! Each world is a user where user namespaces are allowed or forbidden, with a home of its own;
//! its cases run one after another. After each case nothing of it is left: no container, no
//! network, no directory of a cluster. [`kills`] ends drivers in the middle of everything.

mod batch;
mod commands;
mod copies;
mod elastic;
mod floods;
mod inside;
mod kills;
mod mistakes;
mod runs;
mod services;
mod site;
mod unseen;
mod web;
mod world;

use std::process::ExitCode;

use testkit::harness::{Suite, Wishes};
use testkit::skip::Outcome;

use world::{Lab, Part, Stage, World};

/// Long cases of the driver alone are tried in one world, so that both take as long, unless all are
/// asked for.
const ONCE: [(&str, &str); 9] = [
    ("busy", "forbidden"),
    ("farm_broken", "allowed"),
    ("farm_mended", "allowed"),
    ("farm_stays", "forbidden"),
    ("grid", "allowed"),
    ("grid_mended", "forbidden"),
    ("directory", "forbidden"),
    ("elastic", "forbidden"),
    ("held", "allowed"),
];

/// Cases of a network of packets.
const PACKETS: [(&str, &str); 1] = [("pair_moves", "allowed")];

/// A case, with a directory for its cluster files.
type Case = (&'static str, fn(&Lab<'_>));

/// Adds cases to all worlds of a part, or to the one that is told for them.
fn add_to<'a, F>(
    suite: &mut Suite<'a>,
    stage: &'a Stage,
    part: Part,
    cases: impl IntoIterator<Item = (&'static str, F)>,
) where
    F: Fn(&Lab<'_>) -> Outcome + Copy + Send + Sync + 'a,
{
    let is_all = testkit::share::is_whole();
    let (packets, once) = (PACKETS.iter(), ONCE.iter().filter(|_| !is_all));
    for (name, case) in cases {
        let mut told = packets.clone().chain(once.clone()).filter(|(told, _)| *told == name);
        let only = told.next().map(|(_, label)| *label);
        let wanted =
            |world: &&World| world.part == part && only.is_none_or(|only| world.label == only);
        for world in stage.worlds.iter().filter(wanted) {
            let name = format!("{}::{name}", world.label);
            suite.case_in(&world.lane(), name, move || world.try_out(case));
        }
    }
}

fn add<'a>(suite: &mut Suite<'a>, stage: &'a Stage) {
    for (name, reason) in &stage.missing {
        suite.skipped(name, reason);
    }
    // None of these is ever skipped.
    let always = |(name, case): (&'static str, fn(&Lab<'_>))| {
        (name, move |lab: &Lab<'_>| {
            case(lab);
            Ok(())
        })
    };
    let groups = [
        services::CASES,
        runs::CASES,
        commands::CASES,
        copies::CASES,
        floods::CASES,
        kills::CASES,
        mistakes::CASES,
        unseen::CASES,
    ];
    add_to(suite, stage, Part::Batch, batch::CASES.iter().copied());
    add_to(suite, stage, Part::Most, groups.concat().into_iter().map(always));
    add_to(suite, stage, Part::Most, [("debian_service", services::debian_service)]);
    let more = [inside::CASES, web::CASES, elastic::CASES, site::CASES];
    add_to(suite, stage, Part::Most, more.concat());
    add_to(suite, stage, Part::Ids, [inside::USERS]);
    add_to(suite, stage, Part::Ids, [services::SIX, runs::STATUS].map(always));
    for world in &stage.worlds {
        let name = format!("{}::nothing_is_left_of_{:?}", world.label, world.part);
        suite.case_in(&world.lane(), name.to_lowercase(), || {
            world.nothing_is_left();
            Ok(())
        });
    }
}

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let stage = Stage::set();
    let mut suite = Suite::new("cluster");
    suite.threads(3);
    match &stage {
        Err(reason) => suite.skipped("cluster", reason),
        Ok(stage) => add(&mut suite, stage),
    }
    suite.run(wishes)
}
