//! Simulates several hosts that are joined by a network: each has its own network, name, process
//! ids, shared memory, terminals, `/tmp` and `/run`, and nothing but its link leads to the others.
//!
//! `unshare` makes the namespaces. One more network namespace is the wire: a bridge, to which each
//! host's `eth0` is connected, with addresses 10.99.0.1, 10.99.0.2 and so on. Links can be cut and
//! counted, and a relay can lose and delay what they carry. The hosts share the files of this
//! machine but for those named above, as machines with a network file system do; of `/tmp` they
//! share one directory, and the tests' own programs if these are there. Needs root.
//!
//! Everything on a host is a child of its first process, which dies with this value. So nothing is
//! left over: [`Hosts::left`] says what a test has not ended itself.

use std::collections::HashSet;
use std::fs;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Input, run_with, until};
use crate::machine::inside;
use crate::skip::{Skip, need_program};

/// Time limit of a change to a link.
const SOON: Duration = Duration::from_secs(20);

/// Hosts that run until they are dropped.
#[derive(Debug)]
pub struct Hosts {
    /// End before the wire does.
    relays: Vec<Child>,
    wire: First,
    firsts: Vec<First>,
}

/// A process of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number on this machine, not on the host.
    pub pid: u32,
    /// The number of its parent.
    pub parent: u32,
    /// Its words, with spaces between them; the name of one that has none.
    pub words: String,
}

impl Process {
    /// Ends it as `kill -9` does.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid.cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// All processes of this machine that have not ended, each with the inode number of its pid
/// namespace.
fn all_processes() -> Vec<(Process, u64)> {
    let found = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (head, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split(' ');
        // One that waits for its parent has ended.
        if fields.next()? == "Z" {
            return None;
        }
        let parent = fields.next()?.parse().ok()?;
        let namespace = fs::metadata(entry.path().join("ns/pid")).ok()?.ino();
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ").trim_end().to_owned();
        let name = || head.split_once('(').map_or("", |parts| parts.1).to_owned();
        let words = if words.is_empty() { name() } else { words };
        Some((Process { pid, parent, words }, namespace))
    });
    found.collect()
}

/// Whether the program lives that a command of [`Hosts::command`] has started on a host. The
/// command itself ends a moment after it.
pub fn lives_there(child: &Child) -> bool {
    all_processes().iter().any(|(process, _)| process.parent == child.id())
}

/// Ends the process that [`Hosts::command`] has started on a host, and not only the one that has
/// started it.
pub fn end_there(child: &mut Child) {
    let started = child.id();
    for (process, _) in all_processes() {
        if process.parent == started {
            process.kill();
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The first process of a host.
#[derive(Debug)]
struct First {
    /// `unshare`; its child is the first process there and dies with it.
    process: Child,
    /// Inode number of the pid namespace.
    namespace: u64,
}

/// `$1` is the host's name, the others are directories that stay, also below `/tmp`. The first
/// process leaves it to the kernel to wait for the children that end as its own: `trap '' CHLD`
/// would not do, for dash catches that signal itself.
const HOST: &str = r#"
set -e
PATH=$PATH:/usr/sbin:/sbin
hostname "$1"
shift
mount -t tmpfs tmpfs /mnt
for place; do
    mkdir -p "/mnt$place"
    mount --bind "$place" "/mnt$place"
done
mount -t tmpfs -o mode=1777 tmpfs /tmp
for place; do
    mkdir -p "$place"
    mount --bind "/mnt$place" "$place"
done
umount --recursive /mnt
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts /dev/pts
ip link set lo up
echo ready
exec env --ignore-signal=CHLD sleep infinity
"#;

const WIRE: &str = r"
set -e
PATH=$PATH:/usr/sbin:/sbin
ip link add wire type bridge
ip link set wire up
echo ready
exec sleep infinity
";

/// The directory with the programs of the tests.
fn built() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let above = own.ancestors().skip(1).take(2).filter(|path| *path != Path::new("/"));
    above.last().unwrap_or(Path::new("/usr")).to_owned()
}

impl First {
    fn start(script: &str, name: &str, shared: &Path) -> Result<Self, Skip> {
        let failed = |error: std::io::Error| Skip(format!("cannot make a host: {error}"));
        let mut process = Command::new("unshare")
            .args(["--net", "--uts", "--ipc", "--pid", "--mount", "--fork"])
            .args(["--kill-child", "--mount-proc", "sh", "-c", script, "host", name])
            .args([shared.to_owned(), built()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut said = [0; 5];
        if process.stdout.as_mut().is_none_or(|out| out.read_exact(&mut said).is_err()) {
            let mut why = String::new();
            let _ = process.stderr.as_mut().map(|error| error.read_to_string(&mut why));
            let _ = process.wait();
            return Err(Skip(format!("cannot make a host: {}", why.trim())));
        }
        let namespace = fs::metadata(format!("/proc/{}/ns/pid_for_children", process.id()));
        Ok(Self { process, namespace: namespace.map_err(failed)?.ino() })
    }

    /// Processes of the host, those in further namespaces included, the first one left out.
    fn others(&self) -> Vec<Process> {
        let all = all_processes();
        let of_host = all.iter().filter(|(_, namespace)| *namespace == self.namespace);
        let mut pids: HashSet<u32> = of_host.map(|(process, _)| process.pid).collect();
        // A namespace's processes are beneath the one that has made it.
        loop {
            let children = all.iter().filter(|(process, _)| pids.contains(&process.parent));
            let more: Vec<u32> = children.map(|(process, _)| process.pid).collect();
            let before = pids.len();
            pids.extend(more);
            if pids.len() == before {
                break;
            }
        }
        let is_first = |process: &Process| process.parent == self.process.id();
        let all = all.into_iter().map(|(process, _)| process);
        all.filter(|process| pids.contains(&process.pid) && !is_first(process)).collect()
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.end();
    }
}

impl Hosts {
    /// Starts `count` hosts, called `host1` and so on, at most 200. They share a directory.
    ///
    /// # Errors
    /// If that is not possible here.
    pub fn start(count: usize, shared: &Path) -> Result<Self, Skip> {
        Self::make(count, shared, None)
    }

    /// The same with links that lose a part of the frames, and delay the others by a time.
    ///
    /// # Errors
    /// If that is not possible here.
    pub fn start_bad(
        count: usize,
        shared: &Path,
        loss: f64,
        delay: Duration,
    ) -> Result<Self, Skip> {
        need_program("python3")?;
        Self::make(count, shared, Some((loss, delay)))
    }

    fn make(count: usize, shared: &Path, faults: Option<(f64, Duration)>) -> Result<Self, Skip> {
        if !rustix::process::getuid().is_root() {
            return Err(Skip("hosts with networks of their own are made by root only".into()));
        }
        for program in ["unshare", "nsenter", "hostname", "ip"] {
            need_program(program)?;
        }
        let wire = First::start(WIRE, "wire", shared)?;
        let mut hosts = Self { relays: Vec::new(), wire, firsts: Vec::new() };
        for number in 0..count {
            hosts.firsts.push(First::start(HOST, &format!("host{}", number + 1), shared)?);
            let (wire, host) = (hosts.wire.process.id(), hosts.firsts[number].process.id());
            let address = format!("{}/24", hosts.address(number));
            let port = port(number);
            let relayed = if faults.is_some() {
                format!(
                    "ip link add {port}in type veth peer name {port}out
                     ip link set {port}in addrgenmode none up
                     ip link set {port}out master wire up
                     ip link set {port} addrgenmode none up"
                )
            } else {
                format!("ip link set {port} master wire up")
            };
            let script = format!(
                "set -e; PATH=$PATH:/usr/sbin:/sbin
                 ip link add {port} type veth peer name eth0 index 100 netns {host}
                 {relayed}
                 nsenter --net=/proc/{host}/ns/net ip link set eth0 addrgenmode none
                 nsenter --net=/proc/{host}/ns/net ip addr add {address} dev eth0
                 nsenter --net=/proc/{host}/ns/net ip link set eth0 up"
            );
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/proc/{wire}/ns/net")).args(["sh", "-c", &script]);
            let done = run_with(&mut command, Input::Null, SOON);
            if done.code() != 0 {
                return Err(Skip(format!("cannot join hosts: {}", done.err().trim())));
            }
            if let Some((loss, delay)) = faults {
                hosts.relay(&port, loss, delay)?;
            }
        }
        Ok(hosts)
    }

    /// Starts the relay between a host's port and the bridge.
    fn relay(&mut self, port: &str, loss: f64, delay: Duration) -> Result<(), Skip> {
        let wire = self.wire.process.id();
        let mut relay = Command::new("nsenter")
            .arg(format!("--net=/proc/{wire}/ns/net"))
            .args(["python3", "-c", include_str!("hosts/relay.py"), port, &format!("{port}in")])
            .args([loss.to_string(), delay.as_secs_f64().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Skip(format!("no relay: {error}")))?;
        let mut said = [0; 5];
        let ready = relay.stdout.as_mut().is_some_and(|out| out.read_exact(&mut said).is_ok());
        self.relays.push(relay);
        if ready { Ok(()) } else { Err(Skip("the relay does not start".to_owned())) }
    }

    /// The number of hosts.
    pub fn count(&self) -> usize {
        self.firsts.len()
    }

    /// A host's address. Hosts count from 0.
    ///
    /// # Panics
    /// If the number is not that of a host.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, 0, u8::try_from(host + 1).expect("few hosts"))
    }

    /// The same command on a host.
    #[must_use]
    pub fn command(&self, host: usize, command: &Command) -> Command {
        inside(self.firsts[host].process.id(), &["net", "uts", "ipc", "mount"], command)
    }

    /// Changes a host's link, with the words of ip-link(8) or tc(8) (`qdisc`...) after the device.
    ///
    /// # Panics
    /// If that is not possible.
    fn wire(&self, words: &[&str]) {
        let wire = self.wire.process.id();
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{wire}/ns/net")).args(words);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        run_with(&mut command, Input::Null, SOON).ok();
    }

    /// Cuts a host's link, or mends it.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn cut(&self, host: usize, cut: bool) {
        let state = if cut { "down" } else { "up" };
        self.wire(&["ip", "link", "set", &port(host), state]);
    }

    /// Gives a host an interface that leads nowhere, with the same address on every host, as
    /// bridges of containers have; or removes it. The kernel names it before `eth0`.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn mislead(&self, host: usize, mislead: bool) {
        let script = if mislead {
            "set -e; PATH=$PATH:/usr/sbin:/sbin
             ip link add docker0 index 50 type bridge
             ip addr add 172.17.0.1/16 dev docker0
             ip link add pod type veth peer name inpod
             ip link set pod master docker0
             for name in inpod pod docker0; do ip link set $name up; done"
        } else {
            "PATH=$PATH:/usr/sbin:/sbin
             ip link del docker0; ip link del pod; true"
        };
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run_with(&mut self.command(host, &command), Input::Null, SOON).ok();
    }

    /// Lets no more than a rate reach a host, in the words of tc-tbf(8): `1gbit`.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn limit(&self, host: usize, rate: &str) {
        // A bucket of more than the longest packet, which is then not cut.
        let bucket = ["tbf", "rate", rate, "burst", "256kb", "latency", "50ms"];
        let queue = ["tc", "qdisc", "replace", "dev", &port(host), "root"];
        self.wire(&[&queue[..], &bucket].concat());
    }

    /// Lets a host send no more than a rate.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn limit_sent(&self, host: usize, rate: &str) {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.firsts[host].process.id()));
        command.args(["tc", "qdisc", "replace", "dev", "eth0", "root"]);
        command.args(["tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        run_with(&mut command, Input::Null, SOON).ok();
    }

    /// The bytes that a host has sent over its link.
    ///
    /// # Panics
    /// If they cannot be read.
    pub fn sent(&self, host: usize) -> u64 {
        let path = format!("/proc/{}/net/dev", self.firsts[host].process.id());
        // `/proc/PID/net` is that of the process `unshare`, which is on the host.
        let text = fs::read_to_string(path).expect("the counters of a host");
        let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
        let field = line.and_then(|line| line.split_whitespace().nth(8));
        field.and_then(|field| field.parse().ok()).expect("the bytes that were sent")
    }

    /// The processes of a host, its first one left out.
    ///
    /// # Panics
    /// If the number is not that of a host.
    pub fn processes(&self, host: usize) -> Vec<Process> {
        self.firsts[host].others()
    }

    /// The processes that are left on all hosts, each by name.
    pub fn left(&self) -> Vec<String> {
        let name = |process: Process| {
            let name = fs::read_to_string(format!("/proc/{}/comm", process.pid)).ok()?;
            Some(format!("{} {}", name.trim(), process.pid))
        };
        self.firsts.iter().flat_map(First::others).filter_map(name).collect()
    }

    /// Waits until no process is left on any host; tells which are, if that takes too long.
    ///
    /// # Errors
    /// Their names.
    pub fn end_well(&self, limit: Duration) -> Result<(), Vec<String>> {
        let gone = until(limit, || self.left().is_empty().then_some(()));
        gone.ok_or_else(|| self.left())
    }

    /// Ends everything on a host at once, as a power failure does.
    pub fn fail(&mut self, host: usize) {
        self.firsts[host].end();
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for relay in &mut self.relays {
            let _ = relay.kill();
            let _ = relay.wait();
        }
    }
}

/// The wire's end of a host's link.
fn port(host: usize) -> String {
    format!("port{}", host + 1)
}
