//! Looks up bindings: which one contains a guest path, which ones lie below it.
//!
//! The table is sorted bytewise, so a binding comes after every binding that contains it. A table
//! has some dozens of entries, or about a hundred if a GPU driver is bound file by file. One pass
//! over it costs a small part of a system call.
//!
//! The code that makes the table ensures that the parent of every mount point exists for the guest:
//! if a directory above a mount point is missing and cannot be made, the table gets a binding of an
//! empty directory there.

use crate::CallContext;
use crate::buffers::Layer;
use crate::guest::{Backend, Dir};
use crate::identity::NO_FACTS;
use crate::world::{Binding, World};
use linux_raw_sys::general::AT_EMPTY_PATH;

/// The part of `path` behind the directory `prefix`: empty, or with its leading `/`. Compares whole
/// components. Both paths are canonical.
pub(crate) fn behind<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    if prefix == b"/" {
        return if path == b"/" { Some(b"") } else { Some(path) };
    }
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}

/// The binding that contains a canonical guest path (the longest one), and the part of the path
/// inside it: empty, or with a leading `/`.
pub fn find<'p>(world: &World<'_>, guest: &'p [u8]) -> Option<(usize, &'p [u8])> {
    let mut best: Option<(usize, &[u8])> = None;
    // Skip quickly: most bindings begin with another letter, or end where no component does.
    let letter = guest.get(1);
    let ends = |at: usize| guest.get(at).map_or(at == guest.len(), |byte| *byte == b'/');
    for (index, binding) in world.bindings.iter().enumerate() {
        let own = binding.guest;
        if own.len() > 1 && (own.get(1) != letter || !ends(own.len())) {
            continue;
        }
        // A later match is longer: a binding comes after those that contain it.
        if let Some(rest) = behind(guest, binding.guest) {
            best = Some((index, rest));
        }
    }
    best
}

/// Returns true if a directory may be one of the container's tree, and that has two layers
/// ([`World::image`]): then the kernel, which sees one of them, must not resolve names in it.
pub(crate) fn may_have_layers<N: Backend>(context: &mut CallContext<'_, N>, dir: Dir) -> bool {
    let CallContext { backend, world, buffers, .. } = context;
    let Some(image) = world.image else { return false };
    if dir == Dir::Cwd && backend.remembered_cwd(&mut buffers.link) {
        let path = image.in_upper(buffers.link.as_bytes());
        return path.is_some_and(|path| !image.is_own(path));
    }
    if buffers.layer == Some((dir, Layer::One)) {
        return false;
    }
    let mut facts = NO_FACTS;
    backend.statx(dir, c"", AT_EMPTY_PATH, &mut facts).is_err() || image.may_be_layered(&facts)
}

/// Returns true if a canonical guest path is the root of a binding.
pub fn is_mount_point(world: &World<'_>, guest: &[u8]) -> bool {
    world.bindings.binary_search_by(|binding| binding.guest.cmp(guest)).is_ok()
}

/// The bindings below a canonical guest path, without one at the path itself, with their indexes.
pub fn mounts_beneath<'w>(
    world: &World<'w>,
    guest: &[u8],
) -> impl Iterator<Item = (usize, &'w Binding<'w>)> {
    world.bindings.iter().enumerate().filter(move |(_, binding)| {
        behind(binding.guest, guest).is_some_and(|rest| !rest.is_empty())
    })
}
