//! Runs a new container of an image, or a program in an existing container (`run`).
//!
//! What is stored decides what its word means (`meant`). Which process made a container decides
//! what may be removed afterwards ([`super::removal`]).

use store::ContainerDir;

use super::attached::Attached;
use super::launch::{self, Ended, Run};
use super::made::Made;
use super::make;
use super::ranks::{self, Rank};
use super::record::{self, Record};
use super::removal::Removal;
use super::{draft, existing, root_form, volume_driver};
use crate::config::PullPolicy;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::images::{find, remote};
use crate::protection;
use crate::request::{ContainerRequest, command_line};
use crate::session::Session;

/// So often a container that several share may end while a run goes into it.
const JOINS: usize = 100;

/// A run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The container that is made, or what changes for this run in the one that exists. Its image's
    /// name may be a container's.
    pub container: ContainerRequest,
    /// Leave a supervisor behind and come back.
    pub detach: bool,
    /// The program's outputs that are the caller's, in the foreground.
    pub attached: Attached,
    /// Keys that leave a container with a terminal.
    pub detach_keys: Option<String>,
    /// Forward signals.
    pub sig_proxy: bool,
    /// Return the plan and do nothing.
    pub explain: bool,
}

/// Runs it.
pub fn run(session: &Session, mut request: RunRequest) -> Result<Ended> {
    let wanted = &request.container;
    launch::seal(session, wanted.security.isolate || session.settings().isolate)?;
    let within_limits = session.variable(launch::WITHIN_LIMITS);
    if let Some(made) = within_limits.map(|id| Made::again(session, id)).transpose()?.flatten() {
        let record = record::read(made.container())?;
        let mut run = of_made(session, &request, made, record);
        run.shared = wanted.security.join.is_some() || Rank::of(session.environment()).is_some();
        return launch::launch(session, &run);
    }
    let found = find_container(session, &mut request.container)?;
    // A rank of a parallel job joins without having asked for it.
    let by_itself = request.container.security.join.is_none();
    if let Some(rank) = Rank::of(session.environment()).filter(|_| !request.detach) {
        rank.join(&mut request.container, found.is_none());
    }
    let stored = found.as_ref().map(record::read).transpose()?;
    launch::seal(session, stored.as_ref().is_some_and(|found| found.config.security.isolate))?;
    launch::seal_for(session, request.container.security.join.as_slice())?;
    if let Some(ended) = in_shared(session, &request, found.as_ref(), by_itself)? {
        return Ok(ended);
    }
    if let Some((container, stored)) = found.zip(stored) {
        return run_existing(session, request, container, stored);
    }
    if !request.explain {
        // A driver that fails or is interrupted leaves no container behind.
        volume_driver::ready(
            session,
            request.container.files.mounts.iter().map(|mount| &mount.spec),
        )?;
    }
    let (made, record) = make::make(session, &request.container)?;
    starting(session, made.container(), &record.config.command);
    launch::launch(session, &of_made(session, &request, made, record))
}

/// A further run of a container that exists.
fn run_existing(
    session: &Session,
    mut request: RunRequest,
    mut container: ContainerDir,
    mut record: Record,
) -> Result<Ended> {
    if session.dialect().passes_over_decided {
        existing::drop_decided(&mut request.container, &mut container)?;
        record = record::read(&container)?;
    }
    let index = &mut request.container.image.index;
    // What the container is already needs no decision.
    *index = index.filter(|index| *index != root_form::has_index(&record));
    refuse(session, &request.container, &container)?;
    let (record, overrides) = existing::adapted(session, &request.container, record)?;
    if session.variable(launch::WITHIN_LIMITS).is_none() {
        let command = overrides.command.as_ref().unwrap_or(&record.config.command);
        starting(session, &container, command);
    }
    let mut run = prepared(session, &request, container, record);
    run.overrides = overrides;
    if request.container.record.remove && !request.explain {
        run.removal = Removal::of_existing(session, &run.container)?;
    }
    launch::launch(session, &run)
}

fn starting(session: &Session, container: &ContainerDir, command: &[String]) {
    session.events().event(&Event::Starting { container: container.id(), command });
}

/// The container that a request means, if its word is not an image's.
fn find_container(
    session: &Session,
    request: &mut ContainerRequest,
) -> Result<Option<ContainerDir>> {
    if request.image.rootfs.is_some() {
        return Ok(None);
    }
    let Some(word) = &request.image.name else { return Ok(None) };
    // `--pull=reuse --name=NAME`: the container of that name, if there is one.
    if let Some(name) = request.record.name.as_ref().filter(|_| request.image.reuse)
        && let Some(container) = record::named(session, name)?
    {
        request.record.name = None;
        return Ok(Some(container));
    }
    meant(session, request, word)
}

/// The container that a word means, if it is not an image's.
///
/// An image of that name that is stored comes first, then a container of that name; then an image
/// of that id, then a container; else it is an image to be pulled: a registry is asked only for a
/// name that nothing has here. Where the word names both, a note says how the container is run. In
/// a dialect where containers come first they always do.
fn meant(
    session: &Session,
    request: &ContainerRequest,
    word: &str,
) -> Result<Option<ContainerDir>> {
    let found = record::find_some(session, word);
    if session.dialect().containers_come_first || matches!(found, Ok(None)) {
        return found;
    }
    let image = remote::named(&request.image.registry, word);
    let container = match &found {
        Ok(Some(container)) if container.names()?.iter().any(|name| name == word) => container,
        _ if find::local(session, &image)?.is_none() => return found,
        _ => return Ok(None),
    };
    if find::named(session, &image)?.is_none() {
        return found;
    }
    let id = container.short_id();
    session.note(&format!(
        "note: '{word}' is an image and a container here; this is a new container of the image (in \
         the container of that name: coracle run {id})"
    ));
    Ok(None)
}

/// The container that the ranks share, with the proof if this process has made it.
fn shared(
    session: &Session,
    request: &ContainerRequest,
    name: &str,
    found: Option<ContainerDir>,
) -> Result<(ContainerDir, Record, Option<Made>)> {
    let as_it_is = |container: ContainerDir| {
        let record = record::read(&container)?;
        Ok((container, record, None))
    };
    if let Some(container) = found {
        return as_it_is(container);
    }
    let mut request = request.clone();
    request.security.join = None;
    request.record.name = Some(name.to_owned());
    let made = make::make(session, &request);
    match (made, record::find_some(session, name)?) {
        (Ok((made, record)), _) => Ok((made.container().clone(), record, Some(made))),
        // Another rank was faster.
        (Err(_), Some(container)) => as_it_is(container),
        (Err(error), None) => Err(error),
    }
}

/// Runs a request that joins a container there; `None` as [`join`].
///
/// The last that ends removes that container, perhaps while this one finds it and goes in: then it
/// is looked for again, and made anew.
fn in_shared(
    session: &Session,
    request: &RunRequest,
    other: Option<&ContainerDir>,
    by_itself: bool,
) -> Result<Option<Ended>> {
    let attempt = || {
        let run = join(session, request, other, by_itself)?;
        run.map(|run| launch::launch(session, &run)).transpose()
    };
    let is_gone = |error: &Error| match error {
        Error::Store(error) => matches!(**error, store::Error::NoContainer { .. }),
        _ => false,
    };
    for _ in 0..JOINS {
        match attempt() {
            Err(error) if is_gone(&error) => {}
            done => return done,
        }
    }
    attempt()
}

/// A run in the container that a request joins. The first that comes makes that container, and all
/// others that come with the same image go in too (the engine lets one make the namespaces and the
/// others enter them). `None` where nothing is joined, or where the name is that of a running
/// container of another kind: then one of its own is made, in the namespaces of that one.
fn join(
    session: &Session,
    request: &RunRequest,
    other: Option<&ContainerDir>,
    by_itself: bool,
) -> Result<Option<Run>> {
    let wanted = &request.container;
    let Some(name) = &wanted.security.join else { return Ok(None) };
    let found = record::find_some(session, name)?;
    match (&found, other) {
        // Another container beside one that does not exist: the plan says so.
        (None, Some(_)) => return Ok(None),
        (Some(found), other) => {
            let same = match other {
                Some(other) => other.id() == found.id(),
                None => is_like(session, wanted, found)?,
            };
            if !same {
                return Ok(None);
            }
        }
        (None, None) => {}
    }
    let asked = wanted.record.remove && !by_itself;
    let (container, record, made) = shared(session, wanted, name, found)?;
    let mut run = match made {
        Some(made) => of_made(session, request, made, record),
        None => joined(session, request, container, record, asked)?,
    };
    run.shared = true;
    if run.made.is_none() {
        change_joined(session, wanted, &mut run)?;
    }
    Ok(Some(run))
}

/// What a request changes in a run of the container that it joins.
fn change_joined(session: &Session, request: &ContainerRequest, run: &mut Run) -> Result<()> {
    let own = draft::draft(session, request, None, &request.command)?.config;
    let process = &request.process;
    if !request.command.is_empty() || process.entrypoint.is_some() {
        let (entrypoint, cmd) = (&run.record.own.entrypoint, &run.record.own.cmd);
        let asked = process.entrypoint.as_deref();
        run.overrides.command = Some(command_line::merge(entrypoint, cmd, asked, &request.command));
    }
    run.overrides.env = own.env;
    run.overrides.cwd.clone_from(&process.workdir);
    run.overrides.user.clone_from(&process.user);
    run.overrides.tty = Some(process.tty);
    run.record.config.tty = process.tty;
    run.record.config.stdin_open = process.interactive;
    Ok(())
}

/// Whether a container is what a request would make: same image or tree, and every mount that is
/// asked for.
fn is_like(
    session: &Session,
    request: &ContainerRequest,
    container: &ContainerDir,
) -> Result<bool> {
    let record = record::read(container)?;
    let same = match &request.image.rootfs {
        None => request.image.name.as_ref() == Some(&record.own.image_name),
        Some(_) => record.config.rootfs.is_some(),
    };
    let draft = draft::draft(session, request, None, &[])?;
    let has = |target| record.config.mounts.iter().any(|mount| mount.target == target);
    Ok(same
        && draft.mounts.iter().all(|mount| has(mount.spec.target.clone()))
        && (request.image.rootfs.is_none() || draft.config.rootfs == record.config.rootfs))
}

/// A run of the container that it has made.
fn of_made(session: &Session, request: &RunRequest, made: Made, record: Record) -> Run {
    let goes = protection::lets_go(&record.config) && !request.explain;
    let mut run = prepared(session, request, made.container().clone(), record);
    run.removal = goes.then(|| Removal::of_made(&made));
    run.made = Some(made);
    run
}

/// A run in a container that another one made, for several that share it: the last one that ends
/// removes it, if it was made with `--rm`. `asked`: the request expects that it is removed.
fn joined(
    session: &Session,
    request: &RunRequest,
    container: ContainerDir,
    record: Record,
    asked: bool,
) -> Result<Run> {
    if asked && !record.config.auto_remove {
        let title = record::title(&container);
        session.note(&format!("note: container {title} was made without --rm, and stays"));
    }
    let goes = record.config.auto_remove && !request.explain;
    let removal = if goes { Removal::recorded(&container)? } else { None };
    let mut run = prepared(session, request, container, record);
    run.removal = removal;
    Ok(run)
}

fn prepared(
    session: &Session,
    request: &RunRequest,
    container: ContainerDir,
    record: Record,
) -> Run {
    let mut run = Run::new(container, record);
    run.alone = session.dialect().runs_alone || ranks::is_rank(session.environment());
    run.detach = request.detach;
    run.attached = request.attached;
    run.sig_proxy = request.sig_proxy;
    run.detach_keys.clone_from(&request.detach_keys);
    run.explain = request.explain;
    run
}

/// An error for what has no meaning for a container that exists.
fn refuse(session: &Session, request: &ContainerRequest, container: &ContainerDir) -> Result<()> {
    let dialect = session.dialect();
    if request.record.remove && !dialect.removes_existing {
        let title = record::title(container);
        return Err(Error::invalid(format!(
            "--rm removes what this run makes, and {title} is a container that is there already"
        ))
        .with_hint(format!(
            "leave --rm out to run in it ('coracle rm {title}' removes it); for an image of that \
             name: coracle pull {title}"
        )));
    }
    let pulls = matches!(request.image.pull, Some(PullPolicy::Always | PullPolicy::Newer))
        && !dialect.passes_over_decided;
    let flag = existing::decided_before(request).or_else(|| pulls.then_some("--pull"));
    let Some(flag) = flag else { return Ok(()) };
    let title = record::title(container);
    Err(Error::invalid(format!(
        "{flag} is decided when a container is made, and {title} is one already"
    ))
    .with_hint(
        "make another one: 'coracle run IMAGE' with an image that is stored ('coracle pull' \
         fetches it), or whose name no container has",
    ))
}
