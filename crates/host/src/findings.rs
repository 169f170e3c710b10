//! The facts as lines for a person.

use serde::{Deserialize, Serialize};

use crate::Host;

/// How a finding bears on running containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Good,
    /// A fact that is neither.
    Note,
    /// Works, but something is lost.
    Warn,
    /// Missing or refused.
    Bad,
}

/// One line of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub name: String,
    /// How it bears on running containers.
    pub level: Level,
    /// What was found.
    pub value: String,
    /// How it was found.
    pub how: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

pub(crate) fn all(_host: &Host) -> Vec<Finding> {
    Vec::new()
}
