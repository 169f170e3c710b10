//! The supervisor's side of a connection.
//!
//! Output to a client is queued here and sent when its socket takes it. The *first* client (the
//! command that started the program in the foreground) is waited for: while its queue is long,
//! the program's output is not read, as a full pipe would. An attached client is not: beyond
//! [`MOST_QUEUED`] bytes it loses output, and learns how much.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::supervise::protocol::{
    CREDIT, Decoder, Garbled, LIMIT, Message, VERSION, WANT_OUTPUT, encode_output,
};

/// Bytes that may wait for an attached client before output for it is left out.
const MOST_QUEUED: usize = 1024 * 1024;
/// Bytes that may wait for the first client before the program's output is not read on.
const ENOUGH_QUEUED: usize = 128 * 1024;
/// A queue larger than this gives its memory back when it is empty.
const KEPT: usize = 16 * 1024;

/// One connection.
pub(super) struct Client {
    fd: OwnedFd,
    decoder: Decoder,
    queue: VecDeque<u8>,
    /// Started the program in the foreground: see the module.
    pub(super) first: bool,
    /// What it asked for in its greeting; the first client wants everything.
    wants: u8,
    /// Output bytes it missed since the last notice.
    left_out: u64,
    /// Input of it that was not written to the program yet.
    pub(super) pending_input: usize,
    /// Told us that it leaves.
    pub(super) detached: bool,
    /// The connection is over.
    pub(super) gone: bool,
    /// To tell it from others when it is gone.
    pub(super) number: u64,
}

impl Client {
    pub(super) fn new(fd: OwnedFd, number: u64) -> Self {
        Self {
            fd,
            decoder: Decoder::default(),
            queue: VecDeque::new(),
            first: false,
            wants: 0,
            left_out: 0,
            pending_input: 0,
            detached: false,
            gone: false,
            number,
        }
    }

    /// The first client, which is a fork of the same process and needs no greeting to be welcomed.
    /// The program may write at once, and its terminal has to be raw before the first byte is
    /// shown: who sees that byte may answer it with a key.
    pub(super) fn first(fd: OwnedFd, tty: bool, input: bool) -> Self {
        let mut client = Self { first: true, ..Self::new(fd, 0) };
        client.welcome(VERSION, WANT_OUTPUT, tty, input);
        client
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether the program must wait for this client.
    pub(super) fn holds_up(&self) -> bool {
        self.first && self.queue.len() >= ENOUGH_QUEUED
    }

    /// Reads what has come and cuts it into messages; the end of the connection sets `gone`.
    pub(super) fn receive(&mut self) -> Vec<Message> {
        let mut bytes = [0_u8; 4096];
        let mut messages = Vec::new();
        loop {
            match rustix::net::recv(&self.fd, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.gone = true,
                Ok((count, _)) => {
                    self.decoder.feed(&bytes[..count]);
                    self.take_messages(&mut messages);
                    if !self.gone && count == bytes.len() {
                        continue;
                    }
                }
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(_) => self.gone = true,
            }
            return messages;
        }
    }

    fn take_messages(&mut self, messages: &mut Vec<Message>) {
        loop {
            match self.decoder.next() {
                Ok(Some(Message::Input(bytes))) => {
                    self.pending_input += bytes.len();
                    // Beyond its credit: not our client.
                    self.gone |= self.pending_input > CREDIT;
                    messages.push(Message::Input(bytes));
                }
                Ok(Some(message)) => messages.push(message),
                Ok(None) => return,
                Err(Garbled) => {
                    self.gone = true;
                    return;
                }
            }
        }
    }

    /// Answers the greeting.
    pub(super) fn welcome(&mut self, version: u8, wants: u8, tty: bool, input: bool) {
        self.wants = wants;
        self.send(&Message::Welcome { version: VERSION, tty, input });
        if version != VERSION {
            let text = format!("the supervisor speaks version {VERSION}, the client {version}");
            self.send(&Message::Notice(text));
        }
    }

    /// Queues a message and sends what the socket takes.
    pub(super) fn send(&mut self, message: &Message) {
        if !self.gone {
            message.encode(&mut self.queue);
            self.flush();
        }
    }

    /// Queues output, or counts it where the client is too slow.
    pub(super) fn output(&mut self, stream: u8, bytes: &[u8]) {
        if self.gone || self.wants & WANT_OUTPUT == 0 {
            return;
        }
        if !self.first && self.queue.len() + bytes.len() > MOST_QUEUED {
            self.left_out += bytes.len() as u64;
            return;
        }
        for part in bytes.chunks(LIMIT) {
            encode_output(stream, part, &mut self.queue);
        }
        self.flush();
    }

    /// Sends what the socket takes now.
    pub(super) fn flush(&mut self) {
        while !self.queue.is_empty() {
            let (front, _) = self.queue.as_slices();
            match rustix::net::send(&self.fd, front, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.queue.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.gone = true;
                    self.queue.clear();
                }
            }
        }
        if self.queue.capacity() > KEPT {
            self.queue.shrink_to(0);
        }
        if self.left_out > 0 && !self.gone {
            let text = format!("{} bytes of output were left out: reader too slow", self.left_out);
            self.left_out = 0;
            Message::Notice(text).encode(&mut self.queue);
            self.flush();
        }
    }
}
