//! Asks the kernel with one call if a host path has symbolic links in it.
//!
//! Since Linux 5.6 the call is `openat2` with `RESOLVE_NO_SYMLINKS`. Before, the path is opened
//! with `O_PATH`, and the kernel's name of the result is compared with it: they are equal exactly
//! if there was no link. (A mount over the path that was moved also makes them differ; going
//! through the path component by component then finds that out.) An error of such an open proves
//! nothing, because a link may have led out of the guest's root.

use super::walker::Walker;
use crate::errno::Errno;
use crate::guest::{Backend, Dir, HostFd};

/// Result of checking a path.
pub(super) enum Probe {
    /// It exists, and there is no link in it, except that the last component may be one if it was
    /// not followed.
    Free(HostFd),
    /// There is, or may be, a link in it.
    Linked,
    /// The error occurred before any link.
    Failed(Errno),
}

impl<N: Backend> Walker<'_, '_, N> {
    /// Checks `buffers.found`, relative to a directory.
    pub(super) fn probe_from(&mut self, dir: Dir, flags: u32) -> Probe {
        let path = self.context.buffers.found[self.which].as_c_str();
        if self.context.backend.has_openat2() {
            let resolve = u64::from(linux_raw_sys::general::RESOLVE_NO_SYMLINKS);
            return match self.context.backend.open(dir, path, flags, 0, resolve) {
                Ok(fd) => Probe::Free(fd),
                Err(Errno::ELOOP) => Probe::Linked,
                Err(error) => Probe::Failed(error),
            };
        }
        match self.context.backend.open(dir, path, flags, 0, 0) {
            Ok(fd) if self.is_named(dir, fd) => Probe::Free(fd),
            Ok(fd) => {
                self.context.backend.close(fd);
                Probe::Linked
            }
            // A link in the path cannot be the cause of these.
            Err(error @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EBADF)) => {
                Probe::Failed(error)
            }
            Err(_) => Probe::Linked,
        }
    }

    /// Returns true if the kernel's name of the opened file is the name that it was opened by.
    fn is_named(&mut self, dir: Dir, fd: HostFd) -> bool {
        let buffers = &mut *self.context.buffers;
        if self.context.backend.path_of(Dir::Held(fd), &mut buffers.host).is_err() {
            return false;
        }
        let mut opened = buffers.host.as_bytes();
        if dir != Dir::Root {
            if self.context.backend.path_of(dir, &mut buffers.link).is_err() {
                return false;
            }
            let Some(rest) = super::bindings::behind(opened, buffers.link.as_bytes()) else {
                return false;
            };
            opened = rest.strip_prefix(b"/").unwrap_or(rest);
        }
        let mut asked = buffers.found[self.which].as_bytes();
        if let Some(directory) = asked.strip_suffix(b"/.") {
            asked = directory;
        } else if let [directory @ .., b'/'] = asked
            && !directory.is_empty()
        {
            asked = directory;
        }
        let asked = if asked == b"." { b"" } else { asked };
        asked == opened
    }
}
