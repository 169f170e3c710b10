//! The start of a cluster, until all is ready, and a command in one of its containers.
//!
//! The image is on all hosts, and so is the program. Nodes are in a network of names (I1).

use super::lab::{Home, IMAGE, Lab, Up, name, timed};
use super::{alone, fact, ratio};
use crate::net::place::{own, words};
use crate::{Bench, Line, median};
use xtask::shell::Outcome;

const NODES: usize = 8;
/// Seconds beyond what starts the agents.
const AIM: f64 = 1.0;
/// The greatest ratio to one node, where each node has a processor.
const OF_ONE: f64 = 1.5;
/// How often a command is run in a container.
const COMMANDS: usize = 10;
/// The greatest ratio of a command to the same without a cluster.
const AIM_EXEC: f64 = 1.5;

/// A cluster of nodes that do nothing: on so many hosts, or on the one that drives.
pub(super) fn file(
    lab: &Lab<'_>,
    cluster: &str,
    hosts: Option<usize>,
    nodes: usize,
) -> Outcome<String> {
    lab.file(cluster, hosts, &format!("image = {IMAGE:?}\nnetwork = \"names\"\nnodes = {nodes}\n"))
}

/// Starts of a cluster that take turns with others.
struct Starts {
    cluster: &'static str,
    file: String,
    found: Vec<Up>,
}

impl Starts {
    fn new(
        lab: &Lab<'_>,
        cluster: &'static str,
        hosts: Option<usize>,
        nodes: usize,
    ) -> Outcome<Self> {
        Ok(Self { cluster, file: file(lab, cluster, hosts, nodes)?, found: Vec::new() })
    }

    fn round(&mut self, lab: &Lab<'_>, counts: bool) -> Outcome {
        let up = lab.up(&self.file)?;
        if counts {
            self.found.push(up);
        }
        lab.down(self.cluster)
    }

    fn seconds(&self) -> f64 {
        median(self.found.iter().map(|up| up.seconds).collect())
    }

    /// The phases of the start that took the middle of the times.
    fn phases(&self) -> String {
        let middle = self.seconds();
        let Some(up) = self.found.iter().find(|up| up.seconds.total_cmp(&middle).is_eq()) else {
            return String::new();
        };
        let each = up.phases.iter().map(|(name, time)| format!("{name} {:.0}", time * 1000.0));
        let each: Vec<String> = each.collect();
        format!("{} ms; processors' time of the driver {:.2} s", each.join(", "), up.processors)
    }
}

pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    let lab = Lab::start(bench, NODES, Home::Own)?;
    let mut all = [
        Starts::new(&lab, "ssh8", Some(NODES), NODES)?,
        Starts::new(&lab, "ssh1", Some(1), 1)?,
        Starts::new(&lab, "local8", None, NODES)?,
        Starts::new(&lab, "local1", None, 1)?,
    ];
    let mut launches = Vec::new();
    // The first round brings program and image to the hosts.
    for round in 0..=bench.rounds {
        for starts in &mut all {
            starts.round(&lab, round > 0)?;
        }
        if round > 0 {
            launches.push(lab.ssh(NODES)?);
        }
    }
    let launch = median(launches);
    let [ssh, ssh_one, local, local_one] = all.each_ref().map(Starts::seconds);
    let processors = std::thread::available_parallelism().map_or(1, Into::into);
    let of_one = if processors >= NODES { OF_ONE } else { f64::INFINITY };
    let here = format!("on {processors} processors");
    let mut lines = vec![
        Line {
            value: ssh - launch,
            unit: "s",
            ..ratio(
                &format!("`up` of {NODES} nodes on as many hosts by ssh, longer {here}"),
                &format!("{NODES} x `ssh HOST true` at once"),
                [ssh, launch],
                AIM,
            )
        },
        ratio(&format!("the same, {here}"), "one node on one host", [ssh, ssh_one], of_one),
        fact("its phases", all[0].phases()),
        fact("the phases of one node on one host", all[1].phases()),
        alone(
            &format!("`up` of {NODES} nodes on this host, {here}"),
            format!("{local:.2} s"),
            local,
            AIM,
            "s",
        ),
        ratio(&format!("the same, {here}"), "one node", [local, local_one], of_one),
        fact("its phases", all[2].phases()),
    ];
    lines.push(exec(&lab, &all[0])?);
    Ok(lines)
}

/// A command in a container on another host, beside `ssh` and the same command there.
fn exec(lab: &Lab<'_>, starts: &Starts) -> Outcome<Line> {
    lab.up(&starts.file)?;
    let last = format!("node{NODES}");
    let ours = lab.driver(&["cluster", "exec", starts.cluster, &last, "true"]);
    let program = lab.cluster.bench.coracle.display().to_string();
    let container = format!("{}-{last}", starts.cluster);
    let ssh = own(&["ssh", "-F", &lab.config(), &name(NODES)]);
    let theirs = words(&[&ssh, &own(&[&program, "exec", &container, "true"])]);
    let theirs = lab.cluster.on(0, &lab.user(&theirs));
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..COMMANDS {
        for (times, words) in times.iter_mut().zip([&ours, &theirs]) {
            times.push(timed(words)?);
        }
    }
    lab.down(starts.cluster)?;
    let what = format!("`cluster exec` of `true` in the last of {NODES} nodes");
    Ok(ratio(&what, "ssh and `coracle exec`", times.map(median), AIM_EXEC))
}
