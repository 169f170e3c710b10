//! Are we in a container ourselves?

use serde::{Deserialize, Serialize};

use crate::Context;

/// What kind of container we are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum InsideKind {
    /// Docker, or something that looks like it.
    Docker,
    /// Podman.
    Podman,
    /// A Kubernetes pod.
    Kubernetes,
    /// Apptainer or Singularity.
    Apptainer,
    /// LXC.
    Lxc,
    /// systemd-nspawn.
    Nspawn,
    /// Coracle itself.
    Coracle,
    /// The Windows subsystem for Linux: a virtual machine, but it restricts like a container.
    Wsl,
    /// Something else.
    Other,
}

/// The container that we are in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// What kind.
    pub kind: InsideKind,
    /// What gave it away.
    pub how: String,
}

impl Inside {
    pub(crate) fn detect(_context: &Context) -> Option<Inside> {
        None
    }
}
