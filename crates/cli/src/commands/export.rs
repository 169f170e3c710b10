//! `export`.

use containers::container::export;

use crate::args::archives::ExportArgs;
use crate::context::Context;
use crate::output::file::Target;
use crate::report::{Exit, Report};

/// Writes a container's whole tree.
pub(crate) fn run(context: &Context, args: &ExportArgs) -> Result<Exit, Report> {
    let name = match &args.container[..] {
        [name] => name,
        // As udocker: `export - NAME`.
        [stream, name] if stream == "-" && args.output.is_none() => name,
        _ => return Err(Report::usage("only one container can be written at a time")),
    };
    let target = Target::open(args.output.as_deref())?;
    export::export(context.session()?, name, args.clone, &mut target.writer()?)?;
    target.finish()?;
    Ok(Exit::OK)
}
