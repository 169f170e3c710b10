//! Streams between hosts for data in bulk: TCP, and TLS 1.3 with raw public keys. The bytes are the
//! caller's.

use std::io::{self, BufReader, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use rustls::Connection;

use super::key::{Key, PublicKey};
pub use super::tls::explain;
use super::tls::{self, Tls};
use crate::locks;

/// So many bytes are read from a socket at once.
const BUFFER: usize = 64 << 10;

/// Takes and makes connections with one key.
pub struct Secure {
    tls: Tls,
    keys: tls::Keys,
}

impl Secure {
    /// Nobody is let in yet.
    ///
    /// # Errors
    /// If the key cannot be used.
    pub fn new(key: &Key) -> io::Result<Self> {
        let keys = tls::Keys::default();
        let tls = Tls::new(key, keys.clone()).map_err(io::Error::other)?;
        Ok(Self { tls, keys })
    }

    /// Lets in those who have these keys, and nobody else.
    pub fn let_in(&self, keys: impl IntoIterator<Item = PublicKey>) {
        *locks::write(&self.keys) = keys.into_iter().collect();
    }

    /// A connection that has come in, once the other side has proven its key.
    ///
    /// # Errors
    /// If it has none that is let in, or does not prove it in time.
    pub fn accept(&self, socket: TcpStream, within: Duration) -> io::Result<SecureStream> {
        let tls = self.tls.accepted().map_err(io::Error::other)?;
        SecureStream::greet(socket, tls, within)
    }

    /// Connects to the host with a key.
    ///
    /// # Errors
    /// If it is not reached in time, or another one is there. [`explain`] says it in words.
    pub fn dial(
        &self,
        key: PublicKey,
        to: SocketAddrV4,
        connect: Duration,
        greet: Duration,
    ) -> io::Result<SecureStream> {
        let socket = TcpStream::connect_timeout(&to.into(), connect)?;
        let tls = self.tls.dialled(key, *to.ip()).map_err(io::Error::other)?;
        SecureStream::greet(socket, tls, greet)
    }
}

/// A connection whose other side is known. Dropped, it is closed.
pub struct SecureStream {
    socket: BufReader<TcpStream>,
    tls: Connection,
}

impl SecureStream {
    fn greet(socket: TcpStream, tls: Connection, within: Duration) -> io::Result<Self> {
        let until = Instant::now() + within;
        socket.set_nodelay(true)?;
        let mut stream = Self { socket: BufReader::with_capacity(BUFFER, socket), tls };
        while stream.tls.is_handshaking() {
            stream.send()?;
            if !stream.tls.is_handshaking() {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            stream.wait_at_most(left)?;
            if stream.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        stream.send()?;
        Ok(stream)
    }

    /// A read or a write that moves nothing for so long fails.
    ///
    /// # Errors
    /// If the kernel refuses the time.
    pub fn wait_at_most(&self, time: Duration) -> io::Result<()> {
        let socket = self.socket.get_ref();
        socket.set_read_timeout(Some(time))?;
        socket.set_write_timeout(Some(time))
    }

    /// Waits for the other side for as long as it takes.
    ///
    /// # Errors
    /// If the kernel refuses that.
    pub fn wait_for_ever(&self) -> io::Result<()> {
        self.socket.get_ref().set_read_timeout(None)
    }

    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket.get_ref())?;
        }
        Ok(())
    }

    /// Reads from the socket once; 0 at its end.
    fn fill(&mut self) -> io::Result<usize> {
        let count = self.tls.read_tls(&mut self.socket)?;
        if let Err(error) = self.tls.process_new_packets() {
            // The other side is told why.
            let _ = self.send();
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        Ok(count)
    }
}

impl Read for SecureStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            self.fill()?;
        }
    }
}

impl Write for SecureStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.tls.writer().write(bytes)?;
        self.send()?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn pair() -> (Secure, PublicKey) {
        let key = Key::generate().unwrap();
        (Secure::new(&key).unwrap(), key.public())
    }

    fn listener() -> (TcpListener, SocketAddrV4) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(at) = listener.local_addr().unwrap() else { unreachable!() };
        (listener, at)
    }

    #[test]
    fn bytes_in_both_directions() {
        let ((server, server_key), (client, client_key)) = (pair(), pair());
        server.let_in([client_key]);
        let (listener, at) = listener();
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = server.accept(listener.accept().unwrap().0, SOON).unwrap();
                let mut got = vec![0; bytes.len()];
                stream.read_exact(&mut got).unwrap();
                stream.write_all(&got).unwrap();
            });
            let mut stream = client.dial(server_key, at, SOON, SOON).unwrap();
            stream.write_all(&bytes).unwrap();
            let mut got = Vec::new();
            let end = stream.read_to_end(&mut got);
            assert!(got == bytes, "{} bytes, {end:?}", got.len());
        });
    }

    #[test]
    fn strangers() {
        let ((server, server_key), (client, _), (_, other_key)) = (pair(), pair(), pair());
        server.let_in([other_key]);
        let (listener, at) = listener();
        std::thread::scope(|scope| {
            let accepted =
                scope.spawn(|| server.accept(listener.accept().unwrap().0, SOON).is_err());
            // In TLS 1.3 the client learns of it when it reads.
            let read = client
                .dial(server_key, at, SOON, SOON)
                .and_then(|mut stream| stream.read(&mut [0; 1]));
            assert_eq!(
                explain(&read.unwrap_err()),
                "it does not know this host's key: join the newest list there"
            );
            assert!(accepted.join().unwrap());
        });
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| server.accept(listener.accept().unwrap().0, SOON).err());
            client.dial(other_key, at, SOON, SOON).err().unwrap()
        });
        assert_eq!(explain(&refused), "it has another key than in the list");
    }

    #[test]
    fn silence() {
        let (server, _) = pair();
        let (listener, at) = listener();
        let silent = TcpStream::connect_timeout(&at.into(), SOON).unwrap();
        let socket = listener.accept().unwrap().0;
        let error = server.accept(socket, Duration::from_millis(50)).err().unwrap();
        assert_eq!(explain(&error), "it does not answer");
        drop(silent);
    }
}
