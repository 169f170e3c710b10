//! Writes images to an archive or a layout that other tools read.

use std::io::{self, Read, Write};
use std::path::Path;

use oci::{Digest, Reference};
use registry::archive::{self, Export};
use registry::{BlobSource, layout};
use store::{Lease, Store};

use super::source::Watched;
use super::{find, remote};
use crate::error::{Error, Result};
use crate::session::{Cancel, Session};

/// The form of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// What `docker load` reads.
    Docker,
    /// An OCI layout in an archive.
    Oci,
}

/// Images that are to be written. Until this is dropped, no other process removes their blobs.
pub struct Selection<'a> {
    session: &'a Session,
    images: Vec<Export>,
    _lease: Lease,
}

impl<'a> Selection<'a> {
    /// Finds the images that names or ids mean.
    pub fn find(session: &'a Session, names: &[String]) -> Result<Self> {
        let lease = session.store()?.lease()?;
        let mut images = Vec::new();
        for name in names {
            add(session, &mut images, name)?;
        }
        Ok(Self { session, images, _lease: lease })
    }

    /// Writes an archive.
    pub fn write(&self, form: Form, writer: &mut dyn Write) -> Result<()> {
        let source = Blobs { store: self.session.store()?, cancel: self.session.cancel() };
        let written = match form {
            Form::Oci => archive::write_oci(&self.images, &source, writer),
            Form::Docker => archive::write_docker(&self.images, &source, writer),
        };
        self.session.cancel().check()?;
        written?;
        writer.flush().map_err(|error| Error::failed("cannot write the archive").cause(error))
    }

    /// Writes an OCI layout, or adds to one that exists.
    pub fn write_layout(&self, directory: &Path) -> Result<()> {
        let source = Blobs { store: self.session.store()?, cancel: self.session.cancel() };
        let written = layout::write(directory, &self.images, &source);
        self.session.cancel().check()?;
        Ok(written?)
    }
}

/// Adds an image with the name by which it was asked for. By id it has no name in the archive, as
/// in Docker. Several names of one image make one entry.
fn add(session: &Session, images: &mut Vec<Export>, name: &str) -> Result<()> {
    let image = find::stored(session, name)?;
    let asked = remote::reference(session, name).ok();
    let reference: Option<Reference> = image.reference().filter(|reference| {
        asked.as_ref().is_some_and(|asked| {
            asked == reference || asked.is_digest() && asked.name() == reference.name()
        })
    });
    let manifest = image.manifest()?.clone();
    let digest = manifest.descriptor().digest.clone();
    match images.iter_mut().find(|known| known.manifest.descriptor().digest == digest) {
        Some(known) => known.references.extend(reference),
        None => images.push(Export { references: reference.into_iter().collect(), manifest }),
    }
    Ok(())
}

/// The store as the source of an archive's blobs.
struct Blobs<'a> {
    store: &'a Store,
    cancel: &'a Cancel,
}

impl BlobSource for Blobs<'_> {
    fn size(&self, digest: &Digest) -> io::Result<u64> {
        self.store.blobs().open_digest(digest).map(|blob| blob.size).map_err(not_found)
    }

    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read + Send>> {
        let blob = self.store.blobs().open_digest(digest).map_err(not_found)?;
        Ok(Box::new(Watched::new(blob.file, self.cancel)))
    }
}

fn not_found(error: store::Error) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, error)
}
