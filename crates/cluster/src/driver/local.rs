//! This machine as a host: commands are children of this process.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};

use super::{Done, Host};
use crate::error::{Error, Result};

/// This machine.
#[derive(Debug, Clone)]
pub struct Local {
    /// The path of this program, and the words of its options that stand before a command.
    pub program: Vec<OsString>,
}

impl Local {
    fn command(&self, words: &[String]) -> Result<Command> {
        let (program, options) =
            self.program.split_first().ok_or_else(|| Error::new("there is no program to run"))?;
        let mut command = Command::new(program);
        command.args(options).args(words);
        Ok(command)
    }
}

/// The status of a shell: 128+n for signal n.
fn status(ended: ExitStatus) -> u8 {
    let number = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

impl Host for Local {
    fn run(&self, words: &[String]) -> Result<Done> {
        let output = self.command(words)?.stdin(Stdio::null()).output();
        let output = output.map_err(|error| not_started(words, &error))?;
        Ok(Done { status: status(output.status), out: output.stdout, err: output.stderr })
    }

    fn run_attached(&self, words: &[String]) -> Result<u8> {
        let ended = self.command(words)?.status().map_err(|error| not_started(words, &error))?;
        Ok(status(ended))
    }
}

fn not_started(words: &[String], error: &std::io::Error) -> Error {
    Error::new(format!("cannot run coracle {}: {error}", crate::plan::join(words)))
}
