//! What all engines share in starting a program: the fork, its streams, the pipe that tells how it goes, the program's strings and limits.

pub(super) mod files;
pub(super) mod program;
pub(super) mod report;

use crate::choose::{Session, Streams};
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use sys::event::ForkResult;

/// Forks a process of one thread.
pub(super) fn fork() -> Result<ForkResult> {
    sys::event::fork().map_err(|error| Error::Call { doing: "fork".into(), errno: error.into() })
}

/// Gives the calling process the streams and the session that were asked for.
pub(super) fn apply(streams: Streams<'_>) -> Result<()> {
    let call = |doing: &'static str| {
        move |errno: Errno| Error::Call { doing: doing.into(), errno: errno.into() }
    };
    match streams.session {
        // A terminal leaves its session when the first process of that ends, so the program's own process makes that session.
        Session::Inherit | Session::Terminal => {}
        Session::New => {
            rustix::process::setsid().map(drop).map_err(call("make a session"))?;
        }
    }
    // A stream may be one of the descriptors 0 to 2 itself, so all are moved away first.
    let lift = |stream: Option<BorrowedFd<'_>>| {
        stream.map(|stream| rustix::io::fcntl_dupfd_cloexec(stream, 3)).transpose()
    };
    let moved = call("duplicate a descriptor");
    let stdin = lift(streams.stdin).map_err(&moved)?;
    let stdout = lift(streams.stdout).map_err(&moved)?;
    let stderr = lift(streams.stderr).map_err(&moved)?;
    if let Some(stdin) = stdin {
        rustix::stdio::dup2_stdin(&stdin).map_err(&moved)?;
    }
    if let Some(stdout) = stdout {
        rustix::stdio::dup2_stdout(&stdout).map_err(&moved)?;
    }
    if let Some(stderr) = stderr {
        rustix::stdio::dup2_stderr(&stderr).map_err(&moved)?;
    }
    Ok(())
}
