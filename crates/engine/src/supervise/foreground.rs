//! Runs a program in the foreground until it ends or the user detaches.
//!
//! Without terminal the program inherits everything from this process, its process group too, but
//! for outputs that are logged. So the terminal's keys reach it directly, and only what another
//! process sends to this one alone is forwarded: a signal that the kernel made has been seen by the
//! whole group (a program that a runtime started has another group; [`init::pass_on`]).
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
use sys::event::{
    MaskGuard, Received, SignalFd, SignalSet, raise_default, release_code, trim_memory,
};

use super::client::{self, Console};
use super::ledger::Ledger;
use super::log::{Spool, Stream};
use super::outputs::Outputs;
use super::program::Program;
use super::restart::Restarts;
use super::{Ended, Error, Failure, Launch, Outcome, Request, Signal, Stdio, fork_supervisor};
use crate::launch::init;
use crate::processes;
use crate::spec::RestartPolicy;

/// Runs a program in the foreground until it ends or the user detaches.
pub fn foreground(mut launch: Launch<'_>, console: Console<'_>) -> Result<Ended, Error> {
    let ledger = Ledger::open(&mut launch)?;
    // A further run of a running container has no log; without terminal it needs no relay.
    if launch.options.tty || launch.options.needs_relay() && !ledger.is_further() {
        return relay(launch, ledger, console);
    }
    inherit(launch, ledger, console)
}

fn relay<'a>(
    mut launch: Launch<'a>,
    ledger: Ledger<'a>,
    console: Console<'_>,
) -> Result<Ended, Error> {
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

/// After so long without anything to do, memory is given back.
const QUIET: Duration = Duration::from_secs(1);
/// To write down that a program runs costs more than to run a short one.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
/// What a signal from a user ends, where there is no program any more.
const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// The process that forwards and waits, beside the program.
struct Parent<'a, 'b> {
    launch: Launch<'a>,
    ledger: Ledger<'a>,
    console: Console<'b>,
    mask: MaskGuard,
    signals: SignalFd,
    outputs: Option<Outputs>,
    /// Has worked since memory was last given back.
    swollen: bool,
    /// The caller's descriptor that takes no output, and why.
    lost: Option<(Stream, Errno)>,
}

fn inherit<'a>(
    launch: Launch<'a>,
    ledger: Ledger<'a>,
    console: Console<'_>,
) -> Result<Ended, Error> {
    // What a program of `exec` leaves behind lives on, as in Docker, and is not this process's.
    if ledger.place().is_some() {
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
    let numbers: Vec<i32> = Signal::forwardable()
        .filter(|_| console.sig_proxy)
        .chain([Signal::CHLD, Signal::TSTP])
        .map(Signal::number)
        .collect();
    let set = SignalSet::of(&numbers);
    let mask = MaskGuard::block(set).map_err(Error::Signals)?;
    let signals = SignalFd::new(set).map_err(Error::Signals)?;
    let log = launch.options.log.clone().filter(|_| ledger.is_state());
    let outputs = log.map(|spec| Outputs::new(Spool::new(launch.dir.clone(), spec)));
    Parent { launch, ledger, console, mask, signals, outputs, swollen: true, lost: None }.run()
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
            self.ledger.begun(program.number(), restarts.count);
            let outcome = self.attend(&mut program)?;
            let is_run = self.ledger.place().is_some();
            let left = is_run.then(|| program.sweep(self.ledger.stop_requested()));
            let left = left.unwrap_or_default();
            self.drain();
            if !left.is_empty() {
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
        // What the whole group was sent, the program has had: pending here, it would end this
        // process instead of the program's status.
        let _ = self.is_ended_by_user();
        if let Some(why) = self.outputs.as_mut().and_then(Outputs::finish) {
            (self.console.notice)(&why);
        }
        self.ledger.finished(outcome);
        if let Some(cleanup) = self.launch.cleanup.take()
            && let Some(text) = cleanup(&outcome)
        {
            (self.console.notice)(&text);
        }
        let Some((stream, error)) = self.lost else { return Ok(Ended::Exited(outcome)) };
        let step = match stream {
            Stream::Stdout => "write the program's output",
            Stream::Stderr => "write the program's errors",
        };
        let lost = Error::wait(step, error);
        if outcome.code == 0 {
            // The program could not see it.
            return Err(lost);
        }
        (self.console.notice)(&lost.to_string());
        Ok(Ended::Exited(outcome))
    }

    fn spawn(&mut self) -> Result<super::Spawned, Failure> {
        let stdio = self.outputs.as_mut().map_or(Ok(Stdio::Inherit), Outputs::open);
        let stdio = stdio.map_err(|error| Failure::of(&error))?;
        let only = self.launch.options.restart == RestartPolicy::No;
        let request = Request { stdio, die_with_parent: true, only };
        let spawn = &mut self.launch.spawn;
        self.mask
            .suspended(|| spawn.spawn(request))
            .map_err(|error| Failure::of(&Error::Signals(error)))?
    }

    /// Forwards signals and carries output until the program has ended.
    fn attend(&mut self, program: &mut Program) -> Result<Outcome, Error> {
        if let Some(outcome) = self.ends_at_once(program)? {
            return Ok(outcome);
        }
        program.look();
        self.ledger.started(program.number());
        loop {
            if let Some(outcome) = self.reap(program) {
                return Ok(outcome);
            }
            // Output alone does not end a program.
            while !self.wait(None)? {
                self.carry();
            }
            self.carry();
            while let Some(received) = self.signals.next().map_err(Error::Signals)? {
                self.forward(program, received);
            }
        }
    }

    /// The end of a program that takes no longer than [`AT_ONCE`]. That it runs is not written down
    /// then, nor is anything carried before: who has seen output finds the container running.
    /// Others wait until it is written (`state::look`).
    fn ends_at_once(&self, program: &Program) -> Result<Option<Outcome>, Error> {
        if !self.ledger.may_wait() {
            return Ok(None);
        }
        // A program that ends while its start still lets signals through leaves none behind, which
        // is usual where one processor serves both.
        if let Some(outcome) = program.reap() {
            return Ok(Some(outcome));
        }
        let mut fds = [PollFd::new(&self.signals, PollFlags::IN)];
        match poll(&mut fds, Some(&AT_ONCE)) {
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Ok(_) => Ok(program.reap()),
            Err(error) => Err(Error::wait("wait for signals", error)),
        }
    }

    /// Carries what the program has written last. Nothing writes any more, but a reader may be
    /// slow; a signal ends the wait for it.
    fn drain(&mut self) {
        while self.outputs.as_ref().is_some_and(|outputs| !outputs.are_over()) {
            if self.carry() {
                continue;
            }
            if let Some(outputs) = &mut self.outputs {
                outputs.end();
                if outputs.are_over() {
                    return;
                }
            }
            let is_signal = self.wait(None).unwrap_or(true);
            if is_signal && self.is_ended_by_user() {
                return;
            }
        }
    }

    /// Whether anything was carried.
    fn carry(&mut self) -> bool {
        let Some(outputs) = &mut self.outputs else { return false };
        let lost = &mut self.lost;
        outputs.carry(&mut |stream, error| *lost = Some((stream, error)))
    }

    /// Waits for signals and output; whether there are signals.
    fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        let pause = self.outputs.as_ref().and_then(Outputs::wait);
        let quiet = Some(QUIET).filter(|_| self.swollen);
        let limit = timeout.into_iter().chain(pause).chain(quiet).min().map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        fds.extend(self.outputs.iter().flat_map(Outputs::poll_fds));
        let count = match poll(&mut fds, limit.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(Error::wait("wait for signals", error)),
        };
        let is_signal = !fds[0].revents().is_empty();
        drop(fds);
        if count > 0 {
            self.swollen |= !is_signal;
        } else if pause.is_some() {
            self.outputs.iter_mut().for_each(Outputs::pause);
        } else if self.swollen && timeout.is_none() {
            self.swollen = false;
            self.outputs.iter_mut().for_each(Outputs::rest);
            trim_memory();
            release_code();
        }
        Ok(is_signal)
    }

    /// The pause before a restart; `true` when a signal or a user ended it.
    fn sleep(&mut self, delay: Duration) -> bool {
        let until = Instant::now() + delay;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let _ = self.wait(Some(left.min(Duration::from_millis(500))));
            if self.is_ended_by_user() || self.ledger.stop_requested() {
                return true;
            }
        }
        false
    }

    /// Whether a signal came that is to end the run. Takes all that have come.
    fn is_ended_by_user(&self) -> bool {
        let mut is_ended = false;
        while let Ok(Some(received)) = self.signals.next() {
            is_ended |= ENDING.iter().any(|signal| signal.number() == received.number);
        }
        is_ended
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
        if signal == Signal::TSTP && program.has_own_pids() {
            program.stop_all();
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
