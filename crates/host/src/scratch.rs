//! A temporary directory for trials, on the probed file system.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A directory that is removed with this value.
#[derive(Debug)]
pub(crate) struct Scratch {
    parent: OwnedFd,
    name: OsString,
    path: PathBuf,
}

impl Scratch {
    /// Makes a hidden directory in `parent`, readable by the caller only.
    pub(crate) fn new_in(parent: &Path) -> Result<Scratch, Errno> {
        /// Leftovers of killed probes of an earlier process with the same id are skipped.
        const TRIES: u32 = 64;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let directory = rustix::fs::open(
            parent,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        for _ in 0..TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let process = rustix::process::getpid().as_raw_nonzero();
            let name = OsString::from(format!(".coracle-probe-{process}-{number}"));
            match rustix::fs::mkdirat(&directory, &name, Mode::RWXU) {
                Ok(()) => {
                    let path = parent.join(&name);
                    return Ok(Scratch { parent: directory, name, path });
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EXIST)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover is hidden and small.
        let _ = sys::fs::remove_tree(&self.parent, self.name.as_bytes());
    }
}

/// The directory itself, or the nearest existing one above it.
pub(crate) fn nearest_existing(path: &Path) -> Option<PathBuf> {
    path.ancestors()
        .map(|ancestor| if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor })
        .find(|ancestor| ancestor.is_dir())
        .and_then(|ancestor| ancestor.canonicalize().ok())
}
