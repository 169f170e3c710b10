//! Decides the `chown`, `chmod` and `mknod` families.
//!
//! The view does the whole work: it finds the file, checks if the caller may change it
//! ([`crate::identity::rules`]), and writes the new owner and mode. A file that is shared with the
//! image is copied first. A change by descriptor of such a file goes to the copy that replaced it.

use super::arguments::Arguments;
use super::ids::Width;
use super::names::{allow_new, bits_of_new, in_directory, record_new, unless_taken};
use super::stat::{kind_of, place_of};
use super::support::{
    Target, at_flags, binding_of, copy_up, find, is_shared, look, more_than_a_name, reach,
    target_of,
};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use crate::identity::credentials::KEEP;
use crate::identity::files::{self, without_set_id};
use crate::identity::{self, Capability, Found, Truth, rules};
use crate::paths::{Intent, Place};
use crate::verdict::Verdict;
use crate::world::{Identity, Kind};
use abi::calls::{Op, Role};
use abi::layout::stat::decode_device;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT,
    S_IFREG, S_IFSOCK, S_ISGID, STATX_BTIME, statx, statx_timestamp, timespec,
};

/// Returns true if [`rule`] decides this call.
pub(super) const fn concerns(op: Op) -> bool {
    matches!(
        op,
        Op::Chmod
            | Op::Fchmod
            | Op::Fchmodat
            | Op::Fchmodat2
            | Op::Chown
            | Op::Lchown
            | Op::Fchown
            | Op::Chown32
            | Op::Lchown32
            | Op::Fchown32
            | Op::Fchownat
            | Op::Mknod
            | Op::Mknodat
    )
}

/// Decides a call of this family.
pub(super) fn rule<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    match arguments.op() {
        Op::Mknod | Op::Mknodat => mknod(context, arguments),
        Op::Fchmod | Op::Fchown | Op::Fchown32 => by_descriptor(context, arguments),
        op => {
            let flags = match op {
                Op::Fchmodat2 | Op::Fchownat => arguments.flags(),
                Op::Lchown | Op::Lchown32 => AT_SYMLINK_NOFOLLOW,
                _ => 0,
            };
            if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
                return Err(Errno::EINVAL);
            }
            let intent = Intent::FOLLOW.with_at_flags(flags).held_or_seen();
            let place = find(context, arguments, 0, intent)?;
            let result = by_place(context, arguments, &place);
            place.close(context.backend);
            result
        }
    }
}

/// The change that is asked for.
#[derive(Debug, Clone, Copy)]
enum Change {
    Mode(u32),
    Owner(u32, u32),
}

impl Change {
    fn of(arguments: &Arguments<'_>) -> Result<Self> {
        if let Some(at) = arguments.position(Role::Mode) {
            return Ok(Self::Mode(arguments.int(at) & 0o7777));
        }
        let width = Width::of(arguments);
        let uid = arguments.position(Role::Uid).ok_or(Errno::ENOSYS)?;
        let id = |index: usize| width.take(arguments.call.arguments[index]);
        Ok(Self::Owner(id(uid), id(uid + 1)))
    }

    /// Returns the file after the change, if the caller may make it.
    fn apply(self, who: &identity::Credentials, file: &Truth) -> Result<Truth> {
        let mut new = *file;
        match self {
            Self::Mode(_) if file.kind() == S_IFLNK => return Err(Errno::EOPNOTSUPP),
            Self::Mode(bits) => {
                rules::may_change(who, file)?;
                new.mode = file.kind() | bits;
                if !who.in_group(file.gid) && !who.has(Capability::FSETID) {
                    new.mode &= !S_ISGID;
                }
            }
            Self::Owner(uid, gid) => {
                rules::may_chown(who, file, uid, gid)?;
                if !file.is_directory() && file.kind() != S_IFLNK {
                    new.mode = without_set_id(file, who);
                    if new.mode != file.mode {
                        // Removing set-id bits is a change of the mode, even if nothing else
                        // changes.
                        rules::may_change(who, file)?;
                    }
                }
                new.uid = if uid == KEEP { file.uid } else { uid };
                new.gid = if gid == KEEP { file.gid } else { gid };
            }
        }
        Ok(new)
    }
}

fn by_place<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    place: &Place,
) -> Result<Verdict> {
    let change = Change::of(arguments)?;
    let Some(identity) = context.world.identity else {
        return by_host_ids(context, place, change);
    };
    let mut found = look(context, &identity, place, 0)?;
    if place.directory && !found.truth.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    if place.read_only {
        return Err(Errno::EROFS);
    }
    let new = change.apply(&context.task.creds, &found.truth)?;
    if is_shared(context, place.kind, &found.facts) {
        if new == found.truth || place.magic {
            // A file that does not change is not copied only for its time of change; a file that
            // has lost its name has no copy.
            return Ok(Verdict::Done(0));
        }
        return copy_up(context, place, 0);
    }
    let kind = if place.magic { kind_of(context, place) } else { place.kind };
    let is_link = found.truth.kind() == S_IFLNK && !place.magic;
    let changes = context.world.namespaces && is_link && new != found.truth;
    let at = if changes && own_link(context, place, &mut found.facts)? {
        // What is held is the link that was replaced.
        (place.at, context.buffers.found[0].as_c_str())
    } else {
        reach(context.buffers, place, 0)
    };
    write(context.backend, &identity, kind, at, &found, &new)
}

/// Makes a symbolic link an inode of the container's own, whose number stays. An overlay copies a
/// link of the image when that changes, and shows the image's number until it is mounted anew; the
/// time of birth is the copy's at once. Such a copy is replaced by another link; returns true if
/// that was done.
fn own_link<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    facts: &mut statx,
) -> Result<bool> {
    const NO_FOLLOW: u32 = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
    let (host, buffers) = (&mut *context.backend, &mut *context.buffers);
    let path = buffers.found[0].as_c_str();
    let born = |facts: &statx| (facts.stx_btime.tv_sec, facts.stx_btime.tv_nsec);
    if facts.stx_mask & STATX_BTIME == 0 {
        host.statx(place.at, path, NO_FOLLOW, facts)?;
    }
    let before = born(facts);
    host.chown(place.at, path, KEEP, KEEP, NO_FOLLOW)?;
    host.statx(place.at, path, NO_FOLLOW, facts)?;
    let bytes = path.to_bytes();
    let start = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    if born(facts) == before || start == bytes.len() {
        return Ok(false);
    }
    let [target, other] = &mut buffers.spare;
    host.readlink(place.at, path, target)?;
    other.set(&bytes[..start])?;
    other.push(b".coracle-link-")?;
    other.push_number(host.tid())?;
    let other = other.as_c_str();
    let time = |at: statx_timestamp| timespec { tv_sec: at.tv_sec, tv_nsec: at.tv_nsec.into() };
    let times = [time(facts.stx_atime), time(facts.stx_mtime)];
    // The guest did not make a link, so the directory keeps its times.
    buffers.link.set(if start == 0 { b"." } else { &bytes[..start] })?;
    let parent = buffers.link.as_c_str();
    let mut directory = files::NO_FACTS;
    host.statx(place.at, parent, AT_EMPTY_PATH, &mut directory)?;
    host.symlink(target.as_c_str(), place.at, other)?;
    let made = host
        .utimens(place.at, other, Some(&times), AT_SYMLINK_NOFOLLOW)
        .and_then(|()| host.rename((place.at, other), (place.at, path), 0));
    if made.is_err() {
        let _ = host.unlink(place.at, other, 0);
    }
    let times = [time(directory.stx_atime), time(directory.stx_mtime)];
    let _ = host.utimens(place.at, parent, Some(&times), 0);
    made?;
    host.statx(place.at, path, NO_FOLLOW, facts)?;
    Ok(true)
}

/// Changes a file without emulated ids: the kernel decides.
fn by_host_ids<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    change: Change,
) -> Result<Verdict> {
    if place.read_only {
        return Err(Errno::EROFS);
    }
    let facts = super::support::facts(context, place, 0)?;
    if is_shared(context, place.kind, &facts) {
        return copy_up(context, place, 0);
    }
    let (dir, path) = reach(context.buffers, place, 0);
    match change {
        Change::Mode(_) if u32::from(facts.stx_mode) & S_IFMT == S_IFLNK => {
            return Err(Errno::EOPNOTSUPP);
        }
        Change::Mode(bits) => {
            let mode = u32::from(facts.stx_mode);
            let closes = mode & S_IFMT == S_IFDIR && mode & !bits & 0o111 != 0;
            files::perhaps_closing(context.backend, closes, |host| host.chmod(dir, path, bits))?;
        }
        Change::Owner(uid, gid) => context.backend.chown(dir, path, uid, gid, at_flags(place))?,
    }
    Ok(Verdict::Done(0))
}

fn by_descriptor<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let descriptor = arguments.int(0) as i32;
    more_than_a_name(context, descriptor)?;
    let change = Change::of(arguments)?;
    let mut dir = Dir::Guest(descriptor);
    let mut place = place_of(dir);
    context.buffers.found[0].clear();
    let Some(identity) = context.world.identity else {
        let facts = super::support::facts(context, &place, 0)?;
        return match target_of(context, descriptor, &facts)? {
            // The kernel changes the file that is open.
            Target::Itself => Ok(Verdict::Pass),
            Target::CopyUp => Ok(Verdict::CopyUp),
            Target::Nothing => Ok(Verdict::Done(0)),
            Target::Copy => {
                let host = context.buffers.host;
                context.buffers.found[0] = host;
                place.at = Dir::Root;
                by_host_ids(context, &place, change)
            }
        };
    };
    let (kind, read_only) = binding_of(context, dir)?;
    let mut found = files::look(context.backend, &identity, None, kind, dir, c"")?;
    if read_only {
        return Err(Errno::EROFS);
    }
    let new = change.apply(&context.task.creds, &found.truth)?;
    let shared = found.facts.stx_nlink > 1 || kind == Kind::Tree;
    if shared {
        match target_of(context, descriptor, &found.facts)? {
            Target::Itself => {}
            Target::CopyUp | Target::Nothing if new == found.truth => return Ok(Verdict::Done(0)),
            Target::CopyUp => return Ok(Verdict::CopyUp),
            Target::Nothing => return Ok(Verdict::Done(0)),
            Target::Copy => {
                dir = Dir::Root;
                let path = context.buffers.host.as_c_str();
                found = files::look(context.backend, &identity, None, kind, dir, path)?;
                let new = change.apply(&context.task.creds, &found.truth)?;
                return write(context.backend, &identity, kind, (dir, path), &found, &new);
            }
        }
    }
    write(context.backend, &identity, kind, (dir, c""), &found, &new)
}

fn write<N: Backend>(
    backend: &mut N,
    identity: &Identity,
    kind: Kind,
    at: (Dir, &core::ffi::CStr),
    found: &Found,
    new: &Truth,
) -> Result<Verdict> {
    if !found.emulates(kind) && (new.uid, new.gid) != (found.truth.uid, found.truth.gid) {
        // A device, or a file without a name: its owner cannot be recorded.
        return Ok(Verdict::Done(0));
    }
    identity::set_truth(backend, identity, kind, at, found, new)?;
    Ok(Verdict::Done(0))
}

fn mknod<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let mode = arguments.mode();
    let kind = match mode & S_IFMT {
        0 => S_IFREG,
        kind @ (S_IFREG | S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK) => kind,
        S_IFDIR => return Err(Errno::EPERM),
        _ => return Err(Errno::EINVAL),
    };
    let place = find(context, arguments, 0, Intent::NAME)?;
    let at = arguments.position(Role::Device).ok_or(Errno::ENOSYS)?;
    let result = make_node(context, &place, kind | mode & 0o7777, arguments.int(at));
    place.close(context.backend);
    result
}

fn make_node<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    mode: u32,
    device: u32,
) -> Result<Verdict> {
    let is_device = matches!(mode & S_IFMT, S_IFCHR | S_IFBLK);
    let numbers = if is_device { decode_device(device) } else { (0, 0) };
    let new = allow_new(context, place, 0, mode, numbers)?;
    let Some(truth) = new else {
        let path = context.buffers.found[0].as_c_str();
        context.backend.mknod(place.at, path, mode & !context.task.umask)?;
        return Ok(Verdict::Done(0));
    };
    // Every user may make overlay's whiteout (0, 0).
    let free = mode & S_IFMT == S_IFCHR && numbers == (0, 0);
    if is_device && !free && !context.task.creds.has(Capability::MKNOD) {
        return Err(unless_taken(context, place, 0, Errno::EPERM));
    }
    let bits = bits_of_new(context, place, mode, Some(&truth));
    let on_disk = if is_device { S_IFREG } else { truth.kind() };
    in_directory(context, &[(place, 0)], |context| {
        let path = context.buffers.found[0].as_c_str();
        context.backend.mknod(place.at, path, on_disk | bits)
    })?;
    let recorded = record_new(context, place, 0, Some(&truth));
    if is_device {
        // The cache may contain this name as an ordinary file.
        context.backend.changed();
    }
    recorded
}
