//! `rmi`.

use crate::args::images::RmiArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use containers::images::find as image;
use containers::udocker::legacy;

use crate::terminal;

/// Runs it: every image is tried, and the first failure reported at the end.
pub(crate) fn run(context: &Context, args: &RmiArgs) -> Result<Exit, Report> {
    let store = context.store()?;
    let mut names = args.images.clone();
    if args.all {
        names.extend(store.images().list()?.iter().filter(|image| image.is_own()).map(|image| {
            image
                .reference()
                .map_or_else(|| image.digest().to_string(), |reference| reference.to_string())
        }));
    }
    let mut failure = None;
    for name in &names {
        if let Err(report) = remove(context, name, args.force) {
            match failure {
                None => failure = Some(report),
                Some(_) => report.show(),
            }
        }
    }
    failure.map_or(Ok(Exit::OK), |report| Err(report.exit(Exit(1))))
}

fn remove(context: &Context, name: &str, force: bool) -> Result<(), Report> {
    let store = context.store()?;
    legacy::check_image_removable(context.session()?, name)?;
    let known = image::stored(context.session()?, name)?;
    containers::container::protection::check_image(&known, name)?;
    // The store takes the canonical name, which may have the configured registry; an id stays one.
    let canonical = match (
        containers::images::remote::reference(context.session()?, name),
        known.reference(),
    ) {
        (Ok(asked), Some(found)) if asked == found => asked.to_string(),
        _ => name.to_owned(),
    };
    let removal = store.images().remove(&canonical, force)?;
    for name in &removal.untagged {
        let familiar = oci::Reference::parse(name)
            .map_or_else(|_| name.clone(), |reference| reference.familiar());
        output::line(format!("Untagged: {familiar}"))?;
    }
    if let Some(id) = &removal.deleted {
        output::line(format!("Deleted: {id}"))?;
    }
    if removal.deferred {
        terminal::note("the content is removed later, because another process is using the store");
    }
    Ok(())
}
