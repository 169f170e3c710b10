//! What the threads of a channel share.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use super::error::{Error, Result, Why};
use super::events::{Event, Stream};
use crate::wire::frames::{self, Frame};
use crate::wire::messages::{Ended, Facts, Refused, number, unpack};
use crate::wire::{self, Kind, WINDOW};

/// Callers with bytes wait while so many are in the queue.
const SHORT: usize = WINDOW;

/// How the channel is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// Not at all.
    Stay,
    /// After a goodbye.
    Close,
    /// At once.
    Abandon,
}

/// One program, or one file on its way.
#[derive(Debug)]
pub(super) struct Run {
    events: VecDeque<Event>,
    /// Bytes of output in the events.
    waiting: usize,
    /// Bytes that the agent still takes.
    window: usize,
    /// Bytes that the caller has taken and the agent does not know of.
    taken: usize,
    over: bool,
    /// Nobody takes its events any more.
    dropped: bool,
}

#[derive(Debug)]
pub(super) struct State {
    /// Frames for the agent.
    pub(super) out: VecDeque<u8>,
    runs: HashMap<u32, Run>,
    next: u32,
    opened: Option<Result<Facts>>,
    lost: Option<Why>,
    pub(super) wish: Wish,
}

/// The state, its lock, and what wakes the thread that writes.
#[derive(Debug)]
pub(super) struct Shared {
    node: String,
    state: Mutex<State>,
    changed: Condvar,
    pub(super) wake: OwnedFd,
}

impl Shared {
    pub(super) fn new(node: &str) -> std::io::Result<Self> {
        let state = State {
            out: VecDeque::new(),
            runs: HashMap::new(),
            next: 1,
            opened: None,
            lost: None,
            wish: Wish::Stay,
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { node: node.to_owned(), state: Mutex::new(state), changed: Condvar::new(), wake })
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// A panic of another thread leaves a state that is consistent: it is changed in whole steps.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self) {
        self.changed.notify_all();
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits for the result of the opening.
    pub(super) fn opened(&self) -> Result<Facts> {
        let mut state = self.lock();
        loop {
            if let Some(opened) = state.opened.take() {
                return opened;
            }
            state = self.wait(state);
        }
    }

    pub(super) fn set_opened(&self, opened: Result<Facts>) {
        self.lock().opened = Some(opened);
        self.tell();
    }

    pub(super) fn lost(&self) -> Option<Why> {
        self.lock().lost.clone()
    }

    pub(super) fn set_lost(&self, why: Why) {
        let mut state = self.lock();
        state.lost.get_or_insert(why);
        state.out = VecDeque::new();
        drop(state);
        self.tell();
    }

    /// Says goodbye behind all that is in the queue.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        let _ = frames::append(&mut state.out, Kind::Bye, 0, &[]);
        state.wish = Wish::Close;
        drop(state);
        self.wake();
    }

    pub(super) fn abandon(&self) {
        self.lock().wish = Wish::Abandon;
        self.wake();
    }

    /// Sends what begins something; gives its number.
    pub(super) fn begin(&self, kind: Kind, payload: &[u8], what: &str) -> Result<u32> {
        let fails = |why| Error::Request { node: self.node.clone(), what: what.to_owned(), why };
        if payload.is_empty() {
            return Err(fails("it has a path that is not UTF-8"));
        }
        let mut state = self.lock();
        if let Some(why) = &state.lost {
            return Err(Error::Lost(why.clone()));
        }
        let id = state.next;
        frames::append(&mut state.out, kind, id, payload).map_err(|_| fails("it is too long"))?;
        // Four thousand million later the first ones have ended.
        state.next = state.next.checked_add(1).unwrap_or(1);
        let run = Run {
            events: VecDeque::new(),
            waiting: 0,
            window: WINDOW,
            taken: 0,
            over: false,
            dropped: false,
        };
        state.runs.insert(id, run);
        drop(state);
        self.wake();
        Ok(id)
    }

    /// Sends a message about something that runs; nothing if it has ended.
    pub(super) fn say(&self, kind: Kind, id: u32, payload: &[u8]) -> Result<()> {
        let mut state = self.lock();
        if let Some(why) = &state.lost {
            return Err(Error::Lost(why.clone()));
        }
        if state.runs.get(&id).is_some_and(|run| !run.over) {
            let _ = frames::append(&mut state.out, kind, id, payload);
            drop(state);
            self.wake();
        }
        Ok(())
    }

    /// Sends bytes, as soon as the agent and the queue have room for them.
    pub(super) fn feed(&self, kind: Kind, id: u32, mut bytes: &[u8], what: &str) -> Result<()> {
        let mut state = self.lock();
        while !bytes.is_empty() {
            if let Some(why) = &state.lost {
                return Err(Error::Lost(why.clone()));
            }
            let short = state.out.len() < SHORT;
            let over = || Error::Over { node: self.node.clone(), what: what.to_owned() };
            let run = state.runs.get_mut(&id).filter(|run| !run.over).ok_or_else(over)?;
            let count = bytes.len().min(run.window).min(wire::PIECE);
            if count == 0 || !short {
                state = self.wait(state);
                continue;
            }
            run.window -= count;
            let (piece, rest) = bytes.split_at(count);
            let _ = frames::append(&mut state.out, kind, id, piece);
            bytes = rest;
            self.wake();
        }
        Ok(())
    }

    /// The next event; `None` if there is none until `limit`, or no more.
    pub(super) fn event(&self, id: u32, limit: Option<Instant>) -> Option<Event> {
        let mut state = self.lock();
        loop {
            let lost = state.lost.clone();
            let run = state.runs.get_mut(&id)?;
            if let Some(event) = run.events.pop_front() {
                if let Event::Output(_, bytes) = &event {
                    run.waiting -= bytes.len();
                    run.taken += bytes.len();
                    if run.taken >= WINDOW / 4 && !run.over {
                        let count = (std::mem::take(&mut run.taken) as u32).to_le_bytes();
                        let _ = frames::append(&mut state.out, Kind::Credit, id, &count);
                        drop(state);
                        self.wake();
                    }
                } else {
                    state.runs.remove(&id);
                }
                return Some(event);
            }
            if let Some(why) = lost {
                state.runs.remove(&id);
                return Some(Event::Lost(why));
            }
            state = match limit {
                None => self.wait(state),
                Some(limit) => {
                    let left = limit.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Nobody takes its events any more. True if it still runs.
    pub(super) fn drop_run(&self, id: u32) -> bool {
        let mut state = self.lock();
        let State { runs, out, .. } = &mut *state;
        let Some(run) = runs.get_mut(&id) else { return false };
        if run.over {
            runs.remove(&id);
            return false;
        }
        run.dropped = true;
        run.events = VecDeque::new();
        let count = std::mem::take(&mut run.taken) + std::mem::take(&mut run.waiting);
        let _ = frames::append(out, Kind::Credit, id, &(count as u32).to_le_bytes());
        drop(state);
        self.wake();
        true
    }

    /// Takes a frame of the agent.
    ///
    /// # Errors
    /// A frame that cannot be.
    pub(super) fn frame(&self, frame: Frame) -> std::result::Result<(), wire::Error> {
        let Frame { kind, id, payload } = frame;
        let mut state = self.lock();
        let State { runs, out, .. } = &mut *state;
        let run = runs.get_mut(&id);
        let event = match kind {
            Kind::Pong => return Ok(()),
            Kind::Credit => {
                let count = number(kind, &payload)? as usize;
                if let Some(run) = run {
                    run.window = (run.window + count).min(WINDOW);
                }
                drop(state);
                self.tell();
                return Ok(());
            }
            Kind::Output | Kind::Data => Event::Output(Stream::Output, payload),
            Kind::Errors => Event::Output(Stream::Errors, payload),
            Kind::Ended => Event::Ended(Ended::unpack(&payload)?),
            Kind::Done => Event::Ended(Ended::Code(0)),
            Kind::Refused => Event::Failed(unpack::<Refused>(kind, &payload)?.why),
            _ => return Err(wire::Error::Unexpected(kind)),
        };
        let Some(run) = run else { return Ok(()) };
        match &event {
            Event::Output(_, bytes) if run.dropped => {
                let count = (bytes.len() as u32).to_le_bytes();
                let _ = frames::append(out, Kind::Credit, id, &count);
            }
            Event::Output(stream, bytes) => {
                if run.waiting + run.taken + bytes.len() > WINDOW {
                    return Err(wire::Error::Credit(id));
                }
                run.waiting += bytes.len();
                match run.events.back_mut() {
                    // Single bytes would cost many times their size.
                    Some(Event::Output(last, before))
                        if last == stream && before.len() + bytes.len() <= wire::PIECE =>
                    {
                        before.extend_from_slice(bytes);
                    }
                    _ => run.events.push_back(event),
                }
            }
            _ if run.dropped => drop(runs.remove(&id)),
            _ => {
                run.over = true;
                run.events.push_back(event);
            }
        }
        drop(state);
        self.tell();
        Ok(())
    }
}
