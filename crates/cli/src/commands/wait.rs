//! `wait`.

use containers::container::control;

use crate::args::containers::WaitArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Waits for each container in turn and prints its exit code.
pub(crate) fn run(context: &Context, args: &WaitArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    super::each(&args.containers, |name| output::line(control::wait(session, name)?))
}
