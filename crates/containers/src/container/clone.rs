//! Copies a container: the same image beneath, a copy of all that was changed above.

use std::path::Path;
use std::process::Command;

use store::{ContainerDir, Store};

use super::{ids, inode_log, layered, record, removal, root_form, running, spool, told};
use crate::error::{Error, Result};
use crate::session::Session;

/// What a container has of its own on disk.
const OWN: [&str; 5] = ["upper", "ROOT", "owners", "upper.owners", "moved"];

/// Makes the copy of a container that does not run.
pub fn clone(session: &Session, name: &str, new_name: Option<&str>) -> Result<ContainerDir> {
    let store = session.store()?;
    let source = record::find(session, name)?;
    let mut record = record::read(&source)?;
    let _lock = source.lock_exclusive()?;
    running::not_running(&source)?;
    let _lease = store.lease()?;
    record.config.created = engine::supervise::now();
    let copy = store.containers().create(new_name, |id, _| {
        id.clone_into(&mut record.config.id);
        record.clone()
    })?;
    let (from, to) = (source.path(), copy.path());
    let linked = record.own.root_form.driver == Some(rootfs::Driver::HardLink);
    let is_layered = record.own.root_form.driver == Some(rootfs::Driver::Layered)
        && !layered::was_mounted(&from);
    let has_upper = from.join("upper").exists();
    let tree = match () {
        () if linked => clone_links(&from, &to),
        () if is_layered && has_upper => clone_upper(store, &record, &from, &to),
        () => Ok(()),
    };
    if has_upper {
        inode_log::to_upper_table(&from)?;
    }
    let copied = tree.and_then(|()| {
        ids::within(session, &record.config, |_| {
            OWN.iter()
                .filter(|name| !(linked && matches!(**name, "ROOT" | "owners")))
                .filter(|name| !(is_layered && matches!(**name, "upper" | "moved")))
                .filter(|name| from.join(name).symlink_metadata().is_ok())
                .try_for_each(|name| copy_tree(&from.join(name), &to.join(name)))?;
            Ok(Vec::new())
        })
    });
    if let Err(error) = copied.and_then(|_| session.cancel().check()) {
        let _ = removal::remove_idle(session, &copy, removal::Unnamed::Keep);
        return Err(error.within(format!("cannot copy {name}")));
    }
    if has_upper {
        // The copies are other inodes than those of the log, and than the image's.
        root_form::add_to_side_table(&to, &root_form::side_table(&from)?)?;
        if record.own.root_form.driver == Some(rootfs::Driver::Layered) {
            let image = root_form::trees(session, store, &record)?;
            let shared = rootfs::union::shared_owners(&from.join("upper"), &image)?;
            root_form::add_to_side_table(&to, &shared)?;
            rootfs::drivers::share_records(&to, &image)?;
            if !is_layered {
                layered::note_mounted(&to)?;
            }
        }
    }
    // Any number of files was copied: one sync for all.
    store.sync_all()?;
    copy.sync()?;
    told::tell(session, "create", &copy, &record);
    Ok(copy)
}

/// An upper directory above the image's tree: it may have files of that under other names.
fn clone_upper(store: &Store, record: &record::Record, from: &Path, to: &Path) -> Result<()> {
    let Some(tree) = root_form::lower(store, record)? else { return Ok(()) };
    let tree = spool::open_directory(tree.parent().unwrap_or(&tree))?;
    let (from, to) = (spool::open_directory(from)?, spool::open_directory(to)?);
    rootfs::linked::clone_upper(from, to, tree)?;
    Ok(())
}

/// A tree of links: what the image has is shared by the copy too.
fn clone_links(from: &Path, to: &Path) -> Result<()> {
    if !from.join(rootfs::drivers::ROOT).exists() {
        return Ok(());
    }
    inode_log::from_loose(from)?;
    inode_log::to_table(from)?;
    rootfs::linked::clone_tree(spool::open_directory(from)?, spool::open_directory(to)?)?;
    inode_log::add(to, &rootfs::Owners::read(&from.join(rootfs::drivers::ROOT_OWNERS))?)
}

/// Copies a tree with all its attributes, whiteouts and links by the host's `cp`, which shares
/// blocks where it can.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let answer = Command::new("cp")
        .args(["-a", "--"])
        .args([from, to])
        .output()
        .map_err(|error| Error::failed("cannot run the host's cp").cause(error))?;
    if answer.status.success() {
        return Ok(());
    }
    Err(Error::failed(format!("cannot copy {}", from.display()))
        .because(String::from_utf8_lossy(&answer.stderr)))
}
