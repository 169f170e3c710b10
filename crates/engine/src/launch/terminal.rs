//! The program's terminal.
//!
//! The process that starts the program has opened a pseudo-terminal of the host and passes it as
//! the three standard streams. In a container with a `/dev/pts` of its own that terminal has no
//! name (`tty` says "not a tty"). So the program's process opens another one there and sends the
//! master side back. Where the container shows the host's `/dev/pts`, the passed one is used.
//!
//! Either way the terminal becomes the program's user's, who could not open it by name otherwise.

use super::descriptor;
use super::streams::Session;
use crate::error::{Error, Result};
use crate::plan::{Mount, Plan};
use rustix::fs::{Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::pty::OpenptFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::call(doing, errno)
}

/// Whether a container's `/dev` is its own, so that names can be made there.
pub(crate) fn has_own_devices(plan: &Plan) -> bool {
    let dev = Path::new("/dev");
    plan.mounts.iter().any(|mount| matches!(mount, Mount::Tmpfs { target, .. } if target == dev))
}

/// What the program has for a terminal.
#[derive(Debug, Default)]
pub(crate) enum Terminal {
    /// What its parent has.
    #[default]
    Inherited,
    /// The one that is its standard input.
    Given,
    /// One of the container's own; its other end goes into this socket.
    Own(OwnedFd),
}

/// A program's terminal and the socket over which its master side comes back.
#[derive(Debug, Default)]
pub(crate) struct Pty {
    pub(crate) terminal: Terminal,
    /// `None` where the program opens none.
    pub(crate) master: Option<OwnedFd>,
}

impl Pty {
    /// Of a program whose container may have a `/dev/pts` of its own.
    pub(crate) fn of(plan: &Plan, session: Session) -> Result<Self> {
        let own = |mount: &Mount| matches!(mount, Mount::Kernel { kind, .. } if kind == "devpts");
        if session != Session::Terminal || !plan.mounts.iter().any(own) {
            return Ok(Self::passed(session));
        }
        let (receiver, sender) = descriptor::sockets()?;
        Ok(Self { terminal: Terminal::Own(sender), master: Some(receiver) })
    }

    /// Of a program that uses what its starter passes.
    pub(crate) fn passed(session: Session) -> Self {
        let terminal =
            if session == Session::Terminal { Terminal::Given } else { Terminal::Inherited };
        Self { terminal, master: None }
    }
}

impl Terminal {
    /// The socket that has to stay open until it is the program's.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Own(socket) => Some(socket.as_fd()),
            Self::Inherited | Self::Given => None,
        }
    }

    /// Makes it the program's: called in the container, in the process that becomes the program,
    /// while that has all capabilities.
    pub(crate) fn take(&self, plan: &Plan, fresh: bool) -> Result<()> {
        let given = rustix::stdio::stdin();
        match self {
            Self::Inherited => return Ok(()),
            Self::Given => give(plan, given),
            Self::Own(socket) => match open(plan, fresh) {
                Ok((master, slave)) => {
                    give(plan, slave.as_fd());
                    if let Some(size) = sys::terminal::size(given) {
                        let _ = sys::terminal::resize(&slave, size);
                    }
                    descriptor::send(socket, master.as_fd())
                        .map_err(call("hand the terminal over"))?;
                    let failed = call("duplicate the terminal");
                    rustix::stdio::dup2_stdin(&slave).map_err(&failed)?;
                    rustix::stdio::dup2_stdout(&slave).map_err(&failed)?;
                    rustix::stdio::dup2_stderr(&slave).map_err(&failed)?;
                }
                // A container that was started with another `/dev`: the terminal without a name
                // must do.
                Err(_) if !fresh => give(plan, given),
                Err(errno) => return Err(call("open a terminal in /dev/pts")(errno)),
            },
        }
        match sys::process::new_session() {
            // An OCI runtime has made one already.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(call("make a session")(errno)),
        }
        make_controlling()
    }
}

/// Makes the standard input the controlling terminal of the caller's session.
pub(crate) fn make_controlling() -> Result<()> {
    rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
        .map_err(call("make the terminal the controlling one"))
}

/// Gives it to the program's user. On a host whose terminals belong to a group `tty` that is
/// refused: the group is not in our map.
fn give(plan: &Plan, slave: BorrowedFd<'_>) {
    if plan.process.uid != 0 {
        let _ = rustix::fs::fchown(slave, Some(Uid::from_raw(plan.process.uid)), None);
    }
}

fn open(plan: &Plan, fresh: bool) -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&master)?;
    let peer = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let slave = match rustix::pty::ioctl_tiocgptpeer(&master, peer) {
        // Kernels before 4.13.
        Err(Errno::INVAL | Errno::NOTTY) => rustix::fs::open(&name, flags, Mode::empty())?,
        result => result?,
    };
    if fresh && has_own_devices(plan) {
        // As in Docker: the container's console is its terminal.
        let console = "/dev/console";
        let make = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open(console, make, Mode::from_raw_mode(0o600))?;
        rustix::mount::mount(&name, console, c"", MountFlags::BIND, None)?;
    }
    Ok((master, slave))
}
