//! The client: fetches manifests, configurations and blobs of a reference.
//!
//! | module | what |
//! |---|---|
//! | [`session`] | one request to one registry: scheme, authorization, redirects, retries |
//! | [`authorize`], [`challenge`] | from a 401 to a header |
//! | [`pull`] | resolve, manifest, configuration |
//! | [`blob`] | the reader that resumes |
//! | [`lists`] | tags, catalog, search, login |
//!
//! A reference may be on several hosts (mirrors, then the registry itself). They are tried in
//! order; a mirror that fails in any way is skipped, and one that cannot be reached is not tried
//! again by this client. The last host's error is returned.

mod authorize;
mod blob;
mod challenge;
mod lists;
mod pull;
pub(crate) mod response_text;
mod session;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use oci::{Descriptor, Digest, Document, Index, Manifest, Reference};

use crate::host_state::{HUB, Hosts};
use crate::http::Http;
use crate::registries_conf::{Place, place};
use crate::url::Url;
use crate::{Error, Secret, Settings};

pub use blob::BlobReader;

/// A client of registries. Clones share connections, tokens and resolved names.
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
    unreachable: Mutex<BTreeSet<String>>,
}

/// A document as a registry serves it.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Manifest or index, with its bytes.
    pub document: Document,
    /// Media type, digest and size of those bytes.
    pub descriptor: Descriptor,
    /// The host that answered (possibly a mirror).
    pub source: String,
}

/// One image, chosen for a platform.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The reference as given.
    pub reference: Reference,
    /// The image's manifest, with its bytes.
    pub manifest: Manifest,
    /// The manifest's descriptor.
    pub descriptor: Descriptor,
    /// The index from which the manifest was chosen; the tag points to its digest.
    pub index: Option<Index>,
    /// Media type, digest and size of the tag's target: the index, else the manifest.
    pub top: Descriptor,
    /// The host that answered (possibly a mirror).
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
    /// The repository name, in the form that `pull` takes.
    pub name: String,
    /// The owner's description.
    pub description: String,
    /// Number of stars.
    pub stars: u64,
    /// True for an official image of Docker.
    pub official: bool,
    /// True if it is built automatically.
    pub automated: bool,
}

/// Result of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// True if the registry asked for credentials at all.
    pub required: bool,
    /// A token to store instead of the password, if the registry gave one.
    pub identity_token: Option<Secret>,
}

/// Target of a request.
#[derive(Debug, Clone)]
struct Endpoint {
    /// The registry's name in references and credentials (`docker.io`).
    registry: String,
    /// `host[:port]` to connect to (`registry-1.docker.io`).
    authority: String,
    /// The repository's name there; empty for the registry itself.
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

    /// The subject of an error message.
    fn described(&self) -> String {
        if self.repository.is_empty() { "the registry".to_owned() } else { self.repository.clone() }
    }

    /// The scope of a token that allows reading the repository.
    fn pull_scope(&self) -> String {
        format!("repository:{}:pull", self.repository)
    }
}

impl Client {
    /// Makes a client. Files that the settings name are read when first needed.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let hosts = Arc::new(Hosts::new(&settings));
        let http = Http::new(&settings, hosts.clone())?;
        let inner = Inner {
            settings,
            hosts,
            http,
            headers: authorize::Headers::default(),
            unreachable: Mutex::default(),
        };
        Ok(Client { inner: Arc::new(inner) })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }
}

impl Inner {
    /// The endpoints to try for a reference, in order.
    fn endpoints(&self, reference: &Reference) -> Result<Vec<Endpoint>, Error> {
        let mut places = Vec::new();
        for mirror in self.settings.mirrors.get(reference.registry()).into_iter().flatten() {
            places.push(Self::mirror(mirror, reference)?);
        }
        places.extend(self.settings.registries.places(reference)?);
        let unreachable = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner);
        let mut endpoints = Vec::new();
        for place in places {
            if place.mirror && unreachable.contains(&place.registry) {
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

    /// The endpoint of the registry itself, without a repository.
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

    /// Calls `ask` with each endpoint until one succeeds.
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
                    tracing::debug!(registry = endpoint.registry, %error, "this endpoint failed");
                    self.note_failure(endpoint, &error);
                    last = Some(error);
                }
            }
        }
        // The list always has the registry itself.
        Err(last.unwrap_or_else(|| Error::Setting {
            name: "mirrors".to_owned(),
            reason: format!("no endpoint for {reference}"),
        }))
    }

    fn note_failure(&self, endpoint: &Endpoint, error: &Error) {
        let is_unreachable = matches!(
            error,
            Error::Resolve { .. }
                | Error::Connect { .. }
                | Error::Tls { .. }
                | Error::PlainHttp { .. }
                | Error::Timeout { .. }
                | Error::Proxy { .. }
        );
        if endpoint.mirror && is_unreachable {
            tracing::warn!(mirror = endpoint.registry, %error, "mirror skipped");
            let mut unreachable = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner);
            unreachable.insert(endpoint.registry.clone());
        }
    }
}
