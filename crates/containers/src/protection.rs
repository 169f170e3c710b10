//! Knows which containers and images `protect` keeps from being removed.

use engine::spec::ContainerConfig;
use store::Image;

use crate::error::{Error, Result};

/// The annotation of an image that is protected.
pub const IMAGE_ANNOTATION: &str = "dev.coracle.image.protected";
/// The label of a container that is protected.
pub const CONTAINER_LABEL: &str = "dev.coracle.protected";

/// Whether a container is protected.
pub fn holds(config: &ContainerConfig) -> bool {
    config.labels.contains_key(CONTAINER_LABEL)
}

/// Whether a container is to be removed when its program ends: its record says so, and it is
/// not protected.
pub fn lets_go(config: &ContainerConfig) -> bool {
    config.auto_remove && !holds(config)
}

/// Whether an image is protected.
pub fn holds_image(image: &Image) -> bool {
    image.descriptor().annotations.contains_key(IMAGE_ANNOTATION)
}

/// Refuses to remove an image that is protected.
pub fn check_image(image: &Image, name: &str) -> Result<()> {
    if holds_image(image) {
        return Err(refusal("image", name));
    }
    Ok(())
}

/// The error for a removal of what is protected: `what` is "container" or "image".
pub fn refusal(what: &str, name: &str) -> Error {
    Error::denied(format!("{what} {name} is protected"))
        .with_hint(format!("coracle unprotect {name}"))
}
