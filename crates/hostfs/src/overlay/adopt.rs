//! Moves a file that was made outside the tree to a name in it, as commands do that copy files into
//! a container.

use super::locate::{Located, parent, split_end};
use super::upper::EXCHANGE;
use super::{OPAQUE, Overlay, is_directory};
use crate::at::Process;
use crate::kernel::{CWD, Target};
use core::ffi::CStr;
use linux_raw_sys::general::AT_SYMLINK_NOFOLLOW;
use view::Errno;
use view::errno::Result;

/// Moves a file to an absolute path, named as the view names it. It must lie on the file system of
/// the upper directory, in the form of the files there.
///
/// Errors: `EEXIST` for a directory whose name is taken; `EISDIR` where another file would replace
/// a directory; `EXDEV` if the tree has no layers, or the path leads elsewhere.
pub fn adopt<P: Process>(process: &P, from: &CStr, path: &CStr) -> Result<()> {
    let overlay = Overlay::of(process).ok_or(Errno::EXDEV)?;
    let (name, _) = split_end(overlay.image().in_upper(path.to_bytes()).ok_or(Errno::EXDEV)?);
    if name.is_empty() {
        return Err(Errno::EEXIST);
    }
    overlay.adopt(from, name)
}

impl<P: Process> Overlay<'_, P> {
    fn adopt(&self, from: &CStr, name: &[u8]) -> Result<()> {
        let moves_directory =
            is_directory(&self.process.fstatat(CWD, from, AT_SYMLINK_NOFOLLOW)?);
        self.settle(parent(name).0)?;
        self.alone(|| {
            let there = self.name(name)?;
            if let Some(located) = there.located {
                self.may_be_replaced(name, located, moves_directory)?;
            }
            self.cover(there.child);
            if !moves_directory {
                return self.put_in_place(from, name, 0);
            }
            if there.child.is_some() {
                self.process.setxattr(Target::Link(from), OPAQUE, b"y", 0)?;
            }
            if !self.is_hidden(name)? {
                return self.put_in_place(from, name, 0);
            }
            self.put_in_place(from, name, EXCHANGE)?;
            // The whiteout.
            self.process.unlinkat(CWD, from, 0)
        })
    }

    /// Only files that are no directories replace each other.
    fn may_be_replaced(&self, name: &[u8], located: Located, by_directory: bool) -> Result<()> {
        if by_directory {
            return Err(Errno::EEXIST);
        }
        self.with_real(name, located, b"", |path| {
            let status = self.process.fstatat(CWD, path, AT_SYMLINK_NOFOLLOW)?;
            if is_directory(&status) { Err(Errno::EISDIR) } else { Ok(()) }
        })
    }
}
