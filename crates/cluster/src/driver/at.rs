//! What the steps of a plan have in common.

use std::path::Path;
use std::sync::Mutex;

use super::INTERRUPTED;
use super::hosts::{Done, Host, Hosts};
use crate::error::{Error, Result};
use crate::plan::{LABEL, Plan, Site, Words};

/// What a step is carried out with.
pub(super) struct At<'a> {
    /// The plan that it belongs to.
    pub(super) plan: &'a Plan,
    /// Where.
    pub(super) host: &'a dyn Host,
    /// All hosts of the cluster.
    pub(super) hosts: &'a Hosts,
    /// What is known of them.
    pub(super) sites: &'a [Site],
    /// The cluster's directory on the machine that drives.
    pub(super) kept: &'a Path,
    /// Whether the start is given up.
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
    /// Tells the user a line.
    pub(super) say: &'a (dyn Fn(&str) + Sync),
    /// Held by the one step that moves an image.
    pub(super) turn: &'a Mutex<()>,
}

impl At<'_> {
    /// Runs a command that may take long.
    pub(super) fn run(&self, words: &[String]) -> Result<Done> {
        self.run_words(&words.to_vec().into())
    }

    /// The same for one that may hide something.
    pub(super) fn run_words(&self, words: &Words) -> Result<Done> {
        let done = self.host.run_until(words, self.stop)?;
        if (self.stop)() { Err(Error::new(INTERRUPTED)) } else { Ok(done) }
    }
}

/// A command of these words.
pub(super) fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

/// What an object's label says of its cluster; `None` if it does not exist.
fn cluster_of(kind: &str, name: &str, host: &dyn Host) -> Result<Option<String>> {
    let path = if kind == "network" { ".Labels" } else { ".Config.Labels" };
    let format = format!("{{{{index {path} {LABEL:?}}}}}");
    let done = host.run(&words(&[kind, "inspect", "--format", &format, name]))?;
    Ok(done.is_good().then(|| done.text()))
}

/// An object that somebody else has made is left alone.
pub(super) fn is_own(plan: &Plan, kind: &str, name: &str, host: &dyn Host) -> Result<bool> {
    match cluster_of(kind, name, host)? {
        None => Ok(false),
        Some(cluster) if cluster == plan.cluster => Ok(true),
        Some(_) => Err(Error::new(format!("{kind} {name} is there, and not of this cluster"))
            .with_hint(format!("give the cluster another name, or: coracle {kind} rm {name}"))),
    }
}

/// The last lines that a container has written, to both streams.
pub(super) fn last_words(host: &dyn Host, container: &str, lines: &str) -> String {
    let Ok(done) = host.run(&words(&["logs", "--tail", lines, container])) else {
        return String::new();
    };
    String::from_utf8_lossy(&[done.out, done.err].concat()).trim().to_owned()
}
