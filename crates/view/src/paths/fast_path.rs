//! Recognises paths that the kernel may resolve exactly as the guest wrote them.
//!
//! Most paths are a plain name in a directory that was used shortly before. The backend can
//! remember that the guest's own text of that directory, taken from the root of the tree or from
//! the working directory, leads the kernel to the right one ([`Host::is_straight`]). Then no path
//! has to be put together, and the kernel does not walk along the host's name of the tree.
//! [`super::dir_cache`] finds that out: no component is a link (except a link into `usr`, which
//! stays inside the tree when the kernel follows it), none is `..`, there is no binding on the way,
//! and the text belongs to this world. It is forgotten together with everything in the cache of
//! directories ([`Host::changed`]), and when the working directory changes.
//!
//! In namespaces of the container's own, every path is the kernel's ([`crate::World::namespaces`]),
//! but for what `/proc` shows, and for threads whose search permission has to be checked.
//!
//! Of the last component it is only known that it is not a binding, so the call must not follow it.

use crate::CallContext;
use crate::guest::{Backend, Dir, Host, Straight};
use core::ffi::CStr;

/// The directory from which the kernel starts, and the number of bytes of the guest's path to skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The tree's descriptor, or the working directory. It must not be closed.
    pub dir: Dir,
    skip: usize,
}

impl Start {
    /// The part of the guest's path to resolve from there.
    pub fn path(self, named: &[u8]) -> &CStr {
        CStr::from_bytes_with_nul(&named[self.skip..]).unwrap_or(c"")
    }
}

/// Returns the start if the path in `buffers.named[which]`, relative to `from`, is one that the
/// kernel may resolve. The guest may have closed the tree's descriptor: then its call fails with
/// `EBADF` (or `ENOTDIR`), and the path has to be resolved as any other.
pub fn fast_path<N: Backend>(
    context: &mut CallContext<'_, N>,
    from: Dir,
    which: usize,
) -> Option<Start> {
    let everybody = super::dir_cache::checks_search(context);
    let CallContext { backend, world, task, buffers } = context;
    let named = buffers.named[which].as_bytes();
    let slash = named.iter().rposition(|byte| *byte == b'/')?;
    let (way, name) = (&named[..slash], &named[slash + 1..]);
    let whole = named[0] == b'/';
    // Only one slash is skipped: a path that begins with two would still be absolute, and lead the
    // kernel into the host's root.
    if !(whole && named.get(1) != Some(&b'/') || !whole && from == Dir::Cwd && task.entered == 0)
        || matches!(name, b"" | b"." | b"..")
        || buffers.careful
        || task.root.as_bytes() != b"/"
        || world.is_bound(name)
    {
        return None;
    }
    if world.namespaces && whole && !everybody && !named.starts_with(b"/proc") {
        return Some(Start { dir: Dir::Root, skip: 0 });
    }
    if !backend.is_straight(way, Straight::way(everybody)) {
        return None;
    }
    if let Some(image) = world.image {
        // Where both layers have names, the kernel would see one of them only.
        let own = if whole {
            image.is_own(&named[1..])
        } else {
            backend.remembered_cwd(&mut buffers.link)
                && image.in_upper(buffers.link.as_bytes()).is_some_and(|here| image.is_own(here))
        };
        if !own {
            return None;
        }
        if whole {
            return backend
                .upper_descriptor()
                .map(|upper| Start { dir: Dir::Guest(upper), skip: 1 });
        }
    }
    if !whole {
        return Some(Start { dir: Dir::Cwd, skip: 0 });
    }
    backend.tree_descriptor().map(|tree| Start { dir: Dir::Guest(tree), skip: 1 })
}

/// Remembers the directory of the guest's path `named`, after the kernel was found to resolve it
/// correctly. `generation` was read before that.
pub(super) fn learn(host: &mut impl Host, named: &[u8], everybody: bool, generation: u64) {
    if let Some(slash) = named.iter().rposition(|byte| *byte == b'/') {
        host.set_straight(&named[..slash], Straight::way(everybody), generation);
    }
}
