//! Takes images from an archive or an OCI layout into the store.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{self, Read};

use oci::{Digest, Platform, Reference};
use registry::archive::{self, Image};
use registry::{BlobSink, layout};
use store::{Lease, Store};

use super::pull::{self, Road};
use super::source::{Source, Watched};
use super::{find, remote};
use crate::error::{Error, Result};
use crate::events::Progress;
use crate::journal;
use crate::session::{Cancel, Session};

/// Which images to load.
#[derive(Debug)]
pub struct LoadRequest {
    /// An archive of any form, or the directory of a layout.
    pub source: Source,
    /// The image's name, in place of those in the archive. Only for an archive of one image.
    pub name: Option<String>,
    /// The platform to choose where a name means several; `None` for the host's.
    pub platform: Option<Platform>,
}

/// Images whose blobs are in the store and that get their names one after the other: each step of
/// the iterator unpacks one and gives its names.
///
/// Until this is dropped, no other process removes the blobs.
pub struct Loading<'a> {
    session: &'a Session,
    progress: Progress<'a>,
    images: std::vec::IntoIter<Image>,
    named: Option<Reference>,
    _lease: Lease,
}

/// Reads an archive or a layout into the store.
pub fn load(session: &Session, request: LoadRequest) -> Result<Loading<'_>> {
    let LoadRequest { source, name, platform } = request;
    let store = session.store()?;
    let named = name.as_deref().map(|name| remote::reference(session, name)).transpose()?;
    // From the first blob to the last name nothing may be removed.
    let lease = store.lease()?;
    let title = source.title();
    let mut sink = Sink { store, cancel: session.cancel(), whole: RefCell::default() };
    let images = match source.directory() {
        Some(path) => layout::read(path, None, &mut sink, platform.as_ref()),
        None => archive::read(&mut *source.open()?, &mut sink, platform.as_ref()),
    };
    // What a cancelled reader tells is a consequence.
    session.cancel().check()?;
    let images =
        images.map_err(|error| Error::from(error).within(format!("cannot load {title}")))?;
    if images.is_empty() {
        return Err(Error::invalid(format!("there is no image in {title}")));
    }
    if named.is_some() && images.len() > 1 {
        let count = images.len();
        return Err(Error::invalid(format!(
            "{title} holds {count} images, so one name is not enough"
        )));
    }
    let (progress, images) = (session.progress(), images.into_iter());
    Ok(Loading { session, progress, images, named, _lease: lease })
}

impl Iterator for Loading<'_> {
    type Item = Result<Vec<Reference>>;

    fn next(&mut self) -> Option<Self::Item> {
        let image = self.images.next()?;
        Some(keep(self.session, &self.progress, &image, self.named.as_ref()))
    }
}

/// Unpacks an image and gives it its names.
fn keep(
    session: &Session,
    progress: &Progress<'_>,
    image: &Image,
    named: Option<&Reference>,
) -> Result<Vec<Reference>> {
    let road = Road::new(session, progress)?;
    let index = image.index.as_ref().map(oci::Index::descriptor);
    let known_as = index.as_ref().map_or(&image.descriptor.digest, |index| &index.digest);
    let mut descriptor = if let Some(known) = stored(road.store, image)? {
        pull::unpack(&road, &known)?;
        known.descriptor().clone()
    } else {
        let kept = pull::keep(road.store, &image.manifest, &image.config, known_as)?;
        pull::put(road.store, &image.manifest.config, image.config.raw())?;
        pull::unpack_all(&road, &image.manifest, &image.config)?;
        kept
    };
    let mut references = match named {
        Some(named) => vec![named.clone()],
        None => image.references.clone(),
    };
    if references.is_empty() {
        // Archives may hold a bare tag, or no name at all.
        let tag = image
            .names
            .iter()
            .find(|name| oci::reference::is_tag(name))
            .map_or("latest", String::as_str);
        let short = find::short(&image.manifest.config.digest);
        references.push(Reference::parse(&format!("imported/{short}:{tag}"))?);
    }
    for reference in &references {
        pull::protect_as(road.store, reference, &mut descriptor)?;
        road.store.images().tag(reference, &descriptor)?;
        journal::tell_image(session, "load", reference);
    }
    Ok(references)
}

/// The same image (by its id) where the store has it whole. An archive may hold it with another
/// manifest, as its layers are compressed in another way; two entries of one image would be left,
/// one of them without a name.
fn stored(store: &Store, image: &Image) -> Result<Option<store::Image>> {
    let id = &image.manifest.config.digest;
    for known in store.images().list()?.into_iter().filter(store::Image::is_own) {
        let Ok(manifest) = known.manifest() else { continue };
        // An index stands for further platforms too.
        if manifest.config.digest != *id || manifest.descriptor().digest != *known.digest() {
            continue;
        }
        let is_whole = |digest: &Digest| store.blobs().is_whole(digest).unwrap_or(false);
        if is_whole(id) && manifest.layers.iter().all(|layer| is_whole(&layer.digest)) {
            return Ok(Some(known));
        }
    }
    Ok(None)
}

/// Puts an archive's blobs into the store.
struct Sink<'a> {
    store: &'a Store,
    cancel: &'a Cancel,
    /// Blobs that were found to be in the store with the right content.
    whole: RefCell<HashSet<Digest>>,
}

impl BlobSink for Sink<'_> {
    fn has(&self, digest: &Digest) -> bool {
        // An archive does not say how long a blob must be, and reading it costs no more than
        // storing it again.
        self.whole.borrow().contains(digest)
            || self.store.blobs().is_whole(digest).unwrap_or(false)
                && self.whole.borrow_mut().insert(digest.clone())
    }

    fn put(
        &mut self,
        expected: Option<&Digest>,
        reader: &mut dyn Read,
    ) -> io::Result<(Digest, u64)> {
        let mut watched = Watched::new(reader, self.cancel);
        let (digest, size) =
            self.store.blobs().put_reader(&mut watched).map_err(io::Error::other)?;
        match expected {
            // The blob is stored by its own digest. Nothing refers to it, so it goes with the next
            // cleaning.
            Some(expected) if expected.algorithm() == digest.algorithm() && *expected != digest => {
                let text = format!("expected {expected}, found {digest}");
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
            _ => Ok((digest, size)),
        }
    }
}
