//! Answers other hosts.
//!
//! One asks for a blob by its number, from an offset (13 bytes), and gets frames: a length in four
//! bytes, and so many bytes of the blob. A frame of no bytes says that there are no more yet, one
//! of the length [`OVER`] that the blob is begun anew here. The number [`TOTAL`] asks how many
//! bytes of all blobs are there: eight bytes.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use net::peers::PublicKey;
use net::peers::secure::{Secure, SecureStream};

use super::shelf::{PIECE, Shelf};

/// The length of a frame after which nothing comes.
pub(super) const OVER: u32 = u32::MAX;
/// Stands in the place of a blob's number.
pub(super) const TOTAL: u32 = u32::MAX;
/// So often something is sent while a blob does not grow.
const EVERY: Duration = Duration::from_secs(1);
/// A connection has to show its key within so long.
const GREETING: Duration = Duration::from_secs(3);
/// The list of those who are let in comes within so long.
const LIST: Duration = Duration::from_secs(10);
/// One who takes nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many connections may be open that have not shown a key.
const STRANGERS: usize = 64;

/// What another host asks for.
pub(super) struct Ask {
    /// The number of a blob.
    pub(super) number: u32,
    /// The first byte.
    pub(super) offset: u64,
    /// Nothing before all of it has its digest here.
    pub(super) whole: bool,
}

/// The length of an [`Ask`].
pub(super) const ASK: usize = 13;

impl Ask {
    pub(super) fn bytes(&self) -> [u8; ASK] {
        let mut bytes = [0; ASK];
        bytes[..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.offset.to_le_bytes());
        bytes[12] = self.whole.into();
        bytes
    }

    fn read(bytes: [u8; ASK]) -> Self {
        let (mut number, mut offset) = ([0; 4], [0; 8]);
        number.copy_from_slice(&bytes[..4]);
        offset.copy_from_slice(&bytes[4..12]);
        let (number, offset) = (u32::from_le_bytes(number), u64::from_le_bytes(offset));
        Self { number, offset, whole: bytes[12] != 0 }
    }
}

/// Answers until the process ends.
pub(super) struct Server {
    secure: Arc<Secure>,
    shelf: Arc<Shelf>,
    has_list: Mutex<bool>,
    listed: Condvar,
    strangers: AtomicUsize,
}

impl Server {
    pub(super) fn new(secure: Arc<Secure>, shelf: Arc<Shelf>) -> Self {
        let strangers = AtomicUsize::new(0);
        Self { secure, shelf, has_list: Mutex::new(false), listed: Condvar::new(), strangers }
    }

    /// These hosts are answered.
    pub(super) fn let_in(&self, guests: Vec<PublicKey>) {
        self.secure.let_in(guests);
        *self.has_list.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.listed.notify_all();
    }

    /// Takes connections, each in a thread of its own.
    pub(super) fn listen(self: Arc<Self>, listener: TcpListener) {
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let Ok(socket) = socket else {
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                };
                let server = Arc::clone(&self);
                if self.strangers.fetch_add(1, Ordering::Relaxed) >= STRANGERS {
                    self.strangers.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                std::thread::spawn(move || {
                    let greeted = server.greet(socket);
                    server.strangers.fetch_sub(1, Ordering::Relaxed);
                    // Who has gone asks nobody, or another one.
                    let _ = greeted.and_then(|stream| server.talk(stream));
                });
            }
        });
    }

    fn greet(&self, socket: TcpStream) -> io::Result<SecureStream> {
        let known = self.has_list.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.listed.wait_timeout_while(known, LIST, |known| !*known));
        self.secure.accept(socket, GREETING)
    }

    fn talk(&self, mut stream: SecureStream) -> io::Result<()> {
        stream.wait_at_most(PATIENCE)?;
        loop {
            let mut ask = [0; ASK];
            stream.wait_for_ever()?;
            stream.read_exact(&mut ask)?;
            let ask = Ask::read(ask);
            if ask.number == TOTAL {
                stream.write_all(&self.shelf.total().to_le_bytes())?;
            } else {
                self.answer(&ask, &mut stream)?;
            }
        }
    }

    fn answer(&self, ask: &Ask, stream: &mut SecureStream) -> io::Result<()> {
        let number = ask.number as usize;
        let mut at = ask.offset;
        let mut turn = None;
        let mut frame = vec![0; 4 + PIECE];
        loop {
            let Some(part) = self.shelf.wait(number, at, ask.whole, EVERY) else {
                stream.write_all(&0_u32.to_le_bytes())?;
                continue;
            };
            // Bytes of another file do not continue those that were sent.
            if *turn.get_or_insert(part.turn) != part.turn || part.is_whole && at > part.length {
                return stream.write_all(&OVER.to_le_bytes());
            }
            if at >= part.length {
                return Ok(());
            }
            let count = usize::try_from(part.length - at).map_or(PIECE, |left| left.min(PIECE));
            frame[..4].copy_from_slice(&(count as u32).to_le_bytes());
            part.file.read_exact_at(&mut frame[4..4 + count], at)?;
            stream.write_all(&frame[..4 + count])?;
            at += count as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks() {
        let ask = Ask { number: 7, offset: 1 << 40, whole: true };
        let read = Ask::read(ask.bytes());
        assert_eq!((read.number, read.offset, read.whole), (7, 1 << 40, true));
        assert!(!Ask::read([0; ASK]).whole);
    }
}
