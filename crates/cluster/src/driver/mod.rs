//! Carries out a plan: phases one after the other, the steps of one at once.
//!
//! Every step is a command of Coracle on a [`Host`], and looks first whether its work is done
//! already. So `up` after a killed `up` goes on, and nothing is remembered beside what the
//! commands leave: containers and a network with the cluster's label. `down` removes these.

mod copy;
mod down;
mod hosts;
mod local;
mod logs;
mod member;
pub mod place;
mod status;
mod steps;

use std::fmt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::plan::{Act, Phase, Plan, Step};
use crate::spec::Spec;

pub use copy::{Copies, Inside};
use down::down;
pub use hosts::{Done, Host, Hosts, Task};
pub use local::Local;
pub use logs::{Logs, Reader};
pub use member::{Exec, exec, run_again};
pub use place::Place;
pub use status::{Container, status};

/// What happens meanwhile.
pub trait Watcher: Sync {
    /// A phase begins. An error ends the start before it.
    fn phase(&self, phase: &Phase) -> Result<()>;

    /// Whether the start is given up. Asked some times a second.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// What an error says after [`Watcher::is_stopped`].
const INTERRUPTED: &str = "interrupted";

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
    /// Starts all but its run. What is there is left as it is. Returns false if all was there.
    ///
    /// # Errors
    /// The first step that fails, with what its command has said; what was started before stays. If
    /// another driver is at it.
    pub fn start(&self, hosts: &Hosts, watcher: &dyn Watcher) -> Result<bool> {
        let place = Place::take(self.store, &self.plan.cluster)?;
        if let Some(slots) = self.processors.checked_div(self.spec.nodes) {
            place.write_host_file(&crate::plan::host_file(self.spec, slots.max(1)))?;
        }
        start(self.plan, hosts, watcher)
    }
}

/// Ends a cluster: its containers, its network, and what was kept of it here. Returns how many
/// containers there were. All is well where nothing is left.
///
/// # Errors
/// If something stays, or another driver is at it.
pub fn end(store: &Path, cluster: &str, hosts: &Hosts) -> Result<usize> {
    let place = Place::take(store, cluster)?;
    let count = down(cluster, hosts)?;
    place.remove()?;
    Ok(count)
}

/// Starts what a plan says, up to its `run`. What is there is left as it is. Returns false if all
/// was there.
///
/// # Errors
/// The first step that fails, with what its command has said. What was started before stays.
fn start(plan: &Plan, hosts: &Hosts, watcher: &dyn Watcher) -> Result<bool> {
    let mut is_new = false;
    for phase in &plan.phases {
        if matches!(phase.steps[..], [Step { act: Act::Run { .. }, .. }]) {
            break;
        }
        if watcher.is_stopped() {
            return Err(Error::new(INTERRUPTED));
        }
        watcher.phase(phase)?;
        is_new |= carry_out(plan, phase, hosts, watcher)?;
    }
    Ok(is_new)
}

/// Runs the application of a plan to its end. Returns its exit status; `None` if there is none.
///
/// # Errors
/// If its command cannot be started.
pub fn run(plan: &Plan, hosts: &Hosts) -> Result<Option<u8>> {
    let mut steps = plan.phases.iter().flat_map(|phase| &phase.steps);
    let found = steps.find_map(|step| match &step.act {
        Act::Run { words, .. } => Some((step, words)),
        _ => None,
    });
    let Some((step, words)) = found else { return Ok(None) };
    hosts.of(step.host.as_deref())?.run_attached(words).map(Some)
}

fn carry_out(plan: &Plan, phase: &Phase, hosts: &Hosts, watcher: &dyn Watcher) -> Result<bool> {
    let stop = || watcher.is_stopped();
    let one = |step: &Step| {
        let host = hosts.of(step.host.as_deref())?;
        steps::carry_out(&steps::At { plan, host, stop: &stop }, step)
    };
    let done: Result<Vec<bool>> = hosts::at_once(phase.steps.iter(), one).into_iter().collect();
    Ok(done?.contains(&true))
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
