//! `images`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use store::{Image, Summary};

use crate::args::images::ImagesArgs;
use crate::context::Context;
use crate::filter::{self, Filters};
use crate::output::listing::{Column, Listing};
use crate::output::{self, size, time};
use crate::report::{Exit, Report};
use crate::udocker::listing;
use containers::images::find as image;

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

/// Runs it.
pub(crate) fn run(context: &Context, args: &ImagesArgs) -> Result<Exit, Report> {
    let plain = args.format.is_none() && !args.quiet && !args.digests && args.filter.is_empty();
    if args.long
        || args.platform
        || context.presentation().plain_listings && plain && args.name.is_none()
    {
        listing::images(context, args.long, args.platform)?;
        return Ok(Exit::OK);
    }
    let filters = Filters::parse(
        &args.filter,
        &["dangling", "reference", "before", "since", "label", "until"],
    )?;
    let images = context.store()?.images().summaries()?;
    let mut rows: Vec<(Option<String>, Value)> = Vec::new();
    let bounds = Bounds::find(context, &filters)?;
    for (image, summary) in &images {
        let summary = match summary {
            Ok(summary) => summary,
            Err(error) => {
                // One broken image must not hide the others.
                tracing::warn!("{error}");
                crate::terminal::note(&format!("warning: {error}"));
                continue;
            }
        };
        if !shown(image, summary, args, &filters, &bounds) {
            continue;
        }
        rows.push((summary.created.clone(), row(image, summary, args.no_trunc)));
    }
    // The newest first; equal times keep the order of the index.
    rows.sort_by(|a, b| b.0.cmp(&a.0));
    let mut rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
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

/// Times that `before=` and `since=` stand for.
struct Bounds {
    before: Option<String>,
    since: Option<String>,
}

impl Bounds {
    fn find(context: &Context, filters: &Filters) -> Result<Self, Report> {
        let time_of = |key: &str| -> Result<Option<String>, Report> {
            match filters.last(key) {
                None => Ok(None),
                Some(name) => Ok(Some(
                    image::stored(context.session()?, name)?.summary()?.created.unwrap_or_default(),
                )),
            }
        };
        Ok(Self { before: time_of("before")?, since: time_of("since")? })
    }
}

fn shown(
    image: &Image,
    summary: &Summary,
    args: &ImagesArgs,
    filters: &Filters,
    bounds: &Bounds,
) -> bool {
    let reference = image.reference();
    let created = summary.created.as_deref().unwrap_or_default();
    let dangling = reference.is_none();
    let wanted = args.name.as_deref().is_none_or(|name| {
        reference.as_ref().is_some_and(|reference| matches_name(reference, name))
    });
    wanted
        && filters.all("dangling", |value| filter::truth(value) == dangling)
        && filters.any("reference", |pattern| {
            reference.as_ref().is_some_and(|reference| matches_name(reference, pattern))
        })
        && filters.all("label", |label| filter::label(&summary.labels, label))
        && bounds.before.as_deref().is_none_or(|before| created < before)
        && bounds.since.as_deref().is_none_or(|since| created > since)
        && filters.all("until", |until| {
            time::point(until)
                .is_some_and(|until| time::parse(created).is_some_and(|created| created < until))
        })
}

/// `debian`, `debian:stable`, `*/tools`, `docker.io/library/debian`: repository, or repository and tag.
fn matches_name(reference: &oci::Reference, pattern: &str) -> bool {
    let familiar = reference.familiar_name();
    let full = reference.name();
    let tagged = |name: &str| format!("{name}:{}", reference.tag().unwrap_or_default());
    [familiar.clone(), full.clone(), tagged(&familiar), tagged(&full)]
        .iter()
        .any(|name| filter::glob(pattern, name))
}

fn row(image: &Image, summary: &Summary, whole: bool) -> Value {
    let reference = image.reference();
    let none = || "<none>".to_owned();
    let created = summary.created.as_deref();
    let labels: BTreeMap<_, _> = summary.labels.iter().collect();
    json!({
        "ID": if whole { summary.id.to_string() } else { image::short(&summary.id) },
        "Repository": reference.as_ref().map_or_else(none, oci::Reference::familiar_name),
        "Tag": reference.as_ref().and_then(|reference| reference.tag()).map_or_else(none, str::to_owned),
        "Digest": digest(image),
        "CreatedAt": created.map(time::full).unwrap_or_default(),
        "CreatedSince": crate::output::time::age(created),
        "Size": size::human(summary.size),
        "Platform": summary.platform.to_string(),
        "Labels": labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(","),
        "@labels": summary.labels,
    })
}

/// The digest by which the registry knows the image: the index', where it came from one.
pub(crate) fn digest(image: &Image) -> String {
    let index = image.descriptor().annotations.get(store::ANNOTATION_KNOWN_AS);
    index.cloned().unwrap_or_else(|| image.digest().to_string())
}
