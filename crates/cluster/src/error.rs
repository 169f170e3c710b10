//! The error of this crate: a fact, what caused it, and what can be done.

use std::fmt;

/// Result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something about a cluster did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    fact: String,
    excerpt: Option<String>,
    hint: Option<String>,
}

impl Error {
    /// An error in one sentence without a full stop.
    pub fn new(fact: impl Into<String>) -> Self {
        Self { fact: fact.into(), excerpt: None, hint: None }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Shows the part of the file where it is.
    #[must_use]
    pub(crate) fn with_excerpt(mut self, excerpt: String) -> Self {
        self.excerpt = Some(excerpt);
        self
    }

    /// What can be done, where that is known.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fact)?;
        self.excerpt.as_ref().map_or(Ok(()), |excerpt| write!(f, "\n{excerpt}"))
    }
}

impl std::error::Error for Error {}

impl From<containers::Error> for Error {
    fn from(error: containers::Error) -> Self {
        let facts: Vec<String> = std::iter::once(error.fact()).chain(error.causes()).collect();
        Self { fact: facts.join(": "), excerpt: None, hint: error.hint() }
    }
}

impl From<remote::channel::Error> for Error {
    fn from(error: remote::channel::Error) -> Self {
        let hint = error.hint();
        let mut fact = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(source) = cause {
            let text = source.to_string();
            if !fact.contains(&text) {
                fact = format!("{fact}: {text}");
            }
            cause = source.source();
        }
        Self { fact, excerpt: None, hint }
    }
}
