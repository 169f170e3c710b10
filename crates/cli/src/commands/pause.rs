//! `pause` and `unpause`.

use crate::args::containers::PauseArgs;
use crate::container::record;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// `pause`.
pub(crate) fn run(context: &Context, args: &PauseArgs) -> Result<Exit, Report> {
    super::each(&args.containers, |name| {
        engine::supervise::pause(&record::find(context, name)?.path())?;
        output::line(name)
    })
}

/// `unpause`.
pub(crate) fn unpause(context: &Context, args: &PauseArgs) -> Result<Exit, Report> {
    super::each(&args.containers, |name| {
        engine::supervise::unpause(&record::find(context, name)?.path())?;
        output::line(name)
    })
}
