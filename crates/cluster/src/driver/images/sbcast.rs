//! Images by `sbcast`: the daemons of Slurm, which reach each other, pass one file on from host to
//! host, and each host loads it.
//!
//! `sbcast` sends to all hosts of a job or of a step, so a step of the job is started on the hosts
//! that are meant. The step ends when its input does, also because the driver is lost, and removes
//! the file then. The daemons have to run as root, because they write the file as the user.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use remote::channel::{Event, Stream};

use super::super::INTERRUPTED;
use super::super::at::{At, words};
use super::super::hosts::{Done, Host, Task, at_once, failed, report};
use super::say_way;
use super::session::Alone;
use crate::error::{Error, Result};
use crate::spread::words::Lines;

/// How often is looked whether the start is given up.
const LOOK: Duration = Duration::from_millis(100);
/// Of what a command says, so many bytes are kept.
const SAYS: usize = 1 << 16;
/// Starts a command that is not signalled when the driver is lost, but its input ends then: `srun`
/// kills its tasks at once when it is signalled.
const APART: [&str; 4] = ["sh", "-c", "\"$@\"; exit $?", "sh"];
/// The step: tells its number, and removes the file `$1` at the end of its input.
const STEP: &str = "trap '' HUP INT TERM; echo \"$SLURM_STEP_ID\"; cat > /dev/null; rm -f \"$1\"";

/// Hosts of one job.
struct Group<'h> {
    job: &'h str,
    /// A directory that each of them has for itself.
    directory: &'h Path,
    hosts: Vec<&'h dyn Host>,
}

/// Gives an image to those of these hosts that are in one job of Slurm, if there are several.
/// Returns those that have to get it in another way, which is all of them where `sbcast` does not
/// work.
///
/// # Errors
/// If a host cannot load it, or the start is given up.
pub(super) fn run<'h>(
    name: &str,
    source: &dyn Host,
    alone: Vec<Alone<'h>>,
    at: &At<'_>,
) -> Result<Vec<Alone<'h>>> {
    let first = alone.first().and_then(|(host, _)| job_of(*host));
    let Some((job, directory)) = first else { return Ok(alone) };
    let (inside, others): (Vec<_>, Vec<_>) =
        alone.into_iter().partition(|(host, _)| job_of(*host) == first);
    let has_sbcast = || source.launch(&words(&["sbcast", "--version"]), false).is_ok();
    if inside.len() < 2 || !has_sbcast() {
        return Ok([inside, others].concat());
    }
    say_way(name, "by sbcast", &inside, at);
    let hosts = inside.iter().map(|(host, _)| *host).collect();
    match broadcast(name, source, &Group { job, directory, hosts }, at) {
        Ok(loaded) => loaded.into_iter().collect::<Result<Vec<()>>>().map(|_| others),
        Err(_) if (at.stop)() => Err(Error::new(INTERRUPTED)),
        Err(error) => {
            (at.say)(&format!("sbcast of {name} fails: {error}"));
            Ok([inside, others].concat())
        }
    }
}

/// The job that a host is in, and its directory for a file.
fn job_of(host: &dyn Host) -> Option<(&str, &Path)> {
    let (facts, _) = host.told()?;
    Some((facts.variables.get("SLURM_JOB_ID")?, facts.scratch.as_deref()?))
}

/// Sends an image to hosts. Returns how each has loaded it.
///
/// # Errors
/// If it does not get to them.
fn broadcast(
    name: &str,
    source: &dyn Host,
    group: &Group<'_>,
    at: &At<'_>,
) -> Result<Vec<Result<()>>> {
    let suffix = sys::random::suffix().map_err(|error| Error::new(error.to_string()))?;
    let file_name = format!("image-{suffix}.tar");
    let file = group.directory.join(&file_name).display().to_string();
    let step = source.launch(&group.step(&file), true)?;
    let sent = watched(&*step, at, || number(&*step)).and_then(|number| {
        let own = saved(name, source, &file_name, at)?;
        let task = source.launch(&group.sbcast(&number, &own, &file), false);
        let sent = task.and_then(|task| {
            let done = watched(&*task, at, || Done::of(&*task, SAYS))?;
            if done.is_good() { Ok(()) } else { Err(reason(&done)) }
        });
        let _ = std::fs::remove_file(&own);
        sent
    });
    let load = words(&["load", "--quiet", "--input", &file]);
    let load_there = |host: &&dyn Host| {
        let done = host.run(&load)?;
        let what = || format!("image {name} to {}", host.name());
        if done.is_good() { Ok(()) } else { Err(failed(what(), &load, &done)) }
    };
    let loaded = sent.map(|()| at_once(group.hosts.iter(), load_there));
    // The files are gone after that.
    let _ = step.close_input().and_then(|()| Done::of(&*step, SAYS));
    loaded
}

impl Group<'_> {
    /// The command of a step on these hosts that removes a file at its end.
    fn step(&self, file: &str) -> Vec<String> {
        let names: Vec<&str> = self.hosts.iter().map(|host| host.name()).collect();
        let count = names.len();
        let mut all = words(&APART);
        all.extend(words(&["srun", "--overlap", "--quiet", "--mpi=none", "--input=all"]));
        all.extend([format!("--jobid={}", self.job), format!("--nodelist={}", names.join(","))]);
        all.extend([format!("--nodes={count}"), format!("--ntasks={count}")]);
        all.extend(words(&["--ntasks-per-node=1", "sh", "-c", STEP, "sh", file]));
        all
    }

    /// The command that sends a file of this machine to the hosts of a step.
    fn sbcast(&self, step: &str, own: &str, file: &str) -> Vec<String> {
        // This machine sends it so often, and each of those that it sends to about as often.
        let fanout = format!("--fanout={}", self.hosts.len().isqrt());
        let step = format!("--jobid={}.{step}", self.job);
        words(&["sbcast", "--force", &fanout, &step, own, file])
    }
}

/// Saves an image into the cluster's directory of this machine. Returns the path.
fn saved(name: &str, source: &dyn Host, file: &str, at: &At<'_>) -> Result<String> {
    let path = at.kept.join(file);
    let own = path.display().to_string();
    let save = words(&["save", "--format", "oci-archive", "--output", &own, name]);
    let done = source.run_until(&save.into(), at.stop)?;
    if done.is_good() {
        return Ok(own);
    }
    let _ = std::fs::remove_file(&path);
    Err(reason(&done))
}

/// The number that a step tells when it has started.
fn number(step: &dyn Task) -> Result<String> {
    let (mut lines, mut done) = (Lines::default(), Done::default());
    while let Some(event) = step.event() {
        if let Event::Output(Stream::Output, bytes) = &event
            && let Some(line) = lines.take(bytes)?.into_iter().next()
        {
            return Ok(line);
        }
        done.take(event)?;
    }
    Err(reason(&done))
}

/// Why a command has failed, in its own words.
fn reason(done: &Done) -> Error {
    let said = String::from_utf8_lossy(&done.err);
    match report(&said).lines().next() {
        Some(line) => Error::new(line),
        None => Error::new(format!("status {}", done.status)),
    }
}

/// Waits for a command, which is ended if the start is given up.
fn watched<T>(task: &dyn Task, at: &At<'_>, wait: impl FnOnce() -> T) -> T {
    let (end, ended) = channel::<()>();
    let stop = at.stop;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if stop() {
                    let _ = task.signal(15);
                }
            }
        });
        let done = wait();
        drop(end);
        done
    })
}
