//! Control groups: which version is mounted, where we are in it, and whether the subtree is ours to change.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Trial;

/// How control groups are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupLayout {
    /// Not mounted, or not looked at.
    #[default]
    None,
    /// Version 1 only.
    V1,
    /// Version 2 only.
    V2,
    /// Version 1 with the controllers, and a version 2 tree beside it.
    Hybrid,
}

/// Control groups from the caller's point of view.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroup {
    /// What is mounted.
    pub layout: CgroupLayout,
    /// Where the version 2 tree is mounted.
    pub mount: Option<PathBuf>,
    /// Our own group in the version 2 tree, as a directory.
    pub own: Option<PathBuf>,
    /// The group under which we may make groups and move processes: our own or one above it.
    pub delegated: Option<PathBuf>,
    /// Whether a group was really made there.
    pub delegation: Trial,
    /// Controllers of the delegated group (`cpu`, `memory`, `pids`, ...), or of our own where nothing is delegated.
    pub controllers: Vec<String>,
    /// `systemd-run --user` has a session manager to talk to.
    pub systemd_user: Trial,
}

impl Cgroup {
    pub(crate) fn probe(_context: &crate::Context, _programs: &crate::Programs) -> Cgroup {
        Cgroup::default()
    }
}
