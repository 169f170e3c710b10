//! The forms of an upper directory above an image's tree: the kernel's, which engines with mounts
//! use, and that of engines without mounts.
//!
//! What is in the work directory beside it tells that it is the kernel's: the kernel keeps a
//! directory there, and it is made before the first mount, for others to see who runs in the
//! container. A log tells that it has what the kernel must not see ([`rootfs::unshare`]).

use std::path::Path;

use rootfs::{Driver, Owners};
use store::{ContainerDir, Store};

use super::record::Record;
use super::{ids, inode_log, root_form};
use crate::error::{Error, Result};
use crate::session::Session;

/// The work directory of overlay, and the upper one.
const WORK: &str = "work";
const UPPER: &str = "upper";

/// What an engine needs of an upper directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Records, as engines without mounts write them.
    Records,
    /// Nothing that the kernel does not know. Owners are records all the same, which the view
    /// shows.
    Kernel,
    /// The same with true owners on the disk.
    Owners,
}

impl Form {
    /// What engines want that mount nothing (`plain`), or do.
    pub(super) fn of(session: &Session, record: &Record, plain: bool) -> Self {
        match plain {
            true => Self::Records,
            false if ids::are_on_disk(session, &record.config) => Self::Owners,
            false => Self::Kernel,
        }
    }
}

/// Whether the upper directory has a form.
pub(super) fn is_fit(place: &Path, form: Form) -> bool {
    match form {
        Form::Records => !was_mounted(place),
        Form::Kernel | Form::Owners => !rootfs::unshare::is_shared(place) && was_mounted(place),
    }
}

/// Whether the upper directory is the kernel's to mount, or was since it got the form of engines
/// without mounts.
pub(super) fn was_mounted(place: &Path) -> bool {
    place.join(WORK).read_dir().is_ok_and(|mut names| names.next().is_some())
}

/// Has a container's own changes lie above one tree of its image, where that is possible. The
/// record goes first: a tree that the kernel shows beneath is as good as layers.
pub(super) fn begin(
    session: &Session,
    store: &Store,
    container: &ContainerDir,
    record: &mut Record,
) -> Result<()> {
    let form = &record.own.root_form;
    if !form.driver.is_none_or(Driver::is_stacked) || !root_form::has_index(record) {
        return Ok(());
    }
    let _lease = store.lease()?;
    let layers = root_form::layers_of(session, store, &record.config)?;
    let wanted = root_form::without_mounts(store, &record.config, &layers, true)?;
    if wanted.driver != Some(Driver::Layered) {
        return Ok(());
    }
    store.sync_added()?;
    let place = container.path();
    // Before the record: what it has is not in the form of engines without mounts.
    if place.join(UPPER).exists() && !was_mounted(&place) {
        note_mounted(&place)?;
    }
    record.own.root_form = wanted;
    container.write(record)?;
    Ok(rootfs::drivers::share_records(&place, &root_form::trees(session, store, record)?)?)
}

/// Has an upper directory count as one that the kernel had mounted.
pub(super) fn note_mounted(place: &Path) -> Result<()> {
    let mark = place.join(WORK).join(WORK);
    std::fs::create_dir_all(&mark)
        .map_err(|error| Error::failed(format!("cannot make {}", mark.display())).cause(error))
}

/// Gives the upper directory a form.
pub(super) fn fit(
    session: &Session,
    store: &Store,
    (record, place): (&Record, &Path),
    form: Form,
) -> Result<()> {
    if is_fit(place, form) {
        return Ok(());
    }
    let image = root_form::trees(session, store, record)?;
    if form != Form::Records {
        rootfs::unshare::unshare(place, &image)?;
        note_mounted(place)?;
        return if form == Form::Owners { give_owners(session, record, place) } else { Ok(()) };
    }
    if place.join(UPPER).exists() {
        inode_log::to_upper_table(place)?;
        ids::within(session, &record.config, |ids| {
            let write = |records: &Owners| inode_log::add_to_upper(place, records);
            write(&rootfs::settle::records(place, ids)?)?;
            write(&rootfs::settle::settle(place, &image, ids)?)?;
            Ok(Vec::new())
        })?;
    }
    for name in [rootfs::union::UPPER_OWNERS, rootfs::union::UPPER_NOTED, WORK] {
        remove(session, &place.join(name))?;
    }
    std::fs::create_dir(place.join(WORK))
        .map_err(|error| Error::failed(format!("cannot make {WORK}")).cause(error))
}

/// Has the image's layers be beneath an upper directory with true owners, where they are still
/// there: they have true owners as well.
pub(super) fn end(
    session: &Session,
    store: &Store,
    container: &ContainerDir,
    (record, form): (&mut Record, Form),
) -> Result<()> {
    if form != Form::Owners {
        return Ok(());
    }
    let _lease = store.lease()?;
    if let Some(form) = root_form::with_true_owners(session, store, &record.config)? {
        store.sync_added()?;
        record.own.root_form = form;
        container.write(record)?;
    }
    Ok(())
}

/// Has the disk say what the records did.
fn give_owners(session: &Session, record: &Record, place: &Path) -> Result<()> {
    if !place.join(UPPER).exists() {
        return Ok(());
    }
    inode_log::to_upper_table(place)?;
    ids::within(session, &record.config, |_| {
        rootfs::unsettle::unsettle(place)?;
        Ok(Vec::new())
    })?;
    let tables = [inode_log::NOTES, rootfs::union::UPPER_OWNERS, rootfs::union::UPPER_NOTED];
    tables.iter().try_for_each(|name| remove(session, &place.join(name)))
}

fn remove(session: &Session, path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    ids::delete(session, path).map_err(|error| {
        Error::failed(format!("cannot remove {}", path.display())).because(error.to_string())
    })
}
