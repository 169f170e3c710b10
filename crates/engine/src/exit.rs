//! How programs end, and the exit codes for it.
//!
//! The numbers are Docker's and the shell's. They stand here alone: everything else passes on what
//! happened as data ([`Ended`], [`Outcome`], [`Reason`] of an [`Error`](crate::error::Error)), and
//! asks this module for the code where a process ends or a state file is written.
//!
//! | code | meaning | here |
//! |---|---|---|
//! | 0 to 255 | the program's own exit code | [`Ended::Code`] |
//! | 125 | Coracle or the engine failed | [`Reason::Failed`], [`Ended::Unknown`] |
//! | 126 | the program is there and cannot be executed | [`Reason::NotExecutable`] |
//! | 127 | the program is not there | [`Reason::NotFound`] |
//! | 128 + n | signal n ended the program | [`Ended::Signal`] |

use crate::signal::Signal;
use rustix::process::WaitStatus;

/// The exit code of Coracle's own failures.
pub const FAILED: u8 = 125;
/// What the shell adds to the number of the signal that ended a program.
const BY_SIGNAL: i32 = 128;

/// Why a program did not run, as far as its caller can tell by the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A step before the program failed.
    Failed,
    /// The program is there and cannot be executed.
    NotExecutable,
    /// The program is not there.
    NotFound,
}

impl Reason {
    /// The exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Failed => FAILED,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// The kernel does not tell: its exit status was not to be had.
    Unknown,
}

impl Ended {
    /// From a status of `waitpid(2)`; `None` for a process that was only stopped or continued.
    #[must_use]
    pub fn of(status: WaitStatus) -> Option<Self> {
        let code = status.exit_status().map(Self::Code);
        code.or_else(|| status.terminating_signal().map(Self::Signal))
    }

    /// The exit code that stands for it.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => BY_SIGNAL + signal,
            Self::Unknown => i32::from(FAILED),
        }
    }
}

/// How a program ended, as the state of a container keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its exit code, or 128 + signal.
    pub code: i32,
    /// The signal that killed it.
    pub signal: Option<Signal>,
}

impl Outcome {
    /// Of a program whose exit status was not to be had.
    pub(crate) const UNKNOWN: Self = Self { code: FAILED as i32, signal: None };

    pub(crate) fn of(status: WaitStatus) -> Option<Self> {
        let ended = Ended::of(status)?;
        let signal = match ended {
            Ended::Signal(number) => Signal::from_number(number),
            Ended::Code(_) | Ended::Unknown => None,
        };
        Some(Self { code: ended.code(), signal })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_docker_and_the_shell() {
        assert_eq!(Ended::Code(3).code(), 3);
        assert_eq!(Ended::Signal(9).code(), 137);
        assert_eq!(Ended::Unknown.code(), 125);
        let reasons = [Reason::Failed, Reason::NotExecutable, Reason::NotFound];
        assert_eq!(reasons.map(Reason::code), [125, 126, 127]);
    }
}
