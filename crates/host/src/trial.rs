//! The outcome of trying something: it works, or it fails with an errno, a reason and an advice, or it was not tried.

use serde::{Deserialize, Serialize};

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Trial {
    /// Nobody tried.
    #[default]
    Untried,
    /// It was done, and it worked.
    Works {
        /// What was done.
        how: String,
    },
    /// It was done, or looked at, and it does not work.
    Fails {
        /// What was done.
        how: String,
        /// Why it did not work, in words.
        why: String,
        /// The kernel's answer, if a system call failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<i32>,
        /// What the user or an administrator can do about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        advice: Option<String>,
    },
}

impl Trial {
    /// It works; `how` it was tried.
    pub fn works(how: impl Into<String>) -> Trial {
        Trial::Works { how: how.into() }
    }

    /// It does not work; `how` it was tried, and `why` it failed.
    pub fn fails(how: impl Into<String>, why: impl Into<String>) -> Trial {
        Trial::Fails { how: how.into(), why: why.into(), errno: None, advice: None }
    }

    /// Adds the kernel's answer.
    #[must_use]
    pub fn with_errno(mut self, code: Option<i32>) -> Trial {
        if let Trial::Fails { errno, .. } = &mut self {
            *errno = code;
        }
        self
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn with_advice(mut self, text: impl Into<String>) -> Trial {
        if let Trial::Fails { advice, .. } = &mut self {
            *advice = Some(text.into());
        }
        self
    }

    /// Adds what to do about it where it failed and nothing better is known.
    #[must_use]
    pub(crate) fn advise(self, text: &str) -> Trial {
        if self.is_fails() && self.advice().is_none() { self.with_advice(text) } else { self }
    }

    /// It was tried and worked.
    pub fn is_works(&self) -> bool {
        matches!(self, Trial::Works { .. })
    }

    /// It was tried and failed.
    pub fn is_fails(&self) -> bool {
        matches!(self, Trial::Fails { .. })
    }

    /// It works, or nobody tried: worth an attempt.
    pub fn may_work(&self) -> bool {
        !self.is_fails()
    }

    /// Why it failed, if it did.
    pub fn why(&self) -> Option<&str> {
        match self {
            Trial::Fails { why, .. } => Some(why),
            _ => None,
        }
    }

    /// How it was tried, if it was.
    pub fn how(&self) -> Option<&str> {
        match self {
            Trial::Fails { how, .. } | Trial::Works { how } => Some(how),
            Trial::Untried => None,
        }
    }

    /// The errno it failed with, if a system call said so.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Trial::Fails { errno, .. } => *errno,
            _ => None,
        }
    }

    /// What to do about the failure, if something is known.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Trial::Fails { advice, .. } => advice.as_deref(),
            _ => None,
        }
    }
}
