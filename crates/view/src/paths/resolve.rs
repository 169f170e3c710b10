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

use super::ends::Tail;
use super::place::{End, Intent, Last, Place};
use super::probe::Probe;
use super::walker::{Component, Mark, Walker};
use super::{by_index, learn};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use linux_raw_sys::general::{
    O_DIRECTORY, O_PATH, RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
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
    if let Some(result) = by_index::resolve(context, from, which, intent) {
        return result;
    }
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
        Ok(place) => learn::learn_place(context, which, intent.end, place, generation),
        Err(Errno::ENOENT) => learn::learn_missing(context, from, which, generation),
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
    pub(super) fn verify(&mut self, suffix: &[u8], flags: u32) -> Result<bool> {
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
}
