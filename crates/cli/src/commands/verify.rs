//! `verify`.
//!
//! Every blob is hashed, every reference followed, and every unpacked layer compared with its blob, file by file. With
//! `--repair` what is damaged goes, so that the next pull or load brings it again; layers whose blobs are good are unpacked
//! again by the next run.

use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::supervise::state::{self, Observed};
use oci::{Descriptor, Digest};
use rootfs::{Layer, LayerMeta, Limits};
use store::{Cached, Kind, Store, VerifyOptions};

use crate::args::images::VerifyArgs;
use crate::context::{Context, Show};
use crate::output::{self, size};
use crate::report::{Exit, Report};
use containers::container::record;
use containers::images::find as image;

/// So many differences of one layer are named.
const NAMED: usize = 5;

/// Runs it; prints what is wrong.
pub(crate) fn run(context: &Context, args: &VerifyArgs) -> Result<Exit, Report> {
    let store = context.store()?;
    let mut only = Vec::new();
    for name in &args.images {
        only.push(image::stored(context.session()?, name)?);
    }
    if args.repair {
        nothing_runs(store)?;
    }
    let session =
        context.session_showing(Show { quiet: args.quiet, bars_only: true, ..Show::default() })?;
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
    let problems = store.verify(&VerifyOptions {
        repair: args.repair,
        check_tree: Some(&check),
        progress: Some(&watch),
        only,
    })?;
    progress.finish();
    for problem in &problems {
        output::line(problem)?;
    }
    if problems.is_empty() {
        if !args.quiet {
            output::line(format!("{} read, nothing is wrong", size::human(read.into_inner())))?;
        }
        return Ok(Exit::OK);
    }
    let count = match problems.len() {
        1 => "one thing is wrong".to_owned(),
        several => format!("{several} things are wrong"),
    };
    let hint = if args.repair {
        "what was damaged is removed: pull or load the images again"
    } else {
        "coracle verify --repair removes what is damaged; then pull or load the images again"
    };
    Err(Report::new(count).hint(hint).exit(Exit(1)))
}

/// Refuses while containers run: what is damaged may be what they stand on.
fn nothing_runs(store: &Store) -> Result<(), Report> {
    let busy = |observed| matches!(observed, Observed::Running(_) | Observed::Restarting { .. });
    for container in store.containers().list()? {
        if state::observe(&container.path()).is_ok_and(busy) {
            containers::container::running::is_here(&container)?;
            let title = record::title(&container);
            return Err(Report::new(format!("container {title} is running"))
                .hint("nothing may run while the store is repaired: stop it first"));
        }
    }
    Ok(())
}

/// The blob of each layer, by its diff ID.
fn blobs(store: &Store) -> Result<HashMap<Digest, Descriptor>, Report> {
    let mut blobs = HashMap::new();
    let images = match store.images().list() {
        // Told, and repaired, by the store.
        Err(store::Error::BadIndex { .. }) => Vec::new(),
        images => images?,
    };
    for image in images {
        // What cannot be read is found and told elsewhere.
        if let (Ok(manifest), Ok(config)) = (image.manifest(), image.config()) {
            let layers = manifest.layers.iter().cloned();
            blobs.extend(config.diff_ids().iter().cloned().zip(layers));
        }
    }
    Ok(blobs)
}

/// Compares an unpacked layer with its blob.
fn compare(store: &Store, blob: &Descriptor, cached: &Cached) -> Result<(), String> {
    // A blob that is missing or has another size is told by itself.
    let Ok(blob) = store.blobs().open(blob) else { return Ok(()) };
    let text = |error: &(dyn std::error::Error + 'static)| Report::of(error, None).to_string();
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
