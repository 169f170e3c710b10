//! Finds owner and mode of the directory that contains a name, and opens it to its owner.

use super::files::{self, Found};
use super::record::{Lists, Truth};
use super::{lists, rules};
use crate::CallContext;
use crate::errno::Result;
use crate::guest::{Backend, Dir, Host};
use crate::paths::Place;
use crate::text::Text;
use crate::world::{Identity, Kind};
use core::ffi::CStr;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};

/// The directory that contains the name at `buffers.found[which]`. For a mount point this may be a
/// directory of another binding, but rules never make or remove a mount point.
pub fn look_parent<N: Backend>(
    context: &mut CallContext<'_, N>,
    identity: &Identity,
    place: &Place,
    which: usize,
) -> Result<Found> {
    parent_of(&context.buffers.found[which], &mut context.buffers.host)?;
    let path = context.buffers.host.as_c_str();
    let who = Some(&context.task.creds);
    files::look(context.backend, identity, who, place.kind, place.at, path)
}

/// Mode and lists of a file that is to be made in a directory that [`look_parent`] has found.
pub fn limited_by_parent<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    parent: &Found,
    mode: u32,
) -> Result<(u32, Lists)> {
    let at = (place.at, context.buffers.host.as_c_str(), &parent.facts);
    lists::limited(context.backend, at, &parent.truth, mode, context.task.umask)
}

/// Writes the lists of a new file: [`lists::inherit`]. Costs nothing if it has none.
pub fn inherit_lists<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    which: usize,
    new: &Truth,
) -> Result<()> {
    if !new.lists.access && !new.lists.default {
        return Ok(());
    }
    parent_of(&context.buffers.found[which], &mut context.buffers.host)?;
    let buffers = &*context.buffers;
    let (parent, path) = (buffers.host.as_c_str(), buffers.found[which].as_c_str());
    let mut facts = files::NO_FACTS;
    let flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
    context.backend.statx(place.at, parent, flags, &mut facts)?;
    lists::inherit(context.backend, (place.at, parent, &facts), (place.at, path), new)
}

/// Lets the host's caller change the names in a directory of its own, if the mode on disk forbids
/// that and the guest may do it (its root may). As everywhere, the owner's bits are set on disk
/// from then on, and a record keeps the mode that the guest sees. A mode that is changed for one
/// call only would disturb other processes, and would stay if the process were killed. Returns true
/// if something was changed.
pub fn open_to_owner(
    host: &mut impl Host,
    identity: &Identity,
    kind: Kind,
    at: (Dir, &CStr),
    found: &Found,
) -> Result<bool> {
    const CHANGE: u32 = 0o300;
    let closed = u32::from(found.facts.stx_mode) & CHANGE != CHANGE;
    let kept = matches!(kind, Kind::Tree | Kind::Host);
    if !closed || !kept || !found.truth.is_directory() || found.facts.stx_uid != identity.host_uid {
        return Ok(false);
    }
    match kind {
        // There the mode on disk would be the guest's.
        Kind::Host => files::mark(host, kind, at, found, &found.truth)?,
        _ => files::set_truth(host, identity, kind, at, found, &found.truth)?,
    }
    Ok(true)
}

/// [`open_to_owner`] for the directory that contains a name.
pub fn open_parent<N: Backend>(
    context: &mut CallContext<'_, N>,
    identity: &Identity,
    place: &Place,
    which: usize,
) -> Result<bool> {
    let parent = look_parent(context, identity, place, which)?;
    rules::may_create(&context.task.creds, &parent.truth)?;
    let at = (place.at, context.buffers.host.as_c_str());
    open_to_owner(context.backend, identity, place.kind, at, &parent)
}

/// Puts the directory part of a host path into `parent`. It is empty for a single name, which is in
/// the directory where the path starts.
fn parent_of(path: &Text, parent: &mut Text) -> Result<()> {
    let mut bytes = path.as_bytes();
    while let [rest @ .., b'/'] = bytes {
        bytes = rest;
    }
    match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(0) => parent.set(b"/"),
        Some(end) => parent.set(&bytes[..end]),
        None if path.as_bytes().first() == Some(&b'/') => parent.set(b"/"),
        None => {
            parent.clear();
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::text;

    #[test]
    fn parents() {
        for (path, parent) in
            [("/a/b", "/a"), ("/a/b/", "/a"), ("/a", "/"), ("/", "/"), ("a", ""), ("a/b//", "a")]
        {
            let mut into = Text::EMPTY;
            parent_of(&text(path), &mut into).unwrap();
            assert_eq!(into, text(parent), "{path}");
        }
    }
}
