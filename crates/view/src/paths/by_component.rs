//! Resolves one stretch of a path component by component and follows the first symbolic link in it.
//!
//! [`super::resolve`] uses this only for stretches that have a link in them: it costs a call for
//! each component.

use super::ends::Tail;
use super::learn::{learn_around_link, learn_link};
use super::place::{End, Last, Place};
use super::resolve::{LINKS_MAX, Resolver};
use super::walker::{Component, Mark};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use crate::proc::{self, Target};
use crate::world::Kind;
use linux_raw_sys::general::{
    O_DIRECTORY, O_PATH, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};

impl<N: Backend> Resolver<'_, '_, N> {
    /// Goes through a stretch component by component, up to the first link, which it follows.
    /// `None`: the path goes on.
    pub(super) fn by_component(&mut self, mark: &Mark) -> Result<Option<Place>> {
        self.walker.rewind(mark);
        let intent = self.intent();
        loop {
            let component = self.walker.peek();
            match component {
                Component::End => return self.link_free_end(Tail::None, Last::Root),
                Component::Dot { last: true } => return self.link_free_end(Tail::Dot, Last::Dot),
                Component::Dot { last: false } => self.walker.skip(component),
                Component::DotDot { last } => {
                    self.walker.search_here()?;
                    self.walker.check(b"/.", 0)?;
                    return self.up(last);
                }
                Component::Name { last, slash, .. } => {
                    self.walker.search_here()?;
                    if last && self.stops_before_name(slash) {
                        return self.name_end(component);
                    }
                    if !self.walker.fits(component) {
                        self.walker.open_base()?;
                    }
                    let before = self.walker.mark();
                    if self.walker.push(component, &before)? {
                        // A binding begins here. A mount point is not a link.
                        if last {
                            let tail = if slash { Tail::Slash } else { Tail::None };
                            let mark = self.walker.mark();
                            return self.end(&mark, tail, Last::Name);
                        }
                        return Ok(None);
                    }
                    let tail = if slash { Tail::Slash } else { Tail::None };
                    if last && !slash && !intent.follow {
                        return self.link_free_end(tail, Last::Name);
                    }
                    match self.walker.read_link() {
                        Ok(()) => return self.follow(&before, last && !slash),
                        Err(Errno::EINVAL) if last => return self.link_free_end(tail, Last::Name),
                        Err(Errno::EINVAL) => {}
                        Err(Errno::ENOENT) if last && intent.end == End::Creatable => {
                            return Ok(Some(self.finish(tail, Last::Name, None, true)));
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// Follows the link whose name was taken last and whose target is in `buffers.link`. `before`
    /// marks the directory that contains it.
    fn follow(&mut self, before: &Mark, last: bool) -> Result<Option<Place>> {
        self.links += 1;
        if self.links > LINKS_MAX || self.has(RESOLVE_NO_SYMLINKS) {
            return Err(Errno::ELOOP);
        }
        let mut target = Target::Text;
        let walker = &mut self.walker;
        let kind = walker.binding.map(|index| walker.context.world.bindings[index].kind);
        if kind == Some(Kind::Proc) && walker.base == Dir::Root {
            let context = &mut *walker.context;
            let found = context.buffers.found[walker.which].as_bytes();
            let link = &mut context.buffers.link;
            target = proc::follow(context.backend, context.world, context.task, found, link)?;
        }
        if target != Target::Text {
            if self.has(RESOLVE_NO_MAGICLINKS) {
                return Err(Errno::ELOOP);
            }
            if self.has(RESOLVE_BENEATH | RESOLVE_IN_ROOT | RESOLVE_NO_XDEV) {
                return Err(Errno::EXDEV);
            }
        }
        match target {
            Target::Kernel if last => self.magic_end().map(Some),
            Target::Kernel => {
                let fd = self.walker.open(b"", O_PATH | O_DIRECTORY)?;
                self.walker.move_to(fd)?;
                Ok(None)
            }
            Target::Jump => {
                self.walker.jump_to_link()?;
                if self.walker.peek() != Component::End {
                    return Ok(None);
                }
                let (mark, tail) =
                    (self.walker.mark(), if last { Tail::None } else { Tail::Slash });
                self.end(&mark, tail, Last::Name)
            }
            Target::Text => {
                self.remember_link();
                self.walker.forget_since(before);
                self.walker.splice()?;
                Ok(None)
            }
        }
    }

    /// Remembers the link in `buffers.link`, and its directory, if the directory cache holds such
    /// ones.
    fn remember_link(&mut self) {
        let walker = &mut self.walker;
        let CallContext { backend, world, buffers, .. } = &mut *walker.context;
        if walker.base == Dir::Root
            && let Some(generation) = backend.plain_generation()
        {
            let link = (buffers.found[walker.which].as_bytes(), buffers.link.as_bytes());
            learn_link(*backend, world, walker.binding, link, generation);
            learn_around_link(walker.context, walker.which, walker.binding, generation);
        }
    }
}
