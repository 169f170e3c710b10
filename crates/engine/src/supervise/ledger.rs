//! Writes what a supervisor knows about its program, to `state.json` or to `run/`.
//!
//! Nothing here fails: a program is not ended because a disk is full. [`super::state::observe`]
//! finds the truth from the processes where the file is behind.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::state::{self, Observed};
use super::{Change, Error, Failure, Launch, Observer, Outcome, Record, Told, now};
use crate::processes;
use crate::records::lock::{self, Taken};
use crate::records::{Held, Reach, Records};
use crate::spec::{ContainerState, Status};

/// The account of one supervised run.
pub(crate) struct Ledger<'a> {
    dir: PathBuf,
    engine: String,
    kind: Kind,
    /// Held, by fork also in the supervisor, as long as the run lasts.
    lock: Option<OwnedFd>,
    /// The recorded program, with the lock on its record.
    program: Option<(u32, Option<Held>)>,
    /// What `state.json` is to say of the program, until it is written.
    begun: Option<ContainerState>,
    observer: Option<Observer<'a>>,
    /// What the observer is to be told, when the state shows it.
    untold: Vec<Told>,
    /// The engine's own record is enough: in the foreground on a file system of this machine, as
    /// for a process that became the program.
    plain: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The container's own `state.json`.
    State,
    /// A record in `run/` alone, since the container runs already.
    Further,
    Nothing,
}

impl<'a> Ledger<'a> {
    /// Claims the container for this run, or finds that it runs already.
    ///
    /// # Errors
    /// A damaged state file; [`Error::Elsewhere`].
    pub(crate) fn open(launch: &mut Launch<'a>) -> Result<Self, Error> {
        let mut ledger = Self {
            dir: launch.dir.clone(),
            engine: launch.options.engine.clone(),
            kind: Kind::Nothing,
            lock: None,
            program: None,
            begun: None,
            observer: launch.observer.take(),
            untold: Vec::new(),
            plain: false,
        };
        if launch.options.record == Record::Nothing {
            return Ok(ledger);
        }
        let (busy, lock) = claim(&launch.dir);
        ledger.lock = lock;
        let observed = match &ledger.lock {
            Some(_) => state::observe_locked(&launch.dir)?,
            None => state::observe(&launch.dir)?,
        };
        let supervised = match observed {
            // Unsupervised runs leave `state.json` free.
            Observed::Running(running) => {
                let running = running.here()?;
                running.init.is_some() || running.supervisor.is_some()
            }
            Observed::Restarting { .. } => true,
            _ => false,
        };
        ledger.kind = if busy || supervised { Kind::Further } else { Kind::State };
        let relayed = launch.options.needs_relay() || launch.options.attachable;
        ledger.plain = !relayed && ledger.is_state() && !sys::carried::is_shared(&launch.dir);
        Ok(ledger)
    }

    /// The container's directory, if this is a run of it.
    pub(crate) fn place(&self) -> Option<&Path> {
        (self.kind != Kind::Nothing).then_some(&self.dir)
    }

    /// Whether this run is the container's own, with state, log and socket.
    pub(crate) fn is_state(&self) -> bool {
        self.kind == Kind::State
    }

    /// Whether the container ran already.
    pub(crate) fn is_further(&self) -> bool {
        self.kind == Kind::Further
    }

    /// Takes back what users asked of earlier runs.
    pub(crate) fn begin(&self) {
        if self.is_state() {
            state::set_stop_requested(&self.dir, false);
            state::set_paused(&self.dir, false);
        }
    }

    /// Whether a user asked for an end without the supervisor having been told.
    pub(crate) fn stop_requested(&self) -> bool {
        self.is_state() && state::stop_requested(&self.dir)
    }

    pub(crate) fn paused(&self) -> bool {
        self.is_state() && state::is_paused(&self.dir)
    }

    /// Whether there is nothing to write when the program begins, or it may be written a little
    /// later.
    pub(crate) fn may_wait(&self) -> bool {
        self.plain || !self.is_state()
    }

    /// A program has begun, as a process that the caller has started.
    pub(crate) fn begun(&mut self, pid: u32, restarts: u32) {
        if let Some(records) = Records::existing(&self.dir) {
            // In the place of the engine's record, which no lock proves.
            let held = (!self.plain).then(|| records.hold(pid).ok()).flatten();
            self.program = Some((pid, held));
        }
        let started = now();
        self.note(Change::Started, &started);
        if self.is_state() {
            self.begun = Some(ContainerState {
                status: Status::Running,
                started,
                restart_count: restarts,
                engine: Some(self.engine.clone()).filter(|name| !name.is_empty()),
                ..state::here(self.lock.as_ref().map_or(Reach::None, lock::reach))
            });
        }
    }

    /// Writes that it runs.
    pub(crate) fn started(&mut self, pid: u32) {
        if let Some(new) = self.begun.take() {
            let init = processes::identity(pid);
            let supervisor = processes::identity(std::process::id());
            let _ = state::write(&self.dir, &ContainerState { init, supervisor, ..new });
        }
        self.tell();
    }

    fn note(&mut self, change: Change, time: &str) {
        if self.observer.is_some() {
            let further = self.kind != Kind::State;
            self.untold.push(Told { time: time.to_owned(), change, further });
        }
    }

    fn tell(&mut self) {
        if let Some(observer) = &mut self.observer
            && !self.untold.is_empty()
        {
            observer(&self.untold);
            self.untold.clear();
        }
    }

    /// The program has ended. No other process may be able to tell, so its record is removed.
    fn ended(&mut self) {
        if let Some((pid, held)) = self.program.take() {
            if let Some(records) = Records::existing(&self.dir) {
                records.remove(pid);
            }
            drop(held);
        }
    }

    pub(crate) fn restarting(&mut self, outcome: Outcome) {
        self.ended();
        let finished = now();
        self.note(Change::Ended(outcome), &finished);
        self.change(|state| {
            state.status = Status::Restarting;
            state.init = None;
            state.exit_code = Some(outcome.code);
            state.finished = finished;
        });
        self.tell();
    }

    /// The last entry. Gives the container free: the next run may start before this process ends.
    pub(crate) fn finished(&mut self, outcome: Outcome) {
        self.ended();
        let finished = now();
        self.note(Change::Ended(outcome), &finished);
        self.change(|state| {
            if state.status != Status::Dead {
                state.status = Status::Exited;
            }
            state.init = None;
            state.supervisor = None;
            state.exit_code = Some(outcome.code);
            state.finished = finished;
        });
        self.tell();
        crate::engines::interpose::tidy(&self.dir);
        self.release();
    }

    /// By word, not by closing: a child that has not executed anything yet has a copy.
    fn release(&mut self) {
        if let Some(lock) = self.lock.take() {
            lock::release(lock);
        }
    }

    pub(crate) fn failed(&mut self, failure: &Failure) {
        self.change(|state| {
            state.status = Status::Dead;
            state.error = Some(failure.message.clone());
            state.exit_code = Some(failure.exit_code.into());
            state.init = None;
            state.supervisor = None;
            state.finished = now();
        });
        self.release();
    }

    fn change(&mut self, change: impl FnOnce(&mut ContainerState)) {
        if let Some(mut new) = self.begun.take() {
            change(&mut new);
            let _ = state::write(&self.dir, &new);
        } else if self.is_state() {
            let _ = state::update(&self.dir, change);
        }
    }
}

/// Records the start of a program beside which no process stays, unless another run is the
/// container's own. The state is that of one that has ended, without an exit code: while the
/// program lives, its record in `run/` says so.
///
/// Nothing here fails: the program shall run.
pub fn record_start(dir: &Path, engine: &str) {
    let (busy, lock) = claim(dir);
    let is_free = || match state::observe_locked(dir) {
        Ok(Observed::Running(running)) => running.init.is_none() && running.supervisor.is_none(),
        Ok(Observed::Restarting { .. }) | Err(_) => false,
        Ok(_) => {
            // Of a run that was killed while it was paused.
            state::set_paused(dir, false);
            true
        }
    };
    if !busy && is_free() {
        let new = ContainerState {
            status: Status::Exited,
            started: now(),
            engine: Some(engine.to_owned()),
            ..state::here(Reach::None)
        };
        let _ = state::write(dir, &new);
    }
    drop(lock);
}

/// Whether another supervisor holds the container, and the lock if it is ours now. Where the
/// file system has no locks the state file alone decides.
fn claim(dir: &Path) -> (bool, Option<OwnedFd>) {
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::open(dir.join(state::LOCK), flags, Mode::RUSR | Mode::WUSR) else {
        return (false, None);
    };
    match lock::take(&fd) {
        Taken::Ours => (false, Some(fd)),
        Taken::Busy => (true, None),
        Taken::NoLocks => (false, None),
    }
}
