//! Starts a container's program from its record.
//!
//! Three ways (see `engine::supervise`): this process stays in front of the program, for its log
//! and what `inspect` and `wait` say afterwards, for a terminal, `--rm` or restarts; or it
//! *becomes* the program, where nothing is asked for beside that ([`Run::alone`]); or a supervisor
//! is left behind, for `--detach`. All of them fork or execute, so the process must have one
//! thread.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;

use engine::choose;
use engine::plan::Overrides;
use engine::spec::MountSpec;
use engine::supervise::{self, Console, DetachKeys, Launch, Options};
use serde_json::Value;
use store::{ContainerDir, ContainerLock};

use super::attached::Attached;
use super::made::Made;
use super::prepare::{Prepared, prepare};
use super::record::{self, Record};
use super::removal::{Removal, Removed};
use super::{convert, networks, running, told, volume_driver};
use crate::error::{Error, Result};
use crate::events::Event;
use crate::journal;
use crate::session::Session;

/// Set for the process that `systemd-run` starts, which is this one: limits hold, and a container
/// is made if [`Made::again`] says so.
pub const WITHIN_LIMITS: &str = "_CORACLE_WITHIN_LIMITS";

/// One run of a container.
#[expect(clippy::struct_excessive_bools, reason = "independent requests")]
pub struct Run {
    /// Which one.
    pub container: ContainerDir,
    /// What it is, with what this run alone changes.
    pub record: Record,
    /// What else differs.
    pub overrides: Overrides,
    /// Leave a supervisor behind and come back.
    pub detach: bool,
    /// The program's outputs that are the caller's, in the foreground.
    pub attached: Attached,
    /// Remove the container afterwards, by this right.
    pub removal: Option<Removal>,
    /// Forward signals.
    pub sig_proxy: bool,
    /// Keys that leave it running.
    pub detach_keys: Option<String>,
    /// Let others attach in the foreground too.
    pub attachable: bool,
    /// Nothing is asked for beside the program: the process of a launcher or a job's script is to
    /// become it, with its descriptors.
    pub alone: bool,
    /// Return the plan and do nothing.
    pub explain: bool,
    /// The container was made for this run.
    pub made: Option<Made>,
    /// Others may run in it that were started with the same words: the last one that ends removes
    /// it.
    pub shared: bool,
}

impl Run {
    /// A run in the foreground of what a record says.
    pub fn new(container: ContainerDir, record: Record) -> Self {
        Self {
            container,
            record,
            overrides: Overrides::default(),
            detach: false,
            attached: Attached::default(),
            removal: None,
            sig_proxy: true,
            detach_keys: None,
            attachable: false,
            alone: false,
            explain: false,
            made: None,
            shared: false,
        }
    }
}

/// How a run, an `exec` or an `attach` ended for its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The program ended with this status: its own, or 128 and the number of its signal.
    Exited(u8),
    /// It runs on; the user has left it by the detach keys.
    Left,
    /// It runs in the background; the container's id.
    Background(String),
    /// Nothing was run: this is the plan.
    Explained(Value),
}

/// Makes sure that a container which is a boundary cannot write to the file of this program: by
/// executing it again, so nothing may have been done yet.
pub fn seal(session: &Session, isolate: bool) -> Result<()> {
    if !isolate {
        return Ok(());
    }
    let words = session.arguments("an isolated container")?;
    let hidden = words.variables().map(|(name, word)| (name.into(), word));
    let words: Vec<_> = words.shown().into_iter().map(OsString::into_vec).collect();
    let own = session.environment().iter().map(|(name, value)| (name.clone(), value.clone()));
    let variables: Vec<_> = own
        .chain(hidden)
        .map(|(name, value): (OsString, OsString)| {
            [name.as_bytes(), b"=", value.as_bytes()].concat()
        })
        .collect();
    Ok(engine::engines::namespaces::sealed::seal(&words, &variables)?)
}

/// The same for containers that are to be started. A container that does not exist is the start's
/// error.
pub fn seal_for(session: &Session, names: &[String]) -> Result<()> {
    let isolate = |name: &String| {
        let container = record::find_some(session, name).ok().flatten();
        let record = container.and_then(|container| record::read(&container).ok());
        record.is_some_and(|record| record.config.security.isolate)
    };
    seal(session, names.iter().any(isolate))
}

/// Runs it.
pub fn launch(session: &Session, run: &Run) -> Result<Ended> {
    let ended = launched(session, run);
    // It never ran, so no supervisor removes it. Of several that share it, the one that made it.
    let needless = match (&run.made, &run.removal) {
        (Some(made), _) if run.explain => Some(Removal::of_made(made)),
        (_, Some(removal)) if ended.is_err() && (!run.shared || removal.is_of_made()) => {
            Some(removal.clone())
        }
        _ => None,
    };
    if let Some(removal) = needless {
        let removed = removal.carry_out(session);
        if ended.is_ok() {
            removed?;
        }
    }
    ended
}

fn launched(session: &Session, run: &Run) -> Result<Ended> {
    if !run.explain {
        session.may_fork("start a program")?;
    }
    let store = session.store()?;
    let mut overrides = run.overrides.clone();
    overrides.limits_hold = session.variable(WITHIN_LIMITS).is_some();
    let mut record = run.record.clone();
    let member = running::member(&run.container)?;
    if member.is_some() && !run.explain {
        running::not_paused(&run.container, |title| {
            format!("container {title} is paused, unpause it before a further run")
        })?;
    }
    let facts = networks::facts(session, &record.config);
    let engine = convert::engine(&facts, &record, &run.container.path(), member, false)?;
    choose::check_mounts(engine, &facts, &overrides.mounts)?;
    if !run.explain && store.read_only().is_none() {
        convert::fit(session, store, &run.container, &mut record, engine)?;
    }
    if member.is_some() {
        networks::as_started(session, run.container.id(), &mut record.config)?;
    } else if !run.explain {
        networks::by_switch(session, &mut record.config, (engine, &facts))?;
    }
    let lock = if store.read_only().is_some() { None } else { Some(run.container.lock_shared()?) };
    if !run.explain {
        // Under the container's lock, and before this process adopts orphans or enters a control
        // group: the server of such a mount must outlive the container.
        volume_driver::ready(session, record.config.mounts.iter().chain(&overrides.mounts))?;
    }
    let joined = if run.explain {
        None
    } else {
        let lives = member.is_some();
        networks::join(session, &run.container, &record.config, (engine, lives))?
    };
    let place = joined.as_ref();
    let prepared = prepare(session, store, &run.container, &record, &overrides, member, place);
    if prepared.is_err() && joined.is_some() && member.is_none() {
        // The error of the start is the one that is told.
        let _ = networks::leave(session, &run.container, &record.config);
    }
    let prepared = prepared?;
    if run.explain {
        return explained(session, run, &prepared);
    }
    for warning in &prepared.plan.warnings {
        session.warn(warning);
    }
    make_sources(session, record.config.mounts.iter().chain(&overrides.mounts))?;
    if let Some(wrapper) = &prepared.plan.wrapper {
        return within_limits(session, wrapper, run);
    }
    let _hidden = run.attached.hide()?;
    let config = &run.record.config;
    let keeps_log = keeps_log(run) && store.read_only().is_none();
    let supervised = config.tty
        || run.removal.is_some()
        || run.attachable
        || run.detach
        || keeps_log
        || config.restart != engine::spec::RestartPolicy::No;
    if supervised {
        return supervise(session, run, &prepared, lock, keeps_log);
    }
    if !config.stdin_open {
        empty_input()?;
    }
    if store.read_only().is_none() {
        supervise::record_start(&run.container.path(), prepared.engine.name());
    }
    if engine::records::is_shared(&run.container.path()) {
        // Another machine does not see whether a process lives, but sees a lock.
        let ended = engine::engines::stay(prepared.engine, &prepared.plan, None, lock)?;
        return Ok(Ended::Exited(ended.code() as u8));
    }
    // Until the program runs, the container cannot be removed. From then on its processes show that
    // it is used, and a command that wants the lock would wait for the program's end.
    let mut lock = lock;
    let ended = prepared.engine.become_guest(&prepared.plan, &mut || lock = None)?;
    Ok(Ended::Exited(ended.code() as u8))
}

/// Whether a run has a log. One whose container goes with its end needs none.
fn keeps_log(run: &Run) -> bool {
    let stays = !run.alone && run.removal.is_none();
    !run.record.config.log.disabled && (run.detach || run.attachable || stays)
}

/// Makes the host directories that `-v` names and that are not there, as Docker does.
fn make_sources<'a>(session: &Session, mounts: impl Iterator<Item = &'a MountSpec>) -> Result<()> {
    for mount in mounts.filter(|mount| mount.create_source && !mount.source.exists()) {
        let source = mount.source.display();
        std::fs::create_dir_all(&mount.source).map_err(|error| {
            Error::failed(format!("cannot mount {source}, which is not there and cannot be made"))
                .cause(error)
        })?;
        session.note(&format!("note: {source} was not there, and is a new directory now"));
    }
    Ok(())
}

fn explained(session: &Session, run: &Run, prepared: &Prepared) -> Result<Ended> {
    let failed = |error| Error::failed("cannot print the plan").cause(error);
    let plan = serde_json::to_value(&prepared.plan).map_err(failed)?;
    let network = networks::explained(session, &run.container, &run.record.config, &prepared.plan)?;
    let network = serde_json::to_value(network).map_err(failed)?;
    let engine = prepared.engine.name();
    Ok(Ended::Explained(serde_json::json!({"engine": engine, "network": network, "plan": plan})))
}

/// Starts a program, until when the container cannot be removed.
struct Starting<'a> {
    planned: supervise::Planned<'a>,
    lock: Option<ContainerLock>,
}

impl supervise::Spawn for Starting<'_> {
    fn spawn(
        &mut self,
        request: supervise::Request,
    ) -> std::result::Result<supervise::Spawned, supervise::Failure> {
        let spawned = self.planned.spawn(request);
        self.lock = None;
        spawned
    }
}

/// What is left to do when a program has ended; returns what the user is told.
fn cleaned_up(session: &Session, run: &Run, has_place: bool, title: &str) -> Option<String> {
    let container = &run.container;
    let mut told = None;
    if has_place && !matches!(running::member(container), Ok(Some(_))) {
        let left = networks::leave(session, container, &run.record.config);
        told = left.err().map(|error| error.to_string());
    }
    let Some(removal) = &run.removal else { return told };
    match removal.carry_out(session) {
        Ok(Removed::InUse) if !run.shared => Some(format!(
            "container {title} is not removed, because something else runs in it{}; \
             'coracle rm -f {title}' ends and removes it",
            running::named(container)
        )),
        Ok(_) => told,
        Err(error) => Some(error.to_string()),
    }
}

fn supervise(
    session: &Session,
    run: &Run,
    prepared: &Prepared,
    lock: Option<ContainerLock>,
    keeps_log: bool,
) -> Result<Ended> {
    let config = &run.record.config;
    let mut options = Options::of(config).map_err(|error| Error::of(&error))?;
    options.title = record::title(&run.container);
    prepared.engine.name().clone_into(&mut options.engine);
    options.attachable = run.detach || run.attachable;
    if !keeps_log {
        options.log = None;
    }
    let has_place = prepared.plan.network.is_named();
    let has_end = run.removal.is_some() || has_place;
    let title = options.title.clone();
    let cleanup: Option<supervise::Cleanup<'_>> = has_end.then(|| {
        Box::new(move |_: &supervise::Outcome| cleaned_up(session, run, has_place, &title))
            as supervise::Cleanup<'_>
    });
    if !options.tty && !config.stdin_open && !options.needs_relay() {
        empty_input()?;
    }
    let planned = supervise::Planned { engine: prepared.engine, plan: &prepared.plan, enter: None };
    let spawn = Box::new(Starting { planned, lock });
    let actor = told::actor(&run.container, Some(&run.record));
    let command = run.overrides.command.as_ref().unwrap_or(&config.command);
    let observer = Some(journal::observer(session, actor, command));
    let launch = Launch { dir: run.container.path(), options, spawn, observer, cleanup };
    if run.detach {
        if run.removal.is_none() {
            // Its id is reported, and it stays when its program has ended.
            run.container.sync()?;
        }
        supervise::detached(launch)?;
        return Ok(Ended::Background(run.container.id().to_owned()));
    }
    foreground(session, launch, run.detach_keys.as_deref(), run.sig_proxy)
}

/// Stays in front of a program until it ends or the user leaves it.
pub(super) fn foreground(
    session: &Session,
    launch: Launch<'_>,
    keys: Option<&str>,
    sig_proxy: bool,
) -> Result<Ended> {
    let mut notice = |text: &str| session.events().event(&Event::Notice(text));
    let console =
        Console { detach_keys: detach_keys(session, keys)?, sig_proxy, notice: &mut notice };
    Ok(supervise::foreground(launch, console)?.into())
}

impl From<supervise::Ended> for Ended {
    fn from(ended: supervise::Ended) -> Self {
        match ended {
            supervise::Ended::Exited(outcome) => Self::Exited(outcome.code as u8),
            supervise::Ended::Detached => Self::Left,
        }
    }
}

/// The user's detach keys.
pub(super) fn detach_keys(session: &Session, keys: Option<&str>) -> Result<DetachKeys> {
    let text = keys.unwrap_or(&session.settings().detach_keys);
    text.parse().map_err(|_| {
        Error::invalid(format!("'{text}' names no detach keys"))
            .with_hint("write letters or ctrl-LETTER, as ctrl-p,ctrl-q")
    })
}

/// Without `--interactive` a program's input is empty, as in Docker: else a loop that reads lines
/// and runs a container for each would find its lines eaten.
pub(super) fn empty_input() -> Result<()> {
    let null = std::fs::File::open("/dev/null")
        .map_err(|error| Error::failed("cannot open /dev/null").cause(error))?;
    rustix::stdio::dup2_stdin(&null)
        .map_err(|error| Error::failed("cannot replace standard input").cause(error))
}

/// Starts this program again by a command that sets limits (`systemd-run --user --scope`).
fn within_limits(session: &Session, wrapper: &[String], run: &Run) -> Result<Ended> {
    let arguments = session.arguments("a container with limits")?;
    if let Some(made) = &run.made {
        made.leave_word()?;
    }
    let (program, words) =
        wrapper.split_first().ok_or_else(|| Error::failed("the command for limits is empty"))?;
    let error = std::process::Command::new(program)
        .args(words)
        .arg("/proc/self/exe")
        .args(arguments.shown().iter().skip(1))
        .env(WITHIN_LIMITS, run.container.id())
        .envs(arguments.variables())
        .envs(session.dialect().restart_variables.iter().map(|(name, value)| (name, value)))
        .exec();
    Err(Error::failed(format!("cannot start {program}, which is to set the limits")).cause(error))
}
