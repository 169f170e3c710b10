//! Linpack (HPL) on three hosts and messages by Open MPI between two of them, in node containers
//! and in a container for each rank, beside the same tree in a chroot on each host, where ranks are
//! started by `ssh`.
//!
//! The hosts share a kernel, so Open MPI is told to use TCP alone, and the links' counters must say
//! that it has. A rank that waits gives its processor away, since there may be fewer processors
//! than ranks. The least time counts, since other work on the machine can only delay a rank.

use std::collections::BTreeMap;

use super::lab::{Home, Lab};
use crate::net::hpl;
use crate::net::place::{Running, own, run, words};
use crate::places::import;
use crate::{Bench, Line};
use xtask::shell::Outcome;

const IMAGE: &str = "bench/hpl:1";
const HOSTS: usize = 3;
/// The order of the matrix.
const ORDER: u64 = 3000;
/// How often each message goes back and forth before the clock is read.
const THROWS: &str = "100";
/// The greatest ratio of times.
const AIM: f64 = 1.02;

/// How ranks are started in containers: what the file calls it, in which networks, and the command
/// of `[run]` for so many ranks of a program.
struct Launch {
    word: &'static str,
    networks: &'static [&'static str],
    command: fn(ranks: &str, program: &[&str]) -> Vec<String>,
}

const LAUNCHES: [Launch; 2] = [
    Launch { word: "inside", networks: &["names", "host"], command: inside },
    Launch { word: "ranks", networks: &["host"], command: as_ranks },
];

fn as_ranks(_: &str, program: &[&str]) -> Vec<String> {
    words(&[&own(&["sh", "-euc", RANK, "sh"]), &own(program)])
}

fn inside(ranks: &str, program: &[&str]) -> Vec<String> {
    words(&[&own(&["sh", "-euc", MPIRUN, "sh", "/etc/coracle/hosts", ranks]), &own(program)])
}

/// Runs a rank of a program, and tells the time that it has taken of processors.
const RANK: &str = r#"
cd /tmp; sed -e "s/^2 *Ps/1 Ps/" -e "s/^2 *Qs/3 Qs/" /hpccinf.txt > hpccinf.txt
"$@"; times; test ! -e hpccoutf.txt || cat hpccoutf.txt"#;

/// What is for Open MPI on a command line there, for ranks that somebody else starts.
const VARIABLES: &str = r#"{ UCX_TLS = "tcp,self", OMPI_MCA_pml = "ob1", OMPI_MCA_btl = "tcp,self", OMPI_MCA_mpi_yield_when_idle = "1" }"#;

/// Runs so many ranks (`$2`) of a program on the hosts of a file (`$1`). Each tells the time that
/// it has taken of processors.
const MPIRUN: &str = r#"
cd /tmp; sed -e "s/^2 *Ps/1 Ps/" -e "s/^2 *Qs/3 Qs/" /hpccinf.txt > hpccinf.txt; rm -f hpccoutf.txt
hosts=$1 ranks=$2; shift 2
mpirun.openmpi --hostfile $hosts -n $ranks --wdir /tmp --mca pml ob1 --mca btl tcp,self \
    --mca mpi_yield_when_idle 1 sh -c '"$@"; times' sh "$@"
test ! -e hpccoutf.txt || cat hpccoutf.txt"#;

/// The same on hosts of these addresses (`$1`).
const NATIVE: &str = r#"
printf "%s slots=1\n" $1 > /tmp/hosts; script=$2; shift 2
export PATH=/usr/bin:/bin OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec sh -euc "$script" sh /tmp/hosts "$@""#;

/// The programs: how many ranks, the words, and the bytes that they send at least.
const PROGRAMS: [(&str, &[&str], u64); 2] =
    [("3", &["/hpl"], ORDER * ORDER), ("2", &["/ring", THROWS], 100 << 20)];

/// Where ranks run, and the words that run each of the programs.
struct Place {
    name: String,
    commands: Vec<Vec<String>>,
    /// Seconds of HPL.
    hpl: f64,
    /// Microseconds by size in bytes.
    messages: BTreeMap<u32, f64>,
    /// Processors' seconds of the ranks of each program.
    processors: [f64; 2],
}

pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    let tree = hpl::tree(bench, ORDER)?;
    import(bench, &tree, IMAGE)?;
    // Once, so that the image's tree is in the store that all hosts read.
    bench.coracle(&["run", "--rm", "--execmode=I1", IMAGE, "true"])?;
    let lab = Lab::start(bench, HOSTS, Home::Shared)?;
    let hosts = 1..=HOSTS;
    let (first, _servers) = native(&lab, &tree.display().to_string(), hosts)?;
    let mut places = vec![first];
    let mut clusters = Vec::new();
    for launch in &LAUNCHES {
        for network in launch.networks {
            let (place, all) = containers(&lab, network, launch)?;
            places.push(place);
            clusters.extend(all);
        }
    }
    for _ in 0..bench.rounds {
        for place in &mut places {
            place.round(&lab).map_err(|error| format!("{}: {error}", place.name))?;
        }
    }
    for cluster in clusters {
        lab.down(&cluster)?;
    }
    Ok(places[1..].iter().flat_map(|place| place.beside(&places[0])).collect())
}

/// The hosts as they are.
fn native(
    lab: &Lab<'_>,
    tree: &str,
    hosts: std::ops::RangeInclusive<usize>,
) -> Outcome<(Place, Vec<Running>)> {
    let servers = hosts.clone().map(|host| hpl::serve(&lab.cluster, host, tree));
    let servers = servers.collect::<Outcome<Vec<_>>>()?;
    let shell = own(&["chroot", tree, "/bin/sh", "-euc"]);
    let addresses: Vec<String> =
        hosts.map(|host| lab.cluster.hosts.address(host).to_string()).collect();
    let addresses = addresses.join(" ");
    let answers = "for host in $0; do ssh $host true; done";
    lab.cluster.wait(1, &words(&[&shell, &own(&[answers, &addresses])]))?;
    let command = |(ranks, program, _): &(&str, &[&str], u64)| {
        let script = own(&[NATIVE, "sh", &addresses, MPIRUN, ranks]);
        lab.cluster.on(1, &words(&[&shell, &script, &own(program)]))
    };
    Ok((Place::new("hosts", PROGRAMS.iter().map(command).collect()), servers))
}

/// A cluster for each program, with a node for each rank, that is up; and the names of these.
fn containers(lab: &Lab<'_>, network: &str, launch: &Launch) -> Outcome<(Place, Vec<String>)> {
    let (mut commands, mut clusters) = (Vec::new(), Vec::new());
    for (ranks, program, _) in &PROGRAMS {
        let command: Vec<String> =
            (launch.command)(ranks, program).iter().map(|word| format!("'''{word}'''")).collect();
        let text = format!(
            "image = {IMAGE:?}\nnetwork = {network:?}\nnodes = {ranks}\n[run]\nlaunch = {:?}\n\
             slots = 1\nenv = {VARIABLES}\ncommand = [{}]\n",
            launch.word,
            command.join(", ")
        );
        let cluster = format!("mpi-{network}-{}-{ranks}", launch.word);
        let file = lab.file(&cluster, ranks.parse().ok(), &text)?;
        lab.up(&file)?;
        commands.push(lab.driver(&["cluster", "run", "-f", &file]));
        clusters.push(cluster);
    }
    let name = format!("{}, {network}", launch.word);
    Ok((Place::new(&name, commands), clusters))
}

impl Place {
    fn new(name: &str, commands: Vec<Vec<String>>) -> Self {
        let (hpl, messages) = (f64::INFINITY, BTreeMap::new());
        Self { name: name.to_owned(), commands, hpl, messages, processors: [f64::INFINITY; 2] }
    }

    /// Runs each program once. Its bytes must go over the links.
    fn round(&mut self, lab: &Lab<'_>) -> Outcome {
        let sent = || (1..=HOSTS).map(|host| lab.cluster.hosts.sent(host)).sum::<u64>();
        let mut texts = Vec::new();
        for (at, command) in self.commands.iter().enumerate() {
            let before = sent();
            let text = run(command)?;
            let sent = sent() - before;
            if sent < PROGRAMS[at].2 {
                return Err(format!("only {sent} bytes went over the links"));
            }
            self.processors[at] = self.processors[at].min(processors(&text));
            texts.push(text);
        }
        self.hpl = self.hpl.min(hpl::seconds(&texts[0])?);
        for (size, time) in hpl::messages(&texts[1]) {
            self.messages.entry(size).and_modify(|kept| *kept = kept.min(time)).or_insert(time);
        }
        Ok(())
    }

    fn beside(&self, hosts: &Self) -> Vec<Line> {
        let line = |what: String, ours: f64, theirs: f64, unit: &str, aim: f64| {
            hpl::beside(format!("{what}, {}", self.name), (ours, theirs), unit, aim)
        };
        let mut lines = vec![
            line(format!("HPL of order {ORDER} on {HOSTS} hosts"), self.hpl, hosts.hpl, "s", AIM),
            line(
                "processors' time of its ranks".to_owned(),
                self.processors[0],
                hosts.processors[0],
                "s",
                f64::INFINITY,
            ),
        ];
        lines.extend(self.messages.iter().filter_map(|(size, time)| {
            let what = format!("MPI, {size} bytes one way between hosts");
            Some(line(what, *time, *hosts.messages.get(size)?, "µs", AIM))
        }));
        lines.push(line(
            "processors' time of both ranks for all messages".to_owned(),
            self.processors[1],
            hosts.processors[1],
            "s",
            f64::INFINITY,
        ));
        lines
    }
}

/// The sum of what shells have said of their children's time: lines such as `0m1.25s 0m0.50s`.
fn processors(text: &str) -> f64 {
    let seconds = |word: &str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
    };
    let line = |line: &str| {
        let (user, system) = line.trim().split_once(' ')?;
        Some(seconds(user)? + seconds(system)?)
    };
    text.lines().filter_map(line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_the_times_that_shells_tell() {
        let text = "0 5.21\n0m0.000000s 0m0.000000s\n1m2.500000s 0m0.250000s\n8 5.3\n";
        assert!((processors(text) - 62.75).abs() < 1e-9);
    }
}
