//! `clone`.

use std::path::Path;
use std::process::Command;

use crate::args::containers::CloneArgs;
use crate::container::{ids, launch, notes, record, spool};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// What a container has of its own on disk.
const OWN: [&str; 4] = ["upper", "ROOT", "owners", "upper.owners"];

/// Makes a copy of a container: the same image beneath, a copy of all that was changed above.
pub(crate) fn run(context: &Context, args: &CloneArgs) -> Result<Exit, Report> {
    let store = context.store()?;
    let source = record::find(context, &args.container)?;
    let mut record = record::read(&source)?;
    let _lock = source.lock_exclusive()?;
    super::rm::not_running(&source)?;
    let _lease = store.lease()?;
    record.config.created = engine::supervise::now();
    let copy = store.containers().create(args.name.as_deref(), |id, _| {
        id.clone_into(&mut record.config.id);
        record.clone()
    })?;
    let (from, to) = (source.path(), copy.path());
    let linked = record.own.stand.driver == Some(rootfs::Driver::HardLink);
    let tree = if linked { clone_links(&from, &to) } else { Ok(()) };
    let copied = tree.and_then(|()| {
        ids::within(context, &record.config, |_| {
            OWN.iter()
                .filter(|name| !(linked && matches!(**name, "ROOT" | "owners")))
                .filter(|name| from.join(name).symlink_metadata().is_ok())
                .try_for_each(|name| copy_tree(&from.join(name), &to.join(name)))
        })
    });
    if let Err(report) = copied {
        let _ = launch::remove_idle(context, &copy);
        return Err(report.within(format!("cannot copy {}", args.container)));
    }
    // Any number of files was copied: one sync for all.
    store.sync_all()?;
    copy.sync()?;
    output::line(copy.id())?;
    Ok(Exit::OK)
}

/// A tree of links: what the image has is shared by the copy too.
fn clone_links(from: &Path, to: &Path) -> Result<(), Report> {
    if !from.join(rootfs::drivers::ROOT).exists() {
        return Ok(());
    }
    notes::from_loose(from)?;
    notes::to_table(from)?;
    rootfs::linked::clone_tree(spool::open_directory(from)?, spool::open_directory(to)?)?;
    notes::add(to, &rootfs::Owners::read(&from.join(rootfs::drivers::ROOT_OWNERS))?)
}

/// Copies a tree with all its attributes, whiteouts and links by the host's `cp`, which shares blocks where it can.
fn copy_tree(from: &Path, to: &Path) -> Result<(), Report> {
    let answer = Command::new("cp")
        .args(["-a", "--"])
        .args([from, to])
        .output()
        .map_err(|error| Report::new("cannot run the host's cp").cause(error))?;
    if answer.status.success() {
        return Ok(());
    }
    Err(Report::new(format!("cannot copy {}", from.display()))
        .because(String::from_utf8_lossy(&answer.stderr)))
}
