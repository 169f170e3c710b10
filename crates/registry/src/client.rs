//! The client.

use std::io::{self, Read};

use oci::{Descriptor, Digest, Document, ImageConfig, Index, Manifest, Platform, Reference};

use crate::auth::Credential;
use crate::{Error, Settings};

/// Talks to registries. Clones share connections, tokens and resolved names.
#[derive(Debug, Clone)]
pub struct Client {
    settings: Settings,
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
    /// The index that the manifest was chosen from; its descriptor is what the tag points to.
    pub index: Option<Index>,
    /// The host that answered (a mirror, perhaps).
    pub source: String,
}

impl Resolved {
    /// What the tag points to: the index where there is one, else the manifest. Its digest is the
    /// one that `pull` prints and that `name@sha256:...` uses.
    pub fn top_digest(&self) -> Digest {
        match &self.index {
            Some(index) => index.descriptor().digest,
            None => self.descriptor.digest.clone(),
        }
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
    pub identity_token: Option<crate::Secret>,
}

/// A blob's bytes from the registry. Broken connections are taken up again where they ended;
/// the end comes exactly at the descriptor's size, else an error. The digest is the caller's to check.
#[derive(Debug)]
pub struct BlobReader {}

impl Read for BlobReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(missing().into_io())
    }
}

fn missing() -> Error {
    Error::Setting { name: "registry".into(), reason: "the protocol is not built in yet".into() }
}

impl Client {
    /// A client. Files that the settings name are read when first needed.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        Ok(Client { settings })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Finds the image for a platform (the host's where `None`).
    pub fn resolve(&self, _: &Reference, _: Option<&Platform>) -> Result<Resolved, Error> {
        Err(missing())
    }

    /// The manifest or index that a reference points to, checked against its digest.
    pub fn manifest(&self, _: &Reference) -> Result<Fetched, Error> {
        Err(missing())
    }

    /// The descriptor that a reference points to, without fetching the document (`HEAD`).
    pub fn head(&self, _: &Reference) -> Result<Descriptor, Error> {
        Err(missing())
    }

    /// The image's configuration, checked against its digest.
    pub fn config(&self, _: &Reference, _: &Manifest) -> Result<ImageConfig, Error> {
        Err(missing())
    }

    /// A blob's bytes from `offset` on.
    pub fn blob(&self, _: &Reference, _: &Descriptor, _: u64) -> Result<BlobReader, Error> {
        Err(missing())
    }

    /// The repository's tags, at most `limit` (0: all).
    pub fn tags(&self, _: &Reference, _: usize) -> Result<Vec<String>, Error> {
        Err(missing())
    }

    /// Searches a registry (`docker.io` for Docker Hub), at most `limit` results.
    pub fn search(&self, _: &str, _: &str, _: usize) -> Result<Vec<SearchResult>, Error> {
        Err(missing())
    }

    /// Whether a registry takes these credentials (`None`: whether it wants any).
    pub fn login(&self, _: &str, _: Option<&Credential>) -> Result<Login, Error> {
        Err(missing())
    }
}
