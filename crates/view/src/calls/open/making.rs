//! Makes new files: the view makes those that need a record, the guest's own call all others.

use super::Request;
use super::layers::is_hidden;
use crate::CallContext;
use crate::calls::arguments::{Arguments, open_bits};
use crate::calls::names::{bits_of_new, in_directory, record_new, unless_taken};
use crate::calls::support::{emulated, find, on_place, unless_no_directory};
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Host, HostFd};
use crate::identity::{self, Found, Lists, Truth, limited_by_parent, look_parent, rules};
use crate::paths::{Intent, Last, Place};
use crate::task::Task;
use crate::verdict::{After, Call, Verdict};
use crate::world::{Identity, Kind};
use abi::calls::Op;
use core::ffi::CStr;
use linux_raw_sys::general::{O_DIRECTORY, O_PATH, S_IFREG};

/// Makes a new file. `None` if another process was first.
pub(super) fn make<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    request: &mut Request,
    place: &Place,
) -> Result<Option<Verdict>> {
    if place.last != Last::Name || place.mount_point {
        let errno = if request.flags.exclusive() { Errno::EEXIST } else { Errno::EISDIR };
        return Err(unless_no_directory(context, place, 0, errno));
    }
    if place.directory {
        return Err(unless_no_directory(context, place, 0, Errno::EISDIR));
    }
    let new = match allowed_to_make(context, request, place) {
        Ok(new) => new,
        Err(errno) if request.flags.exclusive() => {
            return Err(unless_taken(context, place, 0, errno));
        }
        Err(errno) => return Err(errno),
    };
    let place = &Place { missing: true, ..*place };
    if new.is_some_and(|(_, recorded)| recorded) || is_hidden(context, place)? {
        return make_first(context, arguments, request, place, new.map(|(new, _)| new));
    }
    on_place(context, arguments, place, 0, After::Nothing).map(Some)
}

/// Makes a file, and has it opened as one that exists. `None` if another process was first.
fn make_first<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    request: &mut Request,
    place: &Place,
    new: Option<Truth>,
) -> Result<Option<Verdict>> {
    let bits = bits_of_new(context, place, request.mode, new.as_ref());
    let made = in_directory(context, &[(place, 0)], |context| {
        context.backend.mknod(place.at, context.buffers.found[0].as_c_str(), S_IFREG | bits)
    });
    match made {
        Err(Errno::EEXIST) if !request.flags.exclusive() => return Ok(None),
        made => made?,
    }
    record_new(context, place, 0, new.as_ref())?;
    request.flags.raw &= !(open_bits::CREAT | open_bits::EXCL);
    request.mode = 0;
    let mut call = *arguments.call;
    if let Some((_, at)) = arguments.path_position(0)
        && matches!(arguments.op(), Op::Open | Op::Openat)
    {
        call.arguments[at + 1] = u64::from(request.flags.raw);
    }
    let arguments = Arguments::of(&call).ok_or(Errno::ENOSYS)?;
    match on_place(context, &arguments, &Place { missing: false, ..*place }, 0, After::Made) {
        Ok(Verdict::Watch(after)) => Ok(Some(Verdict::Instead(call, after))),
        Ok(verdict) => Ok(Some(verdict)),
        Err(errno) => {
            unmake(context, place);
            Err(errno)
        }
    }
}

/// Removes a new file that could not be opened.
fn unmake<N: Backend>(context: &mut CallContext<'_, N>, place: &Place) {
    let path = context.buffers.found[0].as_c_str();
    let _ = context.backend.unlink(place.at, path, 0);
}

/// Ends an open for which a file was made: without a free descriptor, the kernel makes none.
pub(in crate::calls) fn opened_new<N: Backend>(
    context: &mut CallContext<'_, N>,
    call: &Call,
    result: i64,
) {
    let full = [Errno::EMFILE, Errno::ENFILE].map(Errno::result).contains(&result);
    if full
        && let Some(arguments) = Arguments::of(call)
        && let Ok(place) = find(context, &arguments, 0, Intent::NAME)
    {
        unmake(context, &place);
        place.close(context.backend);
    }
}

/// Checks that a file may be made at a place. Returns it, and whether it needs a record; `None` if
/// ids are the host's.
fn allowed_to_make<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    place: &Place,
) -> Result<Option<(Truth, bool)>> {
    if place.read_only {
        return Err(Errno::EROFS);
    }
    let Some(identity) = emulated(context, place.kind) else { return Ok(None) };
    let parent = look_parent(context, &identity, place, 0)?;
    rules::may_create(&context.task.creds, &parent.truth)?;
    let CallContext { backend, buffers, .. } = &mut *context;
    let at = (place.at, buffers.host.as_c_str());
    identity::open_to_owner(*backend, &identity, place.kind, at, &parent)?;
    let mode = limited_by_parent(context, place, &parent, S_IFREG | request.mode)?;
    let new = rules::new_file(&context.task.creds, &parent.truth, mode, (0, 0));
    let needs_record = needs_record((place.kind, &identity), &parent, mode.0, &new);
    Ok(Some((new, parent.truth.lists.default || needs_record)))
}

/// Returns true if a new file that the kernel makes with this mode needs a record.
fn needs_record(
    (kind, identity): (Kind, &Identity),
    parent: &Found,
    mode: u32,
    new: &Truth,
) -> bool {
    // The kernel gives the file its mode, except that the setgid bit of a foreign group must go;
    // otherwise at most the owner has to be recorded. The kernel would also remove set-id bits at
    // the first write, even one of root.
    let owned = Truth { mode: S_IFREG | 0o644 | new.mode & 0o6000, ..*new };
    mode & !new.mode != 0 || !identity::is_plain_in(identity, kind, &parent.facts, &owned)
}

/// Checks that a file without a name may be made in the directory `parent`, and prepares that.
/// Returns the work to do afterwards.
pub(super) fn prepare_nameless(
    host: &mut impl Host,
    task: &Task,
    request: &Request,
    (kind, identity): (Kind, &Identity),
    at: (Dir, &CStr),
    parent: &Found,
) -> Result<After> {
    rules::may_create(&task.creds, &parent.truth)?;
    identity::open_to_owner(host, identity, kind, at, parent)?;
    if parent.truth.lists.default {
        let directory = host.open(at.0, at.1, O_PATH | O_DIRECTORY, 0, 0)?;
        return Ok(After::Inherited { directory, mode: S_IFREG | request.mode, kind });
    }
    let mode = S_IFREG | request.mode & !task.umask;
    let new = rules::new_file(&task.creds, &parent.truth, (mode, Lists::NONE), (0, 0));
    Ok(if needs_record((kind, identity), parent, mode, &new) {
        After::Created { gid: new.gid, kind, clear: mode & !new.mode }
    } else {
        After::Nothing
    })
}

/// Records the owner of a file without a name that an open has made: the user who made it.
pub(in crate::calls) fn record_created<N: Backend>(
    context: &mut CallContext<'_, N>,
    descriptor: i64,
    gid: u32,
    kind: Kind,
    clear: u32,
) {
    let (Ok(descriptor), Some(identity)) = (i32::try_from(descriptor), context.world.identity)
    else {
        return;
    };
    if descriptor < 0 {
        return;
    }
    let at = (Dir::Guest(descriptor), c"");
    // The file is open and the guest has its descriptor, so an error can no longer be reported.
    if let Ok(found) = identity::look(context.backend, &identity, None, kind, at.0, at.1) {
        let mode = found.truth.mode & !clear;
        let new = Truth { mode, uid: context.task.creds.uid.files, gid, ..found.truth };
        let _ = identity::set_truth(context.backend, &identity, kind, at, &found, &new);
    }
}

/// Records a file without a name that an open has made in a directory with a default list, which it
/// inherits.
#[inline(never)]
pub(in crate::calls) fn record_inherited<N: Backend>(
    context: &mut CallContext<'_, N>,
    descriptor: i64,
    (directory, kind): (HostFd, Kind),
    mode: u32,
) {
    let (Ok(descriptor @ 0..), Some(identity)) =
        (i32::try_from(descriptor), context.world.identity)
    else {
        return;
    };
    let CallContext { backend, task, .. } = context;
    let (at, above) = ((Dir::Guest(descriptor), c""), (Dir::Held(directory), c""));
    // As above, an error can no longer be reported.
    let mut record = || {
        let found = identity::look(*backend, &identity, None, kind, at.0, at.1)?;
        let parent = identity::look(*backend, &identity, None, kind, above.0, above.1)?;
        let above = (above.0, above.1, &parent.facts);
        let mode = identity::lists::limited(*backend, above, &parent.truth, mode, task.umask)?;
        let new = rules::new_file(&task.creds, &parent.truth, mode, (0, 0));
        // Only a user who may write the file can set attributes.
        backend.chmod(at.0, at.1, new.disk_bits())?;
        identity::lists::inherit(*backend, above, at, &new)?;
        identity::set_truth(*backend, &identity, kind, at, &found, &new)
    };
    let _: Result<()> = record();
}
