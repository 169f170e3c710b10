//! `search`.

use containers::filter::Filters;
use containers::images::search::{self, SearchRequest};
use serde_json::{Value, json};

use crate::args::images::SearchArgs;
use crate::args::request;
use crate::context::Context;
use crate::output::listing::{Column, Listing};
use crate::output::{self, table};
use crate::report::{Exit, Report};

const COLUMNS: &[Column] = &[
    ("Name", "NAME"),
    ("Description", "DESCRIPTION"),
    ("StarCount", "STARS"),
    ("IsOfficial", "OFFICIAL"),
];

/// Looks for images in a registry, or lists the tags of one.
pub(crate) fn run(context: &Context, args: &SearchArgs) -> Result<Exit, Report> {
    let registry = request::registry(&args.registry);
    if args.list_tags {
        let tags = search::tags(context.session()?, &args.term, &registry)?;
        tags.iter().try_for_each(output::line)?;
        return Ok(Exit::OK);
    }
    let filters = Filters::parse(&args.filter, search::FILTERS)?;
    let request = SearchRequest { term: args.term.clone(), filters, limit: args.limit, registry };
    let results = search::search(context.session()?, &request)?;
    let mark = |yes: bool| if yes { "[OK]" } else { "" };
    let row = |result: &registry::SearchResult| {
        let all = table::cell(&result.description);
        json!({
            "Name": result.name,
            "Description": if args.no_trunc { all } else { table::shorten(&all, 45) },
            "StarCount": result.stars,
            "IsOfficial": mark(result.official),
            "IsAutomated": mark(result.automated),
        })
    };
    let rows: Vec<Value> = results.iter().map(row).collect();
    let listing = Listing {
        format: args.format.as_deref(),
        shown: COLUMNS,
        more: &[("IsAutomated", "AUTOMATED")],
        quiet: None,
    };
    output::print(&listing.render(&rows)?)?;
    Ok(Exit::OK)
}
