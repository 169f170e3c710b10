//! Images on hosts: each is pulled once, by the machine that drives, and every host gets the same.

use super::at::{At, words};
use super::hosts::{Done, Host, Task, failed};

use crate::channel::{Event, Stream};
use crate::error::{Error, Result};

/// The digest of an image's configuration; `None` if it is not there.
fn id(name: &str, host: &dyn Host) -> Result<Option<String>> {
    let done = host.run(&words(&["image", "inspect", "--format", "{{.Id}}", name]))?;
    Ok(done.is_good().then(|| done.text()))
}

/// Has an image on the machine that drives; one that is there is not asked for again.
/// Returns whether it was pulled.
pub(super) fn pull(name: &str, at: &At<'_>) -> Result<bool> {
    if id(name, at.host)?.is_some() {
        return Ok(false);
    }
    let pull = words(&["pull", "--quiet", name]);
    let done = at.run(&pull)?;
    if done.is_good() { Ok(true) } else { Err(failed(format!("image {name}"), &pull, &done)) }
}

/// Checks that programs of an image run on this kind of machine.
pub(super) fn fits(name: &str, at: &At<'_>) -> Result<()> {
    let words = words(&["image", "inspect", "--format", "{{.Architecture}}", name]);
    let done = at.host.run(&words)?;
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

/// Has the driver's image on another host, and in it the same bytes. Returns whether it was sent.
pub(super) fn give(name: &str, at: &At<'_>) -> Result<bool> {
    let (driver, host) = (at.hosts.driver(), at.host);
    let wanted = id(name, driver)?
        .ok_or_else(|| Error::new(format!("image {name} is gone from {}", driver.name())))?;
    if id(name, host)?.as_ref() == Some(&wanted) {
        return Ok(false);
    }
    let save = words(&["save", "--format", "oci-archive", name]);
    let load = words(&["load", "--quiet"]);
    let what = || format!("image {name} to {}", host.name());
    let from = driver.start(&save, false)?;
    let to = host.start(&load, true)?;
    let (sent, loaded) = std::thread::scope(|scope| {
        let loaded = scope.spawn(|| collect(&*to));
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
    if !sent.is_good() {
        return Err(failed(what(), &save, &sent));
    }
    match id(name, host)? {
        Some(found) if found == wanted => Ok(true),
        Some(found) => Err(Error::new(format!(
            "{}: the image that arrived has the digest {found}, and not {wanted}",
            what()
        ))),
        None => Err(Error::new(format!("{}: it did not arrive under its name", what()))),
    }
}

/// Gives all output of one command to another one. Returns how the first has ended.
fn send(from: &dyn Task, to: &dyn Task) -> Result<Done> {
    let mut done = Done { status: 0, out: Vec::new(), err: Vec::new() };
    let mut open = true;
    while let Some(event) = from.event() {
        match event {
            Event::Output(Stream::Output, bytes) if open => open = to.input(&bytes).is_ok(),
            other => end(&mut done, other)?,
        }
    }
    to.close_input()?;
    Ok(done)
}

/// All output of a command.
fn collect(task: &dyn Task) -> Result<Done> {
    let mut done = Done { status: 0, out: Vec::new(), err: Vec::new() };
    while let Some(event) = task.event() {
        match event {
            Event::Output(Stream::Output, bytes) => done.out.extend(bytes),
            other => end(&mut done, other)?,
        }
    }
    Ok(done)
}

fn end(done: &mut Done, event: Event) -> Result<()> {
    match event {
        Event::Output(Stream::Output, _) => {}
        Event::Output(Stream::Errors, bytes) => done.err.extend(bytes),
        Event::Ended(ended) => done.status = ended.exit_status(),
        Event::Failed(why) => return Err(Error::new(why)),
        Event::Lost(why) => return Err(Error::new(why.to_string())),
    }
    Ok(())
}
