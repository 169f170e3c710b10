//! Finds the host file that a guest's path means: entry points and main loop of the resolution.
//!
//! A path is taken in *stretches*. A stretch is all components up to the next `..` or the end, put
//! together as text, with bindings crossed; one `openat2` with `RESOLVE_NO_SYMLINKS` tells if there
//! are links in it. Mostly there are none, and the path is resolved. Otherwise the stretch is gone
//! through again component by component ([`Resolver::by_component`]) up to the first link. The
//! link's target replaces its name, and the next stretch begins. `..` removes the last name of a
//! directory that is known to be free of links. It does so in the guest's naming, so from the root
//! of a binding it leads to the directory that contains the mount point.
//!
//! Nothing here recurses. The number of stretches is limited by 40 links and by the number of `..`
//! in 4095 bytes, the number of components likewise.

use super::dir_cache;
use super::place::{End, Intent, Last, Place};
use super::probe::Probe;
use super::walker::{Component, Mark, Walker};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use linux_raw_sys::general::{
    O_DIRECTORY, O_NOFOLLOW, O_PATH, RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT,
    RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};

/// `MAXSYMLINKS` of the kernel.
pub(super) const LINKS_MAX: u32 = 40;

/// Finds the place of the path in `context.buffers.named[which]`. A relative path starts at `from`:
/// the guest's `dirfd` as [`Dir::Guest`] or [`Dir::Cwd`], or [`Dir::Root`] for the root of the
/// task.
///
/// The host path is left in `context.buffers.found[which]`. The guest's canonical name (links
/// expanded, `..` folded) is in `context.buffers.position` until the next call; it is empty if the
/// guest has no name for the place. The caller closes the place ([`Place::close`]). `named` does
/// not change.
///
/// Errors are those of `path_resolution(7)`, in the kernel's order: `ENOENT`, `ENOTDIR`, `EACCES`,
/// `ELOOP`, `ENAMETOOLONG`, `EBADF`; with `RESOLVE_*` also `EXDEV`, `EINVAL`, `EAGAIN`. Errors that
/// depend on the end of a name, and on what the call does with it, are left to the call.
///
/// Cost: one `openat2` for an absolute path without links (none for [`End::Name`] directly under
/// the root or a binding). A relative path also costs a call for the name of its directory, unless
/// [`Intent::light`] avoids it.
pub fn resolve<N: Backend>(
    context: &mut CallContext<'_, N>,
    from: Dir,
    which: usize,
    intent: Intent,
) -> Result<Place> {
    let generation = if intent.resolve == 0 { context.backend.plain_generation() } else { None };
    let Some(generation) = generation else {
        return resolve_uncached(context, from, which, intent);
    };
    let walker = Walker::new(context, from, which, intent, false);
    if let Some(place) = (Resolver { walker, links: 0 }).by_dir_cache()? {
        return Ok(place);
    }
    let result = resolve_uncached(context, from, which, intent);
    match &result {
        // The resolver did not look at the name. Its directory exists, but the host's caller may
        // lack search permission.
        Ok(_) if intent.end == End::Name && context.world.identity.is_none() => {}
        Ok(place) => dir_cache::learn_place(context, which, intent.end, place, generation),
        Err(Errno::ENOENT) => dir_cache::learn_missing(context, from, which, generation),
        Err(_) => {}
    }
    result
}

/// As [`resolve`], but only by the cache of directories. `None` if that is not possible.
pub fn resolve_cached<N: Backend>(
    context: &mut CallContext<'_, N>,
    from: Dir,
    which: usize,
    intent: Intent,
) -> Result<Option<Place>> {
    let walker = Walker::new(context, from, which, intent, false);
    (Resolver { walker, links: 0 }).by_dir_cache()
}

/// Resolves without the cache of directories.
fn resolve_uncached<N: Backend>(
    context: &mut CallContext<'_, N>,
    from: Dir,
    which: usize,
    intent: Intent,
) -> Result<Place> {
    let result = resolve_once(context, from, which, intent, false);
    // A process may use a directory that it has open although it can no longer reach it by name.
    if result == Err(Errno::EACCES)
        && from != Dir::Root
        && context.buffers.named[which].as_bytes().first() != Some(&b'/')
    {
        return resolve_once(context, from, which, intent, true);
    }
    result
}

fn resolve_once<N: Backend>(
    context: &mut CallContext<'_, N>,
    from: Dir,
    which: usize,
    intent: Intent,
    anchored: bool,
) -> Result<Place> {
    let resolver = Walker::new(context, from, which, intent, anchored);
    let mut resolver = Resolver { walker: resolver, links: 0 };
    let result = resolver.run();
    if result.is_err() {
        resolver.walker.close_base();
    }
    result
}

/// The state of one resolution.
pub(super) struct Resolver<'s, 'a, N: Backend> {
    pub(super) walker: Walker<'s, 'a, N>,
    pub(super) links: u32,
}

/// What follows the last component in the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    None,
    Slash,
    Dot,
}

impl Tail {
    pub(super) const fn suffix(self) -> &'static [u8] {
        match self {
            Self::None => b"",
            Self::Slash => b"/",
            Self::Dot => b"/.",
        }
    }
}

impl<N: Backend> Resolver<'_, '_, N> {
    pub(super) fn intent(&self) -> Intent {
        self.walker.intent
    }

    pub(super) fn has(&self, flag: u32) -> bool {
        self.intent().resolve & u64::from(flag) != 0
    }

    fn run(&mut self) -> Result<Place> {
        const KNOWN: u32 = RESOLVE_NO_XDEV
            | RESOLVE_NO_MAGICLINKS
            | RESOLVE_NO_SYMLINKS
            | RESOLVE_BENEATH
            | RESOLVE_IN_ROOT
            | RESOLVE_CACHED;
        if self.intent().resolve & !u64::from(KNOWN) != 0
            || (self.has(RESOLVE_BENEATH) && self.has(RESOLVE_IN_ROOT))
        {
            return Err(Errno::EINVAL);
        }
        if self.has(RESOLVE_CACHED) {
            return Err(Errno::EAGAIN);
        }
        if self.walker.named().is_empty() {
            return self.empty_path();
        }
        if let Some(place) = self.relative_as_it_is()? {
            return Ok(place);
        }
        self.walker.start()?;
        loop {
            if let Some(place) = self.stretch()? {
                return Ok(place);
            }
        }
    }

    /// Resolves the empty path.
    fn empty_path(&mut self) -> Result<Place> {
        if !self.intent().empty {
            return Err(Errno::ENOENT);
        }
        let from = self.walker.from;
        if !self.intent().light {
            self.walker.locate(from)?;
        }
        let place = self.walker.place(from, Last::Empty);
        self.walker.clear_found();
        Ok(place)
    }

    /// Resolves a relative path that may be used as it is from the guest's own directory, without
    /// locating that directory.
    fn relative_as_it_is(&mut self) -> Result<Option<Place>> {
        let intent = self.intent();
        let walker = &mut self.walker;
        if !intent.light
            || intent.resolve != 0
            || walker.checks_search()
            || walker.from == Dir::Root
        {
            return Ok(None);
        }
        let which = walker.which;
        let named = walker.context.buffers.named[which].as_bytes();
        let ends = End::Name == intent.end;
        let world = walker.context.world;
        let plain = |name: &[u8]| name.is_empty() || (name != b".." && !world.is_bound(name));
        let slash = named.last() == Some(&b'/');
        if named.first() == Some(&b'/')
            || !named.split(|byte| *byte == b'/').all(plain)
            || (slash && intent.end == End::Creatable)
        {
            return Ok(None);
        }
        let last = if named.rsplit(|byte| *byte == b'/').next() == Some(b".") {
            Last::Dot
        } else {
            Last::Name
        };
        let single = !named.contains(&b'/');
        if !single && !ends && walker.may_fill_cache() {
            return Ok(None);
        }
        let named = walker.context.buffers.named[which].as_bytes();
        if !(single && !intent.hold && (ends || !intent.follow || last == Last::Dot)) {
            let checked = if ends { parent_part(named) } else { named };
            let nothing = checked.is_empty();
            let nofollow = if intent.follow || ends { 0 } else { O_NOFOLLOW };
            let directory = if ends { O_DIRECTORY } else { 0 };
            walker.context.buffers.found[which].set(checked)?;
            if !nothing {
                match walker.probe_from(walker.from, O_PATH | nofollow | directory) {
                    Probe::Free(fd) if intent.hold && !ends => {
                        let mut place = walker.place(walker.from, last);
                        (place.held, place.directory) = (Some(fd), slash || last == Last::Dot);
                        return Ok(Some(place));
                    }
                    Probe::Free(fd) => walker.context.backend.close(fd),
                    Probe::Linked => return Ok(None),
                    Probe::Failed(Errno::ENOENT) if intent.end == End::Creatable => {
                        let mut place = walker.place(walker.from, last);
                        place.missing = true;
                        return Ok(Some(place));
                    }
                    Probe::Failed(error) => return Err(error),
                }
            }
        }
        let buffers = &mut *walker.context.buffers;
        buffers.found[which].set(buffers.named[which].as_bytes())?;
        let mut place = walker.place(walker.from, last);
        place.directory = slash || last == Last::Dot;
        Ok(Some(place))
    }

    /// Takes the components up to the next `..` or the end, and has the kernel check them with one
    /// call. `None`: the path goes on.
    fn stretch(&mut self) -> Result<Option<Place>> {
        let mut mark = self.walker.mark();
        loop {
            let component = self.walker.peek();
            match component {
                Component::End => return self.end(&mark, Tail::None, Last::Root),
                Component::Dot { last: true } => return self.end(&mark, Tail::Dot, Last::Dot),
                Component::Dot { last: false } => self.walker.skip(component),
                Component::DotDot { last } => {
                    if !self.is_clear_directory(&mark)? {
                        return self.by_component(&mark);
                    }
                    return self.up(last);
                }
                Component::Name { last: true, slash, .. } if self.stops_before_name(slash) => {
                    if !self.walker.at_mark(&mark) && !self.verify(b"", O_DIRECTORY)? {
                        return self.by_component(&mark);
                    }
                    self.walker.search_all(&mark)?;
                    return self.name_end(component);
                }
                Component::Name { last, slash, .. } => {
                    if self.replaces_own_link(component) {
                        mark = self.walker.mark();
                        continue;
                    }
                    if !self.walker.fits(component) {
                        if !self.is_clear_directory(&mark)? {
                            return self.by_component(&mark);
                        }
                        self.walker.open_base()?;
                        return Ok(None);
                    }
                    if self.walker.push(component, &mark)? {
                        mark = self.walker.mark();
                    }
                    if last {
                        let tail = if slash { Tail::Slash } else { Tail::None };
                        return self.end(&mark, tail, Last::Name);
                    }
                }
            }
        }
    }

    /// Returns true if the path is checked only up to the directory of its last name. `O_CREAT`
    /// with a slash at the end is always `EISDIR`.
    pub(super) fn stops_before_name(&self, slash: bool) -> bool {
        match self.intent().end {
            End::Name => true,
            End::Creatable => slash,
            End::Existing => false,
        }
    }

    /// Replaces `self` and `thread-self` of `/proc` at once: the kernel would resolve them for the
    /// process that makes the call.
    fn replaces_own_link(&mut self, component: Component) -> bool {
        let Component::Name { last, slash, .. } = component else { return false };
        if (last && !slash && !self.intent().follow)
            || self.has(RESOLVE_NO_SYMLINKS)
            || self.links >= LINKS_MAX
            || !self.walker.replace_self(component)
        {
            return false;
        }
        self.links += 1;
        true
    }

    /// Returns true if the part of the path since `mark` is a directory that the thread may search,
    /// without links on the way.
    fn is_clear_directory(&mut self, mark: &Mark) -> Result<bool> {
        if !self.verify(b"/.", 0)? {
            return Ok(false);
        }
        self.walker.search_all(mark)?;
        Ok(true)
    }

    /// Checks the part of the path since `mark`, followed by `suffix`, with one `openat2`. False:
    /// there are links, or the components have to be checked one by one to find the error.
    fn verify(&mut self, suffix: &[u8], flags: u32) -> Result<bool> {
        match self.walker.probe(suffix, O_PATH | flags)? {
            Probe::Free(fd) => {
                self.walker.context.backend.close(fd);
                Ok(true)
            }
            Probe::Linked => Ok(false),
            Probe::Failed(_) if self.walker.checks_search() => Ok(false),
            Probe::Failed(error) => Err(error),
        }
    }

    /// Takes `..`, from a directory that has been checked.
    pub(super) fn up(&mut self, last: bool) -> Result<Option<Place>> {
        if last && self.intent().end == End::Name {
            self.walker.append(b"/..")?;
            let mut place = self.walker.place(self.walker.base, Last::DotDot);
            place.directory = true;
            self.walker.give_base_away();
            return Ok(Some(place));
        }
        self.walker.parent()?;
        let component = self.walker.peek();
        self.walker.skip(component);
        if !last {
            return Ok(None);
        }
        let mark = self.walker.mark();
        let done = self.end(&mark, Tail::None, Last::DotDot)?;
        Ok(done.map(|place| Place { directory: true, ..place }))
    }

    /// Ends at a name that is not looked at, in a directory that has been checked.
    pub(super) fn name_end(&mut self, component: Component) -> Result<Option<Place>> {
        let Component::Name { slash, .. } = component else { return Err(Errno::EINVAL) };
        if !self.walker.fits(component) {
            self.walker.open_base()?;
        }
        let mark = self.walker.mark();
        self.walker.push(component, &mark)?;
        if slash {
            self.walker.append(b"/")?;
        }
        let mut place = self.walker.place(self.walker.base, Last::Name);
        place.directory = slash;
        self.walker.give_base_away();
        Ok(Some(place))
    }

    /// Ends the path: everything since `mark` has to be checked.
    pub(super) fn end(&mut self, mark: &Mark, tail: Tail, last: Last) -> Result<Option<Place>> {
        let intent = self.intent();
        if intent.end == End::Name {
            return self.dot_end(mark, tail, last);
        }
        let known = self.walker.at_mark(mark) && tail == Tail::None;
        let mut held = None;
        let mut missing = false;
        if !known || intent.hold {
            let nofollow = if tail == Tail::None && !intent.follow { O_NOFOLLOW } else { 0 };
            match self.walker.probe(tail.suffix(), O_PATH | nofollow)? {
                Probe::Free(fd) => held = Some(fd),
                Probe::Failed(Errno::ENOENT)
                    if intent.end == End::Creatable
                        && tail == Tail::None
                        && !self.walker.checks_search() =>
                {
                    missing = true;
                }
                Probe::Failed(error) if known || !self.walker.checks_search() => return Err(error),
                // There is no component to go through again: a link can only be in the host's part
                // of the path.
                _ if self.walker.at_mark(mark) => return self.link_free_end(tail, last),
                Probe::Failed(_) | Probe::Linked => return self.by_component(mark),
            }
        }
        let searched =
            if tail == Tail::Dot { self.walker.search_all(mark) } else { self.walker.search(mark) };
        if let Err(error) = searched {
            if let Some(fd) = held {
                self.walker.context.backend.close(fd);
            }
            return Err(error);
        }
        if !intent.hold
            && let Some(fd) = held.take()
        {
            self.walker.context.backend.close(fd);
        }
        Ok(Some(self.finish(tail, last, held, missing)))
    }

    pub(super) fn finish(
        &mut self,
        tail: Tail,
        last: Last,
        held: Option<crate::HostFd>,
        missing: bool,
    ) -> Place {
        let context = &self.walker.context;
        let position = &context.buffers.position;
        // Behind a magic link there is nothing left of the path either, but the link need not have
        // led to a root.
        let jumped =
            last == Last::Root && position.as_bytes() != b"/" && *position != context.task.root;
        let last = if jumped { Last::Name } else { last };
        let mut place = self.walker.place(self.walker.base, last);
        place.held = held;
        place.missing = missing;
        place.directory =
            tail != Tail::None || matches!(last, Last::Root | Last::Dot | Last::DotDot);
        self.walker.give_base_away();
        place
    }

    /// Ends a path to a name that is to be made or removed, but is `.` or `/`. The kernel will
    /// refuse the call, which gets a path at which it can do no harm.
    pub(super) fn dot_end(&mut self, mark: &Mark, tail: Tail, last: Last) -> Result<Option<Place>> {
        if tail == Tail::Dot {
            if !self.walker.at_mark(mark) && !self.verify(b"", O_DIRECTORY)? {
                return self.by_component(mark);
            }
            self.walker.search_all(mark)?;
            self.walker.append(b"/.")?;
        } else {
            self.walker.close_base();
            self.walker.context.buffers.found[self.walker.which].set(b"/")?;
        }
        let mut place = self.walker.place(self.walker.base, last);
        place.directory = true;
        self.walker.give_base_away();
        Ok(Some(place))
    }
}

/// The part of a path before its last name.
fn parent_part(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let slash = path[..end].iter().rposition(|byte| *byte == b'/');
    &path[..slash.unwrap_or(0)]
}
