//! A directory for one test's files that an unprivileged user can reach, and that is removed
//! afterwards.
//!
//! `tempfile` makes directories of mode 0700 under `TMPDIR`. Here other users must have access, and
//! their leftovers (trees with directories of mode 000, files of subordinate ids) must be removed
//! too.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A directory of mode 0755 that is removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    /// A new directory below the system's temporary directory.
    pub fn new(name: &str) -> io::Result<Self> {
        Self::below(&std::env::temp_dir(), name)
    }

    /// A new directory below `parent`.
    pub fn below(parent: &Path, name: &str) -> io::Result<Self> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("coracle-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let keep = std::env::var_os("CORACLE_TEST_KEEP").is_some();
        Ok(Self { path, keep })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory in it with this owner and mode.
    pub fn dir(&self, name: &str, owner: Option<(u32, u32)>, mode: u32) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        if let Some((uid, gid)) = owner
            && uid != rustix::process::getuid().as_raw()
        {
            std::os::unix::fs::chown(&path, Some(uid), Some(gid))?;
        }
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.keep {
            eprintln!("kept: {}", self.path.display());
            return;
        }
        if fs::remove_dir_all(&self.path).is_err() {
            let quiet = |program: &str, flags: &[&str]| {
                let _ = Command::new(program)
                    .args(flags)
                    .arg(&self.path)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
            };
            quiet("chmod", &["-R", "u+rwX"]);
            quiet("rm", &["-rf"]);
        }
    }
}
