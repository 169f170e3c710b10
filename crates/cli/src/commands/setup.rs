//! `setup`: the execution mode and the GPUs that a container keeps.

use containers::container::setup;

use crate::args::containers::SetupArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Keeps a mode, or prints the one that is kept or would be chosen.
pub(crate) fn run(context: &Context, args: &SetupArgs) -> Result<Exit, Report> {
    let (session, name) = (context.session()?, &args.container);
    let sets_gpus = args.nvidia || args.gpus.is_some();
    if sets_gpus {
        setup::set_gpus(session, name, args.gpus.as_deref(), args.nvidia)?;
    }
    match &args.execmode {
        Some(mode) => setup::set_mode(session, name, mode, args.force)?,
        None if sets_gpus || args.fixperm || args.purge => {
            // Nothing has to be mended or purged; the container must exist.
            containers::container::record::find(session, name)?;
        }
        None => {
            let mode = setup::mode(session, name)?;
            let own_lines = context.presentation().own_lines;
            let kept = if mode.kept || own_lines { "" } else { " (chosen for this host)" };
            output::line(format!("execmode: {}{kept}", mode.name))?;
            if own_lines {
                output::line(format!("nvidiamode: {}", if mode.gpus { "True" } else { "False" }))?;
            }
        }
    }
    Ok(Exit::OK)
}
