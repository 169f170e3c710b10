//! Images on hosts: each is resolved once, by the machine that drives, and every host gets the
//! same.

mod sbcast;
mod session;

use super::at::{At, words};
use super::hosts::{Done, Host, Task, at_once, failed, lock};
use super::site_of;

use remote::channel::{Event, Stream};

use crate::error::{Error, Result};

/// The digest of an image's configuration; `None` if it is not there.
pub(super) fn id(name: &str, host: &dyn Host) -> Result<Option<String>> {
    let done = host.run(&words(&["image", "inspect", "--format", "{{.Id}}", name]))?;
    Ok(done.is_good().then(|| done.text()))
}

/// Has an image on the machine that drives; one that is there is not asked for again.
/// Returns whether it was pulled.
pub(super) fn pull(name: &str, at: &At<'_>) -> Result<bool> {
    let is_new = id(name, at.host)?.is_none();
    if is_new {
        let pull = words(&["pull", "--quiet", name]);
        let done = at.run(&pull)?;
        if !done.is_good() {
            return Err(failed(format!("image {name}"), &pull, &done));
        }
    }
    fits(name, at.host).map(|()| is_new)
}

/// Checks that programs of an image run on this kind of machine.
fn fits(name: &str, host: &dyn Host) -> Result<()> {
    let words = words(&["image", "inspect", "--format", "{{.Architecture}}", name]);
    let done = host.run(&words)?;
    let found = done.text();
    // Such an image may say nothing, or be of 32 bits.
    if !done.is_good() || matches!(&*found, "" | "amd64" | "386") {
        return Ok(());
    }
    let fact = format!("image {name} is for {found}, and hosts are amd64");
    let hint =
        format!("name one for amd64; if {name} is for several: coracle rmi {name}, and again");
    Err(Error::new(fact).with_hint(hint))
}

/// Has an image on these hosts, in the order in which it is passed on, and in it the same bytes. If
/// the machine that drives does not have it, it pulls it meanwhile. Returns whether there was
/// something to do.
pub(super) fn spread(name: &str, hosts: &[String], at: &At<'_>) -> Result<bool> {
    // One image after the other, so that layers that they share are received once.
    let _turn = lock(at.turn);
    let driver = at.hosts.driver();
    let hosts: Result<Vec<&dyn Host>> = hosts.iter().map(|host| at.hosts.of(Some(host))).collect();
    let sees = |host: &&dyn Host| site_of(at.sites, *host).sees_driver;
    let (sharing, others): (Vec<&dyn Host>, Vec<&dyn Host>) = hosts?.into_iter().partition(sees);
    let stored = id(name, driver)?;
    let lacking = match &stored {
        None => others,
        Some(stored) => {
            let has = at_once(others.iter(), |host| Ok(id(name, *host)?.as_ref() == Some(stored)));
            let has: Result<Vec<bool>> = has.into_iter().collect();
            others.into_iter().zip(has?).filter_map(|(host, has)| (!has).then_some(host)).collect()
        }
    };
    let is_new = stored.is_none() || !lacking.is_empty();
    if !lacking.is_empty() {
        hand_on(name, driver, &lacking, !sharing.is_empty(), at)?;
        fits(name, driver)?;
    } else if stored.is_none() {
        pull(name, &At { host: driver, ..*at })?;
    } else {
        fits(name, driver)?;
    }
    let wanted = match stored {
        Some(stored) => stored,
        None => id(name, driver)?.ok_or_else(|| gone(name, driver))?,
    };
    at_once(sharing.iter().chain(&lacking), |host| check(name, &wanted, *host))
        .into_iter()
        .collect::<Result<Vec<()>>>()?;
    Ok(is_new)
}

/// From host to host. Those who reach none of the others get it by `sbcast` or, where that does not
/// work, through their launchers.
fn hand_on(
    name: &str,
    source: &dyn Host,
    hosts: &[&dyn Host],
    unpack: bool,
    at: &At<'_>,
) -> Result<()> {
    let session::Outcome { alone, failed } = session::run(name, source, hosts, unpack, at)?;
    let mut alone = sbcast::run(name, source, alone, at)?;
    if alone.is_empty() {
        return failed.map_or(Ok(()), Err);
    }
    say_way(name, "through the launcher", &alone, at);
    let count = alone.len();
    let (first, _) = alone.remove(0);
    give(name, source, first)?;
    let mut rest: Vec<&dyn Host> = alone.into_iter().map(|(host, _)| host).collect();
    // A machine that nobody reaches may drive hosts that reach each other.
    if count == hosts.len() && !rest.is_empty() {
        let outcome = session::run(name, first, &rest, false, at)?;
        if let Some(failed) = outcome.failed {
            return Err(failed);
        }
        rest = outcome.alone.into_iter().map(|(host, _)| host).collect();
    }
    let given = at_once(rest.iter(), |host| give(name, source, *host));
    given.into_iter().collect::<Result<Vec<()>>>()?;
    failed.map_or(Ok(()), Err)
}

/// Tells the way of an image to hosts that reach none of the others.
fn say_way(name: &str, way: &str, alone: &[session::Alone<'_>], at: &At<'_>) {
    let names: Vec<&str> = alone.iter().map(|(host, _)| host.name()).collect();
    let (count, first) = (names.len(), names[0]);
    let to = if count > 3 { format!("{count} hosts") } else { names.join(", ") };
    let why = &alone[0].1;
    (at.say)(&format!("{name} goes {way} to {to}: {first} does not reach the others ({why})"));
}

fn gone(name: &str, host: &dyn Host) -> Error {
    Error::new(format!("image {name} is gone from {}", host.name()))
}

/// Whether a host has the image of this id under its name.
fn check(name: &str, wanted: &str, host: &dyn Host) -> Result<()> {
    let what = || format!("image {name} to {}", host.name());
    match id(name, host)? {
        Some(found) if found == wanted => Ok(()),
        Some(found) => Err(Error::new(format!(
            "{}: the image that arrived has the digest {found}, and not {wanted}",
            what()
        ))),
        None => Err(Error::new(format!("{}: it did not arrive under its name", what()))),
    }
}

/// Sends an image through the launcher's stream.
fn give(name: &str, from: &dyn Host, host: &dyn Host) -> Result<()> {
    let save = words(&["save", "--format", "oci-archive", name]);
    let load = words(&["load", "--quiet"]);
    let what = || format!("image {name} to {}", host.name());
    let from = from.start(&save, false)?;
    let to = host.start(&load, true)?;
    let (sent, loaded) = std::thread::scope(|scope| {
        let loaded = scope.spawn(|| Done::of(&*to, usize::MAX));
        let sent = send(&*from, &*to);
        let lost = |_| Err(Error::new("a thread of the driver has ended"));
        (sent, loaded.join().unwrap_or_else(lost))
    });
    // What the reader says comes first: a writer that cannot go on has that for its reason.
    let loaded = loaded?;
    if !loaded.is_good() {
        return Err(failed(what(), &load, &loaded));
    }
    let sent = sent?;
    if sent.is_good() { Ok(()) } else { Err(failed(what(), &save, &sent)) }
}

/// Gives all output of one command to another one. Returns how the first has ended.
fn send(from: &dyn Task, to: &dyn Task) -> Result<Done> {
    let mut done = Done::default();
    let mut open = true;
    while let Some(event) = from.event() {
        match event {
            Event::Output(Stream::Output, bytes) if open => open = to.input(&bytes).is_ok(),
            other => done.take(other)?,
        }
    }
    to.close_input()?;
    Ok(done)
}
