//! A program on a node, as its driver sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::{Error, Result};
use super::events::{Event, Stream};
use super::state::Shared;
use crate::wire::Kind;
use crate::wire::messages::Ended;

/// All of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub ended: Ended,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}

/// A program. Dropped before its end, it gets SIGTERM, and its output is thrown away. May be used
/// by several threads: one that writes input, one that takes events.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    id: u32,
    what: String,
}

impl Running {
    pub(super) fn new(shared: Arc<Shared>, id: u32, what: &str) -> Self {
        Self { shared, id, what: what.to_owned() }
    }

    /// Waits for the next event; `None` after the last one.
    pub fn event(&self) -> Option<Event> {
        self.shared.event(self.id, None)
    }

    /// As [`Running::event`], but `None` also if nothing comes in time.
    pub fn event_within(&self, time: Duration) -> Option<Event> {
        self.shared.event(self.id, Some(Instant::now() + time))
    }

    /// The events to the end.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        std::iter::from_fn(|| self.event())
    }

    /// Writes to standard input. Waits while the program does not read.
    ///
    /// # Errors
    /// [`Error::Over`] if it has ended, [`Error::Lost`].
    pub fn input(&self, bytes: &[u8]) -> Result<()> {
        self.feed(Kind::Input, bytes)
    }

    pub(super) fn feed(&self, kind: Kind, bytes: &[u8]) -> Result<()> {
        self.shared.feed(kind, self.id, bytes, &self.what)
    }

    pub(super) fn finish(&self, kind: Kind) -> Result<()> {
        self.shared.say(kind, self.id, &[])
    }

    /// Ends standard input.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn close_input(&self) -> Result<()> {
        self.finish(Kind::CloseInput)
    }

    /// Sends a signal to the program's group; nothing if it has ended.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn signal(&self, number: i32) -> Result<()> {
        self.shared.say(Kind::Signal, self.id, &number.to_le_bytes())
    }

    /// Gives all output to `take`, until the end.
    ///
    /// # Errors
    /// [`Error::Refused`] if it was not started, [`Error::Lost`], [`Error::Write`] of `take`.
    pub fn copy(
        &self,
        take: &mut dyn FnMut(Stream, &[u8]) -> std::io::Result<()>,
    ) -> Result<Ended> {
        for event in self.events() {
            match event {
                Event::Output(stream, bytes) => take(stream, &bytes)
                    .map_err(|source| Error::Write { what: self.what.clone(), source })?,
                Event::Ended(ended) => return Ok(ended),
                Event::Failed(why) => {
                    return Err(Error::Refused { node: self.shared.node().to_owned(), why });
                }
                Event::Lost(why) => return Err(Error::Lost(why)),
            }
        }
        Err(Error::Over { node: self.shared.node().to_owned(), what: self.what.clone() })
    }

    /// Waits for the end; output is thrown away.
    ///
    /// # Errors
    /// [`Error::Refused`] if it was not started, [`Error::Lost`].
    pub fn wait(&self) -> Result<Ended> {
        self.copy(&mut |_, _| Ok(()))
    }

    /// Waits for the end and gives all output, together at most `limit` bytes.
    ///
    /// # Errors
    /// As [`Running::wait`], and [`Error::TooMuch`]; the program is ended then.
    pub fn output(self, limit: usize) -> Result<Output> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut full = false;
        let done = self.copy(&mut |stream, bytes| {
            if stdout.len() + stderr.len() + bytes.len() > limit {
                full = true;
                return Err(std::io::ErrorKind::FileTooLarge.into());
            }
            match stream {
                Stream::Output => stdout.extend_from_slice(bytes),
                Stream::Errors => stderr.extend_from_slice(bytes),
            }
            Ok(())
        });
        if full {
            let (node, what) = (self.shared.node().to_owned(), self.what.clone());
            return Err(Error::TooMuch { node, what, limit });
        }
        Ok(Output { ended: done?, stdout, stderr })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.shared.drop_run(self.id) {
            let _ = self.signal(15);
        }
    }
}
