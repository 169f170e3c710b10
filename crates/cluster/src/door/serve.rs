//! The door: a process of the driver on a host, with a socket for the host's node containers.
//!
//! One thread and one loop. It never waits for a connection before it reads from the driver: what a
//! connection has not read yet is kept, which by credit is at most [`WINDOW`] bytes of output; a
//! connection that gives more credit than it reads is ended. What comes from the connections waits
//! in their sockets while the driver does not read.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use remote::wire::frames::{self, Decoder, Frame};
use remote::wire::{self, Kind, PIECE, WINDOW};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sys::event::{MaskGuard, SignalFd, SignalSet};

use crate::error::{Error, Result};

/// Connections at one time. More wait until one ends.
const MOST: usize = 4000;
/// Bytes that are kept for a connection. Frames of single bytes are ten times as long as what they
/// carry.
const KEPT: usize = 12 * WINDOW;
const SIGTERM: i32 = 15;
/// SIGHUP and SIGINT of a terminal are for the application.
const OTHERS: [i32; 2] = [1, 2];

/// Serves the socket at `path`, with the driver at standard input and output, until the driver ends
/// its stream. The socket is removed at the end.
///
/// # Errors
/// If the socket cannot be made, or the driver's stream is damaged.
pub fn serve(path: &Path) -> Result<()> {
    let cannot = |what: &str, error: io::Error| {
        Error::new(format!("cannot {what} {}: {error}", path.display()))
    };
    let signals = SignalSet::of(&[SIGTERM]);
    let mask = SignalSet::of(&[SIGTERM, OTHERS[0], OTHERS[1]]);
    let _blocked = MaskGuard::block(mask).map_err(|error| cannot("serve", error))?;
    let signals = SignalFd::new(signals).map_err(|error| cannot("serve", error))?;
    let (listener, _socket) = listen(path).map_err(|error| cannot("make the socket", error))?;
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    for stream in [input, output] {
        rustix::io::ioctl_fionbio(stream, true).map_err(|error| cannot("serve", error.into()))?;
    }
    let mut door = Door::new(listener, input, output);
    // It is open now.
    door.tell(Kind::Done, 0, &[]);
    door.run(&signals)
}

/// Removes the socket, if it is still the one of this door.
struct Socket {
    path: PathBuf,
    /// Its device and inode.
    own: (u64, u64),
}

impl Socket {
    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), own: Self::identity(path)? })
    }

    fn identity(path: &Path) -> io::Result<(u64, u64)> {
        let found = fs::symlink_metadata(path)?;
        Ok((found.dev(), found.ino()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if Self::identity(&self.path).is_ok_and(|there| there == self.own) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds a socket. One of the same name that a door has left, or is about to leave, gives way: a
/// path that is always the same is that of one driver at a time.
fn bind(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => UnixListener::bind(path),
        },
        done => done,
    }
}

/// Makes the socket in a directory that is made too if it is not there.
///
/// Users of containers may have other ids than the caller, so anybody may connect whom the path
/// lets through. On the host that is the caller alone, if the directory above is only his.
fn listen(path: &Path) -> io::Result<(UnixListener, Socket)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::INVAL.into());
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let is_private = || {
        let above = fs::metadata(directory.parent()?).ok()?;
        let own = rustix::process::geteuid().as_raw();
        Some(above.uid() == own && above.mode() & 0o777 == 0o700)
    };
    // A socket's address is at most 107 bytes long, the path of a store may be longer.
    let opened = rustix::fs::open(directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let short = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let listener = bind(&Path::new(&short).join(name))?;
    let socket = Socket::at(path)?;
    let (of_directory, of_socket) =
        if is_private() == Some(true) { (0o711, 0o666) } else { (0o700, 0o600) };
    fs::set_permissions(path, Permissions::from_mode(of_socket))?;
    fs::set_permissions(directory, Permissions::from_mode(of_directory))?;
    listener.set_nonblocking(true)?;
    Ok((listener, socket))
}

struct Connection {
    stream: UnixStream,
    decoder: Decoder,
    /// For the connection.
    out: VecDeque<u8>,
    /// Its command has ended; what is left is sent.
    is_over: bool,
}

struct Door<'d> {
    listener: UnixListener,
    /// From the driver, and to it.
    input: BorrowedFd<'d>,
    output: BorrowedFd<'d>,
    /// For the driver.
    out: VecDeque<u8>,
    decoder: Decoder,
    connections: BTreeMap<u32, Connection>,
    last: u32,
}

/// What is polled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Input,
    Output,
    Signals,
    Listener,
    Connection(u32),
}

impl<'d> Door<'d> {
    fn new(listener: UnixListener, input: BorrowedFd<'d>, output: BorrowedFd<'d>) -> Self {
        Self {
            listener,
            input,
            output,
            out: VecDeque::new(),
            decoder: Decoder::default(),
            connections: BTreeMap::new(),
            last: 0,
        }
    }

    fn tell(&mut self, kind: Kind, number: u32, payload: &[u8]) {
        // A payload came in a frame, so it has room in one.
        let _ = frames::append(&mut self.out, kind, number, payload);
    }

    fn run(&mut self, signals: &SignalFd) -> Result<()> {
        let mut buffer = vec![0; PIECE];
        loop {
            for place in self.wait(signals.as_fd()) {
                match place {
                    Place::Signals => return Ok(()),
                    Place::Input => match rustix::io::read(self.input, &mut buffer) {
                        // Reset: the driver has gone without reading what was sent to it.
                        Ok(0) | Err(Errno::CONNRESET) => return Ok(()),
                        Ok(count) => self.take(&buffer[..count]).map_err(damaged)?,
                        Err(Errno::AGAIN | Errno::INTR) => {}
                        Err(error) => return Err(damaged(error)),
                    },
                    Place::Output => {
                        if push(self.output, &mut self.out).is_err() {
                            return Ok(());
                        }
                    }
                    Place::Listener => self.accept(),
                    Place::Connection(number) => self.serve(number, &mut buffer),
                }
            }
        }
    }

    fn wait(&self, signals: BorrowedFd<'_>) -> Vec<Place> {
        let mut places = vec![Place::Input, Place::Signals];
        let mut wanted = vec![
            PollFd::from_borrowed_fd(self.input, PollFlags::IN),
            PollFd::from_borrowed_fd(signals, PollFlags::IN),
        ];
        let mut add = |place, fd, flags| {
            places.push(place);
            wanted.push(PollFd::from_borrowed_fd(fd, flags));
        };
        if !self.out.is_empty() {
            add(Place::Output, self.output, PollFlags::OUT);
        }
        if self.connections.len() < MOST {
            add(Place::Listener, self.listener.as_fd(), PollFlags::IN);
        }
        for (number, connection) in &self.connections {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, self.out.len() < WINDOW && !connection.is_over);
            flags.set(PollFlags::OUT, !connection.out.is_empty());
            // One that has been closed would be told again and again.
            if !flags.is_empty() {
                add(Place::Connection(*number), connection.stream.as_fd(), flags);
            }
        }
        let _ = poll(&mut wanted, None);
        let ready = wanted.iter().map(|fd| !fd.revents().is_empty());
        places.into_iter().zip(ready).filter_map(|(place, ready)| ready.then_some(place)).collect()
    }

    fn accept(&mut self) {
        match self.listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                self.last += 1;
                let (decoder, out) = (Decoder::default(), VecDeque::new());
                let connection = Connection { stream, decoder, out, is_over: false };
                self.connections.insert(self.last, connection);
            }
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                // It is there until one of the others has ended.
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => {}
        }
    }

    /// Moves what a connection has sent and is to get.
    fn serve(&mut self, number: u32, buffer: &mut [u8]) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut lives = push(connection.stream.as_fd(), &mut connection.out).is_ok();
        if lives && !connection.is_over && self.out.len() < WINDOW {
            lives = match rustix::io::read(&connection.stream, &mut *buffer) {
                Ok(0) => false,
                Ok(count) => {
                    connection.decoder.feed(&buffer[..count]);
                    pass_on(connection, number, &mut self.out).is_ok()
                }
                Err(Errno::AGAIN | Errno::INTR) => true,
                Err(_) => false,
            };
        }
        let is_over = connection.is_over;
        if !lives || is_over && connection.out.is_empty() {
            self.connections.remove(&number);
            if !is_over {
                self.tell(Kind::Bye, number, &[]);
            }
        }
    }

    /// Takes bytes of the driver.
    fn take(&mut self, bytes: &[u8]) -> Result<(), wire::Error> {
        self.decoder.feed(bytes);
        while let Some(Frame { kind, id, payload }) = self.decoder.take()? {
            let is_end = matches!(kind, Kind::Ended | Kind::Refused);
            if !is_end && !matches!(kind, Kind::Output | Kind::Errors | Kind::Credit) {
                return Err(wire::Error::Unexpected(kind));
            }
            // One that is not there any more has said so.
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            frames::append(&mut connection.out, kind, 0, &payload)?;
            connection.is_over |= is_end;
            if connection.out.len() > KEPT {
                self.connections.remove(&id);
                self.tell(Kind::Bye, id, &[]);
            }
        }
        Ok(())
    }
}

/// Passes on the frames of a connection.
fn pass_on(
    connection: &mut Connection,
    number: u32,
    out: &mut VecDeque<u8>,
) -> Result<(), wire::Error> {
    while let Some(Frame { kind, payload, .. }) = connection.decoder.take()? {
        match kind {
            Kind::Start | Kind::Input | Kind::CloseInput | Kind::Signal | Kind::Credit => {
                frames::append(out, kind, number, &payload)?;
            }
            kind => return Err(wire::Error::Unexpected(kind)),
        }
    }
    Ok(())
}

/// Writes what can be written.
pub(super) fn push(to: BorrowedFd<'_>, bytes: &mut VecDeque<u8>) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes.as_slices().0) {
            Ok(count) => drop(bytes.drain(..count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    bytes.shrink_to(PIECE);
    Ok(())
}

fn damaged(error: impl std::fmt::Display) -> Error {
    Error::new(format!("the driver's stream is damaged: {error}"))
}

#[cfg(test)]
mod tests;
