//! Measures clusters on simulated hosts, which share this machine's processors.
//!
//! [`up`] is the start of a cluster and a command in it, [`mpi`] ranks that are started inside of
//! containers, [`agents`] a driver with many hosts at rest, [`page`] services on one host,
//! [`grow`] services that get more containers, [`follow`] a number that follows a rule, [`farm`] a
//! batch system of containers, and [`model`] what the starts of few hosts say about many.

mod agents;
mod batch;
mod by_hand;
mod farm;
mod follow;
mod grow;
mod lab;
mod model;
mod mpi;
mod page;
mod plain;
mod up;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::skip::Skip;

use super::places::as_measured;
use super::{Bench, Line};
use xtask::shell::Outcome;
use xtask::tools;

/// A server answers within so long.
const SOON: Duration = Duration::from_secs(5);

type Part = fn(&Bench) -> Outcome<Vec<Line>>;

const PARTS: [(&str, Part); 8] = [
    ("up", up::measure),
    ("mpi", mpi::measure),
    ("agents", agents::measure),
    ("page", page::measure),
    ("grow", grow::measure),
    ("follow", follow::measure),
    ("farm", farm::measure),
    ("model", model::measure),
];

/// The names of what can be measured alone.
pub(super) fn parts() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|(name, _)| *name)
}

/// Measures the chosen parts, or all.
pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !tools::is_root() {
        println!("SKIP bench cluster: hosts are made by root only");
        return Ok(Vec::new());
    }
    let chosen = PARTS.iter().filter(|(name, _)| bench.wants(name));
    super::each(chosen.map(|(name, part)| (*name, part(bench))))
}

/// Networks, and their words in a cluster file.
const NETWORKS: [(&str, &str); 2] =
    [("as the host allows", ""), ("`names`", "network = \"names\"")];

/// A tree as an image of the measured user; false if there is none, which is told.
fn import_made(
    bench: &Bench,
    part: &str,
    tree: Result<PathBuf, Skip>,
    image: &str,
) -> Outcome<bool> {
    match tree {
        Ok(tree) => import(bench, &tree, image).map(|()| true),
        Err(reason) => {
            println!("SKIP bench cluster {part}: {reason}");
            Ok(false)
        }
    }
}

/// Imports a tree as an image of the measured user.
fn import(bench: &Bench, tar: &Path, image: &str) -> Outcome {
    let mut words = as_measured(bench);
    words.extend([bench.coracle.display().to_string(), "import".to_owned(), "-q".to_owned()]);
    words.extend(["-".to_owned(), image.to_owned()]);
    let input = fs::File::open(tar).map_err(|error| format!("{}: {error}", tar.display()))?;
    let done = Command::new(&words[0]).args(&words[1..]).stdin(input).output();
    let done = done.map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("import: {}", String::from_utf8_lossy(&done.stderr)))
}

/// A port of this machine that nobody has at present.
fn free_port() -> Outcome<u16> {
    Ok(free_ports(1)?[0])
}

/// Ports of this machine that nobody has at present.
fn free_ports(count: usize) -> Outcome<Vec<u16>> {
    // All at once, so that they differ.
    let ports = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let ports = ports.collect::<std::io::Result<Vec<_>>>().map_err(|error| error.to_string())?;
    let port = |one: &TcpListener| one.local_addr().map(|address| address.port());
    ports.iter().map(|one| port(one).map_err(|error| error.to_string())).collect()
}

/// What a server answers; `None` if that is not a page.
fn get(port: u16) -> Option<String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), SOON)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().ok().filter(|text| text.contains(" 200 "))
}

/// A result without a peer.
fn alone(what: &str, ours: String, value: f64, aim: f64, unit: &'static str) -> Line {
    Line {
        what: what.to_owned(),
        against: String::new(),
        ours,
        theirs: String::new(),
        value,
        aim,
        unit,
    }
}

/// The result with what a peer took, if there is one. The aim is still for the result alone.
fn beside(line: Line, against: &str, theirs: Option<String>) -> Line {
    let Some(theirs) = theirs else { return line };
    Line { against: against.to_owned(), theirs, ..line }
}

/// A fact beside the results.
fn fact(what: &str, ours: String) -> Line {
    alone(what, ours, f64::NAN, f64::INFINITY, "")
}

/// Seconds beside a peer's, compared by their ratio.
fn ratio(what: &str, against: &str, seconds: [f64; 2], aim: f64) -> Line {
    let [ours, theirs] = seconds;
    Line {
        what: what.to_owned(),
        against: against.to_owned(),
        ours: super::milliseconds(ours),
        theirs: super::milliseconds(theirs),
        value: ours / theirs,
        aim,
        unit: "",
    }
}
