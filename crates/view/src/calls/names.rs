//! Making and removing names: `mkdir`, `rmdir`, `unlink`, `rename`, `link`, `symlink`. All of them are done here, through the host.
//!
//! The order of the errors is the kernel's (`fs/namei.c`): a bad end of the name, `EROFS` where nothing has been looked up yet, what is
//! there or not, permissions, and at last what the file system says.

use super::arguments::Arguments;
use super::support::{
    copy_up, emulated, exists, facts, find, is_directory, is_shared, look, unless_no_directory,
    with_place, without_slash,
};
use crate::Scene;
use crate::errno::{Errno, Result};
use crate::guest::{Dir, Nerves};
use crate::identity::record::may_be_recorded;
use crate::identity::{self, Truth, Want, look_parent, rules};
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

/// Decides one of them.
pub(super) fn enter<N: Nerves>(
    scene: &mut Scene<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    match arguments.op() {
        Op::Mkdir | Op::Mkdirat => with_place(scene, arguments, Intent::NAME, |scene, place| {
            make_directory(scene, place, arguments.mode())
        }),
        Op::Symlink | Op::Symlinkat => symlink(scene, arguments),
        Op::Unlink | Op::Rmdir | Op::Unlinkat => {
            let flags = if arguments.op() == Op::Rmdir { AT_REMOVEDIR } else { arguments.flags() };
            if flags & !AT_REMOVEDIR != 0 {
                return Err(Errno::EINVAL);
            }
            with_place(scene, arguments, Intent::NAME, |scene, place| remove(scene, place, flags))
        }
        Op::Link | Op::Linkat => two(scene, arguments, link_intent(arguments)?, link),
        _ => {
            let flags = arguments.flags();
            if flags & !(NO_REPLACE | EXCHANGE | WHITEOUT) != 0
                || (flags & EXCHANGE != 0 && flags & (NO_REPLACE | WHITEOUT) != 0)
            {
                return Err(Errno::EINVAL);
            }
            two(scene, arguments, Intent::NAME, rename)
        }
    }
}

/// Two places of one call.
struct Pair {
    old: Place,
    new: Place,
    flags: u32,
}

fn two<N: Nerves>(
    scene: &mut Scene<'_, N>,
    arguments: &Arguments<'_>,
    intent: Intent,
    then: impl FnOnce(&mut Scene<'_, N>, &Pair) -> Result<Verdict>,
) -> Result<Verdict> {
    // Asked before anything is held, whose descriptor may get that number.
    let start = match arguments.path(1)? {
        (Dir::Guest(descriptor), _) => scene.nerves.only_names(descriptor).map(|_| ()),
        _ => Ok(()),
    };
    let old = find(scene, arguments, 0, intent)?;
    let new = match start {
        Err(errno) if is_relative(scene, arguments) => Err(errno),
        _ => find(scene, arguments, 1, Intent::NAME),
    };
    let result = match new {
        Ok(new) => {
            let pair = Pair { old, new, flags: arguments.flags() };
            let result = then(scene, &pair);
            new.close(scene.nerves);
            result
        }
        // The kernel looks for the first directory before it takes notice of the second name.
        Err(errno) => Err(unless_no_directory(scene, &old, 0, errno)),
    };
    old.close(scene.nerves);
    result
}

/// Whether the second name of a call is one, and begins at its directory.
fn is_relative<N: Nerves>(scene: &mut Scene<'_, N>, arguments: &Arguments<'_>) -> bool {
    let name = &mut scene.desk.named[1];
    arguments
        .path(1)
        .and_then(|(_, address)| scene.nerves.read_text(address, name))
        .is_ok_and(|()| !matches!(name.as_bytes().first(), None | Some(b'/')))
}

/// What every new name needs; `mode` with its type, the umask applied. `None` where ids are the host's.
pub(super) fn allow_new<N: Nerves>(
    scene: &mut Scene<'_, N>,
    place: &Place,
    which: usize,
    mode: u32,
    device: (u32, u32),
) -> Result<Option<Truth>> {
    if place.last != Last::Name || place.mount_point {
        return Err(unless_no_directory(scene, place, which, Errno::EEXIST));
    }
    if place.directory && mode & S_IFMT != S_IFDIR {
        return Err(slash_behind(scene, place, which));
    }
    let result = if place.read_only {
        Err(Errno::EROFS)
    } else if let Some(identity) = emulated(scene, place.kind) {
        look_parent(scene, &identity, place, which).and_then(|parent| {
            rules::may_create(&scene.task.creds, &parent.truth)?;
            Ok(Some(rules::new_file(&scene.task.creds, &parent.truth, mode, device)))
        })
    } else {
        Ok(None)
    };
    result.map_err(|errno| unless_taken(scene, place, which, errno))
}

/// Why a name cannot be made: the kernel looks it up before it asks whether that is allowed.
pub(super) fn unless_taken<N: Nerves>(
    scene: &mut Scene<'_, N>,
    place: &Place,
    which: usize,
    errno: Errno,
) -> Errno {
    match facts(scene, place, which) {
        Ok(_) => Errno::EEXIST,
        Err(errno @ (Errno::ENOTDIR | Errno::ENAMETOOLONG)) => errno,
        Err(_) => errno,
    }
}

/// Why a slash behind the name of what will be no directory is refused.
fn slash_behind<N: Nerves>(scene: &mut Scene<'_, N>, place: &Place, which: usize) -> Errno {
    unless_taken(scene, place, which, Errno::ENOENT)
}

/// Records what was just made at a name; takes it away again if that cannot be.
pub(super) fn record_new<N: Nerves>(
    scene: &mut Scene<'_, N>,
    place: &Place,
    which: usize,
    new: Option<&Truth>,
) -> Result<Verdict> {
    let (Some(identity), Some(new)) = (scene.world.identity, new) else {
        return Ok(Verdict::Done(0));
    };
    let at = (place.at, scene.desk.found[which].as_c_str());
    if let Err(errno) = identity::created(scene.nerves, &identity, place.kind, at, new) {
        let flags = if new.is_directory() { AT_REMOVEDIR } else { 0 };
        let _ = scene.nerves.unlink(at.0, at.1, flags);
        return Err(errno);
    }
    Ok(Verdict::Done(0))
}

fn make_directory<N: Nerves>(
    scene: &mut Scene<'_, N>,
    place: &Place,
    mode: u32,
) -> Result<Verdict> {
    let mode = mode & 0o1777 & !scene.task.umask;
    let new = allow_new(scene, place, 0, S_IFDIR | mode, (0, 0))?;
    let bits = new.map_or(mode, |new| new.disk_bits());
    scene.nerves.mkdir(place.at, scene.desk.found[0].as_c_str(), bits)?;
    record_new(scene, place, 0, new.as_ref())
}

fn symlink<N: Nerves>(scene: &mut Scene<'_, N>, arguments: &Arguments<'_>) -> Result<Verdict> {
    scene.nerves.read_text(arguments.word(0), &mut scene.desk.spare[0])?;
    if scene.desk.spare[0].is_empty() {
        return Err(Errno::ENOENT);
    }
    with_place(scene, arguments, Intent::NAME, |scene, place| {
        let new = allow_new(scene, place, 0, S_IFLNK | 0o777, (0, 0))?;
        let desk = &*scene.desk;
        let (target, path) = (desk.spare[0].as_c_str(), desk.found[0].as_c_str());
        scene.nerves.symlink(target, place.at, path)?;
        record_new(scene, place, 0, new.as_ref())
    })
}

fn remove<N: Nerves>(scene: &mut Scene<'_, N>, place: &Place, flags: u32) -> Result<Verdict> {
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
        return Err(unless_no_directory(scene, place, 0, errno));
    }
    if place.mount_point {
        may_take_mount_point(scene, place)?;
        let is_directory = facts(scene, place, 0).is_ok_and(|facts| is_directory(&facts));
        return Err(match (is_directory, directory) {
            (true, false) => Errno::EISDIR,
            (false, true) => Errno::ENOTDIR,
            _ => Errno::EBUSY,
        });
    }
    if place.read_only {
        return Err(Errno::EROFS);
    }
    if let Some(identity) = emulated(scene, place.kind).filter(|_| !scene.task.creds.overrides()) {
        let victim = look(scene, &identity, place, 0)?;
        if place.directory && !directory {
            return Err(if victim.truth.is_directory() { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        let parent = look_parent(scene, &identity, place, 0)?;
        rules::may_delete(&scene.task.creds, &parent.truth, &victim.truth)?;
    }
    if directory && place.holds_mounts {
        return Err(Errno::ENOTEMPTY);
    }
    let known = directory || in_root(scene, place, 0);
    let removed = changing(scene, known && place.kind == Kind::Tree, |scene| {
        scene.nerves.unlink(place.at, scene.desk.found[0].as_c_str(), flags)
    });
    match removed {
        // Root gets further in what is the kernel's own, and so does everybody with what is open here.
        Err(Errno::EACCES) if place.kind == Kind::Proc && gets_further(scene) => {
            let found = facts(scene, place, 0)?;
            Err(match (is_directory(&found), directory) {
                (false, true) => Errno::ENOTDIR,
                (true, false) => Errno::EISDIR,
                _ => Errno::EPERM,
            })
        }
        result => result.map(|()| Verdict::Done(0)),
    }
}

fn rename<N: Nerves>(scene: &mut Scene<'_, N>, pair: &Pair) -> Result<Verdict> {
    let Pair { old, new, flags } = pair;
    let busy = |place: &Place| place.last != Last::Name || place.mount_point;
    if mount_above(scene.world, old) != mount_above(scene.world, new) {
        return Err(unless_nowhere(scene, pair, Errno::EXDEV));
    }
    if busy(old) || busy(new) {
        let errno = why_busy(scene, pair);
        return Err(unless_nowhere(scene, pair, errno));
    }
    if old.read_only || new.read_only {
        return Err(Errno::EROFS);
    }
    may_rename(scene, pair)?;
    // A binding keeps its name: its parents cannot be renamed, which only a kernel could do.
    if old.holds_mounts || new.holds_mounts {
        return Err(Errno::EBUSY);
    }
    let known = old.kind == Kind::Tree
        && (in_root(scene, old, 0)
            || in_root(scene, new, 1)
            || moves_more(scene, old, 0)
            || flags & EXCHANGE != 0 && moves_more(scene, new, 1));
    let identity = emulated(scene, old.kind).filter(|_| flags & WHITEOUT != 0);
    let flags = if identity.is_some() { flags & !WHITEOUT } else { *flags };
    changing(scene, known || identity.is_some(), |scene| {
        let desk = &*scene.desk;
        let (from, to) = (desk.found[0].as_c_str(), desk.found[1].as_c_str());
        scene.nerves.rename((old.at, from), (new.at, to), flags)?;
        identity.map_or(Ok(()), |identity| leave_whiteout(scene, old, &identity))
    })?;
    Ok(Verdict::Done(0))
}

/// A device of overlay's (0, 0) in the place of what was renamed: as every other, it is a file that stands for it, and so has an owner.
fn leave_whiteout<N: Nerves>(
    scene: &mut Scene<'_, N>,
    place: &Place,
    identity: &Identity,
) -> Result<()> {
    let parent = look_parent(scene, identity, place, 0)?;
    let new = rules::new_file(&scene.task.creds, &parent.truth, S_IFCHR, (0, 0));
    without_slash(scene, 0, |scene| {
        let path = scene.desk.found[0].as_c_str();
        match scene.nerves.mknod(place.at, path, S_IFREG | new.disk_bits()) {
            // Two names of one file: nothing was renamed.
            Err(Errno::EEXIST) => Ok(()),
            result => {
                result?;
                record_new(scene, place, 0, Some(&new)).map(|_| ())
            }
        }
    })
}

/// Whether the kernel looks at a name of `/proc` (`desk.found[0]`) before it refuses to remove it, whoever asks for the guest.
fn gets_further<N: Nerves>(scene: &Scene<'_, N>) -> bool {
    scene.task.creds.overrides()
        || proc::is_own_descriptor(scene.nerves, scene.desk.found[0].as_bytes())
}

/// The binding of the directory that a name stands in.
fn mount_above(world: &World<'_>, place: &Place) -> Option<usize> {
    let binding = place.binding.and_then(|index| world.bindings.get(index));
    let Some(binding) = binding.filter(|_| place.mount_point && place.last == Last::Name) else {
        return place.binding;
    };
    let end = binding.guest.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    paths::find(world, &binding.guest[..end.max(1)]).map(|(index, _)| index)
}

/// Both directories are looked for before anything else is said.
fn unless_nowhere<N: Nerves>(scene: &mut Scene<'_, N>, pair: &Pair, errno: Errno) -> Errno {
    let errno = unless_no_directory(scene, &pair.new, 1, errno);
    unless_no_directory(scene, &pair.old, 0, errno)
}

/// Does something to a name; where what is `known` of directories may become false by that, it is forgotten, before and after: others may look at
/// them meanwhile, and this process may be killed.
fn changing<N: Nerves>(
    scene: &mut Scene<'_, N>,
    known: bool,
    change: impl FnOnce(&mut Scene<'_, N>) -> Result<()>,
) -> Result<()> {
    if known {
        scene.nerves.changed();
    }
    let result = change(scene);
    if known {
        scene.nerves.changed();
    }
    result
}

fn in_root<N: Nerves>(scene: &Scene<'_, N>, place: &Place, which: usize) -> bool {
    paths::is_in_root(scene.world, place, scene.desk.found[which].as_bytes())
}

/// Whether a directory gets another name, or what may stand for a device. Who remembers nothing is not asked: the others are told in any case.
fn moves_more<N: Nerves>(scene: &mut Scene<'_, N>, place: &Place, which: usize) -> bool {
    scene.nerves.plain_generation().is_none()
        || facts(scene, place, which).is_ok_and(|facts| is_more(&facts))
}

fn is_more(facts: &statx) -> bool {
    is_directory(facts) || may_be_recorded(u32::from(facts.stx_mode))
}

/// A directory does not become its own child (`EINVAL`), nor take its parent's place.
fn nested<N: Nerves>(scene: &Scene<'_, N>, pair: &Pair) -> Result<()> {
    if pair.old.at != pair.new.at {
        return Ok(());
    }
    let bare = |which: usize| {
        let path = scene.desk.found[which].as_bytes();
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

/// Why a mount point, or what is no name, cannot be renamed or replaced.
fn why_busy<N: Nerves>(scene: &mut Scene<'_, N>, pair: &Pair) -> Errno {
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
            return may_take_mount_point(scene, place);
        }
        if place.read_only {
            return Err(Errno::EROFS);
        }
        let Some(identity) = emulated(scene, place.kind) else { return Ok(()) };
        let victim = match look(scene, &identity, place, which) {
            Err(Errno::ENOENT) if which == 1 => None,
            victim => Some(victim?),
        };
        let parent = look_parent(scene, &identity, place, which)?;
        match victim {
            Some(victim) => rules::may_delete(&scene.task.creds, &parent.truth, &victim.truth),
            None => rules::may_create(&scene.task.creds, &parent.truth),
        }
    });
    asked.err().unwrap_or(Errno::EBUSY)
}

/// Whether the caller might remove the name of a mount point from its directory. The kernel asks that before it says `EBUSY`; what the
/// mount point covers is looked at, not what is mounted.
fn may_take_mount_point<N: Nerves>(scene: &mut Scene<'_, N>, place: &Place) -> Result<()> {
    let world = scene.world;
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
    let Some(identity) = emulated(scene, parent.kind).filter(|_| !scene.task.creds.overrides())
    else {
        return Ok(());
    };
    let host = &mut scene.desk.host;
    host.set(if parent.host == b"/" { b"" } else { parent.host })?;
    host.push(if host.is_empty() && rest.is_empty() { b"/" } else { rest })?;
    let path = scene.desk.host.as_c_str();
    let directory = identity::look(scene.nerves, &identity, parent.kind, Dir::Root, path)?.truth;
    scene.desk.host.push_component(name)?;
    let path = scene.desk.host.as_c_str();
    let covered = identity::look(scene.nerves, &identity, parent.kind, Dir::Root, path)
        .map_or_else(|_| Truth { mode: S_IFDIR | 0o755, ..Truth::default() }, |found| found.truth);
    rules::may_delete(&scene.task.creds, &directory, &covered)
}

/// Permissions of `rename` for those who do not override them.
fn may_rename<N: Nerves>(scene: &mut Scene<'_, N>, pair: &Pair) -> Result<()> {
    let Some(identity) = emulated(scene, pair.old.kind) else { return Ok(()) };
    if scene.task.creds.overrides() {
        return Ok(());
    }
    let moved = look(scene, &identity, &pair.old, 0)?;
    let replaced = match look(scene, &identity, &pair.new, 1) {
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
    nested(scene, pair)?;
    let same = |one: &identity::Found, other: &identity::Found| {
        one.facts.stx_ino == other.facts.stx_ino
            && one.facts.stx_dev_minor == other.facts.stx_dev_minor
            && one.facts.stx_dev_major == other.facts.stx_dev_major
    };
    if replaced.as_ref().is_some_and(|replaced| same(replaced, &moved)) {
        return Ok(());
    }
    let from = look_parent(scene, &identity, &pair.old, 0)?;
    let to = look_parent(scene, &identity, &pair.new, 1)?;
    let who = &scene.task.creds;
    rules::may_delete(who, &from.truth, &moved.truth)?;
    match &replaced {
        Some(replaced) => rules::may_delete(who, &to.truth, &replaced.truth)?,
        None => rules::may_create(who, &to.truth)?,
    }
    if same(&from, &to) {
        return Ok(());
    }
    // A directory that gets another parent is changed itself: its `..`.
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

fn link<N: Nerves>(scene: &mut Scene<'_, N>, pair: &Pair) -> Result<Verdict> {
    let Pair { old, new, .. } = pair;
    let found = facts(scene, old, 0)?;
    allow_name(scene, new)?;
    // What a descriptor alone leads to has no binding that could differ.
    let nameless = old.magic || old.last == Last::Empty;
    if !nameless && !old.same_mount(new) {
        return Err(unless_taken(scene, new, 1, Errno::EXDEV));
    }
    if let Some(identity) = emulated(scene, new.kind).filter(|_| !scene.task.creds.overrides()) {
        // A file that only `/proc` leads to (made without a name) is of the kind that its name will be.
        let kind = if old.magic { new.kind } else { old.kind };
        let source = look(scene, &identity, &Place { kind, ..*old }, 0)?;
        let parent = look_parent(scene, &identity, new, 1)?;
        let allowed = rules::may_link(&scene.task.creds, &source.truth)
            .and_then(|()| rules::may_create(&scene.task.creds, &parent.truth));
        if let Err(errno) = allowed {
            return Err(unless_taken(scene, new, 1, errno));
        }
    }
    if is_shared(scene, old.kind, &found) {
        if exists(scene, new, 1) {
            return Err(Errno::EEXIST);
        }
        return copy_up(scene, old, 0);
    }
    let desk = &*scene.desk;
    let (from, to) = (desk.found[0].as_c_str(), desk.found[1].as_c_str());
    let flags = if old.magic {
        AT_SYMLINK_FOLLOW
    } else if from.is_empty() {
        AT_EMPTY_PATH
    } else {
        0
    };
    scene.nerves.link((old.at, from), (new.at, to), flags)?;
    if is_more(&found) {
        scene.nerves.changed();
    }
    Ok(Verdict::Done(0))
}

/// The new name of a link, but for permissions.
fn allow_name<N: Nerves>(scene: &mut Scene<'_, N>, new: &Place) -> Result<()> {
    if new.last != Last::Name || new.mount_point {
        return Err(unless_no_directory(scene, new, 1, Errno::EEXIST));
    }
    if new.directory {
        return Err(slash_behind(scene, new, 1));
    }
    if new.read_only {
        return Err(unless_taken(scene, new, 1, Errno::EROFS));
    }
    Ok(())
}
