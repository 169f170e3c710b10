//! `import`: an image of one layer, or a container, from a tree.

use std::path::Path;

use containers::container::imported;
use containers::images::import::{self, ImportRequest};
use containers::images::source::Source;
use containers::request::options;

use crate::args::archives::ImportArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Makes the image, and with `--tocontainer` or `--clone` a container; prints its id.
pub(crate) fn run(context: &Context, args: &ImportArgs) -> Result<Exit, Report> {
    let session = context.session_for(args.quiet)?;
    let request = ImportRequest {
        source: source(context, &args.source)?,
        name: args.name.clone(),
        changes: args.change.clone(),
        message: args.message.clone(),
        platform: args.platform.as_deref().map(options::platform).transpose()?,
        config: None,
    };
    let name = args.container.as_deref();
    if args.clone {
        let container = imported::of_archive(&session, request, name)?;
        output::line(context.presentation().id(container.id()))?;
    } else {
        let imported = import::import(&session, request)?;
        if args.tocontainer {
            let container = imported::of_image(&session, &imported, name)?;
            output::line(context.presentation().id(container.id()))?;
        } else {
            output::line(imported.id)?;
        }
    }
    remove_source(args)
}

/// A path, or standard input unless that is a terminal.
fn source(context: &Context, path: &Path) -> Result<Source, Report> {
    if path != Path::new("-") {
        return Ok(Source::Path(path.to_owned()));
    }
    if context.input_is_terminal() {
        return Err(Report::usage("standard input is a terminal, not an archive")
            .hint("redirect it: coracle import - NAME < root.tar"));
    }
    Ok(Source::Stream { reader: Box::new(std::io::stdin()), name: "-".to_owned() })
}

fn remove_source(args: &ImportArgs) -> Result<Exit, Report> {
    if args.remove_source && args.source != Path::new("-") {
        std::fs::remove_file(&args.source).map_err(|error| {
            Report::new(format!("cannot remove {}", args.source.display())).cause(error)
        })?;
    }
    Ok(Exit::OK)
}
