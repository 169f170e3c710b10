//! `pull`.

use containers::images::pull::{PullRequest, Remote};
use containers::request::options;

use crate::args::images::PullArgs;
use crate::args::request;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Pulls images and prints what Docker prints at the end: digest, state, and last the whole name.
pub(crate) fn run(context: &Context, args: &PullArgs) -> Result<Exit, Report> {
    let PullArgs { quiet, platform, all_tags, no_unpack, registry, images, udocker: _ } = args;
    let session = context.session_for(*quiet)?;
    let mut request = PullRequest {
        name: String::new(),
        platform: platform.as_deref().map(options::platform).transpose()?,
        all_tags: *all_tags,
        unpack: !no_unpack,
        registry: request::registry(registry),
    };
    for name in images {
        request.name.clone_from(name);
        let remote = Remote::find(&session, &request)?;
        for reference in remote.references() {
            let pulled = remote.pull(reference)?;
            if !quiet {
                let found =
                    if pulled.unchanged { "Image is up to date" } else { "Downloaded newer image" };
                output::line(format!("Digest: {}", pulled.digest))?;
                output::line(format!("Status: {found} for {}", reference.familiar()))?;
            }
            output::line(reference)?;
        }
    }
    Ok(Exit::OK)
}
