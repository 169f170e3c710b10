//! Archives of images: docker-archive and oci-archive, read in one pass and written in one.
//!
//! [`read`] takes any stream (a pipe too), undoes gzip or zstd around it, and hands every blob to a
//! [`BlobSink`] as it comes by, because in the archives that tools write the list of images comes
//! last. Small JSON documents are kept; at the end they say which images there are:
//!
//! - `index.json`: an OCI layout. Docker from version 25 on writes one, with a `manifest.json`
//!   beside it whose layers repeat the layout's blobs; only its tags are taken from there.
//! - `manifest.json` alone: Docker's older form. It has no manifests in the registry's sense, so
//!   one is made, with the layers as they are in the archive.
//!
//! Nothing is unpacked to a path from the archive; its names are only looked up. Blobs that no
//! image uses end up in the sink and are garbage there.

mod contents;
mod docker;
mod framing;
mod oci_form;
mod write;

use std::io::Read;

use oci::{Descriptor, ImageConfig, Index, Manifest, Platform, Reference};

pub(crate) use oci_form::{Documents, images};
pub use write::{Export, write_docker, write_oci};
pub(crate) use write::{LAYOUT_VERSION, layout_index};

use crate::{BlobSink, Error};

/// An image that came out of an archive or a layout. Its blobs are in the sink.
#[derive(Debug, Clone)]
pub struct Image {
    /// The names it has there, as they are written: whole references, or bare tags.
    pub names: Vec<String>,
    /// Those of the names that say a repository, normalised.
    pub references: Vec<Reference>,
    /// Its manifest; made here where the archive has none.
    pub manifest: Manifest,
    /// The manifest's descriptor.
    pub descriptor: Descriptor,
    /// The index it was chosen from, where the name means several platforms.
    pub index: Option<Index>,
    /// Its configuration.
    pub config: ImageConfig,
}

/// Reads an archive of any kind. Where a name means several platforms, the one for `platform` (the
/// host's where `None`) is taken, among those that the archive really holds.
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

/// The names that say a repository; a bare tag (`latest`, as skopeo writes) does not.
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
