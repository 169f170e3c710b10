//! `ps`.

use containers::container::list::{self, Glance, Listed};
use containers::container::port_filter::PortFilters;
use containers::container::record;
use containers::filter::Filters;
use containers::images::remote;
use engine::spec::{MountKind, MountSpec, NetworkMode, NetworkSpec, Publish};
use engine::supervise::state::Observed;
use serde_json::{Map, Value};

use crate::args::containers::PsArgs;
use crate::context::Context;
use crate::output::listing::{Column, Entry, Listing};
use crate::output::{self, size, table, time};
use crate::report::{Exit, Report};
use crate::udocker::listing;

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
const FILTERS: &[&str] = &[
    "name", "id", "status", "label", "ancestor", "exited", "before", "since", "volume", "network",
    "publish", "expose", "health",
];

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
    let ports = PortFilters::parse(&filters)?;
    check_health(&filters)?;
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
    let entry = |seen: &Listed| -> Result<Entry, Report> {
        Ok(listing.entry(row(sizes, seen, args.no_trunc, &listing)?))
    };
    let entries: Vec<Entry> = if args.filter.is_empty() && limit == usize::MAX {
        // A row is made where its container was read, and nothing else is kept of it.
        let made = list::map(store, every, |seen| Ok((entry(&seen)?, seen.glance.created)))?;
        let mut made: Vec<(Entry, String)> = made.into_iter().collect::<Result<_, Report>>()?;
        made.sort_by(|a, b| b.1.cmp(&a.1));
        made.into_iter().map(|(entry, _)| entry).collect()
    } else {
        let mut rows = list::map(store, every, Box::new)?;
        rows.sort_by(|a, b| b.glance.created.cmp(&a.glance.created));
        rows.retain(|seen| {
            matches(context, seen, &filters, &bounds) && ports.match_any(store, seen)
        });
        rows.truncate(limit);
        rows.iter().map(|seen| entry(seen)).collect::<Result<_, _>>()?
    };
    output::print(&listing.finish(entries)?)?;
    Ok(Exit::OK)
}

/// What filters mean by the names of other objects.
struct Bounds {
    before: Option<String>,
    since: Option<String>,
    /// The names of networks that are wanted by their ids.
    networks: Vec<String>,
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
        let session = context.session()?;
        let network = |wanted: &str| containers::networks::named_by_id(session, wanted);
        let found = filters.of("network").map(network);
        let networks = found.filter_map(Result::transpose).collect::<containers::Result<_>>()?;
        Ok(Self { before: created("before")?, since: created("since")?, networks })
    }
}

fn matches(context: &Context, seen: &Listed, filters: &Filters, bounds: &Bounds) -> bool {
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
        && filters.any("status", |wanted| list::status_word(&seen.state) == wanted)
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
        && filters.any("network", |wanted| match wanted.parse() {
            Ok(NetworkMode::Named(name)) => {
                let names = config.network.networks.iter().map(|one| &one.name);
                let mut names = names.filter(|own| **own == name || bounds.networks.contains(*own));
                names.next().is_some()
            }
            Ok(wanted) => network_of(config) == resolved(wanted),
            Err(_) => false,
        })
        // No health checks are run.
        && filters.any("health", |wanted| wanted == "none")
        && filters.labels(&config.labels)
        && bounds.before.as_ref().is_none_or(|before| config.created < *before)
        && bounds.since.as_ref().is_none_or(|since| config.created > *since)
}

/// The networks of a container, as they are shown.
fn networks(glance: &Glance) -> String {
    match network_of(glance) {
        NetworkMode::Named(_) => {
            let names = glance.network.networks.iter().map(|one| one.name.as_str());
            names.collect::<Vec<_>>().join(",")
        }
        mode => String::from(mode),
    }
}

/// The network of a container.
fn network_of(glance: &Glance) -> NetworkMode {
    list::network_mode(&glance.network, glance.security.isolate)
}

/// `default` is the network of a container that says nothing.
fn resolved(mode: NetworkMode) -> NetworkMode {
    list::network_mode(&NetworkSpec { mode, ..NetworkSpec::default() }, false)
}

fn check_health(filters: &Filters) -> Result<(), Report> {
    const KNOWN: [&str; 4] = ["starting", "healthy", "unhealthy", "none"];
    if filters.all("health", |wanted| KNOWN.contains(&wanted)) {
        return Ok(());
    }
    Err(Report::usage("--filter health= has an unknown value")
        .hint("there are starting, healthy, unhealthy and none"))
}

fn is_ancestor(context: &Context, glance: &Glance, wanted: &str) -> bool {
    let Some(image) = &glance.image else { return false };
    let canonical = context
        .session()
        .and_then(|session| Ok(remote::reference(session, wanted)?))
        .map(|reference| reference.to_string());
    let id = image.config.trim_start_matches("sha256:");
    canonical.is_ok_and(|canonical| canonical == image.reference)
        || glance.image_name == wanted
        || id.starts_with(wanted.trim_start_matches("sha256:"))
        || image.manifest == wanted
}

fn status(seen: &Listed) -> String {
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
                    .and_then(list::started)
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
        Observed::Ended => "Exited".to_owned(),
        Observed::Dead { .. } => "Dead".to_owned(),
    }
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
    seen: &Listed,
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
            "Image" => config.image_name(),
            "Command" if whole => format!("{:?}", config.command.join(" ")),
            "Command" => {
                let command = table::cell(&config.command.join(" "));
                format!("\"{}\"", table::shorten(&command, 20))
            }
            "CreatedAt" => time::full(&config.created),
            "RunningFor" => time::ago(&config.created),
            "Status" => status(seen),
            "State" => list::status_word(&seen.state).to_owned(),
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
            "Networks" => networks(config),
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

fn ports(seen: &Listed) -> String {
    if !matches!(seen.state, Observed::Running(_)) {
        return String::new();
    }
    let ports: Vec<String> = seen.glance.network.published().iter().map(port).collect();
    ports.join(", ")
}

fn mount_title(mount: &MountSpec) -> String {
    match (mount.kind, &mount.name) {
        (MountKind::Volume, Some(name)) => name.clone(),
        _ => mount.source.display().to_string(),
    }
}
