//! A server for names: UDP and TCP at one address, and the way to other servers.
//!
//! The thread that calls [`Server::serve`] answers datagrams. What another server has to answer,
//! and every connection, has a thread of its own for as long as that takes: few at a time, because
//! more than [`MANY`] questions at once are not answered, which a client takes for a lost datagram.
//! Other users of the host are not answered ([`super::owner`]).

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use abi::network::Protocol;

use super::{forward, owner};
use crate::dns::{Answer, Transport, Zone};

/// Questions that are forwarded, and connections, at the same time.
const MANY: usize = 64;
/// The longest datagram that is taken.
pub(super) const LONGEST: usize = 4096;
/// A connection that says nothing is closed after so long.
const IDLE: Duration = Duration::from_secs(10);
/// How often is looked whether anybody needs the server.
const LOOK: Duration = Duration::from_secs(1);
/// Stack of a thread in bytes.
const STACK: usize = 128 << 10;
/// How many ports are tried until one is free for both protocols.
const TRIES: u32 = 50;

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Client {
    /// The owner of this address, of which the server's socket is reached by several.
    At(SocketAddr),
    /// The container with this id, whose own the server's socket is.
    Container(Arc<str>),
}

/// What a server knows of who asks. Shared by its threads.
pub trait Directory: Send + Sync {
    /// The names that are told to a client; `None` for a stranger.
    fn zone(&self, client: &Client, transport: Transport) -> Option<Zone>;

    /// The servers that know all other names for him, in the order in which they are asked.
    fn servers(&self, client: &Client, transport: Transport) -> Vec<SocketAddr>;

    /// Whether anybody may ask. The server ends where it says no.
    fn is_needed(&self) -> bool;
}

/// What answers questions, whichever socket they come from.
#[derive(Clone)]
pub struct Answers {
    directory: Arc<dyn Directory>,
    busy: Arc<AtomicUsize>,
    turn: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answers").field("busy", &self.busy).finish_non_exhaustive()
    }
}

impl Answers {
    /// Those that a directory gives.
    pub fn of(directory: Arc<dyn Directory>) -> Self {
        Self { directory, busy: Arc::default(), turn: Arc::default() }
    }

    /// The same for clients that must not take all threads from others.
    pub(super) fn apart(&self) -> Self {
        Self { busy: Arc::default(), ..self.clone() }
    }

    /// Answers a datagram of `from`.
    pub(super) fn datagram(
        &self,
        udp: &UdpSocket,
        message: &[u8],
        from: SocketAddr,
        client: &Client,
    ) {
        let Some(zone) = self.directory.zone(client, Transport::Udp) else { return };
        match zone.answer(message, Transport::Udp, self.turn.fetch_add(1, Ordering::Relaxed)) {
            Answer::Message(reply) => drop(udp.send_to(&reply, from)),
            Answer::None => {}
            Answer::Forward => {
                let (Some(place), Ok(udp)) = (Place::take(&self.busy), udp.try_clone()) else {
                    return;
                };
                let (answers, message, client) = (self.clone(), message.to_vec(), client.clone());
                let _ = thread(move || {
                    let _place = place;
                    let servers = answers.directory.servers(&client, Transport::Udp);
                    if let Some(reply) = forward::udp(&message, &servers) {
                        let _ = udp.send_to(&reply, from);
                    }
                });
            }
        }
    }

    /// Answers the questions of a connection in a thread of its own; whether there is room for one.
    pub(super) fn connection(&self, stream: TcpStream, client: Client) -> bool {
        let Some(place) = Place::take(&self.busy) else { return false };
        let answers = self.clone();
        let _ = thread(move || {
            let _place = place;
            let _ = answers.talk(stream, &client);
        });
        true
    }

    /// Each question has its length before it (RFC 1035, 4.2.2).
    fn talk(&self, mut stream: TcpStream, client: &Client) -> io::Result<()> {
        stream.set_read_timeout(Some(IDLE))?;
        stream.set_write_timeout(Some(IDLE))?;
        loop {
            let message = forward::read(&mut stream)?;
            let Some(zone) = self.directory.zone(client, Transport::Tcp) else { return Ok(()) };
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let reply = match zone.answer(&message, Transport::Tcp, turn) {
                Answer::Message(reply) => reply,
                Answer::None => return Ok(()),
                Answer::Forward => {
                    let servers = self.directory.servers(client, Transport::Tcp);
                    let Some(reply) = forward::tcp(&message, &servers) else { return Ok(()) };
                    reply
                }
            };
            forward::write(&mut stream, &reply)?;
        }
    }
}

/// The sockets.
#[derive(Debug)]
pub struct Server {
    udp: UdpSocket,
    tcp: TcpListener,
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
        Ok(Self { udp, tcp })
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
    pub fn serve(&self, answers: &Answers) -> io::Result<()> {
        self.accept(answers)?;
        let own = self.udp.local_addr()?;
        self.udp.set_read_timeout(Some(LOOK))?;
        let mut message = [0; LONGEST];
        let mut looked = Instant::now();
        loop {
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                if !answers.directory.is_needed() {
                    return Ok(());
                }
            }
            match self.udp.recv_from(&mut message) {
                // Other users learn no names.
                Ok((_, from)) if !owner::is_own(Protocol::Udp, from, own) => {}
                Ok((length, from)) => {
                    answers.datagram(&self.udp, &message[..length], from, &Client::At(from));
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn accept(&self, answers: &Answers) -> io::Result<()> {
        let (tcp, answers) = (self.tcp.try_clone()?, answers.clone());
        thread(move || {
            for stream in tcp.incoming() {
                let taken = stream.and_then(|stream| {
                    let (from, own) = (stream.peer_addr()?, stream.local_addr()?);
                    // Others' connections take no room from the user's.
                    Ok(!owner::is_own(Protocol::Tcp, from, own)
                        || answers.connection(stream, Client::At(from)))
                });
                if !taken.unwrap_or_default() {
                    // Too many descriptors, or too many clients: those who end make room.
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        })
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
