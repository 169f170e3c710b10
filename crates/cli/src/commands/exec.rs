//! `exec`.

use engine::plan::Overrides;
use engine::supervise::{self, Launch, Options};

use crate::args::containers::ExecArgs;
use crate::container::{environment, launch, record};
use crate::context::Context;
use crate::report::{Exit, Report};

/// Runs a further command in a running container.
pub(crate) fn run(context: &Context, args: &ExecArgs) -> Result<Exit, Report> {
    let container = record::find(context, &args.container)?;
    let Some(pid) = launch::member(&container)? else {
        return Err(Report::new(format!("container {} is not running", args.container)).hint(
            format!(
                "start it: coracle start {0}, or run the command alone: coracle run {0} COMMAND",
                args.container
            ),
        ));
    };
    let record = record::read(&container)?;
    launch::seal(context, record.config.security.isolate)?;
    let overrides = Overrides {
        command: Some(args.command.clone()),
        env: variables(context, args)?,
        cwd: args.workdir.clone(),
        user: args.user.clone(),
        tty: Some(args.tty),
        exec: true,
        limits_hold: true,
        ..Overrides::default()
    };
    let prepared =
        launch::prepare(context, context.store()?, &container, &record, &overrides, Some(pid))?;
    if !args.tty && !args.detach {
        if !args.interactive && !context.is_udocker() {
            launch::empty_input()?;
        }
        // As in a run: another machine sees a lock only.
        let ended = if engine::records::is_shared(&container.path()) {
            engine::engines::stay(prepared.engine, &prepared.plan, Some(pid), ())?
        } else {
            prepared.engine.become_resident(pid, &prepared.plan)?
        };
        return Ok(Exit(ended.code() as u8));
    }
    let options = Options::exec(&record::title(&container), args.tty, args.interactive);
    let spawn = Box::new(supervise::Planned {
        engine: prepared.engine,
        plan: &prepared.plan,
        enter: Some(pid),
    });
    let session = Launch { dir: container.path(), options, spawn, cleanup: None };
    if args.detach {
        supervise::detached(session)?;
        return Ok(Exit::OK);
    }
    launch::foreground(context, session, args.detach_keys.as_deref(), true)
}

fn variables(context: &Context, args: &ExecArgs) -> Result<Vec<String>, Report> {
    let host = context.environment();
    let mut variables = Vec::new();
    for file in &args.env_file {
        environment::apply(&mut variables, environment::file(file, host)?);
    }
    let changes =
        args.env.iter().map(|text| environment::flag(text, host)).collect::<Result<_, _>>()?;
    environment::apply(&mut variables, changes);
    Ok(variables)
}
