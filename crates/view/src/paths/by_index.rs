//! Resolves paths by the image's index ([`crate::image`]), without the kernel: those that lead only
//! through directories of the image whose names mean what they mean in the image.
//!
//! As soon as a name must be asked for in the container's upper directory, or is a mount point, or
//! the status is not wholly in the index, the path is resolved by the other steps, from the start.

use super::bindings::{is_mount_point, mounts_beneath};
use super::dir_cache::checks_search;
use super::place::{End, Intent, Last, Look, Place};
use super::resolve::LINKS_MAX;
use crate::CallContext;
use crate::buffers::Layer;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use crate::identity::{NO_FACTS, files, rules};
use crate::image::{Image, Walked, is_incomplete};
use crate::world::World;
use abi::index::{Entry, ROOT, flags};
use linux_raw_sys::general::{O_NOFOLLOW, O_PATH};

/// The longest name, `NAME_MAX`. The kernel gives the error for longer ones.
const NAME_MAX: usize = 255;

/// Where a path leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reached {
    /// The file's record; of a name that is missing, or was not looked up, its directory's.
    record: u32,
    /// The path ended in a slash.
    slash: bool,
    /// Where its last name lies in the text that is left in the buffers, if `record` is that of its
    /// directory.
    name: Option<(usize, usize)>,
    /// That text is in `buffers.walk`, because a link was followed; else it is the guest's own.
    followed: bool,
}

/// A file of the image that a path leads to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundRecord {
    /// Its number.
    pub(crate) record: u32,
    /// What the index says of it.
    pub(crate) entry: Entry,
    /// The path is a single name, and the kernel finds it in the directory that the guest names.
    pub(crate) direct: bool,
}

/// The image, if paths of this thread can be resolved by its index.
fn usable<'w, N: Backend>(context: &CallContext<'w, N>) -> Option<Image<'w>> {
    let CallContext { world, task, buffers, .. } = context;
    let image = world.image?;
    let usable = !buffers.careful && task.root.as_bytes() == b"/";
    usable.then_some(image)
}

/// Finds the record of the file that the path in `buffers.named[which]` means. Errors are the
/// guest's. `None`: the path must be resolved otherwise.
#[inline]
pub(crate) fn record<N: Backend>(
    context: &mut CallContext<'_, N>,
    from: Dir,
    which: usize,
    follow: bool,
) -> Option<Result<FoundRecord>> {
    let image = usable(context)?;
    let reached = match walk(context, &image, from, which, (End::Existing, follow))? {
        Ok(reached) => reached,
        Err(errno) => return Some(Err(errno)),
    };
    let record = reached.record;
    let entry = image.index.entry(record)?;
    if is_incomplete(&entry) || entry.is_directory() && image.changes.is_merged(record) {
        return None;
    }
    let single = !reached.followed && !context.buffers.named[which].as_bytes().contains(&b'/');
    let direct = single && record != ROOT && !image.changes.is_merged(entry.parent);
    Some(Ok(FoundRecord { record, entry, direct }))
}

/// Resolves a path as [`super::resolve`] does. `None`: it must be resolved otherwise.
pub(super) fn resolve<N: Backend>(
    context: &mut CallContext<'_, N>,
    from: Dir,
    which: usize,
    intent: Intent,
) -> Option<Result<Place>> {
    let image = usable(context)?;
    if intent.resolve != 0 {
        return None;
    }
    let reached = match walk(context, &image, from, which, (intent.end, intent.follow))? {
        Ok(reached) => reached,
        Err(errno) => return Some(Err(errno)),
    };
    let place = place(context, &image, which, reached)?;
    if reached.name.is_some() {
        return Some(Ok(Place { missing: intent.end == End::Creatable, ..place }));
    }
    let entry = image.index.entry(reached.record)?;
    if is_incomplete(&entry) || entry.is_directory() && image.changes.is_merged(reached.record) {
        return None;
    }
    if intent.hold && intent.look == Look::Hold {
        let CallContext { backend, buffers, .. } = context;
        let flags = O_PATH | O_NOFOLLOW;
        let opened = backend.open(Dir::Root, buffers.found[which].as_c_str(), flags, 0, 0);
        let held = match opened {
            Ok(held) => Some(held),
            Err(errno) => return Some(Err(errno)),
        };
        return Some(Ok(Place { held, ..place }));
    }
    context.buffers.seen[which] = image.facts(&entry);
    Some(Ok(Place { seen: true, record: Some(reached.record), ..place }))
}

/// The place of what was reached, with the host path in `buffers.found` and the guest's canonical
/// name in `buffers.position`.
fn place<N: Backend>(
    context: &mut CallContext<'_, N>,
    image: &Image<'_>,
    which: usize,
    reached: Reached,
) -> Option<Place> {
    let CallContext { world, buffers, .. } = context;
    let found = &mut buffers.found[which];
    image.place(reached.record, found)?;
    let mut last = if reached.record == ROOT { Last::Root } else { Last::Name };
    if let Some((start, end)) = reached.name {
        let text = if reached.followed { &buffers.walk } else { &buffers.named[which] };
        found.push_component(text.as_bytes().get(start..end)?).ok()?;
        last = Last::Name;
    }
    let inside = image.in_upper(found.as_bytes())?;
    buffers.position.set(b"/").ok()?;
    buffers.position.push(inside).ok()?;
    if reached.slash && reached.name.is_some() {
        found.push(b"/").ok()?;
    }
    let position = buffers.position.as_bytes();
    let mut place = Place {
        mount_point: is_mount_point(world, position),
        holds_mounts: mounts_beneath(world, position).next().is_some(),
        last,
        direct: false,
        directory: reached.slash,
        ..Place::itself(Dir::Root)
    };
    place.set_binding(world, Some(0));
    Some(place)
}

/// The directory that a path starts from, and whether its part in the upper directory is what is
/// open, with nothing else of the image beneath.
fn start<N: Backend>(
    context: &mut CallContext<'_, N>,
    image: &Image<'_>,
    from: Dir,
    which: usize,
) -> Option<(u32, bool)> {
    let CallContext { backend, world, task, buffers } = context;
    if buffers.named[which].as_bytes().first() == Some(&b'/') {
        return Some((ROOT, false));
    }
    let mut is_upper = false;
    let record = match from {
        Dir::Root => return Some((ROOT, false)),
        Dir::Cwd => {
            if task.entered != 0 || !backend.remembered_cwd(&mut buffers.link) {
                return None;
            }
            match image.walk(ROOT, image.in_upper(buffers.link.as_bytes())?) {
                Walked::To(record) => record,
                _ => return None,
            }
        }
        // Where bindings overlap, it may have been entered by another one.
        Dir::Guest(_) if !world.overlaps => {
            let mut facts = NO_FACTS;
            buffers.layer = None;
            backend.inode_of(from, &mut facts).ok()?;
            if !image.may_be_layered(&facts) {
                buffers.layer = Some((from, Layer::One));
                return None;
            }
            let record = if let Some((record, _)) = image.of_facts(&facts) {
                record
            } else {
                is_upper = !image.changes.has_redirects();
                let inode = files::origin(*backend, (from, c""), &facts)?;
                image.index.by_inode(inode).filter(|base| image.changes.is_merged(*base))?
            };
            image.is_reached(record).then_some(record)?
        }
        Dir::Guest(_) | Dir::Held(_) => return None,
    };
    let is_directory = image.index.entry(record)?.is_directory();
    is_directory.then_some((record, is_upper))
}

/// Follows a path. What it does with the last name is as in [`Intent`].
fn walk<N: Backend>(
    context: &mut CallContext<'_, N>,
    image: &Image<'_>,
    from: Dir,
    which: usize,
    (end_is, follow): (End, bool),
) -> Option<Result<Reached>> {
    if context.buffers.named[which].is_empty() {
        return None;
    }
    let checks = checks_search(context);
    let (mut here, is_upper) = start(context, image, from, which)?;
    let (mut at, mut links, mut followed) = (0, 0, false);
    loop {
        let text = if followed { &context.buffers.walk } else { &context.buffers.named[which] };
        let text = text.as_bytes();
        let skip = |from: usize| from + text[from..].iter().take_while(|b| **b == b'/').count();
        let begin = skip(at);
        if begin == text.len() {
            // Only slashes: the root, or a link to it.
            let reached = Reached { record: here, slash: true, name: None, followed };
            return (end_is == End::Existing && here == ROOT).then_some(Ok(reached));
        }
        let length = text[begin..].iter().position(|byte| *byte == b'/');
        let end = length.map_or(text.len(), |length| begin + length);
        let (last, slash) = (skip(end) == text.len(), end < text.len());
        let name = &text[begin..end];
        let directory = image.index.entry(here)?;
        if checks && let Err(refused) = search(context, image, (here, &directory))? {
            return Some(Err(refused));
        }
        match name {
            b"." | b".." if last => return None,
            b"." => {
                at = end;
                continue;
            }
            b".." => {
                (here, at) = (directory.parent, end);
                continue;
            }
            name if name.len() > NAME_MAX => return None,
            name => {
                if context.world.is_bound(name) && is_bound(context.world, image, here, name)? {
                    return None;
                }
            }
        }
        let named = Reached { record: here, slash, name: Some((begin, end)), followed };
        if last && (end_is == End::Name || end_is == End::Creatable && slash) {
            return (end_is == End::Name).then_some(Ok(named));
        }
        let is_single = is_upper && begin == 0 && end == text.len() && !followed;
        let Some(next) = image.index.child(here, name) else {
            if image.changes.is_merged(here) {
                context.buffers.layer = is_single.then_some((from, Layer::Own));
                return None;
            }
            let makes = last && end_is == End::Creatable;
            return Some(if makes { Ok(named) } else { Err(Errno::ENOENT) });
        };
        if image.changes.is_covered(next) {
            context.buffers.layer = is_single.then_some((from, Layer::Covered));
            return None;
        }
        let entry = image.index.entry(next)?;
        if entry.is_link() && (!last || slash || follow) {
            links += 1;
            if links > LINKS_MAX {
                return Some(Err(Errno::ELOOP));
            }
            let target = image.index.target(&entry);
            let buffers = &mut *context.buffers;
            let text = if followed { &buffers.walk } else { &buffers.named[which] };
            buffers.link.set_both(target, &text.as_bytes()[end..]).ok()?;
            buffers.walk.copy(&buffers.link);
            if target.first() == Some(&b'/') {
                here = ROOT;
            }
            (at, followed) = (0, true);
            continue;
        }
        if last {
            if slash && !entry.is_directory() {
                return Some(Err(Errno::ENOTDIR));
            }
            return Some(Ok(Reached { record: next, slash, name: None, followed }));
        }
        if !entry.is_directory() {
            return Some(Err(Errno::ENOTDIR));
        }
        (here, at) = (next, end);
    }
}

/// Checks that a thread may search a directory. `None`: the index does not tell.
fn search<N: Backend>(
    context: &CallContext<'_, N>,
    image: &Image<'_>,
    (record, directory): (u32, &Entry),
) -> Option<Result<()>> {
    if directory.has(flags::ATTRIBUTES) || image.changes.is_merged(record) {
        return None;
    }
    Some(rules::may_search(&context.task.creds, &image.truth(directory)))
}

/// Returns true if a name in a directory is a mount point. `None` if that is not known.
#[cold]
fn is_bound(world: &World<'_>, image: &Image<'_>, directory: u32, name: &[u8]) -> Option<bool> {
    let mut path = [0; 1024];
    let (slash, rest) = path.split_first_mut()?;
    *slash = b'/';
    let mut length = 1 + image.index.path(directory, rest)?;
    if length > 1 {
        *path.get_mut(length)? = b'/';
        length += 1;
    }
    path.get_mut(length..length + name.len())?.copy_from_slice(name);
    Some(is_mount_point(world, &path[..length + name.len()]))
}
