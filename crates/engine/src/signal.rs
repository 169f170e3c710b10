//! Signal names and numbers, as `kill -l`, Docker and POSIX write them.
//!
//! Numbers are those of x86-64 and aarch64, which are the same. Real-time signals count from
//! glibc's `SIGRTMIN` (34): the kernel's 32 and 33 belong to the C library.

use std::fmt;
use std::str::FromStr;

/// Names of 1..=31, without `SIG`.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
const ALIASES: [(&str, i32); 4] = [("CLD", 17), ("POLL", 29), ("IOT", 6), ("UNUSED", 31)];
const RTMIN: i32 = 34;
const RTMAX: i32 = 64;

/// A signal's number, 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

impl Signal {
    /// Hang-up: the terminal went away.
    pub const HUP: Self = Self(1);
    /// Ctrl-C.
    pub const INT: Self = Self(2);
    /// Ctrl-\.
    pub const QUIT: Self = Self(3);
    /// Cannot be caught.
    pub const KILL: Self = Self(9);
    /// Written to a pipe without reader.
    pub const PIPE: Self = Self(13);
    /// Polite request to end.
    pub const TERM: Self = Self(15);
    /// A child changed state.
    pub const CHLD: Self = Self(17);
    /// Go on after a stop.
    pub const CONT: Self = Self(18);
    /// Stop; cannot be caught.
    pub const STOP: Self = Self(19);
    /// Ctrl-Z.
    pub const TSTP: Self = Self(20);
    /// The window changed its size.
    pub const WINCH: Self = Self(28);

    /// The signal with this number, `None` outside 1..=64.
    pub fn from_number(number: i32) -> Option<Self> {
        (1..=RTMAX).contains(&number).then_some(Self(number))
    }

    /// Its number.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// Those that a supervisor passes on: all that a process can catch and that tell about the
    /// container, not about the supervisor itself (its children, its pipes, its faults).
    pub fn forwardable() -> impl Iterator<Item = Self> {
        const OWN: [i32; 13] = [4, 5, 7, 8, 9, 11, 13, 17, 19, 21, 22, 23, 31];
        (1..=RTMAX).filter(|n| !OWN.contains(n) && !(32..RTMIN).contains(n)).map(Self)
    }
}

impl fmt::Display for Signal {
    /// `SIGTERM`, `SIGRTMIN+3`, `SIG32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match usize::try_from(self.0 - 1).ok().and_then(|at| NAMES.get(at)) {
            Some(name) => write!(f, "SIG{name}"),
            None if self.0 == RTMIN => f.write_str("SIGRTMIN"),
            None if self.0 == RTMAX => f.write_str("SIGRTMAX"),
            None if self.0 > RTMIN => write!(f, "SIGRTMIN+{}", self.0 - RTMIN),
            None => write!(f, "SIG{}", self.0),
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that names no signal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a signal (a name such as TERM or SIGUSR1, RTMIN+n, or a number from 1 to 64)"
)]
pub struct UnknownSignal(pub String);

impl FromStr for Signal {
    type Err = UnknownSignal;

    fn from_str(text: &str) -> Result<Self, UnknownSignal> {
        let unknown = || UnknownSignal(text.to_owned());
        if let Ok(number) = text.parse::<i32>() {
            return Self::from_number(number).ok_or_else(unknown);
        }
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some(at) = NAMES.iter().position(|&known| known == name) {
            return Ok(Self(at as i32 + 1));
        }
        if let Some(&(_, number)) = ALIASES.iter().find(|(alias, _)| *alias == name) {
            return Ok(Self(number));
        }
        let number = if let Some(rest) = name.strip_prefix("RTMIN") {
            offset(rest, '+').map(|plus| RTMIN + plus)
        } else if let Some(rest) = name.strip_prefix("RTMAX") {
            offset(rest, '-').map(|minus| RTMAX - minus)
        } else {
            None
        };
        number.filter(|n| (RTMIN..=RTMAX).contains(n)).map(Self).ok_or_else(unknown)
    }
}

/// `""` is 0, `"+3"` is 3 where `sign` is `+`.
fn offset(text: &str, sign: char) -> Option<i32> {
    if text.is_empty() {
        return Some(0);
    }
    text.strip_prefix(sign)?.parse().ok().filter(|n| (0..=30).contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_survives_its_own_name() {
        for number in (1..=31).chain(RTMIN..=RTMAX) {
            let signal = Signal::from_number(number).unwrap();
            assert_eq!(signal.to_string().parse(), Ok(signal));
        }
    }

    #[test]
    fn names_are_read_as_docker_reads_them() {
        let number = |text: &str| text.parse::<Signal>().map(Signal::number).ok();
        assert_eq!(number("TERM"), Some(15));
        assert_eq!(number("sigterm"), Some(15));
        assert_eq!(number("9"), Some(9));
        assert_eq!(number("RTMIN+3"), Some(37));
        assert_eq!(number("SIGRTMAX-1"), Some(63));
        assert_eq!(number("SIGRTMIN"), Some(34));
        for bad in ["", "0", "65", "-1", "SIG", "RTMIN+31", "RTMAX-31", "RTMIN-1", "FOO"] {
            assert_eq!(number(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_concerns_only_the_supervisor_is_not_forwarded() {
        let all: Vec<_> = Signal::forwardable().collect();
        for wanted in [Signal::HUP, Signal::INT, Signal::TERM, Signal::WINCH, Signal::CONT] {
            assert!(all.contains(&wanted));
        }
        for own in [Signal::KILL, Signal::STOP, Signal::CHLD, Signal::PIPE] {
            assert!(!all.contains(&own));
        }
    }
}
