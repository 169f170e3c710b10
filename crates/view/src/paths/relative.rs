//! Resolves relative paths that the kernel may use as the guest wrote them, from the guest's own
//! directory, without a call for the name of that directory.

use super::place::{End, Last, Place};
use super::probe::Probe;
use super::resolve::Resolver;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use linux_raw_sys::general::{O_DIRECTORY, O_NOFOLLOW, O_PATH};

impl<N: Backend> Resolver<'_, '_, N> {
    /// Resolves a relative path that may be used as it is from the guest's own directory, without
    /// locating that directory.
    pub(super) fn relative_as_it_is(&mut self) -> Result<Option<Place>> {
        let intent = self.intent();
        let walker = &mut self.walker;
        if !intent.light
            || intent.resolve != 0
            || walker.checks_search()
            || walker.from == Dir::Root
            || super::may_have_layers(walker.context, walker.from)
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
}

/// The part of a path before its last name.
fn parent_part(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let slash = path[..end].iter().rposition(|byte| *byte == b'/');
    &path[..slash.unwrap_or(0)]
}
