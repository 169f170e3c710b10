//! Networks of packets (N1), beside a veth pair between two network namespaces: the least that
//! packets between namespaces cost.
//!
//! The switch is a process of its own and needs a processor, so nobody here has real-time priority.
//! Its time counts to that of a transfer.

use std::fs;
use std::process::Command;

use super::{IMAGE, Place, Stdio, as_measured, coracle, own, run, words};
use crate::bench::Bench;
use crate::shell::Outcome;
use crate::tools;

const NETWORK: &str = "bench-packets";
const SERVER: &str = "net-N1";
const ADDRESS: &str = "100.91.0.2";
const NAMESPACES: [&str; 2] = ["coracle-bench-a", "coracle-bench-b"];
const VETH: &str = "10.98.0.1";
const PORT: &str = "80";

/// `$1` and `$2` are the namespaces.
const MAKE: &str = "set -e; PATH=$PATH:/usr/sbin:/sbin
for n in $1 $2; do ip netns add $n; ip -n $n link set lo up; done
ip -n $1 link add eth0 type veth peer name eth0 netns $2
ip -n $1 addr add 10.98.0.1/24 dev eth0
ip -n $2 addr add 10.98.0.2/24 dev eth0
ip -n $1 link set eth0 mtu 65520 up
ip -n $2 link set eth0 mtu 65520 up";
const END: &str = "PATH=$PATH:/usr/sbin:/sbin; ip netns del $1; ip netns del $2";

/// The namespaces of a pair, which are removed with it.
pub(super) struct Pair;

impl Pair {
    fn script(text: &str) -> Outcome {
        let [one, other] = NAMESPACES;
        run(&own(&["sh", "-c", text, "sh", one, other])).map(drop)
    }

    /// Makes them. Root only.
    pub(super) fn make() -> Outcome<Self> {
        if !tools::is_root() {
            return Err("namespaces with names are made by root only".to_owned());
        }
        let pair = Self;
        Self::script(MAKE)?;
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = Self::script(END);
    }
}

fn on(processor: &str) -> Vec<String> {
    own(&["taskset", "-c", processor])
}

/// Server and caller at both ends of the pair.
pub(super) fn veth(bench: &Bench, program: &str) -> Outcome<Place> {
    let user = as_measured(bench);
    let inside = |name: &str| own(&["nsenter", &format!("--net=/run/netns/{name}")]);
    let serve = own(&[program, "net-serve", "0.0.0.0", PORT]);
    // A port below 1024 of a namespace is its owner's, which is root.
    let open = own(&["sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=0"]);
    run(&words(&[&inside(NAMESPACES[0]), &open]))?;
    let serve = words(&[&on("0"), &inside(NAMESPACES[0]), &user, &serve]);
    let server = Command::new(&serve[0]).args(&serve[1..]).stdin(Stdio::null()).spawn();
    Ok(Place {
        name: "veth",
        caller: words(&[&on("1"), &inside(NAMESPACES[1]), &user, &own(&[program])]),
        address: VETH,
        port: PORT,
        server: Some(server.map_err(|error| format!("{}: {error}", serve[0]))?),
        is_peer: false,
        agent: None,
        found: Default::default(),
    })
}

/// Two members of a network of packets.
pub(super) fn members(bench: &Bench) -> Outcome<Place> {
    bench.coracle(&["network", "create", NETWORK, "--internal", "--subnet", "100.91.0.0/24"])?;
    let user = as_measured(bench);
    let options = ["run", "-d", "--name", SERVER, "--execmode=N1", "--network", NETWORK];
    let serve = ["--ip", ADDRESS, IMAGE, "/bin/xtask", "net-serve", "0.0.0.0", PORT];
    run(&words(&[&on("0"), &user, &coracle(bench), &own(&options), &own(&serve)]))?;
    let agent = super::find_agent(&bench.coracle).ok_or("no switch")?.to_string();
    // It was begun by a container that had a processor of its own.
    run(&own(&["taskset", "-apc", "0-1", &agent]))?;
    if tools::is_root() {
        run(&own(&["chrt", "-a", "-o", "-p", "0", &agent]))?;
    }
    let call = ["run", "--rm", "--execmode=N1", "--network", NETWORK, IMAGE, "/bin/xtask"];
    Ok(Place {
        name: "N1",
        caller: words(&[&on("1"), &user, &coracle(bench), &own(&call)]),
        address: ADDRESS,
        port: PORT,
        server: None,
        is_peer: false,
        agent: Some(agent),
        found: Default::default(),
    })
}

/// Removes what [`members`] has made.
pub(super) fn end(bench: &Bench) {
    let _ = bench.coracle(&["rm", "-f", SERVER]);
    let _ = bench.coracle(&["network", "rm", NETWORK]);
}

/// Seconds of processors that all threads of a process have taken.
pub(super) fn time_of(process: &str) -> f64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let time = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    time.sum::<f64>() / 1e9
}
