//! The cluster suite: `coracle cluster` on this machine, as users without privileges.
//!
//! Each world is a user where user namespaces are allowed or forbidden, with a home of its own; its
//! cases take turns. After each case nothing of it is left: no container, no network, no directory
//! of a cluster. [`kills`] ends drivers in the middle of everything.

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
mod web;
mod world;

use std::process::ExitCode;

use testkit::harness::Suite;

use world::{Lab, Stage, World};

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

/// A case, with a directory for its cluster files.
type Case = (&'static str, fn(&Lab<'_>));

fn add<'a>(suite: &mut Suite<'a>, stage: &'a Stage) {
    for (name, reason) in &stage.missing {
        suite.skipped(name, reason);
    }
    let groups = [
        services::CASES,
        runs::CASES,
        commands::CASES,
        copies::CASES,
        floods::CASES,
        kills::CASES,
        mistakes::CASES,
    ]
    .concat();
    for (name, case) in groups {
        for world in stage.worlds.iter().filter(|world| world.is_whole) {
            suite.case(format!("{}::{name}", world.label), move || {
                world.try_out(|lab| {
                    case(lab);
                    Ok(())
                })
            });
        }
    }
    for world in stage.worlds.iter().filter(|world| world.is_whole) {
        let case = services::debian_service;
        suite.case(format!("{}::debian_service", world.label), move || world.try_out(case));
    }
    let is_all = std::env::var_os(testkit::person::ALL).is_some();
    let more = [inside::CASES, web::CASES, batch::CASES, elastic::CASES, site::CASES].concat();
    for (name, case) in more {
        let only = ONCE.iter().find(|(once, _)| *once == name && !is_all).map(|(_, label)| *label);
        let wanted = |world: &&World| world.is_whole && only.is_none_or(|only| world.label == only);
        for world in stage.worlds.iter().filter(wanted) {
            suite.case(format!("{}::{name}", world.label), move || world.try_out(case));
        }
    }
    for (name, case) in web::PACKETS {
        for world in stage.worlds.iter().filter(|world| world.label == "allowed") {
            suite.case(format!("{}::{name}", world.label), move || world.try_out(*case));
        }
    }
    let (name, case) = inside::USERS;
    for world in stage.worlds.iter().filter(|world| !world.is_whole) {
        suite.case(format!("{}::{name}", world.label), move || world.try_out(case));
    }
    // What a range of ids could change.
    for (name, case) in [services::SIX, runs::STATUS] {
        for world in stage.worlds.iter().filter(|world| !world.is_whole) {
            suite.case(format!("{}::{name}", world.label), move || {
                world.try_out(|lab| {
                    case(lab);
                    Ok(())
                })
            });
        }
    }
    suite.case("nothing_is_left".to_owned(), move || {
        stage.nothing_is_left();
        Ok(())
    });
}

fn main() -> ExitCode {
    let listing = std::env::args().any(|word| word == "--list");
    let stage = if listing { Err("only listed".to_owned()) } else { Stage::set() };
    let mut suite = Suite::new();
    suite.threads(3);
    match &stage {
        Err(reason) => suite.skipped("cluster", reason),
        Ok(stage) => add(&mut suite, stage),
    }
    suite.run()
}
