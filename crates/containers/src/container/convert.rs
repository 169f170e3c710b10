//! Converts a container's tree for an engine without mounts, and back for one with mounts.
//!
//! | its root | an engine with mounts | an engine without |
//! |---|---|---|
//! | layers and an upper (overlay) | as it is | one tree beneath the upper, which gets the other form where it is ([`super::layered`]); else as from one to the last |
//! | the image's tree and an upper | the upper gets the kernel's form where it is | as it is; what the kernel had written gets the other form |
//! | a copy of its own | as it is | the copy gets the form that such engines want |
//! | a whole tree of links | an overlay above it | as it is; what the overlay had written is merged into the tree |
//!
//! Engines whose programs write to the tree themselves have a whole tree of copies.
//!
//! A crash in between leaves a container that is whole: the tree is there before the record says
//! so, and from then on an overlay of tree and upper is what the container is, until the upper has
//! been merged. No program may run in it meanwhile.

use std::path::Path;

use engine::choose::{self, Engine};
use engine::facts::Facts;
use engine::plan::Neighbour;
use engine::spec::ContainerConfig;
use rootfs::{Driver, ImageTrees, Owners, drivers};
use rustix::fs::{CWD, Mode, OFlags};
use store::{ContainerDir, Store};
use sys::namespace::Kinds;

use super::record::{self, Record, RootForm};
use super::{ids, inode_log, layered, root_form, running, spool};
use crate::error::{Error, Result};
use crate::session::Session;

/// Pause between two looks whether another process has converted the container.
const TURN: std::time::Duration = std::time::Duration::from_millis(50);

/// Whether the programs of a running container run without mounts. The container's files tell,
/// because a process that is just starting has not left the host's namespaces yet; only where a
/// tree is used as it is, its process tells.
pub fn runs_plain(record: &Record, place: &Path, pid: u32) -> bool {
    if record.config.rootfs.is_some() {
        // The container around a tracer has the container's directory as its root.
        return Neighbour::of(pid)
            .is_none_or(|neighbour| !neighbour.own.has(Kinds::MOUNT) || neighbour.has_root(place));
    }
    match record.own.root_form.driver {
        Some(Driver::Layered) => !layered::was_mounted(place),
        driver => driver == Some(Driver::HardLink) && !place.join("upper").exists(),
    }
}

/// The engine for a run: that of the programs that run in the container already, unless another is
/// asked for; else the one that is asked for, or that fits.
pub fn engine(
    facts: &Facts,
    record: &Record,
    place: &Path,
    member: Option<u32>,
    exec: bool,
) -> Result<&'static dyn Engine> {
    let config = &record.config;
    let follows = exec || config.exec_mode.is_none() && config.rootfs.is_none();
    let Some(pid) = member.filter(|_| follows) else {
        return Ok(choose::choose(facts, None, config)?);
    };
    let plain = runs_plain(record, place, pid);
    let fits = |engine: &&dyn Engine| engine.root().is_tree() == plain;
    let asked = config.exec_mode.as_deref().and_then(choose::by_name).filter(fits);
    // Engines inside the process share more with each other than with a tracer.
    let inside = engine::launch::members::by_stage::home(pid).is_some();
    let usable = |engine: &&dyn Engine| {
        fits(engine)
            && (engine.properties().calls == choose::CallsBy::Process) == inside
            && !matches!(engine.probe(facts), choose::Fit::Unusable(_))
    };
    let engine = asked.or_else(|| choose::ENGINES.iter().copied().find(usable));
    Ok(choose::choose(facts, engine.map(Engine::name), config)?)
}

/// Brings a container into a form that an engine can use; says so where that takes work.
pub fn fit(
    session: &Session,
    store: &Store,
    container: &ContainerDir,
    record: &mut Record,
    engine: &dyn Engine,
) -> Result<()> {
    let place = container.path();
    if !engine.root().is_tree() || engine.root() == choose::RootKind::OwnTree {
        refuse_inside(container, engine)?;
    }
    let is_mounted = |driver: Driver| !matches!(driver, Driver::HardLink | Driver::Layered);
    let is_kernels = record.own.root_form.driver.is_none_or(is_mounted);
    if record.config.rootfs.is_some() || is_kernels && !engine.root().is_tree() {
        return Ok(());
    }
    let member = running::main_process(session, container.id());
    let differs = |pid| runs_plain(record, &place, pid) != engine.root().is_tree();
    if member.is_some_and(differs) {
        let title = record::title(container);
        return Err(Error::conflict(format!(
            "container {title} is running with another engine than {}",
            engine.name()
        ))
        .with_hint(format!("stop it first: coracle stop {title}")));
    }
    if is_ready(session, record, &place, engine) {
        return Ok(());
    }
    let mut stored;
    let _lock = loop {
        let lock = container.try_lock_exclusive()?;
        // Of several first runs at once one does it, and the others go on: its program may keep the
        // container for long.
        let running = running::not_running(container);
        stored = record::read(container)?;
        if is_ready(session, &stored, &place, engine) {
            record.own.root_form = stored.own.root_form;
            return Ok(());
        }
        running?;
        match lock {
            Some(lock) => break lock,
            None => std::thread::sleep(TURN),
        }
    };
    change(session, store, container, (&mut stored, engine))?;
    record.own.root_form = stored.own.root_form;
    Ok(())
}

/// Converts a container that nothing runs in.
fn change(
    session: &Session,
    store: &Store,
    container: &ContainerDir,
    (stored, engine): (&mut Record, &dyn Engine),
) -> Result<()> {
    let place = container.path();
    let is_layered = |record: &Record| record.own.root_form.driver == Some(Driver::Layered);
    if engine.root() == choose::RootKind::LinkedTree && !is_layered(stored) {
        layered::begin(session, store, container, stored)?;
    }
    if is_layered(stored) && engine.root() != choose::RootKind::OwnTree {
        let form = layered::Form::of(session, stored, engine.root().is_tree());
        layered::fit(session, store, (stored, &place), form)?;
        return layered::end(session, store, container, (stored, form));
    }
    if is_layered(stored) {
        layered::fit(session, store, (stored, &place), layered::Form::Kernel)?;
    }
    if stored.own.root_form.driver != Some(Driver::HardLink) {
        to_links(session, store, container, stored)?;
    }
    merge(session, &stored.config, &place)?;
    if engine.root() == choose::RootKind::OwnTree && is_shared(&place) {
        if place.join(drivers::ROOT).exists() {
            let title = record::title(container);
            session.note(&format!("{title} gets files of its own, for {}", engine.name()));
        } else {
            root_form::plain(session, store, stored, &place)?;
        }
        rootfs::linked::copy_shared_files(&spool::open_directory(&place)?)?;
    }
    Ok(())
}

/// Whether a container has the form that an engine wants.
fn is_ready(session: &Session, record: &Record, place: &Path, engine: &dyn Engine) -> bool {
    let root = engine.root();
    if record.own.root_form.driver == Some(Driver::Layered) {
        let form = layered::Form::of(session, record, root.is_tree());
        return root != choose::RootKind::OwnTree && layered::is_fit(place, form);
    }
    if !root.is_tree() {
        return true;
    }
    record.own.root_form.driver == Some(Driver::HardLink)
        && !place.join("upper").exists()
        && !(engine.root() == choose::RootKind::OwnTree && is_shared(place))
}

/// Whether files of a container's tree are the image's too, or there is no tree yet.
fn is_shared(place: &Path) -> bool {
    place.join(rootfs::owner_xattrs::INODES).exists() || !place.join(drivers::ROOT).exists()
}

/// Gives a container one whole tree on disk, as engines without mounts have it.
pub fn to_plain(
    session: &Session,
    store: &Store,
    container: &ContainerDir,
    record: &mut Record,
) -> Result<()> {
    let is_whole = |record: &Record, place: &Path| {
        record.config.rootfs.is_some()
            || record.own.root_form.driver == Some(Driver::HardLink)
                && !place.join("upper").exists()
    };
    let place = container.path();
    if is_whole(record, &place) {
        return Ok(());
    }
    let _lock = container.lock_exclusive()?;
    running::not_running(container)?;
    let mut stored = record::read(container)?;
    if !is_whole(&stored, &place) {
        if stored.own.root_form.driver == Some(Driver::Layered) {
            layered::fit(session, store, (&stored, &place), layered::Form::Kernel)?;
        }
        if stored.own.root_form.driver != Some(Driver::HardLink) {
            to_links(session, store, container, &mut stored)?;
        }
        merge(session, &stored.config, &place)?;
    }
    record.own.root_form = stored.own.root_form;
    Ok(())
}

/// Who is inside a container's processes remembers what it saw of the tree, and must be told of
/// changes: this engine would not.
fn refuse_inside(container: &ContainerDir, engine: &dyn Engine) -> Result<()> {
    let living = engine::launch::members::by_stage::all(&container.path());
    if living.is_empty() {
        return Ok(());
    }
    let title = record::title(container);
    let living: Vec<String> = living.iter().map(|process| process.pid.to_string()).collect();
    let remedy =
        format!("coracle stop {title}, or end what was left behind: kill {}", living.join(" "));
    Err(Error::conflict(format!(
        "programs run in container {title} with another engine than {}",
        engine.name()
    ))
    .with_hint(remedy))
}

/// Makes a container's tree one of links, or its copy one in the same form, and writes that down.
fn to_links(
    session: &Session,
    store: &Store,
    container: &ContainerDir,
    record: &mut Record,
) -> Result<()> {
    let place = container.path();
    let title = record::title(container);
    session.note(&format!("{title} gets a tree of its own, for an engine without mounts"));
    let layers = root_form::layers_of(session, store, &record.config)?;
    let _lease = store.lease()?;
    let tree = root_form::settled(store, &record.config, &layers)?.to_string();
    let root_form = RootForm { driver: Some(Driver::HardLink), tree: Some(tree), owners: None };
    let stacked = |driver: Driver| driver.is_stacked() || driver == Driver::Layered;
    let stacked = record.own.root_form.driver.is_none_or(stacked);
    if !stacked && place.join(drivers::ROOT).exists() {
        settle_copy(&place)?;
    } else {
        let own = record::Own { root_form: root_form.clone(), ..record.own.clone() };
        let wanted = Record { own, ..record.clone() };
        let trees: ImageTrees = root_form::trees(session, store, &wanted)?;
        rootfs::prepare(&place, &trees, Driver::HardLink)?;
    }
    inode_log::from_loose(&place)?;
    // The tree's files are the image's, which may have been made just now.
    store.sync_added()?;
    record.own.root_form = root_form;
    container.write(record)?;
    Ok(())
}

/// A copy that belongs to the container alone gets its form where it is.
fn settle_copy(place: &Path) -> Result<()> {
    let open = |path: &Path| {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|error| Error::failed(format!("cannot open {}", path.display())).cause(error))
    };
    let table = place.join(drivers::ROOT_OWNERS);
    let mut owners = Owners::read(&table)?;
    let settled =
        rootfs::owner_xattrs::convert_tree(open(&place.join(drivers::ROOT))?, &mut owners, false)?;
    inode_log::add(place, &settled.by_path)?;
    let _ = std::fs::remove_file(table);
    Ok(())
}

/// What an overlay had written above the tree goes into it.
fn merge(session: &Session, config: &ContainerConfig, place: &Path) -> Result<()> {
    if place.join("upper").exists() {
        ids::within(session, config, |ids| {
            rootfs::merge::merge_upper(place, ids)?;
            Ok(Vec::new())
        })?;
        inode_log::from_loose(place)?;
    }
    for name in ["upper", "work", rootfs::union::UPPER_OWNERS, rootfs::union::UPPER_NOTED] {
        let path = place.join(name);
        if path.symlink_metadata().is_ok() {
            ids::delete(session, &path).map_err(|error| {
                Error::failed(format!("cannot remove {}", path.display()))
                    .because(error.to_string())
            })?;
        }
    }
    Ok(())
}
