//! `ps`.

use engine::spec::{MountKind, Publish};
use engine::supervise::state::{self, Observed};
use oci::Reference;
use serde_json::{Value, json};
use store::ContainerDir;

use crate::args::containers::PsArgs;
use crate::container::record::{self, Record};
use crate::context::Context;
use crate::filter::Filters;
use crate::output::listing::{Column, Listing};
use crate::output::{self, size, table, time};
use crate::report::{Exit, Report};

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
];
const FILTERS: &[&str] =
    &["name", "id", "status", "label", "ancestor", "exited", "before", "since", "volume"];

/// A container and what it is doing.
struct Seen {
    container: ContainerDir,
    names: Vec<String>,
    record: Record,
    state: Observed,
}

/// Runs it.
pub(crate) fn run(context: &Context, args: &PsArgs) -> Result<Exit, Report> {
    let filters = Filters::parse(&args.filter, FILTERS)?;
    let store = context.store()?;
    let every = args.all
        || args.latest
        || args.last > 0
        || !filters.any("status", |_| false)
        || !filters.any("exited", |_| false);
    // What is not asked for is not even read: most containers do not run.
    let seen = store.containers().map(|container| look(container, every))?;
    let mut rows: Vec<Seen> = seen.into_iter().flatten().collect();
    rows.sort_by(|a, b| b.record.config.created.cmp(&a.record.config.created));
    let bounds = Bounds::find(context, &filters)?;
    rows.retain(|seen| matches(context, seen, &filters, &bounds));
    let last = if args.latest { 1 } else { usize::try_from(args.last).unwrap_or(usize::MAX) };
    rows.truncate(last);
    let wants_size =
        args.size || args.format.as_deref().is_some_and(|format| format.contains(".Size"));
    let mut values = Vec::with_capacity(rows.len());
    for seen in &rows {
        values.push(row(context, seen, args.no_trunc, wants_size)?);
    }
    let listing = Listing {
        format: args.format.as_deref(),
        shown: if args.size { SIZED } else { COLUMNS },
        more: MORE,
        quiet: args.quiet.then_some("ID"),
    };
    output::print(&listing.render(&values)?)?;
    Ok(Exit::OK)
}

/// Reads a container; none where it does not run and only running ones are wanted. A broken or vanishing one is passed over.
fn look(container: &ContainerDir, every: bool) -> Option<Seen> {
    let state = state::observe(&container.path()).ok()?;
    if !every && !matches!(state, Observed::Running(_) | Observed::Restarting { .. }) {
        return None;
    }
    let record = record::read(container).ok()?;
    let names = container.names().unwrap_or_default();
    Some(Seen { container: container.clone(), names, record, state })
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
                Some(name) => Ok(Some(record::read(&record::find(context, name)?)?.config.created)),
            }
        };
        Ok(Self { before: created("before")?, since: created("since")? })
    }
}

fn matches(context: &Context, seen: &Seen, filters: &Filters, bounds: &Bounds) -> bool {
    let config = &seen.record.config;
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
        && filters.any("ancestor", |wanted| is_ancestor(context, &seen.record, wanted))
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

fn is_ancestor(context: &Context, record: &Record, wanted: &str) -> bool {
    let Some(image) = &record.config.image else { return false };
    let canonical =
        crate::remote::reference(context, wanted).map(|reference| reference.to_string());
    let id = image.config.trim_start_matches("sha256:");
    canonical.is_ok_and(|canonical| canonical == image.reference)
        || record.own.image_name == wanted
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
    let times = state::read(&seen.container.path()).unwrap_or_default();
    let since =
        |text: &str| time::parse(text).map(|then| time::human(time::now().duration_since(then)));
    match &seen.state {
        Observed::Created => "Created".to_owned(),
        Observed::Running(running) => {
            let up = since(&times.started).filter(|_| running.init.is_some());
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
        Observed::Exited { code } => match since(&times.finished) {
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

fn row(context: &Context, seen: &Seen, whole: bool, with_size: bool) -> Result<Value, Report> {
    let config = &seen.record.config;
    let command = config.command.join(" ");
    let labels: Vec<String> =
        config.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mounts: Vec<String> = config
        .mounts
        .iter()
        .map(|mount| match (mount.kind, &mount.name) {
            (MountKind::Volume, Some(name)) => name.clone(),
            _ => mount.source.display().to_string(),
        })
        .collect();
    let bytes = if with_size { context.store()?.container_size(seen.container.id())? } else { 0 };
    let running = matches!(seen.state, Observed::Running(_));
    let ports: Vec<String> = config.network.publish.iter().filter(|_| running).map(port).collect();
    Ok(json!({
        "ID": if whole { seen.container.id() } else { seen.container.short_id() },
        "Image": image_name(&seen.record),
        "Command": if whole { format!("{command:?}") } else { format!("\"{}\"", table::shorten(&table::cell(&command), 20)) },
        "CreatedAt": time::full(&config.created),
        "RunningFor": time::ago(&config.created),
        "Status": status(seen),
        "State": status_word(&seen.state),
        "Ports": ports.join(", "),
        "Names": seen.names.join(","),
        "Size": if with_size { size::human(bytes) } else { String::new() },
        "Labels": labels.join(","),
        "Mounts": mounts.join(","),
        "Networks": String::from(config.network.mode.clone()),
        "Mode": config.exec_mode.clone().unwrap_or_default(),
        "@labels": config.labels,
    }))
}

/// The image as the user wrote it, else its short name.
pub(crate) fn image_name(record: &Record) -> String {
    if !record.own.image_name.is_empty() {
        return record.own.image_name.clone();
    }
    match (&record.config.image, &record.config.rootfs) {
        (Some(image), _) => Reference::parse(&image.reference)
            .map_or_else(|_| image.reference.clone(), |reference| reference.familiar()),
        (None, Some(directory)) => directory.display().to_string(),
        (None, None) => String::new(),
    }
}
