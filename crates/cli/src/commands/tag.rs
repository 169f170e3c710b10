//! `tag`.

use crate::args::images::TagArgs;
use crate::context::Context;
use crate::report::{Exit, Report};
use containers::container::protection;
use containers::images::{find as image, remote};

/// Runs it.
pub(crate) fn run(context: &Context, args: &TagArgs) -> Result<Exit, Report> {
    let source = image::stored(context.session()?, &args.source)?;
    let target = remote::reference(context.session()?, &args.target)?;
    if target.is_digest() {
        return Err(Report::usage(format!(
            "'{}' names a digest, which cannot be chosen",
            args.target
        ))
        .hint("write NAME[:TAG]"));
    }
    if context.presentation().keeps_names {
        protection::check_image(&source, &args.source)?;
        if context.store()?.images().get(&target)?.is_some() {
            return Err(Report::new(format!("there is an image {} already", target.familiar())));
        }
    }
    context.store()?.images().tag(&target, source.descriptor())?;
    Ok(Exit::OK)
}
