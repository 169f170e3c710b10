//! What the user reads when something did not work: the fact, its causes, and a hint; and the exit
//! status.
//!
//! Exit codes are Docker's. For commands that run a program (`run`, `create`, `exec`): 125 Coracle
//! failed, 126 the program cannot be executed, 127 it was not found, 128+n it died by signal n. All
//! others fail with 1. A wrong option is 125 for every command, a wrong number of operands 1. They
//! are decided here alone ([`status_of`], [`Report::of_plain_command`]).

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};

/// The status that a command ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(pub u8);

impl Exit {
    /// All went well.
    pub(crate) const OK: Self = Self(0);
    /// Coracle itself failed.
    pub(crate) const FAILED: Self = Self(125);
    /// A command failed that runs no program.
    pub(crate) const PLAIN: Self = Self(1);
}

/// Why a command could not do what it was asked.
#[derive(Debug)]
pub(crate) struct Report {
    fact: String,
    causes: Vec<String>,
    hint: Option<String>,
    exit: Exit,
}

impl Report {
    /// A report with exit status 125.
    pub(crate) fn new(fact: impl Into<String>) -> Self {
        Self { fact: fact.into(), causes: Vec::new(), hint: None, exit: Exit::FAILED }
    }

    /// A mistake on the command line.
    pub(crate) fn usage(fact: impl Into<String>) -> Self {
        Self::new(fact)
    }

    /// Adds a cause and all that caused it.
    pub(crate) fn cause(mut self, error: impl std::error::Error) -> Self {
        self.chain(&error);
        self
    }

    /// Adds a cause in words.
    pub(crate) fn because(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    /// Says what to do about it; the first hint given stands.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert(hint.into());
        self
    }

    /// Says what to do about it, where somebody knows.
    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = self.hint.or(hint);
        self
    }

    /// Another exit status than 125.
    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// The words on the command line name nothing, or are too many or too few.
    pub(crate) fn wrong_words(fact: impl Into<String>) -> Self {
        Self::new(fact).exit(Exit::PLAIN)
    }

    /// The same failure of a command that runs no program, whose status cannot be mistaken for a
    /// program's.
    pub(crate) fn of_plain_command(self) -> Self {
        match self.exit {
            Exit(125..=127) => self.exit(Exit::PLAIN),
            _ => self,
        }
    }

    /// A report of a library error.
    pub(crate) fn of(error: &(dyn std::error::Error + 'static), hint: Option<String>) -> Self {
        let mut report = Self::new(error.to_string()).maybe_hint(hint);
        if let Some(source) = error.source() {
            report.chain(source);
        }
        report
    }

    fn chain(&mut self, error: &dyn std::error::Error) {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            let last = self.causes.last().unwrap_or(&self.fact);
            if !text.is_empty() && !last.contains(&text) {
                self.causes.push(text);
            }
            next = error.source();
        }
    }

    /// The exit status.
    pub(crate) fn status(&self) -> Exit {
        self.exit
    }

    /// Writes to standard error, in colour where that is a terminal and `NO_COLOR` is not set.
    pub(crate) fn show(&self) {
        use anstream::stream::IsTerminal as _;
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = io::stderr().is_terminal() && !plain;
        let (red, dim, off) =
            if colour { ("\x1b[1;31m", "\x1b[36m", "\x1b[0m") } else { ("", "", "") };
        let mut text = format!("{red}error:{off} {}\n", indent(&self.fact));
        for cause in &self.causes {
            let _ = writeln!(text, "  {dim}cause:{off} {}", indent(cause));
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(text, "  {dim}hint:{off} {}", indent(hint));
        }
        // Nothing is left to be told if standard error is closed.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Later lines of a text stand below its first, and control characters of foreign origin stay
/// harmless.
fn indent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        match c {
            '\n' => out.push_str("\n         "),
            c if c.is_control() && c != '\t' => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact)?;
        self.causes.iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

/// The one place where a failure of the core becomes an exit status.
fn status_of(error: &containers::Error) -> Exit {
    use containers::Error;
    match error.innermost() {
        // The program's own failures: 126 and 127.
        Error::Engine(error) => Exit(error.exit_code()),
        Error::Supervise(error) => Exit(error.exit_code()),
        // What is protected stays, as it was asked for earlier.
        Error::Denied(_) => Exit(1),
        // As a program that Ctrl-C ends.
        Error::Cancelled(_) => Exit(130),
        _ => Exit::FAILED,
    }
}

impl From<containers::Error> for Report {
    fn from(error: containers::Error) -> Self {
        Self {
            fact: error.fact(),
            causes: error.causes(),
            hint: error.hint(),
            exit: status_of(&error),
        }
    }
}

macro_rules! from_library {
    ($($error:ty),+ $(,)?) => {$(
        impl From<$error> for Report {
            fn from(error: $error) -> Self {
                containers::Error::from(error).into()
            }
        }
    )+};
}

from_library!(
    containers::config::Error,
    engine::Error,
    engine::supervise::Error,
    oci::Error,
    registry::Error,
    store::Error,
    rootfs::Error
);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open /x: {source}")]
    struct Repeats {
        source: io::Error,
    }

    #[test]
    fn causes_that_repeat_are_left_out() {
        let report = Report::of(&Repeats { source: io::Error::other("no luck") }, None);
        assert_eq!(report.to_string(), "cannot open /x: no luck");
        let report = report.because("more");
        assert_eq!(report.to_string(), "cannot open /x: no luck: more");
        assert_eq!(report.status(), Exit::FAILED);
    }
}
