//! `diff`.

use std::fmt::Write;

use crate::args::containers::DiffArgs;
use crate::container::{ids, record, root};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Lists what a container has other than its image.
pub(crate) fn run(context: &Context, args: &DiffArgs) -> Result<Exit, Report> {
    let store = context.store()?;
    let container = record::find(context, &args.container)?;
    let record = record::read(&container)?;
    if record.config.rootfs.is_some() {
        return Err(Report::new(format!(
            "{} was made of a plain directory, so there is nothing to compare it with",
            args.container
        )));
    }
    let trees = root::trees(context, store, &record)?;
    let root = root::prepare(context, store, &record, &container.path())?;
    ids::within_record(context, &record, &root, |ids| {
        let mut text = String::new();
        for change in rootfs::diff::diff(&trees, &root, ids)? {
            let path = String::from_utf8_lossy(&change.path).into_owned();
            let _ = writeln!(text, "{} /{path}", change.kind.letter());
        }
        output::print(&text)
    })?;
    Ok(Exit::OK)
}
