//! `kill`.

use containers::container::control;
use containers::request::options;

use crate::args::containers::KillArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Sends a signal to each container's main process.
pub(crate) fn run(context: &Context, args: &KillArgs) -> Result<Exit, Report> {
    let signal = options::signal(&args.signal)?;
    let session = context.session()?;
    super::each(&args.containers, |name| {
        control::kill(session, name, signal)?;
        output::line(name)
    })
}
