//! Runs a command beside a real Slurm with two nodes on this machine: `testkit::slurm`.
//!
//! A process of its own holds the cluster, and ends it when its standard input ends: at the end of
//! this task, however that comes. The command stays in the foreground of the terminal.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};

use testkit::slurm::Cluster;
use testkit::users::{self, User};

use crate::shell::Outcome;

/// The task of the process that holds the cluster.
pub(crate) const HOLD: &str = "slurm-hold";

/// Starts Slurm, runs the command, ends Slurm; returns the command's status.
pub(crate) fn run(words: &[String]) -> ExitCode {
    match under(words) {
        Ok(status) => {
            let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
            ExitCode::from(number.and_then(|number| u8::try_from(number).ok()).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("xtask slurm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn under(words: &[String]) -> Outcome<ExitStatus> {
    let usage = "usage: cargo xtask slurm [--user NAME] -- COMMAND";
    let at = words.iter().position(|word| word == "--").ok_or(usage)?;
    let (program, arguments) = words[at + 1..].split_first().ok_or(usage)?;
    let name = match &words[..at] {
        [] => None,
        [option, name] if option == "--user" => Some(name),
        _ => return Err(usage.to_owned()),
    };
    let user = user(name.map(String::as_str))?;
    let mut holder = Holder::start(&user.name)?;
    let file = holder.file()?;
    let mut command = as_user(&user);
    let status = command.arg(format!("SLURM_CONF={file}")).arg(program).args(arguments).status();
    status.map_err(|error| format!("{program}: {error}"))
}

/// The user for whom everything runs: the caller, unless that is root, for whom jobs of others are
/// the interesting ones.
fn user(name: Option<&str>) -> Outcome<User> {
    let root = rustix::process::getuid().is_root();
    match name {
        Some(name) => {
            let known = if root { users::lookup(name) } else { None };
            let found = known.or_else(|| users::all().into_iter().find(|user| user.name == name));
            found.ok_or_else(|| format!("no user {name:?}, or not one that you can be"))
        }
        None if root => Err("root has to say for whom: --user NAME".to_owned()),
        None => users::all().into_iter().next().ok_or_else(|| "who are you?".to_owned()),
    }
}

/// `env`, as the caller, or as a user with the environment of a login.
fn as_user(user: &User) -> Command {
    if user.uid == rustix::process::getuid().as_raw() {
        return Command::new("env");
    }
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={}", user.uid), format!("--regid={}", user.gid)]);
    command.args(["--init-groups", "--reset-env", "--", "env"]);
    command
}

/// The process that holds the cluster.
struct Holder {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Holder {
    fn start(user: &str) -> Outcome<Self> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(own);
        // Out of the terminal's foreground: ctrl-C is for the command.
        command.args([HOLD, user]).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|error| error.to_string())?;
        let said = BufReader::new(process.stdout.take().ok_or("no output")?);
        Ok(Self { process, said })
    }

    /// The configuration's path, when the cluster is ready.
    fn file(&mut self) -> Outcome<String> {
        let mut line = String::new();
        let read = self.said.read_line(&mut line).map_err(|error| error.to_string())?;
        // Why not, the holder has said.
        if read == 0 { Err("Slurm does not start".to_owned()) } else { Ok(line.trim().to_owned()) }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Holds a cluster for a user until standard input ends.
pub(crate) fn hold(words: &[String]) -> Outcome {
    let name = words.first().ok_or("whose?")?;
    let all = users::all().into_iter().find(|user| user.name == *name);
    let user = all.or_else(|| users::lookup(name)).ok_or("no such user")?;
    let cluster = Cluster::start(&user).map_err(|skip| skip.to_string())?;
    println!("{}", cluster.file().display());
    let mut end = Vec::new();
    let read = std::io::stdin().read_to_end(&mut end);
    drop(cluster);
    read.map(drop).map_err(|error| error.to_string())
}
