//! `pull`.

use containers::images::pull::{self, Road};
use containers::images::remote;
use containers::request::options;
use oci::Reference;

use crate::args::images::PullArgs;
use crate::args::request;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Runs it.
pub(crate) fn run(context: &Context, args: &PullArgs) -> Result<Exit, Report> {
    let platform = args.platform.as_deref().map(options::platform).transpose()?;
    let session = context.session_for(args.quiet)?;
    let access = request::registry(&args.registry);
    for name in &args.images {
        let name = &remote::named(&access, name);
        let reference = remote::reference(context.session()?, name)?;
        if args.all_tags && (name.contains('@') || tagged(name)) {
            return Err(Report::usage(format!(
                "--all-tags pulls every tag, and '{name}' names one"
            )));
        }
        let client = remote::client(&session, &access, reference.registry())?;
        let references =
            if args.all_tags { all_tags(&client, &reference)? } else { vec![reference] };
        for reference in references {
            let progress = session.progress();
            let road = Road::new(&session, &progress)?;
            let pulled =
                pull::pull(&road, &client, &reference, platform.as_ref(), !args.no_unpack)?;
            if args.quiet {
                output::line(&pulled.digest)?;
            } else {
                let state = if pulled.unchanged { "up to date" } else { "pulled" };
                progress.say(&format!("{}: {state}", reference.familiar()));
                output::line(format!("{}@{}", reference.name(), pulled.digest))?;
            }
        }
    }
    Ok(Exit::OK)
}

/// Whether a tag was written: a colon after the last slash.
fn tagged(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.contains(':'))
}

fn all_tags(client: &registry::Client, reference: &Reference) -> Result<Vec<Reference>, Report> {
    let tags = client.tags(reference, 0)?;
    Ok(tags.iter().map(|tag| reference.with_tag(tag)).collect::<Result<_, _>>()?)
}
