//! `rename`, `name`, `rmname`.

use crate::args::containers::{NameArgs, RenameArgs, RmnameArgs};
use crate::context::Context;
use crate::report::{Exit, Report};
use containers::container::record;

/// `rename`.
pub(crate) fn rename(context: &Context, args: &RenameArgs) -> Result<Exit, Report> {
    let mut container = record::find(context.session()?, &args.container)?;
    // A container may have several names: the one that was typed is replaced, else all.
    let old = container.names()?.into_iter().find(|name| *name == args.container);
    container.rename(old.as_deref(), &args.name)?;
    Ok(Exit::OK)
}

/// `name`.
pub(crate) fn add(context: &Context, args: &NameArgs) -> Result<Exit, Report> {
    record::find(context.session()?, &args.container)?.add_name(&args.name)?;
    Ok(Exit::OK)
}

/// `rmname`.
pub(crate) fn remove(context: &Context, args: &RmnameArgs) -> Result<Exit, Report> {
    let mut container = record::find(context.session()?, &args.name)?;
    if !container.remove_name(&args.name)? {
        return Err(Report::new(format!("'{}' is no name of a container", args.name))
            .hint("ids stay; 'coracle ps -a' lists names"));
    }
    Ok(Exit::OK)
}
