//! One round of the supervisor's loop: waits for events and handles them.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sys::terminal::{Size, resize};

use super::super::log::Stream;
use super::super::protocol::Message;
use super::super::socket::Listener;
use super::super::{Error, Signal, state};
use super::clients::Client;
use super::{Stop, Supervisor};
use crate::processes;

/// Connections at a time; more are refused.
const MOST_CLIENTS: usize = 64;

/// What a round of the loop found ready.
#[derive(Clone, Copy)]
enum Ready {
    Signals,
    Listener,
    Client(usize),
    Source(Stream),
    Sink,
}

impl Supervisor<'_> {
    /// One round: waits at most `wait` (`None`: for ever) and handles what is ready.
    /// Whether anything was.
    pub(super) fn turn(&mut self, wait: Option<Duration>) -> Result<bool, Error> {
        let ready = self.ready(wait)?;
        let busy = !ready.is_empty();
        for (what, flags) in ready {
            match what {
                Ready::Signals => self.take_signals(),
                Ready::Listener => self.accept(),
                Ready::Client(index) => self.serve_client(index, flags),
                Ready::Source(stream) => self.read_output(stream),
                Ready::Sink => self.write_input(),
            }
        }
        self.drop_clients();
        Ok(busy)
    }

    fn ready(&self, wait: Option<Duration>) -> Result<Vec<(Ready, PollFlags)>, Error> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let mut what = vec![Ready::Signals];
        if let Some(listener) = &self.listener {
            fds.push(PollFd::new(listener, PollFlags::IN));
            what.push(Ready::Listener);
        }
        for (index, client) in self.clients.iter().enumerate() {
            let out = if client.has_queue() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::from_borrowed_fd(client.fd(), PollFlags::IN | out));
            what.push(Ready::Client(index));
        }
        let held_up = self.clients.iter().any(Client::holds_up);
        for stream in [Stream::Stdout, Stream::Stderr] {
            if let Some(source) = self.ends.source(stream).filter(|_| !held_up) {
                fds.push(PollFd::new(source, PollFlags::IN));
                what.push(Ready::Source(stream));
            }
        }
        if let Some(sink) = self.ends.sink().filter(|_| !self.input.is_empty()) {
            fds.push(PollFd::from_borrowed_fd(sink.as_fd(), PollFlags::OUT));
            what.push(Ready::Sink);
        }
        let wait = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs() as i64,
            // Rounded up, so that a deadline is over when the wait for it is.
            tv_nsec: i64::from(wait.subsec_nanos()),
        });
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(Error::wait("wait for events", error)),
        }
        let flags = fds.iter().map(PollFd::revents);
        Ok(what.into_iter().zip(flags).filter(|(_, flags)| !flags.is_empty()).collect())
    }

    fn read_output(&mut self, stream: Stream) {
        let Some(source) = self.ends.source(stream) else { return };
        let count = match rustix::io::read(source, &mut self.buffer) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return,
            // EIO: the other end of a terminal is closed.
            Err(_) => 0,
        };
        if count == 0 {
            self.ends.close(stream);
            return;
        }
        let bytes = &self.buffer[..count];
        if let Some(log) = &mut self.log {
            log.add(stream, bytes);
        }
        for client in &mut self.clients {
            client.output(stream.number(), bytes);
        }
    }

    fn write_input(&mut self) {
        let clients = &mut self.clients;
        self.input.write(self.ends.sink(), |number, count| {
            if let Some(client) = clients.iter_mut().find(|client| client.number == number) {
                client.pending_input = client.pending_input.saturating_sub(count);
                client.send(&Message::Taken(count as u32));
            }
        });
        if self.input.close && self.input.is_empty() {
            self.input.close = false;
            if let Some(key) = self.ends.end_input() {
                self.input.push(u64::MAX, vec![key]);
                self.write_input();
            }
        }
    }

    fn take_signals(&mut self) {
        while let Ok(Some(received)) = self.signals.next() {
            // SIGCHLD is answered by `reap`; the rest is not meant for the program.
            if let Some(Signal::TERM | Signal::INT | Signal::QUIT) =
                Signal::from_number(received.number)
            {
                // Somebody wants the supervisor gone: the program goes first, in good order.
                let options = &self.launch.options;
                let (signal, timeout) = (options.stop_signal, options.stop_timeout);
                self.begin_stop(signal, Some(timeout));
            }
        }
        self.reap();
    }

    pub(super) fn begin_stop(&mut self, signal: Signal, timeout: Option<Duration>) {
        self.stopped = true;
        let Some(program) = &self.program else { return };
        program.signal(signal);
        if self.ledger.paused() {
            state::set_paused(&self.launch.dir, false);
            program.signal_all(Signal::CONT);
        } else {
            // A stopped process does not see any other signal.
            program.signal(Signal::CONT);
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // A second stop may shorten the time, not lengthen it.
        let earlier = self.stop.as_ref().and_then(|stop| stop.deadline);
        self.stop = Some(Stop { deadline: earlier.into_iter().chain(deadline).min() });
    }

    fn accept(&mut self) {
        while let Some(fd) = self.listener.as_ref().and_then(Listener::accept) {
            if self.clients.len() < MOST_CLIENTS {
                self.clients.push(Client::new(fd, self.next_client));
                self.next_client += 1;
            }
        }
    }

    fn serve_client(&mut self, index: usize, flags: PollFlags) {
        let Some(client) = self.clients.get_mut(index) else { return };
        if flags.contains(PollFlags::OUT) {
            client.flush();
        }
        let messages = client.receive();
        for message in messages {
            self.obey(index, message);
        }
    }

    fn obey(&mut self, index: usize, message: Message) {
        let first = self.clients[index].first;
        match message {
            Message::Hello { version, wants } => {
                let options = &self.launch.options;
                let (tty, input) = (options.tty, options.stdin_open);
                self.clients[index].welcome(version, wants, tty, input);
            }
            Message::Input(bytes) => {
                self.input.push(self.clients[index].number, bytes);
                self.write_input();
            }
            // As in Docker, only the command that started it ends the program's input.
            Message::CloseInput if first => {
                self.input.close = true;
                self.write_input();
            }
            Message::Resize(rows, columns) => {
                self.size = Size { rows, columns };
                if self.launch.options.tty
                    && let Some(master) = &self.ends.output
                {
                    let _ = resize(master, self.size);
                }
            }
            Message::Signal(number, user) => self.pass_on(index, number, user),
            Message::Detach => self.clients[index].detached = true,
            Message::Hangup(stream) if first => self.hang_up(stream),
            Message::Suspend => self.signal_all(Signal::STOP),
            Message::Resume => self.signal_all(Signal::CONT),
            Message::Stop { signal, timeout } => {
                let signal = Signal::from_number(signal.into());
                let timeout = (timeout != u32::MAX).then(|| Duration::from_millis(timeout.into()));
                self.begin_stop(signal.unwrap_or(self.launch.options.stop_signal), timeout);
            }
            _ => {}
        }
    }

    pub(super) fn signal_all(&self, signal: Signal) {
        if let Some(program) = &self.program {
            program.signal_all(signal);
        }
    }

    /// The first client cannot write any more: the program shall learn it, as from a pipe.
    fn hang_up(&mut self, stream: u8) {
        match stream {
            2 => self.ends.close(Stream::Stderr),
            _ if !self.ends.tty => self.ends.close(Stream::Stdout),
            _ => {}
        }
    }

    fn pass_on(&mut self, index: usize, number: u8, user: bool) {
        let Some(signal) = Signal::from_number(number.into()) else { return };
        // `kill` with the stop signal or SIGKILL is meant to end it for good.
        self.stopped |=
            user && (signal == Signal::KILL || signal == self.launch.options.stop_signal);
        let Some(program) = &mut self.program else { return };
        program.signal(signal);
        let deaf = matches!(signal, Signal::INT | Signal::TERM)
            && processes::ignores_as_init(program.number(), number.into());
        if deaf && !user {
            program.ignored += 1;
            let text = match program.ignored {
                1 => return,
                2 => format!("the program does not handle {signal}; once more kills it"),
                _ => {
                    program.signal(Signal::KILL);
                    format!("killed: the program does not handle {signal}")
                }
            };
            self.clients[index].send(&Message::Notice(text));
        }
    }

    pub(super) fn notify(&mut self, text: &str) {
        for client in &mut self.clients {
            client.send(&Message::Notice(text.to_owned()));
        }
    }

    /// Forgets clients that are gone. A first one that did not detach takes the program along.
    fn drop_clients(&mut self) {
        let lost = self.clients.iter().any(|c| c.first && c.gone && !c.detached);
        self.clients.retain(|client| !client.gone && !client.detached);
        if lost {
            self.begin_stop(Signal::HUP, Some(self.launch.options.stop_timeout));
        }
    }
}
