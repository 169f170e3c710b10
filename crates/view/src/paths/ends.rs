//! Ends a resolution: checks the last component as the caller's [`End`] requires, and makes the
//! [`Place`].

use super::place::{End, Last, Place};
use super::probe::Probe;
use super::resolve::Resolver;
use super::walker::{Component, Mark};
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use linux_raw_sys::general::{O_DIRECTORY, O_NOFOLLOW, O_PATH};

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

    /// The end of the path, if every component before it is known not to be a link.
    pub(super) fn link_free_end(&mut self, tail: Tail, last: Last) -> Result<Option<Place>> {
        let intent = self.intent();
        if intent.end == End::Name {
            let mark = self.walker.mark();
            return self.dot_end(&mark, tail, last);
        }
        if tail == Tail::Dot {
            self.walker.search_here()?;
        }
        let nofollow = if tail == Tail::None { O_NOFOLLOW } else { 0 };
        let mut held = match self.walker.open(tail.suffix(), O_PATH | nofollow) {
            Ok(fd) => Some(fd),
            Err(Errno::ENOENT) if intent.end == End::Creatable && tail == Tail::None => None,
            Err(error) => return Err(error),
        };
        let missing = held.is_none();
        if !intent.hold
            && let Some(fd) = held.take()
        {
            self.walker.context.backend.close(fd);
        }
        Ok(Some(self.finish(tail, last, held, missing)))
    }

    /// The path ends in a magic link that only the kernel can follow.
    pub(super) fn magic_end(&mut self) -> Result<Place> {
        let held = if self.intent().hold { Some(self.walker.open(b"", O_PATH)?) } else { None };
        let mut place = self.finish(Tail::None, Last::Name, held, false);
        place.magic = true;
        Ok(place)
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
}
