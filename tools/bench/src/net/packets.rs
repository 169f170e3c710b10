//! Networks of packets (N1) on one host, beside a veth pair between two network namespaces: the
//! least that packets between namespaces cost.
//!
//! The switch is a process of its own and needs a processor, so nobody here has real-time priority.
//! Its time counts to that of a transfer. What members of a host say to each other is not
//! encrypted.

use std::num::NonZero;

use super::IMAGE;
use super::place::{
    COUNTS, Place, TIME, compared, coracle, later, lost, on, own, rounds, run, words,
};
use crate::places::as_measured;
use crate::{Bench, Line};
use xtask::shell::Outcome;
use xtask::tools;

const NETWORK: &str = "bench-packets";
const SERVER: &str = "net-N1";
const ADDRESS: &str = "100.91.0.2";
const NAMESPACES: [&str; 2] = ["coracle-bench-a", "coracle-bench-b"];
const VETH: &str = "10.98.0.1";

/// The most that a round trip takes longer, in microseconds.
pub(super) const LATER: f64 = 40.0;
/// The greatest part of datagrams that is lost, in percent.
pub(super) const LOST: f64 = 1.0;
/// The greatest ratio of the time of a transfer.
pub(super) const SLOWER: f64 = 2.0;
/// The greatest ratios of the processors' time, with long and with usual packets.
const COSTS: [f64; 2] = [1.9, 2.3];

/// `$1` and `$2` are the namespaces.
const MAKE: &str = "set -e; PATH=$PATH:/usr/sbin:/sbin
for n in $1 $2; do ip netns add $n; ip -n $n link set lo up; done
ip -n $1 link add eth0 type veth peer name eth0 netns $2
ip -n $1 addr add 10.98.0.1/24 dev eth0
ip -n $2 addr add 10.98.0.2/24 dev eth0
ip -n $1 link set eth0 mtu 65520 up
ip -n $2 link set eth0 mtu 65520 up";
const SHORTEN: &str = "set -e; PATH=$PATH:/usr/sbin:/sbin
for n in $1 $2; do ip -n $n link set eth0 mtu 1500; done";
const END: &str = "PATH=$PATH:/usr/sbin:/sbin; ip netns del $1; ip netns del $2";

pub(super) fn measure(bench: &Bench, program: &str) -> Outcome<Vec<Line>> {
    if !tools::is_root() {
        println!("SKIP bench net packets: namespaces with names are made by root only");
        return Ok(Vec::new());
    }
    let pair = Pair::make()?;
    let done = measured(bench, program);
    let _ = bench.coracle(&["rm", "-f", SERVER]);
    let _ = bench.coracle(&["network", "rm", NETWORK]);
    drop(pair);
    done
}

fn measured(bench: &Bench, program: &str) -> Outcome<Vec<Line>> {
    let mut places = [veth(bench, program)?, members(bench)?];
    rounds(bench, &mut places)?;
    let aim = |cost: f64| {
        move |_: &str, at: usize| match at {
            0 => SLOWER,
            TIME => cost,
            _ => f64::INFINITY,
        }
    };
    let mut lines = compared(&places, "a veth pair, 64 kB", aim(COSTS[0]));
    lines.push(later(&places[1], &places[0], LATER));
    lines.push(lost(&places[1], &places[0], LOST)?);
    // A connection's packets are as long as both ends allow.
    Pair::script(SHORTEN)?;
    let pid = bench.coracle(&["inspect", "-f", "{{.State.Pid}}", SERVER])?;
    let device = own(&["nsenter", "--net", "-t", pid.trim(), "ip", "link", "set", "eth0"]);
    run(&words(&[&device, &own(&["mtu", "1500"])]))?;
    for place in &mut places {
        place.begin_again([COUNTS[0], 0, 0, 0]);
    }
    rounds(bench, &mut places)?;
    lines.extend(compared(&places, "a veth pair, 1500 bytes", aim(COSTS[1])));
    Ok(lines)
}

/// The namespaces of a pair, which are removed with it.
struct Pair;

impl Pair {
    fn script(text: &str) -> Outcome {
        let [one, other] = NAMESPACES;
        run(&own(&["sh", "-c", text, "sh", one, other])).map(drop)
    }

    /// Makes them. Root only.
    fn make() -> Outcome<Self> {
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

/// Server and caller at both ends of the pair.
fn veth(bench: &Bench, program: &str) -> Outcome<Place> {
    let user = as_measured(bench);
    let inside = |name: &str| own(&["nsenter", &format!("--net=/run/netns/{name}")]);
    let serve = own(&[program, "net-serve", "0.0.0.0", "80"]);
    // A port below 1024 of a namespace is its owner's, which is root.
    let open = own(&["sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=0"]);
    run(&words(&[&inside(NAMESPACES[0]), &open]))?;
    let serve = words(&[&on("0"), &inside(NAMESPACES[0]), &user, &serve]);
    let caller = words(&[&on("1"), &inside(NAMESPACES[1]), &user, &own(&[program])]);
    Place::new("veth", caller, VETH).with_server(&serve)
}

/// Two members of a network of packets.
fn members(bench: &Bench) -> Outcome<Place> {
    bench.coracle(&["network", "create", NETWORK, "--internal", "--subnet", "100.91.0.0/24"])?;
    let options = ["run", "-d", "--name", SERVER, "--execmode=N1", "--network", NETWORK];
    let serve = ["--ip", ADDRESS, IMAGE, "/bin/bench", "net-serve", "0.0.0.0", "80"];
    run(&words(&[&on("0"), &coracle(bench), &own(&options), &own(&serve)]))?;
    let agents = super::agents(&bench.coracle);
    free(&agents)?;
    let call = ["run", "--rm", "--execmode=N1", "--network", NETWORK, IMAGE, "/bin/bench"];
    let caller = words(&[&on("1"), &coracle(bench), &own(&call)]);
    Ok(Place { others: Some(agents), ..Place::new("N1", caller, ADDRESS) })
}

/// Lets agents use all processors: each was begun by a container that had one of its own.
pub(super) fn free(agents: &[u32]) -> Outcome {
    let all = format!("0-{}", std::thread::available_parallelism().map_or(1, NonZero::get) - 1);
    for agent in agents {
        run(&own(&["taskset", "-apc", &all, &agent.to_string()]))?;
    }
    if agents.is_empty() { Err("no switch".to_owned()) } else { Ok(()) }
}
