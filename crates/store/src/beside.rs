//! Puts files beside the trees of finished entries: what can be made of a tree, and made again.
//!
//! Such a file arrives whole, like everything in the store: it is written in `tmp/`, where the
//! sweep finds what a dead process leaves, and renamed. It goes with its entry. Two processes that
//! put the same file take no lock; the later one replaces it.

use rustix::fs::{FileType, Stat};

use crate::Trees;
use crate::error::{Error, Result};
use crate::root::random_hex;
use crate::trees::Cached;

impl Trees<'_> {
    /// Fails if [`Trees::put_beside`] cannot write: the store is read-only, or the entry belongs to
    /// a store beneath.
    pub fn can_put_beside(&self, cached: &Cached) -> Result<()> {
        self.store.writable()?;
        if cached.is_own {
            return Ok(());
        }
        let reason = "it belongs to a store beneath".to_owned();
        Err(Error::ReadOnly { path: cached.path.clone(), reason })
    }

    /// Puts a file beside the tree of a finished entry, in one step; what has its name is replaced.
    ///
    /// Nobody waits for the disk, unless every entry is synced: after a power failure the file may
    /// be empty or end early, and its readers must be able to tell.
    pub fn put_beside(&self, cached: &Cached, name: &str, bytes: &[u8], mode: u32) -> Result<()> {
        self.can_put_beside(cached)?;
        let root = &self.store.inner.root;
        let place = self.kind.rel(&cached.digest);
        let (target, durable) = (format!("{place}/{name}"), self.store.syncs_now());
        let temporary = format!("tmp/{name}-{}", random_hex(8)?);
        let put = || -> Result<()> {
            root.write_new(&temporary, bytes, durable)?;
            root.set_mode(&temporary, mode)?;
            // A file cannot replace a directory.
            if root.stat(&target)?.is_some_and(|stat| is_directory(&stat)) {
                self.store.discard(&target)?;
            }
            root.rename(&temporary, &target)
        };
        if let Err(error) = put() {
            // The first failure is reported; the sweep removes the leftover.
            let _ = root.unlink(&temporary);
            return Err(error);
        }
        if durable { root.sync_dir(&place) } else { Ok(()) }
    }
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}
