//! A parallel program on four hosts: Linpack (HPL) and messages between two ranks, by Open MPI,
//! which starts its ranks by `ssh`.
//!
//! The same tree runs as it is on the hosts (a chroot on each), and in containers of networks. The
//! hosts share a kernel, so Open MPI is told to use TCP alone, and the links' counters must say
//! that it has. There are more ranks than processors, so a rank that waits gives its own away. The
//! least time counts, since other work on the machine can only delay a rank.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{debian, ssh};

use super::cluster::{BY_NAME, BY_PACKET, Cluster};
use super::place::{Running, coracle, own, run, words};
use crate::places::{import, native, unpacked};
use crate::{Bench, Line};
use xtask::shell::{Outcome, read, root};
use xtask::tools;

const PACKAGES: &[&str] = &[
    "openmpi-bin",
    "libopenmpi-dev",
    "gcc",
    "libc6-dev",
    "libblas-dev",
    "openssh-server",
    "openssh-client",
];
const IMAGE: &str = "bench/hpl:1";
const HOSTS: usize = 4;
/// The order of the matrix.
const ORDER: u64 = 3000;
/// How often each message goes back and forth before the clock is read.
const THROWS: &str = "100";
/// The greatest ratios of I1.
const AIM_HPL: f64 = 1.0 / 0.98;
const AIM_MESSAGES: f64 = 1.03;

/// In the tree, with the source of HPC Challenge in `/hpcc`.
const BUILD: &str = "cd /hpcc && mpicc.openmpi -O2 -w -DAdd_ -DF77_INTEGER=int -DStringSunStyle \
    -DHPL_NO_MPI_DATATYPE -Ihpl/include -Iinclude -o /hpl main.c hpl/src/*/*.c hpl/testing/*/*.c \
    -lblas -lm && mpicc.openmpi -O2 ring.c -o /ring && mv hpccinf.txt / && rm -r /hpcc";

/// Runs a program on the hosts `$1` with the words that follow.
const MPIRUN: &str = "
    cd /tmp; cp /hpccinf.txt .; rm -f hpccoutf.txt; printf '%s slots=1\\n' $1 > hosts; shift
    export PATH=/usr/bin:/bin OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    mpirun.openmpi --hostfile hosts --wdir /tmp --mca pml ob1 --mca btl tcp,self \
        --mca mpi_yield_when_idle 1 \"$@\"; test ! -e hpccoutf.txt || cat hpccoutf.txt";

/// Where ranks run.
struct Place {
    name: &'static str,
    /// The words before a shell's script at the first host.
    first: Vec<String>,
    /// The hosts' names for Open MPI.
    names: Vec<String>,
    /// Seconds of HPL.
    hpl: f64,
    /// Microseconds by size in bytes.
    messages: BTreeMap<u32, f64>,
}

pub(super) fn measure(bench: &Bench, _: &str) -> Outcome<Vec<Line>> {
    if !tools::is_root() {
        println!("SKIP bench net hpl: hosts are made by root only");
        return Ok(Vec::new());
    }
    let tree = tree(bench, ORDER)?;
    import(bench, &tree, IMAGE)?;
    let mut cluster = Cluster::start(bench, HOSTS)?;
    let (first, _servers) = natives(&cluster, &tree)?;
    let mut places = vec![first];
    for (mode, network) in [("I1", &BY_NAME), ("N1", &BY_PACKET)] {
        cluster.network(network)?;
        places.push(members(&mut cluster, mode, network.name)?);
    }
    for _ in 0..bench.rounds {
        for place in &mut places {
            place.round(&cluster).map_err(|error| format!("{}: {error}", place.name))?;
        }
    }
    Ok(places[1..].iter().flat_map(|place| place.beside(&places[0])).collect())
}

/// The tree, owned by the measured user, with both programs, and HPL's input for a matrix of this
/// order.
pub(crate) fn tree(bench: &Bench, order: u64) -> Outcome<PathBuf> {
    let archive = debian::source("hpcc").map_err(|skip| skip.0)?;
    let tree = unpacked(bench, "hpl", PACKAGES)?;
    let source = tree.join("hpcc");
    fs::create_dir(&source).map_err(|error| error.to_string())?;
    read(
        Command::new("tar")
            .args(["-x", "--no-same-owner", "--strip-components=1", "-f"])
            .arg(archive)
            .arg("-C")
            .arg(&source),
    )?;
    let ring = root().join("suites/src/programs/guests/ring.c");
    let ring = fs::read_to_string(ring).map_err(|error| error.to_string())?;
    let input = include_str!("hpl/hpccinf.txt").replace("\nN ", &format!("\n{order} "));
    for (name, text) in
        [("main.c", include_str!("hpl/main.c")), ("ring.c", &ring), ("hpccinf.txt", &input)]
    {
        fs::write(source.join(name), text).map_err(|error| error.to_string())?;
    }
    let user = format!("{}:{}", bench.user.uid, bench.user.gid);
    read(Command::new("chown").args(["-R", &user]).arg(&source))?;
    let words = native(bench, &tree);
    read(Command::new(&words[0]).args(&words[1..]).args(["sh", "-c", BUILD]))?;
    Ok(tree)
}

/// A server of SSH for root in the tree on a host.
pub(crate) fn serve(cluster: &Cluster<'_>, host: usize, tree: &str) -> Outcome<Running> {
    let serve = own(&["sh", "-c", include_str!("hpl/native.sh"), "sh", tree, ssh::SERVER]);
    Running::start(&cluster.on(host, &serve))
}

/// The seconds that HPL has told, whose result must be right.
pub(crate) fn seconds(text: &str) -> Outcome<f64> {
    let line = text.lines().find(|line| line.starts_with("WR")).unwrap_or_default();
    let time = line.split_whitespace().nth(5).and_then(|word| word.parse::<f64>().ok());
    let time = time.ok_or_else(|| format!("no result of HPL: {text}"))?;
    if text.contains("PASSED") { Ok(time) } else { Err(format!("HPL's result is wrong: {text}")) }
}

/// What containers took, and what the programs took without them.
pub(crate) fn beside(what: String, (ours, theirs): (f64, f64), unit: &str, aim: f64) -> Line {
    Line {
        what,
        against: "a chroot on each host".to_owned(),
        ours: format!("{ours:.2} {unit}"),
        theirs: format!("{theirs:.2} {unit}"),
        value: ours / theirs,
        aim,
        unit: "",
    }
}

/// What the ring has told: sizes in bytes, and microseconds one way.
pub(crate) fn messages(text: &str) -> impl Iterator<Item = (u32, f64)> {
    text.lines().filter_map(|line| {
        let (size, time) = line.split_once(' ')?;
        Some((size.parse().ok()?, time.parse().ok()?))
    })
}

/// The hosts as they are.
fn natives(cluster: &Cluster<'_>, tree: &Path) -> Outcome<(Place, Vec<Running>)> {
    let tree = tree.display().to_string();
    let servers = (0..HOSTS).map(|host| serve(cluster, host, &tree));
    let servers = servers.collect::<Outcome<Vec<_>>>()?;
    let shell = own(&["chroot", &tree, "/bin/sh", "-euc"]);
    let names = (0..HOSTS).map(|host| cluster.hosts.address(host).to_string()).collect();
    Ok((Place::new(cluster, "hosts", &shell, names)?, servers))
}

/// A container on each host, all of one network.
fn members(cluster: &mut Cluster<'_>, mode: &'static str, network: &str) -> Outcome<Place> {
    let execmode = format!("--execmode={mode}");
    let names: Vec<String> = (1..=HOSTS).map(|host| format!("hpl-{mode}-{host}")).collect();
    for (host, name) in names.iter().enumerate() {
        let container = [&execmode, IMAGE, "/bin/sh", "-euc", ssh::SERVER];
        cluster.serve(host, &[], (network, name), &container)?;
    }
    let exec = own(&["exec", &names[0], "/bin/sh", "-euc"]);
    let shell = words(&[&coracle(cluster.bench), &exec]);
    Place::new(cluster, mode, &shell, names)
}

impl Place {
    /// Waits until all hosts answer.
    fn new(
        cluster: &Cluster<'_>,
        name: &'static str,
        shell: &[String],
        names: Vec<String>,
    ) -> Outcome<Self> {
        let script = "for host in $0; do ssh $host true; done";
        cluster.wait(0, &words(&[shell, &own(&[script, &names.join(" ")])]))?;
        let first = cluster.on(0, shell);
        Ok(Self { name, first, names, hpl: f64::INFINITY, messages: BTreeMap::new() })
    }

    /// Runs ranks, whose bytes must go over the links: at least so many.
    fn ranks(&self, cluster: &Cluster<'_>, bytes: u64, program: &[&str]) -> Outcome<String> {
        let sent = || (0..HOSTS).map(|host| cluster.hosts.sent(host)).sum::<u64>();
        let before = sent();
        let mpirun = own(&[MPIRUN, "sh", &self.names.join(" ")]);
        let text = run(&words(&[&self.first, &mpirun, &own(program)]))?;
        match sent() - before {
            sent if sent < bytes => Err(format!("only {sent} bytes went over the links")),
            _ => Ok(text),
        }
    }

    fn round(&mut self, cluster: &Cluster<'_>) -> Outcome {
        let text = self.ranks(cluster, 4 * ORDER * ORDER, &["-n", "4", "/hpl"])?;
        self.hpl = self.hpl.min(seconds(&text)?);
        let text = self.ranks(cluster, 100 << 20, &["-n", "2", "/ring", THROWS])?;
        for (size, time) in messages(&text) {
            self.messages.entry(size).and_modify(|kept| *kept = kept.min(time)).or_insert(time);
        }
        Ok(())
    }

    fn beside(&self, hosts: &Self) -> Vec<Line> {
        let aim = |aim: f64| {
            let aim = if self.name == "I1" { aim } else { f64::INFINITY };
            (aim * 1000.0).round() / 1000.0
        };
        let what = format!("HPL of order {ORDER} on {HOSTS} hosts, {}", self.name);
        let mut lines = vec![beside(what, (self.hpl, hosts.hpl), "s", aim(AIM_HPL))];
        lines.extend(self.messages.iter().filter_map(|(size, time)| {
            let theirs = hosts.messages.get(size)?;
            let what = format!("Open MPI, {size} bytes one way between hosts, {}", self.name);
            Some(beside(what, (*time, *theirs), "µs", aim(AIM_MESSAGES)))
        }));
        lines
    }
}
