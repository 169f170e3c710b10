//! An image as blobs that the caller brings from anywhere: which they are, and the image's name
//! once they are in the store.

use std::io::Read;

use oci::{Descriptor, Digest, ImageConfig, Manifest, Reference, media};
use registry::Client;

use super::pull::{self, Road};
use super::{find, remote};
use crate::error::{Error, Result};
use crate::journal;
use crate::request::RegistryRequest;
use crate::session::Session;

/// An image and its name.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The name that it gets.
    pub reference: Reference,
    /// What belongs to it, in OCI's form.
    pub manifest: Manifest,
    /// The digest that the name leads to in the registry.
    pub known_as: Digest,
}

/// Where a registry has the blobs of an image.
pub struct Origin {
    client: Client,
    reference: Reference,
}

impl Origin {
    /// Opens a blob at an offset. Broken connections are resumed.
    ///
    /// # Errors
    /// If the registry does not have it, or is not reached.
    pub fn open(&self, blob: &Descriptor, offset: u64) -> Result<Box<dyn Read + Send>> {
        Ok(Box::new(self.client.blob(&self.reference, blob, offset)?))
    }
}

impl Parts {
    /// Those of an image in the store; `None` if it is not there.
    ///
    /// # Errors
    /// If the store cannot be read, or the name is not one.
    pub fn stored(session: &Session, name: &str) -> Result<Option<Self>> {
        let Some(image) = find::local(session, name)? else { return Ok(None) };
        let manifest = image.manifest()?.clone();
        // One without a name is meant by its id.
        let reference = if let Some(reference) = image.reference() {
            reference
        } else {
            let short = find::short(&manifest.config.digest);
            Reference::parse(&format!("imported/{short}:latest"))?
        };
        let known_as = image.descriptor().annotations.get(store::ANNOTATION_KNOWN_AS);
        let known_as = known_as.and_then(|text| text.parse().ok());
        let known_as = known_as.unwrap_or_else(|| manifest.descriptor().digest);
        Ok(Some(Self { reference, manifest, known_as }))
    }

    /// Asks the registry which image a name means now, for this machine's platform.
    ///
    /// # Errors
    /// If there is none, or the registry is not reached.
    pub fn resolved(session: &Session, name: &str) -> Result<(Self, Origin)> {
        let reference = remote::reference(session, name)?;
        let client = remote::client(session, &RegistryRequest::default(), reference.registry())?;
        let resolved = client.resolve(&reference, None)?;
        let known_as = resolved.top_digest().clone();
        let manifest = resolved.manifest.to_oci();
        let parts = Self { reference: reference.clone(), manifest, known_as };
        Ok((parts, Origin { client, reference }))
    }

    /// Those that another machine has told of.
    ///
    /// # Errors
    /// If the manifest is not the one of this digest.
    pub fn told(name: &str, known_as: &str, digest: &str, manifest: Vec<u8>) -> Result<Self> {
        let digest: Digest = digest.parse()?;
        if !digest.matches(&manifest) {
            return Err(Error::failed(format!("the manifest that was told is not {digest}")));
        }
        let manifest = Manifest::parse(manifest, media::OCI_MANIFEST)?;
        Ok(Self { reference: Reference::parse(name)?, manifest, known_as: known_as.parse()? })
    }

    /// The blobs besides the manifest, each once, the largest first. Everybody with the same
    /// manifest gets the same list.
    pub fn blobs(&self) -> Vec<Descriptor> {
        let mut blobs: Vec<Descriptor> = Vec::new();
        for blob in self.manifest.layers.iter().chain([&self.manifest.config]) {
            if blobs.iter().all(|known| known.digest != blob.digest) {
                blobs.push(blob.clone());
            }
        }
        blobs.sort_by_key(|blob| std::cmp::Reverse(blob.size));
        blobs
    }

    /// Gives the image its name, when all blobs are in the store. With `unpack` its layers are
    /// unpacked before; if not, the first run does that. Returns its id.
    ///
    /// # Errors
    /// If a blob is missing, or a layer cannot be unpacked.
    pub fn keep(&self, session: &Session, unpack: bool) -> Result<Digest> {
        let store = session.store()?;
        let _lease = store.lease()?;
        let id = &self.manifest.config.digest;
        let config = ImageConfig::parse(store.blobs().read(id)?)?;
        pull::pairs(&self.manifest, &config)?;
        let mut descriptor = pull::keep(store, &self.manifest, &config, &self.known_as)?;
        if unpack {
            let progress = session.progress();
            pull::unpack_all(&Road::new(session, &progress)?, &self.manifest, &config)?;
        }
        pull::protect_as(store, &self.reference, &mut descriptor)?;
        store.images().tag(&self.reference, &descriptor)?;
        journal::tell_image(session, "pull", &self.reference);
        Ok(id.clone())
    }
}
