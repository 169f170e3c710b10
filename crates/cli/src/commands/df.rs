//! `system df`.

use serde_json::{Value, json};
use store::Amount;

use crate::args::system::DfArgs;
use crate::context::Context;
use crate::output::listing::{Column, Listing};
use crate::output::{self, size, time};
use crate::report::{Exit, Report};
use containers::container::record;

const COLUMNS: &[Column] = &[
    ("Type", "TYPE"),
    ("TotalCount", "TOTAL"),
    ("Active", "ACTIVE"),
    ("Size", "SIZE"),
    ("Reclaimable", "RECLAIMABLE"),
];

/// Adds up what the parts of the store take.
pub(crate) fn run(context: &Context, args: &DfArgs) -> Result<Exit, Report> {
    let store = context.store()?;
    let usage = store.usage()?;
    let mut containers = usage.containers;
    let running = store.containers().map_nameless(|container| {
        containers::container::running::is_running(container).unwrap_or(false)
    })?;
    let running = running.iter().filter(|running| **running).count() as u64;
    containers.unused_count = containers.count.saturating_sub(running);
    // One record that cannot be read is no reason to show nothing.
    let used = containers::container::volumes::used(context.session()?).unwrap_or_default();
    let mut volumes = usage.volumes;
    for volume in store.volumes().list()? {
        if !used.contains(volume.name()) {
            volumes.unused_count += 1;
            volumes.reclaimable += store.volume_size(volume.name())?;
        }
    }
    let rows = [
        row("Images", &usage.images),
        row("Layers", &usage.layers),
        row("Trees", &usage.trees),
        row("Containers", &containers),
        row("Local Volumes", &volumes),
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
    for volume in store.volumes().list()? {
        lines.push(format!(
            "{}\t{}",
            volume.name(),
            size::human(store.volume_size(volume.name())?)
        ));
    }
    output::print(&format!("\nLocal Volumes space usage:\n\n{}", output::table::columns(&lines)))
}
