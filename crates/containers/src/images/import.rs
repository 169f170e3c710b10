//! Makes an image of one layer from a tree: an archive, a stream or a directory.

use std::io;
use std::path::Path;

use oci::{ConfigEditor, Descriptor, Digest, ImageConfig, Manifest, Platform, Reference, media};
use store::Store;

use super::pull::{self, Road};
use super::source::{Source, Watched};
use super::{change, find, layers, remote};
use crate::error::{Error, Result};
use crate::journal::{self, Actor, Kind};
use crate::session::Session;

/// What the history of an imported image says.
const CREATED_BY: &str = "coracle import";
/// Bytes of an archive that are kept on the way through a pipe.
const BUFFER: usize = 1 << 20;

/// A tree that becomes an image.
#[derive(Debug)]
pub struct ImportRequest {
    /// The tree.
    pub source: Source,
    /// The image's name; `None` for `imported/` and the first digits of its id.
    pub name: Option<String>,
    /// Instructions of a Containerfile that alter the configuration.
    pub changes: Vec<String>,
    /// A comment for the history.
    pub message: Option<String>,
    /// For which platform the image is; `None` for the host's.
    pub platform: Option<Platform>,
    /// The configuration to begin with; `None` for an empty one.
    pub config: Option<ImageConfig>,
}

impl ImportRequest {
    /// A request that says nothing but the source.
    pub fn new(source: Source) -> Self {
        let changes = Vec::new();
        Self { source, name: None, changes, message: None, platform: None, config: None }
    }
}

/// What was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The image's id.
    pub id: Digest,
    /// Its name.
    pub reference: Reference,
}

/// Makes the image.
pub fn import(session: &Session, request: ImportRequest) -> Result<Imported> {
    let ImportRequest { source, name, changes, message, platform, config: like } = request;
    let platform = platform.unwrap_or_else(Platform::host);
    let store = session.store()?;
    let progress = session.progress();
    let road = Road::new(session, &progress)?;
    let named = name.as_deref().map(|name| remote::reference(session, name)).transpose()?;
    let lease = store.lease()?;
    let title = source.title();
    let (layer, diff_id) = layer(session, &road, source, &title)?;
    let now = engine::supervise::now();
    let mut editor = like.map_or_else(|| ConfigEditor::new(&platform), |like| like.edit());
    let message = message.as_deref().unwrap_or_default();
    editor.created(&now).layer(&diff_id).history(&now, CREATED_BY, message, false);
    for instruction in &changes {
        change::apply(&mut editor, instruction)?;
    }
    let config = editor.finish()?;
    let config_descriptor = Descriptor::of(media::OCI_CONFIG, config.raw());
    pull::put(store, &config_descriptor, config.raw())?;
    let id = config_descriptor.digest.clone();
    let manifest = Manifest::build(media::OCI_MANIFEST, config_descriptor, vec![layer]);
    let mut descriptor = manifest.descriptor().clone();
    pull::put(store, &descriptor, manifest.raw())?;
    descriptor.platform = Some(config.platform());
    // Without a name nothing would refer to the image, and the next cleaning would remove it.
    let reference = match named {
        Some(reference) => reference,
        None => Reference::parse(&format!("imported/{}", find::short(&id)))?,
    };
    store.images().tag(&reference, &descriptor)?;
    if let Some(image) = store.images().get(&reference)? {
        // Unpacked at once: a broken archive is told now, not when the image is first run.
        if let Err(error) = pull::unpack(&road, &image) {
            // The removal would wait for this lease.
            drop(lease);
            store.images().remove(&reference.to_string(), true)?;
            return Err(error.within(format!("cannot import {title}")));
        }
    }
    let actor = Actor::named(id.to_string(), &reference.familiar());
    journal::tell(session, Kind::Image, "import", actor);
    Ok(Imported { id, reference })
}

/// Stores the layer: a directory is packed, an archive kept as it is.
fn layer(
    session: &Session,
    road: &Road<'_>,
    source: Source,
    title: &str,
) -> Result<(Descriptor, Digest)> {
    let (blob, size) = if let Some(directory) = source.directory() {
        pack(session, road.store, directory)?
    } else {
        let mut reader = Watched::new(source.open()?, road.cancel);
        let stored = road.store.blobs().put_reader(&mut reader);
        road.cancel.check()?;
        stored?
    };
    layers::described(road, &blob, size, Path::new(title))
}

/// Packs a directory. The archive goes through a pipe, so that it is on disk once.
fn pack(session: &Session, store: &Store, source: &Path) -> Result<(Digest, u64)> {
    let keep_owners = rustix::process::geteuid().is_root();
    let (mut output, input) =
        io::pipe().map_err(|error| Error::failed("cannot make a pipe").cause(error))?;
    std::thread::scope(|scope| {
        let packing = scope.spawn(move || {
            let input = io::BufWriter::with_capacity(BUFFER, input);
            rootfs::import::directory(source, keep_owners, input)
        });
        let put = store.blobs().put_reader(&mut Watched::new(&mut output, session.cancel()));
        drop(output);
        let packed = packing.join();
        session.cancel().check()?;
        match packed {
            Ok(Ok(packed)) => {
                for path in &packed.skipped {
                    session.note(&format!("left out: socket /{}", String::from_utf8_lossy(path)));
                }
            }
            Ok(Err(error)) => {
                let step = format!("cannot pack {}", source.display());
                return Err(Error::from(error).within(step));
            }
            Err(_) => return Err(Error::failed("the packing thread failed")),
        }
        Ok(put?)
    })
}
