//! `top`: the processes of a container, by numbers of the host.

use containers::container::look;

use crate::args::containers::TopArgs;
use crate::context::Context;
use crate::output::{self, table};
use crate::report::{Exit, Report};

/// Prints a table of its own, or that of the host's `ps` with the user's options.
pub(crate) fn run(context: &Context, args: &TopArgs) -> Result<Exit, Report> {
    let (session, name) = (context.session()?, &args.container);
    if !args.options.is_empty() {
        output::print(&look::processes_by_ps(session, name, &args.options)?)?;
        return Ok(Exit::OK);
    }
    let mut lines = vec!["UID\tPID\tPPID\tSTATE\tCMD".to_owned()];
    for process in &look::processes(session, name)? {
        let command = if process.command.is_empty() {
            format!("[{}]", process.stat.name)
        } else {
            process.command.join(" ")
        };
        let stat = &process.stat;
        lines.push(format!(
            "{}\t{}\t{}\t{}\t{}",
            process.uid,
            stat.pid,
            stat.parent,
            stat.state,
            table::cell(&command)
        ));
    }
    output::print(&table::columns(&lines))?;
    Ok(Exit::OK)
}
