//! `top`: the processes of a container, by numbers of the host.

use crate::args::containers::TopArgs;
use crate::context::Context;
use crate::output::{self, table};
use crate::report::{Exit, Report};
use containers::container::record;

/// Prints our own table, or the host's `ps` with the user's options for these processes.
pub(crate) fn run(context: &Context, args: &TopArgs) -> Result<Exit, Report> {
    let container = record::find(context.session()?, &args.container)?;
    let processes = engine::supervise::top(&container.path()).map_err(|error| {
        Report::from(error).within(format!("cannot list the processes of {}", args.container))
    })?;
    if args.options.is_empty() {
        let mut lines = vec!["UID\tPID\tPPID\tSTATE\tCMD".to_owned()];
        for process in &processes {
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
        return Ok(Exit::OK);
    }
    let pids: Vec<String> = processes.iter().map(|process| process.stat.pid.to_string()).collect();
    let answer = std::process::Command::new("ps")
        .args(&args.options)
        .arg("-p")
        .arg(pids.join(","))
        .output()
        .map_err(|error| {
            Report::new("cannot run the host's ps")
                .cause(error)
                .hint("without options no ps is needed")
        })?;
    if !answer.status.success() {
        return Err(
            Report::new("the host's ps failed").because(String::from_utf8_lossy(&answer.stderr))
        );
    }
    output::print(&String::from_utf8_lossy(&answer.stdout))?;
    Ok(Exit::OK)
}
