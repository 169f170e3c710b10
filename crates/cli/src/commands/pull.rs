//! `pull`.

use oci::{Platform, Reference};

use crate::args::images::PullArgs;
use crate::context::Context;
use crate::output;
use crate::progress::{Progress, Style};
use crate::pull::{self, Road};
use crate::remote;
use crate::report::{Exit, Report};

/// Runs it.
pub(crate) fn run(context: &Context, args: &PullArgs) -> Result<Exit, Report> {
    let platform = args.platform.as_deref().map(platform).transpose()?;
    let settings = context.settings()?;
    let style = Style::choose(args.quiet || context.is_quiet(), settings.progress);
    for name in &args.images {
        let name = &remote::named(&args.registry, name);
        let reference = remote::reference(context, name)?;
        if args.all_tags && (name.contains('@') || tagged(name)) {
            return Err(Report::usage(format!(
                "--all-tags pulls every tag, and '{name}' names one"
            )));
        }
        let client = remote::client(context, &args.registry, reference.registry())?;
        let references =
            if args.all_tags { all_tags(&client, &reference)? } else { vec![reference] };
        for reference in references {
            let progress = Progress::new(style);
            let road = Road::new(context.store()?, settings, &progress);
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

/// Reads `--platform`.
pub(crate) fn platform(text: &str) -> Result<Platform, Report> {
    text.parse().map_err(|error: oci::Error| {
        Report::from(error).hint("write OS/ARCHITECTURE[/VARIANT], as linux/arm64 or linux/arm/v7")
    })
}

/// Whether a tag was written: a colon after the last slash.
fn tagged(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|last| last.contains(':'))
}

fn all_tags(client: &registry::Client, reference: &Reference) -> Result<Vec<Reference>, Report> {
    let tags = client.tags(reference, 0)?;
    Ok(tags.iter().map(|tag| reference.with_tag(tag)).collect::<Result<_, _>>()?)
}
