//! Runs a program in the foreground until it ends or the user detaches.
//!
//! Without terminal and log the program inherits everything from this process, its process
//! group too. So the terminal's keys reach it directly, and only what another process sends to
//! this one alone is forwarded: a signal that the kernel made has been seen by the whole group
//! (a program that a runtime started has another group; [`init::pass_on`]).
//!
//! Job control: when Ctrl-Z stops the program, this process stops as well (the shell waits for it),
//! and continues the program when it is continued. Process 1 of a pid namespace is immune to the
//! key, and so is a session without a terminal; they are stopped by SIGSTOP, with all their
//! processes.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{WaitOptions, wait};
use sys::event::{MaskGuard, Received, SignalFd, SignalSet, raise_default};

use super::client::{self, Console};
use super::ledger::Ledger;
use super::program::Program;
use super::restart::Restarts;
use super::{Ended, Error, Failure, Launch, Outcome, Request, Signal, Stdio, fork_supervisor};
use crate::launch::init;
use crate::processes;

/// Runs a program in the foreground until it ends or the user detaches.
pub fn foreground(launch: Launch<'_>, console: Console<'_>) -> Result<Ended, Error> {
    let ledger = Ledger::open(&launch)?;
    // A further run of a running container has no log; without terminal it needs no relay.
    if launch.options.tty || launch.options.log.is_some() && !ledger.is_further() {
        relay(launch, ledger, console)
    } else {
        inherit(launch, ledger, console)
    }
}

fn relay(mut launch: Launch<'_>, ledger: Ledger, console: Console<'_>) -> Result<Ended, Error> {
    if launch.options.size.is_none() {
        launch.options.size = client::terminal_size();
    }
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|error| Error::make("socket pair", error))?;
    let input = launch.options.stdin_open;
    let connection = fork_supervisor::Connection { ours, theirs };
    let (_, ours) = fork_supervisor::start(launch, ledger, Some(connection))?;
    client::run(ours.ok_or(Error::SupervisorVanished)?, input, true, console)
}

/// The process that forwards and waits, beside the program.
struct Parent<'a, 'b> {
    launch: Launch<'a>,
    ledger: Ledger,
    console: Console<'b>,
    mask: MaskGuard,
    signals: SignalFd,
}

fn inherit(launch: Launch<'_>, ledger: Ledger, console: Console<'_>) -> Result<Ended, Error> {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let numbers: Vec<i32> = Signal::forwardable()
        .filter(|_| console.sig_proxy)
        .chain([Signal::CHLD, Signal::TSTP])
        .map(Signal::number)
        .collect();
    let set = SignalSet::of(&numbers);
    let mask = MaskGuard::block(set).map_err(Error::Signals)?;
    let signals = SignalFd::new(set).map_err(Error::Signals)?;
    Parent { launch, ledger, console, mask, signals }.run()
}

impl Parent<'_, '_> {
    fn run(mut self) -> Result<Ended, Error> {
        let spared = processes::own_children();
        let mut restarts = Restarts::new(self.launch.options.restart);
        self.ledger.begin();
        let outcome = loop {
            let spawned = match self.spawn() {
                Ok(spawned) => spawned,
                Err(failure) => {
                    self.ledger.failed(&failure);
                    return Err(failure.into());
                }
            };
            let place = self.ledger.place();
            let mut program = Program::new(spawned, spared.clone(), place);
            self.ledger.started(program.number(), restarts.count);
            let outcome = self.attend(&mut program)?;
            let left = program.sweep(self.ledger.stop_requested());
            if left > 0 {
                (self.console.notice)(&Error::Unkillable(left).to_string());
            }
            let again = restarts.after(outcome, program.started.elapsed());
            match again.filter(|_| !self.ledger.stop_requested()) {
                Some(delay) => {
                    self.ledger.restarting(outcome);
                    if self.sleep(delay) {
                        break outcome;
                    }
                }
                None => break outcome,
            }
        };
        self.ledger.finished(outcome);
        if let Some(cleanup) = self.launch.cleanup.take()
            && let Some(text) = cleanup(&outcome)
        {
            (self.console.notice)(&text);
        }
        Ok(Ended::Exited(outcome))
    }

    fn spawn(&mut self) -> Result<super::Spawned, Failure> {
        let request = Request { stdio: Stdio::Inherit, die_with_parent: true };
        let spawn = &mut self.launch.spawn;
        self.mask
            .suspended(|| spawn.spawn(request))
            .map_err(|error| Failure::of(&Error::Signals(error)))?
    }

    /// Forwards signals until the program has ended.
    fn attend(&mut self, program: &mut Program) -> Result<Outcome, Error> {
        loop {
            if let Some(outcome) = self.reap(program) {
                return Ok(outcome);
            }
            self.wait(None)?;
            while let Some(received) = self.signals.next().map_err(Error::Signals)? {
                self.forward(program, received);
            }
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<(), Error> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        match poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(Error::wait("wait for signals", error)),
        }
    }

    /// The pause before a restart; `true` when a signal or a user ended it.
    fn sleep(&mut self, delay: Duration) -> bool {
        let until = Instant::now() + delay;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let _ = self.wait(Some(left.min(Duration::from_millis(500))));
            while let Ok(Some(received)) = self.signals.next() {
                if [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT]
                    .iter()
                    .any(|signal| signal.number() == received.number)
                {
                    return true;
                }
            }
            if self.ledger.stop_requested() {
                return true;
            }
        }
        false
    }

    fn reap(&self, program: &Program) -> Option<Outcome> {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == program.pid => {
                    if let Some(number) = status.stopping_signal() {
                        self.stop_along(program, number);
                    } else {
                        return Outcome::of(status);
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return None,
                // No children at all: somebody else reaped it. Its code is lost.
                Err(_) => return Some(Outcome::UNKNOWN),
            }
        }
    }

    /// The program was stopped by the terminal: the job stops.
    fn stop_along(&self, program: &Program, number: i32) {
        // SIGTTIN and SIGTTOU (21, 22) come from the terminal too; SIGSTOP was sent to that one
        // process on purpose (as by `pause`), and the sender continues it.
        if matches!(number, 20..=22) && !self.ledger.paused() {
            // No effect in an orphaned process group, where nobody could continue us.
            let _ = raise_default(number);
            program.signal(Signal::CONT);
        }
    }

    fn forward(&mut self, program: &mut Program, received: Received) {
        let Some(signal) = Signal::from_number(received.number) else { return };
        if signal == Signal::CHLD {
            return;
        }
        if signal == Signal::TSTP && program.own_pids {
            program.signal_all(Signal::STOP);
            let _ = raise_default(signal.number());
            program.signal_all(Signal::CONT);
            return;
        }
        init::pass_on(program.pid, received);
        if matches!(signal, Signal::INT | Signal::TERM)
            && processes::ignores_as_init(program.number(), received.number)
        {
            program.ignored += 1;
            match program.ignored {
                1 => {}
                2 => (self.console.notice)(&format!(
                    "the program does not handle {signal}; once more kills it"
                )),
                _ => program.signal(Signal::KILL),
            }
        }
    }
}
