//! `save`: images to an archive that other tools read.

use std::io::{self, BufWriter, Read, Write};

use oci::{Digest, Reference};
use registry::archive::{self, Export};
use registry::{BlobSource, layout};
use store::Store;

use crate::args::archives::SaveArgs;
use crate::context::Context;
use crate::output::file::Target;
use crate::report::{Exit, Report};
use containers::images::find as image;

/// The store as the place that blobs come from.
struct Source<'a>(&'a Store);

impl BlobSource for Source<'_> {
    fn size(&self, digest: &Digest) -> io::Result<u64> {
        self.0.blobs().open_digest(digest).map(|blob| blob.size).map_err(not_found)
    }

    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read + Send>> {
        self.0
            .blobs()
            .open_digest(digest)
            .map(|blob| Box::new(blob.file) as Box<dyn Read + Send>)
            .map_err(not_found)
    }
}

fn not_found(error: store::Error) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, error)
}

/// Runs it.
pub(crate) fn run(context: &Context, args: &SaveArgs) -> Result<Exit, Report> {
    let store = context.store()?;
    let _lease = store.lease()?;
    let mut images: Vec<Export> = Vec::new();
    for name in &args.images {
        add(context, &mut images, name)?;
    }
    let source = Source(store);
    let path = args.output.as_deref();
    match args.format.as_str() {
        "oci-dir" => {
            let Some(path) = path else {
                return Err(Report::usage("--format oci-dir wants a directory")
                    .hint("use --output DIRECTORY"));
            };
            layout::write(path, &images, &source)?;
            return Ok(Exit::OK);
        }
        "docker-archive" | "docker" | "oci-archive" | "oci" => {}
        other => {
            return Err(Report::usage(format!("--format '{other}' is not known"))
                .hint("there are docker-archive, oci-archive and oci-dir"));
        }
    }
    if let Some(path) =
        path.filter(|path| context.presentation().keeps_files && path.exists() && !args.force)
    {
        return Err(Report::new(format!("{} exists", path.display())));
    }
    let target = Target::open(context, path)?;
    let mut writer = BufWriter::with_capacity(1 << 20, target.writer()?);
    if args.format.starts_with("oci") {
        archive::write_oci(&images, &source, &mut writer)?;
    } else {
        archive::write_docker(&images, &source, &mut writer)?;
    }
    writer.flush().map_err(|error| Report::new("cannot write the archive").cause(error))?;
    drop(writer);
    target.finish()?;
    Ok(Exit::OK)
}

/// An image with the name by which it was asked for; by id it goes without name, as in Docker. Names of one image are put together.
fn add(context: &Context, images: &mut Vec<Export>, name: &str) -> Result<(), Report> {
    let image = image::stored(context.session()?, name)?;
    let asked = containers::images::remote::reference(context.session()?, name).ok();
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
