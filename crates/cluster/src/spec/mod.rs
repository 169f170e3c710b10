//! The cluster file: what is to run, on how many nodes, and where these come from.
//!
//! The file is TOML. Each key is known, or an error with its place and the nearest name. Paths are
//! relative to the file's directory. [`read()`] gives a [`Spec`] that is consistent in itself; what
//! the hosts offer is not asked here.

mod backends;
mod batch;
mod check;
mod condition;
mod reader;
mod services;
#[cfg(test)]
mod tests;
pub mod units;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use reader::{Reader, Table, Value};

pub use backends::{Backend, Kind, SshHost, Storage, Topology};
pub use batch::{Batch, BatchKind, BeforeEnd, Checkpoint, CheckpointFiles, Compute, Restart};
pub use condition::{Condition, Measure, Sign, Term};
pub use services::{
    Balance, Mode, REPLICAS, Ready, Replicas, RestartPolicy, Scaling, Service, balancers,
};

/// The most nodes of a file.
pub const NODES: u32 = 1000;

/// A cluster file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Where the file is.
    pub path: PathBuf,
    /// The cluster's name.
    pub name: String,
    /// The image of the node containers, and of services that name none.
    pub image: Option<Image>,
    /// A store that several hosts see keeps images packed; each host unpacks them on a disk of its
    /// own.
    pub pack: bool,
    /// How containers reach each other; `None` for what the hosts allow by themselves.
    pub network: Option<Network>,
    /// The addresses of containers, `ADDRESS/BITS`; `None` for some that no host uses.
    pub subnet: Option<String>,
    /// How many node containers there are, `node1` to `nodeN`; 0 in a file of services alone.
    pub nodes: u32,
    /// Variables of the node containers, in the file's order.
    pub env: Vec<(String, String)>,
    /// Volumes of the node containers, in Docker's short form.
    pub volumes: Vec<String>,
    /// Where nodes come from, in the order of priority; this machine if the file says nothing.
    pub backends: Vec<Backend>,
    /// Services, in the file's order; at the end those that the batch system comes to.
    pub services: Vec<Service>,
    /// What runs to its end.
    pub run: Option<Run>,
    /// A batch system in the cluster.
    pub batch: Option<Batch>,
    /// What is copied to the nodes before, as `FROM:TO`.
    pub input: Vec<String>,
    /// What is copied from the nodes afterwards, as `FROM:TO`.
    pub output: Vec<String>,
    /// How a run is continued elsewhere.
    pub checkpoint: Option<Checkpoint>,
}

/// Where a container's files come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Image {
    /// A reference, as `pull` takes it.
    Named(String),
    /// A directory with a Dockerfile.
    Built(String),
}

/// How containers reach each other (`network`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// As the hosts do; names alone are added.
    Host,
    /// By the hosts' sockets, with own names, addresses and ports.
    Names,
    /// By packets, in network namespaces of their own.
    Overlay,
}

/// How the processes of [`Run`] begin (`launch`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launch {
    /// The command runs in the container of one node, and reaches the others by name.
    Inside,
    /// The host's `srun` or `mpiexec` starts a container for each rank.
    Ranks,
}

/// What runs to its end (`[run]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The node that the command runs on.
    pub on: String,
    /// How its processes begin.
    pub launch: Launch,
    /// The command.
    pub command: Vec<String>,
    /// How many processes a node takes: `slots` of the host file.
    pub slots: Option<u32>,
    /// Variables, in the file's order.
    pub env: Vec<(String, String)>,
    /// The directory in the container.
    pub directory: Option<String>,
    /// It is ended after so long.
    pub time: Option<Duration>,
}

impl Spec {
    /// Whether a service has a pair of balancers between which an address moves.
    pub(crate) fn has_moving_address(&self, service: &Service) -> bool {
        let is_pair = service.balance.as_ref().is_some_and(|balance| balance.pair);
        is_pair && self.network == Some(Network::Overlay)
    }

    /// The directory that paths of the file are relative to.
    pub fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

const TOP: &[&str] = &[
    "name",
    "image",
    "build",
    "pack",
    "network",
    "subnet",
    "nodes",
    "env",
    "volume",
    "backend",
    "service",
    "run",
    "batch",
    "input",
    "output",
    "checkpoint",
];
const RUN: &[&str] = &["on", "launch", "command", "slots", "env", "directory", "time"];

/// Reads a cluster file.
///
/// # Errors
/// If the file cannot be read, and as [`parse`] does.
pub fn read(path: &Path) -> Result<Spec> {
    parse(path, &text_of(path)?)
}

/// The name of a cluster, as somebody types it.
///
/// # Errors
/// If no cluster can be called so.
pub fn name(text: &str) -> Result<String> {
    match reader::check_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(why) => Err(Error::new(why).with_hint(reader::NAME_HINT)),
    }
}

fn text_of(path: &Path) -> Result<String> {
    let text = std::fs::read(path).map_err(|error| {
        let fact = format!("cannot read the cluster file {}: {error}", path.display());
        Error::new(fact).with_hint("give its path: -f FILE")
    })?;
    String::from_utf8(text).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::new(format!("{} is no text: byte {at} is not UTF-8", path.display()))
            .with_hint("a cluster file is TOML; see docs/cluster.md")
    })
}

/// Reads the text of a cluster file; `path` is for paths in it, and for errors.
///
/// # Errors
/// With place and hint: it is no TOML, a key is unknown, missing or double, a value is of the wrong
/// form, or two parts contradict each other.
pub fn parse(path: &Path, text: &str) -> Result<Spec> {
    parse_and(path, text, |_, _| Ok(()))
}

/// Reads a cluster file that is to be started.
///
/// # Errors
/// As [`read()`] does, and where the file wants what is not carried out yet.
pub fn read_to_start(path: &Path) -> Result<Spec> {
    parse_and(path, &text_of(path)?, check::is_carried_out)
}

fn parse_and(
    path: &Path,
    text: &str,
    more: impl FnOnce(&Table<'_>, &Spec) -> Result<()>,
) -> Result<Spec> {
    let reader = Reader { path, text };
    let table = reader.parse()?;
    let top = Table::of(&reader, "", &table, TOP)?;
    let run = top.table("run", RUN)?.map(|table| run(&table)).transpose()?;
    let image = image(&top)?;
    let nodes = top.get("nodes").map(|value| value.number(1..=u64::from(NODES))).transpose()?;
    // A run needs a container.
    let nodes = nodes.map_or(u32::from(run.is_some()), |nodes| nodes as u32);
    let mut services = services::read(&top)?;
    let batch = batch::read(&top)?.map(|(batch, own)| {
        services.extend(own);
        batch
    });
    let spec = Spec {
        path: path.to_owned(),
        name: top.need("name", "a cluster has a name: name = \"lab\"")?.name()?,
        image,
        pack: top.get("pack").map_or(Ok(false), |value| value.flag())?,
        network: top
            .get("network")
            .map(|value| {
                value.one_of(&[
                    ("host", Network::Host),
                    ("names", Network::Names),
                    ("overlay", Network::Overlay),
                ])
            })
            .transpose()?
            // Ranks speak to their launcher by the host's loopback.
            .or(run.as_ref().filter(|run| run.launch == Launch::Ranks).map(|_| Network::Host)),
        subnet: top.get("subnet").map(|value| value.subnet()).transpose()?,
        nodes,
        env: env(&top)?,
        volumes: top.texts("volume")?,
        backends: backends::read(&top)?,
        services,
        run,
        batch,
        input: top.texts("input")?,
        output: top.texts("output")?,
        checkpoint: batch::read_checkpoint(&top)?,
    };
    check::check(&top, &spec)?;
    more(&top, &spec)?;
    Ok(spec)
}

/// `image` or `build` of a table.
fn image(table: &Table<'_>) -> Result<Option<Image>> {
    match (table.get("image"), table.get("build")) {
        (Some(_), Some(build)) => {
            Err(build.wrong("it has an image already", "keep either image or build"))
        }
        (Some(image), None) => Ok(Some(Image::Named(image.filled()?))),
        (None, Some(build)) => Ok(Some(Image::Built(build.filled()?))),
        (None, None) => Ok(None),
    }
}

/// `env` of a table: texts, numbers and truth values.
fn env(table: &Table<'_>) -> Result<Vec<(String, String)>> {
    let Some(env) = table.get("env") else { return Ok(Vec::new()) };
    env.pairs()
}

/// `command`: words, or one text that a shell reads, as Docker has it.
fn command(value: &Value<'_>) -> Result<Vec<String>> {
    let words = value.words()?;
    if words.is_empty() || words[0].is_empty() {
        return Err(value.wrong("the command is empty", "write command = [\"PROGRAM\", \"WORD\"]"));
    }
    Ok(words)
}

fn run(table: &Table<'_>) -> Result<Run> {
    Ok(Run {
        on: table.get("on").map_or(Ok("node1".to_owned()), |value| value.filled())?,
        launch: table.get("launch").map_or(Ok(Launch::Inside), |value| {
            value.one_of(&[("inside", Launch::Inside), ("ranks", Launch::Ranks)])
        })?,
        command: command(&table.need("command", "write command = [\"PROGRAM\", \"WORD\"]")?)?,
        slots: table
            .get("slots")
            .map(|value| value.number(1..=65_536))
            .transpose()?
            .map(|slots| slots as u32),
        env: env(table)?,
        directory: table.get("directory").map(|value| value.absolute()).transpose()?,
        time: table.get("time").map(|value| value.time()).transpose()?,
    })
}
