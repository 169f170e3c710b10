//! `create`.

use containers::container::make;

use crate::args::request;
use crate::args::run::CreateArgs;
use crate::context::Context;
use crate::report::{Exit, Report};
use crate::{output, udocker};

/// Makes a container and prints its id.
pub(crate) fn run(context: &Context, args: &CreateArgs) -> Result<Exit, Report> {
    let mut flags = args.flags.clone();
    if context.presentation().as_udocker {
        udocker::adapt(context.on_terminal(), &mut flags);
    }
    let image = args.image.as_deref();
    let request = request::container(&flags, image, &args.command, context.surroundings())?;
    let session = context.session_for(args.quiet)?;
    let container = make::create(&session, &request, args.force)?;
    output::line(context.presentation().id(container.id()))?;
    Ok(Exit::OK)
}
