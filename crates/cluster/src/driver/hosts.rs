//! The hosts of a cluster, and the commands of Coracle that run on them.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use remote::channel::{Event, Running, Stream};
use remote::routes::Route;
use remote::wire::messages::Facts;

use crate::error::{Error, Result};
use crate::plan::Words;

/// A host that is not reached, or not any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Its name.
    pub host: String,
    /// The reason, with the name.
    pub why: String,
}

/// How a command on a host has ended.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
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

    /// What it has printed, as text, without the end of its last line.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).trim_end_matches('\n').to_owned()
    }

    /// All of a command: of each stream the pieces that begin within so many bytes.
    ///
    /// # Errors
    /// As [`Done::take`].
    pub(super) fn of(task: &dyn Task, limit: usize) -> Result<Self> {
        let mut done = Self::default();
        while let Some(event) = task.event() {
            match event {
                Event::Output(Stream::Output, bytes) if done.out.len() < limit => {
                    done.out.extend(bytes);
                }
                Event::Output(Stream::Errors, _) if done.err.len() >= limit => {}
                other => done.take(other)?,
            }
        }
        Ok(done)
    }

    /// Takes all but output.
    ///
    /// # Errors
    /// If the command was not started, or its host is lost.
    pub(super) fn take(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Output(Stream::Output, _) => {}
            Event::Output(Stream::Errors, bytes) => self.err.extend(bytes),
            Event::Ended(ended) => self.status = ended.exit_status(),
            Event::Failed(why) => return Err(Error::new(why)),
            Event::Lost(why) => return Err(Error::new(why.to_string())),
        }
        Ok(())
    }
}

/// A host that carries out commands of Coracle. Commands are given without the program's own name.
pub trait Host: Send + Sync {
    /// Its name in messages, which is what the plan calls it.
    fn name(&self) -> &str;
    /// Runs a command without input. It gets SIGTERM when `stop`, which is asked some times a
    /// second, says so. A host that cannot do that lets it end by itself.
    ///
    /// # Errors
    /// If it cannot be started, or the host is lost.
    fn run_until(&self, words: &Words, stop: &(dyn Fn() -> bool + Sync)) -> Result<Done>;
    /// The same for one that hides nothing and is left to end by itself.
    ///
    /// # Errors
    /// As [`Host::run_until`].
    fn run(&self, words: &[String]) -> Result<Done> {
        self.run_until(&words.to_vec().into(), &|| false)
    }
    /// Runs a command on the caller's own streams, which have to be a terminal if this is another
    /// host. Returns its exit status.
    ///
    /// # Errors
    /// As [`Host::run`].
    fn run_attached(&self, words: &Words, attach: Attach) -> Result<u8>;
    /// Writes a file with these permission bits. It gets its name when it is complete, and
    /// directories that are missing are made for this user only.
    ///
    /// # Errors
    /// If that is not possible, or the host is lost.
    fn put(&self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()>;
    /// What is known of it and its route to the others; `None` for the machine that drives alone.
    fn told(&self) -> Option<(&Facts, Option<&Route>)> {
        None
    }
    /// Starts a command whose streams the caller moves. `input` is false for one without input.
    ///
    /// # Errors
    /// As [`Host::run`]; a remote host tells by an event that the command was not started.
    fn begin(&self, words: &Words, input: bool) -> Result<Box<dyn Task>>;
    /// The same for one that hides nothing.
    ///
    /// # Errors
    /// As [`Host::begin`].
    fn start(&self, words: &[String], input: bool) -> Result<Box<dyn Task>> {
        self.begin(&words.to_vec().into(), input)
    }
    /// The same for another program of the host, with its words.
    ///
    /// # Errors
    /// As [`Host::start`].
    fn launch(&self, words: &[String], input: bool) -> Result<Box<dyn Task>>;
    /// The program of Coracle there, and the words of its options that stand before a command.
    ///
    /// # Errors
    /// If they are no text.
    fn program(&self) -> Result<Vec<String>>;
    /// The name that the host has for itself.
    fn node_name(&self) -> String;
    /// Why the host is lost; `None` while it answers.
    fn lost(&self) -> Option<String> {
        None
    }
}

/// What a command gets of the caller's streams besides those that it writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attach {
    /// Standard input.
    pub input: bool,
    /// The terminal, if the caller has one.
    pub terminal: bool,
}

/// A command that runs on a host. Dropped before its end, it gets SIGTERM. May be used by several
/// threads: one that writes input, one that takes events.
pub trait Task: Send + Sync {
    /// Waits for the next event; `None` after the last one.
    fn event(&self) -> Option<Event>;
    /// Writes to its standard input. Waits while it does not read.
    ///
    /// # Errors
    /// If it has ended, or the host is lost.
    fn input(&self, bytes: &[u8]) -> Result<()>;
    /// Ends its standard input.
    ///
    /// # Errors
    /// If the host is lost.
    fn close_input(&self) -> Result<()>;
    /// Sends a signal; nothing if it has ended.
    ///
    /// # Errors
    /// If the host is lost.
    fn signal(&self, number: i32) -> Result<()>;
}

impl Task for Running {
    fn event(&self) -> Option<Event> {
        Self::event(self)
    }

    fn input(&self, bytes: &[u8]) -> Result<()> {
        Ok(Self::input(self, bytes)?)
    }

    fn close_input(&self) -> Result<()> {
        Ok(Self::close_input(self)?)
    }

    fn signal(&self, number: i32) -> Result<()> {
        Ok(Self::signal(self, number)?)
    }
}

/// The hosts of a cluster, and the machine that drives.
pub struct Hosts {
    here: Arc<dyn Host>,
    others: Vec<Arc<dyn Host>>,
    /// Those that are not reached.
    away: Vec<Lost>,
}

impl Hosts {
    /// A cluster of the machine that drives.
    pub fn here(host: impl Host + 'static) -> Self {
        Self { here: Arc::new(host), others: Vec::new(), away: Vec::new() }
    }

    /// The same machine drives a cluster of these hosts.
    #[must_use]
    pub fn with(self, others: Vec<Box<dyn Host>>) -> Self {
        Self { others: others.into_iter().map(Arc::from).collect(), ..self }
    }

    /// The same without these, which are not reached.
    #[must_use]
    pub(super) fn without(self, away: Vec<Lost>) -> Self {
        Self { away, ..self }
    }

    /// The hosts of the cluster that were not reached.
    pub(super) fn away(&self) -> &[Lost] {
        &self.away
    }

    /// Whether this one of them was not.
    pub(super) fn is_away(&self, name: Option<&str>) -> bool {
        self.away.iter().any(|lost| Some(&*lost.host) == name)
    }

    /// The machine that drives.
    pub fn driver(&self) -> &dyn Host {
        &*self.here
    }

    /// True if the machine that drives is the only one.
    pub fn is_local(&self) -> bool {
        self.others.is_empty()
    }

    /// The hosts that containers are on.
    pub fn all(&self) -> impl Iterator<Item = &dyn Host> {
        let here = self.is_local().then_some(&self.here);
        here.into_iter().chain(&self.others).map(|host| &**host)
    }

    /// The hosts that were reached, and are lost, each with the reason.
    pub fn lost(&self) -> Vec<Lost> {
        let lost =
            |host: &dyn Host| host.lost().map(|why| Lost { host: host.name().to_owned(), why });
        self.all().filter_map(lost).collect()
    }

    /// Does something on all hosts at once, each in a thread of its own. The results are in the
    /// order of the hosts.
    pub fn each<T: Send>(&self, work: impl Fn(&dyn Host) -> Result<T> + Sync) -> Vec<Result<T>> {
        at_once(self.all(), work)
    }

    /// The host of a step; the machine that drives where the step names none.
    ///
    /// # Errors
    /// If there is none of that name, or it was not reached.
    pub fn of(&self, name: Option<&str>) -> Result<&dyn Host> {
        self.find(name).map(|host| &**host)
    }

    /// What is known of a host, and its route to the others.
    pub fn told(&self, name: &str) -> Option<(&Facts, Option<&Route>)> {
        self.find(Some(name)).ok()?.told()
    }

    /// The same for a thread that may outlive these hosts.
    pub(super) fn shared(&self, name: Option<&str>) -> Result<Weak<dyn Host>> {
        self.find(name).map(Arc::downgrade)
    }

    fn find(&self, name: Option<&str>) -> Result<&Arc<dyn Host>> {
        let Some(name) = name else { return Ok(&self.here) };
        let mut all = self.is_local().then_some(&self.here).into_iter().chain(&self.others);
        let found = all.find(|host| host.name() == name);
        let why = || match self.away.iter().find(|lost| lost.host == name) {
            Some(lost) => lost.why.clone(),
            None => format!("there is no host {name}"),
        };
        found.ok_or_else(|| Error::new(why()))
    }
}

/// Does something with all of these at once. The results are in their order.
pub(super) fn at_once<I: Send, T: Send>(
    items: impl Iterator<Item = I>,
    work: impl Fn(I) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let mut items: Vec<I> = items.collect();
    if items.len() <= 1 {
        return items.pop().map(work).into_iter().collect();
    }
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        let lost = || Err(Error::new("a thread of the driver has ended before its step"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    })
}

/// Takes a lock, whose value is whole also after a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command that has failed, with what it said.
pub(super) fn failed(what: impl fmt::Display, words: &[String], done: &Done) -> Error {
    let said = String::from_utf8_lossy(&done.err);
    let said = report(&said);
    let command = remote::shell::join(words);
    Error::new(format!("{what}: {said}")).with_hint(format!("the command was: coracle {command}"))
}

/// The last lines of what a command of Coracle has said, its own report: a fact, causes and a hint.
pub(super) fn report(said: &str) -> &str {
    const ERROR: &str = "error: ";
    let at = said.rfind(ERROR).map_or(0, |at| at + ERROR.len());
    said[at..].trim()
}
