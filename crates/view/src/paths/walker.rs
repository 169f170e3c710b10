//! The position that the resolution of a path has reached, and single steps from there.
//!
//! Three texts change together: the rest of the path (`buffers.walk`, from an offset on), the
//! guest's canonical name of the position (`buffers.position`), and its host path (`buffers.found`,
//! relative to a base that is mostly the host's root). The guest's name decides where `..` leads
//! and where bindings begin. If there is none (a directory outside of all bindings, a removed one,
//! one too deep for a path), the base is a descriptor, and names are relative to it.
//!
//! If the host path would become too long, the directory that was reached is opened and becomes the
//! base.

use super::bindings::{is_mount_point, mounts_beneath};
use super::place::{End, Intent, Last, Place};
use super::probe::Probe;
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, HostFd};
use crate::identity;
use crate::text::{PATH_MAX, Text};
use crate::world::Kind;
use linux_raw_sys::general::{O_PATH, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_XDEV};

/// The length of the longest suffix that is added to a host path for one call.
pub(super) const SUFFIX_MAX: usize = 3;

/// What is known of the directory that names are relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkOrigin {
    /// `buffers.position` is its name for the guest.
    Named,
    /// It is in no binding. It is its own root: `..` does not leave it.
    Outside,
    /// It has no name (removed, or too deep), but the kernel knows its parent.
    Lost,
}

/// The next part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Component {
    /// There is none.
    End,
    /// `.`
    Dot { last: bool },
    /// `..`
    DotDot { last: bool },
    /// A name: its range in `buffers.walk`, and flags that say if it is the last and if a slash
    /// follows.
    Name { start: usize, end: usize, last: bool, slash: bool },
}

/// An earlier position to return to, inside the same binding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) rest: usize,
    position: usize,
    found: usize,
    pub(super) depth: usize,
    pub(super) origin: WalkOrigin,
}

/// The state of one resolution.
pub(super) struct Walker<'s, 'a, N: Backend> {
    pub(super) context: &'s mut CallContext<'a, N>,
    pub(super) from: Dir,
    pub(super) which: usize,
    pub(super) intent: Intent,
    /// The directory that `buffers.found` starts from. The walker closes a [`Dir::Held`].
    pub(super) base: Dir,
    pub(super) binding: Option<usize>,
    pub(super) origin: WalkOrigin,
    /// How many bytes of `buffers.walk` have been taken.
    pub(super) rest: usize,
    /// Number of names below the start, for `RESOLVE_BENEATH` and `RESOLVE_IN_ROOT`.
    pub(super) depth: usize,
    /// Stay at the directory that the path starts from instead of going to it by name.
    pub(super) anchored: bool,
    /// Only names have been taken since the directory that the path starts from: [`Place::direct`].
    pub(super) direct: bool,
    /// That directory is one of the container's own, in which the kernel finds everything.
    pub(super) own: bool,
}

impl<'s, 'a, N: Backend> Walker<'s, 'a, N> {
    pub(super) fn new(
        context: &'s mut CallContext<'a, N>,
        from: Dir,
        which: usize,
        intent: Intent,
        anchored: bool,
    ) -> Self {
        context.buffers.position.clear();
        Self {
            context,
            from,
            which,
            intent,
            base: Dir::Root,
            binding: None,
            origin: WalkOrigin::Outside,
            rest: 0,
            depth: 0,
            anchored,
            // Until the walker starts at another directory.
            direct: true,
            own: false,
        }
    }

    pub(super) fn named(&self) -> &Text {
        &self.context.buffers.named[self.which]
    }

    pub(super) fn clear_found(&mut self) {
        self.context.buffers.found[self.which].clear();
    }

    pub(super) fn scoped(&self) -> bool {
        self.intent.resolve & u64::from(RESOLVE_BENEATH | RESOLVE_IN_ROOT) != 0
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.intent.resolve & u64::from(flag) != 0
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        self.binding.map(|index| self.context.world.bindings[index].kind)
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            rest: self.rest,
            position: self.context.buffers.position.len(),
            found: self.context.buffers.found[self.which].len(),
            depth: self.depth,
            origin: self.origin,
        }
    }

    /// Returns true if nothing has been added to the host path since.
    pub(super) fn at_mark(&self, mark: &Mark) -> bool {
        self.context.buffers.found[self.which].len() == mark.found
    }

    pub(super) fn rewind(&mut self, mark: &Mark) {
        self.forget_since(mark);
        self.rest = mark.rest;
    }

    /// Removes the names taken since `mark`, but does not put them back into the rest of the path.
    /// A position that was lost because it was too long stays unknown.
    pub(super) fn forget_since(&mut self, mark: &Mark) {
        let buffers = &mut *self.context.buffers;
        buffers.found[self.which].truncate(mark.found);
        if self.origin == mark.origin {
            buffers.position.truncate(mark.position);
        }
        self.depth = mark.depth;
    }

    /// The next component, without taking it.
    pub(super) fn peek(&self) -> Component {
        let walk = self.context.buffers.walk.as_bytes();
        let skip = |from: usize| from + walk[from..].iter().take_while(|b| **b == b'/').count();
        let start = skip(self.rest);
        if start == walk.len() {
            return Component::End;
        }
        let length = walk[start..].iter().position(|byte| *byte == b'/');
        let end = length.map_or(walk.len(), |length| start + length);
        let last = skip(end) == walk.len();
        match &walk[start..end] {
            b"." => Component::Dot { last },
            b".." => Component::DotDot { last },
            _ => Component::Name { start, end, last, slash: end < walk.len() },
        }
    }

    /// Takes a component without moving.
    pub(super) fn skip(&mut self, component: Component) {
        let walk = self.context.buffers.walk.as_bytes();
        let start = self.rest + walk[self.rest..].iter().take_while(|b| **b == b'/').count();
        self.rest = match component {
            Component::End => walk.len(),
            Component::Dot { .. } => start + 1,
            Component::DotDot { .. } => start + 2,
            Component::Name { end, .. } => end,
        };
    }

    /// Returns true if the host path has room for a name.
    pub(super) fn fits(&self, component: Component) -> bool {
        let Component::Name { start, end, .. } = component else { return true };
        let found = &self.context.buffers.found[self.which];
        // The kernel itself refuses a single name that is too long.
        found.is_empty() || found.len() + 1 + (end - start) + SUFFIX_MAX < PATH_MAX
    }

    /// Goes down by a name. Returns true if a binding begins there. Components since `mark` have
    /// not been checked for search permission.
    pub(super) fn push(&mut self, component: Component, mark: &Mark) -> Result<bool> {
        let Component::Name { start, end, .. } = component else { return Ok(false) };
        self.rest = end;
        self.depth += 1;
        let buffers = &mut *self.context.buffers;
        let name = &buffers.walk.as_bytes()[start..end];
        if self.origin == WalkOrigin::Named {
            if buffers.position.push_component(name).is_err() {
                buffers.position.clear();
                self.origin = WalkOrigin::Lost;
            } else if is_mount_point(self.context.world, buffers.position.as_bytes()) {
                if self.has(RESOLVE_NO_XDEV) {
                    return Err(Errno::EXDEV);
                }
                self.search_all(mark)?;
                self.enter()?;
                return Ok(true);
            }
        }
        let buffers = &mut *self.context.buffers;
        let name = &buffers.walk.as_bytes()[start..end];
        push_to(&mut buffers.found[self.which], name)?;
        Ok(false)
    }

    /// Returns true if the search permission of directories has to be checked for this thread.
    pub(super) fn checks_search(&self) -> bool {
        super::dir_cache::checks_search(self.context)
    }

    /// Checks the search permission of the directories in which names since `mark` were looked up.
    pub(super) fn search(&mut self, mark: &Mark) -> Result<()> {
        self.search_range(mark, false)
    }

    /// As [`Walker::search`], including the last directory.
    pub(super) fn search_all(&mut self, mark: &Mark) -> Result<()> {
        self.search_range(mark, true)
    }

    /// Checks the search permission of the directory that was reached.
    pub(super) fn search_here(&mut self) -> Result<()> {
        let mark = self.mark();
        self.search_all(&mark)
    }

    fn search_range(&mut self, mark: &Mark, whole: bool) -> Result<()> {
        let Some(identity) = self.context.world.identity.filter(|_| self.checks_search()) else {
            return Ok(());
        };
        let kind = self.kind().unwrap_or(Kind::Host);
        let CallContext { backend, task, buffers, .. } = &mut *self.context;
        let found = buffers.found[self.which].as_bytes();
        let mut end = mark.found;
        while end < found.len() || (whole && end == found.len()) {
            buffers.host.set(&found[..end])?;
            let path = buffers.host.as_c_str();
            identity::files::search(*backend, &identity, &task.creds, kind, self.base, path)?;
            if end == found.len() {
                break;
            }
            let next = found[end + 1..].iter().position(|byte| *byte == b'/');
            end = next.map_or(found.len(), |next| end + 1 + next);
        }
        Ok(())
    }

    /// Adds the end of the guest's path (`/`, `/.`, `/..`) to the host path.
    pub(super) fn append(&mut self, end: &[u8]) -> Result<()> {
        let found = &mut self.context.buffers.found[self.which];
        if found.is_empty() { found.push(&end[1..]) } else { found.push(end) }
    }

    /// Calls `run` with `suffix` added to the host path.
    fn with_suffix<T>(
        &mut self,
        suffix: &[u8],
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let found = &mut self.context.buffers.found[self.which];
        let length = found.len();
        if found.is_empty() {
            found.push(if suffix == b"/.." { b".." } else { b"." })?;
        } else {
            found.push(suffix)?;
        }
        let result = run(self);
        self.context.buffers.found[self.which].truncate(length);
        result
    }

    /// Checks the host path with `suffix` added for links.
    pub(super) fn probe(&mut self, suffix: &[u8], flags: u32) -> Result<Probe> {
        self.with_suffix(suffix, |walker| Ok(walker.probe_from(walker.base, flags)))
    }

    /// Opens the host path, which is known to be free of links, with `suffix` added.
    pub(super) fn open(&mut self, suffix: &[u8], flags: u32) -> Result<HostFd> {
        self.with_suffix(suffix, |walker| {
            let path = walker.context.buffers.found[walker.which].as_c_str();
            walker.context.backend.open(walker.base, path, flags, 0, 0)
        })
    }

    /// Checks that [`Walker::open`] works.
    pub(super) fn check(&mut self, suffix: &[u8], flags: u32) -> Result<()> {
        let fd = self.open(suffix, flags | O_PATH)?;
        self.context.backend.close(fd);
        Ok(())
    }

    /// Reads the link at the host path into `buffers.link`; `EINVAL` if it is not a link.
    pub(super) fn read_link(&mut self) -> Result<()> {
        let CallContext { backend, buffers, .. } = &mut *self.context;
        backend.readlink(self.base, buffers.found[self.which].as_c_str(), &mut buffers.link)
    }

    /// The position as a place whose path starts at `at`.
    pub(super) fn place(&self, at: Dir, last: Last) -> Place {
        let CallContext { world, buffers, .. } = &*self.context;
        let position = buffers.position.as_bytes();
        // For a name to be made or removed that is not a name, the kernel's own error is wanted.
        let refused = self.intent.end == End::Name && !matches!(last, Last::Name | Last::Empty);
        let named = !position.is_empty() && !refused;
        let mut place = Place {
            mount_point: named && is_mount_point(world, position),
            holds_mounts: named && mounts_beneath(world, position).next().is_some(),
            last,
            direct: self.direct,
            ..Place::itself(at)
        };
        place.set_binding(world, self.binding);
        // The kernel would look in one of the layers only.
        place.direct &= world.image.is_none() || place.kind != Kind::Tree || self.own;
        place
    }
}

/// Adds a name to a host path, which may be empty.
pub(super) fn push_to(found: &mut Text, name: &[u8]) -> Result<()> {
    if found.is_empty() { found.push(name) } else { found.push_component(name) }
}

/// Removes the last name from a path.
pub(super) fn pop(path: &mut Text) {
    match path.as_bytes().iter().rposition(|byte| *byte == b'/') {
        Some(0) => path.truncate(1),
        Some(slash) => path.truncate(slash),
        None => path.clear(),
    }
}
