//! Acts on a running container from another process: `stop`, `kill`, `wait`, `top`, `pause`.
//!
//! With a supervisor that listens, requests go to it, so that it knows a restart is not wanted.
//! Where none does (an unsupervised run, a foreground run that inherited its descriptors, a
//! supervisor that was killed) the processes themselves are signalled, through descriptors opened
//! and checked against the recorded start time first, so that a process which got an old number is
//! never hit.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::program::Patience;
use super::protocol::{Decoder, Message, VERSION};
use super::state::{self, Observed, Running};
use super::{Error, Signal, socket};
use crate::engines::interpose;
use crate::launch::{cgroup, members};
use crate::processes::{self, Stat};
use crate::spec::ProcessId;

/// How long to wait for killed processes.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to look where nothing can be waited for.
const LOOK: Duration = Duration::from_millis(100);

/// What `stop` does.
#[derive(Clone, Copy, Debug)]
pub struct StopOptions {
    /// Sent first.
    pub signal: Signal,
    /// Until SIGKILL; `None`: never.
    pub timeout: Option<Duration>,
}

/// What `wait` learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The exit code, or 128 + signal.
    Code(i32),
    /// It ended without a witness: it ran without supervisor, or the supervisor was killed.
    Unknown,
}

/// Ends the container: the signal, and SIGKILL after the timeout. Returns when nothing of it runs;
/// a container that does not run is no error.
pub fn stop(dir: &Path, options: StopOptions) -> Result<(), Error> {
    let Some(running) = running(dir)? else { return Ok(()) };
    // Before anything is sent: a supervisor may see the end of its program first.
    state::set_stop_requested(dir, true);
    if let Ok(socket) = socket::dial(dir) {
        let timeout = options.timeout.map_or(u32::MAX, |t| t.as_millis() as u32);
        let message = Message::Stop { signal: options.signal.number() as u8, timeout };
        let mut link = Link::new(socket);
        let limit = options.timeout.map(|timeout| timeout + PATIENCE);
        // A supervisor that saw the mark may have gone already.
        if link.send(&message).is_ok() && link.exit(limit)?.is_some() {
            return stop_rest(dir, options);
        }
    }
    stop_directly(dir, &running, options)
}

fn running(dir: &Path) -> Result<Option<Running>, Error> {
    Ok(match state::observe(dir)? {
        Observed::Running(running) => Some(running.here()?),
        Observed::Restarting { supervisor } => {
            Some(Running { supervisor: Some(supervisor), ..Running::default() })
        }
        _ => None,
    })
}

/// The container's supervisor did its part; runs beside it are left, or what it could not see.
fn stop_rest(dir: &Path, options: StopOptions) -> Result<(), Error> {
    match running(dir)? {
        Some(rest) => stop_directly(dir, &Running { supervisor: None, ..rest }, options),
        None => Ok(()),
    }
}

fn stop_directly(dir: &Path, running: &Running, options: StopOptions) -> Result<(), Error> {
    let mains: Vec<&ProcessId> = running.init.iter().chain(&running.runs).collect();
    let mut members = Members::of(dir, &mains);
    let group = |main: &&&ProcessId| cgroup::of(main.pid).filter(|_| processes::alive(main));
    let groups: Vec<_> = mains.iter().filter_map(|main| group(&main)).collect();
    for main in &mains {
        signal_one(main, options.signal)?;
        if running.paused {
            signal_one(main, Signal::CONT)?;
        }
    }
    if running.paused {
        state::set_paused(dir, false);
        members.signal(Signal::CONT);
    }
    let deadline = options.timeout.map(|timeout| Instant::now() + timeout);
    let ended = mains.iter().all(|main| await_end(main, deadline));
    if !ended {
        for main in &mains {
            signal_one(main, Signal::KILL)?;
        }
        let deadline = Some(Instant::now() + PATIENCE);
        if !mains.iter().all(|main| await_end(main, deadline)) {
            let left = mains.into_iter().filter(|main| processes::alive(main));
            return Err(Error::Unkillable(left.cloned().collect()));
        }
    }
    for group in &groups {
        cgroup::kill(group);
    }
    members.kill()?;
    for group in &groups {
        cgroup::remove(group);
    }
    await_supervisor(running);
    interpose::tidy_after_all(dir);
    Ok(())
}

/// A supervisor without socket finishes on its own; its last words belong to "stopped".
fn await_supervisor(running: &Running) {
    let deadline = Instant::now() + PATIENCE;
    if let Some(supervisor) = &running.supervisor {
        await_end(supervisor, Some(deadline));
    }
}

/// Sends a signal to the container's first process (and to that of every further run).
///
/// # Errors
/// [`Error::NotRunning`].
pub fn kill(dir: &Path, signal: Signal) -> Result<(), Error> {
    let running = running(dir)?.ok_or(Error::NotRunning)?;
    let socket = socket::dial(dir).ok();
    // A supervisor ends its own program.
    let own = running.init.iter().filter(|_| socket.is_none());
    let mains: Vec<&ProcessId> = own.chain(&running.runs).collect();
    let mut members = None;
    if signal == Signal::KILL {
        // As a stop, it means all of the container, programs of `exec` too: its supervisor ends
        // these where it finds the mark, and nobody else those without one. What they have in
        // common is found while they live.
        state::set_stop_requested(dir, true);
        members = Some(Members::of(dir, &mains)).filter(|_| !mains.is_empty());
    }
    if let Some(socket) = socket {
        let mut link = Link::new(socket);
        // The welcome is the answer: messages are obeyed in the order they come. They go together,
        // because the signal may be the program's end, and its supervisor's, before a second
        // message could be sent.
        let request = Message::Signal(signal.number() as u8, true);
        link.send_all(&[request, Message::Hello { version: VERSION, wants: 0 }])?;
        link.answer()?;
    } else if running.init.is_some() && signal == Signal::TERM {
        state::set_stop_requested(dir, true);
    }
    for main in mains {
        signal_one(main, signal)?;
    }
    if let Some(members) = &mut members {
        members.kill()?;
    }
    if running.main().is_none() && running.supervisor.is_none() {
        return Err(Error::NotRunning);
    }
    Ok(())
}

/// How long a wait lasts before its caller is asked whether it goes on.
const TURN: Duration = Duration::from_millis(500);

/// Waits until the container has ended. Any number of callers may wait. `goes_on` is asked about
/// twice a second; `None` where it has said no.
pub fn wait(dir: &Path, goes_on: &dyn Fn() -> bool) -> Result<Option<Waited>, Error> {
    let mut link = socket::dial(dir).ok().map(Link::new);
    while goes_on() {
        let begun = Instant::now();
        if let Some(open) = &mut link {
            match open.exit(Some(TURN)) {
                Ok(Some(code)) => return Ok(Some(Waited::Code(code))),
                Ok(None) if begun.elapsed() >= TURN => continue,
                // The supervisor has gone without a word: its state file and processes tell.
                _ => link = None,
            }
        }
        match state::observe(dir)? {
            Observed::Running(running) => {
                let running = running.here()?;
                let processes = running.supervisor.iter().chain(&running.init).chain(&running.runs);
                // A further run may begin meanwhile.
                let until = Some(Instant::now() + TURN);
                processes.for_each(|process| {
                    await_end(process, until);
                });
            }
            Observed::Restarting { supervisor } => {
                await_end(&supervisor, Some(Instant::now() + LOOK));
            }
            Observed::Exited { code } => return Ok(Some(Waited::Code(code))),
            Observed::Ended => return Ok(Some(Waited::Unknown)),
            Observed::Created | Observed::Dead { .. } => {
                let code = state::read(dir)?.exit_code;
                return Ok(Some(code.map_or(Waited::Unknown, Waited::Code)));
            }
        }
    }
    Ok(None)
}

/// One line of `top`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// From `/proc/PID/stat`, numbers as on the host.
    pub stat: Stat,
    /// Real user id on the host.
    pub uid: u32,
    /// Arguments; empty for a zombie.
    pub command: Vec<String>,
}

/// The processes of a running container, by number, without those of Coracle that serve it.
///
/// # Errors
/// [`Error::NotRunning`].
pub fn top(dir: &Path) -> Result<Vec<Process>, Error> {
    let running = running(dir)?.ok_or(Error::NotRunning)?;
    let mains = running.init.iter().chain(&running.runs);
    let all = Members::of(dir, &mains.collect::<Vec<_>>()).list.into_iter();
    let pids = all.map(|process| process.pid).filter(|&pid| !processes::is_ours(pid));
    Ok(pids.filter_map(process).collect())
}

fn process(pid: u32) -> Option<Process> {
    use std::os::unix::fs::MetadataExt;
    let stat = processes::stat(pid)?;
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = line
        .split(|&byte| byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect::<Vec<_>>();
    let command = command.split_last().map_or_else(Vec::new, |(_, words)| words.to_vec());
    Some(Process { stat, uid, command })
}

/// Stops all processes of the container until [`unpause`].
///
/// By SIGSTOP, which works without control groups; parents inside that wait for stopped
/// children can notice it.
///
/// # Errors
/// [`Error::NotRunning`], [`Error::Paused`].
pub fn pause(dir: &Path) -> Result<(), Error> {
    let running = running(dir)?.ok_or(Error::NotRunning)?;
    if running.paused {
        return Err(Error::Paused);
    }
    // First the mark: a supervisor in the foreground shall not stop with its program.
    state::set_paused(dir, true);
    // Again until no new process appears: a process may fork before it is reached.
    let mut seen = 0;
    for _ in 0..10 {
        let mut members = Members::running(dir, &running);
        members.signal(Signal::STOP);
        if members.list.len() == seen {
            break;
        }
        seen = members.list.len();
    }
    Ok(())
}

/// Continues what [`pause`] stopped.
///
/// # Errors
/// [`Error::NotRunning`], [`Error::NotPaused`].
pub fn unpause(dir: &Path) -> Result<(), Error> {
    let running = running(dir)?.ok_or(Error::NotRunning)?;
    if !running.paused {
        return Err(Error::NotPaused);
    }
    Members::running(dir, &running).signal(Signal::CONT);
    state::set_paused(dir, false);
    Ok(())
}

/// Processes of a container at one moment, told from later ones by their start time.
struct Members<'a> {
    list: Vec<ProcessId>,
    /// What all processes of each first one have in common, with it.
    worlds: Vec<(ProcessId, String)>,
    /// The container's directory.
    dir: &'a Path,
}

impl<'a> Members<'a> {
    fn of(dir: &'a Path, mains: &[&ProcessId]) -> Self {
        let (mut list, mut worlds) = (members::all(dir), Vec::new());
        for &main in mains {
            let world = members::world(main.pid);
            let members = members::of(main, world.as_deref());
            // A process that has ended meanwhile tells nothing: that world may be another
            // process's.
            if processes::alive(main) {
                list.extend(members);
                worlds.extend(world.map(|world| (main.clone(), world)));
            }
        }
        processes::sort(&mut list);
        Self { list, worlds, dir }
    }

    fn running(dir: &'a Path, running: &Running) -> Self {
        let runs = &running.runs;
        Self::of(dir, &running.init.iter().chain(runs).collect::<Vec<_>>())
    }

    fn signal(&mut self, signal: Signal) {
        for process in &self.list {
            let _ = signal_one(process, signal);
        }
    }

    /// Kills them and what they started meanwhile, until none is left.
    fn kill(&mut self) -> Result<(), Error> {
        let mut patience = Patience::new(PATIENCE);
        loop {
            self.list.retain(processes::alive);
            self.list.extend(processes::descendants(&self.list));
            self.list.extend(members::all(self.dir));
            // A child that was just being made has lost its parent, but its tracer has it. The
            // number of a mount namespace may be another's by now.
            let traced = self.worlds.iter().filter(|(_, world)| members::is_tracer(world));
            self.list.extend(traced.flat_map(|(main, world)| members::of(main, Some(world))));
            processes::sort(&mut self.list);
            if self.list.is_empty() {
                return Ok(());
            }
            if patience.is_over() {
                return Err(Error::Unkillable(self.list.clone()));
            }
            self.signal(Signal::KILL);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Sends to exactly this process; one that is gone is no error.
fn signal_one(process: &ProcessId, signal: Signal) -> Result<(), Error> {
    let sent = processes::send(process, signal.number());
    sent.map_err(|source| Error::Kill { signal, pid: process.pid as i32, source })
}

/// Waits for the end of a process that is not our child; `false` when the time is over.
fn await_end(process: &ProcessId, deadline: Option<Instant>) -> bool {
    let fd = processes::open(process).ok().flatten();
    while processes::alive(process) {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return false;
        }
        let Some(fd) = &fd else {
            std::thread::sleep(left.map_or(LOOK, |left| left.min(LOOK)));
            continue;
        };
        let timeout = left.map(timespec);
        let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], timeout.as_ref());
    }
    true
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// A connection to a supervisor that asks and listens for the end.
struct Link {
    socket: OwnedFd,
    decoder: Decoder,
}

impl Link {
    fn new(socket: OwnedFd) -> Self {
        Self { socket, decoder: Decoder::default() }
    }

    fn send(&mut self, message: &Message) -> Result<(), Error> {
        self.send_all(std::slice::from_ref(message))
    }

    /// All in one write.
    fn send_all(&mut self, messages: &[Message]) -> Result<(), Error> {
        let mut bytes = std::collections::VecDeque::new();
        for message in messages {
            message.encode(&mut bytes);
        }
        let bytes: Vec<u8> = bytes.into();
        // A few bytes into an empty buffer: never partial.
        rustix::net::send(&self.socket, &bytes, SendFlags::NOSIGNAL)
            .map(drop)
            .map_err(|error| Error::wait("ask the supervisor", error))
    }

    fn answer(&mut self) -> Result<(), Error> {
        self.until(Some(PATIENCE), |message| {
            matches!(message, Message::Welcome { .. }).then_some(())
        })
        .map(drop)
    }

    /// The exit code when the container ends; `None` when the time is over or the supervisor
    /// vanished.
    fn exit(&mut self, limit: Option<Duration>) -> Result<Option<i32>, Error> {
        self.until(limit, |message| match message {
            Message::Exit { code, .. } => Some(*code),
            _ => None,
        })
    }

    fn until<T>(
        &mut self,
        limit: Option<Duration>,
        pick: impl Fn(&Message) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut bytes = [0_u8; 1024];
        loop {
            let garbled = |_| Error::Protocol("an unknown message".into());
            while let Some(message) = self.decoder.next().map_err(garbled)? {
                if let Some(found) = pick(&message) {
                    return Ok(Some(found));
                }
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            let timeout = left.map(timespec);
            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref());
            match rustix::net::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return Ok(None),
                Ok((count, _)) => self.decoder.feed(&bytes[..count]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(Error::wait("hear of the supervisor", error)),
            }
        }
    }
}
