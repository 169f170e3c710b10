//! Runs a further program in a running container (`exec`), or connects to its program (`attach`).

use engine::plan::Overrides;
use engine::supervise::{self, AttachOptions, Console, Launch, Options};

use super::launch::{self, Ended};
use super::prepare::prepare;
use super::{networks, ranks, record, running, told};
use crate::error::{Error, Result};
use crate::events::Event;
use crate::journal::{self, Kind};
use crate::request::environment::{self, Change};
use crate::session::Session;

/// A further program in a running container.
#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    /// The container's name or id.
    pub container: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables.
    pub env: Vec<Change>,
    /// Working directory inside the container.
    pub workdir: Option<String>,
    /// `USER[:GROUP]`.
    pub user: Option<String>,
    /// A terminal of its own.
    pub tty: bool,
    /// Keep standard input open.
    pub interactive: bool,
    /// Leave a supervisor behind and come back.
    pub detach: bool,
    /// Keys that leave it running.
    pub detach_keys: Option<String>,
}

/// Runs it.
pub fn exec(session: &Session, request: &ExecRequest) -> Result<Ended> {
    session.may_fork("start a program")?;
    let name = &request.container;
    let container = record::find(session, name)?;
    let Some(pid) = running::member(&container)? else {
        return Err(Error::conflict(format!("container {name} is not running")).with_hint(
            format!(
                "start it: coracle start {name}, or run the command alone: coracle run {name} COMMAND"
            ),
        ));
    };
    running::not_paused(&container, |title| {
        format!("container {title} is paused, unpause the container before exec")
    })?;
    let mut record = record::read(&container)?;
    launch::seal(session, record.config.security.isolate)?;
    networks::as_started(session, container.id(), &mut record.config)?;
    let mut env = Vec::new();
    environment::apply(&mut env, request.env.iter().cloned());
    let overrides = Overrides {
        command: Some(request.command.clone()),
        env,
        cwd: request.workdir.clone(),
        user: request.user.clone(),
        tty: Some(request.tty),
        exec: true,
        limits_hold: true,
        ..Overrides::default()
    };
    let place = networks::place(session, &container, &record.config)?;
    let store = session.store()?;
    let prepared =
        prepare(session, store, &container, &record, &overrides, Some(pid), place.as_ref())?;
    let actor = told::actor(&container, Some(&record)).with("execID", store::random_id()?);
    let tell = |action: &str| {
        let action = format!("{action}: {}", request.command.join(" "));
        journal::tell(session, Kind::Container, &action, actor.clone());
    };
    tell("exec_create");
    let in_front = !request.tty && !request.detach;
    if in_front && !request.interactive && !session.dialect().keeps_input {
        launch::empty_input()?;
    }
    // As in a run: another machine sees a lock only.
    let is_shared = engine::records::is_shared(&container.path());
    let alone = session.dialect().runs_alone || ranks::is_rank(session.environment());
    if in_front && (is_shared || alone) {
        tell("exec_start");
        let ended = if is_shared {
            engine::engines::stay(prepared.engine, &prepared.plan, Some(pid), ())?
        } else {
            prepared.engine.become_resident(pid, &prepared.plan)?
        };
        let code = ended.code();
        let actor = actor.with("exitCode", code.to_string());
        journal::tell(session, Kind::Container, "exec_die", actor);
        return Ok(Ended::Exited(code as u8));
    }
    let options = Options::exec(&record::title(&container), request.tty, request.interactive);
    let spawn = Box::new(supervise::Planned {
        engine: prepared.engine,
        plan: &prepared.plan,
        enter: Some(pid),
    });
    let observer = Some(journal::observer(session, actor.clone(), &request.command));
    let launch = Launch { dir: container.path(), options, spawn, observer, cleanup: None };
    if request.detach {
        supervise::detached(launch)?;
        return Ok(Ended::Left);
    }
    launch::foreground(session, launch, request.detach_keys.as_deref(), true)
}

/// A connection to a container's program.
#[derive(Debug, Clone, Default)]
pub struct AttachRequest {
    /// The container's name or id.
    pub container: String,
    /// Do not connect standard input.
    pub no_stdin: bool,
    /// Forward signals.
    pub sig_proxy: bool,
    /// Keys that leave it running.
    pub detach_keys: Option<String>,
}

/// Connects the caller's terminal to a running container until it ends or the user leaves.
pub fn attach(session: &Session, request: &AttachRequest) -> Result<Ended> {
    let container = record::find(session, &request.container)?;
    if running::is_running_here(&container)? {
        running::not_paused(&container, |title| {
            format!("container {title} is paused, unpause it before attach")
        })?;
    }
    let config = record::read(&container)?.config;
    let mut notice = |text: &str| session.events().event(&Event::Notice(text));
    let detach_keys = launch::detach_keys(session, request.detach_keys.as_deref())?;
    told::tell_of(session, "attach", &container);
    let console = Console { detach_keys, sig_proxy: request.sig_proxy, notice: &mut notice };
    let options = AttachOptions { input: config.stdin_open && !request.no_stdin };
    let ended = supervise::attach(&container.path(), options, console).map_err(|error| {
        Error::from(error).within(format!("cannot attach to {}", request.container))
    })?;
    Ok(ended.into())
}
