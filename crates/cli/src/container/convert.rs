//! A container goes from an engine with mounts to one without, or back.
//!
//! | it stands on | an engine with mounts | an engine without |
//! |---|---|---|
//! | layers and an upper (overlay) | as it is | a whole tree of links is made, and the upper merged into it |
//! | a copy of its own | as it is | the copy gets the form that such engines want |
//! | a whole tree of links | an overlay above it | as it is; what the overlay had written is merged into the tree |
//!
//! A crash in between leaves a container that is whole: the tree is there before the record says so, and from then on an overlay of tree
//! and upper is what the container is, until the upper has been merged. Nobody may run in it meanwhile.

use std::path::Path;

use engine::choose::{self, Engine};
use engine::facts::Facts;
use engine::plan::Neighbour;
use engine::spec::ContainerConfig;
use rootfs::{Driver, ImageTrees, Owners, drivers};
use rustix::fs::{CWD, Mode, OFlags};
use store::{ContainerDir, Store};
use sys::namespace::Kinds;

use super::record::{self, Record, Stand};
use super::{ids, launch, notes, root, spool};
use crate::context::Context;
use crate::progress;
use crate::report::Report;

/// How often is looked whether another has brought a container into its form.
const TURN: std::time::Duration = std::time::Duration::from_millis(50);

/// Whether whoever runs in a container runs without mounts. The container's files tell, because a process that is just starting has not left
/// the host's namespaces yet; only where a tree is used as it is, its process is asked.
pub(crate) fn runs_plain(record: &Record, place: &Path, pid: u32) -> bool {
    if record.config.rootfs.is_some() {
        return Neighbour::of(pid).is_none_or(|neighbour| !neighbour.own.has(Kinds::MOUNT));
    }
    record.own.stand.driver == Some(Driver::HardLink) && !place.join("upper").exists()
}

/// The engine for a run: that of whoever runs in the container already, unless another is asked for; else what is asked for or fits.
pub(crate) fn engine(
    facts: &Facts,
    record: &Record,
    place: &Path,
    member: Option<u32>,
    exec: bool,
) -> Result<&'static dyn Engine, Report> {
    let config = &record.config;
    let follows = exec || config.exec_mode.is_none() && config.rootfs.is_none();
    let Some(pid) = member.filter(|_| follows) else {
        return Ok(choose::choose(facts, None, config)?);
    };
    let plain = runs_plain(record, place, pid);
    let fits = |engine: &&dyn Engine| engine.caps().own_ids == plain;
    let asked = config.exec_mode.as_deref().and_then(choose::by_name).filter(fits);
    // Who is inside a process shares more with others of its kind than with a tracer.
    let inside = engine::engines::inprocess::members::home(pid).is_some();
    let usable = |engine: &&dyn Engine| {
        fits(engine)
            && engine.is_inside() == inside
            && !matches!(engine.probe(facts), choose::Fit::Unusable(_))
    };
    let engine = asked.or_else(|| choose::ENGINES.iter().copied().find(usable));
    Ok(choose::choose(facts, engine.map(Engine::name), config)?)
}

/// Brings a container into a form that an engine can use; says so where that takes work.
pub(crate) fn fit(
    context: &Context,
    store: &Store,
    container: &ContainerDir,
    record: &mut Record,
    engine: &dyn Engine,
) -> Result<(), Report> {
    let place = container.path();
    let linked = record.own.stand.driver == Some(Driver::HardLink);
    if !engine.caps().own_ids || engine.caps().bare {
        nobody_inside(container, engine)?;
    }
    if record.config.rootfs.is_some() || !linked && !engine.caps().own_ids {
        return Ok(());
    }
    let member = launch::main_process(context, container.id());
    let differs = |pid| runs_plain(record, &place, pid) != engine.caps().own_ids;
    if member.is_some_and(differs) {
        let title = record::title(container);
        return Err(Report::new(format!(
            "container {title} is running with another engine than {}",
            engine.name()
        ))
        .hint(format!("stop it first: coracle stop {title}")));
    }
    if !engine.caps().own_ids || is_ready(record, &place, engine) {
        return Ok(());
    }
    let mut stored;
    let _lock = loop {
        let lock = container.try_lock_exclusive()?;
        // Of several first runs at once one does it, and the others go on: its program may keep the container for long.
        let running = super::super::commands::rm::not_running(container);
        stored = record::read(container)?;
        if is_ready(&stored, &place, engine) {
            record.own.stand = stored.own.stand;
            return Ok(());
        }
        running?;
        match lock {
            Some(lock) => break lock,
            None => std::thread::sleep(TURN),
        }
    };
    if stored.own.stand.driver != Some(Driver::HardLink) {
        to_links(context, store, container, &mut stored)?;
    }
    merge(context, &stored.config, &place)?;
    if engine.caps().bare && is_shared(&place) {
        if place.join(drivers::ROOT).exists() {
            let title = record::title(container);
            progress::note(&format!("{title} gets files of its own, for {}", engine.name()));
        } else {
            root::plain(context, store, &stored, &place)?;
        }
        rootfs::linked::copy_shared_files(&spool::open_directory(&place)?)?;
    }
    record.own.stand = stored.own.stand;
    Ok(())
}

/// Whether a container has the form that an engine without mounts wants.
fn is_ready(record: &Record, place: &Path, engine: &dyn Engine) -> bool {
    record.own.stand.driver == Some(Driver::HardLink)
        && !place.join("upper").exists()
        && !(engine.caps().bare && is_shared(place))
}

/// Whether files of a container's tree are the image's too, or there is no tree yet.
fn is_shared(place: &Path) -> bool {
    place.join(rootfs::owner_xattrs::INODES).exists() || !place.join(drivers::ROOT).exists()
}

/// Gives a container one whole tree on disk, as engines without mounts have it.
pub(crate) fn to_plain(
    context: &Context,
    store: &Store,
    container: &ContainerDir,
    record: &mut Record,
) -> Result<(), Report> {
    let plain = choose::ENGINES.iter().find(|engine| engine.caps().own_ids);
    plain.map_or(Ok(()), |engine| fit(context, store, container, record, *engine))
}

/// Who is inside a container's processes remembers what it saw of the tree, and must be told of changes: this engine would not.
fn nobody_inside(container: &ContainerDir, engine: &dyn Engine) -> Result<(), Report> {
    let living = engine::engines::inprocess::members::all(&container.path());
    if living.is_empty() {
        return Ok(());
    }
    let title = record::title(container);
    let living: Vec<String> = living.iter().map(|process| process.pid.to_string()).collect();
    let remedy =
        format!("coracle stop {title}, or end what was left behind: kill {}", living.join(" "));
    Err(Report::new(format!(
        "programs run in container {title} with another engine than {}",
        engine.name()
    ))
    .hint(remedy))
}

/// Makes a container's tree one of links, or its copy one in the same form, and writes that down.
fn to_links(
    context: &Context,
    store: &Store,
    container: &ContainerDir,
    record: &mut Record,
) -> Result<(), Report> {
    let place = container.path();
    let title = record::title(container);
    progress::note(&format!("{title} gets a tree of its own, for an engine without mounts"));
    let layers = root::layers_of(context, store, &record.config)?;
    let _lease = store.lease()?;
    let tree = root::settled(store, &record.config, &layers)?.to_string();
    let stand = Stand { driver: Some(Driver::HardLink), tree: Some(tree), owners: None };
    let stacked = record.own.stand.driver.is_none_or(Driver::is_stacked);
    if !stacked && place.join(drivers::ROOT).exists() {
        settle_copy(&place)?;
    } else {
        let own = record::Own { stand: stand.clone(), ..record.own.clone() };
        let wanted = Record { own, ..record.clone() };
        let trees: ImageTrees = root::trees(context, store, &wanted)?;
        rootfs::prepare(&place, &trees, Driver::HardLink)?;
    }
    notes::from_loose(&place)?;
    // The tree's files are the image's, which may have been made just now.
    store.sync_added()?;
    record.own.stand = stand;
    container.write(record)?;
    Ok(())
}

/// A copy that belongs to the container alone gets its form where it is.
fn settle_copy(place: &Path) -> Result<(), Report> {
    let open = |path: &Path| {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|error| Report::new(format!("cannot open {}", path.display())).cause(error))
    };
    let table = place.join(drivers::ROOT_OWNERS);
    let mut owners = Owners::read(&table)?;
    let settled =
        rootfs::owner_xattrs::convert_tree(open(&place.join(drivers::ROOT))?, &mut owners, false)?;
    notes::add(place, &settled.by_path)?;
    let _ = std::fs::remove_file(table);
    Ok(())
}

/// What an overlay had written above the tree goes into it.
fn merge(context: &Context, config: &ContainerConfig, place: &Path) -> Result<(), Report> {
    if place.join("upper").exists() {
        ids::within(context, config, |ids| Ok(rootfs::merge::merge_upper(place, ids)?))?;
        notes::from_loose(place)?;
    }
    for name in ["upper", "work", rootfs::union::UPPER_OWNERS] {
        let path = place.join(name);
        if path.symlink_metadata().is_ok() {
            ids::delete(context, &path).map_err(|error| {
                Report::new(format!("cannot remove {}", path.display())).because(error.to_string())
            })?;
        }
    }
    Ok(())
}
