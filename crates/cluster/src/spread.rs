//! Images from host to host: one process on each host (`coracle cluster spread`), which gets the
//! blobs of an image from the host before it and passes them on while they arrive.
//!
//! ```text
//! registry --> the driver's machine --> host 1 --> host 2 --> ... --> host n
//! ```
//!
//! **Why a chain.** A link carries as much in one direction while it is busy in the other. In a
//! chain each host receives every byte once and sends it once, so all have the image when one
//! could have downloaded it, and a little later for each hop: a piece of 64 KiB has to arrive
//! before it goes on. In a tree an inner host sends everything twice, which halves the rate.
//!
//! **Who is lost.** A host knows several of those before it ([`order`]), and asks the next of them
//! from the byte that it has when one is gone, silent for five seconds, or sends what has not the
//! blob's digest. Those before it are always earlier in the chain, so nobody waits in a circle.
//!
//! **Who is slow.** A host that falls behind while the next of those before it has much more tries
//! that one for two seconds, and stays there if more comes ([`route`]).
//!
//! **Who is let in.** Each process makes a key for its lifetime. The driver, to which standard
//! input and output lead, tells each whom to ask and whom to answer; connections are TLS 1.3 with
//! these keys ([`net::peers::secure`]).
//!
//! | module | what is there |
//! |---|---|
//! | [`words`] | what driver and process say to each other |
//! | [`order`] | who asks whom: a pure function |
//! | `route` | when one is left because it is slow: a pure function |
//! | `shelf` | the blobs of this host: what is there of each |
//! | `serve` | answers to other hosts |
//! | `fetch` | gets the blobs |

mod fetch;
pub mod order;
mod route;
mod serve;
mod shelf;
#[cfg(test)]
mod tests;
pub mod words;

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::Thread;

use containers::images::parts::Parts;
use containers::{Cancel, Session};
use net::peers::secure::Secure;
use net::peers::{Key, local};

use crate::error::{Error, Result};
use fetch::{Fetch, Upstream};
use serve::Server;
use shelf::Shelf;
use words::{Order, Said};

/// What a process of [`serve`] is to do.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// This host has the image of this name, or gets it from its registry; the others get it from
    /// here.
    pub source: Option<String>,
    /// Unpack the layers when all is there.
    pub unpack: bool,
    /// The address at which other hosts reach this one; all if it is not known.
    pub address: Option<Ipv4Addr>,
}

/// Gets an image, or has it, and passes it on until standard input ends.
///
/// # Errors
/// If the image, or the driver, is lost.
pub fn serve(session: &Session, options: &Options) -> Result<()> {
    let lost = |error: std::io::Error| Error::new(format!("no port to listen at: {error}"));
    let key = Key::generate().map_err(lost)?;
    let secure = Arc::new(Secure::new(&key).map_err(lost)?);
    let (listener, port) = listen(options.address).map_err(lost)?;
    let mut addresses = local::own();
    addresses.retain(|address| Some(*address) != options.address);
    addresses.splice(0..0, options.address);
    say(&Said::At { key: key.public(), port, addresses })?;
    let store = session.store()?.clone();
    // From the first blob to the name nothing may be removed.
    let _lease = store.lease().map_err(containers::Error::from)?;
    let shelf = Arc::new(Shelf::new(store));
    let server = Arc::new(Server::new(Arc::clone(&secure), Arc::clone(&shelf)));
    Arc::clone(&server).listen(listener);
    if let Some(name) = &options.source {
        let stored = Parts::stored(session, name)?;
        let is_stored = stored.is_some();
        let (parts, origin) = match stored {
            Some(parts) => (parts, None),
            None => Parts::resolved(session, name).map(|(parts, origin)| (parts, Some(origin)))?,
        };
        say(&Said::Image(Box::new(parts.clone())))?;
        shelf.expect(parts.blobs());
        let fetch = |from| Fetch::new(&shelf, &secure, from, session.cancel()).all();
        std::thread::scope(|scope| {
            // Others are answered meanwhile.
            let main = std::thread::current();
            let heard = scope.spawn(|| {
                let order = Order::read(&mut std::io::stdin().lock())?;
                server.let_in(order.guests);
                leave_with_driver(session.cancel().clone(), main);
                Ok(())
            });
            let fetched = match origin {
                Some(origin) => fetch(Upstream::Registry(origin)),
                None => shelf.all_are_there(),
            };
            // Without the driver's word nobody needs this process.
            if fetched.is_err() { fetched } else { heard.join().unwrap_or_else(|_| Err(gone())) }
        })?;
        say(&Said::Whole)?;
        let id = if is_stored {
            parts.manifest.config.digest.clone()
        } else {
            parts.keep(session, options.unpack)?
        };
        say(&Said::Done(id))?;
    } else {
        let order = Order::read(&mut std::io::stdin().lock())?;
        let parts = order.image.ok_or_else(gone)?;
        shelf.expect(parts.blobs());
        server.let_in(order.guests);
        leave_with_driver(session.cancel().clone(), std::thread::current());
        let from = Upstream::Hosts(order.hosts);
        let fetch = Fetch::new(&shelf, &secure, from, session.cancel());
        if let Err(why) = fetch.is_reached() {
            return say(&Said::Alone(why));
        }
        shelf.check_room(&parts.reference.familiar())?;
        fetch.all()?;
        say(&Said::Whole)?;
        say(&Said::Done(parts.keep(session, options.unpack)?))?;
    }
    // Others may still read; the driver says when all have everything.
    while !session.cancel().is_cancelled() {
        std::thread::park();
    }
    Ok(())
}

/// Ends the work of the main thread when the driver closes standard input, or is lost. What was
/// received stays.
fn leave_with_driver(cancel: Cancel, main: Thread) {
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        cancel.cancel();
        main.unpark();
    });
}

fn gone() -> Error {
    Error::new("the driver is gone")
}

/// An address that is not this host's own is one that leads to it from outside.
fn listen(address: Option<Ipv4Addr>) -> std::io::Result<(TcpListener, u16)> {
    let listener = match address.map(|address| TcpListener::bind((address, 0))) {
        Some(Ok(listener)) => listener,
        _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?,
    };
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

fn say(said: &Said) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{said}").and_then(|()| out.flush()).map_err(|_| gone())
}
