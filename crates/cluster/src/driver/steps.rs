//! The steps of a plan.

use std::time::{Duration, Instant};

use super::hosts::{Done, Host, Hosts, failed};
use super::{images, network, site_of};
use crate::error::{Error, Result};
use crate::plan::{Act, LABEL, Plan, ReadyBy, Site, Step};
use crate::spec::units;

/// How often a command is repeated until a container is ready, and its state is looked at.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) fn carry_out(plan: &Plan, step: &Step, hosts: &Hosts, sites: &[Site]) -> Result<()> {
    let host = hosts.of(step.host.as_deref())?;
    match &step.act {
        Act::Told(text) => Err(Error::new(format!("this cannot be done yet: {text}"))),
        Act::Reach(_) | Act::Run { .. } => Ok(()),
        Act::Image(name) if step.host.is_none() => images::pull(name, host),
        Act::Image(name) => images::give(name, host, hosts),
        Act::Network(words) => network::create(plan, words, host),
        Act::Join => {
            let list = |name: &str| {
                let named = hosts.of(Some(name)).map_or(host, |host| host);
                site_of(sites, named).members()
            };
            network::join(plan, hosts, &list)
        }
        Act::Known(words) => {
            let done = host.run(words)?;
            let what = || format!("the names on {}", host.name());
            if done.is_good() { Ok(()) } else { Err(failed(what(), words, &done)) }
        }
        Act::Start { container, words } => start(plan, container, words, host),
        Act::Ready { container, by, within } => ready(container, by, *within, host),
    }
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

/// What an object's label says of its cluster; `None` if there is no such object.
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

fn state(container: &str, host: &dyn Host) -> Result<Option<String>> {
    let format = "{{.State.Status}} {{.State.ExitCode}}";
    let done = host.run(&words(&["container", "inspect", "--format", format, container]))?;
    Ok(done.is_good().then(|| done.text()))
}

fn start(plan: &Plan, container: &str, run: &[String], host: &dyn Host) -> Result<()> {
    if is_own(plan, "container", container, host)? {
        if state(container, host)?.is_some_and(|state| state.starts_with("running")) {
            return Ok(());
        }
        // One that has ended, or was never started.
        let remove = words(&["rm", "-f", container]);
        let done = host.run(&remove)?;
        if !done.is_good() {
            return Err(failed(container, &remove, &done));
        }
    }
    let done = host.run(run)?;
    if done.is_good() { Ok(()) } else { Err(failed(container, run, &done)) }
}

fn ready(container: &str, by: &ReadyBy, within: Duration, host: &dyn Host) -> Result<()> {
    let until = Instant::now() + within;
    let late = |done: Option<&Done>| {
        let said = done.map(|done| String::from_utf8_lossy(&done.err).trim().to_owned());
        let said = said.filter(|said| !said.is_empty());
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        let fact = format!("{container} is not ready after {}{said}", units::spell(within));
        Error::new(fact).with_hint(format!("see: coracle logs {container}"))
    };
    loop {
        match state(container, host)? {
            Some(state) if state.starts_with("running") => {}
            Some(state) => {
                let (_, code) = state.split_once(' ').unwrap_or_default();
                let fact = format!("{container} has ended with status {code}");
                return Err(Error::new(fact).with_hint(format!("see: coracle logs {container}")));
            }
            None => return Err(Error::new(format!("{container} is gone"))),
        }
        let done = match by {
            ReadyBy::Running => return Ok(()),
            ReadyBy::Trying(words) | ReadyBy::Repeating(words) => host.run(words)?,
        };
        if done.is_good() {
            return Ok(());
        }
        let tries = matches!(by, ReadyBy::Repeating(_));
        if !tries || Instant::now() >= until {
            return Err(late(Some(&done)));
        }
        std::thread::sleep(PAUSE);
    }
}
