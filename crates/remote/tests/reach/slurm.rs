//! Agents as steps of a real Slurm job.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use remote::channel::{Channel, Error};
use remote::launcher::{Cause, Launcher, Way};
use testkit::command::{Input, run_with};
use testkit::harness::Suite;
use testkit::slurm::Cluster;

use crate::{Kit, comes_back, open, soon, visitor};

pub(crate) fn cases<'a>(suite: &mut Suite<'a>, kit: &'a Kit) {
    suite.case("slurm::agents_in_an_allocation".into(), || {
        let user = testkit::users::all().into_iter().next().expect("this user");
        let cluster = Cluster::start(&user)?;
        let place = kit.dir("slurm");
        let mut job = cluster.command(&user, "salloc", &place);
        job.args(["--quiet", "--nodes=2", "--"]).arg(&kit.binary.path);
        job.env("XDG_RUNTIME_DIR", kit.place.join("run"));
        job.arg("allocated").arg(&place).args(["one", "two"]);
        let done = run_with(&mut job, Input::Null, Duration::from_mins(1));
        assert!(done.ok().out().contains("all nodes answer"), "{done:?}");
        Ok(())
    });
}

/// The driver inside the allocation.
pub(crate) fn allocated(place: &Path, nodes: &[&str]) -> ExitCode {
    let kit = Kit::new(place);
    let launcher = |node: &str| {
        let way = Way::Srun { node: node.to_owned(), options: Vec::new() };
        let places = vec![place.to_owned()];
        Launcher { places, ..Launcher::new(way, Arc::clone(&kit.binary)) }
    };
    let channels: Vec<Channel> = nodes
        .iter()
        .map(|node| {
            let channel = Channel::open(node, &launcher(node), &visitor(), soon());
            channel.unwrap_or_else(|error| panic!("{error}"))
        })
        .collect();
    // Every byte there is, both ways: a terminal or a reader of lines in between would show.
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 256) as u8).collect();
    for (channel, node) in channels.iter().zip(nodes) {
        let variables = &channel.facts().variables;
        assert_eq!(variables.get("SLURMD_NODENAME").map(String::as_str), Some(*node));
        assert!(variables.contains_key("SLURM_JOB_ID"));
        drop(comes_back(channel, &bytes));
    }
    // A second step on a node that has one.
    open(&launcher(nodes[0]), &visitor()).close();
    let error = Channel::open("none", &launcher("none"), &visitor(), soon()).unwrap_err();
    assert!(matches!(&error, Error::Launch { cause: Cause::Step, .. }), "{error}");
    channels.into_iter().for_each(Channel::close);
    println!("all nodes answer");
    ExitCode::SUCCESS
}
