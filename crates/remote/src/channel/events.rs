//! What a driver is told of a program.

use super::error::Why;
use crate::wire::messages::Ended;

/// Which of a program's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
}

/// What is told of a program. After one that is not [`Event::Output`] comes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It has written.
    Output(Stream, Vec<u8>),
    /// It has ended, and all its output was told.
    Ended(Ended),
    /// It was not started; the reason.
    Failed(String),
    /// The node is lost. Whether it has ended is not known.
    Lost(Why),
}
