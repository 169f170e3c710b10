//! The thread of a channel: the launcher's process, its streams, and time.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use super::GOODBYE;
use super::error::{Error, Why};
use super::state::{Shared, Wish};
use crate::launcher::{Cause, Launcher, explain};
use crate::wire::frames::{self, Decoder, Frame};
use crate::wire::messages::{Facts, Hello, Refused, pack, unpack};
use crate::wire::preamble::{Preamble, Said};
use crate::wire::{self, Kind, PIECE, PING, SILENCE, VERSION, WINDOW};

/// Stack of the thread, in bytes.
const STACK: usize = 256 << 10;
/// So much of the launcher's standard error is kept, in bytes.
const WORDS: usize = 1000;
/// A launcher gets so long to end by itself, and again after SIGTERM.
const MOMENT: Duration = Duration::from_millis(800);

/// Starts the thread.
pub(super) fn start(
    shared: &Arc<Shared>,
    launcher: Launcher,
    hello: Hello,
    deadline: Instant,
) -> std::io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("channel".into()).stack_size(STACK);
    thread.spawn(move || run(&shared, &launcher, &hello, deadline))
}

/// What the stream is at.
enum Phase {
    /// Lines; and the binary, while it is sent.
    Lines(Preamble, Option<File>),
    /// The hello was sent.
    Greeted,
    /// Frames of all kinds.
    Open,
}

/// Why the loop has ended.
enum End {
    /// The channel was not opened.
    Failed(Error),
    /// Standard output has ended.
    Eof,
    /// The stream is of no use; the reason.
    Lost(String),
    /// The driver wants it.
    Wished,
}

struct Io<'a> {
    shared: &'a Shared,
    launcher: &'a Launcher,
    hello: &'a Hello,
    child: Child,
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: Option<OwnedFd>,
    words: String,
    phase: Phase,
    decoder: Decoder,
}

fn run(shared: &Shared, launcher: &Launcher, hello: &Hello, deadline: Instant) {
    let node = shared.node().to_owned();
    let mut command = launcher.command(deadline.saturating_duration_since(Instant::now()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::child::apart(&mut command, launcher.at_death());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            let cause = if missing { Cause::Missing } else { Cause::Other };
            let said = format!("cannot start {}: {error}", command.get_program().display());
            return shared.set_opened(Err(Error::Launch { node, cause, said }));
        }
    };
    let stdin = child.stdin.take().map(OwnedFd::from);
    let stderr = child.stderr.take().map(OwnedFd::from);
    let Some(stdout) = child.stdout.take().map(OwnedFd::from) else {
        let why = "has no stream".to_owned();
        return shared.set_opened(Err(Error::NoAgent { node, why, said: String::new() }));
    };
    for stream in [stdin.as_ref(), stderr.as_ref(), Some(&stdout)].into_iter().flatten() {
        let _ = rustix::io::ioctl_fionbio(stream, true);
    }
    let phase = Phase::Lines(Preamble::default(), None);
    let decoder = Decoder::default();
    let words = String::new();
    let mut io =
        Io { shared, launcher, hello, child, stdin, stdout, stderr, words, phase, decoder };
    let end = io.serve(deadline);
    io.finish(end);
}

impl Io<'_> {
    fn serve(&mut self, deadline: Instant) -> End {
        let mut buffer = vec![0; PIECE];
        let mut heard = Instant::now();
        let mut pinged = Instant::now();
        loop {
            let now = Instant::now();
            let open = matches!(self.phase, Phase::Open);
            let wake = if open {
                if now.duration_since(heard) >= SILENCE {
                    let seconds = SILENCE.as_secs();
                    return End::Lost(format!("nothing has come for {seconds} seconds"));
                }
                if now.duration_since(pinged) >= PING {
                    pinged = now;
                    let mut state = self.shared.lock();
                    let _ = frames::append(&mut state.out, Kind::Ping, 0, &[]);
                }
                (heard + SILENCE).min(pinged + PING)
            } else {
                if now >= deadline {
                    return End::Failed(self.no_agent("has no agent that answers in time"));
                }
                deadline
            };
            match self.shared.lock().wish {
                Wish::Stay | Wish::Close => {}
                Wish::Abandon => return End::Wished,
            }
            if let Err(error) = self.write(&mut buffer) {
                return End::Failed(error);
            }
            self.wait(wake.saturating_duration_since(now));
            self.listen();
            match rustix::io::read(&self.stdout, &mut buffer) {
                Ok(0) => return End::Eof,
                Ok(count) => {
                    heard = Instant::now();
                    if let Err(end) = self.take(&buffer[..count]) {
                        return end;
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return End::Eof,
            }
        }
    }

    fn wait(&self, time: Duration) {
        let mut ready = vec![
            PollFd::new(&self.stdout, PollFlags::IN),
            PollFd::new(&self.shared.wake, PollFlags::IN),
        ];
        if let Some(stderr) = &self.stderr {
            ready.push(PollFd::new(stderr, PollFlags::IN));
        }
        let sending = matches!(self.phase, Phase::Lines(_, Some(_)));
        if let Some(stdin) = &self.stdin
            && (sending || !self.shared.lock().out.is_empty())
        {
            ready.push(PollFd::new(stdin, PollFlags::OUT));
        }
        // Rounded up, or the last millisecond is spent awake.
        let time = time + Duration::from_millis(1);
        let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let _ = poll(&mut ready, Some(&time));
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
    }

    /// Writes what is in the queue and can be written.
    fn write(&mut self, buffer: &mut [u8]) -> Result<(), Error> {
        let mut state = self.shared.lock();
        loop {
            if let Phase::Lines(_, file) = &mut self.phase
                && state.out.len() < WINDOW
                && let Some(binary) = file
            {
                match binary.read(buffer) {
                    Ok(0) => *file = None,
                    Ok(count) => state.out.extend(&buffer[..count]),
                    Err(source) => return Err(executable(self.launcher, source)),
                }
            }
            if state.out.is_empty() {
                break;
            }
            let Some(stdin) = &self.stdin else { break };
            match rustix::io::write(stdin, state.out.as_slices().0) {
                Ok(count) => drop(state.out.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // Why it is gone, standard output's end will tell.
                Err(_) => self.stdin = None,
            }
        }
        if state.out.is_empty() {
            state.out.shrink_to(PIECE);
        }
        drop(state);
        self.shared.tell();
        Ok(())
    }

    /// Keeps the end of what the launcher prints to standard error.
    fn listen(&mut self) {
        let mut buffer = [0; 1024];
        while let Some(stderr) = &self.stderr {
            match rustix::io::read(stderr, &mut buffer) {
                Ok(0) => self.stderr = None,
                Ok(count) => {
                    let text = String::from_utf8_lossy(&buffer[..count]);
                    let plain = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
                    self.words.extend(text.chars().map(plain));
                    let mut cut = self.words.len().saturating_sub(WORDS);
                    while !self.words.is_char_boundary(cut) {
                        cut += 1;
                    }
                    self.words.drain(..cut);
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
    }

    fn queue(&self, bytes: &[u8]) {
        self.shared.lock().out.extend(bytes);
    }

    /// Takes bytes of standard output.
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), End> {
        while let Phase::Lines(preamble, file) = &mut self.phase {
            let Some((said, rest)) = preamble.feed(bytes) else { return Ok(()) };
            bytes = rest;
            match said {
                Said::Script => match self.launcher.script() {
                    Ok(script) => self.queue(script.as_bytes()),
                    Err(source) => {
                        return Err(End::Failed(Error::Thread { node: self.node(), source }));
                    }
                },
                Said::Binary => match File::open(&self.launcher.binary.path) {
                    Ok(binary) => *file = Some(binary),
                    Err(source) => return Err(End::Failed(executable(self.launcher, source))),
                },
                Said::Failed(why) => {
                    return Err(End::Failed(Error::Place { node: self.node(), why }));
                }
                Said::TooMuch => {
                    return Err(End::Failed(self.no_agent("prints too much before the agent")));
                }
                Said::Frames(first) => {
                    self.phase = Phase::Greeted;
                    let mut hello = VecDeque::new();
                    let _ = frames::append(&mut hello, Kind::Hello, 0, &pack(self.hello));
                    self.queue(hello.make_contiguous());
                    self.decoder.feed(&first);
                }
            }
        }
        self.decoder.feed(bytes);
        loop {
            let frame = match self.decoder.take() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.bad(error)),
            };
            if matches!(self.phase, Phase::Open) {
                self.shared.frame(frame).map_err(|error| self.bad(error))?;
            } else {
                let facts = self.greeting(&frame).map_err(End::Failed)?;
                self.phase = Phase::Open;
                self.shared.set_opened(Ok(facts));
            }
        }
    }

    fn bad(&self, source: wire::Error) -> End {
        if matches!(self.phase, Phase::Open) {
            End::Lost(format!("the stream is damaged: {source}"))
        } else {
            End::Failed(Error::Stream { node: self.node(), source })
        }
    }

    /// The agent's first frame.
    fn greeting(&self, frame: &Frame) -> Result<Facts, Error> {
        let node = self.node();
        let stream = |source| Error::Stream { node: self.node(), source };
        let other = |agent| stream(wire::Error::Version { agent, driver: self.hello.version });
        match frame.kind {
            Kind::Facts => {
                let facts: Facts = unpack(frame.kind, &frame.payload).map_err(stream)?;
                if facts.version != VERSION {
                    return Err(other(facts.version));
                }
                if facts.digest != self.launcher.binary.digest {
                    return Err(Error::Digest {
                        node,
                        path: facts.executable,
                        found: facts.digest,
                    });
                }
                Ok(facts)
            }
            Kind::Refused => {
                let refused: Refused = unpack(frame.kind, &frame.payload).map_err(stream)?;
                match refused.version {
                    Some(agent) => Err(other(agent)),
                    None => Err(Error::Refused { node, why: refused.why }),
                }
            }
            kind => Err(stream(wire::Error::Unexpected(kind))),
        }
    }

    fn node(&self) -> String {
        self.shared.node().to_owned()
    }

    fn no_agent(&mut self, why: &str) -> Error {
        let skipped = match &mut self.phase {
            Phase::Lines(preamble, _) => preamble.skipped(),
            _ => String::new(),
        };
        let said = format!("{skipped}\n{}", self.words);
        Error::NoAgent { node: self.node(), why: why.to_owned(), said }
    }

    /// Ends the launcher, and tells everybody.
    fn finish(mut self, end: End) {
        let node = self.node();
        let opened = matches!(self.phase, Phase::Open);
        self.stdin = None;
        let closing = self.shared.lock().wish == Wish::Close;
        let lost = |reason: &str, last_words: &str| Why {
            node: node.clone(),
            reason: reason.to_owned(),
            last_words: last_words.to_owned(),
        };
        if let (End::Lost(reason), true) = (&end, opened) {
            // Nobody waits for the launcher's end to learn this.
            self.shared.set_lost(lost(reason, &self.words));
        }
        let patience = match &end {
            End::Eof if closing => GOODBYE,
            End::Eof => MOMENT,
            _ => Duration::ZERO,
        };
        let status = self.ended_within(patience);
        self.listen();
        let code = status.and_then(|status| status.code());
        match end {
            End::Failed(error) => self.shared.set_opened(Err(error)),
            End::Eof if !opened => {
                let cause = explain(self.launcher, code, &self.words);
                let error = if cause == Cause::Other && code == Some(0) {
                    self.no_agent("has started no agent")
                } else {
                    let said = match self.no_agent("") {
                        Error::NoAgent { said, .. } => said,
                        _ => String::new(),
                    };
                    Error::Launch { node: node.clone(), cause, said }
                };
                self.shared.set_opened(Err(error));
            }
            _ if closing => self.shared.set_lost(lost("the channel was closed", "")),
            End::Wished => self.shared.set_lost(lost("the channel was given up", "")),
            _ => {
                let program = self.launcher.program();
                let reason = match code {
                    Some(code) => format!("{program} has ended with code {code}"),
                    None => "the stream has ended".to_owned(),
                };
                self.shared.set_lost(lost(&reason, &self.words));
            }
        }
        // An agent that was greeted has its own time to end, and no stream any more.
        let end = !opened || closing || self.launcher.carries();
        self.stop(status.is_some(), end);
    }

    fn ended_within(&mut self, time: Duration) -> Option<std::process::ExitStatus> {
        let limit = Instant::now() + time;
        loop {
            self.listen();
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < limit => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                _ => return None,
            }
        }
    }

    /// Ends the launcher and reaps it; or waits for it, if it is not to be ended.
    fn stop(mut self, ended: bool, end: bool) {
        if let Some(command) = self.launcher.farewell().filter(|_| end) {
            let mut command = command;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            sys::child::apart(&mut command, Some(Signal::KILL));
            if let Ok(mut child) = command.spawn() {
                let limit = Instant::now() + MOMENT;
                while matches!(child.try_wait(), Ok(None)) && Instant::now() < limit {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        // Its streams are closed first, which is how an agent learns that it is alone.
        let (stdout, stderr) = (self.stdout, self.stderr.take());
        drop((stdout, stderr));
        if ended {
            return;
        }
        if end {
            let pid = Pid::from_child(&self.child);
            let times = if self.launcher.carries() { MOMENT } else { GOODBYE };
            let _ = rustix::process::kill_process(pid, Signal::TERM);
            let limit = Instant::now() + times;
            loop {
                match self.child.try_wait() {
                    Ok(None) if Instant::now() < limit => {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Ok(None) => break,
                    _ => return,
                }
            }
            for pid in sys::child::session(pid) {
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

fn executable(launcher: &Launcher, source: std::io::Error) -> Error {
    Error::Executable { path: launcher.binary.path.clone(), source }
}
