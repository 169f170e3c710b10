//! The steps of a plan.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::at::{At, is_own, last_words, words};
use super::hosts::{Done, Host, failed};
use super::{INTERRUPTED, balance, images, network};
use crate::error::{Error, Result};
use crate::plan::{Act, ReadyBy, Step, Words};
use crate::spec::units;

/// How often a command is repeated until a container is ready, and its state is looked at.
const PAUSE: Duration = Duration::from_millis(200);
/// How often is looked whether a container still runs while a command tries to reach it.
const LOOK: Duration = Duration::from_secs(1);

/// The statuses of a command that a container cannot start, which no repetition helps.
const CANNOT_START: [u8; 2] = [126, 127];

/// How many lines of a container's output an error has.
const LAST_WORDS: &str = "5";

/// Carries out a step. Returns whether there was something to do.
pub(super) fn carry_out(at: &At<'_>, step: &Step) -> Result<bool> {
    match &step.act {
        Act::Told(text) => Err(Error::new(format!("this cannot be done yet: {text}"))),
        Act::Reach(_) | Act::Ranks(_) | Act::Run { .. } | Act::Input(_) | Act::Output(_) => {
            Ok(false)
        }
        Act::Image(name) => images::pull(name, at),
        Act::Spread { image, hosts, .. } => images::spread(image, hosts, at),
        Act::Network(words) => network::create(at, words),
        Act::Join => network::join(at).map(|()| false),
        Act::Balance(balanced) => {
            let service = &balanced.front.service;
            let servers = balance::Servers::of(&at.plan.cluster, service, at.hosts)?;
            // A server that goes here has no container any more, and so nothing to end.
            let asked = balance::Asked { stop: at.stop, note: &|_| {} };
            balance::give(balanced, &servers, at.hosts, asked).map(|()| false)
        }
        Act::Known(words) => {
            let done = at.run(words)?;
            let what = || format!("the names on {}", at.host.name());
            if done.is_good() { Ok(false) } else { Err(failed(what(), words, &done)) }
        }
        Act::Start { container, words } => start(at, container, words),
        Act::Ready { container, by, within } => ready(at, container, by, *within).map(|()| false),
    }
}

/// A container's state, and the status that it has ended with.
fn state(container: &str, host: &dyn Host) -> Result<Option<String>> {
    let format = "{{.State.Status}} {{.State.ExitCode}}";
    let done = host.run(&words(&["container", "inspect", "--format", format, container]))?;
    Ok(done.is_good().then(|| done.text()))
}

/// Whether a container runs, and its end was not asked for: what a killed driver has asked to stop
/// may end after the next driver has looked.
fn goes_on(container: &str, host: &dyn Host) -> Result<bool> {
    let format = "{{.State.Status}} {{.State.StoppedByUser}}";
    let done = host.run(&words(&["container", "inspect", "--format", format, container]))?;
    Ok(done.is_good() && done.text() == "running false")
}

fn start(at: &At<'_>, container: &str, run: &Words) -> Result<bool> {
    if is_own(at.plan, "container", container, at.host)? {
        if goes_on(container, at.host)? {
            return Ok(false);
        }
        // One that ends or has ended, or was never started.
        let remove = words(&["rm", "-f", "-v", container]);
        let done = at.run(&remove)?;
        if !done.is_good() {
            return Err(failed(container, &remove, &done));
        }
    }
    let done = at.run_words(run)?;
    if done.is_good() { Ok(true) } else { Err(failed(container, &run.shown(), &done)) }
}

fn ready(at: &At<'_>, container: &str, by: &ReadyBy, within: Duration) -> Result<()> {
    let until = Instant::now() + within;
    let mut said = String::new();
    loop {
        let is_running = running(at, container, *by == ReadyBy::Running)?;
        let done = match by {
            ReadyBy::Running if is_running => return Ok(()),
            _ if !is_running => None,
            ReadyBy::Running => None,
            ReadyBy::Trying(words) => Some(tried(at, container, words)?),
            ReadyBy::Repeating(words) => Some(at.run(words)?),
        };
        if done.as_ref().is_some_and(Done::is_good) {
            return Ok(());
        }
        if let (ReadyBy::Trying(words), Some(done)) = (by, &done)
            && CANNOT_START.contains(&done.status)
        {
            return Err(failed(format!("{container} on {}", at.host.name()), words, done));
        }
        if let Some(done) = done {
            String::from_utf8_lossy(&done.err).trim().clone_into(&mut said);
        }
        if Instant::now() >= until {
            let mut fact = format!("{container} is not ready after {}", units::spell(within));
            for why in [&said, &end_of_output(at, container)] {
                if !why.is_empty() {
                    fact = format!("{fact}\n{why}");
                }
            }
            return Err(Error::new(fact));
        }
        if (at.stop)() {
            return Err(Error::new(INTERRUPTED));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether a container runs; false for one that is being started again. One whose start is all that
/// counts may have ended well.
fn running(at: &At<'_>, container: &str, may_end: bool) -> Result<bool> {
    let state = state(container, at.host)?;
    let state = state.ok_or_else(|| Error::new(format!("{container} is gone")))?;
    let (state, code) = state.split_once(' ').unwrap_or((&state, ""));
    if state == "running" || state == "restarting" {
        return Ok(state == "running");
    }
    if may_end && state == "exited" && code == "0" {
        return Ok(true);
    }
    let said = end_of_output(at, container);
    let said = if said.is_empty() { said } else { format!("\n{said}") };
    Err(Error::new(format!("{container} has ended with status {code}{said}")))
}

/// Runs a command that tries until a container is ready, as long as the container runs.
fn tried(at: &At<'_>, container: &str, words: &[String]) -> Result<Done> {
    let next = Mutex::new(Instant::now() + LOOK);
    let stop = || {
        let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() < *next {
            return (at.stop)();
        }
        *next = Instant::now() + LOOK;
        (at.stop)() || !running(at, container, false).unwrap_or(false)
    };
    let done = at.host.run_until(&words.to_vec().into(), &stop)?;
    if (at.stop)() { Err(Error::new(INTERRUPTED)) } else { Ok(done) }
}

/// The end of what a container has written, with its heading: it may be gone when the error is
/// read.
fn end_of_output(at: &At<'_>, container: &str) -> String {
    let said = last_words(at.host, container, LAST_WORDS);
    if said.is_empty() { said } else { format!("the end of its output:\n{said}") }
}
