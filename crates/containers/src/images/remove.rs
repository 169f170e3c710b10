//! Removes names of images, and images that have no other name.

use oci::Digest;

use super::{find, remote};
use crate::error::Result;
use crate::journal::{self, Actor, Kind};
use crate::protection;
use crate::session::Session;

/// What a removal did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// The names that are gone, in short form.
    pub untagged: Vec<String>,
    /// The image's id, if its last name is gone.
    pub deleted: Option<Digest>,
    /// The content is removed later, because another process is using the store.
    pub deferred: bool,
}

/// Removes the name, or the image of this id. `force`: also an image with several names, or one
/// that containers use.
pub fn remove(session: &Session, name: &str, force: bool) -> Result<Removed> {
    (session.foreign().check_image_removable)(session, name)?;
    let known = find::stored(session, name)?;
    protection::check_image(&known, name)?;
    // The store takes the canonical name, which may have the configured registry; an id stays one.
    let canonical = match (remote::reference(session, name), known.reference()) {
        (Ok(asked), Some(found)) if asked == found => asked.to_string(),
        _ => name.to_owned(),
    };
    // A container's record keeps the layers that it needs.
    let unused = session.dialect().removes_used_images && known.references()?.len() <= 1;
    let force = force || unused;
    let id = known.id()?.to_string();
    let removal = session.store()?.images().remove(&canonical, force)?;
    let familiar = |name: &String| {
        oci::Reference::parse(name).map_or_else(|_| name.clone(), |reference| reference.familiar())
    };
    let untagged: Vec<String> = removal.untagged.iter().map(familiar).collect();
    for name in &untagged {
        journal::tell(session, Kind::Image, "untag", Actor::named(&id, name));
    }
    if removal.deleted.is_some() {
        journal::tell(session, Kind::Image, "delete", Actor::named(&id, &id));
    }
    Ok(Removed { untagged, deleted: removal.deleted, deferred: removal.deferred })
}

/// The names of all images of this store, or the digests of those without a name; images of a
/// read-only store below are not among them.
pub fn every_name(session: &Session) -> Result<Vec<String>> {
    let images = session.store()?.images().list()?;
    let name = |image: &store::Image| match image.reference() {
        Some(reference) => reference.to_string(),
        None => image.digest().to_string(),
    };
    Ok(images.iter().filter(|image| image.is_own()).map(name).collect())
}
