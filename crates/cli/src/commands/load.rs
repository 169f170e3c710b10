//! `load`: images from an archive or a layout, from a file or a pipe.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use oci::{Digest, Reference};
use registry::archive::{self, Image};
use registry::{BlobSink, layout};
use store::Store;

use crate::args::archives::LoadArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use containers::images::pull::{self, Road};
use containers::images::remote;

/// The store as a place for an archive's blobs, and what was found to be there whole.
struct Sink<'a>(&'a Store, RefCell<HashSet<Digest>>);

impl BlobSink for Sink<'_> {
    fn has(&self, digest: &Digest) -> bool {
        let Self(store, whole) = self;
        // An archive does not say how long it must be, and reading it costs no more than storing it
        // again.
        whole.borrow().contains(digest)
            || store.blobs().is_whole(digest).unwrap_or(false)
                && whole.borrow_mut().insert(digest.clone())
    }

    fn put(
        &mut self,
        expected: Option<&Digest>,
        reader: &mut dyn Read,
    ) -> io::Result<(Digest, u64)> {
        let (digest, size) = self.0.blobs().put_reader(reader).map_err(io::Error::other)?;
        match expected {
            // The blob is whole and has a name of its own; nothing refers to it, so it goes with the next cleaning.
            Some(expected) if expected.algorithm() == digest.algorithm() && *expected != digest => {
                let text = format!("expected {expected}, found {digest}");
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
            _ => Ok((digest, size)),
        }
    }
}

/// Runs it.
pub(crate) fn run(context: &Context, args: &LoadArgs) -> Result<Exit, Report> {
    let store = context.store()?;
    let platform =
        args.platform.as_deref().map(containers::request::options::platform).transpose()?;
    let session = context.session_for(args.quiet)?;
    let named = args.name.as_deref().map(|name| remote::reference(&session, name)).transpose()?;
    // From the first blob to the last name nothing may be cleaned away.
    let _lease = store.lease()?;
    let mut sink = Sink(store, RefCell::default());
    let (images, source) = match args.input.as_deref().filter(|path| *path != Path::new("-")) {
        None if context.input_is_terminal() => {
            return Err(Report::usage("standard input is a terminal, not an archive")
                .hint("name a file: coracle load --input FILE"));
        }
        None => (
            archive::read(&mut io::stdin().lock(), &mut sink, platform.as_ref()),
            "standard input".to_owned(),
        ),
        Some(path) if path.is_dir() => {
            (layout::read(path, None, &mut sink, platform.as_ref()), path.display().to_string())
        }
        Some(path) => {
            let mut file = File::open(path).map_err(|error| {
                Report::new(format!("cannot read {}", path.display())).cause(error)
            })?;
            (archive::read(&mut file, &mut sink, platform.as_ref()), path.display().to_string())
        }
    };
    let images =
        images.map_err(|error| Report::from(error).within(format!("cannot load {source}")))?;
    if images.is_empty() {
        return Err(Report::new(format!("{source} holds no image")));
    }
    if named.is_some() && images.len() > 1 {
        return Err(Report::usage(format!(
            "{source} holds {} images, so one name is not enough",
            images.len()
        )));
    }
    let progress = session.progress();
    let road = Road::new(&session, &progress)?;
    for image in &images {
        for name in keep(&road, image, named.as_ref())? {
            let said = if context.presentation().bare_names { "" } else { "Loaded image: " };
            output::line(format!("{said}{name}"))?;
        }
    }
    Ok(Exit::OK)
}

/// Unpacks an image and gives it its names.
fn keep(road: &Road<'_>, image: &Image, named: Option<&Reference>) -> Result<Vec<String>, Report> {
    let index = image.index.as_ref().map(oci::Index::descriptor);
    let known_as = index.as_ref().map_or(&image.descriptor.digest, |index| &index.digest);
    let descriptor = pull::keep(road.store, &image.manifest, &image.config, known_as)?;
    pull::put(road.store, &image.manifest.config, image.config.raw())?;
    pull::unpack_all(road, &image.manifest, &image.config)?;
    let mut references = image.references.clone();
    if let Some(named) = named {
        references = vec![named.clone()];
    }
    if references.is_empty() {
        // Archives may hold a bare tag, or no name at all.
        let tag = image
            .names
            .iter()
            .find(|name| oci::reference::is_tag(name))
            .map_or("latest", String::as_str);
        let short = containers::images::find::short(&image.manifest.config.digest);
        references.push(Reference::parse(&format!("imported/{short}:{tag}"))?);
    }
    for reference in &references {
        road.store.images().tag(reference, &descriptor)?;
    }
    Ok(references.iter().map(Reference::familiar).collect())
}
