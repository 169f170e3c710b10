//! Overlay mounts in a user namespace, on the store's file system.

use serde::{Deserialize, Serialize};

use crate::Trial;

/// What of overlay works.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Overlay {
    /// The kernel's own, mounted in a user namespace with `userxattr` (5.11), a file changed and one deleted in it.
    pub kernel: Trial,
    /// `mknod c 0 0`, the whiteout, by an unprivileged user (5.8).
    pub whiteout: Trial,
    /// The option `volatile` (5.10), which spares the sync of the whole file system at the last unmount.
    pub volatile: Trial,
    /// `fuse-overlayfs`: the program, and `/dev/fuse` that can be opened.
    pub fuse: Trial,
}

impl Overlay {
    pub(crate) fn probe(
        _context: &crate::Context,
        _namespaces: &crate::Namespaces,
        _programs: &crate::Programs,
    ) -> Overlay {
        Overlay::default()
    }
}
