//! `rename`, `name`, `rmname`.

use containers::container::control;

use crate::args::containers::{NameArgs, RenameArgs, RmnameArgs};
use crate::context::Context;
use crate::report::{Exit, Report};

/// `rename`.
pub(crate) fn rename(context: &Context, args: &RenameArgs) -> Result<Exit, Report> {
    control::rename(context.session()?, &args.container, &args.name)?;
    Ok(Exit::OK)
}

/// `name`.
pub(crate) fn add(context: &Context, args: &NameArgs) -> Result<Exit, Report> {
    control::add_name(context.session()?, &args.container, &args.name)?;
    Ok(Exit::OK)
}

/// `rmname`.
pub(crate) fn remove(context: &Context, args: &RmnameArgs) -> Result<Exit, Report> {
    control::remove_name(context.session()?, &args.name)?;
    Ok(Exit::OK)
}
