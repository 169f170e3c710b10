//! A real batch system: Debian's Slurm with two nodes on this machine, run by an unprivileged user
//! for that user.
//!
//! Its authentication (`munged`), its controller and a `slurmd` for each node are started in a
//! separate directory, on free ports, and killed when dropped. A step of `srun --mpi=pmix` stays on
//! one node: two `PMIx` servers of one job do not start on one machine.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::command::{Input, run_with, until};
use crate::scratch::Scratch;
use crate::skip::{Skip, need_program};
use crate::users::User;

const NODES: [&str; 2] = ["one", "two"];
/// Time limit for the start of a daemon, and for a query.
const PATIENCE: Duration = Duration::from_secs(30);
/// The library that Slurm loads for `--mpi=pmix`; the library's package has it under another name
/// only.
const PMIX: &str = "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so";

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    daemons: Vec<Child>,
    user: User,
    place: PathBuf,
    _scratch: Scratch,
}

impl Cluster {
    /// Starts it and waits until both nodes are idle.
    ///
    /// # Panics
    /// If it is installed and does not start.
    pub fn start(user: &User) -> Result<Self, Skip> {
        for program in ["munged", "slurmctld", "slurmd", "srun"] {
            need_program(program)?;
        }
        if !Path::new(PMIX).exists() {
            return Err(Skip("libpmix-dev is not installed".to_owned()));
        }
        let scratch = Scratch::new("slurm").expect("a directory");
        let owner = Some((user.uid, user.gid));
        let place = scratch.dir("cluster", owner, 0o755).expect("a directory");
        let written = configuration(&place, user).and_then(|text| {
            fs::write(place.join("slurm.conf"), text)?;
            let key: Vec<u8> = (0..=255).collect();
            fs::write(place.join("munge.key"), key)?;
            fs::set_permissions(place.join("munge.key"), fs::Permissions::from_mode(0o400))?;
            std::os::unix::fs::chown(place.join("munge.key"), Some(user.uid), Some(user.gid))
        });
        written.expect("its configuration");
        for directory in NODES.iter().copied().chain(["state"]) {
            scratch.dir(&format!("cluster/{directory}"), owner, 0o755).expect("a directory");
        }
        let mut cluster =
            Self { daemons: Vec::new(), user: user.clone(), place, _scratch: scratch };
        let file = |name: &str| format!("{}/munge.{name}", cluster.place.display());
        let words =
            ["key-file=key", "socket=socket", "pid-file=pid", "log-file=log", "seed-file=seed"];
        let munge: Vec<String> = words
            .iter()
            .filter_map(|word| word.split_once('='))
            .map(|(option, name)| format!("--{option}={}", file(name)))
            .collect();
        let socket = file("socket");
        cluster.daemon(
            user,
            "munged",
            &munge.iter().map(String::as_str).chain(["-F"]).collect::<Vec<_>>(),
        );
        assert!(until(PATIENCE, || Path::new(&socket).exists().then_some(())).is_some(), "munged");
        cluster.daemon(user, "slurmctld", &["-D"]);
        for node in NODES {
            cluster.daemon(user, "slurmd", &["-D", "-N", node]);
        }
        let mut said = String::new();
        let ready = until(PATIENCE, || {
            let mut ask = cluster.command(user, "sinfo", &cluster.place);
            said = run_with(ask.args(["-h", "-o", "%D %T"]), Input::Null, PATIENCE).out();
            (said.trim() == "2 idle").then_some(())
        });
        assert!(ready.is_some(), "the nodes are not ready: {said}");
        Ok(cluster)
    }

    /// One of Slurm's commands, as a user.
    pub fn command(&self, user: &User, program: &str, home: &Path) -> Command {
        let mut command = user.command(program, home);
        command.env("SLURM_CONF", self.place.join("slurm.conf"));
        command
    }

    fn daemon(&mut self, user: &User, program: &str, words: &[&str]) {
        let log = fs::File::create(self.place.join(format!("{}.out", self.daemons.len())));
        let (out, also) = log.and_then(|log| Ok((log.try_clone()?, log))).expect("a log");
        let mut command = self.command(user, program, &self.place);
        command.args(words).stdin(Stdio::null()).stdout(out).stderr(also);
        self.daemons.push(command.spawn().expect("a daemon"));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Jobs of a failed case would run forever.
        let mut cancel = self.command(&self.user, "scancel", &self.place);
        run_with(cancel.args(["--full", "--user", &self.user.name]), Input::Null, PATIENCE);
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Writes `slurm.conf(5)`: nothing that needs root, no plugin of another package.
fn configuration(place: &Path, user: &User) -> io::Result<String> {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let host = host.split('.').next().unwrap_or_default();
    // All at once, so that they differ.
    let ports = [0; 3].map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
    let mut numbers = Vec::new();
    for port in ports {
        numbers.push(port?.local_addr()?.port());
    }
    let (at, name) = (place.display(), &user.name);
    let mut text = format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\n\
         AuthType=auth/munge\nAuthInfo=socket={at}/munge.socket\nCredType=cred/munge\n\
         SlurmUser={name}\nSlurmdUser={name}\nStateSaveLocation={at}/state\nSlurmdSpoolDir={at}/%n\n\
         SlurmctldPidFile={at}/controller.pid\nSlurmdPidFile={at}/%n.pid\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n\
         JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_CPU\nSchedulerType=sched/builtin\nReturnToService=2\n\
         SlurmdParameters=config_overrides\n",
        numbers[0]
    );
    for (node, port) in NODES.iter().zip(&numbers[1..]) {
        let _ = writeln!(
            text,
            "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4"
        );
    }
    text.push_str("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
    Ok(text)
}
