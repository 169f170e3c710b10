//! Drives the processes that pass an image on ([`crate::spread`]): one on each host.

use std::net::SocketAddrV4;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use containers::images::parts::Parts;
use remote::channel::{Event, Stream};

use super::super::INTERRUPTED;
use super::super::at::{At, words};
use super::super::hosts::{Done, Host, Task, at_once, failed};
use crate::error::{Error, Result};
use crate::spread::order;
use crate::spread::words::{Lines, Order, Place, Said};

/// How often is looked whether the start is given up.
const LOOK: Duration = Duration::from_millis(100);

/// A host that got no image this way, and why.
pub(super) type Alone<'h> = (&'h dyn Host, String);

/// A process.
struct Member<'h> {
    host: &'h dyn Host,
    words: Vec<String>,
    task: Box<dyn Task>,
}

#[derive(Debug)]
enum State {
    Starting,
    Listening(Place),
    Done,
    Alone(String),
    Failed(Error),
}

/// What a process has said, or how it has ended.
enum Heard {
    Said(Said),
    Ended(Result<Done>),
}

/// What has come of it.
pub(super) struct Outcome<'h> {
    pub(super) alone: Vec<Alone<'h>>,
    /// Why the first host that has failed has not got it.
    pub(super) failed: Option<Error>,
}

/// Gives an image to hosts, in this order. The source pulls it if it is not there, and with
/// `unpack` unpacks it. Those that reach none of the others, or fail, hold up nobody.
///
/// # Errors
/// That of the source.
pub(super) fn run<'h>(
    name: &str,
    source: &'h dyn Host,
    hosts: &[&'h dyn Host],
    unpack: bool,
    at: &At<'_>,
) -> Result<Outcome<'h>> {
    let start = |(number, host): (usize, &'h dyn Host)| {
        let mut words = words(&["cluster", "spread"]);
        if number == 0 {
            words.extend(["--source".to_owned(), name.to_owned()]);
        }
        if number > 0 || unpack {
            words.push("--unpack".to_owned());
        }
        let site = at.sites.iter().find(|site| site.host.as_deref() == Some(host.name()));
        let address = site.and_then(|site| site.address);
        words.extend(address.map(|address| format!("--address={address}")));
        let task = host.start(&words, true)?;
        Ok(Member { host, words, task })
    };
    let all = std::iter::once(source).chain(hosts.iter().copied()).enumerate();
    let members: Result<Vec<Member<'h>>> = at_once(all, start).into_iter().collect();
    let members = members?;
    std::thread::scope(|scope| {
        let (sender, heard) = channel();
        for (number, member) in members.iter().enumerate() {
            let sender = sender.clone();
            scope.spawn(move || hear(number, &*member.task, &sender));
        }
        let states = members.iter().map(|_| State::Starting).collect();
        let mut session = Session { name, members: &members, states, image: None, heard };
        let ended = session.conduct(at.stop);
        // The threads end when the processes do.
        for member in &members {
            let _ = if ended.is_ok() { member.task.close_input() } else { member.task.signal(15) };
        }
        ended?;
        let hosts = members.iter().zip(session.states).skip(1);
        let mut outcome = Outcome { alone: Vec::new(), failed: None };
        for (member, state) in hosts {
            match state {
                State::Alone(why) => outcome.alone.push((member.host, why)),
                State::Failed(error) => outcome.failed = outcome.failed.or(Some(error)),
                State::Starting | State::Listening(_) | State::Done => {}
            }
        }
        Ok(outcome)
    })
}

/// Tells what a process says until it ends.
fn hear(number: usize, task: &dyn Task, to: &Sender<(usize, Heard)>) {
    let mut lines = Lines::default();
    let mut done = Done::default();
    let mut listen = || -> Result<()> {
        while let Some(event) = task.event() {
            match event {
                Event::Output(Stream::Output, bytes) => {
                    for line in lines.take(&bytes)? {
                        let _ = to.send((number, Heard::Said(Said::read(&line)?)));
                    }
                }
                other => done.take(other)?,
            }
        }
        Ok(())
    };
    let listened = listen();
    if listened.is_err() {
        let _ = task.signal(15);
    }
    let _ = to.send((number, Heard::Ended(listened.map(|()| done))));
}

struct Session<'s, 'h> {
    name: &'s str,
    members: &'s [Member<'h>],
    states: Vec<State>,
    image: Option<Box<Parts>>,
    heard: Receiver<(usize, Heard)>,
}

impl Session<'_, '_> {
    /// Until every process has the image, or has ended.
    fn conduct(&mut self, stop: &(dyn Fn() -> bool + Sync)) -> Result<()> {
        self.until(stop, |session| {
            let is_starting = |state: &State| matches!(state, State::Starting);
            session.image.is_some() && !session.states.iter().any(is_starting)
        })?;
        self.order()?;
        self.until(stop, |session| {
            !session.states.iter().any(|state| matches!(state, State::Listening(_)))
        })
    }

    fn until(
        &mut self,
        stop: &(dyn Fn() -> bool + Sync),
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<()> {
        while !is_so(self) {
            match self.heard.recv_timeout(LOOK) {
                Ok((number, heard)) => self.note(number, heard),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Error::new("no host is left")),
            }
            if stop() {
                return Err(Error::new(INTERRUPTED));
            }
            if let State::Failed(error) = &self.states[0] {
                return Err(error.clone());
            }
        }
        Ok(())
    }

    fn note(&mut self, number: usize, heard: Heard) {
        let member = &self.members[number];
        let state = &mut self.states[number];
        let what = || format!("image {} on {}", self.name, member.host.name());
        match heard {
            Heard::Said(Said::At { key, port, addresses }) => {
                let at = addresses.into_iter().map(|address| SocketAddrV4::new(address, port));
                *state = State::Listening(Place { key, at: at.collect() });
            }
            Heard::Said(Said::Image(parts)) => self.image = Some(parts),
            Heard::Said(Said::Whole) => {}
            Heard::Said(Said::Done(_)) => *state = State::Done,
            Heard::Said(Said::Alone(why)) => *state = State::Alone(why),
            Heard::Ended(_) if matches!(state, State::Done | State::Alone(_)) => {}
            Heard::Ended(Ok(done)) if done.err.is_empty() => {
                let fact = format!("{}: its process has ended with {}", what(), done.status);
                let hint = "call up again: it goes on where it was";
                *state = State::Failed(Error::new(fact).with_hint(hint));
            }
            Heard::Ended(Ok(done)) => *state = State::Failed(failed(what(), &member.words, &done)),
            Heard::Ended(Err(error)) => {
                *state = State::Failed(Error::new(format!("{}: {error}", what())));
            }
        }
    }

    /// Tells every process that listens whom it asks and whom it answers.
    fn order(&self) -> Result<()> {
        let there = self.members.iter().zip(&self.states);
        let there = there.filter_map(|(member, state)| match state {
            State::Listening(place) => Some((member, place)),
            _ => None,
        });
        let there: Vec<(&Member<'_>, &Place)> = there.collect();
        let mut orders: Vec<Order> = there.iter().map(|_| Order::default()).collect();
        for number in 1..there.len() {
            orders[number].image = self.image.as_deref().cloned();
            for other in order::asks(number) {
                orders[number].hosts.push(there[other].1.clone());
                orders[other].guests.push(there[number].1.key);
            }
        }
        let tell = |((member, _), order): (&(&Member<'_>, &Place), Order)| {
            // One that reads no more has ended, and says why.
            let _ = member.task.input(order.to_string().as_bytes());
            Ok(())
        };
        at_once(there.iter().zip(orders), tell).into_iter().collect()
    }
}
