//! Networks with names on one host: connections beside the host's loopback, and beside networks of
//! packets that end in `pasta` and `slirp4netns`; the look-up, and the agent.
//!
//! Server and caller of the project and of the host have real-time priority if root calls. A peer
//! is a container in a network namespace with a published port, called from the host: the shortest
//! way that its packets can have.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use super::IMAGE;
use super::place::{
    PORT, Place, compared, coracle, first_on, on, own, rounds, run, time_of, words,
};
use crate::places::as_measured;
use crate::{Bench, Line};
use xtask::shell::{Outcome, has};

const NETWORK: &str = "bench";
/// The first member's address.
const SERVER: &str = "100.90.0.2";
const HERE: &str = "127.0.0.1";
/// Containers with servers: two of the network, two peers.
const SERVERS: [&str; 4] = ["net-I1", "net-P1", "net-pasta", "net-slirp4netns"];
/// How many members the agent has when its memory is measured.
const MEMBERS: usize = 64;
/// How many seconds a peer may take for one work.
const PATIENCE: &str = "30";
/// The greatest ratios of I1, in the order of the works and the processors' time.
pub(super) const AIMS: [f64; 5] = [1.0 / 0.98, 1.03, 1.06, 1.25, 1.0 / 0.98];

pub(super) fn measure(bench: &Bench, program: &str) -> Outcome<Vec<Line>> {
    bench.coracle(&["network", "create", NETWORK, "--subnet", "100.90.0.0/24"])?;
    let done = measured(bench, program);
    let more: Vec<String> = (0..MEMBERS).map(member_name).collect();
    let mut remove = vec!["rm", "-f"];
    remove.extend(SERVERS.into_iter().chain(more.iter().map(String::as_str)));
    let _ = bench.coracle(&remove);
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
    rounds(bench, &mut places)?;
    let aim = |name: &str, at: usize| if name == "I1" { AIMS[at] } else { f64::INFINITY };
    let mut lines = compared(&places, "the host's loopback", aim);
    lines.push(lookup(program)?);
    lines.extend(agent(bench)?);
    Ok(lines)
}

/// Server and caller on the host's loopback.
fn native(bench: &Bench, program: &str) -> Outcome<Place> {
    let program = own(&[program]);
    let user = as_measured(bench);
    let serve = words(&[&first_on("0"), &user, &program, &own(&["net-serve", HERE, PORT])]);
    let caller = words(&[&first_on("1"), &user, &program]);
    Place { port: PORT, ..Place::new("host", caller, HERE) }.with_server(&serve)
}

/// Two members of a network with names.
fn member(bench: &Bench, mode: &'static str, server: &'static str) -> Outcome<Place> {
    let execmode = format!("--execmode={mode}");
    let address = if mode == "I1" { SERVER } else { "100.90.0.3" };
    let options = ["run", "-d", "--name", server, "--network", NETWORK, "--ip", address];
    let serve = ["/bin/bench", "net-serve", "0.0.0.0", "80"];
    run(&words(&[
        &first_on("0"),
        &coracle(bench),
        &own(&options),
        &own(&[&execmode, IMAGE]),
        &own(&serve),
    ]))?;
    let call = ["run", "--rm", "--network", NETWORK, &execmode, IMAGE, "/bin/bench"];
    let caller = words(&[&first_on("1"), &coracle(bench), &own(&call)]);
    Ok(Place::new(mode, caller, address))
}

/// A caller in a container that has the host's network.
fn without(bench: &Bench, mode: &'static str) -> Place {
    let execmode = format!("--execmode={mode}");
    let call = ["run", "--rm", &execmode, IMAGE, "/bin/bench"];
    let name = if mode == "I1" { "I1, no network" } else { "P1, no network" };
    let caller = words(&[&first_on("1"), &coracle(bench), &own(&call)]);
    Place { port: PORT, ..Place::new(name, caller, HERE) }
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
    let serve = [IMAGE, "/bin/bench", "net-serve", "0.0.0.0", port];
    let user = as_measured(bench);
    let program_of = own(&[&bench.coracle.display().to_string()]);
    // Without real-time priority: pasta waits in a loop, and would keep its own server off.
    let pinned = |processor| words(&[&own(&["timeout", PATIENCE]), &on(processor)]);
    run(&words(&[&pinned("0"), &user, &path, &program_of, &own(&options), &own(&serve)]))?;
    let caller = words(&[&pinned("1"), &user, &own(&[program])]);
    // A helper's own time is not known.
    Ok(Place { port, others: None, ..Place::of_peer(name, caller, HERE) })
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

fn member_name(number: usize) -> String {
    format!("net-member-{number}")
}

/// Memory of the process that answers for names of many members, and its time while nothing is
/// asked.
fn agent(bench: &Bench) -> Outcome<Vec<Line>> {
    const WAIT: Duration = Duration::from_secs(5);
    for number in 0..MEMBERS {
        let name = member_name(number);
        let options = ["run", "-d", "--name", &name, "--network", NETWORK, "--execmode=I1"];
        let serve = [IMAGE, "/bin/bench", "net-serve", "0.0.0.0", "80"];
        bench.coracle(&[&options[..], &serve].concat())?;
    }
    let pid = *super::agents(&bench.coracle).first().ok_or("no process answers for names")?;
    // What their starts have begun is over soon.
    std::thread::sleep(Duration::from_secs(1));
    let before = time_of(pid);
    std::thread::sleep(WAIT);
    let part = (time_of(pid) - before) / WAIT.as_secs_f64() * 100.0;
    let line = |what: &str, value: f64, aim, unit| Line {
        what: what.to_owned(),
        against: String::new(),
        ours: format!("{value:.2} {unit}"),
        theirs: String::new(),
        value,
        aim,
        unit,
    };
    let memory = memory_of(pid).ok_or("no size of a process")?;
    let mut lines = vec![
        line(&format!("memory of the agent of {MEMBERS} members (PSS)"), memory, 8.0, "MB"),
        line("time of the agent while it waits", part, 0.1, "%"),
    ];
    // pasta is the same program as passt, and called so there.
    for (name, process) in [("pasta", "passt"), ("slirp4netns", "slirp4netns")] {
        let theirs = super::processes(|comm, _| comm.starts_with(process));
        if let Some(memory) = theirs.first().and_then(|pid| memory_of(*pid)) {
            lines.push(Line {
                what: "memory of the agent beside a peer for one container (PSS)".to_owned(),
                against: name.to_owned(),
                ours: lines[0].ours.clone(),
                theirs: format!("{memory:.2} MB"),
                value: lines[0].value / memory,
                aim: f64::INFINITY,
                unit: "",
            });
        }
    }
    Ok(lines)
}

/// The memory of a process in MB, of pages that several have its part.
fn memory_of(process: u32) -> Option<f64> {
    let memory = fs::read_to_string(Path::new(&format!("/proc/{process}/smaps_rollup"))).ok()?;
    let memory = memory.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(memory.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}
