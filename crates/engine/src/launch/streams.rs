//! Standard streams and session of a program, and the child that was started with them.

use crate::error::{Error, Result};
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};

/// How the program's session and terminal are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Session {
    /// The caller's.
    #[default]
    Inherit,
    /// A session of its own without a terminal.
    New,
    /// A session of its own whose controlling terminal is the standard input.
    Terminal,
}

/// Standard streams of a spawned program; `None` is the caller's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Streams<'a> {
    /// Descriptor 0.
    pub stdin: Option<BorrowedFd<'a>>,
    /// Descriptor 1.
    pub stdout: Option<BorrowedFd<'a>>,
    /// Descriptor 2.
    pub stderr: Option<BorrowedFd<'a>>,
    /// Session and terminal.
    pub session: Session,
    /// The program is killed when the caller ends, however that happens.
    pub tied: bool,
    /// The caller starts few programs: its memory may be used until the program runs, and keeps
    /// what was allocated meanwhile ([`sys::fork::fork_borrowing`]).
    pub borrows: bool,
}

/// A program that was started: a child of the caller, whatever namespaces it is in.
#[derive(Debug)]
pub struct Child {
    /// Its process id in the caller's pid namespace.
    pub pid: u32,
    /// Readable when it has ended (`None` on kernels before 5.3; it is waited for like any child).
    pub pidfd: Option<OwnedFd>,
    /// The other end of the program's terminal, where that was opened in the container and is not
    /// the one that the caller passed.
    pub master: Option<OwnedFd>,
}

/// Gives the calling process these streams and this session.
pub(crate) fn apply(streams: Streams<'_>) -> Result<()> {
    let call = |doing: &'static str| move |errno: Errno| Error::call(doing, errno);
    match streams.session {
        // A terminal leaves its session when the first process of that ends, so the program's own
        // process makes that session.
        Session::Inherit | Session::Terminal => {}
        Session::New => {
            sys::process::new_session().map_err(call("make a session"))?;
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
