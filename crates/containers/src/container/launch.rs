//! From a container's record to a running process.
//!
//! Three ways (see `engine::supervise`): this process *becomes* the program, when nobody has to look after it; or it stays in front of
//! it, for a terminal, `--rm`, a log or restarts; or a supervisor is left behind, for `-d`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use engine::choose::{self, Engine};
use engine::facts::Facts;
use engine::plan::{self, Overrides, Plan, Request};
use engine::supervise::state::{self, Observed};
use engine::supervise::{self, Console, DetachKeys, Ended, Launch, Options};
use store::{ContainerDir, Store};

use super::make::Made;
use super::record::{self, Record};
use super::removal::{Removal, Removed};
use super::{convert, ids, root};
use crate::context::Context;
use crate::output;
use crate::progress;
use crate::report::{Exit, Report};

/// Set for the process that `systemd-run` starts, which is this one: limits hold, and a container
/// is made if [`Made::again`] says so.
pub(crate) const WITHIN_LIMITS: &str = "_CORACLE_WITHIN_LIMITS";

/// How long a container's lock is looked at, before it is waited for.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// One run of a container.
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Run {
    /// Which one.
    pub container: ContainerDir,
    /// What it is, with what this run alone changes.
    pub record: Record,
    /// What else differs.
    pub overrides: Overrides,
    /// Leave a supervisor behind and come back.
    pub detach: bool,
    /// Do not print the id of a detached container.
    pub quiet: bool,
    /// Remove the container afterwards, by this right.
    pub removal: Option<Removal>,
    /// Forward signals.
    pub sig_proxy: bool,
    /// Keys that leave it running.
    pub detach_keys: Option<String>,
    /// Keep a log even in the foreground.
    pub log: bool,
    /// Print the plan and do nothing.
    pub explain: bool,
    /// The container was made for this run.
    pub made: Option<Made>,
    /// Others may run in it that were started with the same words: the last one that ends removes
    /// it.
    pub shared: bool,
}

/// Makes sure that a container which is a boundary cannot write to the file of this program: by
/// executing it again, so nothing may have been done yet.
pub(crate) fn seal(context: &Context, isolate: bool) -> Result<(), Report> {
    if !isolate {
        return Ok(());
    }
    let words: Vec<_> = std::env::args_os().map(OsString::into_vec).collect();
    let variables: Vec<_> = context
        .environment()
        .iter()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect();
    Ok(engine::engines::native::sealed::seal(&words, &variables)?)
}

/// The same for containers that are to be started. What is not there is the starting's error.
pub(crate) fn seal_for(context: &Context, names: &[String]) -> Result<(), Report> {
    let isolate = |name: &String| {
        let container = record::find_some(context, name).ok().flatten();
        let record = container.and_then(|container| record::read(&container).ok());
        record.is_some_and(|record| record.config.security.isolate)
    };
    seal(context, names.iter().any(isolate))
}

/// A plan with the engine that will execute it.
pub(crate) struct Prepared {
    pub plan: Plan,
    pub engine: &'static dyn Engine,
}

/// Plans a run (or, where `overrides.exec` is set, an `exec` beside process `member`).
pub(crate) fn prepare(
    context: &Context,
    store: &Store,
    container: &ContainerDir,
    record: &Record,
    overrides: &Overrides,
    member: Option<u32>,
) -> Result<Prepared, Report> {
    let config = &record.config;
    let place = container.path();
    let facts = Facts::of(context.host(), &context.probing(), config);
    let engine = convert::engine(&facts, record, &place, member, overrides.exec)?;
    let root = root::for_engine(root::prepare_for(context, store, record, &place, engine)?);
    let mut given = super::gpus::given(context, record, overrides, &root)?;
    let mut people = None;
    if context.is_udocker() || record.own.hostauth {
        let (config, overrides) = given.get_or_insert_with(|| (config.clone(), overrides.clone()));
        let image = engine::accounts::OfRoot(&root);
        let hostauth = record.own.hostauth;
        people = super::accounts::given(context, hostauth, &image, &place, config, overrides)?;
        if context.is_udocker() {
            let known: &dyn plan::Accounts = match &people {
                Some(people) => people,
                None => &image,
            };
            if let Some(home) = crate::udocker::home(config, overrides, (&facts, known), &root)? {
                overrides.cwd = Some(home);
            }
            let user = overrides.user.as_deref();
            crate::udocker::name_container(config, container, user, engine.name())?;
        }
    }
    if engine.caps().bare {
        // Who is not named is the caller.
        let (config, _) = given.get_or_insert_with(|| (config.clone(), overrides.clone()));
        config.namespaces.user = engine::spec::UserNamespace::Host;
    }
    let (config, overrides) =
        given.as_ref().map_or((config, overrides), |(config, overrides)| (config, overrides));
    let of_root = engine::accounts::OfRoot(&root);
    // Without mounts, what a process has as its root is the host's.
    let own_root = overrides.exec && !engine.caps().own_ids;
    let of_process = member.filter(|_| own_root).map(engine::accounts::OfProcess);
    let accounts: &dyn plan::Accounts = match (&people, &of_process) {
        (Some(people), _) => people,
        (None, Some(process)) => process,
        (None, None) => &of_root,
    };
    let running = |name: &str| main_process(context, name).and_then(plan::Neighbour::of);
    let request = Request {
        config,
        root: &root,
        place: &place,
        facts: &facts,
        overrides,
        own_ids: engine.caps().own_ids,
        fake_root: engine.caps().fake_root,
        accounts,
        running: &running,
    };
    let mut plan = plan::plan(&request)?;
    if engine.caps().keeps_texts {
        plan.beside_image = root::beside_image(store, record);
    }
    Ok(Prepared { plan, engine })
}

/// The process that stands for a container, if it runs.
///
/// # Errors
/// Where it runs on another machine that shares the store.
pub(crate) fn member(container: &ContainerDir) -> Result<Option<u32>, Report> {
    Ok(match state::observe(&container.path())? {
        Observed::Running(running) => running.here()?.main().map(|process| process.pid),
        _ => None,
    })
}

/// The process that stands for a running container.
pub(crate) fn main_process(context: &Context, name: &str) -> Option<u32> {
    let container = record::find(context, name).ok()?;
    match state::observe(&container.path()).ok()? {
        Observed::Running(running) => running.main().map(|process| process.pid),
        _ => None,
    }
}

/// Runs it.
pub(crate) fn launch(context: &Context, run: &Run) -> Result<Exit, Report> {
    let ended = launched(context, run);
    // It never ran, so nobody else will do it. Of several that share it, the one that made it.
    let needless = match (&run.made, &run.removal) {
        (Some(made), _) if run.explain => Some(Removal::of_made(made)),
        (_, Some(removal)) if ended.is_err() && (!run.shared || removal.is_of_made()) => {
            Some(removal.clone())
        }
        _ => None,
    };
    if let Some(removal) = needless {
        let removed = removal.carry_out(context);
        if ended.is_ok() {
            removed?;
        }
    }
    ended
}

fn launched(context: &Context, run: &Run) -> Result<Exit, Report> {
    let store = context.store()?;
    let mut overrides = run.overrides.clone();
    overrides.limits_hold = context.variable(WITHIN_LIMITS).is_some();
    let mut record = run.record.clone();
    let member = member(&run.container)?;
    let facts = Facts::of(context.host(), &context.probing(), &record.config);
    let engine = convert::engine(&facts, &record, &run.container.path(), member, false)?;
    choose::check_mounts(engine, &facts, &overrides.mounts)?;
    if !run.explain && store.read_only().is_none() {
        convert::fit(context, store, &run.container, &mut record, engine)?;
    }
    let lock = if store.read_only().is_some() { None } else { Some(run.container.lock_shared()?) };
    let prepared = prepare(context, store, &run.container, &record, &overrides, member)?;
    if run.explain {
        let plan = serde_json::to_value(&prepared.plan)
            .map_err(|error| Report::new("cannot print the plan").cause(error))?;
        output::line(output::pretty(
            &serde_json::json!({"engine": prepared.engine.name(), "plan": plan}),
        ))?;
        return Ok(Exit::OK);
    }
    for warning in &prepared.plan.warnings {
        progress::note(&format!("warning: {warning}"));
    }
    if let Some(wrapper) = &prepared.plan.wrapper {
        return within_limits(context, wrapper, run);
    }
    let config = &run.record.config;
    let supervised = config.tty
        || run.removal.is_some()
        || run.log
        || run.detach
        || config.restart != engine::spec::RestartPolicy::No;
    if !supervised {
        if !config.stdin_open {
            empty_input()?;
        }
        if engine::records::is_shared(&run.container.path()) {
            // Another machine does not see whether a process lives, but sees a lock.
            let ended = engine::engines::stay(prepared.engine, &prepared.plan, None, lock)?;
            return Ok(Exit(ended.code() as u8));
        }
        // The lock goes with `execve`; until then nobody removes the container.
        let ended = prepared.engine.become_guest(&prepared.plan)?;
        drop(lock);
        return Ok(Exit(ended.code() as u8));
    }
    drop(lock);
    supervise(context, run, &prepared)
}

fn supervise(context: &Context, run: &Run, prepared: &Prepared) -> Result<Exit, Report> {
    let config = &run.record.config;
    let mut options = Options::of(config).map_err(|error| Report::of(&error, None))?;
    options.title = record::title(&run.container);
    prepared.engine.name().clone_into(&mut options.engine);
    if !run.detach && !run.log {
        options.log = None;
    }
    let cleanup: Option<supervise::Cleanup<'_>> = run.removal.clone().map(|removal| {
        let (title, shared) = (options.title.clone(), run.shared);
        Box::new(move |_: &supervise::Outcome| match removal.carry_out(context) {
            Ok(Removed::InUse) if !shared => Some(format!(
                "container {title} is not removed, because something else runs in it; \
                 'coracle rm -f {title}' ends and removes it"
            )),
            Ok(_) => None,
            Err(report) => Some(report.to_string()),
        }) as supervise::Cleanup<'_>
    });
    if !options.tty && !config.stdin_open && !options.needs_relay() {
        empty_input()?;
    }
    let spawn =
        Box::new(supervise::Planned { engine: prepared.engine, plan: &prepared.plan, enter: None });
    let launch = Launch { dir: run.container.path(), options, spawn, cleanup };
    if run.detach {
        if run.removal.is_none() {
            // Its id is told, and it stays when its program has ended.
            run.container.sync()?;
        }
        supervise::detached(launch)?;
        if !run.quiet {
            output::line(run.container.id())?;
        }
        return Ok(Exit::OK);
    }
    let ended = foreground(context, launch, run.detach_keys.as_deref(), run.sig_proxy)?;
    Ok(ended)
}

/// Stays in front of a program until it ends or the user leaves it.
pub(crate) fn foreground(
    context: &Context,
    launch: Launch<'_>,
    keys: Option<&str>,
    sig_proxy: bool,
) -> Result<Exit, Report> {
    let mut notice = |text: &str| progress::note(&format!("{text}\r"));
    let console =
        Console { detach_keys: detach_keys(context, keys)?, sig_proxy, notice: &mut notice };
    Ok(exit_of(supervise::foreground(launch, console)?))
}

/// The status of a session.
pub(crate) fn exit_of(ended: Ended) -> Exit {
    match ended {
        Ended::Exited(outcome) => Exit(outcome.code as u8),
        Ended::Detached => Exit::OK,
    }
}

/// The user's detach keys.
pub(crate) fn detach_keys(context: &Context, keys: Option<&str>) -> Result<DetachKeys, Report> {
    let text = keys.unwrap_or(&context.settings()?.detach_keys);
    text.parse().map_err(|_| {
        Report::usage(format!("'{text}' names no detach keys"))
            .hint("write letters or ctrl-LETTER, as ctrl-p,ctrl-q")
    })
}

/// Without `-i` a program's input is empty, as in Docker: else a loop that reads lines and runs a container for each would
/// find its lines eaten.
pub(crate) fn empty_input() -> Result<(), Report> {
    let null = std::fs::File::open("/dev/null")
        .map_err(|error| Report::new("cannot open /dev/null").cause(error))?;
    rustix::stdio::dup2_stdin(&null)
        .map_err(|error| Report::new("cannot replace standard input").cause(error))
}

/// Removes a container and its unnamed volumes, files of subordinate users included, unless
/// something runs in it, which is the answer. That is asked under the lock: who starts a container
/// holds it until the program runs.
pub(crate) fn remove_idle(context: &Context, container: &ContainerDir) -> Result<bool, Report> {
    // The process that started a program may keep the lock as long as that runs.
    let mut tries = TRIES;
    let lock = loop {
        if is_running(container)? {
            return Ok(false);
        }
        match container.try_lock_exclusive()? {
            Some(lock) => break lock,
            None if tries == 0 => break container.lock_exclusive()?,
            None => std::thread::sleep(PAUSE),
        }
        tries -= 1;
    };
    if is_running(container)? {
        return Ok(false);
    }
    remove_locked(context, container.clone(), lock)?;
    Ok(true)
}

/// Whether something runs in a container, or will again.
pub(crate) fn is_running(container: &ContainerDir) -> Result<bool, Report> {
    let observed = state::observe(&container.path())?;
    Ok(matches!(observed, Observed::Running(_) | Observed::Restarting { .. }))
}

fn remove_locked(
    context: &Context,
    container: ContainerDir,
    lock: store::ContainerLock,
) -> Result<(), Report> {
    let volumes = super::volumes::anonymous_of(context, &container);
    engine::engines::inprocess::forget(&container.path());
    container.remove_with(&|path| ids::delete(context, path))?;
    drop(lock);
    // What stays is found by 'volume prune'.
    let _ = super::volumes::release(context, &volumes);
    Ok(())
}

/// Starts this program again by a command that sets limits (`systemd-run --user --scope`).
fn within_limits(context: &Context, wrapper: &[String], run: &Run) -> Result<Exit, Report> {
    if let Some(made) = &run.made {
        made.leave_word()?;
    }
    let (program, arguments) =
        wrapper.split_first().ok_or_else(|| Report::new("the command for limits is empty"))?;
    let error = std::process::Command::new(program)
        .args(arguments)
        .arg("/proc/self/exe")
        .args(std::env::args_os().skip(1))
        .env(WITHIN_LIMITS, run.container.id())
        .envs(context.is_udocker().then_some((crate::udocker::CALLED, "1")))
        .exec();
    Err(Report::new(format!("cannot start {program}, which is to set the limits")).cause(error))
}
