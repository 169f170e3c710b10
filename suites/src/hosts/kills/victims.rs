//! What is killed.

use std::thread;
use std::time::{Duration, Instant};

use testkit::hosts::Process;

use super::site::Site;
use crate::hosts::lab::COUNT;

/// A kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    /// The command that the user has started, or the one of its job.
    Driver,
    /// A process of the agent of a host.
    Agent,
    /// The agent of a host's network.
    Names,
    /// A connection on the side of a host.
    Session,
    /// The server of SSH on a host, its connections included.
    Server,
    /// `slurmd` of a node.
    Node,
    /// `slurmctld`.
    Controller,
    /// The registry.
    Registry,
}

impl Victim {
    /// Kills one of the kind at a moment, or as soon as there is one. Returns what it was; `None`
    /// if there was none before `is_over`.
    pub(super) fn kill_at(
        self,
        site: &Site<'_>,
        moment: Instant,
        which: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Option<String> {
        while Instant::now() < moment {
            if is_over() {
                return None;
            }
            thread::sleep(Duration::from_micros(500));
        }
        while !is_over() {
            let found = self.find(site, which);
            let chosen = found.get(which as usize % found.len().max(1));
            if let Some((host, process)) = chosen {
                if self == Self::Server {
                    // Nobody can reach the host until it is there again.
                    site.processes(*host, |words| words.starts_with("sshd: "))
                        .iter()
                        .for_each(Process::kill);
                }
                process.kill();
                return Some(format!("{} on host{}", process.words, host + 1));
            }
            thread::sleep(Duration::from_millis(2));
        }
        None
    }

    fn find(self, site: &Site<'_>, which: u64) -> Vec<(usize, Process)> {
        let is_it = |words: &str| match self {
            Self::Driver => works(words),
            Self::Agent => words.starts_with('/') && words.ends_with(" cluster agent"),
            Self::Names => words.starts_with("coracle-names"),
            Self::Session => words.starts_with("sshd: ") && !words.contains("[listener]"),
            Self::Server => words.contains("sshd") && words.contains("[listener]"),
            Self::Node => words.starts_with("slurmd "),
            Self::Controller => words.starts_with("slurmctld "),
            Self::Registry => words.contains("docker-registry"),
        };
        // Those on one host first, so that all hosts have their turn.
        (0..COUNT)
            .map(|turn| (turn + which as usize) % COUNT)
            .map(|host| {
                let found = site.processes(host, is_it);
                found.into_iter().map(|process| (host, process)).collect::<Vec<_>>()
            })
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    }
}

/// Whether these are the words of a command of clusters that the suite has started.
fn works(words: &str) -> bool {
    ["up", "down", "exec"].iter().any(|word| words.contains(&format!(" cluster {word} ")))
        && words.starts_with('/')
        && !words.contains("setpriv")
}
