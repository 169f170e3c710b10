//! The commands of a batch system, run to their end.

use std::fs::File;
use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};

use crate::error::{Error, Result};

/// Variables that change what `squeue` lists, or how it writes times (squeue(1)).
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

/// The exit status of a shell that does not find a program (POSIX).
const NOT_FOUND: i32 = 127;

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
    /// The command's own words in one line, without its name and `error:`.
    pub(super) fn words(&self) -> String {
        let mut said: Vec<&str> = Vec::new();
        for line in self.err.lines().chain(self.out.lines()) {
            let line = line.rsplit_once("error: ").map_or(line, |(_, words)| words).trim();
            if !line.is_empty() && !said.contains(&line) {
                said.push(line);
            }
        }
        if said.is_empty() { "it does not say why".to_owned() } else { said.join("; ") }
    }
}

/// Runs a command without input, and waits for its end.
///
/// # Errors
/// If it cannot be started.
pub(super) fn ask(words: &[impl AsRef<str>]) -> Result<Answer> {
    run(words, "", None)
}

/// Runs a command line of a shell, and waits for its end; `held` as for [`run`].
///
/// # Errors
/// If a program of it is not installed.
pub(super) fn ask_shell(line: &str, held: Option<&File>) -> Result<Answer> {
    run(&["sh", "-c", line], "", held)
}

/// Runs a command with its whole input, and waits for its end. It holds the lock `held`, too: if
/// this process is killed, the lock is free when the command has ended.
///
/// # Errors
/// If it cannot be started, so that it has done nothing.
pub(super) fn run(words: &[impl AsRef<str>], input: &str, held: Option<&File>) -> Result<Answer> {
    let (program, words) = words.split_first().ok_or_else(|| Error::new("an empty command"))?;
    let program = program.as_ref();
    let mut command = Command::new(program);
    command.args(words.iter().map(AsRef::as_ref));
    for name in UNWANTED {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: &std::io::Error| {
        if error.kind() == ErrorKind::NotFound {
            missing(program)
        } else {
            Error::new(format!("cannot run {program}: {error}"))
        }
    };
    let passed_on = |flags| held.map(|lock| fcntl_setfd(lock, flags));
    passed_on(FdFlags::empty());
    let child = command.spawn();
    passed_on(FdFlags::CLOEXEC);
    let mut child = child.map_err(|error| failed(&error))?;
    // A command that ends without reading its input says why.
    let _ = child.stdin.take().map(|mut stream| stream.write_all(input.as_bytes()));
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    if program == "sh"
        && let Some(name) = err.lines().find_map(not_found)
        && (output.status.code() == Some(NOT_FOUND) || out.trim().is_empty())
    {
        return Err(missing(name));
    }
    Ok(Answer { good: output.status.success(), out, err })
}

fn missing(program: &str) -> Error {
    Error::new(format!("this machine has no {program}"))
        .with_hint("run on a login node of the batch system, or add its commands to PATH")
}

/// The program that a shell has not found: `sh: 1: qsub: not found` (dash), `sh: line 1: qsub:
/// command not found` (bash), `sh: qsub: not found` (busybox).
fn not_found(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("sh: ")?;
    let before =
        rest.strip_suffix(": command not found").or_else(|| rest.strip_suffix(": not found"))?;
    before.rsplit(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_shells_do_not_find() {
        for line in
            ["sh: 1: qsub: not found", "sh: line 1: qsub: command not found", "sh: qsub: not found"]
        {
            assert_eq!(not_found(line), Some("qsub"), "{line}");
        }
        assert_eq!(not_found("qsub: queue x: not found"), None);
        let error = ask_shell("no-such-program-a | cat", None).unwrap_err().to_string();
        assert_eq!(error, "this machine has no no-such-program-a");
        let error = ask(&["no-such-program-b"]).unwrap_err().to_string();
        assert_eq!(error, "this machine has no no-such-program-b");
    }

    #[test]
    fn words_of_a_command_are_one_line() {
        let answer = Answer {
            good: false,
            out: "\n".into(),
            err: "sbatch: error: invalid partition specified: x\nsbatch: error: Batch job \
                  submission failed: Invalid partition name specified\n"
                .into(),
        };
        let words = "invalid partition specified: x; Batch job submission failed: Invalid partition \
                     name specified";
        assert_eq!(answer.words(), words);
    }
}
