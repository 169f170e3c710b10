//! The stream between the driver and a node's agent: what is on it, without reading or writing it.
//!
//! Both directions are the standard input and output of the program that the launcher (`ssh`,
//! `srun`) starts. A login shell may print before that program does, so the agent's side begins
//! with a line that nothing else prints ([`MAGIC`]); [`preamble`] finds it. From there on both
//! sides send frames ([`frames`]): length, [`Kind`], number, payload. The number tells what the
//! driver has started apart; the driver chooses it, and it is 0 where nothing is meant.
//!
//! Payloads of bytes (input, output, pieces of files) are raw; [`messages`] has the others. The
//! first frame of the driver is [`messages::Hello`], the first of the agent [`messages::Facts`], or
//! [`Kind::Refused`] if it speaks another [`VERSION`].
//!
//! **Credit.** Who sends bytes for a number sends at most [`WINDOW`] more than the other side has
//! taken; [`Kind::Credit`] says how many it has taken since. So one program whose output nobody
//! reads, or that does not read its input, fills no queue that others need.

pub mod frames;
pub mod messages;
pub mod preamble;

#[cfg(test)]
mod tests;

/// The line that comes before the agent's first frame, without its end.
pub const MAGIC: &str = "coracle agent stream";

/// Version of the messages. Both sides must have the same: the binary travels with its driver.
pub const VERSION: u32 = 2;

/// Longest frame after its length field, in bytes.
pub const LONGEST: usize = 1 << 20;

/// Bytes that may be under way for one number and direction.
pub const WINDOW: usize = 256 << 10;

/// The most bytes of a payload that is a piece of a larger whole.
pub const PIECE: usize = 32 << 10;

/// A store on a node needs so many bytes at least: one without images.
pub const ROOM: u64 = 64 << 20;

/// The driver sends a ping so often.
pub const PING: std::time::Duration = std::time::Duration::from_secs(5);

/// A side that hears nothing for so long takes the stream for lost.
pub const SILENCE: std::time::Duration = std::time::Duration::from_secs(15);

/// Meaning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// To the agent: [`messages::Hello`].
    Hello = 1,
    /// To the agent: [`messages::Start`].
    Start = 2,
    /// To the agent: bytes for a program's standard input.
    Input = 3,
    /// To the agent: a program's standard input ends.
    CloseInput = 4,
    /// To the agent: the signal's number, for all processes of a program's group.
    Signal = 5,
    /// To the agent: [`messages::Put`].
    Put = 6,
    /// To the agent: a piece of the file.
    PutData = 7,
    /// To the agent: the file is complete.
    PutEnd = 8,
    /// To the agent: the path of a file that it is to send.
    Get = 9,
    /// To the agent: the command that cleans up if the driver is lost, as the words of a
    /// [`messages::Start`]. Replaces one that was told before; without words there is none.
    AtEnd = 10,
    /// To the agent: answer with [`Kind::Pong`].
    Ping = 11,
    /// To the agent: the driver leaves on purpose; nothing is to be cleaned up.
    Bye = 12,
    /// To both: so many bytes were taken, as `u32`.
    Credit = 13,
    /// To the driver: [`messages::Facts`].
    Facts = 33,
    /// To the driver: bytes of a program's standard output.
    Output = 34,
    /// To the driver: bytes of a program's standard error.
    Errors = 35,
    /// To the driver: [`messages::Ended`]. The number is free again.
    Ended = 36,
    /// To the driver: what was asked for is done. The number is free again.
    Done = 37,
    /// To the driver: [`messages::Refused`]. The number is free again.
    Refused = 38,
    /// To the driver: a piece of a file.
    Data = 39,
    /// To the driver: the answer to [`Kind::Ping`].
    Pong = 40,
}

impl Kind {
    /// All kinds.
    const ALL: [Self; 21] = [
        Self::Hello,
        Self::Start,
        Self::Input,
        Self::CloseInput,
        Self::Signal,
        Self::Put,
        Self::PutData,
        Self::PutEnd,
        Self::Get,
        Self::AtEnd,
        Self::Ping,
        Self::Bye,
        Self::Credit,
        Self::Facts,
        Self::Output,
        Self::Errors,
        Self::Ended,
        Self::Done,
        Self::Refused,
        Self::Data,
        Self::Pong,
    ];

    /// The kind with this number.
    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// What is wrong with a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A frame that is longer than any may be, or shorter than its head.
    #[error("a frame of {0} bytes, which no agent of this version sends")]
    Length(usize),
    /// A kind that this version does not know.
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    /// A payload that is not what its kind says.
    #[error("a frame of the kind {kind:?} that cannot be read: {why}")]
    Payload {
        /// The kind.
        kind: Kind,
        /// What is wrong with it.
        why: String,
    },
    /// The other side speaks another version.
    #[error("the agent speaks version {agent} of the protocol, the driver version {driver}")]
    Version {
        /// The agent's.
        agent: u32,
        /// The driver's.
        driver: u32,
    },
    /// A frame that cannot come now.
    #[error("a frame of the kind {0:?}, which is not expected here")]
    Unexpected(Kind),
    /// More bytes than there was credit for.
    #[error("more bytes for number {0} than were allowed")]
    Credit(u32),
}

impl Error {
    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Version { .. } => Some(
                "an agent of another release answers: let the driver bring its own binary, or \
                 install the same release on the node"
                    .into(),
            ),
            _ => Some("something else than the agent writes to the stream, or it was cut".into()),
        }
    }
}
