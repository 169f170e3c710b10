//! Carries out a plan: phases one after the other, the steps of one at once.
//!
//! Every step is a command of Coracle on a [`Host`], and looks first whether its work is done
//! already. So `up` after a killed `up` goes on, and nothing is remembered beside what the
//! commands leave: containers and a network with the cluster's label. `down` removes these.

mod down;
mod local;
pub mod place;
mod status;
mod steps;

use std::fmt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::plan::{Act, Phase, Plan, Step};
use crate::spec::Spec;

use down::down;
pub use local::Local;
pub use place::Place;
pub use status::{Container, status};

/// How a command on a host has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// Its exit status, 128+n for signal n.
    pub status: u8,
    /// What it has printed.
    pub out: Vec<u8>,
    /// What it has said of errors.
    pub err: Vec<u8>,
}

impl Done {
    /// Whether it has ended well.
    pub const fn is_good(&self) -> bool {
        self.status == 0
    }

    /// What it has printed, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).trim_end_matches('\n').to_owned()
    }
}

/// A host that carries out commands of Coracle.
pub trait Host: Sync {
    /// Runs a command, given without the program's own name, without input.
    ///
    /// # Errors
    /// If it cannot be started.
    fn run(&self, words: &[String]) -> Result<Done>;
    /// Runs a command on the caller's own streams. Returns its exit status.
    ///
    /// # Errors
    /// If it cannot be started.
    fn run_attached(&self, words: &[String]) -> Result<u8>;
}

/// What happens meanwhile.
pub trait Watcher: Sync {
    /// A phase begins. An error ends the start before it.
    fn phase(&self, phase: &Phase) -> Result<()>;
}

/// A cluster that is to be there.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'w> {
    /// Its file.
    pub spec: &'w Spec,
    /// What the file comes to.
    pub plan: &'w Plan,
    /// The directory of the store on this machine.
    pub store: &'w Path,
    /// Processors of this machine, which the node containers on it share.
    pub processors: u32,
}

impl Wanted<'_> {
    /// Starts all but its run. What is there is left as it is.
    ///
    /// # Errors
    /// The first step that fails, with what its command has said; what was started before stays. If
    /// another driver is at it.
    pub fn start(&self, host: &dyn Host, watcher: &dyn Watcher) -> Result<()> {
        let place = Place::take(self.store, &self.plan.cluster)?;
        if let Some(slots) = self.processors.checked_div(self.spec.nodes) {
            place.write_host_file(&crate::plan::host_file(self.spec, slots.max(1)))?;
        }
        start(self.plan, host, watcher)
    }
}

/// Ends a cluster: its containers, its network, and what was kept of it here. Returns how many
/// containers there were. All is well where nothing is left.
///
/// # Errors
/// If something stays, or another driver is at it.
pub fn end(store: &Path, cluster: &str, host: &dyn Host) -> Result<usize> {
    let place = Place::take(store, cluster)?;
    let count = down(cluster, host)?;
    place.remove()?;
    Ok(count)
}

/// Starts what a plan says, up to its `run`. What is there is left as it is.
///
/// # Errors
/// The first step that fails, with what its command has said. What was started before stays.
fn start(plan: &Plan, host: &dyn Host, watcher: &dyn Watcher) -> Result<()> {
    for phase in &plan.phases {
        if matches!(phase.steps[..], [Step { act: Act::Run { .. }, .. }]) {
            break;
        }
        watcher.phase(phase)?;
        carry_out(plan, phase, host)?;
    }
    Ok(())
}

/// Runs the application of a plan to its end. Returns its exit status; `None` if there is none.
///
/// # Errors
/// If its command cannot be started.
pub fn run(plan: &Plan, host: &dyn Host) -> Result<Option<u8>> {
    let mut steps = plan.phases.iter().flat_map(|phase| &phase.steps);
    let words = steps.find_map(|step| match &step.act {
        Act::Run { words, .. } => Some(words),
        _ => None,
    });
    words.map(|words| host.run_attached(words)).transpose()
}

fn carry_out(plan: &Plan, phase: &Phase, host: &dyn Host) -> Result<()> {
    let carry_out = |step| steps::carry_out(plan, step, host);
    if let [step] = &phase.steps[..] {
        return carry_out(step);
    }
    let results: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            phase.steps.iter().map(|step| scope.spawn(move || carry_out(step))).collect();
        let lost = || Err(Error::new("a thread of the driver has ended before its step"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    });
    results.into_iter().collect()
}

/// A command that has failed, with what it said.
fn failed(what: impl fmt::Display, words: &[String], done: &Done) -> Error {
    let said = String::from_utf8_lossy(&done.err);
    // The last lines of its own report: a fact, causes and a hint.
    let at = said.rfind("error: ").unwrap_or(0);
    let said = said[at..].trim();
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let command = crate::plan::join(words);
    Error::new(format!("{what}: {said}")).with_hint(format!("the command was: coracle {command}"))
}
