//! Checks the store: hashes every blob, follows every reference, and compares every unpacked layer
//! with its blob, file by file. The indexes of flattened trees are checked from the beginning.
//!
//! A repair removes what is damaged, so that the next pull or load brings it again. Layers whose
//! blobs are good are unpacked again by the next run. A damaged index is made anew.

use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::supervise::state::{self, Observed};
use oci::{Descriptor, Digest};
use rootfs::{Layer, LayerMeta, Limits};
use store::{Cached, Image, Kind, Problem, Store, VerifyOptions};

use crate::container::{record, root_form, running};
use crate::error::{Error, Result};
use crate::images::find;
use crate::session::Session;

/// The largest number of differences of one layer that are named.
const NAMED: usize = 5;

/// What to check.
#[derive(Debug, Clone, Default)]
pub struct VerifyRequest {
    /// Names or ids of images; empty for the whole store.
    pub images: Vec<String>,
    /// Remove what is damaged.
    pub repair: bool,
}

/// What a check has found.
#[derive(Debug)]
pub struct Verified {
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// Bytes that were read.
    pub read: u64,
}

/// Checks the store, or what some images consist of.
pub fn verify(session: &Session, request: &VerifyRequest) -> Result<Verified> {
    let store = session.store()?;
    let mut only = Vec::new();
    for name in &request.images {
        only.push(find::stored(session, name)?);
    }
    if request.repair {
        nothing_runs(store)?;
    }
    let progress = session.progress();
    let read = AtomicU64::new(0);
    if only.is_empty() {
        progress.expect(store.blobs().list()?.iter().map(|(_, size)| size).sum());
    }
    let watch = |bytes: u64| {
        read.fetch_add(bytes, Ordering::Relaxed);
        progress.advance(bytes);
    };
    let blobs = blobs(store)?;
    let check = |kind: Kind, cached: &Cached| match (kind, blobs.get(cached.digest())) {
        (Kind::Layer, Some(blob)) => compare(store, blob, cached),
        // A flattened tree is made of layers, and has no archive of its own.
        _ => Ok(()),
    };
    // The store reports a configuration that cannot be read.
    let key = |image: &Image| Some(root_form::settled_key_of(&image.config().ok()?));
    let trees = match &only[..] {
        [] => store.trees().list()?,
        images => images.iter().filter_map(key).collect(),
    };
    let mut problems = store.verify(&VerifyOptions {
        repair: request.repair,
        check_tree: Some(&check),
        progress: Some(&watch),
        only,
    })?;
    progress.finish();
    indexes(store, &trees, request.repair, &mut problems)?;
    Ok(Verified { problems, read: read.into_inner() })
}

/// Checks the index of each tree that has one. A missing one is none: the next run makes it.
fn indexes(
    store: &Store,
    trees: &[Digest],
    repair: bool,
    problems: &mut Vec<Problem>,
) -> Result<()> {
    for digest in trees {
        let Some(tree) = store.trees().get(digest)?.filter(Cached::is_own) else { continue };
        if !rootfs::index::is_there(&tree) {
            continue;
        }
        let Err(error) = rootfs::index::verify(&tree) else { continue };
        let mut why = format!("tree {digest}: {error}");
        if repair {
            match rootfs::index::remake(store, &tree) {
                Ok(_) => why.push_str("; it was made anew"),
                Err(error) => why = format!("{why}; it cannot be made anew: {error}"),
            }
        }
        problems.push(Problem::BadFile { why });
    }
    Ok(())
}

/// Refuses while containers run: their roots may be made of what is damaged.
fn nothing_runs(store: &Store) -> Result<()> {
    let busy = |observed| matches!(observed, Observed::Running(_) | Observed::Restarting { .. });
    for container in store.containers().list()? {
        if state::observe(&container.path()).is_ok_and(busy) {
            running::is_here(&container)?;
            let title = record::title(&container);
            return Err(Error::conflict(format!("container {title} is running"))
                .with_hint("nothing may run while the store is repaired: stop it first"));
        }
    }
    Ok(())
}

/// The blob of each layer, by its diff ID.
fn blobs(store: &Store) -> Result<HashMap<Digest, Descriptor>> {
    let mut blobs = HashMap::new();
    let images = match store.images().list() {
        // The store reports and repairs that.
        Err(store::Error::BadIndex { .. }) => Vec::new(),
        images => images?,
    };
    for image in images {
        // The store reports what cannot be read.
        if let (Ok(manifest), Ok(config)) = (image.manifest(), image.config()) {
            let layers = manifest.layers.iter().cloned();
            blobs.extend(config.diff_ids().iter().cloned().zip(layers));
        }
    }
    Ok(blobs)
}

/// Compares an unpacked layer with its blob.
fn compare(store: &Store, blob: &Descriptor, cached: &Cached) -> Result<(), String> {
    // A blob that is missing or has another size is a problem of its own.
    let Ok(blob) = store.blobs().open(blob) else { return Ok(()) };
    let text = |error: &(dyn std::error::Error + 'static)| Error::of(error).to_string();
    let meta: LayerMeta = cached.meta().map_err(|error| text(&error))?;
    let layer = Layer::new(cached.path().to_owned(), meta);
    let limits = Limits { total_bytes: u64::MAX, file_bytes: u64::MAX, ..Limits::default() };
    let plain: Box<dyn Read + Send> =
        rootfs::decode::open(blob, &limits).map_err(|error| text(&error))?;
    let (found, wrong) =
        rootfs::verify::layer(plain, &layer, &limits).map_err(|error| text(&error))?;
    if found != *cached.digest() {
        return Err(format!("its blob holds {found}"));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let mut named: Vec<String> = wrong
        .iter()
        .take(NAMED)
        .map(|one| format!("/{}: {}", String::from_utf8_lossy(&one.path), one.problem))
        .collect();
    if wrong.len() > NAMED {
        named.push(format!("and {} more", wrong.len() - NAMED));
    }
    Err(named.join("; "))
}
