//! A registry in this process that injects faults on request.
//!
//! It serves images from memory over `TcpListener`, one thread per connection, with basic or bearer
//! authentication (its token server is its own `/token`). [`Registry::fault`] sets which requests
//! fail, how, and how often; [`Registry::log`] returns the requests, so that a test can prove a
//! resumption by its `Range` and the absence of a credential by its missing header.
//!
//! Not a full registry: it accepts no pushes and has no TLS (see [`crate::docker_registry`]).

mod fault;
mod request;
mod serve;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use fault::Fault;
pub use request::Asked;

use crate::image::{Blob, Built};

/// Authentication that the registry requires.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// None.
    #[default]
    Open,
    /// This user and password with each request.
    Basic(String, String),
    /// A token, which everybody gets.
    Anonymous,
    /// A token, which only this user and password (or [`REFRESH_TOKEN`]) get.
    Bearer(String, String),
}

/// The identity token that [`Auth::Bearer`] accepts instead of the password.
pub const REFRESH_TOKEN: &str = "refresh-me";

/// A running registry; it stops answering when dropped.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    auth: Auth,
    realm: Mutex<Option<String>>,
    token_seconds: AtomicU64,
    tokens: AtomicU64,
    stopped: AtomicBool,
    content: Mutex<Content>,
    faults: Mutex<Vec<Planned>>,
    log: Mutex<Vec<Asked>>,
}

#[derive(Debug, Default)]
struct Content {
    /// By `repository/tag` and `repository/digest`.
    manifests: BTreeMap<String, Blob>,
    /// By digest, in every repository.
    blobs: BTreeMap<String, Arc<Vec<u8>>>,
    /// Bodies by exact path, for lists and searches.
    pages: BTreeMap<String, Page>,
}

#[derive(Debug, Clone)]
struct Page {
    headers: Vec<(String, String)>,
    body: String,
}

#[derive(Debug)]
struct Planned {
    part: String,
    fault: Fault,
    times: usize,
}

impl Registry {
    /// Starts an open registry.
    pub fn start() -> io::Result<Self> {
        Self::start_with(Auth::Open)
    }

    /// Starts a registry.
    pub fn start_with(auth: Auth) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let state = Arc::new(State { auth, ..State::default() });
        state.token_seconds.store(300, Ordering::Relaxed);
        let serving = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let state = serving.clone();
                std::thread::spawn(move || serve::connection(&state, address, &stream));
            }
        });
        Ok(Self { address, state })
    }

    /// `127.0.0.1:port`, the part before the repository in a reference.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Adds an image under a tag and its digest.
    pub fn image(&self, repository: &str, tag: &str, image: &Built) {
        self.manifest(repository, tag, &image.manifest);
        let mut content = lock(&self.state.content);
        for blob in image.blobs() {
            content.blobs.insert(blob.digest.clone(), Arc::new(blob.bytes.clone()));
        }
    }

    /// Adds a manifest or index under a tag and its digest, whatever its content.
    pub fn manifest(&self, repository: &str, tag: &str, document: &Blob) {
        let mut content = lock(&self.state.content);
        for name in [tag, &document.digest] {
            content.manifests.insert(format!("{repository}/{name}"), document.clone());
        }
    }

    /// Serves a body at an exact path with query, for lists and searches.
    pub fn page(&self, path: &str, headers: &[(&str, &str)], body: &str) {
        let headers =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let page = Page { headers, body: body.to_owned() };
        lock(&self.state.content).pages.insert(path.to_owned(), page);
    }

    /// Injects a fault into the next `times` requests whose path contains `part`.
    pub fn fault(&self, part: &str, fault: Fault, times: usize) {
        lock(&self.state.faults).push(Planned { part: part.to_owned(), fault, times });
    }

    /// Sets another token server in the challenges.
    pub fn realm(&self, url: &str) {
        *lock(&self.state.realm) = Some(url.to_owned());
    }

    /// Sets the stated lifetime of tokens, which in fact never expire.
    pub fn token_lifetime(&self, seconds: u64) {
        self.state.token_seconds.store(seconds, Ordering::Relaxed);
    }

    /// Invalidates every token issued so far.
    pub fn revoke_tokens(&self) {
        self.state.tokens.fetch_add(1, Ordering::Relaxed);
    }

    /// The requests so far, oldest first.
    pub fn log(&self) -> Vec<Asked> {
        lock(&self.state.log).clone()
    }

    /// The requests whose path contains `part`.
    pub fn asked(&self, part: &str) -> Vec<Asked> {
        self.log().into_iter().filter(|asked| asked.path.contains(part)).collect()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
