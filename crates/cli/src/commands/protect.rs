//! `protect` and `unprotect`.

use containers::protect;

use crate::args::containers::ProtectArgs;
use crate::context::Context;
use crate::report::{Exit, Report};

/// `protect`.
pub(crate) fn protect(context: &Context, args: &ProtectArgs) -> Result<Exit, Report> {
    protect::mark(context.session()?, &args.name, true)?;
    Ok(Exit::OK)
}

/// `unprotect`.
pub(crate) fn unprotect(context: &Context, args: &ProtectArgs) -> Result<Exit, Report> {
    protect::mark(context.session()?, &args.name, false)?;
    Ok(Exit::OK)
}
