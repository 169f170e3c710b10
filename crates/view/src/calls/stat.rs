//! Decides the `stat` family.
//!
//! The view asks the host and writes the answer into the guest's memory, so that one stop of the
//! guest is enough. An ordinary file costs one `statx` besides the resolution of its name. Only the
//! mark in its mode makes the view read its record ([`crate::identity`]), only several links make
//! it look into the image's list, and it looks up the binding of an open file only if the answer
//! depends on it.

use super::access;
use super::arguments::Arguments;
use super::support::{self, at_flags, reach};
use crate::CallContext;
use crate::buffers::Layer;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use crate::identity::Truth;
use crate::identity::files::{self, NO_FACTS};
use crate::identity::record::{is_marked, may_be_recorded};
use crate::image;
use crate::paths::{self, Intent, Look, Origin, Place};
use crate::verdict::Verdict;
use crate::world::{Kind, World};
use abi::calls::{Op, Role};
use abi::index::Entry;
use abi::layout::stat::{Stat, statx_bytes};
use abi::layout::{u32_at, u64_at};
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW, S_IFCHR, S_IFDIR,
    S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, S_ISVTX, STATX__RESERVED, STATX_BASIC_STATS,
    statx,
};

/// Returns true if [`rule`] decides this call.
pub(super) const fn concerns(op: Op) -> bool {
    matches!(
        op,
        Op::Stat
            | Op::Lstat
            | Op::Fstat
            | Op::Oldstat
            | Op::Oldlstat
            | Op::Oldfstat
            | Op::Stat64
            | Op::Lstat64
            | Op::Fstat64
            | Op::Newfstatat
            | Op::Fstatat64
            | Op::Statx
            | Op::Access
            | Op::Faccessat
            | Op::Faccessat2
    )
}

/// Decides a call of this family.
pub(super) fn rule<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    match arguments.op() {
        Op::Access | Op::Faccessat | Op::Faccessat2 => access::access(context, arguments)?,
        Op::Fstat | Op::Oldfstat | Op::Fstat64 => {
            if !by_kernel(context, arguments, None)? {
                let mut facts = NO_FACTS;
                of_descriptor(context, arguments.dir(0), 0, &mut facts)?;
                answer(context, arguments, &facts)?;
            }
        }
        _ => {
            let flags = stat_flags(arguments)?;
            let done = in_own_directory(context, arguments, flags)?
                || by_index(context, arguments, flags)?
                || by_kernel(context, arguments, Some(flags))?;
            if !done {
                by_facts(context, arguments, flags)?;
            }
        }
    }
    Ok(Verdict::Done(0))
}

/// The `AT_*` flags of a call that names a file, or the error if the kernel calls them invalid.
fn stat_flags(arguments: &Arguments<'_>) -> Result<u32> {
    match arguments.op() {
        Op::Lstat | Op::Lstat64 | Op::Oldlstat => return Ok(AT_SYMLINK_NOFOLLOW),
        Op::Newfstatat | Op::Fstatat64 | Op::Statx => {}
        _ => return Ok(0),
    }
    let flags = arguments.flags();
    let known = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
    let bad_mask = arguments.op() == Op::Statx && arguments.int(3) & STATX__RESERVED != 0;
    if flags & !known != 0 || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE || bad_mask {
        return Err(Errno::EINVAL);
    }
    Ok(flags)
}

/// Answers from the image's index, without the kernel. Returns false if that is not possible.
fn by_index<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    flags: u32,
) -> Result<bool> {
    if context.world.image.is_none() {
        return Ok(false);
    }
    let asks_more = arguments.op() == Op::Statx && arguments.int(3) & !STATX_BASIC_STATS != 0;
    let (dir, address) = arguments.path(0)?;
    if address == 0 || asks_more || flags & AT_STATX_SYNC_TYPE != 0 {
        return Ok(false);
    }
    context.backend.read_text(address, &mut context.buffers.named[0])?;
    let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
    let Some(found) = paths::record_of(context, dir, 0, follow) else { return Ok(false) };
    show_entry(context, arguments, &found?.entry).map(|()| true)
}

/// Answers what the index says of a file.
fn show_entry<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    entry: &Entry,
) -> Result<()> {
    let Some(image) = context.world.image else { return Err(Errno::ENOSYS) };
    let mut facts = image.facts(entry);
    if context.world.identity.is_some() {
        show(&image.truth(entry), &mut facts);
    }
    answer(context, arguments, &facts)
}

fn by_facts<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    flags: u32,
) -> Result<()> {
    let mut facts = NO_FACTS;
    of_path(context, arguments, flags, &mut facts)?;
    answer(context, arguments, &facts)
}

/// Has the kernel write its answer into the guest's memory, and corrects the owner there: enough
/// for most files. `flags` are those of a call that names a file. Returns false if more is needed;
/// then the call has to be decided from the start, which writes the answer again or fails.
fn by_kernel<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    flags: Option<u32>,
) -> Result<bool> {
    let Some(Answer { form, into, mask }) = Answer::of(context, arguments) else {
        return Ok(false);
    };
    let written = match flags {
        None => context.backend.stat_into(arguments.dir(0), c"", AT_EMPTY_PATH, mask, into),
        Some(flags) => by_name(context, arguments, flags, mask, into)?,
    };
    match written {
        None => Ok(false),
        Some(Err(errno)) => Err(errno),
        Some(Ok(())) => {
            let itself = flags.is_none() || context.buffers.named[0].is_empty();
            let mut bytes = [0; FIRST];
            context.backend.read(into, &mut bytes)?;
            let is_device = u32_at(&bytes, form.mode) & S_IFMT == S_IFCHR;
            if let Some(image) = context.world.image.filter(|_| itself || is_device) {
                let inode = u64_at(&bytes, form.inode);
                let device = form.device(context, into, &bytes)?;
                // It may be a whiteout.
                if is_device && device == image.device {
                    return Ok(false);
                }
                if let Some((record, entry)) = image.of_inode(device, inode) {
                    let asks_more = mask.is_some_and(|mask| mask & !STATX_BASIC_STATS != 0);
                    if image.may_differ(record) || image::is_incomplete(&entry) || asks_more {
                        return Ok(false);
                    }
                    return show_entry(context, arguments, &entry).map(|()| true);
                }
            }
            let flags = flags.unwrap_or(AT_SYMLINK_NOFOLLOW);
            correct_answer(context, form, (into, &bytes), flags, itself)
        }
    }
}

/// How the kernel answers into the guest's memory.
struct Answer {
    form: Form,
    into: u64,
    mask: Option<u32>,
}

impl Answer {
    /// `None` if its answer would not do for most files.
    fn of<N: Backend>(context: &mut CallContext<'_, N>, arguments: &Arguments<'_>) -> Option<Self> {
        let form = match arguments.op() {
            Op::Statx => Form::STATX,
            op if Stat::of(arguments.arch, op) == Some(Stat::X86_64) => Form::STAT,
            _ => return None,
        };
        let usual = one_owner(context)
            && (context.world.identity.is_none() || context.task.creds.uid.files == 0)
            && context.backend.plain_generation().is_some();
        let into = arguments.word(arguments.position(form.role).filter(|_| usual)?);
        // The fields that are read afterwards are always asked for.
        let mask = (form.role == Role::Statx).then(|| arguments.int(3) | STATX_BASIC_STATS);
        Some(Self { form, into, mask })
    }
}

/// Answers for a single name in a directory in which a name was the container's own before: then
/// the kernel is asked first. Returns false if that was for nothing.
fn in_own_directory<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    flags: u32,
) -> Result<bool> {
    let Some(image) = context.world.image else { return Ok(false) };
    let (dir, address) = arguments.path(0)?;
    if context.buffers.own_directory != Some(dir) || address == 0 || context.world.overlaps {
        return Ok(false);
    }
    let Some(Answer { form, into, mask }) = Answer::of(context, arguments) else {
        return Ok(false);
    };
    context.backend.read_text(address, &mut context.buffers.named[0])?;
    let name = context.buffers.named[0].as_bytes();
    if !is_simple(context.world, name) || flags & AT_STATX_SYNC_TYPE != 0 {
        return Ok(false);
    }
    let name = context.buffers.named[0].as_c_str();
    let written = context.backend.stat_into(dir, name, AT_SYMLINK_NOFOLLOW, mask, into);
    if written != Some(Ok(())) {
        return Ok(false);
    }
    let mut bytes = [0; FIRST];
    context.backend.read(into, &mut bytes)?;
    let mode = u32_at(&bytes, form.mode);
    let device = form.device(context, into, &bytes)?;
    let is_own = device == image.device
        && matches!(mode & S_IFMT, S_IFREG | S_IFDIR)
        && !(mode & S_IFMT == S_IFDIR && (mode & S_ISVTX != 0 || image.changes.has_redirects()))
        && image.of_inode(device, u64_at(&bytes, form.inode)).is_none();
    if !is_own {
        return Ok(false);
    }
    correct_answer(context, form, (into, &bytes), flags, false)
}

/// Returns true for a single name that leads to no other directory.
fn is_simple(world: &World<'_>, name: &[u8]) -> bool {
    !name.contains(&b'/') && !matches!(name, b"" | b"." | b"..") && !world.is_bound(name)
}

/// `stat_into` of a file that is named; a link at the end is not followed.
fn by_name<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    flags: u32,
    mask: Option<u32>,
    into: u64,
) -> Result<Option<Result<()>>> {
    let (dir, address) = arguments.path(0)?;
    if flags & AT_STATX_SYNC_TYPE != 0 || address == 0 {
        return Ok(None);
    }
    context.backend.read_text(address, &mut context.buffers.named[0])?;
    let name = context.buffers.named[0].as_bytes();
    if name.is_empty() {
        let itself = flags & AT_EMPTY_PATH != 0 && dir != Dir::Cwd;
        let nothing = if itself {
            context.backend.stat_into(dir, c"", AT_EMPTY_PATH, mask, into)
        } else {
            None
        };
        return Ok(nothing);
    }
    if let Some(start) = paths::fast_path(context, dir, 0) {
        let path = start.path(context.buffers.named[0].with_nul());
        let written = context.backend.stat_into(start.dir, path, AT_SYMLINK_NOFOLLOW, mask, into);
        if matches!(written, Some(Ok(()) | Err(Errno::ENOENT))) {
            return Ok(written);
        }
    }
    let name = context.buffers.named[0].as_bytes();
    if !name.contains(&b'/') {
        let known = context.buffers.layer.filter(|(at, _)| *at == dir).map(|(_, layer)| layer);
        let simple = is_simple(context.world, name);
        if !simple || known.is_none() && paths::may_have_layers(context, dir) {
            return Ok(None);
        }
        let name = context.buffers.named[0].as_c_str();
        let written = context.backend.stat_into(dir, name, AT_SYMLINK_NOFOLLOW, mask, into);
        if known.is_some() {
            context.buffers.own_directory = Some(dir);
        }
        // It is about to be covered.
        let unsure = known == Some(Layer::Covered) && written == Some(Err(Errno::ENOENT));
        return Ok(written.filter(|_| !unsure));
    }
    let intent = Intent { look: Look::Later, ..Intent::FOLLOW.held() };
    let place = match paths::resolve_cached(context, dir, 0, intent) {
        Ok(Some(place)) => place,
        Ok(None) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    if !place.unseen {
        place.close(context.backend);
        return Ok(None);
    }
    let path = context.buffers.found[0].as_c_str();
    let written = context.backend.stat_into(place.at, path, AT_SYMLINK_NOFOLLOW, mask, into);
    Ok(written.filter(|result| {
        let certain = [Errno::ENOENT, Errno::ENOTDIR, Errno::ENAMETOOLONG, Errno::EFAULT];
        result.is_ok() || certain.iter().any(|errno| *result == Err(*errno))
    }))
}

/// Offsets of the fields that matter here in a structure that the kernel writes.
#[derive(Debug, Clone, Copy)]
struct Form {
    role: Role,
    device: Device,
    inode: usize,
    /// Link count. Fewer than 32 bits of it are ever used.
    links: usize,
    /// Mode, 16 bits wide in both structures.
    mode: usize,
    /// Owner; the group follows.
    owner: usize,
}

impl Form {
    /// `struct stat` of x86-64.
    const STAT: Self = Self {
        role: Role::Stat,
        device: Device::Whole(0),
        inode: 8,
        links: 16,
        mode: 24,
        owner: 28,
    };
    /// `struct statx`.
    const STATX: Self = Self {
        role: Role::Statx,
        device: Device::Parts(136),
        inode: 32,
        links: 16,
        mode: 28,
        owner: 20,
    };

    /// The major and minor number of the device in a structure at `at`, which begins with `bytes`.
    fn device<N: Backend>(
        self,
        context: &mut CallContext<'_, N>,
        at: u64,
        bytes: &[u8; FIRST],
    ) -> Result<(u32, u32)> {
        match self.device {
            Device::Whole(offset) => {
                let whole = u64_at(bytes, offset);
                let major = ((whole >> 8) & 0xfff | (whole >> 32) & !0xfff) as u32;
                Ok((major, (whole & 0xff | (whole >> 12) & !0xff) as u32))
            }
            Device::Parts(offset) => {
                let mut parts = [0; 8];
                context.backend.read(at + offset, &mut parts)?;
                Ok((u32_at(&parts, 0), u32_at(&parts, 4)))
            }
        }
    }
}

/// The first bytes of a structure, in which are most of the fields that matter.
const FIRST: usize = 40;

/// Offset of the device that contains a file.
#[derive(Debug, Clone, Copy)]
enum Device {
    /// `dev_t` of 64 bits.
    Whole(usize),
    /// Major and minor number, 32 bits each.
    Parts(u64),
}

/// Corrects the answer for the guest. Returns false if more than the owner may have to be changed,
/// or a link has to be followed. `itself`: the call names a descriptor, not a path.
fn correct_answer<N: Backend>(
    context: &mut CallContext<'_, N>,
    form: Form,
    (at, bytes): (u64, &[u8; FIRST]),
    flags: u32,
    itself: bool,
) -> Result<bool> {
    let mode = u32_at(bytes, form.mode) & 0xffff;
    let follows = mode & S_IFMT == S_IFLNK && flags & AT_SYMLINK_NOFOLLOW == 0;
    if follows {
        return Ok(false);
    }
    let (regular, inode) = (mode & S_IFMT == S_IFREG, u64_at(bytes, form.inode));
    // An open file may be a file of the image that a copy has replaced, however many names it has
    // left: the guest means the copy.
    if regular && itself && context.backend.was_replaced(inode) {
        return Ok(false);
    }
    if regular
        && u32_at(bytes, form.links) > 1
        && let Some(links) = context.backend.image_links(inode)
    {
        let (major, minor) = form.device(context, at, bytes)?;
        if !context.backend.is_image_device(major, minor) {
            return Ok(false);
        }
        context.backend.write(at + form.links as u64, &links.to_le_bytes())?;
    }
    let Some(identity) = context.world.identity else { return Ok(true) };
    if is_marked(mode) || may_be_recorded(mode) && context.backend.has_notes() {
        return Ok(false);
    }
    let (user, group) = (u32_at(bytes, form.owner), u32_at(bytes, form.owner + 4));
    let shown = |id: u32, host: u32| if id == host { 0 } else { id };
    let ids = [shown(user, identity.host_uid), shown(group, identity.host_gid)];
    if ids != [user, group] {
        let mut owner = [0; 8];
        owner[..4].copy_from_slice(&ids[0].to_le_bytes());
        owner[4..].copy_from_slice(&ids[1].to_le_bytes());
        context.backend.write(at + form.owner as u64, &owner)?;
    }
    Ok(true)
}

fn of_path<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    flags: u32,
    facts: &mut statx,
) -> Result<()> {
    let (dir, address) = arguments.path(0)?;
    let empty = flags & AT_EMPTY_PATH != 0;
    if empty && address == 0 {
        return of_descriptor(context, dir, flags, facts);
    }
    context.backend.read_text(address, &mut context.buffers.named[0])?;
    if context.buffers.named[0].is_empty() && empty {
        return of_descriptor(context, dir, flags, facts);
    }
    let mut intent = Intent::FOLLOW.with_at_flags(flags).held();
    if flags & AT_STATX_SYNC_TYPE == 0 {
        intent.look = Look::Facts;
    }
    intent.light = one_owner(context);
    if intent.light && !context.buffers.named[0].as_bytes().contains(&b'/') {
        // Mostly a single name is not a link, and one call shows both that and the status.
        let unheld = Intent { follow: false, hold: false, ..intent };
        at_path(context, dir, unheld, flags, facts)?;
        if !intent.follow || u32::from(facts.stx_mode) & S_IFMT != S_IFLNK {
            return Ok(());
        }
    }
    at_path(context, dir, intent, flags, facts)
}

fn at_path<N: Backend>(
    context: &mut CallContext<'_, N>,
    dir: Dir,
    intent: Intent,
    flags: u32,
    facts: &mut statx,
) -> Result<()> {
    let place = paths::resolve(context, dir, 0, intent)?;
    let result = of_place(context, &place, flags, facts);
    place.close(context.backend);
    result
}

/// Returns true if files without a record have the same owner in every binding.
fn one_owner<N: Backend>(context: &CallContext<'_, N>) -> bool {
    context.world.identity.is_none_or(|identity| (identity.uid, identity.gid) == (0, 0))
}

fn of_place<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    flags: u32,
    facts: &mut statx,
) -> Result<()> {
    if place.seen {
        *facts = context.buffers.seen[0];
    } else {
        let (dir, path) = reach(context.buffers, place, 0);
        context.backend.statx(dir, path, at_flags(place) | flags & AT_STATX_SYNC_TYPE, facts)?;
    }
    if place.directory && u32::from(facts.stx_mode) & S_IFMT != S_IFDIR {
        return Err(Errno::ENOTDIR);
    }
    let kind = place.binding.map(|_| place.kind).filter(|_| !place.magic);
    to_guest(context, place, kind, facts);
    Ok(())
}

fn of_descriptor<N: Backend>(
    context: &mut CallContext<'_, N>,
    dir: Dir,
    flags: u32,
    facts: &mut statx,
) -> Result<()> {
    let flags = AT_EMPTY_PATH | flags & AT_STATX_SYNC_TYPE;
    context.backend.statx(dir, c"", flags, facts)?;
    context.buffers.found[0].clear();
    let mut place = place_of(dir);
    let replaced = match context.world.image {
        Some(image) => image.of_facts(facts).is_some_and(|(record, _)| image.may_differ(record)),
        None => {
            u32::from(facts.stx_mode) & S_IFMT == S_IFREG
                && context.backend.was_replaced(facts.stx_ino)
        }
    };
    if replaced {
        by_copy(context, &mut place, flags, facts)?;
    }
    let kind = place.binding.map(|_| place.kind);
    to_guest(context, &place, kind, facts);
    Ok(())
}

/// An open file may be a file of the image that a copy has replaced: then the guest means the copy.
/// Kept out of its caller's stack frame, which would become as large.
#[inline(never)]
fn by_copy<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &mut Place,
    flags: u32,
    facts: &mut statx,
) -> Result<()> {
    if support::away_from_image(context, place, 0).is_ok() && place.at == Dir::Root {
        let path = context.buffers.found[0].as_c_str();
        context.backend.statx(Dir::Root, path, flags | AT_SYMLINK_NOFOLLOW, facts)?;
    }
    Ok(())
}

/// The place of a descriptor, whose binding is not known.
pub(super) const fn place_of(dir: Dir) -> Place {
    Place::itself(dir)
}

/// Turns the kernel's status into the guest's. `kind` is `None` if it is not known yet.
fn to_guest<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    mut kind: Option<Kind>,
    facts: &mut statx,
) {
    if let Some(image) = context.world.image
        && let Some((_, entry)) = image.of_facts(facts)
    {
        image::correct(&entry, facts);
        kind = Some(Kind::Tree);
    }
    let mode = u32::from(facts.stx_mode);
    if context.world.image.is_none()
        && mode & S_IFMT == S_IFREG
        && facts.stx_nlink > 1
        && let Some(links) = context.backend.image_links(facts.stx_ino)
        && (kind.is_none()
            && context.backend.is_image_device(facts.stx_dev_major, facts.stx_dev_minor)
            || kind_or_find(context, place, &mut kind) == Kind::Tree)
    {
        facts.stx_nlink = links;
    }
    let Some(identity) = context.world.identity else { return };
    let user = context.task.creds.uid.files;
    let nameless = matches!(mode & S_IFMT, S_IFIFO | S_IFSOCK)
        && user != 0
        && kind.is_none()
        && facts.stx_uid == identity.host_uid
        && origin(context, place) == Origin::Unnamed;
    if nameless {
        // A pipe or socket: most likely the caller's own.
        facts.stx_uid = user;
        facts.stx_gid = context.task.creds.gid.files;
        return;
    }
    if !one_owner(context) {
        kind_or_find(context, place, &mut kind);
    }
    let kind = kind.unwrap_or(Kind::Host);
    let (dir, path) = reach(context.buffers, place, 0);
    let (truth, _) = files::truth_of(context.backend, &identity, None, kind, (dir, path), facts);
    if let Some(image) = context.world.image
        && (facts.stx_dev_major, facts.stx_dev_minor) == image.device
        && let Some(inode) = files::origin(context.backend, (dir, path), facts)
    {
        image.correct_copy(inode, facts);
    }
    let hosts = (facts.stx_uid, facts.stx_gid);
    show(&truth, facts);
    if kind == Kind::Proc {
        (facts.stx_uid, facts.stx_gid) = of_proc(context, hosts);
    }
}

/// Kept out of its caller's stack frame, which would become as large.
#[inline(never)]
fn of_proc<N: Backend>(context: &mut CallContext<'_, N>, hosts: (u32, u32)) -> (u32, u32) {
    let found = context.buffers.found[0];
    crate::proc::owner(context, found.as_bytes(), hosts.0, hosts.1)
}

fn show(truth: &Truth, facts: &mut statx) {
    facts.stx_mode = truth.mode as u16;
    facts.stx_uid = truth.uid;
    facts.stx_gid = truth.gid;
    (facts.stx_rdev_major, facts.stx_rdev_minor) = truth.device;
}

fn kind_or_find<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    kind: &mut Option<Kind>,
) -> Kind {
    *kind.get_or_insert_with(|| kind_of(context, place))
}

/// The origin of a file whose binding was not looked up.
fn origin<N: Backend>(context: &mut CallContext<'_, N>, place: &Place) -> Origin {
    let buffers = &mut *context.buffers;
    let dir = place.held.map_or(place.at, Dir::Held);
    match context.backend.path_of(dir, &mut buffers.link) {
        Ok(()) => paths::reverse(context.world, buffers.link.as_bytes(), &mut buffers.walk)
            .unwrap_or(Origin::Outside),
        Err(_) => Origin::Outside,
    }
}

/// What kind of files the binding of a place holds, if it was not looked up. A file without a name
/// is [`Kind::Mask`]: nothing is recorded of it.
pub(super) fn kind_of<N: Backend>(context: &mut CallContext<'_, N>, place: &Place) -> Kind {
    match origin(context, place) {
        Origin::Inside(index) => context.world.bindings[index].kind,
        Origin::Outside => Kind::Host,
        Origin::Unnamed => Kind::Mask,
    }
}

fn answer<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    facts: &statx,
) -> Result<()> {
    if arguments.op() == Op::Statx {
        return context.backend.write(arguments.word(4), &statx_bytes(facts));
    }
    let form = Stat::of(arguments.arch, arguments.op()).ok_or(Errno::ENOSYS)?;
    let at = arguments.position(Role::Stat).ok_or(Errno::ENOSYS)?;
    let (bytes, size) = form.write(facts).map_err(|_| Errno::EOVERFLOW)?;
    context.backend.write(arguments.word(at), &bytes[..size])
}
