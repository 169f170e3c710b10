//! Pseudo-terminal pairs.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::ioctl_tiocsctty;
use rustix::pty::OpenptFlags;

use super::{Size, resize};

/// A pseudo-terminal: bytes written to one end are read at the other.
pub struct Pty {
    /// The supervisor's end.
    pub master: OwnedFd,
    /// The program's end, a terminal.
    pub slave: OwnedFd,
}

impl Pty {
    /// Opens a pair in the host's `/dev/pts`; both ends are close-on-exec, neither becomes the
    /// caller's controlling terminal.
    pub fn open(size: Option<Size>) -> rustix::io::Result<Self> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags)?;
        rustix::pty::unlockpt(&master)?;
        let slave = match rustix::pty::ioctl_tiocgptpeer(&master, flags) {
            Ok(slave) => slave,
            // TIOCGPTPEER came with Linux 4.13; RHEL 7's 3.10 returns EINVAL or ENOTTY.
            Err(Errno::INVAL | Errno::NOTTY) => {
                let name = rustix::pty::ptsname(&master, Vec::new())?;
                let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
                rustix::fs::open(name, flags, Mode::empty())?
            }
            Err(error) => return Err(error),
        };
        if let Some(size) = size {
            resize(&master, size)?;
        }
        Ok(Self { master, slave })
    }
}

/// Starts a new session and makes `slave` its controlling terminal. For the child, between fork
/// and exec.
pub fn acquire_controlling(slave: impl AsFd) -> rustix::io::Result<()> {
    crate::process::new_session()?;
    ioctl_tiocsctty(slave)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::size;

    #[test]
    fn a_pair_has_the_size_it_was_given_and_carries_bytes() {
        let wanted = Size { rows: 33, columns: 101 };
        let pty = Pty::open(Some(wanted)).unwrap();
        assert_eq!(size(&pty.slave), Some(wanted));
        rustix::io::write(&pty.slave, b"x\n").unwrap();
        let mut bytes = [0; 8];
        let count = rustix::io::read(&pty.master, &mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"x\r\n");
    }
}
