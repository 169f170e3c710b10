//! `stats`: what running containers use, once or again each second.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use containers::container::stats::{self, Sample};
use containers::container::{list, record};
use serde_json::{Value, json};
use store::ContainerDir;

use crate::args::containers::StatsArgs;
use crate::context::Context;
use crate::output::listing::{Column, Listing};
use crate::output::{self, size};
use crate::report::{Exit, Report};

const COLUMNS: &[Column] = &[
    ("ID", "CONTAINER ID"),
    ("Name", "NAME"),
    ("CPUPerc", "CPU %"),
    ("MemUsage", "MEM USAGE / LIMIT"),
    ("MemPerc", "MEM %"),
    ("NetIO", "NET I/O"),
    ("BlockIO", "BLOCK I/O"),
    ("PIDs", "PIDS"),
];
const MORE: &[Column] = &[("Container", "CONTAINER")];
/// Time between two samples.
const PERIOD: Duration = Duration::from_secs(1);
/// Goes to the first line of a terminal and clears it.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Samples by the ids of containers.
type Samples = HashMap<String, Sample>;

/// Runs it.
pub(crate) fn run(context: &Context, args: &StatsArgs) -> Result<Exit, Report> {
    let StatsArgs { all, no_stream, no_trunc, format, containers } = args;
    let listing = Listing { format: format.as_deref(), shown: COLUMNS, more: MORE, quiet: None };
    let named = named(context, containers)?;
    let watched = || -> Result<Vec<(String, ContainerDir)>, Report> {
        if containers.is_empty() { every(context, *all) } else { Ok(there(&named)) }
    };
    // The first sample is what the second is compared with.
    let mut earlier = measure(&watched()?)?;
    let clears = !no_stream && io::stdout().is_terminal();
    loop {
        std::thread::sleep(PERIOD);
        let watched = watched()?;
        let samples = measure(&watched)?;
        let rows: Vec<Value> = watched
            .iter()
            .map(|(word, container)| {
                let id = container.id();
                let pair = samples.get(id).map(|now| (now, earlier.get(id).unwrap_or(now)));
                row(word, container, pair, *no_trunc)
            })
            .collect();
        let picture = [if clears { CLEAR } else { "" }, &listing.render(&rows)?].concat();
        if !output::offer(&picture)? || *no_stream {
            return Ok(Exit::OK);
        }
        // Containers that were named have all been removed.
        if !containers.is_empty() && watched.is_empty() {
            return Ok(Exit::OK);
        }
        earlier = samples;
    }
}

/// The containers that the words mean, with the words.
fn named(context: &Context, words: &[String]) -> Result<Vec<(String, ContainerDir)>, Report> {
    let session = context.session()?;
    let find = |word: &String| Ok((word.clone(), record::find(session, word)?));
    words.iter().map(find).collect()
}

/// Those of them that have not been removed.
fn there(named: &[(String, ContainerDir)]) -> Vec<(String, ContainerDir)> {
    named.iter().filter(|(_, container)| container.path().exists()).cloned().collect()
}

/// All that run, or all, the newest first.
fn every(context: &Context, all: bool) -> Result<Vec<(String, ContainerDir)>, Report> {
    let mut listed = list::map(context.store()?, all, Box::new)?;
    listed.sort_by(|a, b| b.glance.created.cmp(&a.glance.created));
    let word = |container: &ContainerDir| container.short_id().to_owned();
    Ok(listed.into_iter().map(|seen| (word(&seen.container), seen.container)).collect())
}

fn measure(watched: &[(String, ContainerDir)]) -> Result<Samples, Report> {
    let mut samples = Samples::new();
    for (_, container) in watched {
        match stats::sample(container) {
            Ok(sample) => samples.extend(sample.map(|sample| (container.id().to_owned(), sample))),
            // It was removed meanwhile.
            Err(_) if !container.path().exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(samples)
}

/// `pair`: the sample of now and the one before; none for a container that does not run here.
fn row(
    word: &str,
    container: &ContainerDir,
    pair: Option<(&Sample, &Sample)>,
    whole: bool,
) -> Value {
    let names = container.names().unwrap_or_default();
    let id = if whole { container.id() } else { container.short_id() };
    let [cpu, memory, share, network, block, pids] = match pair {
        None => ["--", "-- / --", "--", "--", "--", "--"].map(str::to_owned),
        Some((now, earlier)) => {
            let (received, sent) = now.network.unwrap_or_default();
            [
                format!("{:.2}%", now.cpu_percent(earlier)),
                format!("{} / {}", size::binary(now.memory), size::binary(now.memory_limit)),
                format!("{:.2}%", now.memory_percent()),
                format!("{} / {}", size::human(received), size::human(sent)),
                format!("{} / {}", size::human(now.read), size::human(now.written)),
                now.pids.to_string(),
            ]
        }
    };
    json!({
        "BlockIO": block,
        "CPUPerc": cpu,
        "Container": word,
        "ID": id,
        "MemPerc": share,
        "MemUsage": memory,
        "Name": names.first().map_or("", String::as_str),
        "NetIO": network,
        "PIDs": pids,
    })
}
