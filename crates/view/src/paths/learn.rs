//! Fills the cache of directories ([`super::dir_cache`]) after a path was resolved without it.

use super::dir_cache::{LINK_KEY, in_tree, is_plain_directory, link_key, tree_path};
use super::place::{End, Last, Place};
use crate::CallContext;
use crate::guest::{Backend, Dir, Host};
use crate::identity::{self, Found};
use crate::text::Text;
use crate::world::{Identity, Kind, World};

/// Remembers the directory of a place that was resolved without the cache. `generation` was read
/// before that.
pub(super) fn learn_place<N: Backend>(
    context: &mut CallContext<'_, N>,
    which: usize,
    end: End,
    place: &Place,
    generation: u64,
) {
    if place.at != Dir::Root || place.kind != Kind::Tree || place.last != Last::Name || place.magic
    {
        return;
    }
    let buffers = &mut *context.buffers;
    // For a name that is to be made or removed, the resolver has checked only that no link comes
    // before it.
    let looked = !place.missing && end != End::Name;
    if !looked && !is_there(context.backend, buffers.found[which].as_bytes(), &mut buffers.host) {
        return;
    }
    let Some(binding) = place.binding.and_then(|index| context.world.bindings.get(index)) else {
        return;
    };
    let found = context.buffers.found[which].as_bytes();
    let found = found.strip_suffix(b"/").unwrap_or(found);
    let Some(end) = found.iter().rposition(|byte| *byte == b'/') else { return };
    if end < binding.host.len() {
        // The place is the root of a binding: the directory above it is the host's.
        return;
    }
    learn_directory(context, which, (binding.host.len(), end), generation);
}

/// Remembers the directory of a path that does not exist, because programs ask for many paths that
/// do not exist.
pub(super) fn learn_missing<N: Backend>(
    context: &mut CallContext<'_, N>,
    from: Dir,
    which: usize,
    generation: u64,
) {
    let CallContext { backend, world, task, buffers } = &mut *context;
    let mut named = buffers.named[which].as_bytes();
    if task.root.as_bytes() != b"/" || named.is_empty() {
        return;
    }
    if named[0] != b'/' && from == Dir::Cwd && named.contains(&b'/') {
        if task.entered != 0 || !backend.remembered_cwd(&mut buffers.link) {
            return;
        }
        let Some(here) = in_tree(world, buffers.link.as_bytes()) else { return };
        let put = buffers.position.set_both(here, b"/").and_then(|()| buffers.position.push(named));
        if put.is_err() {
            return;
        }
        named = buffers.position.as_bytes();
    }
    if named[0] != b'/'
        || named[1..].split(|byte| *byte == b'/').any(|name| matches!(name, b"" | b"." | b".."))
    {
        return;
    }
    let Some(slash) = named.iter().rposition(|byte| *byte == b'/') else { return };
    let directory = if slash == 0 { b"/" } else { &named[..slash] };
    let found = &mut buffers.found[which];
    let Some(index) = tree_path(world, directory, found) else { return };
    let (start, end) = (world.bindings[index].host.len(), found.len());
    let strict = backend.has_openat2() && is_plain_directory(*backend, found);
    if end == start || strict {
        learn_directory(context, which, (start, end), generation);
    }
}

/// Remembers the directory of a link that is about to be followed, so that the cache finds the link
/// the next time. Its host path is in `buffers.found`. (The loader of dynamic programs is mostly
/// such a link, in a directory where programs look for nothing else.) `generation` was read before.
pub(super) fn learn_around_link<N: Backend>(
    context: &mut CallContext<'_, N>,
    which: usize,
    binding: Option<usize>,
    generation: u64,
) {
    let CallContext { backend, world, task, buffers } = &mut *context;
    let Some(binding) = binding.and_then(|index| world.bindings.get(index)) else { return };
    let found = buffers.found[which].as_bytes();
    let Some(end) = found.iter().rposition(|byte| *byte == b'/') else { return };
    let start = binding.host.len();
    if binding.kind != Kind::Tree || end < start || !backend.has_openat2() {
        return;
    }
    let everybody = world.identity.is_some() && !task.creds.overrides();
    let is_new = !backend.is_plain(&found[..end], everybody)
        && buffers.host.set(&found[..end]).is_ok()
        && is_plain_directory(*backend, &buffers.host);
    if is_new {
        learn_directory(context, which, (start, end), generation);
    }
}

/// Remembers that a name `N` in the root of the tree is a link to `usr/N`. `path` is its host path.
pub(super) fn learn_link(
    host: &mut impl Host,
    world: &World<'_>,
    binding: Option<usize>,
    (path, target): (&[u8], &[u8]),
    generation: u64,
) {
    let Some(binding) = binding.and_then(|index| world.bindings.get(index)) else { return };
    let (Some(name), Some(merged)) = (path.strip_prefix(binding.host), target.strip_prefix(b"usr"))
    else {
        return;
    };
    if binding.guest != b"/" || binding.kind != Kind::Tree || name != merged {
        return;
    }
    let mut key = [0; LINK_KEY];
    if let Some(key) = link_key(&mut key, binding.host, name) {
        host.set_plain(key, false, generation);
    }
}

/// Returns true if the directory of a name exists, where it is only known that the name does not.
fn is_there(host: &mut impl Host, found: &[u8], text: &mut Text) -> bool {
    let end = found.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    text.set(&found[..end]).is_ok() && is_plain_directory(host, text)
}

/// Remembers the first `end` bytes of `buffers.found`: the path of a directory without links, in a
/// binding whose host path has `start` bytes.
fn learn_directory<N: Backend>(
    context: &mut CallContext<'_, N>,
    which: usize,
    (start, end): (usize, usize),
    generation: u64,
) {
    let searched = context.world.identity.filter(|_| !context.task.creds.overrides());
    let CallContext { backend, buffers, .. } = &mut *context;
    let (found, host) = (buffers.found[which].as_bytes(), &mut buffers.host);
    let directory = &found[..end];
    if let Some(identity) = searched {
        if !everybody_may_search(*backend, &identity, directory, start, host) {
            return;
        }
        backend.set_plain(directory, true, generation);
    } else {
        backend.set_plain(directory, false, generation);
    }
}

/// Returns true if every user may search a directory and those above it, from the root of the
/// binding on.
fn everybody_may_search(
    host: &mut impl Host,
    identity: &Identity,
    directory: &[u8],
    start: usize,
    text: &mut Text,
) -> bool {
    let mut end = start;
    loop {
        if text.set(&directory[..end]).is_err() {
            return false;
        }
        // An access list may refuse some user what everybody else may.
        match identity::look(host, identity, None, Kind::Tree, Dir::Root, text.as_c_str()) {
            Ok(Found { truth, .. })
                if truth.is_directory() && truth.mode & 0o111 == 0o111 && !truth.lists.access => {}
            _ => return false,
        }
        if end >= directory.len() {
            return true;
        }
        let next = directory[end + 1..].iter().position(|byte| *byte == b'/');
        end = next.map_or(directory.len(), |next| end + 1 + next);
    }
}
