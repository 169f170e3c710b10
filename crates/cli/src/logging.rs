//! What libraries trace, shown on standard error when the user asks (`--debug`, `--log-level`, `CORACLE_LOG`).

use tracing_subscriber::filter::LevelFilter;

use crate::args::Global;
use crate::report::Report;

const LEVELS: &str = "error, warn, info, debug, trace";

/// Starts the log. Without a wish nothing is set up: the cost would be on every command.
pub(crate) fn start(global: &Global) -> Result<(), Report> {
    let wish = global.log_level.clone().or_else(|| std::env::var("CORACLE_LOG").ok());
    let level = match wish.as_deref() {
        _ if global.debug => LevelFilter::DEBUG,
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
