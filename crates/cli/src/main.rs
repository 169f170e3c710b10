//! The binary `coracle`: the command line as a front end of the crate `containers`.
//!
//! `parser` reads the words into the types of `args`, each command has a file in `commands`,
//! `output`, `terminal` and `report` write to the user, `context` reads the environment. A module
//! uses only those after it in this list: `parser`, `commands`, `udocker`, `context`, `terminal`,
//! `args`, `output`, `report`. The libraries beneath never print and never exit.

mod args;
mod commands;
mod context;
mod dialect;
mod logging;
mod output;
mod parser;
mod prompt;
mod report;
mod terminal;
mod udocker;

use std::ffi::OsString;
use std::process::ExitCode;

use context::Context;
use report::{Exit, Report};
use sys::arguments::Words;

/// What `--version` prints: udocker's lines under its name.
fn version_text() -> String {
    if dialect::is_udocker() { udocker::version() } else { version_line() }
}

/// Name and version.
fn version_line() -> String {
    format!("coracle version {}\n", env!("CARGO_PKG_VERSION"))
}

/// Does what the words on the command line came to.
fn run(parsed: parser::Parsed, mut words: Words, as_udocker: bool) -> Result<Exit, Report> {
    match parsed {
        parser::Parsed::Text(text) => output::print(&text).map(|()| Exit::OK),
        parser::Parsed::Command(global, command, matches) => {
            parser::secrets(&matches, |value, shown| words.hide_value(value, shown));
            words.wipe();
            let done = logging::start(global.debug, global.log_level.as_deref())
                .and_then(|()| (command.run)(&Context::new(global, words), &matches));
            let keeps = as_udocker || command.runs_program();
            done.map_err(|report| if keeps { report } else { report.of_plain_command() })
        }
    }
}

/// Refuses to work with a stack on which this program would be killed.
fn has_stack() -> Result<(), Report> {
    let Some(limit) = engine::launch::short_stack() else { return Ok(()) };
    Err(Report::new(format!("a stack of {} kB is too small", limit / 1024))
        .hint("the hard limit of the stack is reached; give more: ulimit -s 1024"))
}

fn main() -> ExitCode {
    engine::launch::settle();
    let as_udocker = dialect::is_udocker();
    let given = match context::words() {
        Ok(given) => given,
        Err(error) => {
            let report = Report::new("the command line is not complete").cause(error);
            report.show();
            return ExitCode::from(report.status().0);
        }
    };
    let mut words: Vec<OsString> = given.all().iter().skip(1).cloned().collect();
    if let Some(command) = dialect::command_of_node() {
        words.splice(..0, command.map(OsString::from));
    }
    if dialect::is_rsh() {
        return ExitCode::from(commands::cluster::rsh(words, dialect::door().as_deref()).0);
    }
    if words.first().is_some_and(|word| word == engine::engines::inprocess::probe::WORD) {
        let words: Vec<&str> = words[1..].iter().filter_map(|word| word.to_str()).collect();
        return ExitCode::from(engine::engines::inprocess::probe::be_guest(&words));
    }
    if words.first().is_some_and(|word| word == engine::engines::external::first_process::WORD) {
        return ExitCode::from(engine::choose::be_first_process());
    }
    if words.first().is_some_and(|word| word == engine::launch::init::WORD) {
        return ExitCode::from(engine::launch::init::be_init(
            words.get(1).and_then(|word| word.to_str()),
        ));
    }
    if words.first().is_some_and(|word| word == containers::container::network_agent::WORD) {
        let store = words.get(1).map(std::path::Path::new);
        return ExitCode::from(containers::container::network_agent::be_agent(store));
    }
    if words.first().is_some_and(|word| word == "run" || word == "exec") {
        sys::prefault::start();
    }
    engine::launch::lift_limits();
    let ended = has_stack()
        .and_then(|()| parser::parse(words, as_udocker))
        .and_then(|parsed| run(parsed, given, as_udocker));
    let exit = ended.unwrap_or_else(|report| {
        report.show();
        if as_udocker { udocker::status(report.status()) } else { report.status() }
    });
    ExitCode::from(exit.0)
}
