//! One connection between two hosts.
//!
//! A connection has one thread, which waits for its socket and for what is to be sent. Others put
//! messages into its queue ([`Link::send`]), which is bounded: a frame for which there is no room
//! is dropped, as by any network; a message for which there is none ends the link, because it could
//! not be missed. Both sides speak at least once in [`EVERY`], and one that is silent for
//! [`SILENT`] is down.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustls::Connection;

use super::key::PublicKey;
use super::message::{self, Message};
use super::tls;
use crate::locks;

/// How long a connection may take until both sides know each other.
pub(super) const GREETING: Duration = Duration::from_secs(3);
/// How often each side says something.
const EVERY: Duration = Duration::from_secs(1);
/// After so long without a byte the other side is taken for gone.
const SILENT: Duration = Duration::from_secs(5);
/// A reason may travel for so long before its connection is closed.
const LINGER: Duration = Duration::from_millis(200);
/// How many bytes are given to TLS at once.
const BATCH: usize = 64 << 10;
/// How many bytes of frames wait at most, and of all messages.
const FRAMES: usize = 512 << 10;
const MESSAGES: usize = 4 << 20;
/// How often the socket is read before what was read is looked at.
const READS: usize = 16;

/// What others know of a link.
#[derive(Debug)]
pub(super) struct Link {
    /// The key of the other side.
    pub(super) key: PublicKey,
    /// The side that has the smaller key has dialled, as is usual.
    pub(super) usual: bool,
    queue: Mutex<Queue>,
    wake: OwnedFd,
}

#[derive(Debug)]
struct Queue {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Why it is to end.
    closing: Option<String>,
    heard: Instant,
}

impl Link {
    pub(super) fn new(key: PublicKey, usual: bool) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (messages, closing, heard) = (VecDeque::new(), None, Instant::now());
        let queue = Mutex::new(Queue { messages, bytes: 0, closing, heard });
        Ok(Self { key, usual, queue, wake })
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        locks::lock(&self.queue)
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Puts a message into the queue. Returns false if the link ends.
    pub(super) fn send(&self, message: Vec<u8>) -> bool {
        let mut queue = self.queue();
        if queue.bytes + message.len() > MESSAGES && queue.closing.is_none() {
            queue.closing = Some("it does not take what is sent".into());
        }
        let goes_on = queue.closing.is_none();
        if goes_on {
            queue.bytes += message.len();
            queue.messages.push_back(message);
        }
        drop(queue);
        self.wake();
        goes_on
    }

    /// Puts a frame into the queue, if there is room.
    pub(super) fn send_frame(&self, to: std::net::Ipv4Addr, frame: &[u8]) -> bool {
        let mut queue = self.queue();
        if queue.bytes + frame.len() > FRAMES || queue.closing.is_some() {
            return false;
        }
        let message = message::frame_bytes(to, frame);
        queue.bytes += message.len();
        queue.messages.push_back(message);
        drop(queue);
        self.wake();
        true
    }

    /// Ends it; the other side is told why.
    pub(super) fn close(&self, why: &str) {
        self.queue().closing.get_or_insert_with(|| why.to_owned());
        self.wake();
    }

    /// When the other side was last heard.
    pub(super) fn heard(&self) -> Instant {
        self.queue().heard
    }

    /// Talks until the link ends; why it did. `take` gets what the other side says.
    pub(super) fn talk(&self, channel: &mut Channel, mut take: impl FnMut(Message)) -> String {
        match self.talk_on(channel, &mut take) {
            Ok(why) => {
                channel.part(&why);
                why
            }
            Err(error) => {
                let why = tls::explain(&error);
                if error
                    .get_ref()
                    .is_some_and(<dyn std::error::Error + Send + Sync>::is::<message::Bad>)
                {
                    channel.part(&why);
                } else {
                    channel.linger();
                }
                why
            }
        }
    }

    fn talk_on(&self, channel: &mut Channel, take: &mut dyn FnMut(Message)) -> io::Result<String> {
        let mut said = Instant::now();
        loop {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
            let mut more = false;
            let mut queue = self.queue();
            if let Some(why) = &queue.closing {
                return Ok(why.clone());
            }
            let silence = queue.heard.elapsed();
            if !channel.tls.wants_write() {
                let mut batch = 0;
                while let Some(message) = queue.messages.pop_front_if(|_| batch < BATCH) {
                    queue.bytes -= message.len();
                    batch += message.len();
                    channel.tls.writer().write_all(&message)?;
                    said = Instant::now();
                }
                more = !queue.messages.is_empty();
            }
            drop(queue);
            if silence > SILENT {
                return Ok("it was silent for 5 seconds".into());
            }
            if said.elapsed() >= EVERY && !channel.tls.wants_write() {
                channel.say(&Message::Ping)?;
                said = Instant::now();
            }
            channel.flush()?;
            let next = EVERY.saturating_sub(said.elapsed()).min(SILENT.saturating_sub(silence));
            let more = more && !channel.tls.wants_write();
            let next = if more { Duration::ZERO } else { next.max(Duration::from_millis(1)) };
            channel.wait(Some(&self.wake), next)?;
            if channel.fill() {
                self.queue().heard = Instant::now();
            }
            while let Some(message) = channel.next()? {
                match message {
                    Message::Bye(why) => return Ok(printable(&why)),
                    Message::Hello { .. } | Message::Ping => {}
                    message => take(message),
                }
            }
            if let Some(error) = channel.failed.take() {
                return Err(error);
            }
        }
    }
}

/// A text of the other side that may be shown on a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A socket with TLS, and what was read from it.
pub(super) struct Channel {
    socket: TcpStream,
    tls: Connection,
    got: Vec<u8>,
    /// How many bytes of it were taken.
    taken: usize,
    /// Why nothing more comes. What has come before counts.
    failed: Option<io::Error>,
}

impl Channel {
    pub(super) fn new(socket: TcpStream, mut tls: Connection) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        // The queue is the bound.
        tls.set_buffer_limit(None);
        Ok(Self { socket, tls, got: Vec::new(), taken: 0, failed: None })
    }

    /// Proves who this side is, and learns who the other one is; then both sides greet. Returns the
    /// other side's key and greeting.
    pub(super) fn greet(&mut self, hello: &Message) -> io::Result<(PublicKey, Message)> {
        let until = Instant::now() + GREETING;
        self.until(until, |channel| Ok((!channel.tls.is_handshaking()).then_some(())))?;
        let key = tls::peer(&self.tls).ok_or(io::ErrorKind::InvalidData)?;
        self.say(hello)?;
        let told = self.until(until, Self::next)?;
        Ok((key, told))
    }

    /// Waits for something until a time.
    fn until<T>(
        &mut self,
        until: Instant,
        mut found: impl FnMut(&mut Self) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        loop {
            self.flush()?;
            if let Some(found) = found(self)? {
                return Ok(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            self.wait(None, left)?;
            self.fill();
        }
    }

    /// Says why the connection ends, and waits a moment until the other side has heard it.
    pub(super) fn part(&mut self, why: &str) {
        let _ = self.say(&Message::Bye(why.to_owned()));
        self.tls.send_close_notify();
        self.linger();
    }

    /// In words, why it has ended. An alert is sent, so that the other side knows, too.
    pub(super) fn ended(&mut self, error: &io::Error) -> String {
        self.linger();
        tls::explain(error)
    }

    fn linger(&mut self) {
        let until = Instant::now() + LINGER;
        while self.flush().is_ok() && self.tls.wants_write() && Instant::now() < until {
            let _ = self.wait(None, LINGER);
        }
        // A socket that is closed with unread bytes takes back what was sent.
        let _ = self.socket.shutdown(Shutdown::Write);
        let mut rest = [0; 4096];
        while Instant::now() < until {
            match self.socket.read(&mut rest) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = self.wait(None, until.saturating_duration_since(Instant::now()));
                }
                Err(_) => return,
            }
        }
    }

    fn say(&mut self, message: &Message) -> io::Result<()> {
        self.tls.writer().write_all(&message.bytes())
    }

    /// Sends what TLS has, as far as the socket takes it.
    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut &self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait(&self, wake: Option<&OwnedFd>, timeout: Duration) -> io::Result<()> {
        let writes = if self.tls.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
        let mut all = vec![PollFd::new(&self.socket, PollFlags::IN | writes)];
        all.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)));
        let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut all, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what there is; whether there was something. An error is kept until all messages that
    /// came before it were taken.
    fn fill(&mut self) -> bool {
        let length = self.got.len();
        let any = match self.filled() {
            Ok(any) => any,
            Err(error) => {
                self.failed = Some(error);
                false
            }
        };
        any || self.got.len() > length
    }

    fn filled(&mut self) -> io::Result<bool> {
        let mut any = false;
        for _ in 0..READS {
            match self.tls.read_tls(&mut &self.socket) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => any = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let state = self.tls.process_new_packets();
            let state = state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let plain = state.plaintext_bytes_to_read();
            if plain > 0 {
                let length = self.got.len();
                self.got.resize(length + plain, 0);
                self.tls.reader().read_exact(&mut self.got[length..])?;
            }
        }
        Ok(any)
    }

    /// The next message that has come as a whole.
    fn next(&mut self) -> io::Result<Option<Message>> {
        loop {
            let read = message::read(&self.got[self.taken..]);
            let read = read.map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad))?;
            let Some((message, length)) = read else { break };
            self.taken += length;
            if message.is_some() {
                return Ok(message);
            }
        }
        self.got.drain(..self.taken);
        self.taken = 0;
        if self.got.is_empty() && self.got.capacity() > BATCH {
            self.got = Vec::new();
        }
        Ok(None)
    }
}

#[cfg(test)]
impl Channel {
    /// How many bytes of messages have come that were not taken.
    pub(super) fn plain(&self) -> usize {
        self.got.len()
    }

    /// Why the other side ends the link.
    pub(super) fn last_words(&mut self) -> io::Result<String> {
        let until = Instant::now() + Duration::from_secs(30);
        self.until(until, |channel| {
            Ok(match channel.next()? {
                Some(Message::Bye(why)) => Some(why),
                _ => None,
            })
        })
    }

    /// Sends bytes as they are, in place of messages.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(bytes)?;
        self.flush()
    }
}
