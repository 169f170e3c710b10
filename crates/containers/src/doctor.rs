//! Examines the host: what it allows, which mode a run takes by itself, and why not the others.
//!
//! The facts and trials are those of the crate `host`; each engine says how well it fits them.
//! Every mode has its line, also one that this build does not have. [`networks`] says the same of
//! networks.

mod networks;

use std::collections::BTreeMap;

use engine::choose::{CallsBy, Engine, Fit, RootKind, by_name, choose, modes, options};
use engine::facts::Facts;
use engine::spec::ContainerConfig;
use host::Host;
use serde::Serialize;

use crate::session::Session;
pub use networks::NetworkLine;

/// What was found.
#[derive(Debug)]
pub struct Answer {
    /// The host, with every trial made anew.
    pub host: Host,
    /// All modes.
    pub engines: Vec<EngineLine>,
    /// All kinds of networks.
    pub networks: Vec<NetworkLine>,
}

/// Examines the host by trials, which takes some tens of milliseconds.
pub fn examine(session: &Session) -> Answer {
    let probing = session.probing();
    let mut host = Host::thorough(&probing);
    session.try_inside(&mut host);
    let mut facts = Facts::of(&host, &probing, &ContainerConfig::default());
    session.name_programs(&mut host);
    facts.find_helpers(&host);
    let engines = engines(&host, &facts);
    let networks = networks::networks(&host, &engines);
    Answer { host, engines, networks }
}

/// How well a mode fits this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Ready,
    /// It works, with less.
    Degraded,
    /// It does not work.
    Unusable,
    /// This build does not have it.
    Absent,
}

/// One mode.
#[derive(Debug, Serialize)]
pub struct EngineLine {
    /// Its name.
    pub mode: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// How well it fits.
    pub state: State,
    /// True for the mode that a run takes by itself.
    pub chosen: bool,
    /// Why it works with less or not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What would make it work, or work better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// What becomes in it of the options of `run` that not every mode can carry out.
    pub options: BTreeMap<&'static str, options::Answer>,
}

/// All modes. The chosen one is that of a run that asks for nothing.
fn engines(host: &Host, facts: &Facts) -> Vec<EngineLine> {
    let chosen = choose(facts, None, &ContainerConfig::default()).ok().map(Engine::name);
    modes()
        .into_iter()
        .map(|(mode, about)| {
            let built = by_name(mode);
            let (state, why) = match built.map(|engine| engine.probe(facts)) {
                Some(Fit::Ready) => (State::Ready, None),
                Some(Fit::Degraded(why)) => (State::Degraded, Some(why)),
                Some(Fit::Unusable(why)) => (State::Unusable, Some(why)),
                None => (State::Absent, Some("not in this build".to_owned())),
            };
            let (state, why) = match built.and_then(|engine| without_programs(host, engine)) {
                Some(less) if state == State::Ready || state == State::Degraded => less,
                _ => (state, why),
            };
            let advice = if state == State::Absent { None } else { advice(host, mode, state) };
            let chosen = chosen == Some(mode);
            let options = built.map(|engine| options::answers(engine, facts));
            let options = options.into_iter().flatten().collect();
            EngineLine { mode, about, state, chosen, why, advice, options }
        })
        .collect()
}

/// What a store on a file system that is mounted noexec leaves of an engine: the kernel maps no
/// program of a tree there. Engines inside the process start their own program from memory, so they
/// can run what lies elsewhere; a tracer's loader lies in the store.
fn without_programs(host: &Host, engine: &dyn Engine) -> Option<(State, Option<String>)> {
    let noexec = host.store.as_ref().is_some_and(|disk| disk.exec.is_fails());
    if !noexec || engine.properties().root == RootKind::Mounts {
        return None;
    }
    Some(match engine.properties().calls {
        CallsBy::Process => {
            let why = "the store is mounted noexec: only programs of a --rootfs elsewhere";
            (State::Degraded, Some(why.to_owned()))
        }
        CallsBy::Tracer | CallsBy::Kernel => {
            (State::Unusable, Some("the store is mounted noexec".to_owned()))
        }
    })
}

/// What would make an engine work, or work better: the advice of the trial that it hangs on.
fn advice(host: &Host, mode: &str, state: State) -> Option<String> {
    let trial = match state {
        _ if mode != "N1" && host.store.as_ref().is_some_and(|disk| disk.exec.is_fails()) => {
            return None;
        }
        State::Unusable if matches!(mode, "P1" | "P2") => {
            let trials = [&host.ptrace.child, &host.seccomp.filter, &host.ptrace.seccomp_stops];
            trials.into_iter().find(|trial| trial.is_fails())?
        }
        State::Unusable if matches!(mode, "I1" | "I2") && host.seccomp.filter.is_fails() => {
            &host.seccomp.filter
        }
        _ if mode != "N1" => return None,
        State::Unusable if host.namespaces.user.is_fails() => &host.namespaces.user,
        State::Unusable => &host.seccomp.filter,
        _ if host.overlay.kernel.is_fails() => &host.overlay.kernel,
        _ => return None,
    };
    trial.advice().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Trial;

    /// A host that was probed thoroughly, without user namespaces or with them.
    fn facts_of(host: &Host) -> Vec<EngineLine> {
        let probing = host::Context::default();
        engines(host, &Facts::of(host, &probing, &ContainerConfig::default()))
    }

    #[test]
    fn every_mode_has_a_line_and_one_is_chosen() {
        let host = Host::default();
        let lines = facts_of(&host);
        assert_eq!(lines.len(), modes().len());
        assert_eq!(lines.iter().filter(|line| line.chosen).count(), 1);
        for line in &lines {
            assert_eq!(
                line.state == State::Absent,
                line.why.as_deref() == Some("not in this build")
            );
        }
    }

    #[test]
    fn a_store_without_programs_leaves_overlays() {
        let exec = Trial::fails("access(X_OK)", "Permission denied");
        let store = Some(host::Disk { exec, ..host::Disk::default() });
        let lines = facts_of(&Host { store, ..Host::default() });
        let state = |mode| lines.iter().find(|line| line.mode == mode).map(|line| line.state);
        assert_eq!(state("N1"), Some(State::Ready));
        assert_eq!((state("I1"), state("P1")), (Some(State::Degraded), Some(State::Unusable)));
    }

    #[test]
    fn a_host_without_namespaces_says_what_to_do() {
        let mut host = Host::default();
        host.namespaces.user =
            Trial::fails("unshare", "AppArmor refuses").with_advice("administrator: a profile");
        let lines = facts_of(&host);
        let native = lines.iter().find(|line| line.mode == "N1").unwrap();
        assert_eq!(native.state, State::Unusable);
        assert!(!native.chosen);
        assert_eq!(native.advice.as_deref(), Some("administrator: a profile"));
    }
}
