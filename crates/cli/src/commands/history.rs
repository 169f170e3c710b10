//! `history`.

use containers::images::find;
use containers::images::history::{self, Step};
use serde_json::{Value, json};

use crate::args::images::HistoryArgs;
use crate::context::Context;
use crate::output::listing::{Column, Listing};
use crate::output::{self, size, table, time};
use crate::report::{Exit, Report};

const COLUMNS: &[Column] = &[
    ("ID", "IMAGE"),
    ("CreatedSince", "CREATED"),
    ("CreatedBy", "CREATED BY"),
    ("Size", "SIZE"),
    ("Comment", "COMMENT"),
];
const PRECISE: &[Column] = &[
    ("ID", "IMAGE"),
    ("CreatedAt", "CREATED AT"),
    ("CreatedBy", "CREATED BY"),
    ("Size", "SIZE"),
    ("Comment", "COMMENT"),
];

/// Lists the steps in which an image was made, the last one first.
pub(crate) fn run(context: &Context, args: &HistoryArgs) -> Result<Exit, Report> {
    let history = history::history(context.session()?, &args.image)?;
    let mut rows: Vec<Value> = history.steps.iter().map(|step| row(step, args)).collect();
    if let Some(first) = rows.first_mut() {
        let id = &history.id;
        first["ID"] = if args.no_trunc { id.to_string() } else { find::short(id) }.into();
    }
    let listing = Listing {
        format: args.format.as_deref(),
        shown: if args.human { COLUMNS } else { PRECISE },
        more: &[("CreatedAt", "CREATED AT"), ("CreatedSince", "CREATED")],
        quiet: args.quiet.then_some("ID"),
    };
    output::print(&listing.render(&rows)?)?;
    Ok(Exit::OK)
}

fn row(step: &Step, args: &HistoryArgs) -> Value {
    let by = table::cell(&step.created_by);
    json!({
        "ID": "<missing>",
        "CreatedSince": time::age(step.created.as_deref()),
        "CreatedAt": step.created.as_deref().map(time::full).unwrap_or_default(),
        "CreatedBy": if args.no_trunc { by } else { table::shorten(&by, 45) },
        "Size": if args.human { size::human(step.size) } else { step.size.to_string() },
        "Comment": step.comment,
    })
}
