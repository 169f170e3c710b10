//! Chooses and makes a container's root: the image's layers as they are, or flattened, with the
//! container's own changes above.

use std::path::{Path, PathBuf};

use engine::choose::{self, Engine, IdsFrom};
use engine::facts::Facts;
use engine::plan;
use engine::spec::{ContainerConfig, UserNamespace};
use oci::Digest;
use rootfs::flatten::{Method, flatten};
use rootfs::owner_layer::Form;
use rootfs::{Driver, ImageTrees, Layer, LayerMeta, drivers};
use rustix::fs::{CWD, Mode, OFlags};
use store::{BeginTree, Cached, Image, Staging, Store};

use super::record::{Record, RootForm};
use super::{ids, inode_log, networks};
use crate::error::{Error, Result};
use crate::images::find;
use crate::images::pull::{self, Road};
use crate::session::Session;

/// Name of the directory of what is made of an image's files, beside its tree.
const BESIDE: &str = "made";
/// The first kernel whose overlay can be mounted in a user namespace.
const OVERLAY_IN_USER_NAMESPACE: (u32, u32) = (5, 11);

/// Decides how the roots of an image's containers are made, and makes what is missing for it.
/// `index`: the image's index is wanted.
pub fn choose_form(
    session: &Session,
    store: &Store,
    (config, index): (&ContainerConfig, bool),
    image: &Image,
) -> Result<RootForm> {
    let layers = layers(session, store, config, Some(image))?;
    let facts = networks::facts(session, config);
    if is_for_plain(&facts, config) {
        return without_mounts(store, config, &layers, index);
    }
    with_mounts(session, store, (config, &facts), &layers)
}

/// The form of a container for engines with mounts.
fn with_mounts(
    session: &Session,
    store: &Store,
    (config, facts): (&ContainerConfig, &Facts),
    layers: &[Layer],
) -> Result<RootForm> {
    let driver = driver_if(session, store, facts.no_overlay.is_none());
    let mut form = RootForm { driver: Some(driver), ..RootForm::default() };
    if driver.is_stacked()
        && let rootfs::Plan::Flatten { layers, why } = rootfs::image::plan(layers.to_vec())?
    {
        tracing::info!("the image is flattened: {why}");
        form.tree = Some(flat(store, config, &layers)?.to_string());
    }
    form.owners =
        owners(session, store, (config, facts), &form, layers)?.map(|digest| digest.to_string());
    Ok(form)
}

/// The form with the image's true layers and owners, for a container that was made for engines
/// without mounts; `None` if the layers are gone, or an overlay cannot be mounted.
pub fn with_true_owners(
    session: &Session,
    store: &Store,
    config: &ContainerConfig,
) -> Result<Option<RootForm>> {
    for diff_id in digests(config)? {
        if store.layers().get(&diff_id)?.is_none() {
            return Ok(None);
        }
    }
    let (facts, layers) = (networks::facts(session, config), layers_of(session, store, config)?);
    let form = with_mounts(session, store, (config, &facts), &layers)?;
    Ok(Some(form).filter(|form| form.driver == Some(Driver::Overlay)))
}

/// The form of a container for engines without mounts. Where its image cannot lie beneath its own
/// changes, it gets a whole tree of links.
pub fn without_mounts(
    store: &Store,
    config: &ContainerConfig,
    layers: &[Layer],
    index: bool,
) -> Result<RootForm> {
    let key = settled(store, config, layers)?;
    let driver = match lacking_for_layers(store, &key, index)? {
        None => Driver::Layered,
        Some(why) => {
            tracing::info!("the container gets a tree of hard links: {why}");
            Driver::HardLink
        }
    };
    Ok(RootForm { driver: Some(driver), tree: Some(key.to_string()), owners: None })
}

/// Why a container cannot have this tree beneath its own changes; `None` if it can.
fn lacking_for_layers(store: &Store, tree: &Digest, index: bool) -> Result<Option<String>> {
    if !index {
        return Ok(Some("no index is wanted".to_owned()));
    }
    if let Some(lacking) = store.abilities().lacking_for_layers() {
        return Ok(Some(format!("the store's file system lacks {lacking}")));
    }
    let Some(tree) = store.trees().get(tree)? else {
        return Ok(Some("the image's tree is gone".to_owned()));
    };
    // A read-only store beneath may lie on another one.
    let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev).ok();
    if device(&tree.tree()) != device(store.path()) {
        return Ok(Some("the image lies on another file system".to_owned()));
    }
    Ok(rootfs::index::checked(store, &tree).err().map(|error| error.to_string()))
}

/// Whether a container without mounts lies above its image, or would.
pub fn has_index(record: &Record) -> bool {
    !record.own.without_index && record.own.root_form.driver != Some(Driver::HardLink)
}

/// Whether the engine that a container will have works on a plain directory. A choice that fails
/// now will say so when it is run.
fn is_for_plain(facts: &Facts, config: &ContainerConfig) -> bool {
    choose::choose(facts, None, config).is_ok_and(|engine| engine.root().is_tree())
}

/// The way of making roots that host and store allow.
pub fn driver(session: &Session, store: &Store) -> Driver {
    driver_if(session, store, true)
}

/// The same where something else may forbid an overlay, such as the image.
fn driver_if(session: &Session, store: &Store, may_overlay: bool) -> Driver {
    let (host, abilities) = (session.host(), store.abilities());
    let overlay = match &host.overlay.kernel {
        host::Trial::Works { .. } => true,
        host::Trial::Fails { .. } => false,
        host::Trial::Untried => {
            (host.kernel.major, host.kernel.minor) >= OVERLAY_IN_USER_NAMESPACE
                || host.caller.uid == 0
        }
    };
    let facts = drivers::Facts {
        overlay: overlay && may_overlay,
        fuse_overlay: false,
        user_xattr: abilities.user_xattr,
        whiteout: abilities.whiteout,
        reflink: abilities.reflink,
        network_fs: abilities.network,
    };
    drivers::choose(&facts).0
}

/// The layers of a container's image, topmost last.
pub fn layers_of(session: &Session, store: &Store, config: &ContainerConfig) -> Result<Vec<Layer>> {
    layers(session, store, config, None)
}

/// The image's layers, base first; those that are not unpacked are.
fn layers(
    session: &Session,
    store: &Store,
    config: &ContainerConfig,
    image: Option<&Image>,
) -> Result<Vec<Layer>> {
    let diff_ids = digests(config)?;
    let mut unpacked = false;
    let mut layers = Vec::with_capacity(diff_ids.len());
    for diff_id in &diff_ids {
        let mut cached = store.layers().get(diff_id)?;
        if cached.is_none() && !unpacked {
            unpack(session, config, image)?;
            unpacked = true;
            cached = store.layers().get(diff_id)?;
        }
        let cached = cached.ok_or_else(|| Error::failed(format!("layer {diff_id} is missing")))?;
        layers.push(layer(&cached)?);
    }
    Ok(layers)
}

/// Bytes on the disk of what a container's tree has of its image without a copy of its own. What is
/// not unpacked counts nothing.
pub fn shared_size(store: &Store, record: &Record) -> Result<u64> {
    let form = &record.own.root_form;
    if matches!(form.driver, Some(Driver::Copy | Driver::Reflink)) {
        return Ok(0);
    }
    let size = |found: Option<Cached>| Ok(found.map_or(Ok(0), |found| found.size())?);
    match &form.tree {
        Some(text) => size(store.trees().get(&text.parse()?)?),
        None => digests(&record.config)?.iter().map(|id| size(store.layers().get(id)?)).sum(),
    }
}

/// The image's tree beneath the changes of a container without mounts.
pub fn lower(store: &Store, record: &Record) -> Result<Option<PathBuf>> {
    let form = &record.own.root_form;
    match form.tree.as_ref().filter(|_| form.driver == Some(Driver::Layered)) {
        Some(text) => Ok(store.trees().get(&text.parse()?)?.map(|tree| tree.tree())),
        None => Ok(None),
    }
}

fn digests(config: &ContainerConfig) -> Result<Vec<Digest>> {
    let layers = config.image.as_ref().map_or(&[][..], |image| &image.layers);
    Ok(layers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?)
}

fn layer(cached: &Cached) -> Result<Layer> {
    Ok(Layer::new(cached.path().to_owned(), cached.meta::<LayerMeta>()?))
}

fn unpack(session: &Session, config: &ContainerConfig, image: Option<&Image>) -> Result<()> {
    let found;
    let image = if let Some(image) = image {
        image
    } else {
        let id = config.image.as_ref().map_or("", |image| &image.config);
        found = find::stored(session, id)
            .map_err(|report| report.within("a layer of the container is missing"))?;
        &found
    };
    let progress = session.progress();
    pull::unpack(&Road::new(session, &progress)?, image)
}

/// The image as one tree, made if it is not there.
fn flat(store: &Store, config: &ContainerConfig, layers: &[Layer]) -> Result<Digest> {
    let chain: Digest = config.image.as_ref().map_or("", |image| &image.chain).parse()?;
    if let BeginTree::Build(staging) = store.trees().begin(&chain)? {
        let directory = open_staging(&staging)?;
        let meta = flatten(layers, &directory, Method::HardLink)?;
        staging.commit(&meta)?;
    }
    Ok(chain)
}

/// The image as one tree in the form that engines without mounts want, made if it is not there.
pub fn settled(store: &Store, config: &ContainerConfig, layers: &[Layer]) -> Result<Digest> {
    let key = settled_key(config.image.as_ref().map_or("", |image| &image.chain));
    if let BeginTree::Build(staging) = store.trees().begin(&key)? {
        let directory = open_staging(&staging)?;
        let topmost = rootfs::image::topmost_first(layers.to_vec()).layers;
        let meta = rootfs::flatten::flatten_with_owner_xattrs(&topmost, &directory)?;
        if let Err(error) = rootfs::index::write(&directory) {
            tracing::info!("the image gets no index: {error}");
        }
        staging.commit(&meta)?;
    }
    Ok(key)
}

/// The name in the store of a [`settled`] tree of layers with this chain ID.
fn settled_key(chain: &str) -> Digest {
    Digest::of(format!("settled tree 1\n{chain}\n").as_bytes())
}

/// The name in the store of an image's [`settled`] tree.
pub fn settled_key_of(config: &oci::ImageConfig) -> Digest {
    let chain = oci::chain_ids(config.diff_ids()).last().map(ToString::to_string);
    settled_key(&chain.unwrap_or_default())
}

fn open_staging(staging: &Staging) -> Result<rustix::fd::OwnedFd> {
    // The operation that fills the tree creates it.
    let _ = std::fs::remove_dir(staging.tree());
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, staging.dir(), flags, Mode::empty()).map_err(|error| {
        Error::failed(format!("cannot open {}", staging.dir().display())).cause(error)
    })
}

/// The tree with the true owners, where a range of ids is mapped and the image has files of others
/// than root.
fn owners(
    session: &Session,
    store: &Store,
    (config, facts): (&ContainerConfig, &Facts),
    form: &RootForm,
    layers: &[Layer],
) -> Result<Option<Digest>> {
    let asked = config.namespaces.user;
    let ranged = matches!(asked, UserNamespace::Auto | UserNamespace::KeepId);
    if form.driver != Some(Driver::Overlay) || !rootfs::owner_layer::is_needed(layers) {
        return Ok(None);
    }
    if facts.has_one_id(asked) {
        return recorded(store, config, layers).map(Some);
    }
    if !ranged || !facts.has_range() {
        return Ok(None);
    }
    let (uid, gid) = (facts.uid, facts.gid);
    let caller = plan::caller_inside(&config.user, asked, (uid, gid));
    let maps = ids::maps_with(facts, caller);
    let chain = config.image.as_ref().map_or("", |image| &image.chain);
    // The owners on disk depend on the ranges, which an administrator may change.
    let key = Digest::of(format!("owner layer 1\n{chain}\n{maps:?}\n").as_bytes());
    let BeginTree::Build(staging) = store.trees().begin(&key)? else { return Ok(Some(key)) };
    let directory = open_staging(&staging)?;
    let topmost = rootfs::image::topmost_first(layers.to_vec()).layers;
    let build = || rootfs::owner_layer::build(&topmost, &directory, Form::True).map(|_| ());
    match maps {
        None => build()?,
        Some(maps) => {
            let work = || {
                build().map_or_else(
                    |error| Error::from(error).to_string().into_bytes(),
                    |()| Vec::new(),
                )
            };
            session.may_fork("make the files of other owners")?;
            let answer = sys::userns::run(&maps, false, work).map_err(|error| {
                Error::of(&error)
                    .within("cannot make the files of other owners")
                    .with_hint("coracle doctor tells why, and which modes need no user namespaces")
            })?;
            if !answer.is_empty() {
                return Err(Error::failed("cannot make the files of other owners")
                    .because(String::from_utf8_lossy(&answer)));
            }
        }
    }
    staging.commit(&LayerMeta::default())?;
    Ok(Some(key))
}

/// The tree with the records of what an unprivileged user cannot put on disk, for namespaces with
/// one id. The records of links and pipes are a log beside it, with which a container's own begins.
fn recorded(store: &Store, config: &ContainerConfig, layers: &[Layer]) -> Result<Digest> {
    let chain = config.image.as_ref().map_or("", |image| &image.chain);
    let key = Digest::of(format!("recorded layer 1\n{chain}\n").as_bytes());
    if let BeginTree::Build(staging) = store.trees().begin(&key)? {
        let directory = open_staging(&staging)?;
        let topmost = rootfs::image::topmost_first(layers.to_vec()).layers;
        let built = rootfs::owner_layer::build(&topmost, &directory, Form::Recorded)?;
        inode_log::write(&staging.tree(), &staging.dir().join(inode_log::NOTES), &built.by_path)?;
        staging.commit(&LayerMeta::default())?;
    }
    Ok(key)
}

/// Has a container's log of records begin with its image's.
pub fn begin_log(store: &Store, record: &Record, place: &Path) -> Result<()> {
    let (Some(owners), false) =
        (&record.own.root_form.owners, place.join(inode_log::NOTES).exists())
    else {
        return Ok(());
    };
    let Some(tree) = store.trees().get(&owners.parse()?)? else { return Ok(()) };
    let from = tree.path().join(inode_log::NOTES);
    match std::fs::copy(&from, place.join(inode_log::NOTES)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::failed(format!("cannot copy {}", from.display())).cause(error))
        }
        _ => Ok(()),
    }
}

/// The trees beneath a container's own changes.
pub fn trees(session: &Session, store: &Store, record: &Record) -> Result<ImageTrees> {
    let tree = |text: &str| -> Result<Cached> {
        let digest: Digest = text.parse()?;
        let found = store.trees().get(&digest)?;
        found.ok_or_else(|| {
            Error::failed(format!("the tree {digest} is missing"))
                .with_hint("make the container again")
        })
    };
    let mut trees = match &record.own.root_form.tree {
        Some(text) => ImageTrees::flat(layer(&tree(text)?)?),
        None => rootfs::image::topmost_first(layers(session, store, &record.config, None)?),
    };
    if let Some(text) = &record.own.root_form.owners {
        trees.owner_layer = Some(tree(text)?.tree());
    }
    Ok(trees)
}

/// A directory beside the tree that a container's files are links to, for what engines make of
/// these; it goes with the tree.
pub fn beside_image(store: &Store, record: &Record) -> Option<PathBuf> {
    if record.config.rootfs.is_some() {
        return None;
    }
    let form = &record.own.root_form;
    if let Some(tree) = form.tree.as_ref().or(form.owners.as_ref()) {
        let tree = store.trees().get(&tree.parse().ok()?).ok().flatten()?;
        return Some(tree.path().join(BESIDE));
    }
    let top = record.config.image.as_ref()?.layers.last()?;
    let layer = store.layers().get(&top.parse().ok()?).ok().flatten()?;
    Some(layer.path().join(BESIDE))
}

/// The root of a container below its directory as it is, to be read or written by commands; its
/// parts are made when they are not there.
pub fn prepare(
    session: &Session,
    store: &Store,
    record: &Record,
    place: &Path,
) -> Result<rootfs::Root> {
    if let (Some(root), Some(directory)) = (given(record, place), &record.config.rootfs) {
        if store.read_only().is_none() {
            inode_log::to_table_of(place, directory)?;
        }
        return Ok(root);
    }
    let driver = record.own.root_form.driver.unwrap_or(Driver::Overlay);
    if driver != Driver::HardLink {
        if place.join("upper").exists() && store.read_only().is_none() {
            inode_log::to_upper_table(place)?;
        }
        return Ok(rootfs::prepare(place, &trees(session, store, record)?, driver)?);
    }
    let root = plain(session, store, record, place)?;
    if store.read_only().is_none() {
        inode_log::to_table(place)?;
    }
    if place.join("upper").exists() {
        if store.read_only().is_none() {
            inode_log::to_upper_table(place)?;
        }
        return Ok(drivers::prepare_stacked(place)?);
    }
    Ok(root)
}

/// The directory of somebody else's that a container has as its root.
fn given(record: &Record, place: &Path) -> Option<rootfs::Root> {
    let directory = record.config.rootfs.clone()?;
    Some(rootfs::Root::Given { directory, table: place.join(drivers::ROOT_OWNERS) })
}

/// The root for an engine: one directory, or something to be mounted. [`super::convert::fit`] came
/// before.
pub fn prepare_for(
    session: &Session,
    store: &Store,
    record: &Record,
    place: &Path,
    engine: &dyn Engine,
) -> Result<rootfs::Root> {
    let linked = record.config.rootfs.is_none()
        && record.own.root_form.driver.unwrap_or(Driver::Overlay) == Driver::HardLink;
    if !engine.root().is_tree() && engine.properties().ids == IdsFrom::Map {
        if !session.host().subordinate.any() {
            inode_log::mark_records(place)?;
        }
        begin_log(store, record, place)?;
        if let Some(lower) = lower(store, record)? {
            inode_log::from_image(place, &lower)?;
        }
        inode_log::from_upper_table(place)?;
    }
    if let Some(root) = given(record, place) {
        return Ok(root);
    }
    if let Some(driver) = stacked(record) {
        if engine.root().is_tree() {
            // What came with a clone, or while no program ran.
            inode_log::from_upper_table(place)?;
        }
        return Ok(rootfs::prepare(place, &trees(session, store, record)?, driver)?);
    }
    if !linked {
        return prepare(session, store, record, place);
    }
    let root = plain(session, store, record, place)?;
    if engine.root().is_tree() { Ok(root) } else { Ok(drivers::prepare_stacked(place)?) }
}

/// How a container's root is made, unless it is one of links.
fn stacked(record: &Record) -> Option<Driver> {
    let driver = record.own.root_form.driver.unwrap_or(Driver::Overlay);
    (driver != Driver::HardLink).then_some(driver)
}

/// The whole tree of a container of links, made where it is not there.
pub fn plain(
    session: &Session,
    store: &Store,
    record: &Record,
    place: &Path,
) -> Result<rootfs::Root> {
    let directory = place.join(drivers::ROOT);
    if !directory.exists() {
        let trees = trees(session, store, record)?;
        rootfs::prepare(place, &trees, Driver::HardLink)?;
    }
    inode_log::from_loose(place)?;
    Ok(rootfs::Root::Directory(directory))
}

/// As the engine wants it.
pub fn for_engine(root: rootfs::Root) -> plan::Root {
    match root {
        rootfs::Root::Overlay { lowers, upper, work, volatile } => {
            plan::Root::Overlay { lowers, upper, work, volatile }
        }
        rootfs::Root::Directory(path) | rootfs::Root::Given { directory: path, .. } => {
            plan::Root::Directory { path }
        }
        rootfs::Root::Stacked { directory, upper, work, volatile } => {
            plan::Root::Overlay { lowers: vec![directory], upper, work, volatile }
        }
    }
}

/// Ownership that a container's own files cannot carry themselves.
pub fn side_table(place: &Path) -> Result<rootfs::Owners> {
    Ok(rootfs::union::upper_owners(&place.join("upper"))?)
}

/// Adds what was copied in.
pub fn add_to_side_table(place: &Path, more: &rootfs::Owners) -> Result<()> {
    if more.is_empty() {
        return Ok(());
    }
    let mut owners = rootfs::Owners::read(&place.join(rootfs::union::UPPER_OWNERS))?;
    for (path, record) in more.iter() {
        owners.insert(path, record.clone());
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, place, flags, Mode::empty())
        .map_err(|error| Error::failed(format!("cannot open {}", place.display())).cause(error))?;
    owners.save(&directory, rootfs::union::UPPER_OWNERS)?;
    Ok(())
}
