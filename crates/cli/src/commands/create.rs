//! `create`.

use crate::args::run::CreateArgs;
use crate::container::{launch, make, record};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use crate::udocker;

/// Makes a container and prints its id.
pub(crate) fn run(context: &Context, args: &CreateArgs) -> Result<Exit, Report> {
    if args.force
        && let Some(name) = &args.flags.record.name
        && let Some(old) = record::named(context, name)?
    {
        super::protect::check_container(&old)?;
        if !launch::remove_idle(context, &old)? {
            return Err(super::rm::running(&old));
        }
    }
    let mut flags = args.flags.clone();
    if context.is_udocker() {
        udocker::adapt(context, &mut flags);
    }
    let (made, _) = make::make(context, &flags, args.image.as_deref(), &args.command, args.quiet)?;
    let container = made.container();
    if context.is_udocker() {
        udocker::legacy::announce(context, container)?;
    }
    container.sync()?;
    output::line(container.id())?;
    Ok(Exit::OK)
}
