//! `create`.

use crate::args::run::CreateArgs;
use crate::container::{launch, make, record};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Makes a container and prints its id.
pub(crate) fn run(context: &Context, args: &CreateArgs) -> Result<Exit, Report> {
    if args.force
        && let Some(name) = &args.flags.record.name
        && let Some(old) = record::find_some(context, name)?
    {
        super::rm::not_running(&old)?;
        launch::remove_now(context, old)?;
    }
    let (container, _) =
        make::make(context, &args.flags, args.image.as_deref(), &args.command, args.quiet)?;
    output::line(container.id())?;
    Ok(Exit::OK)
}
