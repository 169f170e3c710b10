//! What libraries trace, shown on standard error when the user asks (`--debug`, `--log-level`,
//! `CORACLE_LOG`).

use tracing_subscriber::filter::LevelFilter;

use crate::report::Report;

const LEVELS: &str = "error, warn, info, debug, trace";

/// Starts the log. Unless a level is named nothing is set up: the cost would be on every command.
pub(crate) fn start(debug: bool, level: Option<&str>) -> Result<(), Report> {
    let named = level.map(str::to_owned).or_else(|| std::env::var("CORACLE_LOG").ok());
    let level = match named.as_deref() {
        _ if debug => LevelFilter::DEBUG,
        None | Some("" | "off" | "fatal") => return Ok(()),
        Some(name) => name.parse().map_err(|_| {
            Report::usage(format!("'{name}' is not a log level"))
                .hint(format!("it is one of: {LEVELS}"))
        })?,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .without_time();
    let _ = log.try_init();
    Ok(())
}
