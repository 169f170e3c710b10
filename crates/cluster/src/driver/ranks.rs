//! Starts the ranks of an application by the host's launcher, which is found by looking at the MPI
//! of the program and at what the hosts have.
//!
//! `srun` starts ranks on the hosts of its allocation. An `mpiexec` runs on the first node's host;
//! its daemons on other hosts are started by the driver, through a door ([`super::doors`]), so that
//! no host needs a key for another one.

mod mpiexec;

use std::fmt::Write as _;
use std::time::Duration;

use remote::shell;

use super::at::words;
use super::doors::Doors;
use super::hosts::{Done, Host, Hosts, Task, at_once, failed};
use super::images;
use super::relay::{Ended, relay};
use crate::error::{Error, Result};
use crate::plan::{Node, PROGRAM, Plan, Ranks, Words};
use crate::ranks::choice::{Choice, Offer, choose};
use crate::ranks::image::Found;
use crate::ranks::rank::{Failure, hidden_of};

/// Asks each launcher of MPI in `PATH` for its release.
const VERSIONS: &str = "\
    for name in mpiexec mpirun mpiexec.openmpi mpiexec.mpich mpiexec.hydra; do\n\
    path=$(command -v $name) || continue; echo \"== $path\"\n\
    \"$path\" --version < /dev/null 2>&1 | head -n 15; done";
/// An answer of a launcher is not longer, in bytes.
const SAYS: usize = 64 << 10;

/// One start of ranks.
struct Launch<'a> {
    plan: &'a Plan,
    ranks: &'a Ranks,
    hosts: &'a Hosts,
    /// Its name among those of the cluster.
    name: String,
    input: bool,
}

/// Runs ranks to their end. `signal` waits for a signal for so long at most, which each rank gets.
/// After `time` their launcher is ended. Returns also what there is to say of their end.
///
/// # Errors
/// If no launcher fits the program's MPI, if it cannot be started, or if a host is lost.
pub(super) fn run(
    plan: &Plan,
    ranks: &Ranks,
    hosts: &Hosts,
    (input, signal): (bool, &(dyn Fn(Duration) -> Option<i32> + Sync)),
    time: Option<Duration>,
) -> Result<(Ended, Option<String>)> {
    let name = sys::random::suffix().map_err(|error| Error::new(error.to_string()))?;
    let launch = Launch { plan, ranks, hosts, name, input };
    let choice = launch.choose(&launch.look()?)?;
    let (launcher, task, doors) = launch.or_forget(launch.begin(&choice))?;
    let told = |within| {
        let number = signal(within)?;
        // Before there are ranks, and where they have ended, the launcher is meant.
        (launch.tell_ranks(number) == 0).then_some(number)
    };
    let ended = relay(task, input, &told, time);
    drop(doors);
    let ended = launch.or_forget(ended)?;
    let ranks = launch.ended(launcher, ended.status);
    Ok((Ended { status: ranks.0, ..ended }, ranks.1))
}

/// All that another program says.
fn ask(host: &dyn Host, all: &[&str]) -> Result<Done> {
    Done::of(&*host.launch(&words(all), false)?, SAYS)
}

impl Launch<'_> {
    /// The node whose host a launcher of MPI runs on, and that host.
    fn first(&self) -> Result<(&Node, &dyn Host)> {
        let node = self.plan.nodes.first();
        let node = node.ok_or_else(|| Error::new("ranks need a node"))?;
        Ok((node, self.hosts.of(node.host.as_deref())?))
    }

    /// The MPI of the program, as its libraries in the container of the first node say.
    fn look(&self) -> Result<Found> {
        let (node, host) = self.first()?;
        let command = &self.ranks.command;
        let mut all = Words::from(vec!["exec".to_owned()]);
        all.append(self.ranks.surroundings());
        all.extend([&node.container, PROGRAM, "cluster", "mpi", "--"]);
        all.extend(command);
        let done = host.run_until(&all, &|| false)?;
        let what = || format!("the MPI of {} in {}", command[0], node.container);
        if !done.is_good() {
            return Err(failed(what(), &all.shown(), &done));
        }
        serde_json::from_slice(&done.out)
            .map_err(|error| Error::new(format!("{}: {error}", what())))
    }

    fn choose(&self, found: &Found) -> Result<Choice> {
        let mut offer = Offer::default();
        if self.ranks.by_srun {
            let done = ask(self.hosts.driver(), &["srun", "--mpi=list"])?;
            let said = [done.out, done.err].concat();
            offer = offer.with_srun(&String::from_utf8_lossy(&said));
            if let Ok(choice) = choose(found, &offer) {
                return Ok(choice);
            }
        }
        let done = ask(self.first()?.1, &["sh", "-c", VERSIONS])?;
        choose(found, &offer.with_mpiexec(&String::from_utf8_lossy(&done.out)))
    }

    /// Starts the launcher. Returns its name.
    fn begin<'c>(&self, choice: &'c Choice) -> Result<(&'c str, Box<dyn Task>, Option<Doors>)> {
        let command = self.rank()?;
        match choice {
            Choice::Srun(mpi) => {
                let hosts = &self.ranks.hosts;
                let names: Vec<String> =
                    hosts.iter().filter_map(|host| host.host.clone()).collect();
                let words = [self.ranks.srun(mpi, &names), command].concat();
                Ok(("srun", self.hosts.driver().launch(&words, self.input)?, None))
            }
            Choice::Mpiexec(one) => {
                let (task, doors) = self.by_mpiexec(one, command)?;
                Ok((&one.path, task, doors))
            }
        }
    }

    /// The command of a rank on any of the hosts. A launcher need not carry variables to all of
    /// them, so a file on each has what the command hides.
    fn rank(&self) -> Result<Vec<String>> {
        let cluster = &self.plan.cluster;
        let image = images::id(&self.ranks.image, self.hosts.driver())?.ok_or_else(|| {
            Error::new(format!("image {} is gone", self.ranks.image))
                .with_hint("coracle cluster up -d -f FILE pulls it")
        })?;
        let mut more = vec!["--join".to_owned(), format!("{cluster}-ranks-{}", self.name)];
        more.extend(self.input.then(|| "-i".to_owned()));
        let mut rank: Vec<String> =
            ["cluster", "rank", cluster, &self.name].map(str::to_owned).to_vec();
        let run = self.ranks.run(&image, &more);
        rank.extend(run.shown());
        let hidden = run.of_program([""; 0]);
        if hidden.has_hidden() {
            let put = |host: &dyn Host| {
                let of = |node: &&Node| {
                    self.hosts.of(node.host.as_deref()).is_ok_and(|one| one.name() == host.name())
                };
                let kept = self.plan.nodes.iter().find(of).map_or("", Node::kept);
                host.put(&hidden_of(kept.as_ref(), &self.name), 0o600, &hidden.pack())
            };
            self.each(put).into_iter().collect::<Result<()>>()?;
        }
        let programs = self.ranks.hosts.iter().map(|host| {
            let host = self.hosts.of(host.host.as_deref())?;
            Ok((host.node_name(), host.program()?))
        });
        let programs: Vec<(String, Vec<String>)> = programs.collect::<Result<_>>()?;
        Ok(on_any_host(&programs, rank))
    }

    /// Sends a signal to the ranks. Returns how many there are, as far as that is known.
    fn tell_ranks(&self, number: i32) -> usize {
        let number = number.to_string();
        let tell = |host: &dyn Host| {
            let words = ["cluster", "rank", "--signal", &number, &self.plan.cluster, &self.name];
            Ok(host.run(&words.map(str::to_owned))?.text().parse().unwrap_or(0))
        };
        self.each(tell).into_iter().flatten().sum()
    }

    /// How the ranks have ended, as they say themselves: what counts is the one that failed first.
    fn ended(&self, launcher: &str, status: u8) -> (u8, Option<String>) {
        let all = self.failures();
        let first = all.into_iter().min_by_key(|(_, failure)| failure.time);
        match first {
            Some((host, Failure { rank, status, .. })) => {
                let how = match status {
                    129..=192 => format!("by signal {}", status - 128),
                    _ => format!("with status {status}"),
                };
                (status, Some(format!("rank {rank} on {host} has ended first, {how}")))
            }
            None if status == 0 => (0, None),
            None => {
                let note = format!("no rank has failed; {launcher} has ended with status {status}");
                (status, Some(note))
            }
        }
    }

    /// The ranks that have failed by themselves, with their hosts. Nothing is kept of any of them
    /// any more.
    fn failures(&self) -> Vec<(String, Failure)> {
        let ask = |host: &dyn Host| {
            let words = ["cluster", "rank", "--failures", &self.plan.cluster, &self.name];
            let done = host.run(&words.map(str::to_owned))?;
            let all: Vec<Failure> = done.text().lines().filter_map(Failure::parse).collect();
            Ok(all.into_iter().map(|one| (host.name().to_owned(), one)).collect::<Vec<_>>())
        };
        self.each(ask).into_iter().flatten().flatten().collect()
    }

    /// After an error nothing is kept of the ranks.
    fn or_forget<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.failures();
        }
        result
    }

    /// Asks the hosts of the ranks, each once. One that is lost is left out.
    fn each<T: Send>(&self, work: impl Fn(&dyn Host) -> Result<T> + Sync) -> Vec<Result<T>> {
        let work = |host: &Option<String>| work(self.hosts.of(host.as_deref())?);
        at_once(self.ranks.hosts.iter().map(|one| &one.host), work)
    }
}

/// A command for each of some hosts, by their own names, that differ in the words before it.
fn on_any_host(programs: &[(String, Vec<String>)], words: Vec<String>) -> Vec<String> {
    let (_, first) = &programs[0];
    if programs.iter().all(|(_, program)| program == first) {
        return [first.clone(), words].concat();
    }
    let mut script = "case $(uname -n) in ".to_owned();
    for (name, program) in programs {
        let _ = write!(script, "{}) set -- {} \"$@\";; ", shell::quote(name), shell::join(program));
    }
    // It becomes the program, which the launcher has started then.
    script.push_str("esac; exec \"$@\"");
    [["sh", "-c", &script, "sh"].map(str::to_owned).to_vec(), words].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_programs_at_other_places() {
        let program = |name: &str, words: &[&str]| {
            (name.to_owned(), words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        let words = ["a b", "c"].map(str::to_owned).to_vec();
        let same = [program("x", &["/p", "--store", "/s"]), program("y", &["/p", "--store", "/s"])];
        assert_eq!(on_any_host(&same, words.clone()), ["/p", "--store", "/s", "a b", "c"]);
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let others =
            [program("no-such-host", &["false"]), program(&own, &["printf", "%s|", "1 2"])];
        let command = on_any_host(&others, words);
        let done = std::process::Command::new(&command[0]).args(&command[1..]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "1 2|a b|c|");
    }
}
