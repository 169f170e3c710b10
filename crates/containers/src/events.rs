//! Defines what an operation tells its caller while it is under way, and what it may ask.
//!
//! Operations call [`Events`]; a terminal, a JSON stream, an HTTP response and a test implement it.
//! An [`Event`] is plain data: a terminal draws bars from it, a stream writes it as JSON. Events
//! may come from several threads at once (layers are fetched in parallel).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use registry::Secret;

use crate::error::{Error, Result};

/// Something that happened during an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A line for people: why something takes long, or what was decided.
    Note(&'a str),
    /// A line for people: a request of theirs has no effect, or another one than they may expect.
    Warning(&'a str),
    /// A line for people: the operation waits for another process. Told again about once a second.
    Waiting(&'a str),
    /// A line for the person at the terminal that a program of a container is using now.
    Notice(&'a str),
    /// A program is about to be started in a container.
    Starting {
        /// The container's id.
        container: &'a str,
        /// The program and its arguments.
        command: &'a [String],
    },
    /// What a piece of work is about to do, or has done.
    Progress {
        /// The piece of work.
        work: u64,
        /// One line.
        text: &'a str,
    },
    /// The number of bytes that all parts of a piece of work will move.
    Expected {
        /// The piece of work.
        work: u64,
        /// Bytes, those that are here already included.
        bytes: u64,
    },
    /// A part began, as a layer that is fetched.
    PartStarted(Part<'a>),
    /// Bytes of a part were moved.
    PartMoved {
        /// The piece of work.
        work: u64,
        /// The part.
        part: u64,
        /// Bytes since the last event of this part.
        bytes: u64,
    },
    /// A part is complete.
    PartDone(Part<'a>),
    /// All parts are complete.
    WorkDone {
        /// The piece of work.
        work: u64,
        /// Bytes that were moved by this operation.
        moved: u64,
        /// How long it took.
        elapsed: Duration,
    },
}

/// One of several parts of a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// The piece of work.
    pub work: u64,
    /// Number of the part within the work.
    pub part: u64,
    /// Its name, as the short digest of a layer.
    pub name: &'a str,
    /// What is done: "fetching", "unpacking".
    pub verb: &'a str,
    /// All its bytes.
    pub bytes: u64,
    /// Bytes that were here when it began.
    pub present: u64,
    /// Time since it began.
    pub elapsed: Duration,
}

/// Something that an operation has to know to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Question<'a> {
    /// The password of a user at a registry.
    Password {
        /// The user.
        user: &'a str,
    },
}

/// Receives what operations tell. All methods may be called from several threads at once.
pub trait Events: Send + Sync {
    /// Something happened. It must not block for long: the operation waits for it.
    fn event(&self, event: &Event<'_>);

    /// Answers a question.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where no one can answer, which is the default.
    fn ask(&self, question: &Question<'_>) -> Result<Secret> {
        let Question::Password { user } = question;
        Err(Error::unsupported(format!(
            "the password of {user} is needed, and no one can be asked"
        ))
        .with_hint("give the password with the request"))
    }
}

/// A listener that ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Events for Silent {
    fn event(&self, _: &Event<'_>) {}
}

/// The number of a part that was never begun.
const NO_PART: u64 = u64::MAX;

/// A piece of work with several parts, which tells how far it is.
pub struct Progress<'a> {
    events: &'a dyn Events,
    work: u64,
    next_part: AtomicU64,
    moved: AtomicU64,
    started: Instant,
}

impl<'a> Progress<'a> {
    /// A piece of work that has not told anything yet; `work` tells it from others.
    pub fn new(events: &'a dyn Events, work: u64) -> Self {
        Self {
            events,
            work,
            next_part: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            started: Instant::now(),
        }
    }

    /// Tells one line about the work.
    pub fn say(&self, text: &str) {
        self.events.event(&Event::Progress { work: self.work, text });
    }

    /// Tells the number of bytes that all parts together will move.
    pub fn expect(&self, bytes: u64) {
        self.events.event(&Event::Expected { work: self.work, bytes });
    }

    /// Begins a part, called `name`, in which `verb` is done with `bytes` bytes. `present` of them
    /// are here already.
    pub fn part<'b>(
        &'b self,
        name: &'b str,
        verb: &'b str,
        bytes: u64,
        present: u64,
    ) -> Moving<'b> {
        let part = self.next_part.fetch_add(1, Ordering::Relaxed);
        let elapsed = Duration::ZERO;
        let part = Part { work: self.work, part, name, verb, bytes, present, elapsed };
        self.events.event(&Event::PartStarted(part));
        Moving { progress: self, part, started: Instant::now() }
    }

    /// Tells that `bytes` more were moved, in no particular part.
    pub fn advance(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        self.events.event(&Event::PartMoved { work: self.work, part: NO_PART, bytes });
    }

    /// Tells that all parts are complete.
    pub fn finish(&self) {
        self.events.event(&Event::WorkDone {
            work: self.work,
            moved: self.moved.load(Ordering::Relaxed),
            elapsed: self.started.elapsed(),
        });
    }
}

/// A part that is under way.
pub struct Moving<'a> {
    progress: &'a Progress<'a>,
    part: Part<'a>,
    started: Instant,
}

impl Moving<'_> {
    /// Tells that `bytes` more were moved.
    pub fn advance(&self, bytes: u64) {
        self.progress.moved.fetch_add(bytes, Ordering::Relaxed);
        let Part { work, part, .. } = self.part;
        self.progress.events.event(&Event::PartMoved { work, part, bytes });
    }

    /// Tells that the part is complete.
    pub fn done(self) {
        let elapsed = self.started.elapsed();
        self.progress.events.event(&Event::PartDone(Part { elapsed, ..self.part }));
    }
}
