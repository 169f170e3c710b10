//! Gives images further names.

use super::{find, remote};
use crate::error::{Error, Result};
use crate::journal::{self, Actor, Kind};
use crate::protection;
use crate::session::Session;

/// A name for an image.
#[derive(Debug, Clone, Default)]
pub struct TagRequest {
    /// Name or id of the image.
    pub source: String,
    /// The new name.
    pub target: String,
    /// Refuse if the image is protected, or another image has the name.
    pub keep: bool,
}

/// Gives an image a further name; another image loses it.
pub fn tag(session: &Session, request: &TagRequest) -> Result<()> {
    let TagRequest { source, target, keep } = request;
    let image = find::stored(session, source)?;
    let reference = remote::reference(session, target)?;
    if reference.is_digest() {
        return Err(Error::invalid(format!("'{target}' names a digest, which cannot be chosen"))
            .with_hint("write NAME[:TAG]"));
    }
    let images = session.store()?.images();
    if *keep {
        protection::check_image(&image, source)?;
        if images.get(&reference)?.is_some() {
            let familiar = reference.familiar();
            return Err(Error::conflict(format!("there is an image {familiar} already")));
        }
    }
    images.tag(&reference, image.descriptor())?;
    let actor = Actor::named(image.id()?.to_string(), &reference.familiar());
    journal::tell(session, Kind::Image, "tag", actor);
    Ok(())
}
