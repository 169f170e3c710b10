//! `wait`.

use engine::supervise::{self, Waited};

use crate::args::containers::WaitArgs;
use crate::container::record;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Waits for each container in turn and prints its exit code.
pub(crate) fn run(context: &Context, args: &WaitArgs) -> Result<Exit, Report> {
    super::each(&args.containers, |name| {
        let container = record::find(context, name)?;
        match supervise::wait(&container.path())? {
            Waited::Code(code) => output::line(code),
            Waited::Unknown => Err(Report::new(format!("{name} has ended, but nobody saw how"))
                .hint("a program that runs without supervisor gives its exit code to whoever started it; use -d")),
        }
    })
}
