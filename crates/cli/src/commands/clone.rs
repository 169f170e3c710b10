//! `clone`.

use containers::container::clone;

use crate::args::containers::CloneArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Makes a copy of a container and prints its id.
pub(crate) fn run(context: &Context, args: &CloneArgs) -> Result<Exit, Report> {
    let copy = clone::clone(context.session()?, &args.container, args.name.as_deref())?;
    output::line(context.presentation().id(copy.id()))?;
    Ok(Exit::OK)
}
