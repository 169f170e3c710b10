//! Other programs that join hosts, on the same hosts: `n2n` and `boringtun`, which encrypt, and
//! VXLAN in network namespaces whose way out is `pasta` or `slirp4netns`. What carries packets does
//! so as for any user; it is root's because its devices and namespaces are simpler to make so.

use super::cluster::Cluster;
use super::place::{PORT, Place, Running, on, own, words};
use crate::places::as_measured;
use xtask::shell::{Outcome, has};
use xtask::tools;

/// A program that joins the hosts.
struct Peer {
    name: &'static str,
    needs: &'static [&'static str],
    /// Runs until it is ended, as root. It knows `$1` and `$2`, the numbers of this host and of the
    /// other one, and `$3`, the path of boringtun.
    script: &'static str,
    /// The second host's address in the peer's network.
    address: &'static str,
    /// The network namespace on each host where both ends are, if it is one of the peer's.
    namespace: Option<&'static str>,
    /// Names of its processes, whose time counts.
    processes: &'static [&'static str],
}

/// What they do of each work: n2n takes a minute for a GiB.
const COUNTS: [u32; 4] = [64, 2000, 300, 0];
/// How many seconds one may take for one work.
const PATIENCE: &str = "30";

const PEERS: [Peer; 4] = [
    Peer {
        name: "n2n",
        needs: &["edge", "supernode"],
        script: include_str!("peers/n2n.sh"),
        address: "10.97.1.2",
        namespace: None,
        processes: &["edge", "supernode"],
    },
    Peer {
        name: "boringtun",
        needs: &["wg"],
        script: include_str!("peers/boringtun.sh"),
        address: "10.97.2.2",
        namespace: None,
        processes: &["boringtun-cli"],
    },
    Peer {
        name: "VXLAN in pasta",
        needs: &["pasta"],
        script: include_str!("peers/pasta.sh"),
        address: "10.97.3.2",
        namespace: Some("/run/pasta-net"),
        processes: &["passt", "passt.avx2"],
    },
    Peer {
        name: "VXLAN in slirp4netns",
        needs: &["slirp4netns", "python3"],
        script: include_str!("peers/slirp4netns.sh"),
        address: "10.97.4.2",
        namespace: Some("/run/slirp-net"),
        processes: &["slirp4netns"],
    },
];

/// Starts what can run here; says why the others cannot.
pub(super) fn start(cluster: &Cluster<'_>, program: &str) -> (Vec<Place>, Vec<Running>) {
    let (mut places, mut helpers) = (Vec::new(), Vec::new());
    for peer in &PEERS {
        match peer.start(cluster, program, &mut helpers) {
            Ok(place) => places.push(place),
            Err(reason) => println!("SKIP bench net hosts, {}: {reason}", peer.name),
        }
    }
    (places, helpers)
}

impl Peer {
    fn start(
        &self,
        cluster: &Cluster<'_>,
        program: &str,
        helpers: &mut Vec<Running>,
    ) -> Outcome<Place> {
        if let Some(missing) = self.needs.iter().find(|name| !has(name)) {
            return Err(format!("{missing} is not installed"));
        }
        let own_program =
            if self.name == "boringtun" { tools::boringtun()? } else { String::new() };
        for (here, there) in [("1", "2"), ("2", "1")] {
            let script = ["sh", "-c", self.script, self.name, here, there, &own_program];
            let host = usize::from(here == "2");
            helpers.push(Running::start(&cluster.on(host, &own(&script)))?);
        }
        let user = as_measured(cluster.bench);
        let mut inside = Vec::new();
        if let Some(path) = self.namespace {
            inside = own(&["nsenter", &format!("--net={path}")]);
            cluster.wait(1, &words(&[&inside, &own(&["ip", "addr", "show", "vxlan0"])]))?;
            let serve = own(&[program, "net-serve", "0.0.0.0", PORT]);
            let serve = words(&[&on("0"), &inside, &user, &serve]);
            helpers.push(Running::start(&cluster.on(1, &serve))?);
        }
        let caller = words(&[&on("1"), &inside, &user, &own(&[program])]);
        let connect = own(&["net-work", self.address, PORT, "connect", "1"]);
        cluster.wait(0, &words(&[&own(&["timeout", "3"]), &caller, &connect]))?;
        let caller = words(&[&own(&["timeout", PATIENCE]), &caller]);
        let others = cluster.others(|name| self.processes.contains(&name));
        let place = Place::of_peer(self.name, cluster.on(0, &caller), self.address);
        Ok(Place { port: PORT, others: Some(others), counts: COUNTS, ..place })
    }
}
