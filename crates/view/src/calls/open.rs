//! Decides `open`, `openat`, `openat2`, `creat`: the guest's own process opens the file, by the
//! host's path if the guest's would not lead to it.
//!
//! Before, the rules do the following:
//!
//! - A file of the image that is to be written is copied first.
//! - Read-only bindings fail with `EROFS`.
//! - An emulated user is checked against the emulated mode. Emulated root must not be refused by
//!   the mode on disk, so that is changed: permanently if a record holds the true mode, for the
//!   duration of the call in directories of the host.
//! - For a file that stands for a device, the device is opened.
//! - Files of `/proc` that name paths get contents made for the guest.
//! - The file of the host name is one of the backend's ([`super::host_name`]).
//!
//! A new file that needs a record is made by the view, and then opened as one that exists: so no
//! other process finds it without its owner, and the owner is who made it. Only one without a name
//! gets its record after the guest's call has made it.

mod layers;
mod making;

use super::arguments::{Arguments, OpenFlags, open_bits};
use super::support::{
    binding_of, call_at, copy_up, emulated, facts, find_named, from_tree, is_shared, look,
    not_executed, on_place, own_directory, reach,
};
use super::{abandon, host_name};
use crate::CallContext;
use crate::buffers::Layer;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, HostFd, Purpose, Straight};
use crate::identity::record::may_be_recorded;
use crate::identity::{self, Found, Truth, rules};
use crate::paths::{self, Intent, Look, Place, Start};
use crate::proc;
use crate::verdict::{After, Call, Verdict};
use crate::world::{Identity, Kind};
use abi::calls::Op;
use layers::open_by_index;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_FDCWD, S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, statx,
};
use making::{make, prepare_nameless};
pub(super) use making::{opened_new, record_created, record_inherited};

/// The request to open.
#[derive(Debug, Clone, Copy)]
struct Request {
    flags: OpenFlags,
    /// The mode of a new file, before the umask.
    mode: u32,
    /// `RESOLVE_*`.
    resolve: u64,
}

impl Request {
    /// Returns true if an existing file is to be read, and nothing else.
    fn reads(&self) -> bool {
        let more = open_bits::CREAT | open_bits::TRUNC | open_bits::PATH | open_bits::TMPFILE;
        self.flags.raw & open_bits::ACCMODE == 0 && !self.flags.has(more) && self.resolve == 0
    }
}

/// Decides a call of this family.
pub(super) fn enter<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let mut request = request(context, arguments)?;
    request.flags.check()?;
    let (dir, address) = arguments.path(0)?;
    context.backend.read_text(address, &mut context.buffers.named[0])?;
    // Where bindings overlap, a directory has several names: its descriptor needs to know by which
    // it was opened.
    let enters = context.world.overlaps && request.reads();
    context.buffers.careful |= enters;
    if request.reads()
        && may_read_all(context)
        && arguments.op() != Op::Openat2
        && let Some(verdict) = open_by_index(context, arguments, &request, dir)?
    {
        return Ok(verdict);
    }
    if !enters
        && is_single_name(context, &request, dir)
        && (context.buffers.layer == Some((dir, Layer::Own))
            || !paths::may_have_layers(context, dir))
    {
        let generation = context.backend.plain_generation().filter(|_| !context.buffers.careful);
        if let Some(generation) = generation.filter(|_| arguments.op() != Op::Openat2) {
            return open_unseen(context, arguments, &request, (generation, true));
        }
        if is_plain(context, dir) {
            return Ok(Verdict::Pass);
        }
    }
    if request.reads()
        && may_read_all(context)
        && arguments.op() != Op::Openat2
        && let Some(generation) = context.backend.plain_generation()
        && let Some(start) = paths::fast_path(context, dir, 0)
    {
        return open_by_fast_path(context, arguments, &request, start, generation);
    }
    let intent = intent(context, &request, arguments.op());
    let generation =
        if intent.look == Look::Later { context.backend.plain_generation() } else { None };
    let place = find_named(context, dir, 0, intent)?;
    if let Some(generation) = generation
        && place.unseen
    {
        return open_unseen(context, arguments, &request, (generation, false));
    }
    let mut place = place;
    let mut verdict = decide_and_close(context, arguments, &mut request, &place)?;
    for _ in 0..TRIES {
        if verdict.is_some() {
            break;
        }
        place = find_named(context, dir, 0, intent)?;
        verdict = decide_and_close(context, arguments, &mut request, &place)?;
    }
    let verdict = verdict.ok_or(Errno::EEXIST)?;
    let verdict = if enters { watch_entered(verdict, &place) } else { verdict };
    match verdict {
        Verdict::Instead(call, after) if arguments.op() == Op::Openat2 => {
            let how = how(context, &request).inspect_err(|_| abandon(context.backend, after))?;
            Ok(Verdict::Instead(call_at(&call, &[(2, how), (3, HOW)]), after))
        }
        verdict => Ok(verdict),
    }
}

/// How often a name is looked up again that another process makes and removes.
const TRIES: u32 = 16;

/// Decides an open at a place, and closes that. `None` if the name was made meanwhile.
fn decide_and_close<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    request: &mut Request,
    place: &Place,
) -> Result<Option<Verdict>> {
    let mut held = place.held;
    let verdict = decide(context, arguments, request, place);
    if let Ok(Some(Verdict::Instead(_, After::Restore(..)) | Verdict::Watch(After::Restore(..)))) =
        verdict
    {
        held = None;
    }
    Place { held, ..*place }.close(context.backend);
    verdict
}

/// Notes by which binding a directory was opened, after it was.
pub(super) fn note_entered<N: Backend>(
    context: &mut CallContext<'_, N>,
    descriptor: i64,
    binding: usize,
) {
    let Ok(descriptor @ 0..) = i32::try_from(descriptor) else { return };
    let (at, mut facts) = (Dir::Guest(descriptor), identity::files::NO_FACTS);
    if context.backend.statx(at, c"", AT_EMPTY_PATH, &mut facts).is_ok()
        && u32::from(facts.stx_mode) & S_IFMT == S_IFDIR
    {
        context.backend.set_entered(descriptor, binding);
    }
}

/// Has the binding of a directory noted, if nothing else is to be done after it was opened.
fn watch_entered(verdict: Verdict, place: &Place) -> Verdict {
    let Some(after) = place.binding.map(After::Entered) else { return verdict };
    match verdict {
        Verdict::Pass => Verdict::Watch(after),
        Verdict::Instead(call, After::Nothing) => Verdict::Instead(call, after),
        other => other,
    }
}

/// Returns true if a file is to be read by a single name in a directory of the guest: then the
/// place of that directory does not matter, and it is enough to check the file.
fn is_single_name<N: Backend>(context: &CallContext<'_, N>, request: &Request, dir: Dir) -> bool {
    let name = context.buffers.named[0].as_bytes();
    request.reads()
        && may_read_all(context)
        && dir != Dir::Root
        && !name.is_empty()
        && !matches!(name, b"." | b"..")
        && !name.contains(&b'/')
        && !context.world.is_bound(name)
}

/// Returns true if it is an ordinary file or directory. A file with blocks on a disk is not in
/// `/proc`.
fn is_plain<N: Backend>(context: &mut CallContext<'_, N>, dir: Dir) -> bool {
    let Ok(place) = paths::resolve(context, dir, 0, Intent::NO_FOLLOW.lightly()) else {
        return false;
    };
    let light = place.direct && place.at == dir && place.binding.is_none();
    let facts = if light { facts(context, &place, 0) } else { Err(Errno::ENOENT) };
    place.close(context.backend);
    facts.is_ok_and(|facts| {
        let mode = u32::from(facts.stx_mode);
        let is_callers =
            context.world.identity.is_some_and(|identity| identity.host_uid == facts.stx_uid);
        matches!(mode & S_IFMT, S_IFREG | S_IFDIR)
            && facts.stx_blocks > 0
            && !may_be_recorded(mode)
            && (mode & 0o400 != 0 || !is_callers)
    })
}

fn request<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Request> {
    let arch = arguments.arch;
    let plain = |flags: u32, mode: u32| {
        let flags = OpenFlags::new(arch, flags);
        Request { flags, mode: mode & 0o7777, resolve: 0 }
    };
    match arguments.op() {
        Op::Creat => {
            let flags = open_bits::CREAT | open_bits::WRONLY | open_bits::TRUNC;
            Ok(plain(flags, arguments.int(1)))
        }
        Op::Open => Ok(plain(arguments.int(1), arguments.int(2))),
        Op::Openat => Ok(plain(arguments.int(2), arguments.int(3))),
        _ => read_how(context, arguments),
    }
}

/// `struct open_how`, with the checks of `fs/open.c`.
fn read_how<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Request> {
    const SIZE: usize = 24;
    const PAGE: u64 = 4096;
    const VALID_FLAGS: u64 = 0o37_777_703;
    /// `RESOLVE_NO_XDEV` to `RESOLVE_CACHED`.
    const VALID_RESOLVE: u64 = 0x3f;
    const BENEATH: u64 = 8;
    const IN_ROOT: u64 = 16;
    if !context.backend.has_openat2() {
        return Err(Errno::ENOSYS);
    }
    let (address, size) = (arguments.word(2), arguments.word(3));
    if size < SIZE as u64 {
        return Err(Errno::EINVAL);
    }
    if size > PAGE {
        return Err(Errno::E2BIG);
    }
    let mut bytes = [0_u8; SIZE];
    context.backend.read(address, &mut bytes)?;
    let mut at = SIZE as u64;
    while at < size {
        let mut more = [0_u8; 64];
        let part = (size - at).min(64) as usize;
        context.backend.read(address.wrapping_add(at), &mut more[..part])?;
        if more.iter().any(|byte| *byte != 0) {
            return Err(Errno::E2BIG);
        }
        at += part as u64;
    }
    let field = |index: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[index * 8..index * 8 + 8]);
        u64::from_le_bytes(word)
    };
    let (raw, mode, resolve) = (field(0), field(1), field(2));
    let flags = OpenFlags::new(arguments.arch, raw as u32);
    let makes = flags.create() || flags.nameless();
    let path_bits = u64::from(
        open_bits::PATH
            | open_bits::CLOEXEC
            | OpenFlags::directory_bit(arguments.arch)
            | OpenFlags::no_follow_bit(arguments.arch),
    );
    if raw & !VALID_FLAGS != 0
        || resolve & !VALID_RESOLVE != 0
        || resolve & (BENEATH | IN_ROOT) == BENEATH | IN_ROOT
        || (makes && mode & !0o7777 != 0)
        || (!makes && mode != 0)
        || (flags.path() && raw & !path_bits != 0)
    {
        return Err(Errno::EINVAL);
    }
    Ok(Request { flags, mode: mode as u32, resolve })
}

/// Size of the part of `struct open_how` that is known here.
const HOW: u64 = 24;

/// Writes a new `struct open_how` for a path that has been resolved.
fn how<N: Backend>(context: &mut CallContext<'_, N>, request: &Request) -> Result<u64> {
    let mut bytes = [0_u8; HOW as usize];
    bytes[..8].copy_from_slice(&u64::from(request.flags.raw).to_le_bytes());
    bytes[8..16].copy_from_slice(&u64::from(request.mode).to_le_bytes());
    context.backend.scratch(&bytes, 8)
}

fn intent<N: Backend>(context: &CallContext<'_, N>, request: &Request, op: Op) -> Intent {
    let flags = request.flags;
    let mut intent = if flags.exclusive() {
        Intent::NAME
    } else if flags.create() {
        Intent::CREATE
    } else {
        Intent::FOLLOW
    };
    intent.follow = !flags.no_follow() && !flags.exclusive();
    intent.hold = (flags.writes() || context.world.identity.is_some()) && !flags.exclusive();
    intent.resolve = request.resolve;
    intent.look = if op != Op::Openat2 && may_read_all(context) && request.reads() {
        Look::Later
    } else {
        Look::Facts
    };
    intent
}

/// Returns true if this thread may read every file that the host's caller may read.
fn may_read_all<N: Backend>(context: &CallContext<'_, N>) -> bool {
    context.world.identity.is_none() || context.task.creds.overrides()
}

/// Opens a name that was not looked at before: in a directory that is in the cache, or a single
/// name.
fn open_unseen<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    request: &Request,
    (generation, alone): (u64, bool),
) -> Result<Verdict> {
    let (directory, moves) = (request.flags.directory(), context.buffers.moves);
    let (_, at) = arguments.path_position(0).ok_or(Errno::ENOSYS)?;
    let no_follow = OpenFlags::no_follow_bit(arguments.arch);
    let path = if alone {
        arguments.word(at)
    } else {
        let call = match from_tree(context, arguments, 0, (None, Purpose::Use)) {
            // What only the resolution finds out: the name is a link, or its directory is one.
            Err(errno) if errno != Errno::ENOENT => None,
            call => call?,
        };
        if let Some(mut call) = call {
            // This is always an `openat`.
            call.arguments[2] |= u64::from(no_follow);
            return Ok(Verdict::Instead(
                call,
                After::Unseen { generation, alone, directory, moves },
            ));
        }
        let CallContext { backend, world, buffers, .. } = &mut *context;
        let (found, real) = (&buffers.found[0], &mut buffers.spare[0]);
        let is_real = world.image.is_some()
            && backend.real_path(found.as_c_str(), Purpose::Use, real).is_ok();
        backend.scratch(if is_real { real } else { found }.with_nul(), 1)?
    };
    let flags = arguments.int(at + 1) | no_follow;
    let call = call_at(arguments.call, &[(at, path), (at + 1, u64::from(flags))]);
    Ok(Verdict::Instead(call, After::Unseen { generation, alone, directory, moves }))
}

/// Opens a name that was not looked at before, by the fast path.
fn open_by_fast_path<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    request: &Request,
    start: Start,
    generation: u64,
) -> Result<Verdict> {
    let path = start.path(context.buffers.named[0].with_nul()).to_bytes_with_nul();
    let path = context.backend.scratch(path, 1)?;
    let dir = match start.dir {
        Dir::Guest(tree) => tree,
        _ => AT_FDCWD,
    };
    let (_, at) = arguments.path_position(0).ok_or(Errno::ENOSYS)?;
    let [flags, mode] = [1, 2].map(|behind| arguments.call.arguments[at + behind]);
    let flags = flags as u32 | OpenFlags::no_follow_bit(arguments.arch);
    let arguments_made = [i64::from(dir) as u64, path, u64::from(flags), mode, 0, 0];
    let number = Op::Openat.entry().number(arguments.arch).ok_or(Errno::ENOSYS)?;
    let call = Call { number, arguments: arguments_made, ..*arguments.call };
    let directory = request.flags.directory();
    let moves = context.buffers.moves;
    let after = After::Unseen { generation, alone: false, directory, moves };
    Ok(Verdict::Instead(call, after))
}

/// Returns true if a name that was opened without a look at it needs a rule: it is a link, stands
/// for a device, is in `/proc`, or was refused for a reason that does not apply to the guest. Then
/// the file is closed again. `generation` is given if the path's directory is in the cache;
/// `directory` is set if only a directory could be opened.
pub(super) fn needed_emulation<N: Backend>(
    context: &mut CallContext<'_, N>,
    generation: Option<u64>,
    directory: bool,
    result: i64,
) -> bool {
    // A link gives ELOOP, or ENOTDIR if a directory was asked for.
    let undecided = [Errno::ELOOP, Errno::ENOTDIR, Errno::EACCES, Errno::EPERM, Errno::EBADF];
    if undecided.iter().any(|errno| errno.result() == result) {
        return true;
    }
    let Some(descriptor) = i32::try_from(result).ok().filter(|descriptor| *descriptor >= 0) else {
        return false;
    };
    // A directory never stands for another file.
    if directory || generation.is_some() && context.world.identity.is_none() {
        return false;
    }
    let CallContext { backend, buffers, .. } = &mut *context;
    let named = buffers.named[0].as_bytes();
    if generation.is_some() && backend.is_straight(named, Straight::Ordinary) {
        return false;
    }
    let mut facts = identity::files::NO_FACTS;
    if backend.statx(Dir::Guest(descriptor), c"", AT_EMPTY_PATH, &mut facts).is_err() {
        return false;
    }
    let marked = may_be_recorded(u32::from(facts.stx_mode));
    if let (Some(generation), false) = (generation, marked) {
        backend.set_straight(named, Straight::Ordinary, generation);
    }
    let more = needs_emulation(context, descriptor, &facts, generation.is_none());
    if more {
        context.backend.close(HostFd(descriptor));
    }
    more
}

/// Returns true if an open file stands for a device, or, if nothing is known of its directory
/// (`anywhere`), is in `/proc`.
fn needs_emulation<N: Backend>(
    context: &mut CallContext<'_, N>,
    descriptor: i32,
    facts: &statx,
    anywhere: bool,
) -> bool {
    let at = Dir::Guest(descriptor);
    let mode = u32::from(facts.stx_mode);
    if mode & S_IFMT != S_IFREG {
        return false;
    }
    let is_device = |host: &mut N, identity: &Identity| {
        identity::truth_of(host, identity, None, Kind::Tree, (at, c""), facts).0.is_device()
    };
    if let Some(identity) = context.world.identity
        && may_be_recorded(mode)
        && is_device(context.backend, &identity)
    {
        return true;
    }
    // A file with blocks on a disk is not in `/proc`.
    anywhere
        && facts.stx_blocks == 0
        && binding_of(context, at).map_or(true, |(kind, _)| kind == Kind::Proc)
}

fn decide<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    request: &mut Request,
    place: &Place,
) -> Result<Option<Verdict>> {
    let flags = request.flags;
    let verdict = if place.kind == Kind::Proc && !flags.path() {
        match open_in_proc(context, flags.raw)? {
            Some(verdict) => Ok(verdict),
            None => on_place(context, arguments, place, 0, After::Nothing),
        }
    } else if place.missing || flags.exclusive() || (flags.create() && place.directory) {
        return make(context, arguments, request, place);
    } else if place.kind == Kind::HostName
        && !(flags.path() || flags.directory() || place.directory)
        && let Some(verdict) = host_name::open(context, flags.raw)?
    {
        Ok(verdict)
    } else {
        decide_existing(context, arguments, request, place)
    };
    verdict.map(Some)
}

fn decide_existing<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    request: &Request,
    place: &Place,
) -> Result<Verdict> {
    let flags = request.flags;
    let identity = emulated(context, place.kind);
    if flags.path() || (identity.is_none() && !flags.writes()) {
        return on_place(context, arguments, place, 0, After::Nothing);
    }
    if let Some(identity) = identity {
        return open_existing(context, arguments, request, place, &identity);
    }
    let facts = facts(context, place, 0)?;
    if place.read_only && u32::from(facts.stx_mode) & S_IFMT == S_IFREG {
        return Err(Errno::EROFS);
    }
    not_executed(context, &facts)?;
    if is_shared(context, place.kind, &facts) {
        return copy_up(context, place, 0);
    }
    on_place(context, arguments, place, 0, After::Nothing)
}

/// Kept out of its caller's stack frame, which would become as large.
#[inline(never)]
fn open_in_proc<N: Backend>(
    context: &mut CallContext<'_, N>,
    flags: u32,
) -> Result<Option<Verdict>> {
    let host = context.buffers.found[0];
    proc::open(context, &host, flags)
}

/// Opens an existing file, with emulated owners and modes.
fn open_existing<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    request: &Request,
    place: &Place,
    identity: &Identity,
) -> Result<Verdict> {
    let flags = request.flags;
    let found = look(context, identity, place, 0)?;
    let on_disk = u32::from(found.facts.stx_mode);
    if on_disk & S_IFMT == S_IFLNK {
        // `O_NOFOLLOW`: the kernel fails with ELOOP.
        return on_place(context, arguments, place, 0, After::Nothing);
    }
    if flags.nameless() && found.truth.is_directory() {
        if place.read_only {
            return Err(Errno::EROFS);
        }
        let place = &own_directory(context, place, 0)?;
        let CallContext { backend, task, buffers, .. } = context;
        let at = reach(buffers, place, 0);
        let after = prepare_nameless(*backend, task, request, (place.kind, identity), at, &found)?;
        return on_place(context, arguments, place, 0, after)
            .inspect_err(|_| abandon(context.backend, after));
    }
    if found.truth.is_directory() && (flags.writes() || flags.create()) {
        return Err(Errno::EISDIR);
    }
    if (flags.directory() || place.directory) && !found.truth.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    if found.emulates(place.kind) {
        rules::may_open(&context.task.creds, &found.truth, flags.raw)?;
    }
    if found.truth.is_device() && on_disk & S_IFMT == S_IFREG {
        return device(context, arguments, &found.truth);
    }
    let regular = on_disk & S_IFMT == S_IFREG;
    if flags.writes() && place.read_only && regular {
        return Err(Errno::EROFS);
    }
    if flags.writes() {
        not_executed(context, &found.facts)?;
    }
    let refused = refused_on_disk(&found, flags, identity);
    if (refused || flags.writes()) && is_shared(context, place.kind, &found.facts) {
        return copy_up(context, place, 0);
    }
    if flags.writes() {
        // The kernel does this at the first write, which no rule sees.
        let (dir, path) = reach(context.buffers, place, 0);
        let who = &context.task.creds;
        identity::written(context.backend, identity, who, place.kind, (dir, path), &found)?;
    }
    let after = if refused { lift_mode(context, place, identity, &found)? } else { After::Nothing };
    let verdict = on_place(context, arguments, place, 0, after);
    if let (Err(_), After::Restore(held, mode)) = (verdict, after) {
        // Closing the place closes the file.
        let _ = context.backend.chmod(Dir::Held(held), c"", mode);
    }
    verdict
}

/// Returns true if the kernel would refuse what the guest may do, because of the owner's bits of a
/// file that belongs to the caller.
fn refused_on_disk(found: &Found, flags: OpenFlags, identity: &Identity) -> bool {
    let wanted = match flags.raw & open_bits::ACCMODE {
        0 => 0o400,
        open_bits::WRONLY => 0o200,
        _ => 0o600,
    };
    let wanted = if flags.has(open_bits::TRUNC) { wanted | 0o200 } else { wanted };
    found.facts.stx_uid == identity.host_uid && wanted & !u32::from(found.facts.stx_mode) != 0
}

/// Changes the mode on disk so that the kernel lets the guest open the file: permanently if a
/// record holds the true mode, for the duration of the call in directories of the host.
pub(super) fn lift_mode<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    identity: &Identity,
    found: &Found,
) -> Result<After> {
    let (dir, path) = reach(context.buffers, place, 0);
    if place.kind == Kind::Tree {
        identity::set_truth(
            context.backend,
            identity,
            place.kind,
            (dir, path),
            found,
            &found.truth,
        )?;
        return Ok(After::Nothing);
    }
    let mode = u32::from(found.facts.stx_mode) & 0o7777;
    context.backend.chmod(dir, path, mode | 0o600)?;
    Ok(place.held.map_or(After::Nothing, |held| After::Restore(held, mode)))
}

/// A file that stands for a device. The devices that every container has are opened as the host's;
/// no other can be opened.
fn device<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    truth: &Truth,
) -> Result<Verdict> {
    let name = match (truth.kind(), truth.device) {
        (S_IFCHR, (1, 3)) => c"/dev/null",
        (S_IFCHR, (1, 5)) => c"/dev/zero",
        (S_IFCHR, (1, 7)) => c"/dev/full",
        (S_IFCHR, (1, 8)) => c"/dev/random",
        (S_IFCHR, (1, 9)) => c"/dev/urandom",
        (S_IFCHR, (5, 0)) => c"/dev/tty",
        (S_IFCHR | S_IFBLK, _) => return Err(Errno::ENXIO),
        _ => return Err(Errno::EACCES),
    };
    let (_, at) = arguments.path_position(0).ok_or(Errno::ENOSYS)?;
    let address = context.backend.scratch(name.to_bytes_with_nul(), 1)?;
    Ok(Verdict::Instead(call_at(arguments.call, &[(at, address)]), After::Nothing))
}
