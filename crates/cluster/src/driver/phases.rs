//! Phases: the steps of one are carried out at once.

use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use super::hosts::{Hosts, at_once};
use super::{Watcher, at, slow, steps};
use crate::error::Result;
use crate::plan::{Act, Phase, Plan, Site, Step};

/// What phases are carried out with.
pub(super) struct Phases<'a> {
    pub(super) plan: &'a Plan,
    pub(super) hosts: &'a Hosts,
    pub(super) sites: &'a [Site],
    /// The cluster's directory on the machine that drives.
    pub(super) kept: &'a Path,
    pub(super) watcher: &'a dyn Watcher,
}

impl Phases<'_> {
    /// Carries out a phase. Returns whether there was something to do.
    ///
    /// # Errors
    /// The first step that fails.
    pub(super) fn carry_out(&self, phase: &Phase) -> Result<bool> {
        let stop = || self.watcher.is_stopped();
        let say = |text: &str| self.watcher.note(text);
        let turn = Mutex::new(());
        let one = |step: &Step| {
            let host = self.hosts.of(step.host.as_deref())?;
            let (plan, hosts, sites, kept) = (self.plan, self.hosts, self.sites, self.kept);
            let (stop, say, turn) = (&stop, &say, &turn);
            let at = at::At { plan, host, hosts, sites, kept, stop, say, turn };
            let began = Instant::now();
            let is_new = steps::carry_out(&at, step)?;
            // Other steps wait for what others do.
            let is_work = matches!(step.act, Act::Network(_) | Act::Start { .. });
            Ok((is_new, is_work.then(|| (host.name(), began.elapsed()))))
        };
        let done: Vec<(bool, _)> =
            at_once(phase.steps.iter(), one).into_iter().collect::<Result<_>>()?;
        let times: Vec<_> = done.iter().filter_map(|(_, time)| *time).collect();
        if let Some(text) = slow::told(&phase.name, &times) {
            self.watcher.note(&text);
        }
        Ok(done.iter().any(|(is_new, _)| *is_new))
    }
}
