//! Decides `access`: whether a thread may read, write or execute a file.

use super::arguments::Arguments;
use super::support::{self, at_flags, find, reach};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use crate::identity::{self, Credentials, Want};
use crate::paths::{self, Intent, Place};
use crate::world::Kind;
use abi::calls::Op;
use linux_raw_sys::general::{
    AT_EACCESS, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG,
};

/// `access` checks the real ids, unless the flags say otherwise.
pub(super) fn access<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<()> {
    let flags = if arguments.op() == Op::Faccessat2 { arguments.flags() } else { 0 };
    let mode = arguments.mode();
    if mode & !7 != 0 || flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let ask = |context: &mut CallContext<'_, N>| {
        if let Some(result) = access_by_index(context, arguments, (mode, flags))? {
            return result;
        }
        let intent = Intent::FOLLOW.with_at_flags(flags).held_or_seen();
        let place = find(context, arguments, 0, intent)?;
        let result = access_place(context, &place, mode);
        place.close(context.backend);
        result
    };
    if flags & AT_EACCESS != 0 {
        return ask(context);
    }
    // The directories on the way are searched as the real user, too.
    Credentials::as_real(context, |context| &mut context.task.creds, ask)
}

/// `access` by the image's index, without the kernel. `None` if that is not possible.
fn access_by_index<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    (mode, flags): (u32, u32),
) -> Result<Option<Result<()>>> {
    let (Some(image), Some(identity)) = (context.world.image, context.world.identity) else {
        return Ok(None);
    };
    let is_read_only = context.world.bindings.first().is_none_or(|root| root.read_only);
    let (dir, address) = arguments.path(0)?;
    if address == 0 || mode & 2 != 0 && is_read_only || image.owner.0 != identity.host_uid {
        return Ok(None);
    }
    context.backend.read_text(address, &mut context.buffers.named[0])?;
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    let Some(found) = paths::record_of(context, dir, 0, follow) else { return Ok(None) };
    let entry = match found {
        Ok(found) => found.entry,
        Err(errno) => return Ok(Some(Err(errno))),
    };
    // It may have an access list.
    if entry.has(abi::index::flags::ATTRIBUTES) {
        return Ok(None);
    }
    let allowed = identity::may(&context.task.creds, &image.truth(&entry), Want(mode));
    Ok(Some(if mode == 0 { Ok(()) } else { allowed }))
}

fn access_place<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    mode: u32,
) -> Result<()> {
    let Some(identity) = context.world.identity else {
        // The type of the file matters only for read-only bindings.
        let file = if place.read_only && mode & 2 != 0 {
            u32::from(support::facts(context, place, 0)?.stx_mode)
        } else {
            0
        };
        return may_use(context, place, file, mode, true);
    };
    let found = support::look(context, &identity, place, 0)?;
    if place.directory && !found.truth.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    if place.kind == Kind::Proc {
        let host = context.buffers.found[0];
        crate::proc::access(context, &host, mode)?;
    }
    let own = found.facts.stx_uid == identity.host_uid;
    let emulated = found.emulates(place.kind);
    if emulated && mode != 0 {
        identity::may(&context.task.creds, &found.truth, Want(mode))?;
    }
    may_use(context, place, found.truth.mode, mode, !(emulated && own))
}

/// The part of `access` that does not depend on emulated owners: read-only bindings, and the
/// kernel's decision about files that do not belong to the caller.
fn may_use<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    file: u32,
    mode: u32,
    ask: bool,
) -> Result<()> {
    let on_disk = matches!(file & S_IFMT, S_IFREG | S_IFDIR | S_IFLNK);
    // Root sets the host name by writing.
    let is_name = place.kind == Kind::HostName && context.world.identity.is_some();
    if place.read_only && mode & 2 != 0 && on_disk && !is_name {
        return Err(Errno::EROFS);
    }
    if ask && (mode != 0 || (place.held.is_none() && !place.seen)) {
        let (dir, path) = reach(context.buffers, place, 0);
        return context.backend.access(dir, path, mode, at_flags(place));
    }
    Ok(())
}
