//! Finds the manifest or index that a name means.

use oci::{Descriptor, Document, Platform, Reference};

use super::{find, remote};
use crate::error::{Error, Result};
use crate::request::RegistryRequest;
use crate::session::Session;

/// A manifest that is wanted.
#[derive(Debug, Clone, Default)]
pub struct ManifestRequest {
    /// The image's name.
    pub name: String,
    /// The manifest for this platform; `None` for what the name means itself, which may be an
    /// index.
    pub platform: Option<Platform>,
    /// How the registry is reached.
    pub registry: RegistryRequest,
}

/// A manifest or an index.
#[derive(Debug)]
pub struct Found {
    /// The name in canonical form.
    pub reference: Reference,
    /// The document.
    pub document: Document,
    /// Its descriptor.
    pub descriptor: Descriptor,
}

/// Asks the registry, and if it does not answer, looks into the store.
pub fn find(session: &Session, request: &ManifestRequest) -> Result<Found> {
    let ManifestRequest { name, platform, registry } = request;
    let reference = remote::reference(session, &remote::named(registry, name))?;
    let client = remote::client(session, registry, reference.registry())?;
    let fetched = match platform {
        Some(platform) => client
            .resolve(&reference, Some(platform))
            .map(|resolved| (Document::Manifest(resolved.manifest), resolved.descriptor)),
        None => client.manifest(&reference).map(|fetched| (fetched.document, fetched.descriptor)),
    };
    let (document, descriptor) = match fetched {
        Ok(found) => found,
        Err(error) => {
            let Some(image) = find::local(session, name)? else {
                let step = format!("cannot find the manifest of {}", reference.familiar());
                return Err(Error::from(error).within(step));
            };
            tracing::info!("the registry does not answer, the store does: {error}");
            (Document::Manifest(image.manifest()?.clone()), image.descriptor().clone())
        }
    };
    Ok(Found { reference, document, descriptor })
}
