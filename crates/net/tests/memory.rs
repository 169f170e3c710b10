//! What the links of one host to 64 others cost in memory: a process of its own, which the others
//! dial or are dialled by.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use net::peers::{Handler, Host, Key, List, Message, Peers, PublicKey};

const OTHERS: usize = 64;
/// The agent may have 8 MB; this is the part of its links.
const LIMIT_KB: u64 = 6 << 10;
const PATIENCE: Duration = Duration::from_mins(1);

struct Nobody;

impl Handler for Nobody {
    fn up(&self, _: &PublicKey) {}
    fn down(&self, _: &PublicKey) {}
    fn message(&self, _: &PublicKey, _: Message) {}
}

/// Each run has ports of its own: those of the one before may still be closing.
fn place(run: usize, number: usize) -> SocketAddrV4 {
    let third = (std::process::id() % 250) as u8;
    SocketAddrV4::new(Ipv4Addr::new(127, 99, third, number as u8 + 1), 7370 + run as u16)
}

fn start(key: &Key, list: List) -> Peers {
    let own = list.find(&key.public()).unwrap().place();
    Peers::start("far", key, own, list, Arc::new(Nobody)).unwrap()
}

fn wait_for_links(peers: &Peers, count: usize) {
    let until = Instant::now() + PATIENCE;
    while peers.states().iter().filter(|state| state.up).count() < count {
        assert!(Instant::now() < until, "{:?}", peers.states());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The least of some runs counts: how many hosts greet at once differs, and what that takes is kept
/// by the allocator.
#[test]
fn links_to_64_hosts_take_little_memory() {
    const RUNS: usize = 5;
    let mut all = Vec::new();
    while all.len() < RUNS && all.last().is_none_or(|kb| *kb > LIMIT_KB) {
        all.push(links_take(all.len()));
    }
    assert!(all.last().is_some_and(|kb| *kb <= LIMIT_KB), "{OTHERS} links take {all:?} kB");
}

/// How many kilobytes all links take.
fn links_take(run: usize) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let keys: Vec<Key> = (0..=OTHERS).map(|_| Key::generate().unwrap()).collect();
    let host = |(number, key): (usize, &Key)| Host {
        name: format!("host{number}"),
        address: *place(run, number).ip(),
        port: place(run, number).port(),
        key: key.public(),
        subnet: "100.80.0.0/16".parse().unwrap(),
        ipv6: None,
        internal: false,
        auxiliary: [].into(),
        revoked: false,
    };
    let list = List { epoch: 1, hosts: keys.iter().enumerate().map(host).collect() };
    keys[0].write(&directory.path().join("key")).unwrap();
    let text = serde_json::to_vec(&list).unwrap();
    std::fs::write(directory.path().join("list"), text).unwrap();
    // The others know the first one only.
    let others: Vec<Peers> = keys[1..]
        .iter()
        .map(|key| {
            let mut own = list.clone();
            for host in &mut own.hosts[1..] {
                host.revoked = host.key != key.public();
            }
            start(key, own)
        })
        .collect();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_one", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{}", directory.path().display()).unwrap();
    let told = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let numbers: Vec<u64> = told
        .filter_map(|line| Some(line.split_once("resident: ")?.1.to_owned()))
        .flat_map(|line| line.split(' ').map(|one| one.parse().unwrap()).collect::<Vec<u64>>())
        .collect();
    assert!(child.wait().unwrap().success());
    drop(others);
    let [before, after] = numbers[..] else { panic!("{numbers:?}") };
    println!("{OTHERS} links take {} kB, beside {before} kB", after - before);
    after - before
}

/// The host with many links; started by the test above.
#[test]
#[ignore = "a part of the test of memory, which executes it"]
fn the_one() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let directory = Path::new(line.trim_end());
    let key = Key::read(&directory.join("key")).unwrap().unwrap();
    let list = std::fs::read(directory.join("list")).unwrap();
    let list: List = serde_json::from_slice(&list).unwrap();
    let before = resident_kb();
    let peers = start(&key, list);
    wait_for_links(&peers, OTHERS);
    println!("resident: {before} {}", resident_kb());
}
