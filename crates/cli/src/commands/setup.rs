//! `setup`: the execution mode and the GPUs that a container keeps.

use engine::choose;
use engine::facts::Facts;

use crate::args::containers::SetupArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use containers::container::gpus::GpuRequest;
use containers::container::{convert, record, running};

/// Keeps a mode, or prints the one that is kept or would be chosen.
pub(crate) fn run(context: &Context, args: &SetupArgs) -> Result<Exit, Report> {
    let container = record::find(context.session()?, &args.container)?;
    let mut record = record::read(&container)?;
    if args.nvidia || args.gpus.is_some() {
        let _lock = container.lock_exclusive()?;
        record = record::read(&container)?;
        let devices = &record.own.gpus.devices;
        record.own.gpus = GpuRequest::new(args.gpus.as_deref(), args.nvidia, devices)?;
        container.write(&record)?;
    }
    let done = args.nvidia || args.gpus.is_some() || args.fixperm || args.purge;
    if done && args.execmode.is_none() {
        return Ok(Exit::OK);
    }
    let mut config = record.config.clone();
    config.exec_mode = args.execmode.clone().or(config.exec_mode);
    let session = context.session()?;
    let facts = Facts::of(session.host(), &session.probing(), &config);
    let Some(mode) = &args.execmode else {
        let engine = choose::choose(&facts, None, &record.config)?;
        let is_kept = record.config.exec_mode.is_some() || context.presentation().own_lines;
        let kept = if is_kept { "" } else { " (chosen for this host)" };
        let mode = record.config.exec_mode.as_deref().unwrap_or(engine.name());
        output::line(format!("execmode: {mode}{kept}"))?;
        if context.presentation().own_lines {
            let wished = !record.own.gpus.gpus.is_empty();
            output::line(format!("nvidiamode: {}", if wished { "True" } else { "False" }))?;
        }
        return Ok(Exit::OK);
    };
    let engine = choose::choose(&facts, Some(mode), &record.config)?;
    running::is_here(&container)?;
    if !args.force {
        running::not_running(&container)?;
    }
    convert::fit(context.session()?, context.store()?, &container, &mut record, engine)?;
    let _lock = container.lock_exclusive()?;
    let mut record = record::read(&container)?;
    // As it was asked for: F3 is another name of F2.
    record.config.exec_mode = Some(mode.to_ascii_uppercase());
    container.write(&record)?;
    Ok(Exit::OK)
}
