//! A command that a container of a node has asked for: one thread for its output and its end, one
//! for its input.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use remote::channel::{Event, Stream};
use remote::wire::messages::Ended;
use remote::wire::{Kind, PIECE, WINDOW};

use super::Door;
use crate::driver::hosts::lock;
use crate::driver::{Host, Task};

/// Stack of the threads, in bytes.
const STACK: usize = 256 << 10;
/// The most that is kept of what `exec` says of its own failure, in bytes.
const WORDS: usize = 4096;
/// How often, and with what pause, is looked whether a container has ended.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);
const SIGKILL: i32 = 9;
/// Coracle's own failure.
const FAILED: i32 = 125;

/// Whose command it is, and where it runs.
pub(super) struct Of {
    pub(super) door: Arc<Door>,
    pub(super) connection: u32,
    /// As it was asked for.
    pub(super) node: String,
    /// `None` for one of the host itself.
    pub(super) container: Option<String>,
    pub(super) host: Weak<dyn Host>,
}

/// A command.
pub(super) struct Session {
    task: Box<dyn Task>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes of output that the connection still takes.
    window: usize,
    input: VecDeque<Vec<u8>>,
    /// Bytes of input that were taken from the connection and not yet told.
    waiting: usize,
    input_ends: bool,
    /// The connection or the command has ended.
    is_over: bool,
}

impl Session {
    pub(super) fn new(task: Box<dyn Task>) -> Arc<Self> {
        let state = State { window: WINDOW, ..State::default() };
        Arc::new(Self { task, state: Mutex::new(state), changed: Condvar::new() })
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut lock(&self.state));
        self.changed.notify_all();
    }

    /// Takes input; false if it is more than was allowed.
    pub(super) fn feed(&self, bytes: Vec<u8>) -> bool {
        let mut state = lock(&self.state);
        state.waiting += bytes.len();
        let is_allowed = state.waiting <= WINDOW;
        state.input.push_back(bytes);
        drop(state);
        self.changed.notify_all();
        is_allowed
    }

    pub(super) fn close_input(&self) {
        self.change(|state| state.input_ends = true);
    }

    pub(super) fn credit(&self, more: usize) {
        self.change(|state| state.window = state.window.saturating_add(more).min(WINDOW));
    }

    pub(super) fn signal(&self, number: i32) {
        // Whether the host is lost, the events tell.
        let _ = self.task.signal(number);
    }

    /// The connection has ended.
    pub(super) fn end(&self) {
        self.change(|state| state.is_over = true);
        self.signal(15);
    }

    /// Starts the threads.
    pub(super) fn run(self: &Arc<Self>, of: Of, input: bool) -> std::io::Result<()> {
        let named = |name: &str| thread::Builder::new().name(name.to_owned()).stack_size(STACK);
        if input {
            let (session, door, connection) =
                (Arc::clone(self), Arc::clone(&of.door), of.connection);
            named("input").spawn(move || session.write(&door, connection))?;
        }
        let session = Arc::clone(self);
        named("output").spawn(move || {
            session.read(&of);
            lock(&of.door.sessions).remove(&of.connection);
            session.change(|state| state.is_over = true);
        })?;
        Ok(())
    }

    /// Writes input to the command until it ends.
    fn write(&self, door: &Door, connection: u32) {
        let mut reads = true;
        let mut taken = 0;
        loop {
            let piece = {
                let wait = |state: &mut State| {
                    !state.is_over && !state.input_ends && state.input.is_empty()
                };
                let state = self.changed.wait_while(lock(&self.state), wait);
                let mut state = state.unwrap_or_else(PoisonError::into_inner);
                if state.is_over {
                    return;
                }
                state.input.pop_front()
            };
            let Some(piece) = piece else {
                let _ = self.task.close_input();
                return;
            };
            // What it does not read any more is thrown away, as by ssh.
            reads = reads && self.task.input(&piece).is_ok();
            taken += piece.len();
            if taken >= WINDOW / 4 {
                lock(&self.state).waiting -= taken;
                door.write(Kind::Credit, connection, &(taken as u32).to_le_bytes());
                taken = 0;
            }
        }
    }

    /// Sends output of the command; false if nobody takes it.
    fn send(&self, of: &Of, stream: Stream, bytes: &[u8]) -> bool {
        let kind = if stream == Stream::Output { Kind::Output } else { Kind::Errors };
        bytes.chunks(PIECE).all(|piece| {
            let wait = |state: &mut State| !state.is_over && state.window < piece.len();
            let state = self.changed.wait_while(lock(&self.state), wait);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return false;
            }
            state.window -= piece.len();
            drop(state);
            of.door.write(kind, of.connection, piece)
        })
    }

    /// Takes the command's events until it has ended, or nobody wants them.
    fn read(&self, of: &Of) {
        let refuse =
            |why: &str| of.door.refuse(of.connection, &format!("{} is lost: {why}", of.node));
        // What exec says of its own failure is not the command's.
        let mut own: Option<Vec<u8>> = None;
        let mut is_first = true;
        while let Some(event) = self.task.event() {
            if lock(&self.state).is_over {
                return;
            }
            match event {
                Event::Output(Stream::Errors, bytes)
                    if is_first && is_own_failure(&bytes, of.container.as_deref()) =>
                {
                    own = Some(bytes);
                }
                Event::Output(Stream::Errors, bytes)
                    if own.as_ref().is_some_and(|own| own.len() + bytes.len() <= WORDS) =>
                {
                    own.get_or_insert_default().extend(bytes);
                }
                Event::Output(stream, bytes) => {
                    if own.take().is_some_and(|own| !self.send(of, Stream::Errors, &own))
                        || !self.send(of, stream, &bytes)
                    {
                        return;
                    }
                }
                Event::Ended(Ended::Code(FAILED)) if own.is_some() => {
                    let said = own.unwrap_or_default();
                    let said = String::from_utf8_lossy(&said);
                    let said = said.lines().next().unwrap_or_default();
                    return refuse(said.strip_prefix("error: ").unwrap_or(said));
                }
                Event::Ended(ended) => {
                    if own.take().is_some_and(|own| !self.send(of, Stream::Errors, &own)) {
                        return;
                    }
                    if ended.status() >= 128 && !of.runs_after(ended) {
                        return refuse("its container has ended");
                    }
                    of.door.write(Kind::Ended, of.connection, &ended.pack());
                    return;
                }
                Event::Failed(why) => return refuse(&why),
                Event::Lost(why) => return refuse(&why.to_string()),
            }
            is_first = false;
        }
        refuse("how the command has ended is not known");
    }
}

/// Whether these are the first words of `exec` about a container, and not of the command in it.
fn is_own_failure(said: &[u8], container: Option<&str>) -> bool {
    let Some(container) = container else { return false };
    let first = said.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let names = |line: &str| line.starts_with("error: ") && line.contains(container);
    str::from_utf8(first).is_ok_and(names)
}

impl Of {
    /// Whether the container runs after a command in it has ended. One that is being ended kills
    /// its commands before that is written down.
    fn runs_after(&self, ended: Ended) -> bool {
        let tries = if ended.status() == 128 + SIGKILL { TRIES } else { 1 };
        (0..tries).all(|number| {
            if number > 0 {
                thread::sleep(PAUSE);
            }
            self.runs()
        })
    }

    /// Whether the container runs, as far as is known.
    fn runs(&self) -> bool {
        let (Some(host), Some(container)) = (self.host.upgrade(), &self.container) else {
            return true;
        };
        let words = ["container", "inspect", "--format", "{{.State.Running}}", container];
        let Ok(done) = host.run(&words.map(str::to_owned)) else { return true };
        done.is_good() && done.text() == "true"
    }
}
