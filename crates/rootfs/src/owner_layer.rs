//! An extra top layer in which everything that has another owner than root really belongs to it.
use crate::error::Error;
use crate::layer::Layer;
use rustix::fd::AsFd;

/// Builds the layer in `staging/tree` for an image's layers (topmost first). Must run inside the user namespace in which
/// the containers will run (its id 0 is the caller), single-threaded or not. Returns how many entries it has.
pub fn build(layers: &[Layer], staging: impl AsFd) -> Result<u64, Error> {
    let _ = (layers, staging.as_fd());
    Err(Error::Driver { driver: "owner layer", why: "under construction".into() })
}

/// Whether an image needs such a layer: some layer's table has a record.
#[must_use]
pub fn is_needed(layers: &[Layer]) -> bool {
    layers.iter().any(|layer| layer.meta.records > 0)
}
