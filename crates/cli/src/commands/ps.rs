//! `ps`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::spec::{MountKind, MountSpec, NetworkSpec, Publish};
use engine::supervise::state::{self, Observed};
use oci::Reference;
use serde::Deserialize;
use serde_json::{Map, Value};
use store::ContainerDir;

use crate::args::containers::PsArgs;
use crate::context::Context;
use crate::filter::Filters;
use crate::output::listing::{Column, Entry, Listing};
use crate::output::{self, size, table, time};
use crate::report::{Exit, Report};
use crate::udocker::listing;
use containers::container::record::{self, Record};

const COLUMNS: &[Column] = &[
    ("ID", "CONTAINER ID"),
    ("Image", "IMAGE"),
    ("Command", "COMMAND"),
    ("RunningFor", "CREATED"),
    ("Status", "STATUS"),
    ("Ports", "PORTS"),
    ("Names", "NAMES"),
];
const SIZED: &[Column] = &[
    ("ID", "CONTAINER ID"),
    ("Image", "IMAGE"),
    ("Command", "COMMAND"),
    ("RunningFor", "CREATED"),
    ("Status", "STATUS"),
    ("Ports", "PORTS"),
    ("Names", "NAMES"),
    ("Size", "SIZE"),
];
const MORE: &[Column] = &[
    ("CreatedAt", "CREATED AT"),
    ("State", "STATE"),
    ("Size", "SIZE"),
    ("Labels", "LABELS"),
    ("Mounts", "MOUNTS"),
    ("Networks", "NETWORKS"),
    ("Mode", "MODE"),
    ("Host", "HOST"),
];
/// All fields of a row in the order in which JSON shows them; [`LABELS`] comes last.
const FIELDS: &[&str] = &[
    "ID",
    "Image",
    "Command",
    "CreatedAt",
    "RunningFor",
    "Status",
    "State",
    "Ports",
    "Names",
    "Size",
    "Labels",
    "Mounts",
    "Networks",
    "Mode",
    "Host",
];
/// The labels one by one, for templates.
const LABELS: &str = "@labels";
const FILTERS: &[&str] =
    &["name", "id", "status", "label", "ancestor", "exited", "before", "since", "volume"];

/// A container and what it is doing.
struct Seen {
    container: ContainerDir,
    names: Vec<String>,
    glance: Glance,
    state: Observed,
    started: String,
    finished: String,
    host: String,
}

/// As much of a [`Record`] as a list needs. The rest is passed over unread, which counts with ten thousand containers.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Glance {
    created: String,
    image: Option<GlanceImage>,
    rootfs: Option<PathBuf>,
    command: Vec<String>,
    labels: BTreeMap<String, String>,
    mounts: Vec<MountSpec>,
    network: NetworkSpec,
    exec_mode: Option<String>,
    image_name: String,
}

/// The same of its image.
#[derive(Default, Deserialize)]
#[serde(default)]
struct GlanceImage {
    reference: String,
    manifest: String,
    config: String,
}

/// Runs it.
pub(crate) fn run(context: &Context, args: &PsArgs) -> Result<Exit, Report> {
    let plain = args.format.is_none() && !args.quiet && args.filter.is_empty();
    if args.mode || args.platform || context.presentation().plain_listings && plain {
        let columns =
            listing::Columns { mode: args.mode, size: args.size, platform: args.platform };
        listing::containers(context, columns)?;
        return Ok(Exit::OK);
    }
    let filters = Filters::parse(&args.filter, FILTERS)?;
    let store = context.store()?;
    let every = args.all
        || args.latest
        || args.last > 0
        || !filters.any("status", |_| false)
        || !filters.any("exited", |_| false);
    let bounds = Bounds::find(context, &filters)?;
    let limit = if args.latest { 1 } else { usize::try_from(args.last).unwrap_or(usize::MAX) };
    let listing = Listing {
        format: args.format.as_deref(),
        shown: if args.size { SIZED } else { COLUMNS },
        more: MORE,
        quiet: args.quiet.then_some("ID"),
    };
    let wants_size =
        args.size || args.format.as_deref().is_some_and(|format| format.contains(".Size"));
    let sizes = wants_size.then_some(store);
    let entry = |seen: &Seen| -> Result<Entry, Report> {
        Ok(listing.entry(row(sizes, seen, args.no_trunc, &listing)?))
    };
    let entries: Vec<Entry> = if args.filter.is_empty() && limit == usize::MAX {
        // A row is made where its container was read, and nothing else is kept of it.
        let made = every_container(store, every, |seen| Ok((entry(&seen)?, seen.glance.created)))?;
        let mut made: Vec<(Entry, String)> = made.into_iter().collect::<Result<_, Report>>()?;
        made.sort_by(|a, b| b.1.cmp(&a.1));
        made.into_iter().map(|(entry, _)| entry).collect()
    } else {
        let mut rows = every_container(store, every, Box::new)?;
        rows.sort_by(|a, b| b.glance.created.cmp(&a.glance.created));
        rows.retain(|seen| matches(context, seen, &filters, &bounds));
        rows.truncate(limit);
        rows.iter().map(|seen| entry(seen)).collect::<Result<_, _>>()?
    };
    output::print(&listing.finish(entries)?)?;
    Ok(Exit::OK)
}

/// Makes something of each container that is to be seen.
fn every_container<R: Send>(
    store: &store::Store,
    every: bool,
    make: impl Fn(Seen) -> R + Sync,
) -> Result<Vec<R>, Report> {
    let look = |container: &ContainerDir| look(container, every).map(&make);
    // What is not asked for is not even read: most containers do not run.
    let found = if every {
        store.containers().map(look)?
    } else {
        store.containers().map_nameless(look)?
    };
    Ok(found.into_iter().flatten().collect())
}

/// Reads a container; none where it does not run and only running ones are wanted. A broken or vanishing one is passed over.
fn look(container: &ContainerDir, every: bool) -> Option<Seen> {
    let (state, kept) = state::look(&container.path()).ok()?;
    if !every && !matches!(state, Observed::Running(_) | Observed::Restarting { .. }) {
        return None;
    }
    let glance = container.read().ok()?;
    let names = container.names().unwrap_or_default();
    let host = host(&state);
    let (started, finished) = (kept.started, kept.finished);
    Some(Seen { container: container.clone(), names, glance, state, started, finished, host })
}

struct Bounds {
    before: Option<String>,
    since: Option<String>,
}

impl Bounds {
    fn find(context: &Context, filters: &Filters) -> Result<Self, Report> {
        let created = |key: &str| -> Result<Option<String>, Report> {
            match filters.last(key) {
                None => Ok(None),
                Some(name) => {
                    Ok(Some(record::read(&record::find(context.session()?, name)?)?.config.created))
                }
            }
        };
        Ok(Self { before: created("before")?, since: created("since")? })
    }
}

fn matches(context: &Context, seen: &Seen, filters: &Filters, bounds: &Bounds) -> bool {
    let config = &seen.glance;
    let code = match &seen.state {
        Observed::Exited { code } => Some(*code),
        _ => None,
    };
    filters.any("name", |wanted| {
        let wanted = wanted.trim_start_matches(['^', '/']);
        let (wanted, whole) =
            wanted.strip_suffix('$').map_or((wanted, false), |wanted| (wanted, true));
        seen.names.iter().any(|name| if whole { name == wanted } else { name.contains(wanted) })
    }) && filters.any("id", |wanted| seen.container.id().starts_with(wanted))
        && filters.any("status", |wanted| status_word(&seen.state) == wanted)
        && filters.any("exited", |wanted| wanted.parse().ok() == code)
        && filters.any("ancestor", |wanted| is_ancestor(context, config, wanted))
        && filters.any("volume", |wanted| {
            let mounts = &config.mounts;
            mounts.iter().any(|mount| {
                mount.name.as_deref() == Some(wanted)
                    || mount.target.to_str() == Some(wanted)
                    || mount.source.to_str() == Some(wanted)
            })
        })
        && filters.labels(&config.labels)
        && bounds.before.as_ref().is_none_or(|before| config.created < *before)
        && bounds.since.as_ref().is_none_or(|since| config.created > *since)
}

fn is_ancestor(context: &Context, glance: &Glance, wanted: &str) -> bool {
    let Some(image) = &glance.image else { return false };
    let canonical = context
        .session()
        .and_then(|session| Ok(containers::images::remote::reference(session, wanted)?))
        .map(|reference| reference.to_string());
    let id = image.config.trim_start_matches("sha256:");
    canonical.is_ok_and(|canonical| canonical == image.reference)
        || glance.image_name == wanted
        || id.starts_with(wanted.trim_start_matches("sha256:"))
        || image.manifest == wanted
}

/// Whether a container runs now.
pub(crate) fn is_running(container: &ContainerDir) -> bool {
    matches!(
        state::observe(&container.path()),
        Ok(Observed::Running(_) | Observed::Restarting { .. })
    )
}

/// The host name of the machine where a container runs; nothing where it does not.
pub(crate) fn host(state: &Observed) -> String {
    match state {
        Observed::Running(running) => match &running.elsewhere {
            Some(there) => there.host.clone(),
            None => sys::machine::Machine::here().name.clone(),
        },
        Observed::Restarting { .. } => sys::machine::Machine::here().name.clone(),
        _ => String::new(),
    }
}

/// Docker's word for a state.
pub(crate) fn status_word(state: &Observed) -> &'static str {
    match state {
        Observed::Created => "created",
        Observed::Running(running) if running.paused => "paused",
        Observed::Running(_) => "running",
        Observed::Restarting { .. } => "restarting",
        Observed::Exited { .. } => "exited",
        Observed::Dead { .. } => "dead",
    }
}

fn status(seen: &Seen) -> String {
    let since =
        |text: &str| time::parse(text).map(|then| time::human(time::now().duration_since(then)));
    match &seen.state {
        Observed::Created => "Created".to_owned(),
        Observed::Running(running) if running.elsewhere.is_some() => {
            let there = running.elsewhere.clone().unwrap_or_default();
            let up = jiff::Timestamp::from_second(there.since.cast_signed()).ok();
            let up = up.filter(|_| there.since > 0);
            let up = up.map(|then| time::human(time::now().duration_since(then)));
            let known = if there.held { "" } else { ", by its record" };
            format!("Up {} (on {}{known})", up.unwrap_or_default(), there.host)
        }
        Observed::Running(running) => {
            let up = since(&seen.started).filter(|_| running.init.is_some());
            let up = up.or_else(|| {
                running
                    .main()
                    .and_then(started)
                    .map(|then| time::human(time::now().duration_since(then)))
            });
            let paused = if running.paused { " (Paused)" } else { "" };
            format!("Up {}{paused}", up.unwrap_or_default())
        }
        Observed::Restarting { .. } => "Restarting".to_owned(),
        Observed::Exited { code } => match since(&seen.finished) {
            Some(span) => format!("Exited ({code}) {span} ago"),
            None => format!("Exited ({code})"),
        },
        Observed::Dead { .. } => "Dead".to_owned(),
    }
}

/// When a process without supervisor began: its start time in clock ticks after the boot.
pub(crate) fn started(process: &engine::spec::ProcessId) -> Option<jiff::Timestamp> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "ticks of a machine's life fit")]
    let after_boot = process.start_time as f64 / rustix::param::clock_ticks_per_second() as f64;
    let ago = jiff::SignedDuration::try_from_secs_f64((uptime - after_boot).max(0.0)).ok()?;
    time::now().checked_sub(ago).ok()
}

/// `0.0.0.0:8080->80/tcp`.
pub(crate) fn port(publish: &Publish) -> String {
    let address =
        publish.address.map_or_else(|| "0.0.0.0".to_owned(), |address| address.to_string());
    let protocol = if publish.udp { "udp" } else { "tcp" };
    let range = |first: u16| match publish.count {
        0 | 1 => first.to_string(),
        count => format!("{first}-{}", first + count - 1),
    };
    format!("{address}:{}->{}/{protocol}", range(publish.host), range(publish.inside))
}

/// A row, as far as the listing shows it.
fn row(
    store: Option<&store::Store>,
    seen: &Seen,
    whole: bool,
    listing: &Listing<'_>,
) -> Result<Value, Report> {
    let config = &seen.glance;
    let mut row = Map::new();
    for field in FIELDS {
        if !listing.uses(field) {
            continue;
        }
        let text = match *field {
            "ID" if whole => seen.container.id().to_owned(),
            "ID" => seen.container.short_id().to_owned(),
            "Image" => {
                let image = config.image.as_ref().map(|image| image.reference.as_str());
                image_title(&config.image_name, image, config.rootfs.as_deref())
            }
            "Command" if whole => format!("{:?}", config.command.join(" ")),
            "Command" => {
                let command = table::cell(&config.command.join(" "));
                format!("\"{}\"", table::shorten(&command, 20))
            }
            "CreatedAt" => time::full(&config.created),
            "RunningFor" => time::ago(&config.created),
            "Status" => status(seen),
            "State" => status_word(&seen.state).to_owned(),
            "Ports" => ports(seen),
            "Names" => seen.names.join(","),
            "Size" => match store {
                Some(store) => size::human(store.container_size(seen.container.id())?),
                None => String::new(),
            },
            "Labels" => {
                let labels = config.labels.iter().map(|(key, value)| format!("{key}={value}"));
                labels.collect::<Vec<_>>().join(",")
            }
            "Mounts" => config.mounts.iter().map(mount_title).collect::<Vec<_>>().join(","),
            "Networks" => String::from(config.network.mode.clone()),
            "Host" => seen.host.clone(),
            _ => config.exec_mode.clone().unwrap_or_default(),
        };
        row.insert((*field).to_owned(), Value::String(text));
    }
    if listing.uses(LABELS) {
        let labels = config.labels.iter();
        let labels = labels.map(|(key, value)| (key.clone(), Value::String(value.clone())));
        row.insert(LABELS.to_owned(), Value::Object(labels.collect()));
    }
    Ok(Value::Object(row))
}

fn ports(seen: &Seen) -> String {
    if !matches!(seen.state, Observed::Running(_)) {
        return String::new();
    }
    let ports: Vec<String> = seen.glance.network.publish.iter().map(port).collect();
    ports.join(", ")
}

fn mount_title(mount: &MountSpec) -> String {
    match (mount.kind, &mount.name) {
        (MountKind::Volume, Some(name)) => name.clone(),
        _ => mount.source.display().to_string(),
    }
}

/// The image as the user wrote it, else its short name.
pub(crate) fn image_name(record: &Record) -> String {
    let config = &record.config;
    let image = config.image.as_ref().map(|image| image.reference.as_str());
    image_title(&record.own.image_name, image, config.rootfs.as_deref())
}

fn image_title(written: &str, image: Option<&str>, rootfs: Option<&Path>) -> String {
    if !written.is_empty() {
        return written.to_owned();
    }
    match (image, rootfs) {
        (Some(image), _) => Reference::parse(image)
            .map_or_else(|_| image.to_owned(), |reference| reference.familiar()),
        (None, Some(directory)) => directory.display().to_string(),
        (None, None) => String::new(),
    }
}
