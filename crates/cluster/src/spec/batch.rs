//! A batch system in the cluster (`[batch]`), and how a run goes on elsewhere (`[checkpoint]`).

use std::time::Duration;

use super::reader::Table;
use crate::error::Result;

/// A batch system whose nodes are containers (`[batch]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The system: `slurm`.
    pub kind: String,
    /// The image that users log in to.
    pub front: String,
    /// The image of the controller.
    pub control: String,
    /// The nodes that compute.
    pub compute: Compute,
    /// Volumes of all of them, in Docker's short form.
    pub volumes: Vec<String>,
}

/// The nodes that compute (`compute`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compute {
    /// Their image.
    pub image: String,
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

pub(super) fn read(top: &Table<'_>) -> Result<Option<Batch>> {
    const HINT: &str = "a batch system has kind, front, control and compute";
    let Some(table) = top.table("batch", &["kind", "front", "control", "compute", "volume"])?
    else {
        return Ok(None);
    };
    let compute = table.need("compute", HINT)?;
    let compute = compute.table(&["image", "min", "max", "cpus", "idle"])?;
    let count = |key: &str, usual: u64| {
        compute.get(key).map_or(Ok(usual), |value| value.number(0..=1000)).map(|it| it as u32)
    };
    let (min, max) = (count("min", 0)?, count("max", 1)?);
    if min > max || max == 0 {
        return Err(compute.wrong("max is less than min, or 0", "write min = 0, max = 16"));
    }
    let cpus = compute.get("cpus").map(|value| value.number(1..=4096)).transpose()?;
    let idle = compute.get("idle").map_or(Ok(Duration::from_mins(1)), |value| value.time())?;
    let image = compute.need("image", "write image = \"lab/compute:1\"")?.filled()?;
    Ok(Some(Batch {
        kind: table.need("kind", HINT)?.one_of(&[("slurm", "slurm")])?.to_owned(),
        front: table.need("front", HINT)?.filled()?,
        control: table.need("control", HINT)?.filled()?,
        compute: Compute { image, min, max, cpus: cpus.map(|cpus| cpus as u32), idle },
        volumes: table.texts("volume")?,
    }))
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
