//! Networks of two hosts, beside the link between the hosts as it is, and beside other programs
//! that join hosts ([`peers`]).
//!
//! The hosts are simulated: each has a network of its own, and a link to a bridge. With names a
//! connection goes over that link by itself. With packets (N1) it goes through the agents of both
//! hosts, encrypted; their time counts to that of a transfer. In the end the links carry 1 Gb/s.

use super::cluster::{BY_NAME, BY_PACKET, Cluster};
use super::names::AIMS;
use super::packets::{LATER, LOST, SLOWER, free};
use super::place::{
    PORT, Place, TIME, compared, coracle, later, lost, on, own, rounds, title, words,
};
use super::{IMAGE, peers};
use crate::places::as_measured;
use crate::{Bench, Line};
use xtask::shell::Outcome;
use xtask::tools;

/// What a caller on the first host calls on the second one.
const MODES: [(&str, &str); 3] =
    [("I1", BY_NAME.name), ("P1", BY_NAME.name), ("N1", BY_PACKET.name)];
/// The greatest ratio of the processors' time of what is encrypted.
const ENCRYPTED: f64 = 3.0;
/// MiB over a link of 1 Gb/s, and what peers send there; the greatest ratio is that of [`FULL`].
const OVER_LINK: [u32; 2] = [128, 16];
const FULL: f64 = 1.0 / 0.95;
const LINK: &str = "1gbit";

pub(super) fn measure(bench: &Bench, program: &str) -> Outcome<Vec<Line>> {
    if !tools::is_root() {
        println!("SKIP bench net hosts: hosts are made by root only");
        return Ok(Vec::new());
    }
    tools::set_up_peers();
    let mut cluster = Cluster::start(bench, 2)?;
    for network in [&BY_NAME, &BY_PACKET] {
        cluster.network(network)?;
    }
    let mut places = vec![native(&cluster, program)?];
    for (mode, network) in MODES {
        places.push(member(&mut cluster, mode, network)?);
    }
    free(&cluster.agents())?;
    for place in &mut places[1..] {
        place.others = Some(cluster.agents());
    }
    goes_over_links(&cluster, &places)?;
    let (peers, _helpers) = peers::start(&cluster, program);
    places.extend(peers);
    rounds(bench, &mut places)?;
    let mut lines = compared(&places, "the link of two hosts", aim);
    lines.push(later(&places[3], &places[0], LATER));
    lines.push(lost(&places[3], &places[0], LOST)?);
    lines.extend(slowly(&cluster, &mut places)?);
    Ok(lines)
}

fn aim(name: &str, at: usize) -> f64 {
    match (name, at) {
        ("I1", _) => AIMS[at],
        ("N1", 0) => SLOWER,
        ("N1", TIME) => ENCRYPTED,
        _ => f64::INFINITY,
    }
}

/// Programs of the hosts themselves.
fn native(cluster: &Cluster<'_>, program: &str) -> Outcome<Place> {
    let user = as_measured(cluster.bench);
    let address = cluster.hosts.address(1).to_string();
    let serve = own(&[program, "net-serve", "0.0.0.0", PORT]);
    let serve = cluster.on(1, &words(&[&on("0"), &user, &serve]));
    let caller = cluster.on(0, &words(&[&on("1"), &user, &own(&[program])]));
    Place { port: PORT, ..Place::new("hosts", caller, &address) }.with_server(&serve)
}

/// Two members of a network on two hosts.
fn member(cluster: &mut Cluster<'_>, mode: &'static str, network: &'static str) -> Outcome<Place> {
    let (execmode, name) = (format!("--execmode={mode}"), format!("net-{mode}-far"));
    let container = [&execmode, IMAGE, "/bin/bench", "net-serve", "0.0.0.0", "80"];
    let address = cluster.serve(1, &on("0"), (network, &name), &container)?;
    // So that the first host has an agent all the time.
    cluster.serve(0, &on("1"), (network, &format!("net-{mode}-near")), &container)?;
    let call = ["run", "--rm", &execmode, "--network", network, IMAGE, "/bin/bench"];
    let caller = words(&[&on("1"), &coracle(cluster.bench), &own(&call)]);
    cluster.wait(0, &words(&[&caller, &own(&["net-work", &address, "80", "connect", "1"])]))?;
    Ok(Place::new(mode, cluster.on(0, &caller), &address))
}

/// What is sent to another host leaves by the link: the hosts share a kernel, and nothing else may
/// carry it.
fn goes_over_links(cluster: &Cluster<'_>, places: &[Place]) -> Outcome {
    const MEBIBYTES: u32 = 16;
    for place in places {
        let before = cluster.hosts.sent(0);
        place.work("stream", MEBIBYTES)?;
        let sent = cluster.hosts.sent(0) - before;
        if sent >> 20 < u64::from(MEBIBYTES) {
            return Err(format!("{}: only {sent} bytes went over the link", place.name));
        }
    }
    Ok(())
}

/// Streams over links that carry less than the processors could.
fn slowly(cluster: &Cluster<'_>, places: &mut [Place]) -> Outcome<Vec<Line>> {
    for host in 0..cluster.hosts.count() {
        cluster.hosts.limit(host, LINK);
    }
    for place in &mut *places {
        let [ours, theirs] = OVER_LINK;
        place.begin_again([if place.is_peer { theirs } else { ours }, 0, 0, 0]);
    }
    rounds(cluster.bench, places)?;
    let aim = |name: &str, at: usize| match (name, at) {
        ("I1" | "N1", 0) => FULL,
        _ => f64::INFINITY,
    };
    let lines = compared(places, "the hosts, links of 1 Gb/s", aim);
    // The processors' time has been compared already.
    Ok(lines.into_iter().filter(|line| line.what.starts_with(title(0).0)).collect())
}
