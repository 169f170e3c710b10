//! The commands of a batch system, run to their end.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// Variables that change what `squeue` lists or how it writes times (squeue(1)).
const UNWANTED: &[&str] = &[
    "SQUEUE_ACCOUNT",
    "SQUEUE_ALL",
    "SQUEUE_ARRAY",
    "SQUEUE_CLUSTERS",
    "SQUEUE_FEDERATION",
    "SQUEUE_FORMAT",
    "SQUEUE_FORMAT2",
    "SQUEUE_LICENSES",
    "SQUEUE_LOCAL",
    "SQUEUE_NAMES",
    "SQUEUE_PARTITION",
    "SQUEUE_PRIORITY",
    "SQUEUE_QOS",
    "SQUEUE_SIBLING",
    "SQUEUE_SORT",
    "SQUEUE_STATES",
    "SQUEUE_USERS",
    "SLURM_TIME_FORMAT",
];

/// What a command has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// Whether its exit status was 0.
    pub good: bool,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Answer {
    /// The last line of the command's own words, without its name and `error:`; one that says more
    /// than that the submission has failed, if there is one.
    pub(super) fn words(&self) -> String {
        let lines = self.err.lines().chain(self.out.lines()).map(str::trim);
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
        let last = lines.last().copied().unwrap_or("it says nothing");
        last.rsplit_once("error: ").map_or(last, |(_, words)| words).to_owned()
    }
}

/// Runs a command with its whole input, and waits for its end.
///
/// # Errors
/// If it cannot be started.
pub(super) fn ask(words: &[impl AsRef<str>], input: &str) -> Result<Answer> {
    let (program, words) = words.split_first().ok_or_else(|| Error::new("an empty command"))?;
    let program = program.as_ref();
    let mut command = Command::new(program);
    command.args(words.iter().map(AsRef::as_ref));
    for name in UNWANTED {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            Error::new(format!("this machine has no {program}"))
                .with_hint("run this on a login node of the batch system, or add it to PATH")
        } else {
            Error::new(format!("cannot run {program}: {error}"))
        }
    };
    let mut child = command.spawn().map_err(failed)?;
    // A command that ends without reading its input says why.
    let _ = child.stdin.take().map(|mut stream| stream.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Answer {
        good: output.status.success(),
        out: text(&output.stdout),
        err: text(&output.stderr),
    })
}
