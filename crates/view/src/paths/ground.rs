//! Where a walker stands: going to the start of a path, to what links lead to, and up.

use super::bindings::{find, is_mount_point};
use super::reverse::{Origin, reverse};
use super::walker::{Component, Ground, SUFFIX_MAX, Walker, pop, push_to};
use crate::Scene;
use crate::errno::{Errno, Result};
use crate::guest::{Dir, HostFd, Nerves};
use crate::identity;
use crate::text::{PATH_MAX, Text};
use crate::world::Kind;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, O_DIRECTORY, O_PATH, RESOLVE_BENEATH, RESOLVE_IN_ROOT,
    RESOLVE_NO_XDEV,
};

/// The end of the kernel's name for something that has none any more.
const DELETED: &[u8] = b" (deleted)";

impl<N: Nerves> Walker<'_, '_, N> {
    /// Goes to where the path starts.
    pub(super) fn start(&mut self) -> Result<()> {
        let desk = &mut *self.scene.desk;
        desk.walk.set(desk.named[self.which].as_bytes())?;
        let absolute = desk.walk.as_bytes().first() == Some(&b'/');
        if absolute && self.has(RESOLVE_BENEATH) {
            return Err(Errno::EXDEV);
        }
        if self.from == Dir::Root || (absolute && !self.has(RESOLVE_IN_ROOT)) {
            return self.go_to_root();
        }
        self.start_from_directory()
    }

    fn start_from_directory(&mut self) -> Result<()> {
        self.look_around(self.from)?;
        if self.ground != Ground::Named || self.anchored {
            if self.anchored && self.kind() == Some(Kind::Proc) {
                return Err(Errno::EACCES);
            }
            self.base = self.from;
            self.clear_found();
            self.direct = true;
            return Ok(());
        }
        self.land()?;
        self.direct = true;
        Ok(())
    }

    fn go_to_root(&mut self) -> Result<()> {
        let desk = &mut *self.scene.desk;
        desk.position.set(self.scene.task.root.as_bytes())?;
        self.ground = Ground::Named;
        self.land()
    }

    /// Finds out where a directory is for the guest: sets ground, position, binding.
    pub(super) fn look_around(&mut self, dir: Dir) -> Result<()> {
        let Scene { nerves, world, desk, .. } = &mut *self.scene;
        desk.position.clear();
        self.binding = None;
        match nerves.path_of(dir, &mut desk.link) {
            Ok(()) => {}
            Err(Errno::ENAMETOOLONG) => {
                self.ground = Ground::Lost;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let origin = match reverse(world, desk.link.as_bytes(), &mut desk.position) {
            Err(Errno::ENAMETOOLONG) => {
                desk.position.clear();
                self.ground = Ground::Lost;
                return Ok(());
            }
            origin => origin?,
        };
        self.ground = match origin {
            Origin::Inside(index) => {
                self.binding = Some(index);
                if desk.link.as_bytes().ends_with(DELETED) && !same_file(*nerves, dir, &desk.link) {
                    desk.position.clear();
                    Ground::Lost
                } else {
                    Ground::Named
                }
            }
            Origin::Outside | Origin::Unnamed => Ground::Outside,
        };
        Ok(())
    }

    /// The position is a guest path free of links: puts its host path in place.
    pub(super) fn land(&mut self) -> Result<()> {
        self.direct = false;
        self.release();
        let Scene { world, desk, .. } = &mut *self.scene;
        let (index, rest) = find(world, desk.position.as_bytes()).ok_or(Errno::ENOENT)?;
        self.binding = Some(index);
        let (host, found) = (world.bindings[index].host, &mut desk.found[self.which]);
        if rest.is_empty() {
            return found.set(host);
        }
        found.set(if host == b"/" { b"" } else { host })?;
        if found.len() + rest.len() + SUFFIX_MAX < PATH_MAX {
            return found.push(rest);
        }
        let mut at = desk.position.len() - rest.len();
        while at < self.scene.desk.position.len() {
            let desk = &mut *self.scene.desk;
            let name = &desk.position.as_bytes()[at + 1..];
            let length = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
            let name = &name[..length];
            if desk.found[self.which].len() + 1 + length + SUFFIX_MAX < PATH_MAX {
                push_to(&mut desk.found[self.which], name)?;
                at += 1 + length;
            } else {
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Opens the directory so far, which is free of links, and makes it the base.
    pub(super) fn settle(&mut self) -> Result<()> {
        let fd = self.open(b"", O_PATH | O_DIRECTORY)?;
        self.release();
        self.base = Dir::Held(fd);
        self.clear_found();
        Ok(())
    }

    /// Makes a directory that the kernel led to the base, or goes to it by name.
    pub(super) fn stand_on(&mut self, fd: HostFd) -> Result<()> {
        self.direct = false;
        self.release();
        self.base = Dir::Held(fd);
        self.clear_found();
        self.look_around(Dir::Held(fd))?;
        if self.ground == Ground::Named { self.land() } else { Ok(()) }
    }

    /// Closes the base, if it is ours.
    pub(super) fn release(&mut self) {
        if let Dir::Held(fd) = self.base {
            self.scene.nerves.close(fd);
        }
        self.base = Dir::Root;
    }

    /// The base belongs to a place now.
    pub(super) fn keep(&mut self) {
        self.base = Dir::Root;
    }

    /// `..`
    pub(super) fn parent(&mut self) -> Result<()> {
        self.direct = false;
        if self.scoped() {
            if self.depth == 0 {
                return if self.has(RESOLVE_BENEATH) { Err(Errno::EXDEV) } else { Ok(()) };
            }
            self.depth -= 1;
        }
        let no_xdev = self.has(RESOLVE_NO_XDEV);
        let Scene { world, task, desk, .. } = &mut *self.scene;
        let found = &mut desk.found[self.which];
        match self.ground {
            Ground::Named => {
                let position = desk.position.as_bytes();
                if position == b"/" || position == task.root.as_bytes() {
                    return Ok(());
                }
                let mount_point = is_mount_point(world, position);
                if mount_point && no_xdev {
                    return Err(Errno::EXDEV);
                }
                pop(&mut desk.position);
                if mount_point || (self.base == Dir::Root && found.len() <= 1) {
                    return self.land();
                }
                if found.is_empty() {
                    return self.climb();
                }
                self.pop_found();
                Ok(())
            }
            Ground::Outside if found.is_empty() => Ok(()),
            Ground::Lost if found.is_empty() => {
                let fd = self.open(b"/..", O_PATH | O_DIRECTORY)?;
                self.stand_on(fd)?;
                // What is left of the container's tree has lost its way back into it.
                if self.ground == Ground::Outside { Err(Errno::ENOENT) } else { Ok(()) }
            }
            Ground::Outside | Ground::Lost => {
                self.pop_found();
                Ok(())
            }
        }
    }

    fn pop_found(&mut self) {
        pop(&mut self.scene.desk.found[self.which]);
    }

    /// The base becomes the directory above it.
    fn climb(&mut self) -> Result<()> {
        let fd = self.open(b"/..", O_PATH | O_DIRECTORY)?;
        self.release();
        self.base = Dir::Held(fd);
        Ok(())
    }

    /// Has the link in `desk.link` take the place of the name that led to it. The walker stands where the link does.
    pub(super) fn splice(&mut self) -> Result<()> {
        self.direct = false;
        let desk = &mut *self.scene.desk;
        if desk.link.is_empty() {
            return Err(Errno::ENOENT);
        }
        let rest = &desk.walk.as_bytes()[self.rest..];
        // A link that leads to itself by more names than one gets longer each time.
        desk.link.push(rest).map_err(|_| Errno::ELOOP)?;
        desk.walk.set(desk.link.as_bytes())?;
        self.rest = 0;
        if desk.walk.as_bytes()[0] != b'/' {
            return Ok(());
        }
        if self.has(RESOLVE_BENEATH) {
            return Err(Errno::EXDEV);
        }
        self.depth = 0;
        if self.has(RESOLVE_IN_ROOT) {
            self.release();
            self.start_from_directory()?;
            self.direct = false;
            return Ok(());
        }
        let before = self.binding;
        self.go_to_root()?;
        if self.has(RESOLVE_NO_XDEV) && self.binding != before {
            return Err(Errno::EXDEV);
        }
        Ok(())
    }

    /// Goes to the guest path in `desk.link`, which has no links.
    pub(super) fn jump(&mut self) -> Result<()> {
        let desk = &mut *self.scene.desk;
        desk.position.set(desk.link.as_bytes())?;
        self.ground = Ground::Named;
        self.land()
    }

    /// At the root of a `/proc`, `self` and `thread-self` become what they mean for the guest.
    pub(super) fn replace_own(&mut self, component: Component) -> bool {
        let Component::Name { start, end, .. } = component else { return false };
        if self.ground != Ground::Named || self.kind() != Some(Kind::Proc) {
            return false;
        }
        let Scene { nerves, world, desk, .. } = &mut *self.scene;
        let thread = match &desk.walk.as_bytes()[start..end] {
            b"self" => false,
            b"thread-self" => true,
            _ => return false,
        };
        let at_root = self
            .binding
            .is_some_and(|index| world.bindings[index].guest == desk.position.as_bytes());
        if !at_root {
            return false;
        }
        desk.link.clear();
        let mut put = desk.link.push_number(nerves.pid());
        if thread {
            put = put
                .and_then(|()| desk.link.push(b"/task/"))
                .and_then(|()| desk.link.push_number(nerves.tid()));
        }
        let done = put
            .and_then(|()| desk.link.push(&desk.walk.as_bytes()[end..]))
            .and_then(|()| desk.walk.set(desk.link.as_bytes()));
        if done.is_ok() {
            self.rest = 0;
        }
        done.is_ok()
    }
}

/// Whether a path that ends in ` (deleted)` is the true name of what `dir` is.
fn same_file(nerves: &mut impl Nerves, dir: Dir, path: &Text) -> bool {
    let (mut named, mut open) = (identity::files::NO_FACTS, identity::files::NO_FACTS);
    nerves.statx(Dir::Root, path.as_c_str(), AT_SYMLINK_NOFOLLOW, &mut named).is_ok()
        && nerves.statx(dir, c"", AT_EMPTY_PATH, &mut open).is_ok()
        && (named.stx_ino, named.stx_dev_major, named.stx_dev_minor)
            == (open.stx_ino, open.stx_dev_major, open.stx_dev_minor)
}
