//! What containers of a batch system have that those of other services have not.

use super::{Site, pair};
use crate::parts::Part;
use crate::spec::BatchKind;

impl Site {
    /// The path of the directory with a batch system's configuration.
    pub(crate) fn batch(&self, kind: BatchKind) -> String {
        format!("{}/{}", self.kept, kind.word())
    }
}

/// Options of `run`.
pub(super) fn options(site: &Site, kind: BatchKind, part: Part, own: &Own) -> Vec<String> {
    let directory = site.batch(kind);
    let mut words = pair("-v", &format!("{directory}:{}:ro", own.configuration)).to_vec();
    words.extend(own.variables.iter().flat_map(|variable| pair("-e", variable)));
    // A batch system that does not run as root knows its own user alone: MUNGE by the id that the
    // kernel has, Grid Engine by the name. Name and home are the host's.
    words.extend(pair("--user", &site.user));
    words.push("--hostauth".to_owned());
    let kept = match part {
        Part::Control => Some("control"),
        Part::Front => Some("front"),
        Part::Compute => None,
    };
    let state = |part: &&str| pair("-v", &format!("{directory}-{part}:{}", own.state));
    words.extend(kept.iter().flat_map(state));
    words.extend(own.mounts.iter().flat_map(|mount| pair("-v", mount)));
    // What the image starts by itself is not what is wanted here.
    words.extend(pair("--entrypoint", "/bin/sh"));
    words
}

/// What differs from one batch system to the other.
pub(super) struct Own {
    /// Where its configuration is in the containers, and what a container keeps.
    pub(super) configuration: &'static str,
    pub(super) state: &'static str,
    /// Variables of all of them.
    pub(super) variables: Vec<String>,
    /// More mounts.
    pub(super) mounts: Vec<String>,
}
