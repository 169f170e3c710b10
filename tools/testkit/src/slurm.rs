//! A real batch system: Debian's Slurm with two nodes on this machine, or with a node on each of
//! some simulated hosts, run by an unprivileged user for that user. On hosts root may run the
//! daemons of the nodes, as sites do.
//!
//! Its authentication (`munged`), its controller and a `slurmd` for each node are started in a
//! separate directory, on free ports, and killed when dropped. On this machine the ports are
//! reserved until then ([`reserve`]): a daemon whose port is taken ends, and its node stays
//! unknown. Nodes on this machine have temporary directories of their own, because two `PMIx`
//! servers of one job do not start in the same one.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};

use crate::command::{Finished, Input, run_with, until};
use crate::hosts::{Hosts, end_there, lives_there};
use crate::scratch::Scratch;
use crate::skip::{Skip, need_program};
use crate::users::{Setting, User};

const NODES: [&str; 2] = ["one", "two"];
/// Time limit for the start of a daemon, and for a query.
const PATIENCE: Duration = Duration::from_secs(30);
/// The ports of a cluster on hosts, also of `srun`, which needs many.
pub const PORTS: RangeInclusive<u16> = 6800..=7400;
/// The library that Slurm loads for `--mpi=pmix`; the library's package has it under another name
/// only.
const PMIX: &str = "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so";

/// What the daemons and commands of a cluster have.
#[derive(Debug, Clone, Default)]
pub struct Conditions<'p> {
    /// Conditions of all but those that root runs, and so of the jobs.
    pub setting: Setting,
    /// A directory of plugins in place of the installed ones.
    pub plugins: Option<&'p Path>,
    /// Root runs the daemons of the nodes.
    pub root_nodes: bool,
}

/// A running cluster.
#[derive(Debug)]
pub struct Cluster<'h> {
    daemons: Mutex<Vec<Daemon>>,
    user: User,
    setting: Setting,
    root_nodes: bool,
    place: PathBuf,
    hosts: Option<&'h Hosts>,
    /// What reserves the ports of daemons on this machine.
    _reserved: Vec<OwnedFd>,
    /// Removed at the end.
    scratch: Option<Scratch>,
}

/// A process of the cluster, and how it is started.
#[derive(Debug)]
struct Daemon {
    host: usize,
    program: &'static str,
    words: Vec<String>,
    child: Child,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end_there(&mut self.child);
    }
}

/// A node: its name, and where it is reached.
type Node = (String, Ipv4Addr);

impl Cluster<'static> {
    /// Starts it and waits until both nodes are idle.
    ///
    /// # Panics
    /// If it is installed and does not start.
    pub fn start(user: &User) -> Result<Self, Skip> {
        let scratch = Scratch::new("slurm").expect("a directory");
        let place = scratch.dir("cluster", Some((user.uid, user.gid)), 0o755);
        let nodes = NODES.map(|name| (name.to_owned(), Ipv4Addr::LOCALHOST));
        let by = (user, &Conditions::default());
        let mut cluster = Self::in_place(by, place.expect("a directory"), None, &nodes)?;
        cluster.scratch = Some(scratch);
        Ok(cluster)
    }
}

impl<'h> Cluster<'h> {
    /// Starts one with a node on each host, called as the host is, and its controller on the first.
    /// Its ports are [`PORTS`]. `place` is a directory of the user that all hosts see.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub fn start_on(
        by: (&User, &Conditions<'_>),
        hosts: &'h Hosts,
        place: PathBuf,
    ) -> Result<Self, Skip> {
        let node = |host| (format!("host{}", host + 1), hosts.address(host));
        let nodes: Vec<Node> = (0..hosts.count()).map(node).collect();
        Self::in_place(by, place, Some(hosts), &nodes)
    }

    fn in_place(
        (user, conditions): (&User, &Conditions<'_>),
        place: PathBuf,
        hosts: Option<&'h Hosts>,
        nodes: &[Node],
    ) -> Result<Self, Skip> {
        for program in ["munged", "slurmctld", "slurmd", "srun"] {
            need_program(program)?;
        }
        if !Path::new(PMIX).exists() {
            return Err(Skip("libpmix-dev is not installed".to_owned()));
        }
        let owner = |path: &Path| std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid));
        let Conditions { setting, plugins, root_nodes } = conditions.clone();
        let plugins = plugins.map(|path| format!("PluginDir={}\n", path.display()));
        let node_user = if root_nodes { "root" } else { &user.name };
        let (reserved, ports) = match hosts {
            Some(_) => (Vec::new(), PORTS.collect()),
            None => reserve(nodes.len() + 1).expect("free ports"),
        };
        let users = (user.name.as_str(), node_user);
        let text = configuration(&place, users, nodes, &ports);
        let text = text + plugins.as_deref().unwrap_or_default();
        let write = || {
            fs::write(place.join("slurm.conf"), text)?;
            let key: Vec<u8> = (0..=255).collect();
            fs::write(place.join("munge.key"), key)?;
            fs::set_permissions(place.join("munge.key"), fs::Permissions::from_mode(0o400))?;
            owner(&place.join("munge.key"))?;
            let temporary = nodes.iter().map(|(name, _)| format!("{name}/tmp"));
            let names = nodes.iter().map(|(name, _)| name.clone());
            names.chain(temporary).chain(["state".to_owned()]).try_for_each(|name| {
                fs::create_dir(place.join(&name))?;
                owner(&place.join(&name))
            })
        };
        write().expect("its configuration");
        let (daemons, own) = (Mutex::default(), user.clone());
        let cluster = Self {
            daemons,
            user: own,
            setting,
            root_nodes,
            place,
            hosts,
            _reserved: reserved,
            scratch: None,
        };
        let file = |name: &str| format!("{}/munge.{name}", cluster.place.display());
        let words =
            ["key-file=key", "socket=socket", "pid-file=pid", "log-file=log", "seed-file=seed"];
        let munge: Vec<String> = words
            .iter()
            .filter_map(|word| word.split_once('='))
            .map(|(option, name)| format!("--{option}={}", file(name)))
            .collect();
        let socket = file("socket");
        // Its socket is a file, which all hosts see.
        let words: Vec<&str> = munge.iter().map(String::as_str).chain(["-F"]).collect();
        cluster.daemon(0, "munged", &words);
        assert!(until(PATIENCE, || Path::new(&socket).exists().then_some(())).is_some(), "munged");
        cluster.daemon(0, "slurmctld", &["-D"]);
        for (number, (name, _)) in nodes.iter().enumerate() {
            cluster.daemon(number, "slurmd", &["-D", "-N", name]);
        }
        let mut said = String::new();
        let all = format!("{} idle", nodes.len());
        let ready = until(PATIENCE, || {
            let mut ask = cluster.command(user, "sinfo", &cluster.place);
            ask.args(["-h", "-o", "%D %T"]);
            said = run_with(&mut cluster.on(0, ask), Input::Null, PATIENCE).out();
            (said.trim() == all).then_some(())
        });
        assert!(ready.is_some(), "the nodes are not ready: {said}");
        Ok(cluster)
    }

    /// One of Slurm's commands, as a user.
    pub fn command(&self, user: &User, program: &str, home: &Path) -> Command {
        let mut command = user.command_in(program, home, &self.setting);
        command.env("SLURM_CONF", self.file());
        command
    }

    /// The configuration, for `SLURM_CONF`.
    pub fn file(&self) -> PathBuf {
        self.place.join("slurm.conf")
    }

    /// A command on a host, if there are hosts.
    fn on(&self, host: usize, command: Command) -> Command {
        match self.hosts {
            Some(hosts) => hosts.command(host, &command),
            None => command,
        }
    }

    fn daemon(&self, host: usize, program: &'static str, words: &[&str]) {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let child = self.start_daemon(host, program, &words);
        self.daemons().push(Daemon { host, program, words, child });
    }

    fn start_daemon(&self, host: usize, program: &str, words: &[String]) -> Child {
        let name = format!("{program}-{host}.out");
        let log = fs::File::options().append(true).create(true).open(self.place.join(name));
        let (out, also) = log.and_then(|log| Ok((log.try_clone()?, log))).expect("a log");
        let mut command = if self.root_nodes && program == "slurmd" {
            let mut command = Command::new(program);
            command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/");
            command.env("SLURM_CONF", self.file());
            command
        } else {
            self.command(&self.user, program, &self.place)
        };
        command.args(words);
        let mut command = self.on(host, command);
        command.stdin(Stdio::null()).stdout(out).stderr(also);
        command.spawn().expect("a daemon")
    }

    fn daemons(&self) -> std::sync::MutexGuard<'_, Vec<Daemon>> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts what has been killed again, and waits until all nodes answer. A controller that was
    /// killed before it wrote a job down knows it from its nodes only, and may drain one of them
    /// ("Duplicate jobid"): that is resumed, as an administrator does.
    ///
    /// # Panics
    /// If they do not.
    pub fn mend(&self) {
        for daemon in &mut *self.daemons() {
            if !lives_there(&daemon.child) {
                end_there(&mut daemon.child);
                daemon.child = self.start_daemon(daemon.host, daemon.program, &daemon.words);
            }
        }
        let mut said = String::new();
        let ready = until(PATIENCE, || {
            let done = self.ask(&["sinfo", "-h", "-N", "-o", "%N %T %E"]);
            said = done.out();
            for line in said.lines().filter(|line| line.contains("drain")) {
                let node = line.split(' ').next().unwrap_or_default();
                if line.contains("Duplicate jobid") {
                    let node = format!("NodeName={node}");
                    self.ask(&["scontrol", "update", &node, "State=RESUME"]).ok();
                }
            }
            let good = |line: &str| {
                let state = line.split(' ').nth(1).unwrap_or_default();
                matches!(state, "idle" | "allocated" | "mixed" | "completing")
            };
            (done.code() == 0 && said.lines().all(good)).then_some(())
        });
        assert!(ready.is_some(), "the nodes do not come back: {said}");
    }

    /// One of Slurm's commands on the first host, to its end.
    pub fn ask(&self, words: &[&str]) -> Finished {
        let mut command = self.command(&self.user, words[0], &self.place);
        command.args(&words[1..]);
        run_with(&mut self.on(0, command), Input::Null, PATIENCE)
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        // Jobs of a failed case would run forever.
        let mut cancel = self.command(&self.user, "scancel", &self.place);
        cancel.args(["--full", "--user", &self.user.name]);
        run_with(&mut self.on(0, cancel), Input::Null, PATIENCE);
        let daemons = self.daemons.get_mut().unwrap_or_else(PoisonError::into_inner);
        while daemons.pop().is_some() {}
        drop(self.scratch.take());
    }
}

/// Writes `slurm.conf(5)`: nothing that needs root, no plugin of another package.
fn configuration(
    place: &Path,
    (user, node_user): (&str, &str),
    nodes: &[Node],
    ports: &[u16],
) -> String {
    let here = rustix::system::uname();
    let here = here.nodename().to_string_lossy();
    let here = here.split('.').next().unwrap_or_default();
    let (first, address) = &nodes[0];
    let is_here = address.is_loopback();
    let control = if is_here { here } else { first };
    let at = place.display();
    let mut text = format!(
        "ClusterName=test\nSlurmctldHost={control}({address})\nSlurmctldPort={}\n\
         AuthType=auth/munge\nAuthInfo=socket={at}/munge.socket\nCredType=cred/munge\n\
         SlurmUser={user}\nSlurmdUser={node_user}\n\
         StateSaveLocation={at}/state\nSlurmdSpoolDir={at}/%n\n\
         SlurmctldPidFile={at}/controller.pid\nSlurmdPidFile={at}/%n.pid\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n\
         JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU\nSchedulerType=sched/builtin\nReturnToService=2\n\
         SlurmdParameters=config_overrides\n",
        ports[0]
    );
    if is_here {
        let _ = writeln!(text, "TmpFS={at}/%n/tmp");
    } else {
        let last = nodes.len() + 1;
        let _ = writeln!(text, "SrunPortRange={}-{}", ports[last], PORTS.end());
    }
    for ((name, address), port) in nodes.iter().zip(&ports[1..]) {
        let host = if is_here { here } else { name };
        let _ = writeln!(
            text,
            "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=4"
        );
    }
    text.push_str("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
    text
}

/// Reserves free ports of this machine: the kernel gives them to no other program that asks for any
/// port while these sockets are open. They do not listen, so a daemon that names such a port can
/// bind it, because both sockets have `SO_REUSEADDR` (socket(7)).
fn reserve(count: usize) -> io::Result<(Vec<OwnedFd>, Vec<u16>)> {
    let one = |_| {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        // Of all addresses, as the daemons do.
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        let port = SocketAddrV4::try_from(getsockname(&socket)?)?.port();
        Ok((socket, port))
    };
    (0..count).map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::reserve;

    #[test]
    fn only_who_names_a_reserved_port_gets_it() {
        let (sockets, ports) = reserve(3).unwrap();
        let named: Vec<TcpListener> = ports
            .iter()
            .map(|&port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap())
            .collect();
        drop(named);
        for _ in 0..200 {
            let any = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            assert!(!ports.contains(&any.local_addr().unwrap().port()));
        }
        drop(sockets);
    }
}
