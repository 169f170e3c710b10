//! `rmi`.

use containers::images::remove;

use crate::args::images::RmiArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use crate::terminal;

/// Removes images. Each is tried; the first failure is reported at the end.
pub(crate) fn run(context: &Context, args: &RmiArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    let mut names = args.images.clone();
    if args.all {
        names.extend(remove::every_name(session)?);
    }
    let mut failure = None;
    for name in &names {
        let removed = remove::remove(session, name, args.force).map_err(Report::from);
        if let Err(report) = removed.and_then(|removed| show(&removed)) {
            match failure {
                None => failure = Some(report),
                Some(_) => report.show(),
            }
        }
    }
    failure.map_or(Ok(Exit::OK), |report| Err(report.exit(Exit(1))))
}

fn show(removed: &remove::Removed) -> Result<(), Report> {
    for name in &removed.untagged {
        output::line(format!("Untagged: {name}"))?;
    }
    if let Some(id) = &removed.deleted {
        output::line(format!("Deleted: {id}"))?;
    }
    if removed.deferred {
        terminal::note("the content is removed later, because another process is using the store");
    }
    Ok(())
}
