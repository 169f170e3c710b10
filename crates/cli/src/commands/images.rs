//! `images`.

use std::collections::BTreeMap;

use containers::filter::Filters;
use containers::images::find;
use containers::images::list::{self, ListRequest, Listed};
use serde_json::{Value, json};

use crate::args::images::ImagesArgs;
use crate::context::Context;
use crate::output::listing::{Column, Listing};
use crate::output::{self, size, time};
use crate::report::{Exit, Report};
use crate::udocker::listing;

const PLAIN: &[Column] = &[
    ("Repository", "REPOSITORY"),
    ("Tag", "TAG"),
    ("ID", "IMAGE ID"),
    ("CreatedSince", "CREATED"),
    ("Size", "SIZE"),
];
const WITH_DIGESTS: &[Column] = &[
    ("Repository", "REPOSITORY"),
    ("Tag", "TAG"),
    ("Digest", "DIGEST"),
    ("ID", "IMAGE ID"),
    ("CreatedSince", "CREATED"),
    ("Size", "SIZE"),
];
const MORE: &[Column] = &[
    ("Digest", "DIGEST"),
    ("CreatedAt", "CREATED AT"),
    ("Platform", "PLATFORM"),
    ("Labels", "LABELS"),
];

/// Lists images, the newest first.
pub(crate) fn run(context: &Context, args: &ImagesArgs) -> Result<Exit, Report> {
    let plain = args.format.is_none() && !args.quiet && !args.digests && args.filter.is_empty();
    if args.long
        || args.platform
        || context.presentation().plain_listings && plain && args.name.is_none()
    {
        listing::images(context, args.long, args.platform)?;
        return Ok(Exit::OK);
    }
    let filters = Filters::parse(&args.filter, list::FILTERS)?;
    let request = ListRequest { name: args.name.clone(), filters };
    let images = list::list(context.session()?, &request)?;
    let mut rows: Vec<Value> = images.iter().map(|listed| row(listed, args.no_trunc)).collect();
    if args.quiet && args.format.is_none() {
        rows.dedup_by(|a, b| a["ID"] == b["ID"]);
    }
    let listing = Listing {
        format: args.format.as_deref(),
        shown: if args.digests { WITH_DIGESTS } else { PLAIN },
        more: MORE,
        quiet: args.quiet.then_some("ID"),
    };
    output::print(&listing.render(&rows)?)?;
    Ok(Exit::OK)
}

fn row(Listed { image, summary }: &Listed, whole: bool) -> Value {
    let reference = image.reference();
    let none = || "<none>".to_owned();
    let tag = reference.as_ref().and_then(|reference| reference.tag());
    let created = summary.created.as_deref();
    let labels: BTreeMap<_, _> = summary.labels.iter().collect();
    let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    json!({
        "ID": if whole { summary.id.to_string() } else { find::short(&summary.id) },
        "Repository": reference.as_ref().map_or_else(none, oci::Reference::familiar_name),
        "Tag": tag.map_or_else(none, str::to_owned),
        "Digest": list::known_as(image),
        "CreatedAt": created.map(time::full).unwrap_or_default(),
        "CreatedSince": time::age(created),
        "Size": size::human(summary.size),
        "Platform": summary.platform.to_string(),
        "Labels": labels.join(","),
        "@labels": summary.labels,
    })
}
