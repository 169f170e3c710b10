//! Protects containers and images from removal.
//!
//! What is protected is not removed by `rm`, `rmi`, `run --rm`, `create --force` or `prune`, with
//! or without force. The marks are in [`crate::protection`].

use crate::container::record;
use crate::error::{Error, Result};
use crate::images::find;
use crate::protection;
use crate::session::Session;

/// Protects the container or image of this name, or with `on` false ends its protection. A name
/// that both have means the container.
pub fn mark(session: &Session, name: &str, on: bool) -> Result<()> {
    let yes = "true".to_owned();
    if let Some(container) = record::find_some(session, name)? {
        let _lock = container.lock_exclusive()?;
        let mut record = record::read(&container)?;
        let labels = &mut record.config.labels;
        if on {
            labels.insert(protection::CONTAINER_LABEL.to_owned(), yes);
        } else {
            labels.remove(protection::CONTAINER_LABEL);
        }
        container.write(&record)?;
        return Ok(());
    }
    let image = find::stored(session, name)?;
    let mut descriptor = image.descriptor().clone();
    if on {
        descriptor.annotations.insert(protection::IMAGE_ANNOTATION.to_owned(), yes);
    } else {
        descriptor.annotations.remove(protection::IMAGE_ANNOTATION);
    }
    let reference = image.reference().ok_or_else(|| {
        Error::invalid(format!("the image {name} has no name"))
            .with_hint("only names are protected; give it one: coracle tag")
    })?;
    session.store()?.images().tag(&reference, &descriptor)?;
    Ok(())
}
