//! `exec`.

use containers::container::exec::{self, ExecRequest};

use crate::args::containers::ExecArgs;
use crate::args::request;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Runs a further command in a running container.
pub(crate) fn run(context: &Context, args: &ExecArgs) -> Result<Exit, Report> {
    let (mut env, flags) = request::variables(&args.env_file, &args.env, context.surroundings())?;
    env.extend(flags);
    let request = ExecRequest {
        container: args.container.clone(),
        command: args.command.clone(),
        env,
        workdir: args.workdir.clone(),
        user: args.user.clone(),
        tty: args.tty,
        interactive: args.interactive,
        detach: args.detach,
        detach_keys: args.detach_keys.clone(),
    };
    output::ended(exec::exec(context.session()?, &request)?)
}
