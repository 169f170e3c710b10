//! The supervisor: one loop from the first start to the last exit.
//!
//! `run` is the life of a container: start, serve until the first process ended, kill what it left,
//! read what it wrote, and start again or finish. `turn` is one round of the loop: it waits for
//! whatever comes first and handles that. Everything that can block does so only there.
//!
//! Order at the end: output is read to its end and logged, the state is written, the caller's
//! cleanup runs, and only then clients learn the exit code. A client that has it can rely on the
//! rest.

mod clients;
mod turn;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use sys::event::{MaskGuard, SignalFd, SignalSet, release_code, trim_memory};
use sys::terminal::Size;

use self::clients::Client;
use super::ledger::Ledger;
use super::log::Writer;
use super::program::{Ends, Input, Program};
use super::protocol::Message;
use super::restart::Restarts;
use super::socket::Listener;
use super::{Error, Failure, Launch, Outcome, Request, Signal};

/// One read of the program's output.
const BUFFER: usize = 16 * 1024;
/// How long output is awaited after the program and all its children are gone.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long attached clients may take for what is queued when all is over.
const FAREWELL: Duration = Duration::from_secs(2);
/// After so long without anything to do, memory is given back until there is.
const QUIET: Duration = Duration::from_secs(2);
const DEFAULT_SIZE: Size = Size { rows: 24, columns: 80 };

/// Why and until when the program is being stopped.
struct Stop {
    deadline: Option<Instant>,
}

pub(super) struct Supervisor<'a> {
    launch: Launch<'a>,
    mask: MaskGuard,
    signals: SignalFd,
    listener: Option<Listener>,
    clients: Vec<Client>,
    next_client: u64,
    program: Option<Program>,
    ended: Option<Outcome>,
    ends: Ends,
    input: Input,
    log: Option<Writer>,
    size: Size,
    stop: Option<Stop>,
    /// A user ended it: no restart.
    stopped: bool,
    restarts: Restarts,
    ledger: Ledger<'a>,
    buffer: Vec<u8>,
    /// Has worked since memory was last given back.
    swollen: bool,
}

impl<'a> Supervisor<'a> {
    /// Takes over signals, log and socket. `first` is the connection of the foreground command.
    pub(super) fn new(
        launch: Launch<'a>,
        first: Option<OwnedFd>,
        ledger: Ledger<'a>,
    ) -> Result<Self, Error> {
        let _ = sys::event::set_ignored(Signal::PIPE.number(), true);
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let numbers: Vec<i32> =
            Signal::forwardable().chain([Signal::CHLD]).map(Signal::number).collect();
        let set = SignalSet::of(&numbers);
        let mask = MaskGuard::block(set).map_err(Error::Signals)?;
        let signals = SignalFd::new(set).map_err(Error::Signals)?;
        let recorded = ledger.is_state();
        let log = match &launch.options.log {
            Some(spec) if recorded => Some(Writer::open(&launch.dir, spec)?),
            _ => None,
        };
        // Without a socket there is no `attach`, but the program can run.
        let listener = if recorded { Listener::bind(&launch.dir).ok() } else { None };
        let (tty, input) = (launch.options.tty, launch.options.stdin_open);
        let clients: Vec<Client> =
            first.map(|fd| Client::first(fd, tty, input)).into_iter().collect();
        let restarts = Restarts::new(launch.options.restart);
        let size = launch.options.size.unwrap_or(DEFAULT_SIZE);
        Ok(Self {
            launch,
            mask,
            signals,
            listener,
            clients,
            next_client: 1,
            program: None,
            ended: None,
            ends: Ends::default(),
            input: Input::default(),
            log,
            size,
            stop: None,
            stopped: false,
            restarts,
            ledger,
            buffer: vec![0; BUFFER],
            swollen: true,
        })
    }

    /// Starts the program for the first time; the answer goes to the command that waits for it.
    pub(super) fn begin(&mut self) -> Result<u32, Failure> {
        self.ledger.begin();
        if let Err(failure) = self.start() {
            self.ledger.failed(&failure);
            return Err(failure);
        }
        Ok(self.program.as_ref().map_or(0, Program::number))
    }

    /// Serves until the program has ended for good.
    pub(super) fn run(mut self) -> Outcome {
        loop {
            let outcome = self.serve();
            let ran = self.program.as_ref().map_or(Duration::ZERO, |p| p.started.elapsed());
            self.aftermath();
            let again = if self.is_stopped() { None } else { self.restarts.after(outcome, ran) };
            let Some(delay) = again else { return self.finish(outcome) };
            self.ledger.restarting(outcome);
            self.idle(delay);
            if self.is_stopped() {
                return self.finish(outcome);
            }
            if let Err(failure) = self.start() {
                self.ledger.failed(&failure);
                self.notify(&failure.message);
                return self.finish(Outcome { code: failure.exit_code.into(), signal: None });
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped || self.ledger.stop_requested()
    }

    fn start(&mut self) -> Result<(), Failure> {
        let options = &self.launch.options;
        let failure = |error: Error| Failure::of(&error);
        let (ends, stdio) =
            Ends::make(options.tty, options.stdin_open, self.size).map_err(failure)?;
        self.ends = ends;
        // Else a program whose supervisor was killed would run on where the container counts as
        // dead: nothing would keep its log, end what is beside it, or keep other hosts out.
        let request = Request { stdio, die_with_parent: true, only: false };
        let spawn = &mut self.launch.spawn;
        let spawned = self
            .mask
            .suspended(|| spawn.spawn(request))
            .map_err(|error| failure(Error::Signals(error)))??;
        let mut spawned = spawned;
        if let Some(master) = spawned.master.take() {
            self.ends.replace_master(master);
        }
        self.ended = None;
        self.stop = None;
        let mut program = Program::new(spawned, Vec::new(), self.ledger.place());
        program.look();
        self.ledger.begun(program.number(), self.restarts.count);
        self.ledger.started(program.number());
        self.program = Some(program);
        Ok(())
    }

    /// Rounds until the first process ended.
    fn serve(&mut self) -> Outcome {
        loop {
            // Before the first wait: SIGCHLD may have come while the mask was suspended.
            self.reap();
            if let Some(outcome) = self.ended {
                return outcome;
            }
            let deadline = self.stop.as_ref().and_then(|stop| stop.deadline);
            let wait = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let quiet = if self.swollen { Some(QUIET) } else { None };
            match self.turn(wait.into_iter().chain(quiet).min()) {
                Ok(true) => self.swollen = true,
                Ok(false) if self.swollen => {
                    self.swollen = false;
                    trim_memory();
                    release_code();
                }
                Ok(false) => {}
                // `poll` fails only for want of memory; the program must not be lost for it.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
            if deadline.is_some_and(|at| Instant::now() >= at) {
                self.stop = None;
                if let Some(program) = &self.program {
                    program.signal(Signal::KILL);
                }
            }
        }
    }

    fn reap(&mut self) {
        if let Some(program) = &self.program
            && self.ended.is_none()
        {
            self.ended = program.reap();
        }
    }

    /// Serves clients while nothing runs, until it is time or a user asked for an end.
    fn idle(&mut self, delay: Duration) {
        let until = Instant::now() + delay;
        while Instant::now() < until && !self.is_stopped() {
            let left = until.saturating_duration_since(Instant::now());
            let _ = self.turn(Some(left.min(Duration::from_millis(500))));
        }
    }

    /// After the first process: no process of it stays, no byte of output is lost.
    fn aftermath(&mut self) {
        if let Some(program) = self.program.take() {
            let left = program.sweep(self.ledger.stop_requested());
            if !left.is_empty() {
                self.notify(&Error::Unkillable(left).to_string());
            }
        }
        self.ends.release_slave();
        let mut until = Instant::now() + LAST_WORDS;
        while self.ends.output.is_some() || self.ends.errors.is_some() {
            let before = Instant::now();
            if before >= until || self.turn(Some(until - before)).is_err() {
                break;
            }
            // A first client that does not read holds everything up, as long as it likes.
            if self.clients.iter().any(Client::holds_up) {
                until = Instant::now() + LAST_WORDS;
            }
        }
        self.ends = Ends::default();
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    fn finish(mut self, outcome: Outcome) -> Outcome {
        self.ledger.finished(outcome);
        if let Some(cleanup) = self.launch.cleanup.take()
            && let Some(text) = cleanup(&outcome)
        {
            self.notify(&text);
        }
        let signal = outcome.signal.map_or(0, |signal| signal.number() as u8);
        for client in &mut self.clients {
            client.send(&Message::Exit { code: outcome.code, signal });
        }
        self.listener = None;
        let until = Instant::now() + FAREWELL;
        while self.clients.iter().any(|client| client.has_queue() && !client.gone) {
            let waited_for = self.clients.iter().any(|client| client.first && client.has_queue());
            if !waited_for && Instant::now() > until {
                break;
            }
            let _ = self.turn(Some(Duration::from_millis(200)));
        }
        outcome
    }
}
