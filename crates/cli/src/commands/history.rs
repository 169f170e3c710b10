//! `history`.

use serde_json::{Value, json};

use crate::args::images::HistoryArgs;
use crate::context::Context;
use crate::output::listing::{Column, Listing};
use crate::output::{self, size, table, time};
use crate::report::{Exit, Report};
use containers::images::find as image;

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
    let image = image::stored(context.session()?, &args.image)?;
    let config = image.config()?;
    let id = image.id()?;
    let mut layers = image.manifest()?.layers.iter();
    let mut rows: Vec<Value> = Vec::new();
    for step in config.history() {
        let empty = step.empty_layer().unwrap_or(false);
        let bytes = if empty { 0 } else { layers.next().map_or(0, |layer| layer.size) };
        let by = step.created_by().clone().unwrap_or_default();
        let created = step.created().clone().unwrap_or_default();
        rows.push(json!({
            "ID": "<missing>",
            "CreatedSince": crate::output::time::age(Some(&created).filter(|time| !time.is_empty()).map(String::as_str)),
            "CreatedAt": time::full(&created),
            "CreatedBy": if args.no_trunc { table::cell(&by) } else { table::shorten(&table::cell(&by), 45) },
            "Size": if args.human { size::human(bytes) } else { bytes.to_string() },
            "Comment": step.comment().clone().unwrap_or_default(),
        }));
    }
    // Images that were not built by steps say nothing of them: then the layers are told.
    for layer in layers {
        rows.push(json!({
            "ID": "<missing>", "CreatedSince": "N/A", "CreatedAt": "", "CreatedBy": "",
            "Size": if args.human { size::human(layer.size) } else { layer.size.to_string() },
            "Comment": "",
        }));
    }
    rows.reverse();
    if let Some(first) = rows.first_mut() {
        first["ID"] = if args.no_trunc { id.to_string() } else { image::short(&id) }.into();
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
