//! Resolves paths whose directory is known to be free of symbolic links, without asking the kernel
//! about it again.
//!
//! An in-process backend pays for every system call, and almost all paths lead through the same few
//! directories. A directory that was found to be *plain*
//! ([`Host::is_plain`](crate::Host::is_plain)) is remembered for all processes of the container,
//! until one of them removes or renames a directory. A path in a plain directory needs no call for
//! its directories: its components are put together as text, and the guest's own call finds out
//! about the last component.
//!
//! What the cache says of a host path `D` of [`Kind::Tree`]: no component of it is a symbolic link.
//! For threads whose search permission has to be checked ([`Walker::checks_search`]) it also says
//! that every user may search `D` and all directories above it. Both can become false only when a
//! directory is removed or renamed, or loses a search permission. The rules report that to the host
//! ([`crate::Host::changed`]), before and after. A link cannot replace a directory in any other
//! way. Directories outside of the tree are never in the cache, because the host's processes report
//! nothing.
//!
//! The cache can also say of a name `N` in the root of the tree that it is a link to `usr/N`, as on
//! all systems with a merged `/usr`. The key is the host path and a NUL. This becomes false when a
//! name in the root is removed or renamed.
//!
//! In every unusual case the path is resolved without the cache. The result is the same place,
//! except for [`Place::held`].

use super::bindings::{behind, find};
use super::fast_path;
use super::place::{End, Last, Look, Place};
use super::resolve::{LINKS_MAX, Resolver};
use super::walker::{SUFFIX_MAX, WalkOrigin, Walker, pop};
use crate::CallContext;
use crate::buffers::CallBuffers;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Host};
use crate::text::{PATH_MAX, Text};
use crate::world::{Kind, World};
use linux_raw_sys::general::{
    AT_SYMLINK_NOFOLLOW, O_DIRECTORY, O_PATH, RESOLVE_NO_SYMLINKS, S_IFDIR, S_IFLNK, S_IFMT, X_OK,
};

/// The form of a path as text that is absolute and has no links, `.` or `..`.
#[derive(Clone, Copy)]
struct Shape {
    /// It is in `buffers.named`, as the guest gave it; otherwise in `buffers.position`.
    named: bool,
    /// It ended in a slash.
    slash: bool,
    /// The guest's own path consists of names only, and leads from its working directory to the
    /// same file.
    relative: bool,
}

impl<N: Backend> Resolver<'_, '_, N> {
    /// Resolves the path by the cache. `None`: it has to be resolved without, from the start.
    pub(super) fn by_dir_cache(&mut self) -> Result<Option<Place>> {
        let intent = self.intent();
        let unheld = !intent.hold || intent.look != Look::Hold;
        if intent.resolve != 0
            || (!unheld && intent.end != End::Name)
            || !self.walker.may_use_cache()
        {
            return Ok(None);
        }
        let mut followed = false;
        if intent.look == Look::Facts && intent.end == End::Existing {
            match self.facts_by_fast_path() {
                Some(Ok(Some(place))) => return Ok(Some(place)),
                Some(Ok(None)) => followed = true,
                Some(Err(errno)) => return Err(errno),
                None => {}
            }
        }
        for _ in 0..LINKS_MAX {
            let Some(mut shape) = self.walker.compose(followed) else { return Ok(None) };
            let Some(index) = self.walker.cached_directory(&mut shape) else {
                return Ok(None);
            };
            self.walker.binding = Some(index);
            self.walker.origin = WalkOrigin::Named;
            self.walker.direct = false;
            if intent.end == End::Name {
                return self.cached_name(shape).map(Some);
            }
            if intent.look == Look::Later && !shape.slash {
                let mut place = Place { unseen: true, ..self.cached_place(shape) };
                if shape.relative {
                    // The shorter path is faster for the kernel.
                    place.at = Dir::Cwd;
                    let buffers = &mut *self.walker.context.buffers;
                    let named = buffers.named[self.walker.which].as_bytes();
                    buffers.found[self.walker.which].set_both(named, b"")?;
                }
                return Ok(Some(place));
            }
            match self.walker.stat_last() {
                Ok(()) => {}
                Err(Errno::ENOENT) if intent.end == End::Creatable && !shape.slash => {
                    return Ok(Some(Place { missing: true, ..self.cached_place(shape) }));
                }
                Err(errno @ (Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG))
                    if intent.end == End::Existing =>
                {
                    return Err(errno);
                }
                Err(_) => return Ok(None),
            }
            let mode = u32::from(self.walker.context.buffers.seen[self.walker.which].stx_mode);
            if mode & S_IFMT == S_IFLNK && (intent.follow || shape.slash) {
                if !self.walker.read_last_link(shape) {
                    return Ok(None);
                }
                followed = true;
                continue;
            }
            if shape.slash && (mode & S_IFMT != S_IFDIR || intent.end == End::Creatable) {
                return Ok(None);
            }
            return Ok(Some(Place { seen: true, ..self.cached_place(shape) }));
        }
        Ok(None)
    }

    /// Reads the status of an absolute path from the root of the tree, if the fast path applies.
    /// `Some(Ok(None))`: the last component was a link, and the path that it leads to is in
    /// `buffers.walk`. `None`: this path has to be resolved otherwise.
    fn facts_by_fast_path(&mut self) -> Option<Result<Option<Place>>> {
        let (from, which) = (self.walker.from, self.walker.which);
        let context = &mut *self.walker.context;
        let start =
            fast_path::fast_path(context, from, which).filter(|start| start.dir != Dir::Cwd)?;
        if start.dir == Dir::Root {
            return None;
        }
        let CallContext { backend, world, buffers, .. } = context;
        let path = start.path(buffers.named[which].with_nul());
        match backend.statx(start.dir, path, AT_SYMLINK_NOFOLLOW, &mut buffers.seen[which]) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Some(Err(Errno::ENOENT)),
            Err(_) => return None,
        }
        let root = world.bindings.first()?;
        let is_link = u32::from(buffers.seen[which].stx_mode) & S_IFMT == S_IFLNK;
        buffers.found[which].set_both(root.host, buffers.named[which].as_bytes()).ok()?;
        self.walker.binding = Some(0);
        self.walker.origin = WalkOrigin::Named;
        self.walker.direct = false;
        let shape = Shape { named: true, slash: false, relative: false };
        if is_link && self.walker.intent.follow {
            return self.walker.read_last_link(shape).then_some(Ok(None));
        }
        Some(Ok(Some(Place { seen: true, ..self.cached_place(shape) })))
    }

    fn cached_name(&mut self, shape: Shape) -> Result<Place> {
        if shape.slash {
            self.walker.append(b"/")?;
        }
        self.walker.set_position(shape);
        Ok(Place { directory: shape.slash, ..self.walker.place(Dir::Root, Last::Name) })
    }

    fn cached_place(&mut self, shape: Shape) -> Place {
        if self.intent().look == Look::Hold {
            self.walker.set_position(shape);
        }
        let mut place = Place {
            last: Last::Name,
            directory: shape.slash,
            direct: false,
            ..Place::itself(Dir::Root)
        };
        // The place is not the root of a binding: the directory of a binding's root is never in the
        // cache.
        place.set_binding(self.walker.context.world, self.walker.binding);
        place
    }
}

impl<N: Backend> Walker<'_, '_, N> {
    /// Returns false if it is certain that the cache cannot help with this path.
    fn may_use_cache(&mut self) -> bool {
        let context = &mut *self.context;
        let absolute = context.buffers.named[self.which].as_bytes().first() == Some(&b'/');
        // A single name takes one call without the cache.
        let alone =
            self.intent.light && !context.buffers.named[self.which].as_bytes().contains(&b'/');
        (absolute || self.from == Dir::Cwd && !alone)
            && !self.anchored
            && !context.buffers.careful
            && context.task.root.as_bytes() == b"/"
            && context.backend.plain_generation().is_some()
    }

    /// Returns true if a relative path that starts in the tree should be resolved completely,
    /// although that takes more calls, because its directory is in the cache from then on.
    pub(super) fn may_fill_cache(&mut self) -> bool {
        if self.from != Dir::Cwd || !self.may_use_cache() {
            return false;
        }
        let CallContext { backend, world, task, buffers } = &mut *self.context;
        task.entered == 0
            && backend.remembered_cwd(&mut buffers.link)
            && in_tree(world, buffers.link.as_bytes()).is_some()
    }

    /// Puts the path together in `buffers.position`, from `buffers.named`, or from `buffers.walk`
    /// if a link was `followed`.
    fn compose(&mut self, followed: bool) -> Option<Shape> {
        let CallContext { backend, world, task, buffers } = &mut *self.context;
        let path = if followed { &buffers.walk } else { &buffers.named[self.which] };
        let path = path.as_bytes();
        let position = &mut buffers.position;
        if path.first() == Some(&b'/') {
            if !followed && is_clean(path) {
                return Some(Shape { named: true, slash: false, relative: false });
            }
            position.clear();
        } else {
            // The target of a relative link was joined to its directory, so this is the guest's own
            // path.
            if task.entered != 0 || !backend.remembered_cwd(&mut buffers.link) {
                return None;
            }
            let here = in_tree(world, buffers.link.as_bytes())?;
            position.set_both(here, b"").ok()?;
        }
        self.append_names(followed)
    }

    /// Adds the components of the path to `buffers.position` and folds `.` and `..`. A directory
    /// that `..` leaves must be in the cache, or is looked at.
    fn append_names(&mut self, followed: bool) -> Option<Shape> {
        let everybody = self.checks_search();
        let CallContext { backend, world, buffers, .. } = &mut *self.context;
        let path = if followed { &buffers.walk } else { &buffers.named[self.which] };
        let path = path.as_bytes();
        let mut at = 0;
        let mut last: &[u8] = b"";
        let mut relative = !followed && path.first() != Some(&b'/');
        while at < path.len() {
            let length = path[at..].iter().position(|byte| *byte == b'/');
            let end = length.map_or(path.len(), |length| at + length);
            let name = &path[at..end];
            at = end + 1;
            match name {
                b"" => continue,
                b"." => {}
                b".." => {
                    tree_path(world, buffers.position.as_bytes(), &mut buffers.host)?;
                    if !ensure_plain(*backend, &buffers.host, everybody)
                        || world.identity.is_none() && !may_search(*backend, &buffers.host)
                    {
                        return None;
                    }
                    pop(&mut buffers.position);
                    if buffers.position.as_bytes() == b"/" {
                        // The component that is added next begins with a slash.
                        buffers.position.clear();
                    }
                    relative = false;
                }
                name => {
                    buffers.position.push(b"/").ok()?;
                    buffers.position.push(name).ok()?;
                }
            }
            last = name;
        }
        // Paths that end in `.` or `..` are rare, and the kernel gives their errors.
        if matches!(last, b"" | b"." | b"..") || buffers.position.is_empty() {
            return None;
        }
        // The kernel would look in one of the layers only.
        relative &= world.image.is_none();
        Some(Shape { named: false, slash: path.last() == Some(&b'/'), relative })
    }

    /// If the directory of the path is in the cache: puts the host path into `buffers.found` and
    /// returns the index of the binding.
    fn cached_directory(&mut self, shape: &mut Shape) -> Option<usize> {
        let everybody = self.checks_search();
        let own = shape.named || shape.relative;
        let generation = self.context.backend.plain_generation()?;
        // The second pass is for a path in which a link of the root was replaced.
        for _ in 0..2 {
            let CallContext { backend, world, buffers, .. } = &mut *self.context;
            let found = &mut buffers.found[self.which];
            let path = if shape.named { &buffers.named[self.which] } else { &buffers.position };
            let index = tree_path(world, path.as_bytes(), found)?;
            let end = found.as_bytes().iter().rposition(|byte| *byte == b'/')?;
            if backend.is_plain(&found.as_bytes()[..end], everybody) {
                if own && world.bindings[index].guest == b"/" {
                    let named = buffers.named[self.which].as_bytes();
                    fast_path::learn(*backend, named, everybody, generation);
                }
                return Some(index);
            }
            if everybody || !self.insert_usr(index, shape) {
                return None;
            }
        }
        None
    }

    /// If the path begins with a name in the root of the tree that is known to be a link into
    /// `usr`, puts `/usr` before it.
    fn insert_usr(&mut self, index: usize, shape: &mut Shape) -> bool {
        let CallContext { backend, world, buffers, .. } = &mut *self.context;
        let path = if shape.named { &buffers.named[self.which] } else { &buffers.position };
        let position = path.as_bytes();
        let Some(length) = position[1..].iter().position(|byte| *byte == b'/') else {
            return false;
        };
        let binding = &world.bindings[index];
        let mut key = [0; LINK_KEY];
        if binding.guest != b"/" {
            return false;
        }
        let Some(key) = link_key(&mut key, binding.host, &position[..=length]) else {
            return false;
        };
        if !backend.is_plain(key, false) {
            return false;
        }
        (shape.named, shape.relative) = (false, false);
        buffers.link.set_both(b"/usr", position).is_ok()
            && buffers.position.set_both(buffers.link.as_bytes(), b"").is_ok()
    }

    /// Puts the guest's canonical name into `buffers.position`, if the path was used as the guest
    /// gave it.
    fn set_position(&mut self, shape: Shape) {
        let buffers = &mut *self.context.buffers;
        if shape.named {
            // The copy always fits: the path was in a buffer of the same size.
            let _ = buffers.position.set_both(buffers.named[self.which].as_bytes(), b"");
        }
    }

    /// Reads the status of the last component, without following it.
    fn stat_last(&mut self) -> Result<()> {
        let CallContext { backend, buffers, .. } = &mut *self.context;
        let path = buffers.found[self.which].as_c_str();
        backend.statx(Dir::Root, path, AT_SYMLINK_NOFOLLOW, &mut buffers.seen[self.which])
    }

    /// Puts the path that the link at the last component leads to into `buffers.walk`.
    fn read_last_link(&mut self, shape: Shape) -> bool {
        self.set_position(shape);
        let CallContext { backend, buffers, .. } = &mut *self.context;
        let CallBuffers { link, walk, position, found, .. } = &mut **buffers;
        let found = &found[self.which];
        if backend.readlink(Dir::Root, found.as_c_str(), link).is_err() || link.is_empty() {
            return false;
        }
        let slash = position.as_bytes().iter().rposition(|byte| *byte == b'/');
        let directory = slash.unwrap_or(0);
        let put = if link.as_bytes()[0] == b'/' {
            walk.set(link.as_bytes())
        } else {
            walk.set(&position.as_bytes()[..directory])
                .and_then(|()| walk.push(b"/"))
                .and_then(|()| walk.push(link.as_bytes()))
        };
        put.and_then(|()| if shape.slash { walk.push(b"/") } else { Ok(()) }).is_ok()
    }
}

/// Returns true if a directory that a path leaves by `..` is plain. If the cache does not know,
/// this looks at it and remembers the result, because no other call may ever look for that
/// directory.
fn ensure_plain(host: &mut impl Host, path: &Text, everybody: bool) -> bool {
    if host.is_plain(path.as_bytes(), everybody) {
        return true;
    }
    let Some(generation) = host.plain_generation().filter(|_| !everybody) else { return false };
    let is_plain = host.has_openat2() && is_plain_directory(host, path);
    if is_plain {
        host.set_plain(path.as_bytes(), false, generation);
    }
    is_plain
}

/// Returns true if the kernel lets its caller search a directory. A path that leaves the directory
/// by `..` does not show it to the kernel, so no other call checks that.
fn may_search(host: &mut impl Host, path: &Text) -> bool {
    host.access(Dir::Root, path.as_c_str(), X_OK, 0).is_ok()
}

/// Returns true if this is a directory and, where the kernel can tell, there is no link on the way
/// to it.
pub(super) fn is_plain_directory(host: &mut impl Host, path: &Text) -> bool {
    let (flags, resolve) = (O_PATH | O_DIRECTORY, u64::from(RESOLVE_NO_SYMLINKS));
    let resolve = if host.has_openat2() { resolve } else { 0 };
    let Ok(fd) = host.open(Dir::Root, path.as_c_str(), flags, 0, resolve) else { return false };
    host.close(fd);
    true
}

/// Returns true if the search permission of directories has to be checked for this thread.
pub(super) fn checks_search<N: Backend>(context: &CallContext<'_, N>) -> bool {
    context.world.identity.is_some() && !context.task.creds.overrides()
}

/// Returns true if a name is in the root of a binding of the tree: a link of that name may be in
/// the cache.
pub fn is_in_root(world: &World<'_>, place: &Place, found: &[u8]) -> bool {
    let Some(binding) = place.binding.and_then(|index| world.bindings.get(index)) else {
        return true;
    };
    found
        .strip_prefix(binding.host)
        .is_none_or(|name| !name.strip_prefix(b"/").unwrap_or(name).contains(&b'/'))
}

/// The guest path of a host directory in the tree, if that is simple: the root is the tree, and no
/// other binding hides the directory. Empty for the root.
pub(crate) fn in_tree<'h>(world: &World<'_>, host: &'h [u8]) -> Option<&'h [u8]> {
    let root = world.bindings.first()?;
    let rest = behind(host, root.host)?;
    let plain = root.kind == Kind::Tree && root.guest == b"/" && !host.ends_with(b" (deleted)");
    (plain && (rest.is_empty() || find(world, rest)?.0 == 0)).then_some(rest)
}

/// Size of the buffer for a [`link_key`].
pub(super) const LINK_KEY: usize = 512;

/// The key under which a link in the root is remembered; `name` includes its slash.
pub(super) fn link_key<'k>(
    key: &'k mut [u8; LINK_KEY],
    root: &[u8],
    name: &[u8],
) -> Option<&'k [u8]> {
    let length = root.len() + name.len();
    key.get_mut(..root.len())?.copy_from_slice(root);
    key.get_mut(root.len()..length)?.copy_from_slice(name);
    key.get(..=length)
}

/// Puts the host path of a guest path without links into `into`, if that lies in the tree and below
/// the root of a binding. Returns the index of the binding.
pub(super) fn tree_path(world: &World<'_>, position: &[u8], into: &mut Text) -> Option<usize> {
    let (index, rest) = find(world, if position.is_empty() { b"/" } else { position })?;
    let binding = &world.bindings[index];
    let fits = binding.host.len() + rest.len() + SUFFIX_MAX < PATH_MAX;
    if binding.kind != Kind::Tree || !fits || binding.host == b"/" {
        return None;
    }
    into.set_both(binding.host, rest).ok()?;
    Some(index)
}

/// Returns true if a path is absolute and already in the form of a [`Shape`]: no `//`, no component
/// that begins with a dot, no slash at the end.
fn is_clean(path: &[u8]) -> bool {
    let mut before = 0;
    let mut clean = true;
    for byte in path {
        clean &= before != b'/' || (*byte != b'/' && *byte != b'.');
        before = *byte;
    }
    clean && path.len() > 1 && path[0] == b'/' && before != b'/'
}
