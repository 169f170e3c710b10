//! The client: from a reference to manifests, configurations and blobs.
//!
//! | module | what |
//! |---|---|
//! | [`session`] | one request to one registry: scheme, authorization, redirects, repetition |
//! | [`authorize`], [`challenge`] | from a 401 to a header |
//! | [`pull`] | resolve, manifest, configuration |
//! | [`blob`] | the reader that resumes |
//! | [`lists`] | tags, catalog, search, login |
//!
//! A reference may be found in several places (mirrors, then the registry itself). They are asked
//! in order; a mirror that fails in any way is passed over, and one that cannot be reached is not
//! asked again by this client. What the last place says is the error.

mod authorize;
mod blob;
mod challenge;
mod lists;
mod pull;
mod session;
pub(crate) mod text;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use oci::{Descriptor, Digest, Document, Index, Manifest, Reference};

use crate::hosts::{HUB, Hosts};
use crate::http::Http;
use crate::registries_conf::{Place, place};
use crate::url::Url;
use crate::{Error, Secret, Settings};

pub use blob::BlobReader;

/// Talks to registries. Clones share connections, tokens and resolved names.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    hosts: Arc<Hosts>,
    http: Http,
    headers: authorize::Headers,
    /// Mirrors that could not be reached.
    dead: Mutex<BTreeSet<String>>,
}

/// A document as a registry has it.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Manifest or index, with its bytes.
    pub document: Document,
    /// Media type, digest and size of those bytes.
    pub descriptor: Descriptor,
    /// The host that answered (a mirror, perhaps).
    pub source: String,
}

/// One image, chosen for a platform.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// What was asked for.
    pub reference: Reference,
    /// The image's manifest, with its bytes.
    pub manifest: Manifest,
    /// The manifest's descriptor.
    pub descriptor: Descriptor,
    /// The index that the manifest was chosen from; its digest is what the tag points to.
    pub index: Option<Index>,
    /// Media type, digest and size of what the tag points to: the index, else the manifest.
    pub top: Descriptor,
    /// The host that answered (a mirror, perhaps).
    pub source: String,
}

impl Resolved {
    /// The digest that `pull` prints and that `name@sha256:...` uses.
    pub fn top_digest(&self) -> &Digest {
        &self.top.digest
    }
}

/// One line of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchResult {
    /// The repository, as `pull` takes it.
    pub name: String,
    /// What its owner says about it.
    pub description: String,
    /// How many people like it.
    pub stars: u64,
    /// Whether Docker vouches for it.
    pub official: bool,
    /// Whether it is built automatically.
    pub automated: bool,
}

/// How a login went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Whether the registry asked for credentials at all.
    pub required: bool,
    /// A token to store in the password's place, where the registry gave one.
    pub identity_token: Option<Secret>,
}

/// Where a request goes.
#[derive(Debug, Clone)]
struct Endpoint {
    /// The registry as references and credentials name it (`docker.io`).
    registry: String,
    /// `host[:port]` to speak to (`registry-1.docker.io`).
    authority: String,
    /// The repository there; empty for the registry itself.
    repository: String,
    mirror: bool,
}

impl Endpoint {
    fn new(place: Place) -> Self {
        let authority =
            if place.registry == HUB.0 { HUB.1.to_owned() } else { place.registry.clone() };
        Endpoint {
            registry: place.registry,
            authority,
            repository: place.repository,
            mirror: place.mirror,
        }
    }

    /// What a refusal is about.
    fn described(&self) -> String {
        if self.repository.is_empty() { "the registry".to_owned() } else { self.repository.clone() }
    }

    /// The scope of a token to read the repository.
    fn pull_scope(&self) -> String {
        format!("repository:{}:pull", self.repository)
    }
}

impl Client {
    /// A client. Files that the settings name are read when first needed.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let hosts = Arc::new(Hosts::new(&settings));
        let http = Http::new(&settings, hosts.clone())?;
        let inner = Inner {
            settings,
            hosts,
            http,
            headers: authorize::Headers::default(),
            dead: Mutex::default(),
        };
        Ok(Client { inner: Arc::new(inner) })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }
}

impl Inner {
    /// Where to look for a reference, in order.
    fn endpoints(&self, reference: &Reference) -> Result<Vec<Endpoint>, Error> {
        let mut places = Vec::new();
        for mirror in self.settings.mirrors.get(reference.registry()).into_iter().flatten() {
            places.push(Self::mirror(mirror, reference)?);
        }
        places.extend(self.settings.registries.places(reference)?);
        let dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        let mut endpoints = Vec::new();
        for place in places {
            if place.mirror && dead.contains(&place.registry) {
                continue;
            }
            if place.insecure {
                self.hosts.set_insecure(&place.registry);
            }
            endpoints.push(Endpoint::new(place));
        }
        Ok(endpoints)
    }

    fn mirror(text: &str, reference: &Reference) -> Result<Place, Error> {
        let refuse = || Error::Setting {
            name: format!("mirror of {}", reference.registry()),
            reason: format!("{text} is not [http[s]://]host[:port][/path]"),
        };
        let insecure = text.starts_with("http://");
        let url = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
        let url = Url::parse(&url).ok_or_else(refuse)?;
        let path = url.path.trim_matches('/');
        let path = if path.is_empty() { String::new() } else { format!("{path}/") };
        let name = format!("{}/{path}{}", url.authority(), reference.repository());
        place(&name, insecure, true).ok_or_else(refuse)
    }

    /// The registry itself, without a repository.
    fn registry(&self, registry: &str) -> Endpoint {
        if self.settings.registries.is_insecure(registry) {
            self.hosts.set_insecure(registry);
        }
        Endpoint::new(Place {
            registry: registry.to_owned(),
            repository: String::new(),
            insecure: false,
            mirror: false,
        })
    }

    /// Tries `ask` at each place until one succeeds.
    fn first<T>(
        &self,
        reference: &Reference,
        ask: impl Fn(&Endpoint) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let endpoints = self.endpoints(reference)?;
        let mut last = None;
        for endpoint in &endpoints {
            match ask(endpoint) {
                Ok(found) => return Ok(found),
                Err(error) => {
                    tracing::debug!(registry = endpoint.registry, %error, "not from here");
                    self.note_failure(endpoint, &error);
                    last = Some(error);
                }
            }
        }
        // There is always the registry itself.
        Err(last.unwrap_or_else(|| Error::Setting {
            name: "mirrors".to_owned(),
            reason: format!("nowhere to look for {reference}"),
        }))
    }

    fn note_failure(&self, endpoint: &Endpoint, error: &Error) {
        let unreachable = matches!(
            error,
            Error::Resolve { .. }
                | Error::Connect { .. }
                | Error::Tls { .. }
                | Error::PlainHttp { .. }
                | Error::Timeout { .. }
                | Error::Proxy { .. }
        );
        if endpoint.mirror && unreachable {
            tracing::warn!(mirror = endpoint.registry, %error, "mirror passed over");
            let mut dead = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
            dead.insert(endpoint.registry.clone());
        }
    }
}
