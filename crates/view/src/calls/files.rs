//! Decides calls on one existing file or directory: `truncate`, `utimensat` and its relatives,
//! `chdir`, `readlink`, `getcwd`, `name_to_handle_at`, `inotify_add_watch`, and an `ioctl` that
//! changes flags.

use super::arguments::{Arguments, times};
use super::open::lift_mode;
use super::support::{
    Target, binding_of, copy_up, emulated, facts, find, find_named, is_directory, is_shared, look,
    more_than_a_name, not_executed, on_place, own_directory, reach, target_of, with_place,
};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use crate::identity::{self, Want, rules};
use crate::paths::{self, Intent, Look, Origin, Place, seen_from};
use crate::verdict::{After, Verdict};
use crate::world::Kind;
use abi::calls::{Op, Role};
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, S_IFDIR, S_IFMT, S_IFREG, UTIME_NOW,
    UTIME_OMIT, statx, timespec,
};

/// `chdir`: the guest's own process changes its directory.
pub(super) fn chdir<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    with_place(context, arguments, Intent::FOLLOW, |context, place| {
        if let Some(identity) = emulated(context, place.kind)
            && !context.task.creds.overrides()
        {
            let found = look(context, &identity, place, 0)?;
            if !found.truth.is_directory() {
                return Err(Errno::ENOTDIR);
            }
            rules::may_search(&context.task.creds, &found.truth)?;
        }
        context.task.enter(place.binding);
        on_place(context, arguments, place, 0, After::Nothing)
    })
}

/// `fchdir`: the kernel checks the mode on disk only, so the emulated mode is checked here.
pub(super) fn fchdir<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let at = Dir::Guest(arguments.int(0) as i32);
    let (kind, _) = binding_of(context, at)?;
    if let Some(identity) = emulated(context, kind)
        && !context.task.creds.overrides()
    {
        let who = Some(&context.task.creds);
        let found = identity::look(context.backend, &identity, who, kind, at, c"")?;
        if found.truth.is_directory() {
            rules::may_search(&context.task.creds, &found.truth)?;
        }
    }
    if context.world.overlaps {
        let CallContext { backend, world, task, buffers } = &mut *context;
        backend.path_of(at, &mut buffers.link)?;
        let entered = || paths::entered(*backend, task, at);
        let host = buffers.link.as_bytes();
        let origin = paths::reverse_by(world, host, entered, &mut buffers.host)?;
        task.enter(if let Origin::Inside(index) = origin { Some(index) } else { None });
    } else {
        context.task.enter(None);
    }
    Ok(Verdict::Pass)
}

/// `getcwd`: the kernel's name of the directory, translated to the guest's path.
pub(super) fn getcwd<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    const UNREACHABLE: &[u8] = b"(unreachable)/";
    let (buffer, size) = (arguments.word(0), arguments.word(1));
    let buffers = &mut *context.buffers;
    if context.task.root.as_bytes() == b"/"
        && context.task.entered == 0
        && context.backend.remembered_cwd(&mut buffers.link)
        && let Some(here) = paths::in_tree(context.world, buffers.link.as_bytes())
    {
        buffers.host.set(if here.is_empty() { b"/" } else { here })?;
        return answer_cwd(context, buffer, size);
    }
    context.backend.path_of(Dir::Cwd, &mut buffers.link)?;
    if buffers.link.as_bytes().ends_with(b" (deleted)") {
        let mut facts = identity::files::NO_FACTS;
        context.backend.statx(Dir::Cwd, c"", AT_EMPTY_PATH, &mut facts)?;
        if facts.stx_nlink == 0 {
            return Err(Errno::ENOENT);
        }
    }
    let entered = || Some(context.task.entered.into());
    let host = buffers.link.as_bytes();
    let origin = paths::reverse_by(context.world, host, entered, &mut buffers.host)?;
    if !matches!(origin, Origin::Inside(_)) || !seen_from(&context.task.root, &mut buffers.host)? {
        buffers.host.set(UNREACHABLE)?;
    }
    answer_cwd(context, buffer, size)
}

fn answer_cwd<N: Backend>(
    context: &mut CallContext<'_, N>,
    buffer: u64,
    size: u64,
) -> Result<Verdict> {
    let text = context.buffers.host.with_nul();
    if text.len() as u64 > size {
        return Err(Errno::ERANGE);
    }
    context.backend.write(buffer, text)?;
    Ok(Verdict::Done(text.len() as i64))
}

/// `readlink`, `readlinkat`.
pub(super) fn readlink<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let out = arguments.position(Role::PathOut).ok_or(Errno::ENOSYS)?;
    let (buffer, size) = (arguments.word(out), arguments.int(out + 1) as i32);
    if size <= 0 {
        return Err(Errno::EINVAL);
    }
    let intent = Intent { look: Look::Later, ..Intent::NO_FOLLOW.or_empty().held() };
    let (dir, address) = arguments.path(0)?;
    context.backend.read_text(address, &mut context.buffers.named[0])?;
    if let Some(image) = context.world.image
        && let Some(found) = paths::record_of(context, dir, 0, false)
    {
        let entry = found?.entry;
        if !entry.is_link() {
            return Err(Errno::EINVAL);
        }
        let target = image.index.target(&entry);
        let length = target.len().min(size as usize);
        context.backend.write(buffer, &target[..length])?;
        return Ok(Verdict::Done(length as i64));
    }
    if let Some(start) = paths::fast_path(context, dir, 0) {
        let buffers = &mut *context.buffers;
        let path = start.path(buffers.named[0].with_nul());
        match context.backend.readlink(start.dir, path, &mut buffers.link) {
            Ok(()) => return give_text(context, buffer, size as usize),
            Err(errno @ (Errno::ENOENT | Errno::EINVAL)) => return Err(errno),
            Err(_) => {}
        }
    }
    let place = find_named(context, dir, 0, intent)?;
    let result = if place.kind != Kind::Proc && place.direct {
        Ok(Verdict::Pass)
    } else {
        link_text(context, &place).and_then(|()| give_text(context, buffer, size as usize))
    };
    place.close(context.backend);
    result
}

/// Gives the guest as much of `buffers.link` as its buffer has room for.
fn give_text<N: Backend>(
    context: &mut CallContext<'_, N>,
    buffer: u64,
    size: usize,
) -> Result<Verdict> {
    let bytes = context.buffers.link.as_bytes();
    let length = bytes.len().min(size);
    context.backend.write(buffer, &bytes[..length])?;
    Ok(Verdict::Done(length as i64))
}

/// Puts the target of a link, as the guest is to see it, into `buffers.link`.
fn link_text<N: Backend>(context: &mut CallContext<'_, N>, place: &Place) -> Result<()> {
    if place.kind == Kind::Proc {
        let host = context.buffers.found[0];
        let buffers = &mut *context.buffers;
        let (world, task) = (context.world, &*context.task);
        let link = &mut buffers.link;
        let target = crate::proc::follow(context.backend, world, task, host.as_bytes(), link)?;
        if target == crate::proc::Target::Jump {
            seen_from(&context.task.root, link)?;
        }
        return Ok(());
    }
    let buffers = &mut *context.buffers;
    if let (Some(record), Some(image)) = (place.record, context.world.image) {
        let entry = image.index.entry(record).filter(abi::index::Entry::is_link);
        return buffers.link.set(image.index.target(&entry.ok_or(Errno::EINVAL)?));
    }
    let (dir, path) = match place.held {
        Some(held) => (Dir::Held(held), c""),
        None => (place.at, buffers.found[0].as_c_str()),
    };
    // With a descriptor alone the kernel says ENOENT for a file that is not a link; with a name,
    // EINVAL.
    match (context.backend.readlink(dir, path, &mut buffers.link), buffers.named[0].is_empty()) {
        (Err(Errno::ENOENT), false) if place.held.is_some() => Err(Errno::EINVAL),
        (Err(Errno::EINVAL), true) => Err(Errno::ENOENT),
        (result, _) => result,
    }
}

/// `ioctl` that changes flags, version or the like of a file, for which it need not be open for
/// writing: `chattr`. A file that belongs to the image cannot get them: `EOPNOTSUPP`.
pub(super) fn change_flags<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    /// `FS_IOC_SETFLAGS`, of 64-bit and 32-bit programs.
    const SET_FLAGS: [u32; 2] = [0x4008_6602, 0x4004_6602];
    /// `FS_IMMUTABLE_FL`, `FS_APPEND_FL`: only the machine's root may set them.
    const OF_ROOT: u32 = 0x30;
    let descriptor = arguments.int(0) as i32;
    let at = Dir::Guest(descriptor);
    let mut facts = identity::files::NO_FACTS;
    context.backend.statx(at, c"", AT_EMPTY_PATH, &mut facts)?;
    if !matches!(u32::from(facts.stx_mode) & S_IFMT, S_IFREG | S_IFDIR) {
        return Ok(Verdict::Pass);
    }
    let (kind, read_only) = binding_of(context, at)?;
    if read_only {
        return Err(Errno::EROFS);
    }
    if let Some(ids) = emulated(context, kind) {
        let (truth, _) = identity::truth_of(context.backend, &ids, None, kind, (at, c""), &facts);
        rules::may_change(&context.task.creds, &truth)?;
    }
    if target_of(context, descriptor, &facts)? == Target::Itself {
        return Ok(Verdict::Pass);
    }
    let mut flags = [0; 4];
    if SET_FLAGS.contains(&arguments.int(1)) {
        context.backend.read(arguments.word(2), &mut flags)?;
    }
    let is_roots = u32::from_le_bytes(flags) & OF_ROOT != 0;
    Err(if is_roots { Errno::EPERM } else { Errno::EOPNOTSUPP })
}

/// `truncate`.
pub(super) fn truncate<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let length = u64::try_from(arguments.length()).map_err(|_| Errno::EINVAL)?;
    let place = find(context, arguments, 0, Intent::FOLLOW.held_or_seen())?;
    let verdict = truncate_place(context, arguments, &place, length);
    // What is restored after the call is closed then.
    let kept = matches!(
        verdict,
        Ok(Verdict::Instead(_, After::Restore(..)) | Verdict::Watch(After::Restore(..)))
    );
    let held = place.held.filter(|_| !kept);
    Place { held, ..place }.close(context.backend);
    verdict
}

fn truncate_place<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    place: &Place,
    length: u64,
) -> Result<Verdict> {
    let facts = facts(context, place, 0)?;
    let kind = u32::from(facts.stx_mode) & S_IFMT;
    if kind != S_IFREG {
        return Err(if is_directory(&facts) { Errno::EISDIR } else { Errno::EINVAL });
    }
    if place.read_only {
        return Err(Errno::EROFS);
    }
    let mut restore = After::Nothing;
    if let Some(identity) = emulated(context, place.kind) {
        let found = look(context, &identity, place, 0)?;
        if found.truth.is_device() {
            return Err(Errno::EINVAL);
        }
        rules::may(&context.task.creds, &found.truth, Want::WRITE)?;
        not_executed(context, &facts)?;
        if is_shared(context, place.kind, &facts) {
            return copy_up(context, place, 0);
        }
        let (dir, path) = reach(context.buffers, place, 0);
        let who = &context.task.creds;
        identity::written(context.backend, &identity, who, place.kind, (dir, path), &found)?;
        if facts.stx_uid == identity.host_uid && facts.stx_mode & 0o200 == 0 {
            restore = lift_mode(context, place, &identity, &found)?;
        }
    } else {
        not_executed(context, &facts)?;
        if is_shared(context, place.kind, &facts) {
            return copy_up(context, place, 0);
        }
    }
    if length > facts.stx_size {
        // Only in the guest's own thread the kernel looks at its limit (`RLIMIT_FSIZE`), and sends
        // it `SIGXFSZ`.
        let verdict = on_place(context, arguments, place, 0, restore);
        if let (Err(_), After::Restore(held, mode)) = (verdict, restore) {
            let _ = context.backend.chmod(Dir::Held(held), c"", mode);
        }
        return verdict;
    }
    let (dir, path) = reach(context.buffers, place, 0);
    let result = context.backend.truncate(dir, path, length);
    if let After::Restore(held, mode) = restore {
        // The file belongs to the caller, so this does not fail. Even if it did, the contents are
        // what the guest asked for.
        let _ = context.backend.chmod(Dir::Held(held), c"", mode);
    }
    result.map(|()| Verdict::Done(0))
}

/// `utime`, `utimes`, `futimesat`, `utimensat`.
pub(super) fn utimens<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let flags = arguments.flags();
    let times = times(arguments, context.backend)?;
    if let Some(times) = &times {
        if times.iter().all(|time| time.tv_nsec == i64::from(UTIME_OMIT)) {
            return Ok(Verdict::Done(0));
        }
        // The kernel checks microseconds before it looks at the file, nanoseconds afterwards.
        if !matches!(arguments.op(), Op::Utimensat | Op::UtimensatTime64) {
            are_valid(Some(times))?;
        }
    }
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let (dir, address) = arguments.path(0)?;
    if let Dir::Guest(descriptor) = dir
        && address == 0
    {
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        // With an empty path instead of none, a descriptor of a name alone is enough.
        more_than_a_name(context, descriptor)?;
        return utimens_open(context, descriptor, times.as_ref());
    }
    with_place(context, arguments, Intent::FOLLOW.with_at_flags(flags), |context, place| {
        utimens_place(context, place, times.as_ref())
    })
}

/// Checks that every time is valid.
fn are_valid(times: Option<&[timespec; 2]>) -> Result<()> {
    let valid = |time: &timespec| {
        (0..1_000_000_000).contains(&time.tv_nsec)
            || [i64::from(UTIME_NOW), i64::from(UTIME_OMIT)].contains(&time.tv_nsec)
    };
    if times.is_none_or(|times| times.iter().all(valid)) { Ok(()) } else { Err(Errno::EINVAL) }
}

fn utimens_place<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    times: Option<&[timespec; 2]>,
) -> Result<Verdict> {
    are_valid(times)?;
    if place.read_only {
        return Err(Errno::EROFS);
    }
    let facts = facts(context, place, 0)?;
    if let Dir::Guest(descriptor) = place.at
        && context.buffers.found[0].is_empty()
    {
        return utimens_open(context, descriptor, times);
    }
    may_set_times(context, place, times)?;
    if is_shared(context, place.kind, &facts) {
        // A file that has lost its name has no copy.
        return if place.magic { Ok(Verdict::Done(0)) } else { copy_up(context, place, 0) };
    }
    let flags = super::support::at_flags(place);
    let (dir, path) = reach(context.buffers, place, 0);
    context.backend.utimens(dir, path, times, flags)?;
    Ok(Verdict::Done(0))
}

fn may_set_times<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    times: Option<&[timespec; 2]>,
) -> Result<()> {
    let Some(identity) = emulated(context, place.kind) else { return Ok(()) };
    if context.task.creds.overrides() {
        return Ok(());
    }
    let found = look(context, &identity, place, 0)?;
    rules::may_set_times(&context.task.creds, &found.truth, times)
}

/// Sets the times of an open file.
fn utimens_open<N: Backend>(
    context: &mut CallContext<'_, N>,
    descriptor: i32,
    times: Option<&[timespec; 2]>,
) -> Result<Verdict> {
    are_valid(times)?;
    let at = Dir::Guest(descriptor);
    let mut facts: statx = identity::files::NO_FACTS;
    context.backend.statx(at, c"", AT_EMPTY_PATH, &mut facts)?;
    let (kind, read_only) = binding_of(context, at)?;
    if read_only {
        return Err(Errno::EROFS);
    }
    if let Some(identity) = emulated(context, kind)
        && !context.task.creds.overrides()
    {
        let (who, at) = (&context.task.creds, (at, c""));
        let (truth, _) =
            identity::truth_of(context.backend, &identity, Some(who), kind, at, &facts);
        rules::may_set_times(who, &truth, times)?;
    }
    match target_of(context, descriptor, &facts)? {
        Target::Itself => Ok(Verdict::Pass),
        Target::CopyUp => Ok(Verdict::CopyUp),
        Target::Nothing => Ok(Verdict::Done(0)),
        Target::Copy => {
            let path = context.buffers.host.as_c_str();
            context.backend.utimens(Dir::Root, path, times, AT_SYMLINK_NOFOLLOW)?;
            Ok(Verdict::Done(0))
        }
    }
}

/// `name_to_handle_at`: a handle contains no names. Guests may not open handles.
pub(super) fn name_to_handle<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let flags = arguments.flags();
    let mut intent = Intent::NO_FOLLOW;
    intent.follow = flags & AT_SYMLINK_FOLLOW != 0;
    intent.empty = flags & AT_EMPTY_PATH != 0;
    with_place(context, arguments, intent, |context, place| {
        on_place(context, arguments, place, 0, After::Nothing)
    })
}

/// `inotify_add_watch`: events name files relative to the watched directory (inotify(7)), so they
/// need no translation.
pub(super) fn watch<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    const IN_DONT_FOLLOW: u32 = 0x0200_0000;
    let follow = arguments.int(2) & IN_DONT_FOLLOW == 0;
    with_place(context, arguments, Intent { follow, ..Intent::FOLLOW }, |context, place| {
        if let Some(identity) = emulated(context, place.kind)
            && !context.task.creds.overrides()
        {
            let found = look(context, &identity, place, 0)?;
            rules::may(&context.task.creds, &found.truth, Want::READ)?;
        }
        // What happens in a directory happens in the container's own.
        let is_directory = place.kind == Kind::Tree && is_directory(&facts(context, place, 0)?);
        let own = is_directory && !place.read_only;
        let place = &if own { own_directory(context, place, 0)? } else { *place };
        on_place(context, arguments, place, 0, After::Nothing)
    })
}
