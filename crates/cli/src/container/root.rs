//! What a container's root stands on: the image's layers as they are, or flattened, and its own changes above.

use std::path::Path;

use engine::facts::Facts;
use engine::plan;
use engine::spec::{ContainerConfig, UserNamespace};
use oci::Digest;
use rootfs::flatten::{Method, flatten};
use rootfs::{Driver, ImageTrees, Layer, LayerMeta, drivers};
use rustix::fs::{CWD, Mode, OFlags};
use store::{BeginTree, Cached, Image, Staging, Store};

use super::ids;
use super::record::{Record, Stand};
use crate::context::Context;
use crate::image;
use crate::progress::{Progress, Style};
use crate::pull::{self, Road};
use crate::report::Report;

/// The first kernel whose overlay can be mounted in a user namespace.
const OVERLAY_IN_USER_NAMESPACE: (u32, u32) = (5, 11);

/// Decides what containers of an image stand on, and makes what is missing for it.
pub(crate) fn stand(
    context: &Context,
    store: &Store,
    config: &ContainerConfig,
    image: &Image,
    quiet: bool,
) -> Result<Stand, Report> {
    let layers = layers(context, store, config, Some(image), quiet)?;
    let driver = driver(context, store);
    let mut stand = Stand { driver: Some(driver), ..Stand::default() };
    if driver.is_stacked()
        && let rootfs::Plan::Flatten { layers, why } = rootfs::image::plan(layers.clone())?
    {
        tracing::info!("the image is flattened: {why}");
        stand.tree = Some(flat(store, config, &layers)?.to_string());
    }
    stand.owners =
        owners(context, store, config, &stand, &layers)?.map(|digest| digest.to_string());
    Ok(stand)
}

/// The way of making roots that host and store allow.
pub(crate) fn driver(context: &Context, store: &Store) -> Driver {
    let (host, abilities) = (context.host(), store.abilities());
    let kernel =
        (host.kernel.major, host.kernel.minor) >= OVERLAY_IN_USER_NAMESPACE || host.caller.uid == 0;
    let facts = drivers::Facts {
        overlay: kernel && host.overlay.kernel.may_work(),
        fuse_overlay: false,
        user_xattr: abilities.user_xattr,
        whiteout: abilities.whiteout,
        reflink: abilities.reflink,
        network_fs: abilities.network,
    };
    drivers::choose(&facts).0
}

/// The image's layers, base first; those that are not unpacked are.
fn layers(
    context: &Context,
    store: &Store,
    config: &ContainerConfig,
    image: Option<&Image>,
    quiet: bool,
) -> Result<Vec<Layer>, Report> {
    let diff_ids = digests(config)?;
    let mut unpacked = false;
    let mut layers = Vec::with_capacity(diff_ids.len());
    for diff_id in &diff_ids {
        let mut cached = store.layers().get(diff_id)?;
        if cached.is_none() && !unpacked {
            unpack(context, store, config, image, quiet)?;
            unpacked = true;
            cached = store.layers().get(diff_id)?;
        }
        let cached = cached.ok_or_else(|| Report::new(format!("layer {diff_id} is missing")))?;
        layers.push(layer(&cached)?);
    }
    Ok(layers)
}

fn digests(config: &ContainerConfig) -> Result<Vec<Digest>, Report> {
    let layers = config.image.as_ref().map_or(&[][..], |image| &image.layers);
    Ok(layers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
}

fn layer(cached: &Cached) -> Result<Layer, Report> {
    Ok(Layer::new(cached.path().to_owned(), cached.meta::<LayerMeta>()?))
}

fn unpack(
    context: &Context,
    store: &Store,
    config: &ContainerConfig,
    image: Option<&Image>,
    quiet: bool,
) -> Result<(), Report> {
    let found;
    let image = if let Some(image) = image {
        image
    } else {
        let id = config.image.as_ref().map_or("", |image| &image.config);
        found = image::stored(context, id)
            .map_err(|report| report.within("a layer of the container is missing"))?;
        &found
    };
    let settings = context.settings()?;
    let progress = Progress::new(Style::choose(quiet || context.global.quiet, settings.progress));
    pull::unpack(&Road::new(store, settings, &progress), image)
}

/// The image as one tree, made if it is not there.
fn flat(store: &Store, config: &ContainerConfig, layers: &[Layer]) -> Result<Digest, Report> {
    let chain: Digest = config.image.as_ref().map_or("", |image| &image.chain).parse()?;
    if let BeginTree::Build(staging) = store.trees().begin(&chain)? {
        let directory = open_staging(&staging)?;
        let meta = flatten(layers, &directory, Method::HardLink)?;
        staging.commit(&meta)?;
    }
    Ok(chain)
}

fn open_staging(staging: &Staging) -> Result<rustix::fd::OwnedFd, Report> {
    // The tree is made by whoever fills it.
    let _ = std::fs::remove_dir(staging.tree());
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, staging.dir(), flags, Mode::empty()).map_err(|error| {
        Report::new(format!("cannot open {}", staging.dir().display())).cause(error)
    })
}

/// The tree with the true owners, where a range of ids is mapped and the image has files of others than root.
fn owners(
    context: &Context,
    store: &Store,
    config: &ContainerConfig,
    stand: &Stand,
    layers: &[Layer],
) -> Result<Option<Digest>, Report> {
    let ranged = matches!(config.namespaces.user, UserNamespace::Auto | UserNamespace::KeepId);
    let facts = Facts::of(context.host(), &context.probing(), config);
    if !ranged
        || stand.driver != Some(Driver::Overlay)
        || !facts.has_range()
        || !rootfs::owner_layer::is_needed(layers)
    {
        return Ok(None);
    }
    let maps = ids::maps(&facts);
    let chain = config.image.as_ref().map_or("", |image| &image.chain);
    // The owners on disk depend on the ranges, which an administrator may change.
    let key = Digest::of(format!("owner layer 1\n{chain}\n{maps:?}\n").as_bytes());
    let BeginTree::Build(staging) = store.trees().begin(&key)? else { return Ok(Some(key)) };
    let directory = open_staging(&staging)?;
    let topmost = rootfs::image::unstacked(layers.to_vec()).layers;
    let build = || rootfs::owner_layer::build(&topmost, &directory).map(|_| ());
    match maps {
        None => build()?,
        Some(maps) => {
            let work = || {
                build().map_or_else(
                    |error| Report::of(&error, None).to_string().into_bytes(),
                    |()| Vec::new(),
                )
            };
            let answer = sys::userns::run(&maps, false, work).map_err(|error| {
                Report::of(&error, None).within("cannot make the files of other owners")
            })?;
            if !answer.is_empty() {
                return Err(Report::new("cannot make the files of other owners")
                    .because(String::from_utf8_lossy(&answer)));
            }
        }
    }
    staging.commit(&LayerMeta::default())?;
    Ok(Some(key))
}

/// The trees that a container stands on.
pub(crate) fn trees(
    context: &Context,
    store: &Store,
    record: &Record,
) -> Result<ImageTrees, Report> {
    let tree = |text: &str| -> Result<Cached, Report> {
        let digest: Digest = text.parse()?;
        let found = store.trees().get(&digest)?;
        found.ok_or_else(|| {
            Report::new(format!("the tree {digest} is missing")).hint("make the container again")
        })
    };
    let mut trees = match &record.own.stand.tree {
        Some(text) => ImageTrees::flat(layer(&tree(text)?)?),
        None => rootfs::image::unstacked(layers(context, store, &record.config, None, false)?),
    };
    if let Some(text) = &record.own.stand.owners {
        trees.owner_layer = Some(tree(text)?.tree());
    }
    Ok(trees)
}

/// The root of a container below its directory, ready to be mounted; its parts are made when they are not there.
pub(crate) fn prepare(
    context: &Context,
    store: &Store,
    record: &Record,
    place: &Path,
) -> Result<rootfs::Root, Report> {
    if let Some(directory) = &record.config.rootfs {
        return Ok(rootfs::Root::Directory(directory.clone()));
    }
    let trees = trees(context, store, record)?;
    Ok(rootfs::prepare(place, &trees, record.own.stand.driver.unwrap_or(Driver::Overlay))?)
}

/// As the engine wants it.
pub(crate) fn for_engine(root: rootfs::Root) -> plan::Root {
    match root {
        rootfs::Root::Overlay { lowers, upper, work, volatile } => {
            plan::Root::Overlay { lowers, upper, work, volatile }
        }
        rootfs::Root::Directory(path) => plan::Root::Directory { path },
    }
}

/// Ownership that a container's own files cannot carry themselves.
pub(crate) fn side_table(place: &Path) -> Result<rootfs::Owners, Report> {
    Ok(rootfs::Owners::read(&place.join(rootfs::view::UPPER_OWNERS))?)
}

/// Adds what was copied in.
pub(crate) fn add_to_side_table(place: &Path, more: &rootfs::Owners) -> Result<(), Report> {
    if more.is_empty() {
        return Ok(());
    }
    let mut owners = side_table(place)?;
    for (path, record) in more.iter() {
        owners.insert(path, record.clone());
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, place, flags, Mode::empty())
        .map_err(|error| Report::new(format!("cannot open {}", place.display())).cause(error))?;
    owners.save(&directory, rootfs::view::UPPER_OWNERS)?;
    Ok(())
}
