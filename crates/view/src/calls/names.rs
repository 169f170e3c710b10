//! Decides calls that make and remove names: `mkdir`, `rmdir`, `unlink`, `rename`, `link`,
//! `symlink`. The view makes all of them itself, through the host.
//!
//! The order of the errors is the kernel's (`fs/namei.c`): a bad end of the name, `EROFS` if
//! nothing has been looked up yet, existence of the names, permissions, and at last the file
//! system's own errors.

use super::arguments::Arguments;
use super::support::{
    copy_up, emulated, exists, facts, find, is_directory, is_shared, look, unless_no_directory,
    with_place, without_slash,
};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use crate::identity::record::may_be_recorded;
use crate::identity::{self, Lists, Truth, Want, look_parent, rules};
use crate::paths::{self, Intent, Last, Place};
use crate::proc;
use crate::verdict::Verdict;
use crate::world::{Identity, Kind, World};
use abi::calls::Op;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG,
    statx,
};

const NO_REPLACE: u32 = 1;
const EXCHANGE: u32 = 2;
const WHITEOUT: u32 = 4;

/// Decides one of these calls.
pub(super) fn enter<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    match arguments.op() {
        Op::Mkdir | Op::Mkdirat => {
            with_place(context, arguments, Intent::NAME, |context, place| {
                make_directory(context, place, arguments.mode())
            })
        }
        Op::Symlink | Op::Symlinkat => symlink(context, arguments),
        Op::Unlink | Op::Rmdir | Op::Unlinkat => {
            let flags = if arguments.op() == Op::Rmdir { AT_REMOVEDIR } else { arguments.flags() };
            if flags & !AT_REMOVEDIR != 0 {
                return Err(Errno::EINVAL);
            }
            with_place(context, arguments, Intent::NAME, |context, place| {
                remove(context, place, flags)
            })
        }
        Op::Link | Op::Linkat => with_two_places(context, arguments, link_intent(arguments)?, link),
        _ => {
            let flags = arguments.flags();
            if flags & !(NO_REPLACE | EXCHANGE | WHITEOUT) != 0
                || (flags & EXCHANGE != 0 && flags & (NO_REPLACE | WHITEOUT) != 0)
            {
                return Err(Errno::EINVAL);
            }
            with_two_places(context, arguments, Intent::NAME, rename)
        }
    }
}

/// The two places of one call.
struct Pair {
    old: Place,
    new: Place,
    flags: u32,
}

fn with_two_places<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    intent: Intent,
    then: impl FnOnce(&mut CallContext<'_, N>, &Pair) -> Result<Verdict>,
) -> Result<Verdict> {
    // Checked before anything is opened, because a new descriptor could get that number.
    let start = match arguments.path(1)? {
        (Dir::Guest(descriptor), _) => context.backend.only_names(descriptor).map(|_| ()),
        _ => Ok(()),
    };
    let old = find(context, arguments, 0, intent)?;
    let new = match start {
        Err(errno) if is_relative(context, arguments) => Err(errno),
        _ => find(context, arguments, 1, Intent::NAME),
    };
    let result = match new {
        Ok(new) => {
            let pair = Pair { old, new, flags: arguments.flags() };
            let result = then(context, &pair);
            new.close(context.backend);
            result
        }
        // The kernel looks up the first directory before it looks at the second name.
        Err(errno) => Err(unless_no_directory(context, &old, 0, errno)),
    };
    old.close(context.backend);
    result
}

/// Returns true if the second path of a call is not empty and not absolute.
fn is_relative<N: Backend>(context: &mut CallContext<'_, N>, arguments: &Arguments<'_>) -> bool {
    let name = &mut context.buffers.named[1];
    arguments
        .path(1)
        .and_then(|(_, address)| context.backend.read_text(address, name))
        .is_ok_and(|()| !matches!(name.as_bytes().first(), None | Some(b'/')))
}

/// Checks what every new name needs; `mode` includes the type, and is not limited by the umask yet.
/// Returns the new file as the guest sees it, `None` if ids are the host's.
pub(super) fn allow_new<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    which: usize,
    mode: u32,
    device: (u32, u32),
) -> Result<Option<Truth>> {
    if place.last != Last::Name || place.mount_point {
        return Err(unless_no_directory(context, place, which, Errno::EEXIST));
    }
    if place.directory && mode & S_IFMT != S_IFDIR {
        return Err(trailing_slash_error(context, place, which));
    }
    let result = if place.read_only {
        Err(Errno::EROFS)
    } else if let Some(identity) = emulated(context, place.kind) {
        look_parent(context, &identity, place, which).and_then(|parent| {
            rules::may_create(&context.task.creds, &parent.truth)?;
            let mode = identity::limited_by_parent(context, place, &parent, mode)?;
            Ok(Some(rules::new_file(&context.task.creds, &parent.truth, mode, device)))
        })
    } else {
        Ok(None)
    };
    result.map_err(|errno| unless_taken(context, place, which, errno))
}

/// The error for a name that cannot be made: the kernel looks the name up before it checks
/// permissions.
pub(super) fn unless_taken<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    which: usize,
    errno: Errno,
) -> Errno {
    match facts(context, place, which) {
        Ok(_) => Errno::EEXIST,
        Err(errno @ (Errno::ENOTDIR | Errno::ENAMETOOLONG)) => errno,
        Err(_) => errno,
    }
}

/// The error for a slash behind the name of a new file that is not a directory.
fn trailing_slash_error<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    which: usize,
) -> Errno {
    unless_taken(context, place, which, Errno::ENOENT)
}

/// The mode with which a file is made that [`record_new`] is called for afterwards; `mode` is the
/// guest's, which counts where ids are the host's.
pub(super) fn bits_of_new<N: Backend>(
    context: &CallContext<'_, N>,
    place: &Place,
    mode: u32,
    new: Option<&Truth>,
) -> u32 {
    match (&context.world.identity, new) {
        (Some(identity), Some(new)) => identity::bits_of_new(identity, place.kind, new),
        _ => mode & 0o7777 & !context.task.umask,
    }
}

/// Records owner and lists of a file that was just made; removes the file again if that fails.
pub(super) fn record_new<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    which: usize,
    new: Option<&Truth>,
) -> Result<Verdict> {
    let (Some(identity), Some(new)) = (context.world.identity, new) else {
        return Ok(Verdict::Done(0));
    };
    // A default list may give what the guest's umask takes away, which some backends' calls apply.
    let masked = new.kind() != S_IFLNK
        && identity::is_plain_new(&identity, place.kind, new)
        && new.mode & context.task.umask & 0o777 != 0;
    let recorded = identity::inherit_lists(context, place, which, new).and_then(|()| {
        let at = (place.at, context.buffers.found[which].as_c_str());
        if masked {
            context.backend.chmod(at.0, at.1, new.bits_on_disk(place.kind))?;
        }
        identity::created(context.backend, &identity, place.kind, at, new)
    });
    if let Err(errno) = recorded {
        let at = (place.at, context.buffers.found[which].as_c_str());
        let flags = if new.is_directory() { AT_REMOVEDIR } else { 0 };
        let _ = context.backend.unlink(at.0, at.1, flags);
        return Err(errno);
    }
    Ok(Verdict::Done(0))
}

/// Makes a call that changes a name. If the kernel refuses it because of the mode of the directory
/// that contains the name, the directory is opened to its owner first.
pub(super) fn in_directory<N: Backend, T>(
    context: &mut CallContext<'_, N>,
    places: &[(&Place, usize)],
    mut call: impl FnMut(&mut CallContext<'_, N>) -> Result<T>,
) -> Result<T> {
    let result = call(context);
    if !matches!(result, Err(Errno::EACCES)) {
        return result;
    }
    let mut opened = false;
    for (place, which) in places {
        if let Some(identity) = emulated(context, place.kind).filter(|_| !place.read_only) {
            opened |= identity::open_parent(context, &identity, place, *which).unwrap_or(false);
        }
    }
    if opened { call(context) } else { result }
}

fn make_directory<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    mode: u32,
) -> Result<Verdict> {
    let mode = mode & 0o1777;
    let new = allow_new(context, place, 0, S_IFDIR | mode, (0, 0))?;
    let bits = bits_of_new(context, place, mode, new.as_ref());
    in_directory(context, &[(place, 0)], |context| {
        context.backend.mkdir(place.at, context.buffers.found[0].as_c_str(), bits)
    })?;
    record_new(context, place, 0, new.as_ref())
}

fn symlink<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    context.backend.read_text(arguments.word(0), &mut context.buffers.spare[0])?;
    if context.buffers.spare[0].is_empty() {
        return Err(Errno::ENOENT);
    }
    with_place(context, arguments, Intent::NAME, |context, place| {
        let new = allow_new(context, place, 0, S_IFLNK | 0o777, (0, 0))?;
        in_directory(context, &[(place, 0)], |context| {
            let buffers = &*context.buffers;
            let (target, path) = (buffers.spare[0].as_c_str(), buffers.found[0].as_c_str());
            context.backend.symlink(target, place.at, path)
        })?;
        record_new(context, place, 0, new.as_ref())
    })
}

fn remove<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    flags: u32,
) -> Result<Verdict> {
    let directory = flags & AT_REMOVEDIR != 0;
    let refused = match (place.last, directory) {
        (Last::Name, _) => None,
        (Last::Root, true) => Some(Errno::EBUSY),
        (Last::Dot, true) => Some(Errno::EINVAL),
        (Last::DotDot, true) => Some(Errno::ENOTEMPTY),
        (Last::Empty, _) => Some(Errno::ENOENT),
        (_, false) => Some(Errno::EISDIR),
    };
    if let Some(errno) = refused {
        return Err(unless_no_directory(context, place, 0, errno));
    }
    if place.mount_point {
        may_take_mount_point(context, place)?;
        let is_directory = facts(context, place, 0).is_ok_and(|facts| is_directory(&facts));
        return Err(match (is_directory, directory) {
            (true, false) => Errno::EISDIR,
            (false, true) => Errno::ENOTDIR,
            _ => Errno::EBUSY,
        });
    }
    if place.read_only {
        return Err(Errno::EROFS);
    }
    if let Some(identity) =
        emulated(context, place.kind).filter(|_| !context.task.creds.overrides())
    {
        let victim = look(context, &identity, place, 0)?;
        if place.directory && !directory {
            return Err(if victim.truth.is_directory() { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        let parent = look_parent(context, &identity, place, 0)?;
        rules::may_delete(&context.task.creds, &parent.truth, &victim.truth)?;
    }
    if directory && place.holds_mounts {
        return Err(Errno::ENOTEMPTY);
    }
    let known = directory || in_root(context, place, 0);
    let removed = clearing_cache(context, known && place.kind == Kind::Tree, |context| {
        in_directory(context, &[(place, 0)], |context| {
            context.backend.unlink(place.at, context.buffers.found[0].as_c_str(), flags)
        })
    });
    match removed {
        // Emulated root passes the kernel's check of `/proc`, and so does every thread for its own
        // descriptors; then the error is another one.
        Err(Errno::EACCES) if place.kind == Kind::Proc && kernel_looks_it_up(context) => {
            let found = facts(context, place, 0)?;
            Err(match (is_directory(&found), directory) {
                (false, true) => Errno::ENOTDIR,
                (true, false) => Errno::EISDIR,
                _ => Errno::EPERM,
            })
        }
        result => result.map(|()| Verdict::Done(0)),
    }
}

fn rename<N: Backend>(context: &mut CallContext<'_, N>, pair: &Pair) -> Result<Verdict> {
    let Pair { old, new, flags } = pair;
    let busy = |place: &Place| place.last != Last::Name || place.mount_point;
    if mount_above(context.world, old) != mount_above(context.world, new) {
        return Err(unless_nowhere(context, pair, Errno::EXDEV));
    }
    if busy(old) || busy(new) {
        let errno = why_busy(context, pair);
        return Err(unless_nowhere(context, pair, errno));
    }
    if old.read_only || new.read_only {
        return Err(Errno::EROFS);
    }
    may_rename(context, pair)?;
    // A binding keeps its name, so its parents cannot be renamed: only the kernel could move a
    // mount.
    if old.holds_mounts || new.holds_mounts {
        return Err(Errno::EBUSY);
    }
    let known = old.kind == Kind::Tree
        && (in_root(context, old, 0)
            || in_root(context, new, 1)
            || moves_cached(context, old, 0)
            || flags & EXCHANGE != 0 && moves_cached(context, new, 1));
    let identity = emulated(context, old.kind).filter(|_| flags & WHITEOUT != 0);
    let flags = if identity.is_some() { flags & !WHITEOUT } else { *flags };
    let renamed = clearing_cache(context, known || identity.is_some(), |context| {
        let call = |context: &mut CallContext<'_, N>| {
            let buffers = &*context.buffers;
            let (from, to) = (buffers.found[0].as_c_str(), buffers.found[1].as_c_str());
            context.backend.rename((old.at, from), (new.at, to), flags)
        };
        match in_directory(context, &[(old, 0), (new, 1)], call) {
            // A directory that gets another parent is itself written to.
            Err(Errno::EACCES) if open_moved(context, pair) => call(context)?,
            result => result?,
        }
        identity.map_or(Ok(()), |identity| make_whiteout(context, old, &identity))
    });
    match renamed {
        Err(Errno::EXDEV) => own_renamed(context, pair),
        result => result.map(|()| Verdict::Done(0)),
    }
}

/// Asks for a copy of a file of the image that a `rename` moves, after which it is tried again. The
/// image and what the container has changed may lie in two mounts of one file system, and between
/// those the kernel makes no second name of a file. `EXDEV` if no file is the image's.
fn own_renamed<N: Backend>(context: &mut CallContext<'_, N>, pair: &Pair) -> Result<Verdict> {
    let exchanged = pair.flags & EXCHANGE != 0;
    for (place, which) in
        [(&pair.old, 0), (&pair.new, 1)].into_iter().take(1 + usize::from(exchanged))
    {
        if let Ok(found) = facts(context, place, which)
            && is_shared(context, place.kind, &found)
        {
            return copy_up(context, place, which);
        }
    }
    Err(Errno::EXDEV)
}

/// Opens directories that a `rename` moves to their owner. Returns true if it was done.
fn open_moved<N: Backend>(context: &mut CallContext<'_, N>, pair: &Pair) -> bool {
    let exchanged = pair.flags & EXCHANGE != 0;
    let mut opened = false;
    for (place, which) in
        [(&pair.old, 0), (&pair.new, 1)].into_iter().take(1 + usize::from(exchanged))
    {
        if let Some(identity) = emulated(context, place.kind)
            && let Ok(found) = look(context, &identity, place, which)
            && rules::may(&context.task.creds, &found.truth, Want::WRITE).is_ok()
        {
            let at = (place.at, context.buffers.found[which].as_c_str());
            let done = identity::open_to_owner(context.backend, &identity, place.kind, at, &found);
            opened |= done.unwrap_or(false);
        }
    }
    opened
}

/// Makes overlay's whiteout, a device (0, 0), in the place of the file that was renamed. Like every
/// device it is an ordinary file with a record, so it has an owner.
fn make_whiteout<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    identity: &Identity,
) -> Result<()> {
    let parent = look_parent(context, identity, place, 0)?;
    let mode = (S_IFCHR, Lists::NONE);
    let new = rules::new_file(&context.task.creds, &parent.truth, mode, (0, 0));
    without_slash(context, 0, |context| {
        let path = context.buffers.found[0].as_c_str();
        match context.backend.mknod(place.at, path, S_IFREG | new.disk_bits()) {
            // The two names were links to one file: nothing was renamed.
            Err(Errno::EEXIST) => Ok(()),
            result => {
                result?;
                record_new(context, place, 0, Some(&new)).map(|_| ())
            }
        }
    })
}

/// Returns true if the kernel looks up a name of `/proc` (`buffers.found[0]`) before it refuses to
/// remove it, for the process that the guest sees.
fn kernel_looks_it_up<N: Backend>(context: &CallContext<'_, N>) -> bool {
    context.task.creds.overrides()
        || proc::is_own_descriptor(context.backend, context.buffers.found[0].as_bytes())
}

/// The binding of the directory that contains a name.
fn mount_above(world: &World<'_>, place: &Place) -> Option<usize> {
    let binding = place.binding.and_then(|index| world.bindings.get(index));
    let Some(binding) = binding.filter(|_| place.mount_point && place.last == Last::Name) else {
        return place.binding;
    };
    let end = binding.guest.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    paths::find(world, &binding.guest[..end.max(1)]).map(|(index, _)| index)
}

/// `ENOTDIR` for either directory comes before any other error.
fn unless_nowhere<N: Backend>(
    context: &mut CallContext<'_, N>,
    pair: &Pair,
    errno: Errno,
) -> Errno {
    let errno = unless_no_directory(context, &pair.new, 1, errno);
    unless_no_directory(context, &pair.old, 0, errno)
}

/// Changes a name. If an entry of the directory cache may become wrong (`known`), the cache is
/// emptied before and after: other processes may look at directories meanwhile, and this process
/// may be killed.
fn clearing_cache<N: Backend>(
    context: &mut CallContext<'_, N>,
    known: bool,
    change: impl FnOnce(&mut CallContext<'_, N>) -> Result<()>,
) -> Result<()> {
    if known {
        context.backend.changed();
    }
    let result = change(context);
    if known {
        context.backend.changed();
    }
    result
}

fn in_root<N: Backend>(context: &CallContext<'_, N>, place: &Place, which: usize) -> bool {
    paths::is_in_root(context.world, place, context.buffers.found[which].as_bytes())
}

/// Returns true if a directory, or a file that may stand for a device, gets another name. A backend
/// that remembers nothing skips the check and always reports a change, because other backends may
/// remember.
fn moves_cached<N: Backend>(context: &mut CallContext<'_, N>, place: &Place, which: usize) -> bool {
    context.backend.plain_generation().is_none()
        || facts(context, place, which).is_ok_and(|facts| needs_emulation(&facts))
}

fn needs_emulation(facts: &statx) -> bool {
    is_directory(facts) || may_be_recorded(u32::from(facts.stx_mode))
}

/// A directory cannot become its own child (`EINVAL`), or replace its parent.
fn nested<N: Backend>(context: &CallContext<'_, N>, pair: &Pair) -> Result<()> {
    if pair.old.at != pair.new.at {
        return Ok(());
    }
    let bare = |which: usize| {
        let path = context.buffers.found[which].as_bytes();
        path.strip_suffix(b"/").unwrap_or(path)
    };
    let (old, new) = (bare(0), bare(1));
    let below = |path: &[u8], above: &[u8]| {
        path.strip_prefix(above).is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    if below(new, old) {
        return Err(Errno::EINVAL);
    }
    if below(old, new) {
        return Err(if pair.flags & EXCHANGE == 0 { Errno::ENOTEMPTY } else { Errno::EINVAL });
    }
    Ok(())
}

/// The error for renaming or replacing a mount point, or a path that does not end in a name.
fn why_busy<N: Backend>(context: &mut CallContext<'_, N>, pair: &Pair) -> Errno {
    let Pair { old, new, flags } = pair;
    let taken = if flags & NO_REPLACE != 0 { Errno::EEXIST } else { Errno::EBUSY };
    if old.last != Last::Name {
        return Errno::EBUSY;
    }
    if new.last != Last::Name || (new.mount_point && flags & NO_REPLACE != 0) {
        return taken;
    }
    let asked = [(old, 0), (new, 1)].into_iter().try_for_each(|(place, which)| {
        if place.mount_point {
            return may_take_mount_point(context, place);
        }
        if place.read_only {
            return Err(Errno::EROFS);
        }
        let Some(identity) = emulated(context, place.kind) else { return Ok(()) };
        let victim = match look(context, &identity, place, which) {
            Err(Errno::ENOENT) if which == 1 => None,
            victim => Some(victim?),
        };
        let parent = look_parent(context, &identity, place, which)?;
        match victim {
            Some(victim) => rules::may_delete(&context.task.creds, &parent.truth, &victim.truth),
            None => rules::may_create(&context.task.creds, &parent.truth),
        }
    });
    asked.err().unwrap_or(Errno::EBUSY)
}

/// Checks if the caller could remove the name of a mount point from its directory. The kernel
/// checks that before it says `EBUSY`. The check is made on the file that the mount point covers,
/// not on what is mounted there.
fn may_take_mount_point<N: Backend>(context: &mut CallContext<'_, N>, place: &Place) -> Result<()> {
    let world = context.world;
    let Some(binding) = place.binding.and_then(|index| world.bindings.get(index)) else {
        return Ok(());
    };
    let end = binding.guest.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (above, name) = (&binding.guest[..end.max(1)], &binding.guest[end + 1..]);
    let Some((index, rest)) = paths::find(world, above).filter(|_| !name.is_empty()) else {
        return Ok(());
    };
    let parent = &world.bindings[index];
    if parent.read_only {
        return Err(Errno::EROFS);
    }
    let Some(identity) = emulated(context, parent.kind).filter(|_| !context.task.creds.overrides())
    else {
        return Ok(());
    };
    let host = &mut context.buffers.host;
    host.set(if parent.host == b"/" { b"" } else { parent.host })?;
    host.push(if host.is_empty() && rest.is_empty() { b"/" } else { rest })?;
    let path = context.buffers.host.as_c_str();
    let (who, kind, root) = (&context.task.creds, parent.kind, Dir::Root);
    let directory = identity::look(context.backend, &identity, Some(who), kind, root, path)?.truth;
    context.buffers.host.push_component(name)?;
    let path = context.buffers.host.as_c_str();
    let covered = identity::look(context.backend, &identity, None, kind, root, path)
        .map_or_else(|_| Truth { mode: S_IFDIR | 0o755, ..Truth::default() }, |found| found.truth);
    rules::may_delete(who, &directory, &covered)
}

/// Checks the permissions of `rename` for users who do not override them.
fn may_rename<N: Backend>(context: &mut CallContext<'_, N>, pair: &Pair) -> Result<()> {
    let Some(identity) = emulated(context, pair.old.kind) else { return Ok(()) };
    if context.task.creds.overrides() {
        return Ok(());
    }
    let moved = look(context, &identity, &pair.old, 0)?;
    let replaced = match look(context, &identity, &pair.new, 1) {
        Ok(_) if pair.flags & NO_REPLACE != 0 => return Err(Errno::EEXIST),
        Ok(found) => Some(found),
        Err(Errno::ENOENT) if pair.flags & EXCHANGE == 0 => None,
        Err(errno) => return Err(errno),
    };
    let exchanged = replaced.as_ref().filter(|_| pair.flags & EXCHANGE != 0);
    let slash_misleads = match exchanged {
        Some(other) => pair.new.directory && !other.truth.is_directory(),
        None => pair.new.directory && !moved.truth.is_directory(),
    };
    if slash_misleads || pair.old.directory && !moved.truth.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    nested(context, pair)?;
    let same = |one: &identity::Found, other: &identity::Found| {
        one.facts.stx_ino == other.facts.stx_ino
            && one.facts.stx_dev_minor == other.facts.stx_dev_minor
            && one.facts.stx_dev_major == other.facts.stx_dev_major
    };
    if replaced.as_ref().is_some_and(|replaced| same(replaced, &moved)) {
        return Ok(());
    }
    let from = look_parent(context, &identity, &pair.old, 0)?;
    let to = look_parent(context, &identity, &pair.new, 1)?;
    let who = &context.task.creds;
    rules::may_delete(who, &from.truth, &moved.truth)?;
    match &replaced {
        Some(replaced) => rules::may_delete(who, &to.truth, &replaced.truth)?,
        None => rules::may_create(who, &to.truth)?,
    }
    if same(&from, &to) {
        return Ok(());
    }
    // A directory that gets another parent is itself changed: its `..`.
    if moved.truth.is_directory() {
        rules::may(who, &moved.truth, Want::WRITE)?;
    }
    if let Some(replaced) = replaced.filter(|found| found.truth.is_directory())
        && pair.flags & EXCHANGE != 0
    {
        rules::may(who, &replaced.truth, Want::WRITE)?;
    }
    Ok(())
}

fn link_intent(arguments: &Arguments<'_>) -> Result<Intent> {
    let flags = arguments.flags();
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut intent = Intent::NO_FOLLOW.held_or_seen();
    intent.follow = flags & AT_SYMLINK_FOLLOW != 0;
    intent.empty = flags & AT_EMPTY_PATH != 0;
    Ok(intent)
}

fn link<N: Backend>(context: &mut CallContext<'_, N>, pair: &Pair) -> Result<Verdict> {
    let Pair { old, new, .. } = pair;
    let found = facts(context, old, 0)?;
    allow_name(context, new)?;
    // A file that is reached by a descriptor alone has no binding that could differ.
    let nameless = old.magic || old.last == Last::Empty;
    if !nameless && !old.same_mount(new) {
        return Err(unless_taken(context, new, 1, Errno::EXDEV));
    }
    if let Some(identity) = emulated(context, new.kind).filter(|_| !context.task.creds.overrides())
    {
        // A file that only `/proc` leads to (made without a name) belongs to the binding of its
        // future name.
        let kind = if old.magic { new.kind } else { old.kind };
        let source = look(context, &identity, &Place { kind, ..*old }, 0)?;
        let parent = look_parent(context, &identity, new, 1)?;
        let allowed = rules::may_link(&context.task.creds, &source.truth)
            .and_then(|()| rules::may_create(&context.task.creds, &parent.truth));
        if let Err(errno) = allowed {
            return Err(unless_taken(context, new, 1, errno));
        }
    }
    if is_shared(context, old.kind, &found) {
        if exists(context, new, 1) {
            return Err(Errno::EEXIST);
        }
        return copy_up(context, old, 0);
    }
    let flags = if old.magic {
        AT_SYMLINK_FOLLOW
    } else if context.buffers.found[0].is_empty() {
        AT_EMPTY_PATH
    } else {
        0
    };
    in_directory(context, &[(new, 1)], |context| {
        let buffers = &*context.buffers;
        let (from, to) = (buffers.found[0].as_c_str(), buffers.found[1].as_c_str());
        context.backend.link((old.at, from), (new.at, to), flags)
    })?;
    if needs_emulation(&found) {
        context.backend.changed();
    }
    Ok(Verdict::Done(0))
}

/// Checks the new name of a link, except for permissions.
fn allow_name<N: Backend>(context: &mut CallContext<'_, N>, new: &Place) -> Result<()> {
    if new.last != Last::Name || new.mount_point {
        return Err(unless_no_directory(context, new, 1, Errno::EEXIST));
    }
    if new.directory {
        return Err(trailing_slash_error(context, new, 1));
    }
    if new.read_only {
        return Err(unless_taken(context, new, 1, Errno::EROFS));
    }
    Ok(())
}
