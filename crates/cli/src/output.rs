//! What goes to standard output: tables in Docker's layout, templates, JSON, sizes and times for
//! people.
//!
//! Only answers are written here; progress, questions and errors go to standard error. A reader
//! that went away (`coracle ps | head -1`) ends the writing quietly: [`Out`] turns `EPIPE` into a
//! quiet end.

pub(crate) mod file;
pub(crate) mod listing;
pub(crate) mod table;
pub(crate) mod template;
pub(crate) mod time;

use std::io::{self, Write};

use containers::container::launch::Ended;
pub(crate) use containers::size;

use crate::report::{Exit, Report};

/// Writes text to standard output. A closed pipe is not an error: its reader has what it wants.
pub(crate) fn print(text: &str) -> Result<(), Report> {
    offer(text).map(drop)
}

/// The same; whether somebody still reads.
pub(crate) fn offer(text: &str) -> Result<bool, Report> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Report::new("cannot write to standard output").cause(error)),
    }
}

/// Writes one line.
pub(crate) fn line(text: impl std::fmt::Display) -> Result<(), Report> {
    print(&format!("{text}\n"))
}

/// Shows how a run ended: its status, or what it has for an answer.
pub(crate) fn ended(ended: Ended) -> Result<Exit, Report> {
    match ended {
        Ended::Exited(code) => return Ok(Exit(code)),
        Ended::Left => {}
        Ended::Background(id) => line(id)?,
        Ended::Explained(plan) => line(pretty(&plan))?,
    }
    Ok(Exit::OK)
}

/// Indented JSON, four spaces as Docker's `inspect`.
pub(crate) fn pretty(value: &serde_json::Value) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Writing a `Value` to memory cannot fail: it has text keys only.
    let _ = serde::Serialize::serialize(value, &mut serializer);
    String::from_utf8(bytes).unwrap_or_default()
}
