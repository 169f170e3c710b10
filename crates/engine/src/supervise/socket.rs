//! Makes the attach socket and connects to it; only the container's user may.
//!
//! It lives in the container's directory and is reached through `/proc/self/fd/N/attach.sock`,
//! because a socket's address holds 108 bytes and a store's path may be longer. Where the file
//! system refuses sockets, an abstract address made from the directory's device and inode takes
//! its place; it is not protected by the directory's mode, so in both cases the peer's user is
//! asked of the kernel and must be ours.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};

use super::Error;

const NAME: &str = "attach.sock";
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// A listening socket; its file goes when it is dropped.
pub(crate) struct Listener {
    fd: OwnedFd,
    path: Option<PathBuf>,
}

impl Listener {
    /// Listens for the container in `dir`, replacing what a killed supervisor left.
    pub(crate) fn bind(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(NAME);
        let fail = |source: rustix::io::Errno| Error::file("listen at", &path, source);
        let fd = new_socket().map_err(fail)?;
        let _ = fs::remove_file(&path);
        let named = open_dir(dir).and_then(|holder| bind(&fd, &through(&holder)?));
        let path_used = if named.is_ok() {
            // Between bind and chmod the directory's mode (0700) already keeps others out.
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
            Some(path.clone())
        } else {
            bind(&fd, &abstract_address(dir).map_err(fail)?).map_err(fail)?;
            None
        };
        listen(&fd, BACKLOG).map_err(fail)?;
        rustix::io::ioctl_fionbio(&fd, true).map_err(fail)?;
        Ok(Self { fd, path: path_used })
    }

    /// A waiting connection of our own user, if any; others are closed.
    pub(crate) fn accept(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::accept_with(&self.fd, flags).ok()?;
        peer_is_us(&fd).is_ok().then_some(fd)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// Connects to the supervisor of the container in `dir`. Blocking until it accepts.
pub(crate) fn dial(dir: &Path) -> Result<OwnedFd, Error> {
    let path = dir.join(NAME);
    let fail = |source: io::Error| Error::Connect { path: path.clone(), source };
    let fd = new_socket().map_err(|error| fail(error.into()))?;
    let named = open_dir(dir).and_then(|holder| connect(&fd, &through(&holder)?));
    if let Err(error) = named {
        let spare = abstract_address(dir).and_then(|address| connect(&fd, &address));
        spare.map_err(|_| fail(error.into()))?;
    }
    match peer_is_us(&fd) {
        Ok(()) => Ok(fd),
        Err(Some(uid)) => Err(Error::ForeignPeer { path, uid }),
        Err(None) => Err(fail(io::ErrorKind::PermissionDenied.into())),
    }
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

fn open_dir(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
}

fn through(holder: &OwnedFd) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{NAME}", holder.as_raw_fd()))
}

fn abstract_address(dir: &Path) -> rustix::io::Result<SocketAddrUnix> {
    let meta = fs::metadata(dir).map_err(|_| rustix::io::Errno::NOENT)?;
    let name = format!("coracle/{}/{:x}:{:x}", meta.uid(), meta.dev(), meta.ino());
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// `Err(Some(uid))` for another user's process.
fn peer_is_us(fd: &OwnedFd) -> Result<(), Option<u32>> {
    let peer = rustix::net::sockopt::socket_peercred(fd).map_err(|_| None)?;
    let own = rustix::process::geteuid();
    if peer.uid == own { Ok(()) } else { Err(Some(peer.uid.as_raw())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_works_under_a_path_longer_than_its_address() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("d".repeat(200));
        fs::create_dir(&dir).unwrap();
        let listener = Listener::bind(&dir).unwrap();
        assert!(dir.join(NAME).exists());
        let _client = dial(&dir).unwrap();
        assert!(listener.accept().is_some());
        assert!(listener.accept().is_none());
        drop(listener);
        assert!(!dir.join(NAME).exists());
        assert!(matches!(dial(&dir), Err(Error::Connect { .. })));
    }

    #[test]
    fn what_a_killed_supervisor_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        std::mem::forget(Listener::bind(dir.path()).unwrap());
        let listener = Listener::bind(dir.path()).unwrap();
        let _client = dial(dir.path()).unwrap();
        assert!(listener.accept().is_some());
    }
}
