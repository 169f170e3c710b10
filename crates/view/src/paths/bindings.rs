//! The table of bindings: which one a guest path lies in.
//!
//! The table is sorted bytewise, so a binding stands after every binding that contains it. A table has some dozens of entries, or a hundred
//! where a GPU's driver is bound file by file; one pass over it costs a small part of a system call.
//!
//! Whoever makes the table sees to it that the parent of every mount point exists for the guest: where a directory above a mount point is
//! missing and cannot be made, the table gets an empty directory there as a binding of its own.

use crate::world::{Binding, World};

/// What is left of `path` behind the directory `prefix` (empty, or with its leading `/`), comparing whole components. Both are canonical.
pub(crate) fn behind<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    if prefix == b"/" {
        return if path == b"/" { Some(b"") } else { Some(path) };
    }
    let rest = path.strip_prefix(prefix)?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}

/// The binding that a canonical guest path lies in (the longest one), and what follows in it: empty, or with a leading `/`.
pub fn find<'p>(world: &World<'_>, guest: &'p [u8]) -> Option<(usize, &'p [u8])> {
    let mut best: Option<(usize, &[u8])> = None;
    // Most bindings begin with another letter, or end where no component does.
    let letter = guest.get(1);
    let ends = |at: usize| guest.get(at).map_or(at == guest.len(), |byte| *byte == b'/');
    for (index, binding) in world.bindings.iter().enumerate() {
        let own = binding.guest;
        if own.len() > 1 && (own.get(1) != letter || !ends(own.len())) {
            continue;
        }
        // A binding stands behind those that it lies in.
        if let Some(rest) = behind(guest, binding.guest) {
            best = Some((index, rest));
        }
    }
    best
}

/// Whether a canonical guest path is the root of a binding.
pub fn is_mount_point(world: &World<'_>, guest: &[u8]) -> bool {
    world.bindings.binary_search_by(|binding| binding.guest.cmp(guest)).is_ok()
}

/// The bindings below a canonical guest path, itself excluded, with their indexes.
pub fn mounts_beneath<'w>(
    world: &World<'w>,
    guest: &[u8],
) -> impl Iterator<Item = (usize, &'w Binding<'w>)> {
    world.bindings.iter().enumerate().filter(move |(_, binding)| {
        behind(binding.guest, guest).is_some_and(|rest| !rest.is_empty())
    })
}
