//! Makes a container: finds its image, writes its record, makes its root and its volumes.
//!
//! The order is such that a process that is killed leaves nothing that looks like a container: the
//! record is written last, by one rename in the store, and what it refers to is in the store by
//! then. Only the filling of new volumes comes after it, because it reads the container's own view
//! of its files.
//!
//! What an image declares as `VOLUME` stays a plain directory of the container's tree: the tree is
//! the container's own and lasts as long as it, so a volume of its own would only hide the files
//! from `export`, `diff` and `cp`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use engine::plan::KEEP_GROUPS;
use engine::spec::{ContainerConfig, ImageSource, UserNamespace};
use oci::{ImageConfig, chain_ids};
use rootfs::copy;
use store::{ContainerDir, Image, Store};

use super::made::Made;
use super::record::{self, Own, Record, RootForm};
use super::{draft, ids, networks, removal, root_form, running, spool, told, volumes};
use crate::error::{Error, Result};
use crate::images::find::{self, ImageQuery};
use crate::images::remote;
use crate::request::{ContainerRequest, command_line, ineffective, ports};
use crate::session::Session;

/// With the host's users, the caller's name means the caller, and the groups that come with it are
/// the caller's own: where a range of ids is mapped, too.
fn keep_caller(session: &Session, request: &ContainerRequest, config: &mut ContainerConfig) {
    let caller = &session.host().caller;
    let name = config.user.split(':').next().filter(|name| !name.is_empty());
    let is_caller = name.is_some() && name == caller.name.as_deref() && caller.uid != 0;
    if !request.files.host_accounts || !is_caller {
        return;
    }
    if config.namespaces.user == UserNamespace::Auto {
        config.namespaces.user = UserNamespace::KeepId;
    }
    if config.group_add.is_empty() {
        config.group_add.push(KEEP_GROUPS.to_owned());
    }
}

/// Makes a container of an image, or of a plain tree.
pub fn make(session: &Session, request: &ContainerRequest) -> Result<(Made, Record)> {
    let store = session.store()?;
    check_name(session, request.record.name.as_deref())?;
    let named = networks::resolve(session, &request.network.networks.named)?;
    let cidfile = request.record.cidfile.as_deref().map(reserve).transpose()?;
    // From here on nothing that is found goes away before the record refers to it.
    let _lease = store.lease()?;
    let found = find_image(session, request)?;
    let source = found.as_ref().map(|(_, config, source)| (source.clone(), config));
    let draft = draft::draft(session, request, source, &request.command)?;
    tell_ineffective(session, request)?;
    let mut config = draft.config;
    if config.command.is_empty() {
        config.command.clone_from(&session.dialect().default_command);
    }
    keep_caller(session, request, &mut config);
    networks::put(&mut config.network, named);
    ports::choose(&mut config.network.publish)?;
    let index = request.image.index.unwrap_or(session.settings().index);
    let root_form = match &found {
        Some((image, ..)) => root_form::choose_form(session, store, (&config, index), image)?,
        None => RootForm::default(),
    };
    let (mounts, fresh) = volumes::place(session, draft.mounts)?;
    config.mounts = mounts;
    let image_name = request.image.name.clone().filter(|_| found.is_some()).unwrap_or_default();
    let (hostauth, gpus) = (request.files.host_accounts, request.files.gpus.clone());
    let without_index = !index;
    let own = Own { image_name, root_form, without_index, hostauth, gpus, ..Own::default() };
    let mut record = Record { own, ..Record::default() };
    split_command(&mut record, request, found.as_ref().map(|(_, config, _)| config));
    record.config = config;
    let container = write(session, request, &mut record)?;
    if let Err(error) = fill(session, request.record.remove, &record, &container, &fresh) {
        // A container without its volumes' content is incomplete.
        let _ = removal::remove_idle(session, &container, removal::Unnamed::Remove);
        return Err(error);
    }
    if !request.record.remove {
        let reported = request.record.name.is_some() || cidfile.is_some();
        outlive(store, reported, &container, &fresh)?;
    }
    if let Some((file, path)) = cidfile {
        write_cid(file, path, container.id())?;
    }
    told::tell(session, "create", &container, &record);
    Ok((Made::new(container), record))
}

/// Makes a container that stays, and waits until it is on the disk. `replace`: a container of that
/// name is removed first, unless it runs or is protected.
pub fn create(
    session: &Session,
    request: &ContainerRequest,
    replace: bool,
) -> Result<ContainerDir> {
    if replace
        && let Some(name) = &request.record.name
        && let Some(old) = record::named(session, name)?
    {
        removal::check_protection(&old)?;
        if !removal::remove_idle(session, &old, removal::Unnamed::Keep)? {
            return Err(running::running(&old));
        }
    }
    let (made, _) = make(session, request)?;
    let container = made.into_container();
    (session.foreign().announce)(session, &container)?;
    container.sync()?;
    Ok(container)
}

/// Tells which of the request's options have no effect; with `--strict` that is an error.
fn tell_ineffective(session: &Session, request: &ContainerRequest) -> Result<()> {
    for (flag, value) in &request.ineffective {
        ineffective::check(flag, value)?;
        let Some(advice) = ineffective::advice(flag) else { continue };
        if request.strict {
            return Err(Error::unsupported(format!("{flag} has no effect here"))
                .with_hint(format!("{advice}; without --strict it is a warning")));
        }
        session.warn(&format!("{flag} has no effect: {advice}"));
    }
    if request.security.privileged {
        let text = "--privileged gives a program all capabilities in its own user namespace, and \
                    no right on the host that the caller lacks";
        if request.strict {
            return Err(Error::unsupported(text).with_hint("leave --privileged or --strict out"));
        }
        session.warn(text);
    }
    Ok(())
}

/// Writes the record, which makes the container.
fn write(
    session: &Session,
    request: &ContainerRequest,
    record: &mut Record,
) -> Result<ContainerDir> {
    let name = request.record.name.as_deref();
    Ok(session.store()?.containers().create(name, |id, _| {
        id.clone_into(&mut record.config.id);
        record.clone()
    })?)
}

/// The image of a request, pulled if it has to be; `None` for a plain tree.
fn find_image(
    session: &Session,
    request: &ContainerRequest,
) -> Result<Option<(Image, ImageConfig, ImageSource)>> {
    let of_image = &request.image;
    let Some(name) = of_image.name.as_deref().filter(|_| of_image.rootfs.is_none()) else {
        return Ok(None);
    };
    let query = ImageQuery {
        name: &remote::named(&of_image.registry, name),
        policy: of_image.pull.unwrap_or(session.settings().pull),
        platform: of_image.platform.clone(),
        registry: &of_image.registry,
    };
    let image = find::get(session, &query)?;
    let mut config = image.config()?;
    if of_image.ignore_config {
        config = without_running_config(&config)?;
    }
    let source = source(&image, &config, name)?;
    Ok(Some((image, config, source)))
}

/// Waits for the disk, as far as a container needs it that stays when its program has ended. One
/// that was not `reported` to anybody may be lost with the power, but not half of it.
fn outlive(
    store: &Store,
    reported: bool,
    container: &ContainerDir,
    fresh: &[volumes::Fresh],
) -> Result<()> {
    if !reported {
        return Ok(store.sync_added()?);
    }
    for fresh in fresh.iter().filter(|fresh| fresh.anonymous) {
        fresh.volume.sync()?;
    }
    Ok(container.sync()?)
}

/// An image's configuration without what it asks for (`--nometa`): platform and layers.
fn without_running_config(config: &ImageConfig) -> Result<ImageConfig> {
    let cannot = |error| Error::failed("the image's configuration is not JSON").cause(error);
    let mut value: serde_json::Value = serde_json::from_slice(config.raw()).map_err(cannot)?;
    if let Some(map) = value.as_object_mut() {
        map.remove("config");
    }
    Ok(ImageConfig::parse(value.to_string().into_bytes())?)
}

/// Makes a container of a plain tree that another program has made of an image.
pub fn adopt(
    session: &Session,
    request: &ContainerRequest,
    image: &ImageConfig,
    image_name: &str,
) -> Result<ContainerDir> {
    let source = ImageSource { reference: image_name.to_owned(), ..ImageSource::default() };
    let mut config = draft::draft(session, request, Some((source, image)), &[])?.config;
    config.image = None;
    let own = Own { image_name: image_name.to_owned(), ..Own::default() };
    let mut record = Record { own, ..Record::default() };
    split_command(&mut record, request, Some(image));
    record.config = config;
    write(session, request, &mut record)
}

fn check_name(session: &Session, name: Option<&str>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    match record::find_some(session, name)? {
        // Ids may begin like a name.
        Some(container) if container.names()?.iter().any(|known| known == name) => {
            Err(Error::conflict(format!(
                "the name '{name}' is taken by container {}",
                container.short_id()
            ))
            .with_hint(format!(
                "remove it (coracle rm {name}), run it (coracle run {name}), or choose another name"
            )))
        }
        _ => Ok(()),
    }
}

/// Makes the file for the id now: who finds one there already is told before anything is done.
fn reserve(path: &Path) -> Result<(std::fs::File, &Path)> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    match file {
        Ok(file) => Ok((file, path)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(Error::conflict(format!("--cidfile {} exists", path.display()))
                .with_hint("another container may use it; remove the file, or name another one"))
        }
        Err(error) => {
            Err(Error::failed(format!("cannot make --cidfile {}", path.display())).cause(error))
        }
    }
}

fn write_cid(mut file: std::fs::File, path: &Path, id: &str) -> Result<()> {
    file.write_all(id.as_bytes()).map_err(|error| {
        Error::failed(format!("cannot write --cidfile {}", path.display())).cause(error)
    })
}

fn source(image: &Image, config: &ImageConfig, name: &str) -> Result<ImageSource> {
    let chain = chain_ids(config.diff_ids());
    Ok(ImageSource {
        reference: image
            .reference()
            .map_or_else(|| name.to_owned(), |reference| reference.to_string()),
        manifest: image.manifest()?.descriptor().digest.to_string(),
        config: image.id()?.to_string(),
        layers: config.diff_ids().iter().map(ToString::to_string).collect(),
        chain: chain.last().map(ToString::to_string).unwrap_or_default(),
    })
}

/// Keeps entrypoint and command apart, for `inspect` and for `run CONTAINER COMMAND`.
fn split_command(record: &mut Record, request: &ContainerRequest, image: Option<&ImageConfig>) {
    let entrypoint = request.process.entrypoint.as_deref();
    let image_entrypoint = image.map_or(&[][..], ImageConfig::entrypoint);
    record.own.entrypoint = command_line::merge(image_entrypoint, &[], entrypoint, &[]);
    record.own.cmd = match image {
        Some(image) if request.command.is_empty() && entrypoint.is_none() => image.cmd().to_vec(),
        _ => request.command.clone(),
    };
}

/// Fills new volumes with what the image has at their places. What outlives the run is on the disk
/// then.
fn fill(
    session: &Session,
    passing: bool,
    record: &Record,
    container: &ContainerDir,
    fresh: &[volumes::Fresh],
) -> Result<()> {
    let fresh: Vec<&volumes::Fresh> = fresh.iter().filter(|fresh| fresh.fill).collect();
    if fresh.is_empty() || record.config.rootfs.is_some() {
        return Ok(());
    }
    let store = session.store()?;
    let trees = root_form::trees(session, store, record)?;
    let root = root_form::prepare(session, store, record, &container.path())?;
    let mut filled = Vec::with_capacity(fresh.len());
    for volume in fresh {
        if fill_one(session, record, &trees, &root, volume)? {
            filled.push(volume);
        }
    }
    let waits = |volume: &&volumes::Fresh| !(passing && volume.anonymous);
    if filled.iter().any(waits) {
        store.sync_all()?;
    }
    for volume in filled {
        std::fs::remove_file(volume.filling())
            .map_err(|error| Error::failed("cannot fill the volume").cause(error))?;
        // It must not come back: what is changed in the volume from here on would be overwritten.
        if waits(&volume) {
            volume.volume.sync()?;
        }
    }
    Ok(())
}

/// Whether the image had something at a volume's place, which is in the volume now.
fn fill_one(
    session: &Session,
    record: &Record,
    trees: &rootfs::ImageTrees,
    root: &rootfs::Root,
    fresh: &volumes::Fresh,
) -> Result<bool> {
    let spool = spool::file(session)?;
    let path = fresh.target.as_os_str().as_bytes();
    let source = copy::Source { path, name: b".", follow: true };
    let read = ids::within(session, &record.config, |ids| {
        copy::copy_out_of(Some(trees), root, ids, source, &spool)?;
        Ok(Vec::new())
    });
    // Else the image has nothing there, or something other than a directory.
    let there = read.is_ok() || spool.metadata().is_ok_and(|meta| meta.len() > 0);
    let first = spool::rewound(&spool)?;
    if !there || !first.is_directory {
        return Ok(false);
    }
    read?;
    spool::rewind(&spool)?;
    let cannot = || Error::failed("cannot fill the volume");
    std::fs::File::create(fresh.filling()).map_err(|error| cannot().cause(error))?;
    let top = spool::open_directory(&fresh.volume.data())?;
    copy::copy_in(&top, b".", &spool, &copy::Into::default())
        .map_err(|error| Error::from(error).within("cannot fill the volume"))?;
    // The place itself is no entry: `/tmp` stays open to all, and a database's directory closed.
    sys::fs::chmod_fd(&top, first.mode).map_err(|error| cannot().cause(error))?;
    Ok(true)
}
