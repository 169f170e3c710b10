//! Measures messages between two MPI ranks on one machine, beside the same tree in a plain chroot.
//!
//! Ranks share memory and, for large messages, copy from one process to the other. No engine takes
//! part in that, so the ratio should be 1. Each rank has a processor of its own and, if root calls,
//! real-time priority. A round measures each size twenty times in each place. The least time of all
//! rounds counts, since other work on the machine can only delay a message.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::places::{container, import, native, unpacked};
use super::{Bench, Line};
use xtask::shell::{Outcome, read, root};
use xtask::tools;

const PACKAGES: &[&str] =
    &["gcc", "libc6-dev", "openmpi-bin", "libopenmpi-dev", "mpich", "libmpich-dev"];
/// Names of programs, of people, and what binds a rank to a processor.
const KINDS: &[(&str, &str, &[&str])] = &[
    ("openmpi", "Open MPI", &["--bind-to", "core", "--map-by", "core"]),
    ("mpich", "MPICH", &["-bind-to", "core"]),
];
const IMAGE: &str = "bench/mpi:1";
const MODES: &[&str] = &["I1", "P1"];
/// How often each message goes back and forth before the clock is read; large ones less often.
const THROWS: &str = "400";
const ROUNDS: usize = 5;

/// Microseconds by size in bytes.
type Times = BTreeMap<u32, f64>;

pub(crate) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !tools::is_root() {
        return Err("only root can chroot, which is what the engines are compared with".to_owned());
    }
    let tree = tree(bench)?;
    let mut places = vec![native(bench, &tree)];
    places.extend(containers(bench, &tree)?);
    let mut lines = Vec::new();
    for (kind, name, bound) in KINDS {
        let mut least = vec![Times::new(); places.len()];
        for _ in 0..ROUNDS {
            for (place, least) in places.iter().zip(&mut least) {
                for (size, time) in round(place, kind, bound)? {
                    least.entry(size).and_modify(|kept| *kept = kept.min(time)).or_insert(time);
                }
            }
        }
        for (mode, times) in MODES.iter().zip(&least[1..]) {
            lines.extend(least[0].iter().filter_map(|(size, native)| {
                let time = times.get(size)?;
                Some(Line {
                    what: format!("{name}, {size} bytes one way, in {mode}"),
                    against: "chroot".to_owned(),
                    ours: format!("{time:.2} µs"),
                    theirs: format!("{native:.2} µs"),
                    value: time / native,
                    // A ratio that rounds to 1.00 counts as 1.00.
                    aim: if *mode == "I1" { 1.005 } else { f64::INFINITY },
                    unit: "",
                })
            }));
        }
    }
    Ok(lines)
}

/// The tree, owned by the measured user, with the ranks' program built in it.
fn tree(bench: &Bench) -> Outcome<PathBuf> {
    let tree = unpacked(bench, "mpi", PACKAGES)?;
    let source = root().join("suites/src/programs/guests/ring.c");
    fs::copy(source, tree.join("ring.c")).map_err(|error| error.to_string())?;
    let script =
        "for kind in openmpi mpich; do mpicc.$kind -O2 /ring.c -o /ring-$kind || exit 1; done";
    let words = native(bench, &tree);
    read(Command::new(&words[0]).args(&words[1..]).args(["sh", "-c", script]))?;
    Ok(tree)
}

/// A container of the tree in each mode, and the words that run something in it.
fn containers(bench: &Bench, tree: &Path) -> Outcome<Vec<Vec<String>>> {
    import(bench, tree, IMAGE)?;
    let make = |mode: &&str| {
        container(bench, IMAGE, &format!("mpi-{mode}"), &[&format!("--execmode={mode}")])
    };
    MODES.iter().map(make).collect()
}

/// One run of the two ranks: the best time of each size.
fn round(place: &[String], kind: &str, bound: &[&str]) -> Outcome<Times> {
    let (launcher, program) = (format!("mpiexec.{kind}"), format!("/ring-{kind}"));
    let mut command = Command::new("chrt");
    command.args(["-f", "10"]).args(place);
    // Root may start Open MPI's ranks only when it says so, twice.
    command.args(["env", "PATH=/usr/bin:/bin", "TMPDIR=/tmp"]);
    command.args(["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", &launcher]);
    command.args(bound).args(["-n", "2", &program, THROWS]);
    let output = read(&mut command)?;
    let pair = |line: &str| {
        let (size, time) = line.split_once(' ')?;
        Some((size.parse().ok()?, time.parse().ok()?))
    };
    let times: Times = output.lines().filter_map(pair).collect();
    if times.is_empty() { Err(format!("no times from {launcher}: {output}")) } else { Ok(times) }
}
