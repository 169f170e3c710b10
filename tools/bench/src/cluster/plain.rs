//! The peer of a Slurm whose nodes are containers: Slurm's own power saving on the host, run by
//! the measured user. `ResumeProgram` and `SuspendProgram` are scripts of a few lines that start
//! and end a `slurmd` for each node.
//!
//! It is set up as in Slurm's Power Saving Guide, with the times that Coracle has in its file, and
//! without the prolog by which Coracle has batch jobs begin when their nodes are there.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testkit::command::until;
use testkit::skip::need_program;

use super::batch::{Batch, IDLE, JOB, LIST, NODES, SUBMIT};
use super::free_ports;
use crate::Bench;
use crate::net::place::{Running, own, run, words};
use crate::places::as_measured;
use xtask::shell::{Outcome, read};

const PROGRAMS: [&str; 5] = ["munged", "slurmctld", "slurmd", "sbatch", "mpirun"];
const PATH: &str = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
/// A daemon is there, and jobs are gone, within so long.
const SOON: Duration = Duration::from_secs(20);

/// `slurm.conf(5)`, without ports and nodes. Where Coracle's file has a number, it is the same.
const FILE: &str = "\
ClusterName=plain
SlurmUser=USER
SlurmdUser=USER
AuthType=auth/munge
AuthInfo=socket=DIR/munge.socket,cred_expire=20
CredType=cred/munge
StateSaveLocation=DIR/state
SlurmdSpoolDir=DIR/%n
TmpFS=DIR/%n/tmp
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=DIR/prolog
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=2
SlurmdTimeout=30
SlurmdParameters=config_overrides
SlurmctldParameters=cloud_dns,idle_on_node_suspend,power_save_interval=1
PrivateData=cloud
ResumeProgram=DIR/resume
SuspendProgram=DIR/suspend
ResumeTimeout=60
SuspendTimeout=5
SuspendTime=IDLE
ResumeRate=0
SuspendRate=0
";
/// Without a second's wait some nodes were not taken as started: their start, in whole seconds,
/// seems older than the request. `-b` says that the node was booted, because this host was not.
const RESUME: &str = "#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin SLURM_CONF=DIR/slurm.conf
for name in $(scontrol show hostnames \"$1\"); do
    (sleep 1; exec setsid slurmd -b -D -N $name) </dev/null >>DIR/slurmd.log 2>&1 &
    echo $! >DIR/groups/$name
done
";
/// All of its group, because a process that is left keeps the port. The shell's `kill` takes no
/// `--` behind a signal's number.
const SUSPEND: &str = "#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin SLURM_CONF=DIR/slurm.conf
for name in $(scontrol show hostnames \"$1\"); do
    kill -s KILL -- -$(cat DIR/groups/$name) $(cat DIR/groups/$name)
    rm DIR/groups/$name
done
";
/// Each node has a temporary directory of its own: daemons of Open MPI on one host would use the
/// same names in it.
const PROLOG: &str = "#!/bin/sh\necho export TMPDIR=DIR/$SLURMD_NODENAME/tmp\n";

pub(super) struct Plain<'b> {
    bench: &'b Bench,
    at: PathBuf,
    jobs: PathBuf,
    /// `munged`, then `slurmctld`.
    daemons: Vec<Running>,
}

impl<'b> Plain<'b> {
    pub(super) fn start(bench: &'b Bench) -> Outcome<Self> {
        for program in PROGRAMS {
            need_program(program).map_err(|skip| skip.to_string())?;
        }
        let text = |error: std::io::Error| error.to_string();
        let owner = Some((bench.user.uid, bench.user.gid));
        let dir = |name: &str| bench.scratch.dir(name, owner, 0o755).map_err(text);
        let (at, jobs) = (dir("plain")?, dir("plain/jobs")?);
        for name in ["state", "groups"] {
            dir(&format!("plain/{name}"))?;
        }
        // `slurmd` does not make them.
        for number in 1..=NODES {
            dir(&format!("plain/node-{number}"))?;
            dir(&format!("plain/node-{number}/tmp"))?;
        }
        fs::write(jobs.join("job.sh"), JOB).map_err(text)?;
        let mut plain = Self { bench, at, jobs, daemons: Vec::new() };
        plain.write("slurm.conf", &configuration()?, 0o644)?;
        plain.write("resume", RESUME, 0o755)?;
        plain.write("suspend", SUSPEND, 0o755)?;
        plain.write("prolog", PROLOG, 0o755)?;
        // Any key will do: nobody else reaches the socket.
        plain.write("munge.key", &"key".repeat(16), 0o400)?;
        let import = plain.words(&["python3", "-c", "import mpi4py"]);
        run(&import).map_err(|_| "python3-mpi4py is not installed".to_owned())?;
        plain.daemons()?;
        Ok(plain)
    }

    /// Writes a file of the measured user.
    fn write(&self, name: &str, text: &str, mode: u32) -> Outcome {
        let path = self.at.join(name);
        let text = text
            .replace("DIR", &self.at.display().to_string())
            .replace("USER", &self.bench.user.name)
            .replace("IDLE", &IDLE.to_string());
        fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(mode)))
            .and_then(|()| chown(&path, Some(self.bench.user.uid), Some(self.bench.user.gid)))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    fn words(&self, command: &[&str]) -> Vec<String> {
        let file = format!("SLURM_CONF={}/slurm.conf", self.at.display());
        words(&[&as_measured(self.bench), &own(&["env", PATH, &file]), &own(command)])
    }

    fn daemons(&mut self) -> Outcome {
        let file = |name: &str| self.at.join(name).display().to_string();
        let option = |name: &str| format!("--{name}-file={}", file(&format!("munge.{name}")));
        let socket = format!("--socket={}", file("munge.socket"));
        let options = ["key", "pid", "log", "seed"].map(option);
        let munged = words(&[&own(&["munged", "-F", &socket]), &options]);
        self.daemon(&munged)?;
        let socket = Path::new(&self.at).join("munge.socket");
        until(SOON, || socket.exists().then_some(())).ok_or("munged does not start")?;
        self.daemon(&own(&["slurmctld", "-D"]))?;
        let all = NODES.to_string();
        let ask = self.words(&["sinfo", "-a", "-h", "-o", "%D"]);
        let ready = until(SOON, || run(&ask).is_ok_and(|said| said.trim() == all).then_some(()));
        ready.ok_or_else(|| format!("slurmctld does not start: {}", self.log()))
    }

    fn daemon(&mut self, command: &[String]) -> Outcome {
        let log = format!("exec \"$@\" 2>>{}/daemons.log", self.at.display());
        let command = words(&[&own(&["sh", "-c", &log, "sh"]), command]);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        self.daemons.push(Running::start(&self.words(&command))?);
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at.join("daemons.log")).unwrap_or_default()
    }

    /// The process groups of nodes.
    fn groups(&self) -> Vec<String> {
        let files = fs::read_dir(self.at.join("groups")).into_iter().flatten().flatten();
        let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        texts.map(|text| text.trim().to_owned()).collect()
    }
}

impl Batch for Plain<'_> {
    fn jobs(&self) -> &Path {
        &self.jobs
    }

    fn job(&self) -> &'static str {
        SUBMIT
    }

    fn list(&self) -> &'static str {
        LIST
    }

    fn submit(&self, command: &str) -> Outcome<String> {
        let script = format!("cd {} && {command}", self.jobs.display());
        run(&self.words(&["sh", "-c", &script]))
    }

    fn nodes(&self) -> Outcome<usize> {
        Ok(self.groups().len())
    }
}

/// Jobs, then the controller, so that it starts nothing more, then nodes and `munged`.
impl Drop for Plain<'_> {
    fn drop(&mut self) {
        if self.daemons.len() > 1 {
            let _ = run(&self.words(&["scancel", "--full", "--user", &self.bench.user.name]));
            let ask = self.words(&["squeue", "-h"]);
            until(SOON, || run(&ask).is_ok_and(|said| said.trim().is_empty()).then_some(()));
            drop(self.daemons.pop());
        }
        for group in self.groups() {
            // Of one that waits for its second there is a process, and no group yet.
            let ids = [format!("-{group}"), group];
            let _ = read(Command::new("kill").args(["-s", "KILL", "--"]).args(ids));
        }
    }
}

/// The file with its ports and nodes.
fn configuration() -> Outcome<String> {
    let host = read(Command::new("hostname").arg("-s"))?;
    let (host, ports) = (host.trim(), free_ports(NODES + 1)?);
    let mut text = FILE.to_owned();
    let _ = writeln!(text, "SlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}", ports[0]);
    for (number, port) in ports[1..].iter().enumerate() {
        let _ = writeln!(
            text,
            "NodeName=node-{} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 \
             State=CLOUD",
            number + 1
        );
    }
    text.push_str("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
    Ok(text)
}
