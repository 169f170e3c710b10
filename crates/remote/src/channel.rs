//! The driver's end of a stream to a node.
//!
//! [`Channel::open`] starts the launcher, brings the binary if the node asks for it, and gives the
//! node's facts. One thread for each channel (`io`) owns the launcher's process and streams: it
//! starts it (so that the kernel ends the launcher with the driver, see [`sys::child`]), reads,
//! writes what is in the queue, sends pings and notices silence. Everything else may be called from
//! several threads; it changes a state under one lock and waits on one condition.
//!
//! Output that nobody takes stays with the node (see [`crate::wire`], credit): a channel keeps at
//! most [`crate::wire::WINDOW`] bytes for each program and two queues of that size.
//!
//! **Loss.** When the stream ends or is silent, everything that runs over it tells
//! [`Event::Lost`], with the node's name and the launcher's last words. A channel that is dropped
//! is lost for the agent, too: it keeps its grace and then cleans up. [`Channel::close`] is how a
//! driver leaves on purpose.

mod error;
mod events;
mod io;
mod running;
mod state;

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use error::{Error, Result, Why};
pub use events::{Event, Stream};
pub use running::{Output, Running};

use crate::launcher::{Launcher, Way};
use crate::wire::messages::{Facts, Hello, Put, Start, pack};
use crate::wire::{Kind, PIECE};
use state::Shared;

/// The agent ends its programs within seconds after a goodbye; then it is ended.
const GOODBYE: Duration = Duration::from_secs(12);

/// A stream to the agent of a node.
#[derive(Debug)]
pub struct Channel {
    shared: Arc<Shared>,
    facts: Facts,
    thread: Option<JoinHandle<()>>,
    local: bool,
}

impl Channel {
    /// Starts an agent on a node and waits until it has told the node's facts, at most until
    /// `deadline`. `name` is the node's in messages.
    ///
    /// # Errors
    /// One for each way in which a node cannot be reached, see [`Error`]. No process is left then.
    pub fn open(name: &str, launcher: &Launcher, hello: &Hello, deadline: Instant) -> Result<Self> {
        let shared = Arc::new(
            Shared::new(name).map_err(|source| Error::Thread { node: name.to_owned(), source })?,
        );
        let local = launcher.way == Way::Local;
        let thread = io::start(&shared, launcher.clone(), hello.clone(), deadline)
            .map_err(|source| Error::Thread { node: name.to_owned(), source })?;
        match shared.opened() {
            Ok(facts) => Ok(Self { shared, facts, thread: Some(thread), local }),
            Err(error) => {
                let _ = thread.join();
                Err(error)
            }
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        self.shared.node()
    }

    /// What the agent told when the channel was opened.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Starts a program. That it cannot be started is told by its [`Event::Failed`].
    ///
    /// # Errors
    /// [`Error::Lost`], or a request that cannot be sent.
    pub fn start(&self, request: &Start) -> Result<Running> {
        let what = request.words.first().cloned().unwrap_or_default();
        self.begin(Kind::Start, &pack(request), &what)
    }

    fn begin(&self, kind: Kind, payload: &[u8], what: &str) -> Result<Running> {
        let id = self.shared.begin(kind, payload, what)?;
        Ok(Running::new(Arc::clone(&self.shared), id, what))
    }

    /// Writes a file on the node: with this mode, and under its name only when it is complete.
    /// Directories that are missing are made for the user alone.
    ///
    /// # Errors
    /// [`Error::Refused`] by the node, [`Error::Read`] of `bytes`, [`Error::Lost`].
    pub fn put(&self, path: &Path, mode: u32, bytes: &mut dyn Read) -> Result<()> {
        let what = path.display().to_string();
        let request = Put { path: path.to_owned(), mode };
        let file = self.begin(Kind::Put, &request.pack(), &what)?;
        let mut piece = vec![0; PIECE];
        loop {
            match bytes.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => match file.feed(Kind::PutData, &piece[..count]) {
                    // The node has refused it already, and says why.
                    Err(Error::Over { .. }) => break,
                    done => done?,
                },
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // What was sent is removed when the channel ends; it never gets its name.
                Err(source) => return Err(Error::Read { what, source }),
            }
        }
        file.finish(Kind::PutEnd)?;
        file.wait().map(drop)
    }

    /// Reads a file of the node.
    ///
    /// # Errors
    /// [`Error::Refused`] by the node, [`Error::Write`] to `to`, [`Error::Lost`].
    pub fn get(&self, path: &Path, to: &mut dyn Write) -> Result<()> {
        let what = path.display().to_string();
        let file = self.begin(Kind::Get, path.as_os_str().as_bytes(), &what)?;
        file.copy(&mut |_, bytes| to.write_all(bytes)).map(drop)
    }

    /// Tells the agent the command that cleans up if this driver is lost.
    ///
    /// # Errors
    /// [`Error::Refused`] if the channel does not hold the cluster, [`Error::Lost`].
    pub fn at_end<S: Into<String>>(&self, words: impl IntoIterator<Item = S>) -> Result<()> {
        let request = Start::new(words);
        self.begin(Kind::AtEnd, &pack(&request), "the command for the end")?.wait().map(drop)
    }

    /// Why the node was lost; `None` while it answers.
    pub fn lost(&self) -> Option<Why> {
        self.shared.lost()
    }

    /// Leaves on purpose: the agent ends what it started, and cleans nothing up. Returns when no
    /// process of the channel is left here. After a loss it is as a drop.
    pub fn close(mut self) {
        if self.lost().is_some() {
            return;
        }
        self.shared.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.abandon();
        // A local agent is a child of this process that keeps its grace; the thread stays to reap
        // it. Other launchers are ended now.
        if !self.local {
            let _ = thread.join();
        }
    }
}
