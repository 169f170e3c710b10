//! How a container is connected with the other members of a network.

use serde::{Deserialize, Serialize};

/// How a container is connected with the other members. Those of different kinds do not reach each
/// other, so a network has members of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// By addresses of the host, which an engine translates.
    #[default]
    Names,
    /// By packets, from a network namespace of its own.
    Packets,
}

impl Kind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Names => "translated addresses",
            Self::Packets => "packets",
        })
    }
}
