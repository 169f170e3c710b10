//! A batch system in the cluster (`[batch]`), and how a run goes on elsewhere (`[checkpoint]`).

use std::time::Duration;

use super::reader::{Table, Value};
use super::services::{Ready, Replicas, RestartPolicy, Service};
use super::{Image, NODES};
use crate::error::Result;
use crate::parts::{CONTROL, FRONT, FRONT_PORT, Part};
use crate::{gridengine, slurm};

/// A batch system whose nodes are containers (`[batch]`). Its containers are services of the file
/// ([`Service::part`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Which one.
    pub kind: BatchKind,
    /// The nodes that compute, of which there may be several kinds.
    pub compute: Vec<Compute>,
}

/// A batch system that a cluster may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    /// Slurm.
    Slurm,
    /// Grid Engine.
    GridEngine,
}

impl BatchKind {
    /// Both.
    const ALL: [Self; 2] = [Self::Slurm, Self::GridEngine];

    /// Its word in a cluster file, and the name of its directory in the cluster's.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::GridEngine => "gridengine",
        }
    }

    /// Its name in sentences.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Slurm => "Slurm",
            Self::GridEngine => "Grid Engine",
        }
    }
}

/// Nodes that compute (`compute`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compute {
    /// The name of their service, and of their partition or queue.
    pub name: String,
    /// The fewest.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// Processors of each; `None` for all of the host's.
    pub cpus: Option<u32>,
    /// One that was idle for so long is ended.
    pub idle: Duration,
}

/// How a run goes on elsewhere (`[checkpoint]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The files that the application writes.
    pub files: Option<CheckpointFiles>,
    /// What is done before the nodes are gone.
    pub before_end: Option<BeforeEnd>,
    /// How it goes on.
    pub restart: Restart,
}

/// The files that an application writes to go on from (`files`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointFiles {
    /// Their directory in the container.
    pub dir: String,
    /// Which of its files are checkpoints: a pattern whose first group orders them.
    pub pattern: String,
    /// The file whose presence says that one is complete; `{1}` is the group.
    pub complete: Option<String>,
    /// How many are kept.
    pub keep: u32,
}

/// What is done before the nodes are gone (`before_end`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeforeEnd {
    /// So long before.
    pub margin: Duration,
    /// The signal that the application gets.
    pub signal: Option<String>,
}

/// How a run goes on (`restart`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// Words added to the command; `{file}` is the checkpoint.
    pub arguments: Vec<String>,
    /// It is started again at most so often.
    pub tries: u32,
    /// The file in the container that says that all is done.
    pub done_when: Option<String>,
}

/// Signals that an application may get before its nodes are gone.
const KNOWN: &[&str] = &["HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "URG"];

/// The name of the one service of nodes for which the file has none.
const COMPUTE: &str = "compute";

/// The batch system of a file, and the services that it comes to.
pub(super) fn read(top: &Table<'_>) -> Result<Option<(Batch, Vec<Service>)>> {
    const HINT: &str = "a batch system has kind, front, control and compute";
    let keys = ["kind", "front", "control", "compute", "volume", "publish"];
    let Some(table) = top.table("batch", &keys)? else { return Ok(None) };
    let kinds = BatchKind::ALL.map(|kind| (kind.word(), kind));
    let kind = table.need("kind", HINT)?.one_of(&kinds)?;
    let all = table.need("compute", HINT)?;
    let all = if all.is_table() { vec![all] } else { all.array()? };
    let (mut compute, mut images): (Vec<Compute>, Vec<String>) = (Vec::new(), Vec::new());
    for value in &all {
        let (one, image) = nodes(value)?;
        if compute.iter().any(|other| other.name == one.name) {
            return Err(value.wrong("another one has this name", "give each its name = \"...\""));
        }
        compute.push(one);
        images.push(image);
    }
    if compute.is_empty() {
        return Err(table.wrong("there are no nodes", "write compute = { image = \"...\" }"));
    }
    let volumes = table.texts("volume")?;
    let part = |name: &str, image: String, part: Part| Service {
        name: name.to_owned(),
        image: Some(Image::Named(image)),
        command: match kind {
            BatchKind::Slurm => slurm::command(part),
            BatchKind::GridEngine => gridengine::command(part),
        },
        env: Vec::new(),
        volumes: volumes.clone(),
        publish: Vec::new(),
        after: vec![CONTROL.to_owned()],
        ready: Ready::Started,
        ready_within: Duration::from_mins(1),
        replicas: Replicas::Fixed(1),
        balance: None,
        restart: RestartPolicy::Always,
        user: None,
        directory: None,
        zones: Vec::new(),
        part: Some(part),
    };
    let (control, front) =
        (table.need("control", HINT)?.filled()?, table.need("front", HINT)?.filled()?);
    let answers_at = match kind {
        BatchKind::Slurm => slurm::CONTROL_PORT,
        BatchKind::GridEngine => gridengine::CONTROL_PORT,
    };
    let mut services = vec![
        Service {
            ready: Ready::Tcp(answers_at),
            after: Vec::new(),
            ..part(CONTROL, control, Part::Control)
        },
        Service {
            ready: Ready::Tcp(FRONT_PORT),
            publish: table.texts("publish")?,
            ..part(FRONT, front, Part::Front)
        },
    ];
    services.extend(compute.iter().zip(images).map(|(one, image)| Service {
        replicas: Replicas::Fixed(0),
        restart: RestartPolicy::No,
        ..part(&one.name, image, Part::Compute)
    }));
    Ok(Some((Batch { kind, compute }, services)))
}

/// Nodes that compute, and their image.
fn nodes(value: &Value<'_>) -> Result<(Compute, String)> {
    let table = value.table(&["name", "image", "min", "max", "cpus", "idle"])?;
    let count = |key: &str, usual: u64| {
        let count = table.get(key).map_or(Ok(usual), |value| value.number(0..=NODES.into()));
        count.map(|count| count as u32)
    };
    let (min, max) = (count("min", 0)?, count("max", 1)?);
    if min > max || max == 0 {
        return Err(table.wrong("max is less than min, or 0", "write min = 0, max = 16"));
    }
    let cpus = table.get("cpus").map(|value| value.number(1..=4096)).transpose()?;
    let name = table.get("name");
    let own = name.as_ref().map_or(Ok(COMPUTE.to_owned()), Value::name)?;
    if let (Some(value), true) = (name, own == "default") {
        let fact = "a batch system means something else by this name";
        return Err(value.wrong(fact, "give it another one"));
    }
    let compute = Compute {
        name: own,
        min,
        max,
        cpus: cpus.map(|cpus| cpus as u32),
        idle: table.get("idle").map_or(Ok(Duration::from_mins(1)), |value| value.time())?,
    };
    Ok((compute, table.need("image", "write image = \"lab/compute:1\"")?.filled()?))
}

pub(super) fn read_checkpoint(top: &Table<'_>) -> Result<Option<Checkpoint>> {
    let Some(table) = top.table("checkpoint", &["files", "before_end", "restart"])? else {
        return Ok(None);
    };
    let files = table.table("files", &["dir", "match", "complete", "keep"])?;
    let before_end = table.table("before_end", &["margin", "signal"])?;
    let restart = table.table("restart", &["arguments", "tries", "done_when"])?;
    Ok(Some(Checkpoint {
        files: files.map(|table| checkpoint_files(&table)).transpose()?,
        before_end: before_end.map(|table| end(&table)).transpose()?,
        restart: restart.as_ref().map_or(Ok(NO_RESTART), read_restart)?,
    }))
}

const NO_RESTART: Restart = Restart { arguments: Vec::new(), tries: 1, done_when: None };

fn read_restart(table: &Table<'_>) -> Result<Restart> {
    let tries = table.get("tries").map_or(Ok(1), |value| value.number(1..=1000))?;
    let arguments = table.get("arguments");
    Ok(Restart {
        arguments: arguments.map_or(Ok(Vec::new()), |value| value.words())?,
        tries: tries as u32,
        done_when: table.get("done_when").map(|value| value.absolute()).transpose()?,
    })
}

fn checkpoint_files(table: &Table<'_>) -> Result<CheckpointFiles> {
    let pattern = table.need("match", "write match = 'step-([0-9]+)\\.ck'")?;
    let keep = table.get("keep").map_or(Ok(2), |value| value.number(1..=1000))?;
    let text = pattern.filled()?;
    if !text.contains('(') {
        let hint = "the group in parentheses orders the files: 'step-([0-9]+)\\.ck'";
        return Err(pattern.wrong("this has no group", hint));
    }
    Ok(CheckpointFiles {
        dir: table.need("dir", "write dir = \"/job/ck\"")?.absolute()?,
        pattern: text,
        complete: table.get("complete").map(|value| value.filled()).transpose()?,
        keep: keep as u32,
    })
}

fn end(table: &Table<'_>) -> Result<BeforeEnd> {
    let signal = table.get("signal").map(|value| {
        let text = value.filled()?;
        let name = text.strip_prefix("SIG").unwrap_or(&text);
        if KNOWN.contains(&name) {
            Ok(name.to_owned())
        } else {
            Err(value.wrong("there is no such signal here", &format!("use {}", KNOWN.join(", "))))
        }
    });
    Ok(BeforeEnd {
        margin: table.need("margin", "write margin = \"10m\"")?.time()?,
        signal: signal.transpose()?,
    })
}
