//! `kill`.

use crate::args::containers::KillArgs;
use crate::container::{record, spec};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Sends a signal to each container's main process.
pub(crate) fn run(context: &Context, args: &KillArgs) -> Result<Exit, Report> {
    let signal = spec::check_signal(&args.signal)?;
    super::each(&args.containers, |name| {
        let container = record::find(context, name)?;
        engine::supervise::kill(&container.path(), signal)
            .map_err(|error| Report::from(error).within(format!("cannot kill {name}")))?;
        output::line(name)
    })
}
