//! Finds images: in the store, in the program itself, in udocker's directory, or by pulling them.

use oci::{Platform, Reference};
use store::Image;

use super::pull::{self, Road};
use super::{hello, remote};
use crate::config::PullPolicy;
use crate::error::{Error, Result};
use crate::request::RegistryRequest;
use crate::session::Session;

/// Which image is wanted, and how it may be obtained.
pub struct ImageQuery<'a> {
    /// Name or id.
    pub name: &'a str,
    /// When to pull.
    pub policy: PullPolicy,
    /// For which platform; `None` for the host's.
    pub platform: Option<Platform>,
    /// How the registry is reached.
    pub registry: &'a RegistryRequest,
}

/// The image that a name or id means, if it is in the store or in udocker's directory.
pub fn local(session: &Session, name: &str) -> Result<Option<Image>> {
    if let Some(found) = by_reference(session, name)? {
        return Ok(Some(found));
    }
    match absent(session.store()?.images().find(name))? {
        Some(image) => Ok(Some(image)),
        None => (session.foreign().image)(session, name),
    }
}

/// The image that has this name; the beginning of an id is none.
pub fn named(session: &Session, name: &str) -> Result<Option<Image>> {
    match by_reference(session, name)? {
        Some(image) => Ok(Some(image)),
        None => (session.foreign().image)(session, name),
    }
}

/// The image of this name in the store; a reference may lack the configured registry.
fn by_reference(session: &Session, name: &str) -> Result<Option<Image>> {
    let images = session.store()?.images();
    for reference in [remote::reference(session, name).ok(), Reference::parse(name).ok()] {
        if let Some(reference) = reference
            && let Some(image) = images.get(&reference)?
        {
            return Ok(Some(image));
        }
    }
    Ok(None)
}

fn absent(found: store::Result<Image>) -> Result<Option<Image>> {
    match found {
        Ok(image) => Ok(Some(image)),
        Err(store::Error::NoImage { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The same; an error if there is none.
pub fn stored(session: &Session, name: &str) -> Result<Image> {
    local(session, name)?.ok_or_else(|| {
        Error::not_found(format!("there is no image '{name}'"))
            .with_hint("'coracle images' lists what is there, 'coracle pull' fetches")
    })
}

/// Finds the image, or pulls it.
pub fn get(session: &Session, query: &ImageQuery<'_>) -> Result<Image> {
    let found = local(session, query.name)?;
    let fits = |image: &Image| -> Result<bool> {
        match &query.platform {
            None => Ok(true),
            Some(platform) => Ok(platform.accepts(&image.config()?.platform())),
        }
    };
    match (query.policy, found) {
        (PullPolicy::Missing | PullPolicy::Never, Some(image)) if fits(&image)? => Ok(image),
        (PullPolicy::Never, found) => {
            let report = Error::not_found(format!("there is no image '{}'", query.name));
            Err(match found {
                Some(image) => report
                    .because(format!("the one in the store is for {}", image.config()?.platform())),
                None => report,
            }
            .with_hint("--pull never keeps it from being pulled"))
        }
        (PullPolicy::Missing, None) if hello::is_name(query.name) => hello::image(session),
        (PullPolicy::Newer, Some(image)) if fits(&image)? && !is_newer(session, query, &image) => {
            Ok(image)
        }
        _ => fetch(session, query),
    }
}

/// Whether the registry has another image by this name. If it cannot be reached, it has none.
fn is_newer(session: &Session, query: &ImageQuery<'_>, image: &Image) -> bool {
    let head = || -> Result<oci::Descriptor> {
        let reference = remote::reference(session, query.name)?;
        Ok(remote::client(session, query.registry, reference.registry())?.head(&reference)?)
    };
    match head() {
        Ok(descriptor) => {
            let index = image.descriptor().annotations.get(store::ANNOTATION_KNOWN_AS);
            descriptor.digest != *image.digest() && index != Some(&descriptor.digest.to_string())
        }
        Err(report) => {
            tracing::warn!("cannot ask for a newer {}: {report}", query.name);
            false
        }
    }
}

fn fetch(session: &Session, query: &ImageQuery<'_>) -> Result<Image> {
    let reference = remote::reference(session, query.name)?;
    let client = remote::client(session, query.registry, reference.registry())?;
    let progress = session.progress();
    let road = Road::new(session, &progress)?;
    pull::pull(&road, &client, &reference, query.platform.as_ref(), true)?;
    session.store()?.images().get(&reference)?.ok_or_else(|| {
        Error::conflict(format!(
            "the image {} was removed while it was being pulled",
            reference.familiar()
        ))
    })
}

/// The short form of an id: its first twelve digits.
pub fn short(digest: &oci::Digest) -> String {
    digest.hex().chars().take(12).collect()
}
