//! `verify`.

use store::VerifyOptions;

use crate::args::images::VerifyArgs;
use crate::context::Context;
use crate::image;
use crate::output::{self, size};
use crate::progress::{Progress, Style};
use crate::report::{Exit, Report};

/// Hashes every stored blob and follows every reference; prints what is wrong.
pub(crate) fn run(context: &Context, args: &VerifyArgs) -> Result<Exit, Report> {
    let store = context.store()?;
    let mut only = Vec::new();
    for name in &args.images {
        only.push(image::stored(context, name)?);
    }
    let style = Style::choose(args.quiet || context.global.quiet, context.settings()?.progress);
    let progress = Progress::new(if style == Style::Plain { Style::Silent } else { style });
    let read = std::sync::atomic::AtomicU64::new(0);
    if only.is_empty() {
        progress.expect(store.blobs().list()?.iter().map(|(_, size)| size).sum());
    }
    let watch = |bytes: u64| {
        read.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        progress.advance(bytes, true);
    };
    let problems = store.verify(&VerifyOptions {
        progress: Some(&watch),
        only,
        ..VerifyOptions::default()
    })?;
    progress.finish();
    for problem in &problems {
        output::line(problem)?;
    }
    if problems.is_empty() {
        if !args.quiet {
            output::line(format!("{} read, nothing is wrong", size::human(read.into_inner())))?;
        }
        return Ok(Exit::OK);
    }
    Err(Report::new(format!("{} things are wrong", problems.len()))
        .hint("pull or load the images again: what is damaged is replaced")
        .exit(Exit(1)))
}
