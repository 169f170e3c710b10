//! Tells the steps in which an image was made.

use oci::Digest;

use super::find;
use crate::error::Result;
use crate::session::Session;

/// The history of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The image's id.
    pub id: Digest,
    /// The steps, the last one first.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// When it was done (RFC 3339), if the image says so.
    pub created: Option<String>,
    /// The command or instruction.
    pub created_by: String,
    /// Size of the layer that it made, compressed; 0 if it made none.
    pub size: u64,
    /// What its author noted.
    pub comment: String,
}

/// The history of the image that a name or id means. Layers that no step mentions come as steps
/// that have a size only.
pub fn history(session: &Session, name: &str) -> Result<History> {
    let image = find::stored(session, name)?;
    let config = image.config()?;
    let id = image.id()?;
    let mut layers = image.manifest()?.layers.iter();
    let mut steps = Vec::new();
    for step in config.history() {
        let empty = step.empty_layer().unwrap_or(false);
        steps.push(Step {
            created: step.created().clone().filter(|time| !time.is_empty()),
            created_by: step.created_by().clone().unwrap_or_default(),
            size: if empty { 0 } else { layers.next().map_or(0, |layer| layer.size) },
            comment: step.comment().clone().unwrap_or_default(),
        });
    }
    steps.extend(layers.map(|layer| Step { size: layer.size, ..Step::default() }));
    steps.reverse();
    Ok(History { id, steps })
}
