//! `system df`.

use containers::container::record;
use containers::storage::usage;
use serde_json::{Value, json};
use store::Amount;

use crate::args::system::DfArgs;
use crate::context::Context;
use crate::output::listing::{Column, Listing};
use crate::output::{self, size, time};
use crate::report::{Exit, Report};

const COLUMNS: &[Column] = &[
    ("Type", "TYPE"),
    ("TotalCount", "TOTAL"),
    ("Active", "ACTIVE"),
    ("Size", "SIZE"),
    ("Reclaimable", "RECLAIMABLE"),
];

/// Shows the space that the parts of the store take.
pub(crate) fn run(context: &Context, args: &DfArgs) -> Result<Exit, Report> {
    let usage = usage::usage(context.session()?)?;
    let rows = [
        row("Images", &usage.images),
        row("Layers", &usage.layers),
        row("Trees", &usage.trees),
        row("Containers", &usage.containers),
        row("Local Volumes", &usage.volumes),
        row("Leftovers", &usage.temporary),
    ];
    let listing =
        Listing { format: args.format.as_deref(), shown: COLUMNS, more: &[], quiet: None };
    output::print(&listing.render(&rows)?)?;
    if args.verbose {
        details(context)?;
    }
    Ok(Exit::OK)
}

fn row(name: &str, amount: &Amount) -> Value {
    let share = match amount.bytes {
        0 => String::new(),
        bytes => format!(" ({}%)", amount.reclaimable * 100 / bytes),
    };
    json!({
        "Type": name,
        "TotalCount": amount.count,
        "Active": amount.count.saturating_sub(amount.unused_count),
        "Size": size::human(amount.bytes),
        "Reclaimable": format!("{}{share}", size::human(amount.reclaimable)),
    })
}

fn details(context: &Context) -> Result<(), Report> {
    let store = context.store()?;
    let mut lines = vec!["CONTAINER ID\tIMAGE\tSIZE\tCREATED\tNAMES".to_owned()];
    for container in store.containers().list()? {
        let Ok(record) = record::read(&container) else { continue };
        lines.push(format!(
            "{}\t{}\t{}\t{}\t{}",
            container.short_id(),
            containers::container::list::image_name(&record),
            size::human(store.container_size(container.id())?),
            time::ago(&record.config.created),
            container.names()?.join(",")
        ));
    }
    output::print(&format!("\nContainers space usage:\n\n{}", output::table::columns(&lines)))?;
    let mut lines = vec!["VOLUME NAME\tSIZE".to_owned()];
    for (name, bytes) in usage::volumes(context.session()?)? {
        lines.push(format!("{name}\t{}", size::human(bytes)));
    }
    output::print(&format!("\nLocal Volumes space usage:\n\n{}", output::table::columns(&lines)))
}
