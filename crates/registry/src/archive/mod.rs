//! Archives of images: reads docker-archive and oci-archive in one pass, and writes them in one.
//!
//! [`read`] takes any stream (a pipe too), decompresses gzip or zstd, and passes every blob to a
//! [`BlobSink`] as it arrives, because the archives that tools write have the list of images at the
//! end. Small JSON documents are kept in memory; at the end they show which images there are:
//!
//! - `index.json`: an OCI layout. Docker from version 25 on writes one, with a `manifest.json`
//!   beside it whose layers repeat the layout's blobs; only its tags are used.
//! - `manifest.json` alone: Docker's older format. It has no manifests as registries have them, so
//!   one is made, with the layers as they are in the archive.
//!
//! No path from the archive is created on disk; the names are only compared. Blobs that no image
//! uses end up in the sink and are garbage there.

mod contents;
mod docker;
mod framing;
mod oci_layout;
mod write;

use std::io::Read;

use oci::{Descriptor, ImageConfig, Index, Manifest, Platform, Reference};

pub(crate) use oci_layout::{Documents, images};
pub use write::{Export, write_docker, write_oci};
pub(crate) use write::{LAYOUT_VERSION, layout_index};

use crate::{BlobSink, Error};

/// An image from an archive or a layout. Its blobs are in the sink.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its names as they are written: whole references, or bare tags.
    pub names: Vec<String>,
    /// Those of the names that have a repository, normalised.
    pub references: Vec<Reference>,
    /// Its manifest; made by this module if the archive has none.
    pub manifest: Manifest,
    /// The manifest's descriptor.
    pub descriptor: Descriptor,
    /// The index from which it was chosen, if the name covers several platforms.
    pub index: Option<Index>,
    /// Its configuration.
    pub config: ImageConfig,
}

/// Reads an archive of any kind. If a name covers several platforms, the image for `platform`
/// (`None`: the host's) is taken, among those that the archive contains.
pub fn read(
    reader: &mut dyn Read,
    sink: &mut dyn BlobSink,
    platform: Option<&Platform>,
) -> Result<Vec<Image>, Error> {
    let mut contents = contents::Contents::read(reader, sink)?;
    if contents.is_layout() {
        let wanted = platform.map_or_else(Platform::host, Platform::normalised);
        let index = contents.take_index()?;
        let mut found = images(&index, &mut contents, &wanted)?;
        contents.add_docker_tags(&mut found);
        return Ok(found);
    }
    docker::images(&contents, sink)
}

/// The names that have a repository; a bare tag (`latest`, as skopeo writes) does not.
pub(crate) fn references(names: &[String]) -> Vec<Reference> {
    let mut found: Vec<Reference> = Vec::new();
    for name in names.iter().filter(|name| name.contains(['/', ':'])) {
        if let Ok(reference) = Reference::parse(name)
            && !found.contains(&reference)
        {
            found.push(reference);
        }
    }
    found
}

pub(crate) fn invalid(reason: impl Into<String>) -> Error {
    Error::Archive { reason: reason.into() }
}
