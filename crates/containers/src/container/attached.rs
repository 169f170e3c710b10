//! Streams of a program in the foreground that are not the caller's (`run --attach`).

use std::fs::OpenOptions;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stderr, dup2_stdout};

use crate::error::{Error, Result};

/// Which outputs of a program are the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

impl Default for Attached {
    fn default() -> Self {
        Self { stdout: true, stderr: true }
    }
}

/// The caller's outputs while those of this process lead nowhere. Where the program could not be
/// started, or has ended, they come back: errors and notes are the caller's in any case.
#[derive(Debug)]
pub(super) struct Hidden {
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Attached {
    /// Lets the outputs of this process that are not attached lead nowhere.
    pub(super) fn hide(self) -> Result<Hidden> {
        let mut hidden = Hidden { stdout: None, stderr: None };
        if self == Self::default() {
            return Ok(hidden);
        }
        let failed =
            |error| Error::failed("cannot put /dev/null in place of an output").cause(error);
        let null = OpenOptions::new().write(true).open("/dev/null").map_err(failed)?;
        let keep = |stream: &dyn AsFd| fcntl_dupfd_cloexec(stream.as_fd(), 3);
        if !self.stdout {
            hidden.stdout = Some(keep(&std::io::stdout()).map_err(|e| failed(e.into()))?);
            dup2_stdout(&null).map_err(|errno| failed(errno.into()))?;
        }
        if !self.stderr {
            hidden.stderr = Some(keep(&std::io::stderr()).map_err(|e| failed(e.into()))?);
            dup2_stderr(&null).map_err(|errno| failed(errno.into()))?;
        }
        Ok(hidden)
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // What was duplicated once can be duplicated back; a failure could not be told anyone.
        if let Some(stdout) = &self.stdout {
            let _ = dup2_stdout(stdout);
        }
        if let Some(stderr) = &self.stderr {
            let _ = dup2_stderr(stderr);
        }
    }
}
