//! Recognises the places that engines make for the mounts of every container.
//!
//! Docker has them in a layer between the image and the container's own, which no command shows.
//! Here they are made in the container's own tree where the image has none, and commands leave them
//! out. A place counts only as it was made: empty, with the mode that all of them get. What is
//! mounted there covers it, so a container cannot have made it itself.

use crate::error::Error;
use crate::owners::FileKind;
use crate::union::{Merged, Stack};
use sys::fs::resolve::{join, split};

const DIRECTORIES: [&[u8]; 3] = [b"dev", b"proc", b"sys"];
const FILES: [&[u8]; 3] = [b"etc/hosts", b"etc/hostname", b"etc/resolv.conf"];
/// The directory of the files, made for them.
const ETC: &[u8] = b"etc";

/// True if an entry of a container, which its image does not have, is such a place.
pub(crate) fn is_point(own: &Stack, path: &[u8], merged: &Merged) -> Result<bool, Error> {
    let named = path == ETC || DIRECTORIES.contains(&path);
    let (kind, mode) = match () {
        () if named => (FileKind::Directory, 0o755),
        () if FILES.contains(&path) => (FileKind::File, 0o644),
        () => return Ok(false),
    };
    if merged.kind != kind {
        return Ok(false);
    }
    let (parent, name) = split(path);
    let dir = own.open_dir(merged.tree, parent)?;
    let (facts, _) = own.open(merged.tree, &dir, path, name)?;
    if facts.record.mode != mode || facts.size > 0 {
        return Ok(false);
    }
    if kind == FileKind::File {
        return Ok(true);
    }
    for (name, merged) in own.list(path, &merged.trees)? {
        let path = join(path, &name);
        if !FILES.contains(&&path[..]) || !is_point(own, &path, &merged)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether an image has a path.
pub(crate) fn has(image: &Stack, path: &[u8]) -> Result<bool, Error> {
    let (mut at, mut trees) = (Vec::new(), image.all());
    for name in path.split(|byte| *byte == b'/') {
        let Some(found) = image.list(&at, &trees)?.remove(name) else { return Ok(false) };
        at = join(&at, name);
        trees = found.trees;
    }
    Ok(true)
}
