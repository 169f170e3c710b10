//! `load`: images from an archive or a layout, from a file or standard input.

use std::path::Path;

use containers::images::load::{self, LoadRequest};
use containers::images::source::Source;
use containers::request::options;

use crate::args::archives::LoadArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Loads images and prints their names.
pub(crate) fn run(context: &Context, args: &LoadArgs) -> Result<Exit, Report> {
    let platform = args.platform.as_deref().map(options::platform).transpose()?;
    let session = context.session_for(args.quiet)?;
    let source = match args.input.as_deref().filter(|path| *path != Path::new("-")) {
        Some(path) => Source::Path(path.to_owned()),
        None if context.input_is_terminal() => {
            return Err(Report::usage("standard input is a terminal, not an archive")
                .hint("name a file: coracle load --input FILE"));
        }
        None => {
            let name = "standard input".to_owned();
            Source::Stream { reader: Box::new(std::io::stdin()), name }
        }
    };
    let said = if context.presentation().bare_names { "" } else { "Loaded image: " };
    for names in load::load(&session, LoadRequest { source, name: args.name.clone(), platform })? {
        for name in names? {
            output::line(format!("{said}{}", name.familiar()))?;
        }
    }
    Ok(Exit::OK)
}
