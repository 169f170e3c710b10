//! A server for names: UDP and TCP at one address, and the way to other servers.
//!
//! The thread that calls [`Server::serve`] answers datagrams. What another server has to answer,
//! and every connection, has a thread of its own for as long as that takes: few at a time, because
//! more than [`MANY`] questions at once are not answered, which a client takes for a lost datagram.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::forward;
use crate::dns::{Answer, Transport, Zone};

/// Questions that are forwarded, and connections, at the same time.
const MANY: usize = 64;
/// The longest datagram that is taken.
const LONGEST: usize = 4096;
/// A connection that says nothing is closed after so long.
const IDLE: Duration = Duration::from_secs(10);
/// How often is looked whether anybody needs the server.
const LOOK: Duration = Duration::from_secs(1);
/// Stack of a thread in bytes.
const STACK: usize = 128 << 10;
/// How many ports are tried until one is free for both protocols.
const TRIES: u32 = 50;

/// What a server knows of who asks. Shared by its threads.
pub trait Directory: Send + Sync {
    /// The names that are told to whoever asks from this address; `None` for a stranger.
    fn zone(&self, client: SocketAddr, transport: Transport) -> Option<Zone>;

    /// The servers that know all other names for him, in the order in which they are asked.
    fn servers(&self, client: SocketAddr, transport: Transport) -> Vec<SocketAddr>;

    /// Whether anybody may ask. The server ends where it says no.
    fn is_needed(&self) -> bool;
}

/// The sockets.
#[derive(Debug)]
pub struct Server {
    udp: UdpSocket,
    tcp: TcpListener,
    busy: Arc<AtomicUsize>,
    turn: Arc<AtomicUsize>,
}

impl Server {
    /// Binds a port of an address, which the kernel chooses, for both protocols.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn bind(address: Ipv4Addr) -> io::Result<Self> {
        let place = SocketAddr::from((address, 0));
        let mut tries = (1..TRIES).map(|_| Self::at(place));
        tries.find(Result::is_ok).unwrap_or_else(|| Self::at(place))
    }

    /// Binds a port for both protocols.
    ///
    /// # Errors
    /// Those of `bind`.
    pub fn at(place: SocketAddr) -> io::Result<Self> {
        let udp = UdpSocket::bind(place)?;
        let tcp = TcpListener::bind(udp.local_addr()?)?;
        let (busy, turn) = Default::default();
        Ok(Self { udp, tcp, busy, turn })
    }

    /// The socket for datagrams.
    pub fn udp(&self) -> &UdpSocket {
        &self.udp
    }

    /// The socket for connections.
    pub fn tcp(&self) -> &TcpListener {
        &self.tcp
    }

    /// Answers until nobody needs it.
    ///
    /// # Errors
    /// Those of the sockets, which do not come from what a client sends.
    pub fn serve(&self, directory: &Arc<dyn Directory>) -> io::Result<()> {
        self.accept(directory)?;
        self.udp.set_read_timeout(Some(LOOK))?;
        let mut message = [0; LONGEST];
        let mut looked = Instant::now();
        loop {
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                if !directory.is_needed() {
                    return Ok(());
                }
            }
            match self.udp.recv_from(&mut message) {
                Ok((length, client)) => self.datagram(directory, &message[..length], client),
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn datagram(&self, directory: &Arc<dyn Directory>, message: &[u8], client: SocketAddr) {
        let Some(zone) = directory.zone(client, Transport::Udp) else { return };
        match zone.answer(message, Transport::Udp, self.turn.fetch_add(1, Ordering::Relaxed)) {
            Answer::Message(reply) => drop(self.udp.send_to(&reply, client)),
            Answer::None => {}
            Answer::Forward => {
                let (Some(place), Ok(udp)) = (Place::take(&self.busy), self.udp.try_clone()) else {
                    return;
                };
                let (directory, message) = (Arc::clone(directory), message.to_vec());
                let _ = thread(move || {
                    let _place = place;
                    let servers = directory.servers(client, Transport::Udp);
                    if let Some(reply) = forward::udp(&message, &servers) {
                        let _ = udp.send_to(&reply, client);
                    }
                });
            }
        }
    }

    fn accept(&self, directory: &Arc<dyn Directory>) -> io::Result<()> {
        let (tcp, directory) = (self.tcp.try_clone()?, Arc::clone(directory));
        let (busy, turn) = (Arc::clone(&self.busy), Arc::clone(&self.turn));
        thread(move || {
            for stream in tcp.incoming() {
                let (Ok(stream), Some(place)) = (stream, Place::take(&busy)) else {
                    // Too many descriptors, or too many clients: those who end make room.
                    std::thread::sleep(Duration::from_millis(10));
                    continue;
                };
                let (directory, turn) = (Arc::clone(&directory), Arc::clone(&turn));
                let _ = thread(move || {
                    let _place = place;
                    let _ = connection(stream, &*directory, &turn);
                });
            }
        })
    }
}

/// Answers the questions of a connection, each of which has its length before it (RFC 1035, 4.2.2).
fn connection(
    mut stream: TcpStream,
    directory: &dyn Directory,
    turn: &AtomicUsize,
) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(IDLE))?;
    let client = stream.peer_addr()?;
    loop {
        let message = forward::read(&mut stream)?;
        let Some(zone) = directory.zone(client, Transport::Tcp) else { return Ok(()) };
        let reply =
            match zone.answer(&message, Transport::Tcp, turn.fetch_add(1, Ordering::Relaxed)) {
                Answer::Message(reply) => reply,
                Answer::None => return Ok(()),
                Answer::Forward => {
                    let servers = directory.servers(client, Transport::Tcp);
                    let Some(reply) = forward::tcp(&message, &servers) else { return Ok(()) };
                    reply
                }
            };
        forward::write(&mut stream, &reply)?;
    }
}

/// Whether an error is none of the socket's own: nothing came, or a client has gone.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(error.kind(), E::WouldBlock | E::TimedOut | E::Interrupted | E::ConnectionRefused)
}

/// A thread with a small stack.
pub(super) fn thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().stack_size(STACK).spawn(work).map(drop)
}

/// One of [`MANY`].
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(busy: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |count| (count < MANY).then_some(count + 1);
        let taken = busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Self(Arc::clone(busy)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
