//! The result of a trial: it works, it fails with an errno, a reason and an advice, or it was not
//! tried.

use serde::{Deserialize, Serialize};

/// Result of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Trial {
    /// Not tried.
    #[default]
    Untried,
    /// It works.
    Works {
        /// The method.
        how: String,
    },
    /// It does not work.
    Fails {
        /// The method.
        how: String,
        /// The reason, in words.
        why: String,
        /// The error number, if a system call failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<i32>,
        /// Advice for the user or an administrator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        advice: Option<String>,
    },
}

impl Trial {
    /// Makes a success with its method.
    pub fn works(how: impl Into<String>) -> Trial {
        Trial::Works { how: how.into() }
    }

    /// Makes a failure with its method and reason.
    pub fn fails(how: impl Into<String>, why: impl Into<String>) -> Trial {
        Trial::Fails { how: how.into(), why: why.into(), errno: None, advice: None }
    }

    /// Adds the error number.
    #[must_use]
    pub fn with_errno(mut self, code: Option<i32>) -> Trial {
        if let Trial::Fails { errno, .. } = &mut self {
            *errno = code;
        }
        self
    }

    /// Adds an advice.
    #[must_use]
    pub fn with_advice(mut self, text: impl Into<String>) -> Trial {
        if let Trial::Fails { advice, .. } = &mut self {
            *advice = Some(text.into());
        }
        self
    }

    /// Adds an advice if the trial failed and has none.
    #[must_use]
    pub(crate) fn advise(self, text: &str) -> Trial {
        if self.is_fails() && self.advice().is_none() { self.with_advice(text) } else { self }
    }

    /// Returns true if it was tried and worked.
    pub fn is_works(&self) -> bool {
        matches!(self, Trial::Works { .. })
    }

    /// Returns true if it was tried and failed.
    pub fn is_fails(&self) -> bool {
        matches!(self, Trial::Fails { .. })
    }

    /// Returns true if it works or was not tried, so that an attempt is worthwhile.
    pub fn may_work(&self) -> bool {
        !self.is_fails()
    }

    /// The reason of the failure, if it failed.
    pub fn why(&self) -> Option<&str> {
        match self {
            Trial::Fails { why, .. } => Some(why),
            _ => None,
        }
    }

    /// The method, if it was tried.
    pub fn how(&self) -> Option<&str> {
        match self {
            Trial::Fails { how, .. } | Trial::Works { how } => Some(how),
            Trial::Untried => None,
        }
    }

    /// The error number, if a system call failed.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Trial::Fails { errno, .. } => *errno,
            _ => None,
        }
    }

    /// The advice for a failure, if there is one.
    pub fn advice(&self) -> Option<&str> {
        match self {
            Trial::Fails { advice, .. } => advice.as_deref(),
            _ => None,
        }
    }
}
