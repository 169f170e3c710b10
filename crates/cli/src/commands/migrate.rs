//! `migrate udocker`: takes udocker's images and containers over.

use containers::Session;
use containers::udocker::migrate::{self, Old, Places, Taken};

use crate::args::system::MigrateArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Takes all over; failures are reported at the end.
pub(crate) fn run(context: &Context, args: &MigrateArgs) -> Result<Exit, Report> {
    let settings = context.udocker()?;
    let place = |name: &str| match &args.from {
        Some(top) => top.join(name),
        None => settings.directory(name),
    };
    let places =
        Places { repos: place("repos"), layers: place("layers"), containers: place("containers") };
    // Only images show how far their layers are.
    let (loud, quiet) = (context.session()?, context.session_for(true)?);
    let mut failures: Vec<Report> = Vec::new();
    for old in migrate::find(&places)? {
        let session = if matches!(old, Old::Image(_)) { loud } else { &quiet };
        failures.extend(take(context, session, &old, args.remove_source).err());
    }
    let last = failures.pop();
    failures.iter().for_each(Report::show);
    last.map_or(Ok(Exit::OK), |report| Err(report.exit(Exit(1))))
}

fn take(
    context: &Context,
    session: &Session,
    old: &Old,
    remove_source: bool,
) -> Result<(), Report> {
    match migrate::take(session, old)? {
        Taken::Image { name } => output::line(format!("image {name}"))?,
        Taken::Container { name, id } => {
            output::line(format!("container {name} {}", context.presentation().id(&id)))?;
        }
        Taken::Already => {}
    }
    if remove_source {
        migrate::remove_source(old)?;
    }
    Ok(())
}
