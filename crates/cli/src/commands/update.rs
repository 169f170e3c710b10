//! `update`.

use containers::container::update::{self, Changes};
use containers::request::options;

use crate::args::containers::UpdateArgs;
use crate::args::request;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Runs it.
pub(crate) fn run(context: &Context, args: &UpdateArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    let restart = args.restart.as_deref().map(options::restart).transpose()?;
    let changes = Changes { restart, ..request::changes(&args.limits)? };
    super::each(&args.containers, |name| {
        update::update(session, name, &changes)?;
        output::line(name)
    })
}
