//! The straightest road: the kernel itself finds the directory by the guest's own words.
//!
//! Most paths are plain names in a directory that has just been used. Of such a directory may be known that the guest's own text of it, taken from
//! the root of the tree or from the working directory, leads the kernel there ([`Host::is_straight`]): then nothing is put together, and the
//! host's name of the tree is not looked at. Known is what the quick road ([`super::known`]) has found: no component is a link (but a link
//! into `usr`, which stays in the tree wherever the kernel follows it), none is `..`, no binding lies on the way, and the text is that of
//! this world. It is forgotten with everything else that is known of directories ([`Host::changed`]), and with the working directory.
//!
//! Nothing is known of the last name, but that it is no binding: the call must not follow it.

use crate::CallContext;
use crate::guest::{Backend, Dir, Host, Straight};
use core::ffi::CStr;

/// Where the kernel starts, and how many bytes of the guest's path it does not need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The tree's descriptor, or the working directory. Nobody's to close.
    pub dir: Dir,
    skip: usize,
}

impl Start {
    /// The path from there, of the guest's own.
    pub fn path(self, named: &[u8]) -> &CStr {
        CStr::from_bytes_with_nul(&named[self.skip..]).unwrap_or(c"")
    }
}

/// Whether the path in `buffers.named[which]`, relative to `from`, is such a one. The tree's descriptor may be gone: then the call says `EBADF` (or
/// `ENOTDIR`), and the path is to be resolved as any other.
pub fn fast_path<N: Backend>(
    context: &mut CallContext<'_, N>,
    from: Dir,
    which: usize,
) -> Option<Start> {
    let everybody = super::dir_cache::searches(context);
    let CallContext { backend, world, task, buffers } = context;
    let named = buffers.named[which].as_bytes();
    let slash = named.iter().rposition(|byte| *byte == b'/')?;
    let (way, name) = (&named[..slash], &named[slash + 1..]);
    let whole = named[0] == b'/';
    // One slash is skipped: what two begin would still be absolute, and lead the kernel into the host's root.
    if !(whole && named.get(1) != Some(&b'/') || !whole && from == Dir::Cwd)
        || matches!(name, b"" | b"." | b"..")
        || buffers.careful
        || task.root.as_bytes() != b"/"
        || world.is_bound(name)
        || !backend.is_straight(way, Straight::way(everybody))
    {
        return None;
    }
    if !whole {
        return Some(Start { dir: Dir::Cwd, skip: 0 });
    }
    backend.tree_descriptor().map(|tree| Start { dir: Dir::Guest(tree), skip: 1 })
}

/// Remembers the directory of the guest's path `named`, whose kernel's way has been found to be that. `generation` is from before.
pub(super) fn learn(host: &mut impl Host, named: &[u8], everybody: bool, generation: u64) {
    if let Some(slash) = named.iter().rposition(|byte| *byte == b'/') {
        host.set_straight(&named[..slash], Straight::way(everybody), generation);
    }
}
