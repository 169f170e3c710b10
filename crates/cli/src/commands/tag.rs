//! `tag`.

use containers::images::tag::{self, TagRequest};

use crate::args::images::TagArgs;
use crate::context::Context;
use crate::report::{Exit, Report};

/// Gives an image a further name.
pub(crate) fn run(context: &Context, args: &TagArgs) -> Result<Exit, Report> {
    let request = TagRequest {
        source: args.source.clone(),
        target: args.target.clone(),
        keep: context.presentation().keeps_names,
    };
    tag::tag(context.session()?, &request)?;
    Ok(Exit::OK)
}
