//! Commands of which something is killed while they run.

use std::process::Command;
use std::time::{Duration, Instant};

use testkit::command::{Finished, Input, run_with, until};
use testkit::slurm::Cluster;

use super::site::{GOOD, PULLED, Site};
use super::victims::Victim;
use crate::hosts::lab::{COUNT, LIMIT};

/// A kind of command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Work {
    /// `up -d` of services on three hosts.
    Services,
    /// The same with an image that is pulled first.
    Pulled,
    /// `up` with a program that ends.
    Run,
    /// The same in an allocation of Slurm.
    Allocation,
    /// The same submitted from outside.
    Job,
    /// `down` of services that are up.
    Down,
    /// A command in a service that is up.
    Exec,
}

impl Work {
    /// All of them; those in which more happens are there more often.
    pub(super) const ALL: &[Self] = &[
        Self::Services,
        Self::Services,
        Self::Run,
        Self::Run,
        Self::Pulled,
        Self::Allocation,
        Self::Job,
        Self::Down,
        Self::Down,
        Self::Exec,
    ];

    /// What can be killed meanwhile.
    pub(super) fn victims(self) -> &'static [Victim] {
        use Victim::{Agent, Controller, Driver, Names, Node, Registry, Server, Session};
        match self {
            Self::Services | Self::Run => &[Driver, Driver, Agent, Agent, Names, Session, Server],
            Self::Pulled => &[Driver, Driver, Agent, Registry, Registry, Session],
            Self::Allocation => &[Driver, Agent, Names, Node, Node, Controller],
            Self::Job => &[Driver, Driver, Agent, Node, Controller, Controller],
            Self::Down => &[Driver, Driver, Agent, Names, Session, Server],
            Self::Exec => &[Agent, Names, Session],
        }
    }

    pub(super) fn needs_slurm(self) -> bool {
        matches!(self, Self::Allocation | Self::Job)
    }

    /// Whether the hosts end what they have when nobody comes.
    pub(super) fn ends_by_itself(self, victim: Victim) -> bool {
        self == Self::Run && victim == Victim::Driver
    }

    fn file(self) -> &'static str {
        match self {
            Self::Services | Self::Down | Self::Exec => "services",
            Self::Pulled => "pulled",
            Self::Run => "run",
            Self::Allocation | Self::Job => "job",
        }
    }

    fn cluster(self) -> &'static str {
        if self == Self::Pulled { "pulled" } else { "kills" }
    }

    fn run(self, site: &Site<'_>, words: &[&str]) -> Finished {
        if self.needs_slurm() { site.run_of_site(words) } else { site.lab.run(0, words) }
    }

    /// Does what comes before the command.
    pub(super) fn prepare(self, site: &Site<'_>) -> Result<(), String> {
        match self {
            Self::Down | Self::Exec => {
                let up = run_with(&mut self.again(site), Input::Null, LIMIT);
                if up.code() == 0 { Ok(()) } else { Err(format!("up before it: {up:?}")) }
            }
            Self::Pulled => {
                for host in 0..COUNT {
                    site.lab.run(host, &["rmi", "-f", PULLED]);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// How long the command takes.
    pub(super) fn length(self, site: &Site<'_>) -> Result<Duration, String> {
        let lengths = site.lengths.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        lengths.get(&self).copied().ok_or_else(|| format!("{self:?} was not measured"))
    }

    /// Runs it once without harm.
    pub(super) fn measure(self, site: &Site<'_>) {
        self.prepare(site).expect("a beginning");
        let began = Instant::now();
        let done = run_with(&mut self.command(site, false), Input::Null, LIMIT);
        let length = began.elapsed();
        assert!(done.code() == 0, "{self:?} fails without harm: {done:?}");
        self.is_kept(site, &done).expect("what it promises");
        self.down(site).ok();
        println!("kills: {self:?} takes {} ms", length.as_millis());
        let mut lengths = site.lengths.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        lengths.insert(self, length);
    }

    /// The command. With a short grace hosts do not wait long for another driver.
    pub(super) fn command(self, site: &Site<'_>, is_short: bool) -> Command {
        let file = site.path(self.file());
        let program = &site.lab.people[0].program;
        let here = |words: &[&str]| site.lab.command(0, program, words);
        match self {
            Self::Services | Self::Pulled => here(&["cluster", "up", "-d", "-f", &file]),
            Self::Run if is_short => here(&["cluster", "up", "--grace", "2s", "-f", &file]),
            Self::Run => here(&["cluster", "up", "-f", &file]),
            Self::Down => here(&["cluster", "down", "-f", &file]),
            Self::Exec => {
                let words = ["cluster", "exec", "-f", &file, "web-3"];
                here(&[&words[..], &["wget", "-qO-", "http://db:81/index.html"]].concat())
            }
            Self::Allocation | Self::Job => self.by_slurm(site, &file),
        }
    }

    fn by_slurm(self, site: &Site<'_>, file: &str) -> Command {
        let slurm: &Cluster<'_> = site.slurm.as_ref().expect("a Slurm");
        let person = &site.lab.site;
        let mut command = if self == Self::Allocation {
            let mut command = slurm.command(&person.user, "salloc", &person.home);
            command.args(["--quiet", "--nodes=3", "--"]).arg(&person.program);
            command
        } else {
            let program = person.program.display().to_string();
            slurm.command(&person.user, &program, &person.home)
        };
        command.args(["cluster", "up", "-f", file]);
        site.lab.hosts.command(0, &command)
    }

    /// The command that goes on from wherever the first one was.
    pub(super) fn again(self, site: &Site<'_>) -> Command {
        match self {
            Self::Down | Self::Exec => Self::Services.command(site, false),
            _ => self.command(site, false),
        }
    }

    /// Whether that has done what it promises.
    pub(super) fn again_is_kept(self, site: &Site<'_>, done: &Finished) -> Result<(), String> {
        match self {
            Self::Down | Self::Exec => Self::Services.is_kept(site, done),
            _ => self.is_kept(site, done),
        }
    }

    /// Whether a command that has ended with 0 has done what it promises.
    pub(super) fn is_kept(self, site: &Site<'_>, done: &Finished) -> Result<(), String> {
        match self {
            Self::Services | Self::Pulled => self.is_whole(site),
            Self::Exec if done.out() == "page\n" => Ok(()),
            Self::Run | Self::Allocation | Self::Job if done.out().contains(GOOD) => Ok(()),
            Self::Down => {
                let left = site.containers();
                if left.is_empty() { Ok(()) } else { Err(format!("there are {left:?}")) }
            }
            _ => Err("its output is not whole".to_owned()),
        }
    }

    /// All services run, and know each other.
    fn is_whole(self, site: &Site<'_>) -> Result<(), String> {
        let name = self.cluster();
        let format = "{{.Name}} {{.Host}} {{.State}}";
        let status = site.lab.run(0, &["cluster", "status", name, "--format", format]);
        let expected = format!(
            "{name}-db-1 host1 running\n{name}-web-1 host1 running\n\
             {name}-web-2 host2 running\n{name}-web-3 host3 running\n"
        );
        if status.code() != 0 || status.out() != expected {
            return Err(format!("not all is up: {status:?}"));
        }
        let container = format!("{name}-web-3");
        let words = ["exec", &container, "wget", "-qO-", "http://db:81/index.html"];
        let mut said = None;
        let answers = until(Duration::from_secs(20), || {
            let done = site.lab.run(2, &words);
            let good = done.code() == 0 && done.out() == "page\n";
            said = Some(done);
            good.then_some(())
        });
        answers.ok_or_else(|| format!("web-3 does not reach db: {said:?}"))
    }

    /// Ends it.
    pub(super) fn down(self, site: &Site<'_>) -> Finished {
        self.run(site, &["cluster", "down", "-f", &site.path(self.file())])
    }
}
