//! `stop` and `restart`.

use std::time::Duration;

use engine::supervise::{self, Signal, StopOptions};
use store::ContainerDir;

use crate::args::containers::{RestartArgs, StopArgs};
use crate::container::{launch, record, spec};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// `stop`.
pub(crate) fn run(context: &Context, args: &StopArgs) -> Result<Exit, Report> {
    let mut names = args.containers.clone();
    if args.all {
        names.extend(
            context.store()?.containers().list()?.iter().map(|container| container.id().to_owned()),
        );
    }
    super::each(&names, |name| {
        let container = record::find(context, name)?;
        if let Some(host) = &args.host_is_gone {
            record::forget_host(context, &container, host, args.all)?;
        }
        stop(&container, args.time, args.signal.as_deref())?;
        output::line(name)
    })
}

/// `restart`.
pub(crate) fn restart(context: &Context, args: &RestartArgs) -> Result<Exit, Report> {
    launch::seal_for(context, &args.containers)?;
    super::each(&args.containers, |name| {
        let container = record::find(context, name)?;
        stop(&container, args.time, args.signal.as_deref())?;
        super::start::detached(context, container)?;
        output::line(name)
    })
}

/// Stops one container as its record says, or as asked. A negative time waits without end, as in Docker.
fn stop(
    container: &ContainerDir,
    seconds: Option<i64>,
    signal: Option<&str>,
) -> Result<(), Report> {
    let config = record::read(container)?.config;
    let signal = match signal {
        Some(name) => spec::check_signal(name)?,
        None if config.stop_signal.is_empty() => Signal::TERM,
        None => spec::check_signal(&config.stop_signal)?,
    };
    let seconds = seconds.unwrap_or_else(|| config.stop_timeout.map_or(10, i64::from));
    let timeout = u64::try_from(seconds).ok().map(Duration::from_secs);
    supervise::stop(&container.path(), StopOptions { signal, timeout })?;
    Ok(())
}
