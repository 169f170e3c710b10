//! Measures networks with names: connections between two containers beside the host's loopback,
//! and beside networks of packets that end in `pasta` and `slirp4netns`.
//!
//! A server and a caller ([`work`]) have a processor each; those of the project and of the host
//! have real-time priority if root calls. Every place in turn does each work once in a round, and
//! medians are compared. A peer is a container in a network namespace with a published port, called
//! from the host: the shortest way that its packets can have.
//!
//! Networks of packets (N1) are compared with a pair of devices instead ([`packets`]).
//!
//! The other lines: what the table takes to find one of 1,000 members, what the process that
//! answers for names takes while it waits, and that a container without a network takes no longer.

mod packets;
pub(super) mod work;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::layer::Layer;

use super::places::as_measured;
use super::{Bench, Line, median};
use crate::shell::{Outcome, built, cargo, check, has};
use crate::tools;

const IMAGE: &str = "localhost/bench/net:1";
const NETWORK: &str = "bench";
/// The first member's address.
const SERVER: &str = "100.90.0.2";
const HERE: &str = "127.0.0.1";
/// Names, counts, and the aims for I1: the greatest ratio.
const WORK: [(&str, &str, f64); 4] = [
    ("stream", "1024", 1.0 / 0.98),
    ("ping-pong", "20000", 1.03),
    ("connect", "3000", 1.06),
    ("sendto", "50000", 1.25),
];
/// The most that a peer does: packets take hundreds of times as long.
const OF_PEERS: [&str; 4] = ["256", "2000", "300", "0"];
/// How many seconds a peer may take for one work.
const PATIENCE: &str = "30";
/// The device for networks of packets.
const TUN: &str = "/dev/net/tun";

/// A place: a server that runs, and how one calls it.
struct Place {
    name: &'static str,
    caller: Vec<String>,
    address: &'static str,
    port: &'static str,
    /// What is there to end: a process of the host, or a container.
    server: Option<Child>,
    is_peer: bool,
    /// The process of a switch, whose time counts.
    agent: Option<String>,
    /// Numbers of each round: four works, and the processors' time of the first.
    found: [Vec<f64>; 5],
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

pub(crate) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    let program = optimised(bench)?;
    load(bench, &program)?;
    bench.coracle(&["network", "create", NETWORK, "--subnet", "100.90.0.0/24"])?;
    let opened = OpenTun::new();
    let done = measured(bench, &program.display().to_string());
    drop(opened);
    for name in SERVERS {
        let _ = bench.coracle(&["rm", "-f", name]);
    }
    packets::end(bench);
    let _ = bench.coracle(&["network", "rm", NETWORK]);
    done
}

fn measured(bench: &Bench, program: &str) -> Outcome<Vec<Line>> {
    let mut places = vec![native(bench, program)?];
    for (mode, server) in [("I1", SERVERS[0]), ("P1", SERVERS[1])] {
        places.push(member(bench, mode, server)?);
        places.push(without(bench, mode));
    }
    for (name, server, port) in
        [("pasta", SERVERS[2], "18002"), ("slirp4netns", SERVERS[3], "18003")]
    {
        match peer(bench, (name, program), server, port) {
            Ok(place) => places.push(place),
            Err(reason) => println!("SKIP bench net, {name}: {reason}"),
        }
    }
    println!(
        "SKIP bench net, n2n and boringtun-cli: they connect hosts, which one network has not"
    );
    for _ in 0..bench.rounds {
        for place in &mut places {
            if let Err(error) = place.round() {
                if !place.is_peer {
                    return Err(error);
                }
                println!("{error}");
            }
        }
    }
    let mut lines = compared(&places);
    match in_packets(bench, program) {
        Ok(more) => lines.extend(more),
        Err(reason) => println!("SKIP bench net, N1: {reason}"),
    }
    lines.push(lookup(program)?);
    lines.extend(agent(bench)?);
    Ok(lines)
}

/// Containers with servers: two of the network, two peers.
const SERVERS: [&str; 4] = ["net-I1", "net-P1", "net-pasta", "net-slirp4netns"];

/// This program, compiled for speed, where users can read it.
fn optimised(bench: &Bench) -> Outcome<PathBuf> {
    check(&mut cargo(&["build", "--release", "--locked", "--quiet", "--package", "xtask"]))?;
    let public = bench.scratch.path().join("xtask-net");
    fs::copy(built("release", "xtask"), &public).map_err(|error| error.to_string())?;
    Ok(public)
}

/// The image has this program alone.
fn load(bench: &Bench, program: &Path) -> Outcome {
    let program = fs::read(program).map_err(|error| error.to_string())?;
    let layer = Layer::new().file("bin/xtask", 0o755, program);
    let layout = bench.scratch.path().join("net");
    let image = testkit::guest::image().layer(layer).build();
    image.write_layout(&layout, IMAGE).map_err(|error| error.to_string())?;
    bench.coracle(&["load", "-q", "-i", &layout.display().to_string()]).map(drop)
}

/// The words before a program on a processor of its own.
fn pinned(processor: &str) -> Vec<String> {
    let mut words = vec!["taskset", "-c", processor];
    if tools::is_root() {
        words.extend(["chrt", "-f", "10"]);
    }
    words.into_iter().map(str::to_owned).collect()
}

fn words(all: &[&[String]]) -> Vec<String> {
    all.concat()
}

fn own(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn coracle(bench: &Bench) -> Vec<String> {
    vec![bench.coracle.display().to_string()]
}

fn run(all: &[String]) -> Outcome<String> {
    crate::shell::read(Command::new(&all[0]).args(&all[1..]))
}

/// Server and caller on the host's loopback.
fn native(bench: &Bench, program: &str) -> Outcome<Place> {
    const PORT: &str = "18001";
    let program = own(&[program]);
    let user = as_measured(bench);
    let serve = words(&[&pinned("0"), &user, &program, &own(&["net-serve", HERE, PORT])]);
    let server = Command::new(&serve[0]).args(&serve[1..]).stdin(Stdio::null()).spawn();
    Ok(Place {
        name: "host",
        caller: words(&[&pinned("1"), &user, &program]),
        address: HERE,
        port: PORT,
        server: Some(server.map_err(|error| format!("{}: {error}", serve[0]))?),
        is_peer: false,
        agent: None,
        found: Default::default(),
    })
}

/// Two members of a network with names.
fn member(bench: &Bench, mode: &'static str, server: &'static str) -> Outcome<Place> {
    let (user, execmode) = (as_measured(bench), format!("--execmode={mode}"));
    let address = if mode == "I1" { SERVER } else { "100.90.0.3" };
    let options = ["run", "-d", "--name", server, "--network", NETWORK, "--ip", address];
    let serve = ["/bin/xtask", "net-serve", "0.0.0.0", "80"];
    let all = words(&[
        &pinned("0"),
        &user,
        &coracle(bench),
        &own(&options),
        &own(&[&execmode, IMAGE]),
        &own(&serve),
    ]);
    run(&all)?;
    let call = ["run", "--rm", "--network", NETWORK, &execmode, IMAGE, "/bin/xtask"];
    Ok(Place {
        name: mode,
        caller: words(&[&pinned("1"), &user, &coracle(bench), &own(&call)]),
        address,
        port: "80",
        server: None,
        is_peer: false,
        agent: None,
        found: Default::default(),
    })
}

/// A caller in a container that has the host's network.
fn without(bench: &Bench, mode: &'static str) -> Place {
    let execmode = format!("--execmode={mode}");
    let call = ["run", "--rm", &execmode, IMAGE, "/bin/xtask"];
    Place {
        name: if mode == "I1" { "I1, no network" } else { "P1, no network" },
        caller: words(&[&pinned("1"), &as_measured(bench), &coracle(bench), &own(&call)]),
        address: HERE,
        port: "18001",
        server: None,
        is_peer: false,
        agent: None,
        found: Default::default(),
    }
}

/// A server in a network namespace, with a published port.
fn peer(
    bench: &Bench,
    (name, program): (&'static str, &str),
    server: &'static str,
    port: &'static str,
) -> Outcome<Place> {
    if !has(name) {
        return Err("it is not installed".to_owned());
    }
    // It is the only one of both that Coracle finds.
    let found = bench.scratch.path().join(name);
    fs::create_dir_all(&found).map_err(|error| error.to_string())?;
    let path = testkit::command::find_program(name).ok_or("it is not found")?;
    symlink(path, found.join(name)).map_err(|error| error.to_string())?;
    let path = own(&["env", &format!("PATH={}", found.display())]);
    let publish = format!("{HERE}:{port}:{port}");
    let options =
        ["run", "-d", "--name", server, "--network", "private", "-p", &publish, "--execmode=N1"];
    let serve = [IMAGE, "/bin/xtask", "net-serve", "0.0.0.0", port];
    let user = as_measured(bench);
    // Without real-time priority: pasta waits in a loop, and would keep its own server off.
    let pinned = |processor| own(&["timeout", PATIENCE, "taskset", "-c", processor]);
    run(&words(&[&pinned("0"), &user, &path, &coracle(bench), &own(&options), &own(&serve)]))?;
    Ok(Place {
        name,
        caller: words(&[&pinned("1"), &user, &own(&[program])]),
        address: HERE,
        port,
        server: None,
        is_peer: true,
        agent: None,
        found: Default::default(),
    })
}

impl Place {
    fn round(&mut self) -> Outcome {
        for (at, (kind, count, _)) in WORK.iter().enumerate() {
            let count = if self.is_peer { OF_PEERS[at] } else { count };
            if count == "0" {
                continue;
            }
            let work = ["net-work", self.address, self.port, kind, count];
            let before = self.agent.as_deref().map_or(0.0, packets::time_of);
            let text = run(&words(&[&self.caller, &own(&work)]))
                .map_err(|error| format!("{}: {error}", self.name))?;
            let mut numbers = text.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
            self.found[at].extend(numbers.next());
            let after = self.agent.as_deref().map_or(0.0, packets::time_of);
            let gibibytes = count.parse::<f64>().map_or(1.0, |mebibytes| mebibytes / 1024.0);
            let agent = (after - before) / gibibytes;
            self.found[4].extend(numbers.next().map(|own| own + agent));
        }
        Ok(())
    }
}

/// What is measured, and how its numbers are shown.
fn title(at: usize) -> (&'static str, fn(f64) -> String) {
    let seconds: fn(f64) -> String = |value| format!("{value:.2} s");
    let micro: fn(f64) -> String = |value| format!("{:.2} µs", value / 1000.0);
    match at {
        0 => ("1 GiB by TCP", seconds),
        1 => ("1 byte there and back", micro),
        2 => ("connect, accept, close", micro),
        3 => ("sendto, not connected", micro),
        _ => ("processors' time for 1 GiB", seconds),
    }
}

/// The aims of networks of packets, in the order of [`title`], as ratios to a veth pair.
const PACKETS: [f64; 5] = [2.0, f64::INFINITY, f64::INFINITY, f64::INFINITY, 1.9];
/// The most that a round trip takes longer, in microseconds.
const LATER: f64 = 40.0;

fn in_packets(bench: &Bench, program: &str) -> Outcome<Vec<Line>> {
    let _pair = packets::Pair::make()?;
    let mut places = [packets::veth(bench, program)?, packets::members(bench)?];
    for _ in 0..bench.rounds {
        for place in &mut places {
            place.round()?;
        }
    }
    let middle = |place: &Place, at: usize| median(place.found[at].clone());
    let mut lines = Vec::new();
    for at in [0, 4, 1, 2, 3] {
        let (what, show) = title(at);
        let [theirs, ours] = [0, 1].map(|which| middle(&places[which], at));
        lines.push(Line {
            what: format!("{what}, N1"),
            against: "a veth pair, 64 kB".to_owned(),
            ours: show(ours),
            theirs: show(theirs),
            value: ours / theirs,
            aim: PACKETS[at],
            unit: "",
        });
        if at == 1 {
            let later = (ours - theirs) / 1000.0;
            lines.push(Line {
                what: format!("{what}, N1, beyond the pair"),
                against: String::new(),
                ours: format!("{later:.1} µs"),
                theirs: String::new(),
                value: later,
                aim: LATER,
                unit: "µs",
            });
        }
    }
    Ok(lines)
}

fn compared(places: &[Place]) -> Vec<Line> {
    let middle = |place: &Place, at: usize| median(place.found[at].clone());
    let mut lines = Vec::new();
    for at in [0, 4, 1, 2, 3] {
        let (what, show) = title(at);
        for place in &places[1..] {
            let (ours, theirs) = (middle(place, at), middle(&places[0], at));
            // A helper's own time is not counted.
            if ours.is_nan() || place.is_peer && at == 4 {
                continue;
            }
            let aim = match (place.name, WORK.get(at)) {
                ("I1", Some((_, _, aim))) => *aim,
                ("I1", None) => WORK[0].2,
                _ => f64::INFINITY,
            };
            let whose = if place.is_peer { " (peer)" } else { "" };
            lines.push(Line {
                what: format!("{what}, {}{whose}", place.name),
                against: "the host's loopback".to_owned(),
                ours: show(ours),
                theirs: show(theirs),
                value: ours / theirs,
                aim: (aim * 1000.0).round() / 1000.0,
                unit: "",
            });
        }
    }
    lines
}

/// What the table takes to find each of 1,000 members, and the socket at its port.
fn lookup(program: &str) -> Outcome<Line> {
    let text = run(&own(&[program, "net-lookup"]))?;
    let each: f64 = text.trim().parse().map_err(|_| format!("no time of a look-up: {text}"))?;
    Ok(Line {
        what: "finding one of 1,000 members and its socket".to_owned(),
        against: String::new(),
        ours: format!("{each:.0} ns"),
        theirs: String::new(),
        value: each,
        aim: 300.0,
        unit: "ns",
    })
}

/// Memory of the process that answers for names, and its time while nothing is asked.
fn agent(bench: &Bench) -> Outcome<Vec<Line>> {
    const WAIT: Duration = Duration::from_secs(5);
    let pid = find_agent(&bench.coracle).ok_or("no process answers for names")?;
    let file = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
    };
    let memory = file("smaps_rollup")?;
    let memory = memory.lines().find_map(|line| line.strip_prefix("Pss:"));
    let memory = memory.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    // In nanoseconds, unlike `stat`.
    let time = || {
        let text = file("schedstat")?;
        let first = text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
        first.ok_or_else(|| "no time of a process".to_owned())
    };
    let before = time()?;
    std::thread::sleep(WAIT);
    let part = (time()? - before) / 1e9 / WAIT.as_secs_f64() * 100.0;
    let line = |what: &str, value: f64, aim, unit| Line {
        what: what.to_owned(),
        against: String::new(),
        ours: format!("{value:.2} {unit}"),
        theirs: String::new(),
        value,
        aim,
        unit,
    };
    let memory = memory.ok_or("no size of a process")? / 1024.0;
    Ok(vec![
        line("memory of the agent (PSS)", memory, 8.0, "MB"),
        line("time of the agent while it waits", part, 0.1, "%"),
    ])
}

/// The user may have other stores, whose agents other binaries have started.
fn find_agent(binary: &Path) -> Option<u32> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let program = fs::read_link(entry.path().join("exe")).ok()?;
        (name.trim() == "coracle-names" && program == binary).then_some(pid)
    })
}

/// Opens the device to all users for the time of the run, if root calls and it is closed.
struct OpenTun(Option<fs::Permissions>);

impl OpenTun {
    fn new() -> Self {
        let before = fs::metadata(TUN).map(|about| about.permissions()).ok();
        let closed = before.filter(|mode| tools::is_root() && mode.mode() & 0o006 != 0o006);
        if closed.is_some() {
            let _ = fs::set_permissions(Path::new(TUN), fs::Permissions::from_mode(0o666));
        }
        Self(closed)
    }
}

impl Drop for OpenTun {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            let _ = fs::set_permissions(Path::new(TUN), before);
        }
    }
}
