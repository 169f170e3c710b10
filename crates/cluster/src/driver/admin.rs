//! A balancer that runs, by its admin socket: what it is asked, and what it is told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use remote::channel::{Event, Stream};

use super::at::words;
use super::hosts::{Host, Task};
use crate::balance::{self, Active, Answers, Counted, Found, Front, Requests, Server};
use crate::error::{Error, Result};
use crate::plan::{Balancer, PROGRAM};

/// An answer comes within so long, or never.
const PATIENCE: Duration = Duration::from_secs(10);
const KILL: i32 = 9;

/// A balancer and the program in its container that speaks with it.
pub(super) struct Admin<'h> {
    host: &'h dyn Host,
    container: String,
    speaker: Option<Speaker>,
}

/// The program in the balancer's container.
struct Speaker {
    task: Arc<dyn Task>,
    events: Receiver<Event>,
    answers: Answers,
    /// What it has said of errors.
    said: Vec<u8>,
}

impl Speaker {
    fn start(host: &dyn Host, container: &str) -> Result<Self> {
        let ask = ["exec", "-i", container, PROGRAM, "cluster", "ask"];
        let task: Arc<dyn Task> = Arc::from(host.start(&words(&ask), true)?);
        let (sender, events) = channel();
        let other = Arc::clone(&task);
        std::thread::spawn(move || {
            while let Some(event) = other.event() {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Self { task, events, answers: Answers::default(), said: Vec::new() })
    }

    /// What a command is answered with, or why it is not answered.
    fn ask(&mut self, command: &str) -> Result<Result<String, String>> {
        self.task.input(format!("{command}\n").as_bytes())?;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = self.answers.take()? {
                return Ok(answer);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(Event::Output(Stream::Output, bytes)) => self.answers.feed(&bytes),
                Ok(Event::Output(Stream::Errors, bytes)) => self.said.extend(bytes),
                Ok(Event::Failed(why)) => return Err(Error::new(why)),
                Ok(Event::Lost(why)) => return Err(Error::new(why.to_string())),
                Ok(Event::Ended(_)) => {
                    let said = String::from_utf8_lossy(&self.said);
                    return Err(Error::new(super::hosts::report(&said)));
                }
                Err(_) => return Err(Error::new("no answer comes")),
            }
        }
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        // It has nothing to lose, and may hang with its container.
        let _ = self.task.signal(KILL);
    }
}

impl<'h> Admin<'h> {
    pub(super) fn of(balancer: &Balancer, host: &'h dyn Host) -> Self {
        Self { host, container: balancer.container.clone(), speaker: None }
    }

    /// Asks it. A program that has ended with an earlier start of the container is started anew.
    ///
    /// # Errors
    /// If it does not answer.
    fn ask(&mut self, command: &str) -> Result<String> {
        let was_there = self.speaker.is_some();
        let asked = self.ask_once(command).or_else(|error| {
            self.speaker = None;
            if was_there { self.ask_once(command) } else { Err(error) }
        });
        let wrong = |why: &str| Error::new(format!("{} does not answer: {why}", self.container));
        match asked {
            Ok(answer) => answer.map_err(|why| wrong(&why)),
            Err(error) => {
                let error = wrong(&error.to_string());
                self.speaker = None;
                Err(error)
            }
        }
    }

    fn ask_once(&mut self, command: &str) -> Result<Result<String, String>> {
        let speaker = match &mut self.speaker {
            Some(there) => there,
            none => none.insert(Speaker::start(self.host, &self.container)?),
        };
        speaker.ask(command)
    }

    /// Tells it something; its answer to that, if all is well, is `good`.
    fn tell(&mut self, command: &str, good: &str) -> Result<()> {
        let answer = self.ask(command)?;
        let answer = answer.trim();
        if answer == good {
            return Ok(());
        }
        Err(Error::new(format!("{} refuses {command:?}: {answer}", self.container)))
    }

    fn not_understood(&self, what: &str) -> Error {
        Error::new(format!("{what} of {} are not understood", self.container))
            .with_hint("its image has HAProxy 2.6 or later")
    }

    /// The servers that it has.
    pub(super) fn servers(&mut self, proxy: &str) -> Result<Vec<Found>> {
        let answer = self.ask(&format!("show servers state {proxy}"))?;
        if answer.starts_with("Can't find backend") {
            let fact = format!("{} was started without {proxy}", self.container);
            let hint = format!("start it anew: coracle rm -f {}, and cluster up", self.container);
            return Err(Error::new(fact).with_hint(hint));
        }
        balance::found(&answer).ok_or_else(|| self.not_understood("the servers"))
    }

    /// What its servers do, over all of its parts.
    pub(super) fn active(&mut self) -> Result<Vec<Active>> {
        let answer = self.ask("show stat")?;
        balance::active(&answer).ok_or_else(|| self.not_understood("the servers"))
    }

    /// What its servers do, and what it has counted, over all of its parts.
    pub(super) fn activity(&mut self) -> Result<(Vec<Active>, Counted)> {
        let info = self.ask("show info")?;
        let stat = self.ask("show stat")?;
        let found = balance::active(&stat).zip(balance::counted(&stat, &info));
        found.ok_or_else(|| self.not_understood("the counters"))
    }

    /// Times of requests that were not `seen` before.
    pub(super) fn requests(&mut self, seen: &BTreeSet<u64>) -> Result<Requests> {
        Ok(balance::requests(&self.ask("show events requests")?, seen))
    }

    /// Has it know a server, which takes requests then.
    pub(super) fn add(&mut self, front: &Front, port: u16, server: &Server) -> Result<()> {
        let proxy = front.proxy(port);
        let (name, address, options) = (&server.name, server.address, front.options());
        let add = format!("add server {proxy}/{name} {address}:{port} {options}");
        self.tell(&add, "New server registered.")?;
        self.take_up(&proxy, name)
    }

    /// Has a server that it knows take requests, as long as it is well.
    pub(super) fn take_up(&mut self, proxy: &str, server: &str) -> Result<()> {
        // One that was added by somebody who was killed then is not looked at yet.
        self.tell(&format!("enable health {proxy}/{server}"), "")?;
        self.tell(&format!("set server {proxy}/{server} state ready"), "")
    }

    /// Gives a server no more requests; it ends those that it has.
    pub(super) fn drain(&mut self, proxy: &str, server: &str) -> Result<()> {
        self.tell(&format!("set server {proxy}/{server} state drain"), "")
    }

    /// Ends what a server is at, and has no requests for it any more.
    pub(super) fn put_out(&mut self, proxy: &str, server: &str) -> Result<()> {
        self.tell(&format!("set server {proxy}/{server} state maint"), "")?;
        self.tell(&format!("shutdown sessions server {proxy}/{server}"), "")
    }

    /// Has it forget a server that was put out.
    pub(super) fn forget(&mut self, proxy: &str, server: &str) -> Result<()> {
        self.tell(&format!("del server {proxy}/{server}"), "Server deleted.")
    }
}
