//! `pause` and `unpause`.

use containers::container::control;

use crate::args::containers::PauseArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// `pause`.
pub(crate) fn run(context: &Context, args: &PauseArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    super::each(&args.containers, |name| {
        control::pause(session, name)?;
        output::line(name)
    })
}

/// `unpause`.
pub(crate) fn unpause(context: &Context, args: &PauseArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    super::each(&args.containers, |name| {
        control::unpause(session, name)?;
        output::line(name)
    })
}
