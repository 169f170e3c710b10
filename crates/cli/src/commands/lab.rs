//! `lab`: this process becomes `coracle-lab`, a program of its own.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::args::system::LabArgs;
use crate::context::Context;
use crate::report::{Exit, Report};

const PROGRAM: &str = "coracle-lab";

/// Runs it.
pub(crate) fn run(_: &Context, args: &LabArgs) -> Result<Exit, Report> {
    let error = Command::new(PROGRAM).args(&args.words).exec();
    if error.kind() == ErrorKind::NotFound {
        return Err(Report::new(format!("{PROGRAM} is not installed"))
            .hint("it is a Python package in Coracle's sources: pip install './lab[report]'"));
    }
    Err(Report::new(format!("cannot start {PROGRAM}")).cause(error))
}
