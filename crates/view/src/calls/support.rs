//! Functions that the rules for files share: resolving a path argument, reading status and owner,
//! deciding where a change has to go, and making the guest's call on another path.

use super::arguments::Arguments;
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Host, Purpose};
use crate::identity::{self, Found};
use crate::image::Image;
use crate::paths::{self, Intent, Last, Origin, Place};
use crate::text::PATH_MAX;
use crate::verdict::{After, Call, Verdict};
use crate::world::{Identity, Kind};
use abi::calls::Op;
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, S_IFDIR, S_IFMT, S_IFREG, statx,
};

/// Attribute of a copy that replaced a file of the image: the inode number of that file.
pub const COPY: &CStr = c"user.coracle.copy";

/// Reads path number `which` of a call and resolves it: `buffers.found[which]`.
pub fn find<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    which: usize,
    intent: Intent,
) -> Result<Place> {
    let (dir, address) = arguments.path(which)?;
    context.backend.read_text(address, &mut context.buffers.named[which])?;
    find_named(context, dir, which, intent)
}

/// As [`find`], with the path already in `buffers.named[which]`.
pub fn find_named<N: Backend>(
    context: &mut CallContext<'_, N>,
    dir: Dir,
    which: usize,
    intent: Intent,
) -> Result<Place> {
    let mut place = paths::resolve(context, dir, which, intent)?;
    if (place.magic || (place.last == Last::Empty && place.at != Dir::Cwd))
        && let Err(errno) = away_from_image(context, &mut place, which)
    {
        place.close(context.backend);
        return Err(errno);
    }
    Ok(place)
}

/// Corrects a place that was reached by a magic link of `/proc` or a descriptor. Such a place may
/// be a file of the image that has lost its name in the container. If a copy replaced it, the place
/// becomes the copy's; if not, the place is marked as a file of the image.
pub fn away_from_image<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &mut Place,
    which: usize,
) -> Result<()> {
    let buffers = &mut *context.buffers;
    let path = buffers.found[which].as_c_str();
    let named = if place.magic {
        context.backend.readlink(place.at, path, &mut buffers.host)
    } else {
        context.backend.path_of(place.at, &mut buffers.host)
    };
    if named.is_ok()
        && let Some(image) = context.world.image
        && image.in_upper(buffers.host.as_bytes()).is_some()
    {
        return to_layer(context, &image, place, which);
    }
    if named.is_err() || !buffers.host.as_bytes().ends_with(GONE) {
        return Ok(());
    }
    let origin = paths::reverse(context.world, buffers.host.as_bytes(), &mut buffers.link)?;
    let Origin::Inside(index) = origin else { return Ok(()) };
    if place.magic {
        // A file that has lost its name is still of the same kind.
        place.set_binding(context.world, Some(index));
    }
    if context.world.bindings[index].kind != Kind::Tree {
        return Ok(());
    }
    let mut facts = identity::files::NO_FACTS;
    context.backend.statx(place.at, path, AT_EMPTY_PATH, &mut facts)?;
    if u32::from(facts.stx_mode) & S_IFMT != S_IFREG
        || context.backend.image_links(facts.stx_ino).is_none()
    {
        return Ok(());
    }
    place.set_binding(context.world, Some(index));
    buffers.host.truncate(buffers.host.len() - GONE.len());
    if !is_copy_of(context.backend, buffers.host.as_c_str(), &facts) {
        return Ok(());
    }
    by_host_path(context, place, which)
}

/// Has a place mean the file at the path in `buffers.host`.
fn by_host_path<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &mut Place,
    which: usize,
) -> Result<()> {
    if let Some(held) = place.held.take() {
        context.backend.close(held);
        let path = context.buffers.host.as_c_str();
        let flags = linux_raw_sys::general::O_PATH | linux_raw_sys::general::O_NOFOLLOW;
        place.held = Some(context.backend.open(Dir::Root, path, flags, 0, 0)?);
    }
    if let Dir::Held(base) = place.at {
        context.backend.close(base);
    }
    (place.at, place.magic, place.direct, place.last) = (Dir::Root, false, false, Last::Name);
    let buffers = &mut *context.buffers;
    buffers.found[which].set(buffers.host.as_bytes())
}

/// Corrects a place that was reached by a magic link or a descriptor, where the tree has layers: a
/// file of the image becomes the place of its name, as long as it has one. Its name is in
/// `buffers.host`.
fn to_layer<N: Backend>(
    context: &mut CallContext<'_, N>,
    image: &Image<'_>,
    place: &mut Place,
    which: usize,
) -> Result<()> {
    let buffers = &mut *context.buffers;
    let mut facts = identity::files::NO_FACTS;
    let path = buffers.found[which].as_c_str();
    if place.magic {
        // A file that has lost its name is still of the same kind.
        place.set_binding(context.world, Some(0));
    }
    if context.backend.statx(place.at, path, AT_EMPTY_PATH, &mut facts).is_err()
        || image.of_facts(&facts).is_none()
    {
        return Ok(());
    }
    place.set_binding(context.world, Some(0));
    if buffers.host.as_bytes().ends_with(GONE) {
        return Ok(());
    }
    by_host_path(context, place, which)
}

/// Returns true if the file at a host path is the copy of the given file of the image, which is
/// still open.
pub fn is_copy_of(host: &mut impl Host, path: &CStr, image: &statx) -> bool {
    let mut facts = identity::files::NO_FACTS;
    if host.statx(Dir::Root, path, AT_SYMLINK_NOFOLLOW, &mut facts).is_err()
        || !matches!(u32::from(facts.stx_mode) & S_IFMT, S_IFREG | S_IFDIR)
    {
        return false;
    }
    if let Some(origin) = identity::files::origin(host, (Dir::Root, path), &facts) {
        return origin == image.stx_ino;
    }
    let mut text = [0; 20];
    match host.getxattr(Dir::Root, path, true, COPY, &mut text) {
        Ok(length) => {
            let text = core::str::from_utf8(&text[..length]);
            text.is_ok_and(|text| text.parse() == Ok(image.stx_ino))
        }
        Err(Errno::EOPNOTSUPP) => facts.stx_size == image.stx_size && facts.stx_nlink == 1,
        Err(_) => false,
    }
}

/// Calls `then` with the place of the first path, and closes the place.
pub fn with_place<N: Backend, T>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    intent: Intent,
    then: impl FnOnce(&mut CallContext<'_, N>, &Place) -> Result<T>,
) -> Result<T> {
    let place = find(context, arguments, 0, intent)?;
    let result = then(context, &place);
    place.close(context.backend);
    result
}

/// The emulated ids of the container, if modes and owners of these files are emulated.
pub fn emulated<N: Backend>(context: &CallContext<'_, N>, kind: Kind) -> Option<Identity> {
    context.world.identity.filter(|_| matches!(kind, Kind::Tree | Kind::Host | Kind::HostName))
}

/// `statx` of a place; a link at the end is not followed.
pub fn facts<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    which: usize,
) -> Result<statx> {
    if place.seen {
        return Ok(context.buffers.seen[which]);
    }
    without_slash(context, which, |context| {
        let mut facts = identity::files::NO_FACTS;
        let (dir, path) = reach(context.buffers, place, which);
        context.backend.statx(dir, path, at_flags(place), &mut facts)?;
        Ok(facts)
    })
}

/// Calls `run` while the path in `buffers.found` has no slash at its end. Only names to be made or
/// removed have one: the kernel looks up the name alone, does not follow it, and then checks if it
/// is a directory.
pub fn without_slash<N: Backend, T>(
    context: &mut CallContext<'_, N>,
    which: usize,
    run: impl FnOnce(&mut CallContext<'_, N>) -> Result<T>,
) -> Result<T> {
    let found = &mut context.buffers.found[which];
    let length = found.len();
    if length < 2 || found.as_bytes()[length - 1] != b'/' {
        return run(context);
    }
    found.truncate(length - 1);
    let result = run(context);
    context.buffers.found[which].push(b"/")?;
    result
}

/// The error for a path that does not end in a name: `ENOTDIR` if it starts at a descriptor that is
/// not a directory, otherwise `errno`.
pub fn unless_no_directory<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    which: usize,
    errno: Errno,
) -> Errno {
    match facts(context, place, which) {
        Err(errno @ Errno::ENOTDIR) => errno,
        _ => errno,
    }
}

/// Status of a place, and owner and mode as the guest sees them.
pub fn look<N: Backend>(
    context: &mut CallContext<'_, N>,
    identity: &Identity,
    place: &Place,
    which: usize,
) -> Result<Found> {
    let facts = facts(context, place, which)?;
    without_slash(context, which, |context| {
        let (dir, path) = reach(context.buffers, place, which);
        let who = Some(&context.task.creds);
        let (truth, recorded) =
            identity::truth_of(context.backend, identity, who, place.kind, (dir, path), &facts);
        Ok(Found { facts, truth, recorded })
    })
}

/// Directory and path by which calls of the host reach a place.
pub fn reach<'d>(buffers: &'d crate::CallBuffers, place: &Place, which: usize) -> (Dir, &'d CStr) {
    match place.held {
        Some(held) => (Dir::Held(held), c""),
        None => (place.at, buffers.found[which].as_c_str()),
    }
}

/// `AT_*` for a place: a link at the end is not followed, unless only the kernel can follow it.
pub fn at_flags(place: &Place) -> u32 {
    if place.magic && place.held.is_none() {
        AT_EMPTY_PATH
    } else {
        AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW
    }
}

/// Returns true if the name of a place exists.
pub fn exists<N: Backend>(context: &mut CallContext<'_, N>, place: &Place, which: usize) -> bool {
    facts(context, place, which).is_ok()
}

/// Returns true if a regular file is one of the image, shared with other containers.
pub fn is_shared<N: Backend>(context: &mut CallContext<'_, N>, kind: Kind, facts: &statx) -> bool {
    // The link count does not matter: a file without a name in the container may have only its name
    // in the image left.
    let kind_of_file = u32::from(facts.stx_mode) & S_IFMT;
    kind == Kind::Tree
        && match context.world.image {
            // Directories are brought up by the host's own calls.
            Some(image) => kind_of_file != S_IFDIR && image.of_facts(facts).is_some(),
            None => kind_of_file == S_IFREG && context.backend.image_links(facts.stx_ino).is_some(),
        }
}

/// Fails with `ETXTBSY` if a file that is to be written is a program that a process of the
/// container executes.
pub fn not_executed<N: Backend>(context: &mut CallContext<'_, N>, facts: &statx) -> Result<()> {
    let mode = u32::from(facts.stx_mode);
    let device = (facts.stx_dev_major, facts.stx_dev_minor);
    if mode & S_IFMT == S_IFREG
        && mode & 0o111 != 0
        && context.backend.is_executed(device, facts.stx_ino)
    {
        return Err(Errno::ETXTBSY);
    }
    Ok(())
}

/// Fails with `EBADF` for a descriptor that only names its file (`O_PATH`), or is not open.
pub fn more_than_a_name<N: Backend>(
    context: &mut CallContext<'_, N>,
    descriptor: i32,
) -> Result<()> {
    if descriptor < 0 || context.backend.only_names(descriptor)? {
        return Err(Errno::EBADF);
    }
    Ok(())
}

/// Makes a directory that the container has from its image one of its own, where the tree has
/// layers, because a call of the guest's own is to be made there.
pub fn own_directory<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    which: usize,
) -> Result<Place> {
    if context.world.image.is_some() && place.kind == Kind::Tree && place.at == Dir::Root {
        context.backend.copy_up(context.buffers.found[which].as_c_str())?;
    }
    Ok(Place { record: None, ..*place })
}

/// Asks the backend for a copy of the file at a place, whose absolute host path is put into
/// `buffers.host`.
pub fn copy_up<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    which: usize,
) -> Result<Verdict> {
    let buffers = &mut *context.buffers;
    if place.magic {
        // A file that has lost its name in the container, and is still one of the image.
        return Err(Errno::EACCES);
    }
    if place.at == Dir::Root || buffers.found[which].as_bytes().first() == Some(&b'/') {
        buffers.host.set(buffers.found[which].as_bytes())?;
    } else {
        context.backend.path_of(place.at, &mut buffers.host)?;
        if !buffers.found[which].is_empty() {
            buffers.host.push_component(buffers.found[which].as_bytes())?;
        }
    }
    Ok(Verdict::CopyUp)
}

/// Suffix that the kernel adds to the name of a deleted file.
const GONE: &[u8] = b" (deleted)";

/// The file on which a change of an open file's metadata has to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The open file itself.
    Itself,
    /// The file at `buffers.host` (absolute): the copy that has replaced the image's file since it
    /// was opened.
    Copy,
    /// None: the file is one of the image, and has no name left in the container.
    Nothing,
    /// The copy that has to be made first: [`Verdict::CopyUp`], the path is in `buffers.host`.
    CopyUp,
}

/// Decides on which file a change of mode, owner, times or attributes by descriptor is made, so
/// that it never reaches a file of the image. A descriptor keeps the image's file open when a copy
/// replaces it; the kernel's name of the file then ends in ` (deleted)`.
pub fn target_of<N: Backend>(
    context: &mut CallContext<'_, N>,
    descriptor: i32,
    facts: &statx,
) -> Result<Target> {
    let is_images = match context.world.image {
        Some(image) => image.of_facts(facts).is_some(),
        None => {
            u32::from(facts.stx_mode) & S_IFMT == S_IFREG
                && context.backend.image_links(facts.stx_ino).is_some()
        }
    };
    if !is_images {
        return Ok(Target::Itself);
    }
    let buffers = &mut *context.buffers;
    context.backend.path_of(Dir::Guest(descriptor), &mut buffers.host)?;
    match paths::reverse(context.world, buffers.host.as_bytes(), &mut buffers.link)? {
        Origin::Inside(index) if context.world.bindings[index].kind == Kind::Tree => {}
        _ => return Ok(Target::Itself),
    }
    let mut named = identity::files::NO_FACTS;
    let flags = AT_SYMLINK_NOFOLLOW;
    if context.backend.statx(Dir::Root, buffers.host.as_c_str(), flags, &mut named).is_ok()
        && named.stx_ino == facts.stx_ino
    {
        return Ok(Target::CopyUp);
    }
    let length = buffers.host.len();
    if context.world.image.is_none() {
        if !buffers.host.as_bytes().ends_with(GONE) {
            return Ok(Target::Nothing);
        }
        buffers.host.truncate(length - GONE.len());
    }
    let buffers = &*context.buffers;
    let copied = is_copy_of(context.backend, buffers.host.as_c_str(), facts);
    Ok(if copied { Target::Copy } else { Target::Nothing })
}

/// What kind of files the binding of an open file holds, and if it is read-only.
pub fn binding_of<N: Backend>(context: &mut CallContext<'_, N>, at: Dir) -> Result<(Kind, bool)> {
    let CallContext { backend, world, task, buffers } = &mut *context;
    let origin = backend.path_of(at, &mut buffers.link).and_then(|()| {
        let entered = || paths::entered(*backend, task, at);
        paths::reverse_by(world, buffers.link.as_bytes(), entered, &mut buffers.host)
    });
    Ok(match origin {
        Ok(Origin::Inside(index)) => {
            let binding = &context.world.bindings[index];
            (binding.kind, binding.read_only)
        }
        Ok(Origin::Outside) => (Kind::Host, false),
        // A pipe or memory: nothing is recorded of it.
        Ok(Origin::Unnamed) => (Kind::Mask, false),
        // The name is longer than a path: the file exists, but its place is unknown.
        Err(Errno::ENAMETOOLONG | Errno::ENOENT) => (Kind::Tree, false),
        Err(errno) => return Err(errno),
    })
}

/// Has the kernel make the guest's call on the place instead of the guest's path. The call passes
/// unchanged if that means the same. `which` is the number of the path.
pub fn on_place<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    place: &Place,
    which: usize,
    after: After,
) -> Result<Verdict> {
    if place.direct {
        return Ok(if after == After::Nothing { Verdict::Pass } else { Verdict::Watch(after) });
    }
    if after == After::Nothing
        && place.at == Dir::Root
        && !context.buffers.careful
        && let Some(call) = from_tree(context, arguments, which, (place.record, purpose(place)))?
    {
        let moves = context.buffers.moves;
        return Ok(Verdict::Instead(call, After::FromTree { moves }));
    }
    let (dir, at) = arguments.path_position(which).ok_or(Errno::ENOSYS)?;
    let mut call = *arguments.call;
    call.arguments[at] = path_for_guest(context, place, which)?;
    if let Some(dir) = dir
        && !matches!(place.at, Dir::Guest(_) | Dir::Cwd)
    {
        call.arguments[dir] = u64::from(AT_FDCWD as u32);
    }
    let by_name = context.buffers.moves.filter(|_| place.at == Dir::Root);
    match (after, by_name) {
        (After::Nothing, Some(moves)) => Ok(Verdict::Instead(call, After::ByName { moves })),
        _ => Ok(Verdict::Instead(call, after)),
    }
}

/// What the guest's call does at a place.
const fn purpose(place: &Place) -> Purpose {
    if place.missing { Purpose::Open } else { Purpose::Use }
}

/// The guest's call on the path in `buffers.found`, starting from a descriptor of the container's
/// tree. `None` if there is no such descriptor, or the call has no form with a directory. `record`
/// is that of [`Place::record`].
pub fn from_tree<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    which: usize,
    (record, purpose): (Option<u32>, Purpose),
) -> Result<Option<Call>> {
    let (dir, at) = arguments.path_position(which).ok_or(Errno::ENOSYS)?;
    let CallContext { backend, world, buffers, .. } = &mut *context;
    let (found, real) = (&buffers.found[which], &mut buffers.spare[0]);
    let root = world.bindings.first().filter(|root| root.guest == b"/");
    let Some(root) = root.filter(|root| found.as_bytes().starts_with(root.host)) else {
        return Ok(None);
    };
    if dir.is_none() && arguments.op() != Op::Open {
        return Ok(None);
    }
    let (descriptor, tree, path) = match &world.image {
        // Of a file of the image's, the path in both layers is the same.
        Some(image) if record.is_none() => {
            backend.real_path(found.as_c_str(), purpose, real)?;
            if image.in_lower(real.as_bytes()).is_some() {
                (backend.tree_descriptor(), image.lower, &*real)
            } else {
                (backend.upper_descriptor(), root.host, &*real)
            }
        }
        _ => (backend.tree_descriptor(), root.host, found),
    };
    let rest = path.with_nul().strip_prefix(tree).and_then(|rest| rest.strip_prefix(b"/"));
    // With a slash before it, the path would start at the host's root.
    let is_relative = |rest: &&[u8]| rest.len() > 1 && rest[0] != b'/';
    let (Some(descriptor), Some(rest)) = (descriptor, rest.filter(is_relative)) else {
        return Ok(None);
    };
    let mut call = *arguments.call;
    let (dir, at) = if let Some(dir) = dir {
        (dir, at)
    } else {
        let [path, flags, mode, ..] = call.arguments;
        call.number = Op::Openat.entry().number(arguments.arch).ok_or(Errno::ENOSYS)?;
        call.arguments = [0, path, flags, mode, 0, 0];
        (0, 1)
    };
    call.arguments[at] = backend.scratch(rest, 1)?;
    call.arguments[dir] = descriptor as u64;
    Ok(Some(call))
}

/// Puts the path of a place into memory that the guest's call can read.
pub fn path_for_guest<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    which: usize,
) -> Result<u64> {
    let buffers = &mut *context.buffers;
    let Dir::Held(held) = place.at else {
        if context.world.image.is_none() || place.at != Dir::Root {
            return context.backend.scratch(buffers.found[which].with_nul(), 1);
        }
        let path = buffers.found[which].as_c_str();
        context.backend.real_path(path, purpose(place), &mut buffers.spare[0])?;
        return context.backend.scratch(buffers.spare[0].with_nul(), 1);
    };
    // The backend keeps the descriptor that it gets; the place closes its own.
    let flags = linux_raw_sys::general::O_PATH;
    let lent = context.backend.open(Dir::Held(held), c".", flags, 0, 0)?;
    context.backend.alias(lent, PATH_MAX, &mut buffers.spare[0])?;
    buffers.spare[0].push_component(buffers.found[which].as_bytes())?;
    context.backend.scratch(buffers.spare[0].with_nul(), 1)
}

/// The call with some arguments changed.
pub fn call_at(call: &Call, changes: &[(usize, u64)]) -> Call {
    let mut call = *call;
    for (index, value) in changes {
        call.arguments[*index] = *value;
    }
    call
}

/// Returns true if it is a directory.
pub fn is_directory(facts: &statx) -> bool {
    u32::from(facts.stx_mode) & S_IFMT == S_IFDIR
}
