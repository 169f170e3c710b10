//! Making a container: image, record, what it stands on, volumes.
//!
//! The order is such that a process that is killed leaves nothing that looks like a container: the record is written last,
//! by one rename in the store, and what it refers to is in the store by then. Only the filling of new volumes comes
//! after it, because it reads the container's own view of its files.
//!
//! What an image declares as `VOLUME` stays a plain directory of the container's tree: the tree is the container's own and lasts as long
//! as it, so a volume of its own would only hide the files from `export`, `diff` and `cp`.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use engine::spec::{ImageSource, ProcessId};
use engine::supervise::processes;
use oci::{ImageConfig, chain_ids};
use rootfs::copy;
use store::{ContainerDir, Image, Store};

use super::record::{self, Own, Record};
use super::{ids, ports, root, spec, spool, volumes};
use crate::args::run::ContainerFlags;
use crate::config::{PullPolicy, SettingValue};
use crate::context::Context;
use crate::image;
use crate::remote;
use crate::report::Report;

/// A container that this process has made: the proof that it may remove it again. Only [`make`]
/// makes one, and [`Made::again`] after the program was executed anew.
#[derive(Debug, Clone)]
pub(crate) struct Made(ContainerDir);

/// Says which process has made the container, while that one is executed anew.
const MAKER: &str = "maker";

impl Made {
    /// Which one.
    pub(crate) fn container(&self) -> &ContainerDir {
        &self.0
    }

    /// The container, without the proof that this process made it.
    pub(crate) fn into_container(self) -> ContainerDir {
        self.0
    }

    /// Leaves word of this process for [`Made::again`].
    pub(crate) fn leave_word(&self) -> Result<(), Report> {
        let path = self.0.join(MAKER);
        let cannot = || Report::new(format!("cannot write {}", path.display()));
        let maker = processes::identity(std::process::id()).ok_or_else(cannot)?;
        let text = serde_json::to_vec(&maker).map_err(|error| cannot().cause(error))?;
        std::fs::write(&path, text).map_err(|error| cannot().cause(error))
    }

    /// The container of this id, if this very process has made it before it was executed anew, or
    /// one above it that lives. The word counts once.
    pub(crate) fn again(context: &Context, id: &str) -> Result<Option<Self>, Report> {
        let Some(container) = record::find_some(context, id)? else { return Ok(None) };
        let path = container.join(MAKER);
        let Ok(text) = std::fs::read(&path) else { return Ok(None) };
        let Ok(maker) = serde_json::from_slice::<ProcessId>(&text) else { return Ok(None) };
        if !processes::alive(&maker) || !processes::is_above(maker.pid, std::process::id()) {
            return Ok(None);
        }
        std::fs::remove_file(&path).map_err(|error| {
            Report::new(format!("cannot remove {}", path.display())).cause(error)
        })?;
        Ok(Some(Self(container)))
    }
}

/// Makes a container of an image (or, with `--rootfs`, of a plain tree).
pub(crate) fn make(
    context: &Context,
    flags: &ContainerFlags,
    image_name: Option<&str>,
    words: &[String],
    quiet: bool,
) -> Result<(Made, Record), Report> {
    let store = context.store()?;
    check_name(context, flags.record.name.as_deref())?;
    let cidfile = flags.record.cidfile.as_deref().map(reserve).transpose()?;
    // From here on nothing that is found goes away before the record refers to it.
    let _lease = store.lease()?;
    let (draft, found) = match image_name.filter(|_| flags.image.rootfs.is_none()) {
        None => (spec::draft(context, flags, None, &rootfs_words(image_name, words))?, None),
        Some(name) => {
            let image = find(context, flags, &remote::named(&flags.image.registry, name), quiet)?;
            let mut config = image.config()?;
            if flags.udocker.nometa {
                config = without_wishes(&config)?;
            }
            let source = source(&image, &config, name)?;
            (spec::draft(context, flags, Some((source, &config)), words)?, Some((image, config)))
        }
    };
    let mut config = draft.config;
    if config.command.is_empty() && context.is_udocker() {
        config.command = crate::udocker::command(context)?;
    }
    ports::choose(&mut config.network.publish)?;
    let stand = match &found {
        Some((image, _)) => root::stand(context, store, &config, image, quiet)?,
        None => record::Stand::default(),
    };
    let (mounts, fresh) = volumes::place(store, draft.mounts)?;
    config.mounts = mounts;
    let gpus = spec::gpus(flags)?;
    // Beside a plain tree the first word is the command's.
    let image_name = image_name.filter(|_| found.is_some()).map(str::to_owned).unwrap_or_default();
    let hostauth = flags.files.hostauth;
    let own = Own { image_name, stand, hostauth, gpus, ..Own::default() };
    let mut record = Record { own, ..Record::default() };
    split_command(&mut record, flags, found.as_ref().map(|(_, config)| config), words);
    record.config = config;
    let container = store.containers().create(flags.record.name.as_deref(), |id, _| {
        id.clone_into(&mut record.config.id);
        record.clone()
    })?;
    if let Err(report) = fill(context, flags.record.rm, &record, &container, &fresh) {
        // A container without its volumes' content is no container.
        let _ = super::launch::remove_idle(context, &container);
        return Err(report);
    }
    if !flags.record.rm {
        outlive(store, flags.record.name.is_some() || cidfile.is_some(), &container, &fresh)?;
    }
    if let Some((file, path)) = cidfile {
        write_cid(file, path, container.id())?;
    }
    Ok((Made(container), record))
}

/// Waits for the disk, as far as a container needs it that stays when its program has ended. One
/// that nobody was `told` of may be lost with the power, but not half of it.
fn outlive(
    store: &Store,
    told: bool,
    container: &ContainerDir,
    fresh: &[volumes::Fresh],
) -> Result<(), Report> {
    if !told {
        return Ok(store.sync_added()?);
    }
    for fresh in fresh.iter().filter(|fresh| fresh.anonymous) {
        fresh.volume.sync()?;
    }
    Ok(container.sync()?)
}

/// An image's configuration without what it asks for (`--nometa`): platform and layers.
fn without_wishes(config: &ImageConfig) -> Result<ImageConfig, Report> {
    let cannot = |error| Report::new("the image's configuration is no JSON").cause(error);
    let mut value: serde_json::Value = serde_json::from_slice(config.raw()).map_err(cannot)?;
    if let Some(map) = value.as_object_mut() {
        map.remove("config");
    }
    Ok(ImageConfig::parse(value.to_string().into_bytes())?)
}

/// Makes a container of a plain tree that another program has made of an image.
pub(crate) fn adopt(
    context: &Context,
    flags: &ContainerFlags,
    image: &ImageConfig,
    image_name: &str,
) -> Result<ContainerDir, Report> {
    let source = ImageSource { reference: image_name.to_owned(), ..ImageSource::default() };
    let mut config = spec::draft(context, flags, Some((source, image)), &[])?.config;
    config.image = None;
    let own = Own { image_name: image_name.to_owned(), ..Own::default() };
    let mut record = Record { own, ..Record::default() };
    split_command(&mut record, flags, Some(image), &[]);
    record.config = config;
    Ok(context.store()?.containers().create(flags.record.name.as_deref(), |id, _| {
        id.clone_into(&mut record.config.id);
        record.clone()
    })?)
}

/// With `--rootfs` there is no image: all words are the command.
fn rootfs_words(first: Option<&str>, words: &[String]) -> Vec<String> {
    first.map(str::to_owned).into_iter().chain(words.iter().cloned()).collect()
}

fn check_name(context: &Context, name: Option<&str>) -> Result<(), Report> {
    let Some(name) = name else { return Ok(()) };
    match record::find_some(context, name)? {
        // Ids may begin like a name.
        Some(container) if container.names()?.iter().any(|known| known == name) => {
            Err(Report::new(format!(
                "the name '{name}' is taken by container {}",
                container.short_id()
            ))
            .hint(format!(
                "remove it (coracle rm {name}), run it (coracle run {name}), or choose another name"
            )))
        }
        _ => Ok(()),
    }
}

/// Makes the file for the id now: who finds one there already is told before anything is done.
fn reserve(path: &Path) -> Result<(std::fs::File, &Path), Report> {
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
    match file {
        Ok(file) => Ok((file, path)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(Report::new(format!("--cidfile {} exists", path.display()))
                .hint("another container may use it; remove the file, or name another one"))
        }
        Err(error) => {
            Err(Report::new(format!("cannot make --cidfile {}", path.display())).cause(error))
        }
    }
}

fn write_cid(mut file: std::fs::File, path: &Path, id: &str) -> Result<(), Report> {
    file.write_all(id.as_bytes()).map_err(|error| {
        Report::new(format!("cannot write --cidfile {}", path.display())).cause(error)
    })
}

fn find(
    context: &Context,
    flags: &ContainerFlags,
    name: &str,
    quiet: bool,
) -> Result<Image, Report> {
    let policy = match flags.image.pull.as_deref() {
        None => context.settings()?.pull,
        // udocker's word: what is there is used, which `run NAME` does anyway.
        Some("reuse") => PullPolicy::Missing,
        Some(text) => <PullPolicy as SettingValue>::from_text(text).map_err(|_| {
            Report::usage(format!("--pull '{text}' is no policy"))
                .hint("there are always, missing, never and newer")
        })?,
    };
    let platform =
        flags.image.platform.as_deref().map(crate::commands::pull::platform).transpose()?;
    image::get(
        context,
        &image::Wish { name, policy, platform, registry: &flags.image.registry, quiet },
    )
}

fn source(image: &Image, config: &ImageConfig, name: &str) -> Result<ImageSource, Report> {
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
fn split_command(
    record: &mut Record,
    flags: &ContainerFlags,
    image: Option<&ImageConfig>,
    words: &[String],
) {
    let entrypoint = flags.process.entrypoint.as_deref();
    let none = Vec::new();
    let image_entrypoint = image.map_or(&none[..], ImageConfig::entrypoint);
    record.own.entrypoint = super::command::merge(image_entrypoint, &[], entrypoint, &[]);
    record.own.cmd = match image {
        Some(image) if words.is_empty() && entrypoint.is_none() => image.cmd().to_vec(),
        _ => words.to_vec(),
    };
}

/// Fills new volumes with what the image has at their places. What outlives the run is on the disk
/// then.
fn fill(
    context: &Context,
    passing: bool,
    record: &Record,
    container: &ContainerDir,
    fresh: &[volumes::Fresh],
) -> Result<(), Report> {
    let fresh: Vec<&volumes::Fresh> = fresh.iter().filter(|fresh| fresh.fill).collect();
    if fresh.is_empty() || record.config.rootfs.is_some() {
        return Ok(());
    }
    let store = context.store()?;
    let trees = root::trees(context, store, record)?;
    let root = root::prepare(context, store, record, &container.path())?;
    let mut filled = Vec::with_capacity(fresh.len());
    for volume in fresh {
        if fill_one(context, record, &trees, &root, volume)? {
            filled.push(volume);
        }
    }
    let waits = |volume: &&volumes::Fresh| !(passing && volume.anonymous);
    if filled.iter().any(waits) {
        store.sync_all()?;
    }
    for volume in filled {
        std::fs::remove_file(volume.filling())
            .map_err(|error| Report::new("cannot fill the volume").cause(error))?;
        // It must not come back: what is changed in the volume from here on would be overwritten.
        if waits(&volume) {
            volume.volume.sync()?;
        }
    }
    Ok(())
}

/// Whether the image had something at a volume's place, which is in the volume now.
fn fill_one(
    context: &Context,
    record: &Record,
    trees: &rootfs::ImageTrees,
    root: &rootfs::Root,
    fresh: &volumes::Fresh,
) -> Result<bool, Report> {
    let spool = spool::file(context)?;
    let path = fresh.target.as_os_str().as_bytes();
    let source = copy::Source { path, name: b".", follow: true };
    let read = ids::within(context, &record.config, |ids| {
        copy::copy_out_of(Some(trees), root, ids, source, &spool).map(drop).map_err(Report::from)
    });
    // Else the image has nothing there, or something other than a directory.
    let there = read.is_ok() || spool.metadata().is_ok_and(|meta| meta.len() > 0);
    let first = spool::rewound(&spool)?;
    if !there || !first.is_directory {
        return Ok(false);
    }
    read?;
    spool::rewind(&spool)?;
    let cannot = || Report::new("cannot fill the volume");
    std::fs::File::create(fresh.filling()).map_err(|error| cannot().cause(error))?;
    let top = spool::open_directory(&fresh.volume.data())?;
    copy::copy_in(&top, b".", &spool, &copy::Into::default())
        .map_err(|error| Report::from(error).within("cannot fill the volume"))?;
    // The place itself is no entry: `/tmp` stays open to all, and a database's directory closed.
    sys::fs::chmod_fd(&top, first.mode).map_err(|error| cannot().cause(error))?;
    Ok(true)
}
