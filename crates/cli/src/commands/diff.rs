//! `diff`.

use std::fmt::Write;

use containers::container::changes;

use crate::args::containers::DiffArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Lists what a container has other than its image.
pub(crate) fn run(context: &Context, args: &DiffArgs) -> Result<Exit, Report> {
    let mut text = String::new();
    for change in changes::changes(context.session()?, &args.container)? {
        let _ = writeln!(text, "{} /{}", change.kind, String::from_utf8_lossy(&change.path));
    }
    output::print(&text)?;
    Ok(Exit::OK)
}
