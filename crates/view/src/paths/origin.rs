//! Moves a [`Walker`] to another directory: the start of the path, the target of a link, or the
//! directory above.

use super::bindings::{find, is_mount_point};
use super::reverse::{Origin, reverse_by};
use super::walker::{Component, SUFFIX_MAX, WalkOrigin, Walker, pop, push_to};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Host, HostFd};
use crate::identity;
use crate::task::Task;
use crate::text::{PATH_MAX, Text};
use crate::world::Kind;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, O_DIRECTORY, O_PATH, RESOLVE_BENEATH, RESOLVE_IN_ROOT,
    RESOLVE_NO_XDEV,
};

/// How the kernel's name of a deleted file ends.
const DELETED: &[u8] = b" (deleted)";

impl<N: Backend> Walker<'_, '_, N> {
    /// Goes to the directory that the path starts from.
    pub(super) fn start(&mut self) -> Result<()> {
        let buffers = &mut *self.context.buffers;
        buffers.walk.set(buffers.named[self.which].as_bytes())?;
        let absolute = buffers.walk.as_bytes().first() == Some(&b'/');
        if absolute && self.has(RESOLVE_BENEATH) {
            return Err(Errno::EXDEV);
        }
        if self.from == Dir::Root || (absolute && !self.has(RESOLVE_IN_ROOT)) {
            return self.go_to_root();
        }
        self.start_from_directory()
    }

    fn start_from_directory(&mut self) -> Result<()> {
        self.locate(self.from)?;
        if let Some(image) = self.context.world.image {
            let position = self.context.buffers.position.as_bytes();
            let path = position.strip_prefix(b"/").unwrap_or(position);
            self.own = self.kind() == Some(Kind::Tree) && image.is_own(path);
        }
        if self.origin != WalkOrigin::Named || self.anchored {
            if self.anchored && self.kind() == Some(Kind::Proc) {
                return Err(Errno::EACCES);
            }
            self.base = self.from;
            self.clear_found();
            self.direct = true;
            return Ok(());
        }
        self.enter()?;
        self.direct = true;
        Ok(())
    }

    fn go_to_root(&mut self) -> Result<()> {
        let buffers = &mut *self.context.buffers;
        buffers.position.set(self.context.task.root.as_bytes())?;
        self.origin = WalkOrigin::Named;
        self.enter()
    }

    /// Finds the guest's name of a directory: sets origin, position and binding.
    pub(super) fn locate(&mut self, dir: Dir) -> Result<()> {
        let CallContext { backend, world, task, buffers } = &mut *self.context;
        buffers.position.clear();
        self.binding = None;
        match backend.path_of(dir, &mut buffers.link) {
            Ok(()) => {}
            Err(Errno::ENAMETOOLONG) => {
                self.origin = WalkOrigin::Lost;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let entered = || entered(*backend, task, dir);
        let position = &mut buffers.position;
        let origin = match reverse_by(world, buffers.link.as_bytes(), entered, position) {
            Err(Errno::ENAMETOOLONG) => {
                buffers.position.clear();
                self.origin = WalkOrigin::Lost;
                return Ok(());
            }
            origin => origin?,
        };
        self.origin = match origin {
            Origin::Inside(index) => {
                self.binding = Some(index);
                if buffers.link.as_bytes().ends_with(DELETED)
                    && !same_file(*backend, dir, &buffers.link)
                {
                    buffers.position.clear();
                    WalkOrigin::Lost
                } else {
                    WalkOrigin::Named
                }
            }
            Origin::Outside | Origin::Unnamed => WalkOrigin::Outside,
        };
        Ok(())
    }

    /// Puts the host path of the position, which is a guest path free of links, into
    /// `buffers.found`.
    pub(super) fn enter(&mut self) -> Result<()> {
        self.direct = false;
        self.close_base();
        let CallContext { world, buffers, .. } = &mut *self.context;
        let (index, rest) = find(world, buffers.position.as_bytes()).ok_or(Errno::ENOENT)?;
        self.binding = Some(index);
        let (host, found) = (world.bindings[index].host, &mut buffers.found[self.which]);
        if rest.is_empty() {
            return found.set(host);
        }
        found.set(if host == b"/" { b"" } else { host })?;
        if found.len() + rest.len() + SUFFIX_MAX < PATH_MAX {
            return found.push(rest);
        }
        let mut at = buffers.position.len() - rest.len();
        while at < self.context.buffers.position.len() {
            let buffers = &mut *self.context.buffers;
            let name = &buffers.position.as_bytes()[at + 1..];
            let length = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
            let name = &name[..length];
            if buffers.found[self.which].len() + 1 + length + SUFFIX_MAX < PATH_MAX {
                push_to(&mut buffers.found[self.which], name)?;
                at += 1 + length;
            } else {
                self.open_base()?;
            }
        }
        Ok(())
    }

    /// Opens the directory that was reached, which is free of links, and makes it the base.
    pub(super) fn open_base(&mut self) -> Result<()> {
        let fd = self.open(b"", O_PATH | O_DIRECTORY)?;
        self.close_base();
        self.base = Dir::Held(fd);
        self.clear_found();
        Ok(())
    }

    /// Continues at a directory to which the kernel has led: by its name, or with the descriptor as
    /// the base.
    pub(super) fn move_to(&mut self, fd: HostFd) -> Result<()> {
        self.direct = false;
        self.close_base();
        self.base = Dir::Held(fd);
        self.clear_found();
        self.locate(Dir::Held(fd))?;
        if self.origin == WalkOrigin::Named { self.enter() } else { Ok(()) }
    }

    /// Closes the base, if it is a descriptor that the walker has opened.
    pub(super) fn close_base(&mut self) {
        if let Dir::Held(fd) = self.base {
            self.context.backend.close(fd);
        }
        self.base = Dir::Root;
    }

    /// Gives the base away: from now on it belongs to a place.
    pub(super) fn give_base_away(&mut self) {
        self.base = Dir::Root;
    }

    /// Goes to the directory above (`..`).
    pub(super) fn parent(&mut self) -> Result<()> {
        self.direct = false;
        if self.scoped() {
            if self.depth == 0 {
                return if self.has(RESOLVE_BENEATH) { Err(Errno::EXDEV) } else { Ok(()) };
            }
            self.depth -= 1;
        }
        let no_xdev = self.has(RESOLVE_NO_XDEV);
        let CallContext { world, task, buffers, .. } = &mut *self.context;
        let found = &mut buffers.found[self.which];
        match self.origin {
            WalkOrigin::Named => {
                let position = buffers.position.as_bytes();
                if position == b"/" || position == task.root.as_bytes() {
                    return Ok(());
                }
                let mount_point = is_mount_point(world, position);
                if mount_point && no_xdev {
                    return Err(Errno::EXDEV);
                }
                pop(&mut buffers.position);
                if mount_point || (self.base == Dir::Root && found.len() <= 1) {
                    return self.enter();
                }
                if found.is_empty() {
                    return self.base_to_parent();
                }
                self.pop_found();
                Ok(())
            }
            WalkOrigin::Outside if found.is_empty() => Ok(()),
            WalkOrigin::Lost if found.is_empty() => {
                let fd = self.open(b"/..", O_PATH | O_DIRECTORY)?;
                self.move_to(fd)?;
                // The directory was in the container's tree, but has lost its connection to it.
                if self.origin == WalkOrigin::Outside { Err(Errno::ENOENT) } else { Ok(()) }
            }
            WalkOrigin::Outside | WalkOrigin::Lost => {
                self.pop_found();
                Ok(())
            }
        }
    }

    fn pop_found(&mut self) {
        pop(&mut self.context.buffers.found[self.which]);
    }

    /// Replaces the base by the directory above it.
    fn base_to_parent(&mut self) -> Result<()> {
        let fd = self.open(b"/..", O_PATH | O_DIRECTORY)?;
        self.close_base();
        self.base = Dir::Held(fd);
        Ok(())
    }

    /// Replaces the name of a link by its target, which is in `buffers.link`. The walker is at the
    /// directory that contains the link.
    pub(super) fn splice(&mut self) -> Result<()> {
        self.direct = false;
        let buffers = &mut *self.context.buffers;
        if buffers.link.is_empty() {
            return Err(Errno::ENOENT);
        }
        let rest = &buffers.walk.as_bytes()[self.rest..];
        // A link that leads to itself by several names makes the path longer each time.
        buffers.link.push(rest).map_err(|_| Errno::ELOOP)?;
        buffers.walk.set(buffers.link.as_bytes())?;
        self.rest = 0;
        if buffers.walk.as_bytes()[0] != b'/' {
            return Ok(());
        }
        if self.has(RESOLVE_BENEATH) {
            return Err(Errno::EXDEV);
        }
        self.depth = 0;
        if self.has(RESOLVE_IN_ROOT) {
            self.close_base();
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

    /// Goes to the guest path in `buffers.link`, which has no links.
    pub(super) fn jump_to_link(&mut self) -> Result<()> {
        let buffers = &mut *self.context.buffers;
        buffers.position.set(buffers.link.as_bytes())?;
        self.origin = WalkOrigin::Named;
        self.enter()
    }

    /// In the root of a `/proc`, replaces `self` and `thread-self` by the ids of the guest's
    /// process and thread.
    pub(super) fn replace_self(&mut self, component: Component) -> bool {
        let Component::Name { start, end, .. } = component else { return false };
        if self.origin != WalkOrigin::Named || self.kind() != Some(Kind::Proc) {
            return false;
        }
        let CallContext { backend, world, buffers, .. } = &mut *self.context;
        let thread = match &buffers.walk.as_bytes()[start..end] {
            b"self" => false,
            b"thread-self" => true,
            _ => return false,
        };
        let at_root = self
            .binding
            .is_some_and(|index| world.bindings[index].guest == buffers.position.as_bytes());
        if !at_root {
            return false;
        }
        buffers.link.clear();
        let mut put = buffers.link.push_number(backend.pid());
        if thread {
            put = put
                .and_then(|()| buffers.link.push(b"/task/"))
                .and_then(|()| buffers.link.push_number(backend.tid()));
        }
        let done = put
            .and_then(|()| buffers.link.push(&buffers.walk.as_bytes()[end..]))
            .and_then(|()| buffers.walk.set(buffers.link.as_bytes()));
        if done.is_ok() {
            self.rest = 0;
        }
        done.is_ok()
    }
}

/// Index of the binding by which the guest entered a directory, as far as it is known.
pub fn entered(host: &mut impl Host, task: &Task, dir: Dir) -> Option<usize> {
    match dir {
        Dir::Cwd => Some(task.entered.into()),
        Dir::Guest(descriptor) => host.entered(descriptor),
        Dir::Root | Dir::Held(_) => None,
    }
}

/// Returns true if `path`, which ends in ` (deleted)`, is the true name of the file `dir`.
fn same_file(backend: &mut impl Backend, dir: Dir, path: &Text) -> bool {
    let (mut named, mut open) = (identity::files::NO_FACTS, identity::files::NO_FACTS);
    backend.statx(Dir::Root, path.as_c_str(), AT_SYMLINK_NOFOLLOW, &mut named).is_ok()
        && backend.statx(dir, c"", AT_EMPTY_PATH, &mut open).is_ok()
        && (named.stx_ino, named.stx_dev_major, named.stx_dev_minor)
            == (open.stx_ino, open.stx_dev_major, open.stx_dev_minor)
}
