//! `start`.

use containers::container::{control, launch};

use crate::args::containers::StartArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Starts containers: in the background, or one in the foreground with `--attach`.
pub(crate) fn run(context: &Context, args: &StartArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    launch::seal_for(session, &args.containers)?;
    if args.attach || args.interactive {
        let [name] = args.containers.as_slice() else {
            return Err(Report::usage("only one container can be attached to"));
        };
        let keys = args.detach_keys.as_deref();
        return output::ended(control::start_attached(session, name, args.interactive, keys)?);
    }
    super::each(&args.containers, |name| {
        control::start(session, name)?;
        output::line(name)
    })
}
