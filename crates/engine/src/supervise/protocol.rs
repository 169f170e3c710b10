//! Messages between a supervisor and its clients: one byte of kind, four bytes of length
//! (little endian), at most [`LIMIT`] bytes of payload.
//!
//! A client first sends [`Message::Hello`], the supervisor answers [`Message::Welcome`]; the
//! command that started the program gets its `Welcome` unasked, before the program's first output.
//! Standard input is sent on credit: at most [`CREDIT`] bytes that were not acknowledged, so that a
//! program that does not read never keeps a signal or a resize waiting behind its input.
//! The version in both greetings is raised when a message changes its meaning; unknown kinds
//! are errors, because skipping an unknown request would be taken for consent.

use std::collections::VecDeque;

/// Longest payload of one frame, in bytes.
pub(crate) const LIMIT: usize = 64 * 1024;
/// Bytes of input a client may have under way.
pub(crate) const CREDIT: usize = 64 * 1024;
/// What both sides speak.
pub(crate) const VERSION: u8 = 1;

/// `Hello`'s wish for the program's output.
pub(crate) const WANT_OUTPUT: u8 = 1;
/// `Hello`'s wish to send input.
pub(crate) const WANT_INPUT: u8 = 2;

/// One message in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Client: who I am and what I want (`WANT_…`).
    Hello { version: u8, wants: u8 },
    /// Supervisor: whether the program has a terminal, and whether it has an open input.
    Welcome { version: u8, tty: bool, input: bool },
    /// Client: input for the program.
    Input(Vec<u8>),
    /// Client: end of input.
    CloseInput,
    /// Supervisor: so many bytes of input have been taken.
    Taken(u32),
    /// Client: my window has this size (rows, columns).
    Resize(u16, u16),
    /// Client: send the program this signal; `true`: because a user said `kill`.
    Signal(u8, bool),
    /// Client: I leave, let the program run.
    Detach,
    /// Client: my standard output (1) or error (2) is closed; the program may know it.
    Hangup(u8),
    /// Client: stop all processes (job control), go on.
    Suspend,
    /// Client: continue all processes.
    Resume,
    /// Client: end the program: signal, milliseconds until SIGKILL (`u32::MAX`: never).
    Stop { signal: u8, timeout: u32 },
    /// Supervisor: output.
    Output(Vec<u8>),
    /// Supervisor: error output.
    Errors(Vec<u8>),
    /// Supervisor: the program ended for good: code, signal or 0.
    Exit { code: i32, signal: u8 },
    /// Supervisor: something the user should know.
    Notice(String),
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => 1,
            Self::Welcome { .. } => 2,
            Self::Input(_) => 3,
            Self::CloseInput => 4,
            Self::Taken(_) => 5,
            Self::Resize(..) => 6,
            Self::Signal(..) => 7,
            Self::Detach => 8,
            Self::Hangup(_) => 9,
            Self::Suspend => 10,
            Self::Resume => 11,
            Self::Stop { .. } => 12,
            Self::Output(_) => 13,
            Self::Errors(_) => 14,
            Self::Exit { .. } => 15,
            Self::Notice(_) => 16,
        }
    }

    /// Appends the frame.
    pub(crate) fn encode(&self, out: &mut VecDeque<u8>) {
        let numbers: Vec<u8>;
        let payload: &[u8] = match self {
            Self::Input(bytes) | Self::Output(bytes) | Self::Errors(bytes) => bytes,
            Self::Notice(text) => text.as_bytes(),
            other => {
                numbers = other.numbers();
                &numbers
            }
        };
        encode_bytes(self.kind(), payload, out);
    }

    fn numbers(&self) -> Vec<u8> {
        match *self {
            Self::Hello { version, wants } => vec![version, wants],
            Self::Welcome { version, tty, input } => vec![version, tty.into(), input.into()],
            Self::Taken(count) => count.to_le_bytes().to_vec(),
            Self::Resize(rows, columns) => [rows.to_le_bytes(), columns.to_le_bytes()].concat(),
            Self::Signal(number, user) => vec![number, user.into()],
            Self::Hangup(stream) => vec![stream],
            Self::Stop { signal, timeout } => [&[signal][..], &timeout.to_le_bytes()].concat(),
            Self::Exit { code, signal } => [&code.to_le_bytes()[..], &[signal]].concat(),
            _ => Vec::new(),
        }
    }

    fn decode(kind: u8, payload: &[u8]) -> Option<Self> {
        Some(match (kind, payload) {
            (1, &[version, wants, ..]) => Self::Hello { version, wants },
            (2, &[version, tty, input, ..]) => {
                Self::Welcome { version, tty: tty != 0, input: input != 0 }
            }
            (3, bytes) => Self::Input(bytes.to_vec()),
            (4, _) => Self::CloseInput,
            (5, bytes) => Self::Taken(u32::from_le_bytes(bytes.try_into().ok()?)),
            (6, &[a, b, c, d]) => {
                Self::Resize(u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
            }
            (7, &[number, user]) => Self::Signal(number, user != 0),
            (8, _) => Self::Detach,
            (9, &[stream]) => Self::Hangup(stream),
            (10, _) => Self::Suspend,
            (11, _) => Self::Resume,
            (12, &[signal, a, b, c, d]) => {
                Self::Stop { signal, timeout: u32::from_le_bytes([a, b, c, d]) }
            }
            (13, bytes) => Self::Output(bytes.to_vec()),
            (14, bytes) => Self::Errors(bytes.to_vec()),
            (15, &[a, b, c, d, signal]) => {
                Self::Exit { code: i32::from_le_bytes([a, b, c, d]), signal }
            }
            (16, bytes) => Self::Notice(String::from_utf8_lossy(bytes).into_owned()),
            _ => return None,
        })
    }
}

/// Appends an output frame without first making a [`Message`] of it: 1 is output, 2 errors.
pub(crate) fn encode_output(stream: u8, bytes: &[u8], out: &mut VecDeque<u8>) {
    encode_bytes(if stream == 2 { 14 } else { 13 }, bytes, out);
}

fn encode_bytes(kind: u8, payload: &[u8], out: &mut VecDeque<u8>) {
    debug_assert!(payload.len() <= LIMIT);
    out.push_back(kind);
    out.extend((payload.len() as u32).to_le_bytes());
    out.extend(payload);
}

/// Bytes that have come in, cut into messages.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: VecDeque<u8>,
}

/// What came in is not our protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

impl Decoder {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The next whole message, `None` when more bytes are needed.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, Garbled> {
        if self.bytes.len() < 5 {
            return Ok(None);
        }
        let head: Vec<u8> = self.bytes.iter().take(5).copied().collect();
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > LIMIT {
            return Err(Garbled);
        }
        if self.bytes.len() < 5 + length {
            return Ok(None);
        }
        self.bytes.drain(..5);
        let payload: Vec<u8> = self.bytes.drain(..length).collect();
        if self.bytes.is_empty() && self.bytes.capacity() > 4096 {
            self.bytes.shrink_to(0);
        }
        Message::decode(head[0], &payload).map(Some).ok_or(Garbled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Message> {
        vec![
            Message::Hello { version: 1, wants: 3 },
            Message::Welcome { version: 1, tty: true, input: false },
            Message::Input(vec![0, 1, 255]),
            Message::CloseInput,
            Message::Taken(70_000),
            Message::Resize(24, 300),
            Message::Signal(37, true),
            Message::Detach,
            Message::Hangup(2),
            Message::Suspend,
            Message::Resume,
            Message::Stop { signal: 15, timeout: u32::MAX },
            Message::Output(vec![7; LIMIT]),
            Message::Errors(Vec::new()),
            Message::Exit { code: 137, signal: 9 },
            Message::Notice("left out".into()),
        ]
    }

    #[test]
    fn every_message_survives_the_wire_however_it_is_cut() {
        for step in [1, 3, 4096] {
            let mut wire = VecDeque::new();
            for message in samples() {
                message.encode(&mut wire);
            }
            let wire: Vec<u8> = wire.into();
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for part in wire.chunks(step) {
                decoder.feed(part);
                while let Some(message) = decoder.next().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, samples());
        }
    }

    #[test]
    fn what_is_too_long_or_unknown_is_refused() {
        let mut decoder = Decoder::default();
        decoder.feed(&[13, 0, 0, 2, 0]);
        assert_eq!(decoder.next(), Err(Garbled));
        let mut decoder = Decoder::default();
        decoder.feed(&[99, 0, 0, 0, 0]);
        assert_eq!(decoder.next(), Err(Garbled));
    }
}
