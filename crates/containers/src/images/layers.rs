//! Describes layers whose blobs are in the store: their descriptor and their diff ID.

use std::io::{self, Read};
use std::path::Path;

use oci::{Compression, Descriptor, Digest, Digester};

use super::pull::Road;
use crate::error::{Error, Result};

/// The descriptor of a stored layer, and the digest of its uncompressed content (its diff ID).
/// `source` is the layer's origin, for errors.
pub fn described(
    road: &Road<'_>,
    blob: &Digest,
    size: u64,
    source: &Path,
) -> Result<(Descriptor, Digest)> {
    let store = road.store;
    let mut head = [0; Compression::MAGIC_LEN];
    let length = store.blobs().open_digest(blob)?.read(&mut head).unwrap_or(0);
    let compression = Compression::from_magic(&head[..length]);
    let media_type = compression.oci_layer_type().ok_or_else(|| {
        Error::invalid(format!(
            "{} is compressed by a method that no layer may have",
            source.display()
        ))
        .with_hint("decompress it first: xz -dc root.tar.xz | coracle import - NAME")
    })?;
    let diff_id = diff_id(road, blob)?;
    Ok((Descriptor::new(media_type, blob.clone(), size), diff_id))
}

/// The digest of a stored layer's uncompressed content.
fn diff_id(road: &Road<'_>, digest: &Digest) -> Result<Digest> {
    let blob = road.store.blobs().open_digest(digest)?;
    let mut plain = rootfs::decode::open(blob.file, &road.limits)?;
    let mut digester = Digester::sha256();
    let mut buffer = vec![0; 1 << 18];
    loop {
        road.cancel.check()?;
        match plain.read(&mut buffer) {
            Ok(0) => return Ok(digester.finish()),
            Ok(count) => digester.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::failed("the archive is damaged").cause(error)),
        }
    }
}
