//! `search`.

use serde_json::{Value, json};

use crate::args::images::SearchArgs;
use crate::context::Context;
use crate::filter::{self, Filters};
use crate::output::listing::{Column, Listing};
use crate::output::{self, table};
use crate::report::{Exit, Report};
use containers::images::remote;

const COLUMNS: &[Column] = &[
    ("Name", "NAME"),
    ("Description", "DESCRIPTION"),
    ("StarCount", "STARS"),
    ("IsOfficial", "OFFICIAL"),
];

/// Looks for images in a registry, or lists the tags of one.
pub(crate) fn run(context: &Context, args: &SearchArgs) -> Result<Exit, Report> {
    let wanted = remote::named(&crate::args::request::registry(&args.registry), &args.term);
    if args.list_tags {
        let reference = remote::reference(context.session()?, &wanted)?;
        let client = remote::client(
            context.session()?,
            &crate::args::request::registry(&args.registry),
            reference.registry(),
        )?;
        let tags = client.tags(&reference, 0)?;
        tags.iter().try_for_each(output::line)?;
        return Ok(Exit::OK);
    }
    let filters = Filters::parse(&args.filter, &["is-official", "is-automated", "stars"])?;
    let (registry, term) = place(context, &wanted)?;
    let client = remote::client(
        context.session()?,
        &crate::args::request::registry(&args.registry),
        &registry,
    )?;
    let results = client
        .search(&registry, &term, args.limit)
        .map_err(|error| Report::from(error).within(format!("cannot search {registry}")))?;
    let rows: Vec<Value> = results
        .iter()
        .filter(|result| {
            filters.all("is-official", |value| filter::truth(value) == result.official)
                && filters.all("is-automated", |value| filter::truth(value) == result.automated)
                && filters.all("stars", |value| value.parse().is_ok_and(|least: u64| result.stars >= least))
        })
        .map(|result| {
            let description = table::cell(&result.description);
            json!({
                "Name": result.name,
                "Description": if args.no_trunc { description } else { table::shorten(&description, 45) },
                "StarCount": result.stars,
                "IsOfficial": if result.official { "[OK]" } else { "" },
                "IsAutomated": if result.automated { "[OK]" } else { "" },
            })
        })
        .collect();
    let listing = Listing {
        format: args.format.as_deref(),
        shown: COLUMNS,
        more: &[("IsAutomated", "AUTOMATED")],
        quiet: None,
    };
    output::print(&listing.render(&rows)?)?;
    Ok(Exit::OK)
}

/// The registry to ask and what to ask for: `[HOST[:PORT]/]TERM`.
fn place(context: &Context, term: &str) -> Result<(String, String), Report> {
    if let Some((host, rest)) = term.split_once('/')
        && (host.contains(['.', ':']) || host == "localhost")
    {
        return Ok((host.to_owned(), rest.to_owned()));
    }
    Ok((context.settings()?.default_registry.clone(), term.to_owned()))
}
