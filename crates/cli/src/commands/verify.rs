//! `verify`.

use containers::storage::verify::{self, VerifyRequest};

use crate::args::images::VerifyArgs;
use crate::context::{Context, Show};
use crate::output::{self, size};
use crate::report::{Exit, Report};

/// Checks the store and prints what is wrong.
pub(crate) fn run(context: &Context, args: &VerifyArgs) -> Result<Exit, Report> {
    let show = Show { quiet: args.quiet, bars_only: true, ..Show::default() };
    let session = context.session_showing(show)?;
    let request = VerifyRequest { images: args.images.clone(), repair: args.repair };
    let says = context.presentation().own_lines && !args.quiet && !context.is_quiet();
    for image in args.images.iter().filter(|_| says) {
        output::line(format!("Info: verifying: {image}"))?;
    }
    let verified = verify::verify(&session, &request)?;
    for problem in &verified.problems {
        output::line(problem)?;
    }
    let count = match verified.problems.len() {
        0 => {
            if says {
                output::line("Info: image Ok")?;
            } else if !args.quiet && !context.presentation().own_lines {
                let read = size::human(verified.read);
                output::line(format!("{read} read, nothing is wrong"))?;
            }
            return Ok(Exit::OK);
        }
        1 => "one thing is wrong".to_owned(),
        several => format!("{several} things are wrong"),
    };
    let hint = if args.repair {
        "what was damaged is removed: pull or load the images again"
    } else {
        "coracle verify --repair removes what is damaged; then pull or load the images again"
    };
    Err(Report::new(count).hint(hint).exit(Exit(1)))
}
