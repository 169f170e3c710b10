//! `exec`.

use containers::container::exec::{self, ExecRequest};

use crate::args::containers::ExecArgs;
use crate::args::request;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Runs a further command in a running container.
pub(crate) fn run(context: &Context, args: &ExecArgs) -> Result<Exit, Report> {
    let process = &args.process;
    let (mut env, flags) =
        request::variables(&process.env_file, &process.env, context.surroundings())?;
    env.extend(flags);
    let request = ExecRequest {
        container: args.container.clone(),
        command: args.given.command.clone(),
        env,
        workdir: process.workdir.clone(),
        user: process.user.clone(),
        tty: process.tty,
        interactive: process.interactive,
        detach: args.detach,
        detach_keys: args.detach_keys.clone(),
    };
    output::ended(exec::exec(context.session()?, &request)?)
}
