//! A client of a supervisor: carries keys and output between the caller's descriptors and the
//! socket.
//!
//! The caller's descriptors may be shared with other programs, so they are never made
//! non-blocking; `poll` is asked first, and pipes and terminals are then written in pieces small
//! enough (4 KiB, `PIPE_BUF`) not to block. That keeps signals alive while a reader is slow.
//!
//! The terminal is raw only when it is the program's keyboard: the container has a terminal and
//! this client sends input. It is restored on every way out: the end, an error, detaching, a
//! panic, death by a signal that is not forwarded, and while stopped by job control.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::termios::isatty;
use sys::event::{MaskGuard, Received, SignalFd, SignalSet, raise_default};
use sys::terminal::{RawMode, Size, size};

use super::keys::Matcher;
use super::protocol::{CREDIT, Decoder, Message, VERSION, WANT_INPUT, WANT_OUTPUT};
use super::state::{self, Observed};
use super::{DetachKeys, Ended, Error, Outcome, Signal, socket};

/// Output that waits for the caller's descriptors before the supervisor is not read on.
const MOST_QUEUED: usize = 256 * 1024;
/// Written at once to what may block.
const SMALL: usize = 4096;
/// Written at once to a file.
const LARGE: usize = 64 * 1024;
/// Room for detach keys that were held back.
const HELD: usize = 64;

/// The caller's side of a session in the foreground.
pub struct Console<'a> {
    /// What leaves the program running; only where it has a terminal.
    pub detach_keys: DetachKeys,
    /// `--sig-proxy`: forward signals to the program.
    pub sig_proxy: bool,
    /// Shows the user a line of text (the terminal may be raw: end it with `\r\n`).
    pub notice: &'a mut dyn FnMut(&str),
}

/// How to attach to a running container.
#[derive(Clone, Copy, Debug)]
pub struct AttachOptions {
    /// Send our standard input (not `--no-stdin`).
    pub input: bool,
}

/// The window size of the first of our standard descriptors that is a terminal.
pub(super) fn terminal_size() -> Option<Size> {
    let (stdin, stdout, stderr) =
        (rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr());
    size(stdout).or_else(|| size(stdin)).or_else(|| size(stderr)).filter(|size| size.rows > 0)
}

/// Connects this process's standard descriptors to the running container in `dir`, until its
/// program ends or the user types the detach keys.
///
/// # Errors
/// [`Error::NotRunning`]; [`Error::NoSupervisor`] where the program runs without one.
pub fn attach(dir: &Path, options: AttachOptions, console: Console<'_>) -> Result<Ended, Error> {
    let socket = dial_running(dir)?;
    run(socket, options.input, false, console)
}

/// A connection to the supervisor, or why there is none.
pub(super) fn dial_running(dir: &Path) -> Result<OwnedFd, Error> {
    socket::dial(dir).map_err(|error| match state::observe(dir) {
        Ok(Observed::Running(running)) if running.elsewhere.is_some() => {
            running.here().err().unwrap_or(Error::NotRunning)
        }
        Ok(Observed::Running(running)) if running.supervisor.is_none() => Error::NoSupervisor,
        Ok(Observed::Running(_) | Observed::Restarting { .. }) => match error {
            // The run in the foreground that inherited everything has no socket.
            Error::Connect { .. } => Error::NoSupervisor,
            other => other,
        },
        Ok(_) => Error::NotRunning,
        Err(_) => error,
    })
}

/// Carries until the end. `first`: this is the command that started the program.
pub(super) fn run(
    socket: OwnedFd,
    input: bool,
    first: bool,
    console: Console<'_>,
) -> Result<Ended, Error> {
    let numbers: Vec<i32> = Signal::forwardable().map(Signal::number).collect();
    let set = SignalSet::of(&numbers);
    let mask = MaskGuard::block(set).map_err(Error::Signals)?;
    let signals = SignalFd::new(set).map_err(Error::Signals)?;
    let mut session = Session {
        socket,
        signals,
        first,
        wants_input: input,
        tty: false,
        input_open: false,
        credit: CREDIT,
        matcher: Matcher::new(&DetachKeys::none()),
        console,
        decoder: Decoder::default(),
        outgoing: VecDeque::new(),
        incoming: [Sink::new(1), Sink::new(2)],
        raw: None,
        over: None,
    };
    // The first client is welcomed unasked.
    if !first {
        let wants = WANT_OUTPUT | if input { WANT_INPUT } else { 0 };
        session.send(&Message::Hello { version: VERSION, wants });
    }
    let ended = session.carry();
    drop(session);
    drop(mask);
    ended
}

/// One of our output descriptors.
struct Sink {
    number: u8,
    queue: VecDeque<u8>,
    piece: usize,
    closed: bool,
}

impl Sink {
    fn new(number: u8) -> Self {
        let mut sink = Self { number, queue: VecDeque::new(), piece: SMALL, closed: false };
        let file = rustix::fs::fstat(sink.fd())
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        if file {
            sink.piece = LARGE;
        }
        sink
    }

    fn fd(&self) -> BorrowedFd<'static> {
        if self.number == 2 { rustix::stdio::stderr() } else { rustix::stdio::stdout() }
    }

    fn add(&mut self, bytes: &[u8]) {
        if !self.closed {
            self.queue.extend(bytes);
        }
    }

    /// Writes one piece; `false` if the reader is gone.
    fn write(&mut self) -> bool {
        let (front, _) = self.queue.as_slices();
        let piece = &front[..front.len().min(self.piece)];
        match rustix::io::write(self.fd(), piece) {
            Ok(count) => drop(self.queue.drain(..count)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => {
                self.closed = true;
                self.queue = VecDeque::new();
                return false;
            }
        }
        true
    }
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts about one session")]
struct Session<'a> {
    socket: OwnedFd,
    signals: SignalFd,
    first: bool,
    wants_input: bool,
    tty: bool,
    input_open: bool,
    /// Bytes of input the supervisor still takes.
    credit: usize,
    matcher: Matcher,
    console: Console<'a>,
    decoder: Decoder,
    outgoing: VecDeque<u8>,
    incoming: [Sink; 2],
    raw: Option<RawMode>,
    over: Option<Ended>,
}

#[derive(Clone, Copy)]
enum Ready {
    Signals,
    Socket,
    Input,
    Sink(usize),
}

impl Session<'_> {
    fn carry(&mut self) -> Result<Ended, Error> {
        loop {
            let drained = self.incoming.iter().all(|sink| sink.queue.is_empty());
            if let Some(ended) = self.over.filter(|_| drained) {
                return Ok(ended);
            }
            for (what, flags) in self.ready()? {
                match what {
                    Ready::Signals => self.take_signals(),
                    Ready::Socket => self.serve_socket(flags)?,
                    Ready::Input => self.read_input(),
                    Ready::Sink(index) => self.write_output(index),
                }
            }
        }
    }

    fn ready(&self) -> Result<Vec<(Ready, PollFlags)>, Error> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let mut what = vec![Ready::Signals];
        let queued: usize = self.incoming.iter().map(|sink| sink.queue.len()).sum();
        let mut wanted = PollFlags::empty();
        if queued < MOST_QUEUED {
            wanted |= PollFlags::IN;
        }
        if !self.outgoing.is_empty() {
            wanted |= PollFlags::OUT;
        }
        // A socket that is polled for nothing still reports its hang-up, in a busy loop.
        if self.over.is_none() && !wanted.is_empty() {
            fds.push(PollFd::new(&self.socket, wanted));
            what.push(Ready::Socket);
        }
        let stdin = rustix::stdio::stdin();
        if self.input_open && self.over.is_none() && self.credit > HELD && self.outgoing.is_empty()
        {
            fds.push(PollFd::from_borrowed_fd(stdin, PollFlags::IN));
            what.push(Ready::Input);
        }
        for (index, sink) in self.incoming.iter().enumerate() {
            if !sink.queue.is_empty() {
                fds.push(PollFd::from_borrowed_fd(sink.fd(), PollFlags::OUT));
                what.push(Ready::Sink(index));
            }
        }
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(Error::wait("wait for the supervisor", error)),
        }
        let flags = fds.iter().map(PollFd::revents);
        Ok(what.into_iter().zip(flags).filter(|(_, flags)| !flags.is_empty()).collect())
    }

    fn send(&mut self, message: &Message) {
        message.encode(&mut self.outgoing);
        self.flush();
    }

    fn flush(&mut self) {
        while !self.outgoing.is_empty() {
            let (front, _) = self.outgoing.as_slices();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, front, flags) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The end of the connection shows when reading.
                Err(_) => self.outgoing.clear(),
            }
        }
    }

    fn serve_socket(&mut self, flags: PollFlags) -> Result<(), Error> {
        if flags.contains(PollFlags::OUT) {
            self.flush();
        }
        let mut bytes = [0_u8; 16 * 1024];
        let count = match rustix::net::recv(self.socket.as_fd(), &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(Errno::CONNRESET) => return Err(Error::SupervisorDied),
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(Error::wait("read from the supervisor", error)),
        };
        self.decoder.feed(&bytes[..count]);
        loop {
            let next = self.decoder.next();
            match next.map_err(|_| Error::Protocol("an unknown message".into()))? {
                Some(message) => self.take(message)?,
                None => return Ok(()),
            }
        }
    }

    fn take(&mut self, message: Message) -> Result<(), Error> {
        match message {
            Message::Welcome { version, .. } if version != VERSION => {
                return Err(Error::Protocol(format!("version {version}, not {VERSION}")));
            }
            Message::Welcome { tty, input, .. } => self.begin(tty, input),
            Message::Output(bytes) => self.incoming[0].add(&bytes),
            Message::Errors(bytes) => self.incoming[1].add(&bytes),
            Message::Taken(count) => self.credit += count as usize,
            Message::Notice(text) => (self.console.notice)(&text),
            Message::Exit { code, signal } => {
                let signal = Signal::from_number(signal.into());
                self.over = Some(Ended::Exited(Outcome { code, signal }));
            }
            _ => return Err(Error::Protocol("a message meant for a supervisor".into())),
        }
        Ok(())
    }

    fn begin(&mut self, tty: bool, input: bool) {
        self.tty = tty;
        self.input_open = input && self.wants_input;
        if !tty {
            return;
        }
        self.matcher = Matcher::new(&self.console.detach_keys);
        let stdin = rustix::stdio::stdin();
        if self.input_open && isatty(stdin) {
            self.raw = RawMode::enter(stdin).ok();
        }
        if let (Some(size), false) = (terminal_size(), self.first) {
            // Nothing that was shown before is replayed; a change of size makes programs that
            // fill the screen draw it anew.
            self.send(&Message::Resize(size.rows, size.columns.saturating_add(1)));
        }
        self.tell_size();
    }

    fn tell_size(&mut self) {
        if let Some(size) = terminal_size().filter(|_| self.tty) {
            self.send(&Message::Resize(size.rows, size.columns));
        }
    }

    fn read_input(&mut self) {
        let mut bytes = [0_u8; SMALL];
        let room = bytes.len().min(self.credit - HELD);
        let count = match rustix::io::read(rustix::stdio::stdin(), &mut bytes[..room]) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return,
            // EIO: our terminal is gone, or we are in an orphaned background group.
            Err(_) => 0,
        };
        let mut typed = Vec::with_capacity(count);
        let detach = self.matcher.feed(&bytes[..count], &mut typed);
        if count == 0 {
            self.matcher.finish(&mut typed);
        }
        if !typed.is_empty() {
            self.credit = self.credit.saturating_sub(typed.len());
            self.send(&Message::Input(typed));
        }
        if detach {
            self.send(&Message::Detach);
            self.over = Some(Ended::Detached);
        } else if count == 0 {
            self.input_open = false;
            self.send(&Message::CloseInput);
        }
    }

    fn write_output(&mut self, index: usize) {
        let sink = &mut self.incoming[index];
        let number = sink.number;
        if !sink.write() {
            self.send(&Message::Hangup(number));
        }
    }

    fn take_signals(&mut self) {
        while let Ok(Some(received)) = self.signals.next() {
            self.take_signal(received);
        }
    }

    fn take_signal(&mut self, received: Received) {
        let Some(signal) = Signal::from_number(received.number) else { return };
        match signal {
            Signal::WINCH => self.tell_size(),
            Signal::TSTP => self.stop_along(),
            // What continued us continued only us; `stop_along` handles the rest.
            Signal::CONT if self.tty => self.tell_size(),
            // Our terminal is gone: leaving is what tells the supervisor.
            Signal::HUP if received.from_kernel() => {
                let outcome = Outcome { code: 129, signal: Some(Signal::HUP) };
                self.incoming.iter_mut().for_each(|sink| sink.queue.clear());
                self.over = Some(Ended::Exited(outcome));
            }
            _ if self.console.sig_proxy => {
                self.send(&Message::Signal(received.number as u8, false));
            }
            Signal::HUP | Signal::INT | Signal::QUIT | Signal::TERM => {
                self.raw = None;
                let _ = raise_default(received.number);
            }
            _ => {}
        }
    }

    /// Ctrl-Z (or `kill -TSTP`): the whole job stops, and goes on with us.
    fn stop_along(&mut self) {
        if let Some(raw) = &self.raw {
            raw.suspend();
        }
        let job = self.first && !self.tty;
        if job {
            self.send(&Message::Suspend);
        }
        let _ = raise_default(Signal::TSTP.number());
        if job {
            self.send(&Message::Resume);
        }
        if let Some(raw) = &self.raw {
            raw.resume();
        }
        self.tell_size();
    }
}
