//! The group of an image's files, which decides whether an overlay can be made of them.
//!
//! What is changed above an overlay is copied with its group, and of the caller's groups a user
//! namespace maps the one that he has now. Files have another one where the store was filled by a
//! caller with another group (`newgrp`), and where it is below a directory that gives its own group
//! to new files (set-gid), as those of projects do.

use std::os::unix::fs::MetadataExt as _;

use engine::facts::Facts;
use engine::spec::ContainerConfig;
use oci::Digest;

use crate::session::Session;

/// Why a user namespace cannot have an overlay of a container's image; `None` if it can, as far as
/// its layers are unpacked.
pub(super) fn foreign(
    session: &Session,
    config: &ContainerConfig,
    facts: &Facts,
) -> Option<String> {
    if facts.uid == 0 {
        return None;
    }
    let store = session.store().ok()?;
    let is_mapped = |group: u32| {
        let in_range = |(start, count): &(u32, u32)| group.wrapping_sub(*start) < *count;
        group == facts.gid || facts.subgids.iter().any(in_range)
    };
    let group_of = |text: &String| {
        let digest: Digest = text.parse().ok()?;
        Some(std::fs::metadata(store.layers().get(&digest).ok()??.tree()).ok()?.gid())
    };
    let layers = &config.image.as_ref()?.layers;
    let group = layers.iter().filter_map(group_of).find(|group| !is_mapped(*group))?;
    let own = facts.gid;
    Some(format!(
        "the image's files belong to group {group}, and a user namespace maps {own} alone"
    ))
}
