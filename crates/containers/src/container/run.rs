//! `run`: a new container of an image, or another run of an existing container.
//!
//! What is stored decides what its word means ([`meant`]). Which process made a container decides
//! what may be removed afterwards ([`crate::container::removal`]).

use engine::plan::Overrides;
use store::ContainerDir;

use super::protect;
use crate::args::run::{ContainerFlags, RunArgs};
use crate::container::job::Rank;
use crate::container::launch::{self, Run};
use crate::container::make::{self, Made};
use crate::container::record::{self, Record};
use crate::container::removal::Removal;
use crate::container::{adapt, command, spec};
use crate::context::Context;
use crate::report::{Exit, Report};
use crate::{image, progress, remote, udocker};

/// Runs it.
pub(crate) fn run(context: &Context, args: &RunArgs) -> Result<Exit, Report> {
    let mut flags = args.flags.clone();
    if context.is_udocker() {
        udocker::adapt(context, &mut flags);
        if flags.image.rootfs.is_none() {
            flags.image.rootfs = context.udocker()?.location(context.home().as_deref());
        }
        // udocker keeps nothing of a tree outside its repository.
        flags.record.rm |= flags.image.rootfs.is_some() && flags.record.name.is_none();
    }
    check(context, args, &flags)?;
    launch::seal(context, flags.security.isolate || context.settings()?.isolate)?;
    let within_limits = context.variable(launch::WITHIN_LIMITS);
    if let Some(made) = within_limits.map(|id| Made::again(context, id)).transpose()?.flatten() {
        let record = record::read(made.container())?;
        let mut run = of_made(args, made, record);
        run.shared = flags.security.join.is_some() || Rank::of(context.environment()).is_some();
        return launch::launch(context, &run);
    }
    let existing = match &args.image {
        Some(word) if flags.image.rootfs.is_none() => match reused(context, &flags)? {
            Some(container) => {
                flags.record.name = None;
                Some(container)
            }
            None => meant(context, &flags, word)?,
        },
        _ => None,
    };
    if let Some(rank) = Rank::of(context.environment()).filter(|_| !args.detach) {
        rank.join(&mut flags, existing.is_none());
    }
    let found = existing.as_ref().map(record::read).transpose()?;
    launch::seal(context, found.as_ref().is_some_and(|found| found.config.security.isolate))?;
    launch::seal_for(context, flags.security.join.as_slice())?;
    if let Some(name) = &flags.security.join
        && let Some(run) = join(context, args, &flags, name, existing.as_ref())?
    {
        return launch::launch(context, &run);
    }
    if let Some(mut container) = existing {
        let record = match found {
            Some(found) if !context.is_udocker() => found,
            _ => {
                udocker::adapt_existing(&mut flags, &mut container)?;
                record::read(&container)?
            }
        };
        refuse(context, &flags, &container)?;
        let (record, overrides) = adapt::adapted(context, &flags, record, &args.command)?;
        let command = overrides.command.as_ref().unwrap_or(&record.config.command);
        if within_limits.is_none() {
            udocker::banner(context, &flags, container.id(), command);
        }
        let mut run = prepared(args, container, record);
        run.overrides = overrides;
        if flags.record.rm && !args.explain {
            run.removal = Removal::of_udocker(context, &run.container)?;
        }
        launch::launch(context, &run)
    } else {
        let (made, record) =
            make::make(context, &flags, args.image.as_deref(), &args.command, args.quiet)?;
        udocker::banner(context, &flags, made.container().id(), &record.config.command);
        launch::launch(context, &of_made(args, made, record))
    }
}

/// The container that a word means, if it is not an image's.
///
/// An image of that name that is stored comes first, else a container of that name or id, else it
/// is an image to be pulled: a registry is asked only for what nothing here is called. Where the
/// word names both, a note says how the container is run. Under udocker's name containers come
/// first, always.
fn meant(
    context: &Context,
    flags: &ContainerFlags,
    word: &str,
) -> Result<Option<ContainerDir>, Report> {
    let found = record::find_some(context, word);
    if context.is_udocker() || matches!(found, Ok(None)) {
        return found;
    }
    if image::local(context, &remote::named(&flags.image.registry, word))?.is_none() {
        return found;
    }
    if let Ok(Some(container)) = found
        && container.names()?.iter().any(|name| name == word)
    {
        let id = container.short_id();
        progress::note(&format!(
            "note: '{word}' is an image and a container here; this is a new container of the image \
             (in the container of that name: coracle run {id})"
        ));
    }
    Ok(None)
}

/// `--pull=reuse --name=NAME`: the container of that name, if there is one.
fn reused(context: &Context, flags: &ContainerFlags) -> Result<Option<ContainerDir>, Report> {
    match &flags.record.name {
        Some(name) if flags.image.pull.as_deref() == Some("reuse") => record::named(context, name),
        _ => Ok(None),
    }
}

fn check(context: &Context, args: &RunArgs, flags: &ContainerFlags) -> Result<(), Report> {
    if flags.process.tty
        && flags.process.interactive
        && !args.detach
        && !std::io::IsTerminal::is_terminal(&std::io::stdin())
    {
        return Err(Report::usage("standard input is no terminal, so -it cannot connect to it")
            .hint("use -i alone, or -t alone"));
    }
    let has = |stream: &str| args.attach.iter().any(|given| given.eq_ignore_ascii_case(stream));
    // udocker takes -a, and means nothing by it.
    let attach = !args.attach.is_empty() && !context.is_udocker();
    if attach && !["stdout", "stderr"].iter().all(|stream| has(stream)) {
        return Err(Report::usage(
            "--attach: standard output and standard error are always attached together",
        )
        .hint("redirect what you do not want: >/dev/null, 2>/dev/null"));
    }
    Ok(())
}

/// The container that the ranks share, with the proof if we have made it.
fn shared(
    context: &Context,
    args: &RunArgs,
    flags: &ContainerFlags,
    name: &str,
    found: Option<ContainerDir>,
) -> Result<(ContainerDir, Record, Option<Made>), Report> {
    let as_it_is = |container: ContainerDir| {
        let record = record::read(&container)?;
        Ok((container, record, None))
    };
    if let Some(container) = found {
        return as_it_is(container);
    }
    let mut flags = flags.clone();
    flags.security.join = None;
    flags.record.name = Some(name.to_owned());
    let made = make::make(context, &flags, args.image.as_deref(), &args.command, args.quiet);
    match (made, record::find_some(context, name)?) {
        (Ok((made, record)), _) => Ok((made.container().clone(), record, Some(made))),
        // Another rank was faster.
        (Err(_), Some(container)) => as_it_is(container),
        (Err(report), None) => Err(report),
    }
}

/// `--join NAME`: the first who comes makes that container, and whoever else comes with the same image goes in too (the engine lets one
/// make the namespaces and the others enter them). `None` where NAME is a running container of another kind: then one of its own is made, in
/// the namespaces of that one.
fn join(
    context: &Context,
    args: &RunArgs,
    flags: &ContainerFlags,
    name: &str,
    other: Option<&ContainerDir>,
) -> Result<Option<Run>, Report> {
    let found = record::find_some(context, name)?;
    match (&found, other) {
        // Another container beside one that is not there: the plan says so.
        (None, Some(_)) => return Ok(None),
        (Some(found), other) => {
            let same = match other {
                Some(other) => other.id() == found.id(),
                None => is_like(context, args, flags, found)?,
            };
            if !same {
                return Ok(None);
            }
        }
        (None, None) => {}
    }
    let (container, record, made) = shared(context, args, flags, name, found)?;
    let mut run = match made {
        Some(made) => of_made(args, made, record),
        None => joined(args, container, record)?,
    };
    run.shared = true;
    if run.made.is_none() {
        let words = if flags.image.rootfs.is_some() {
            args.image.iter().chain(&args.command).cloned().collect()
        } else {
            args.command.clone()
        };
        let own = spec::draft(context, flags, None, &words)?.config;
        let process = &flags.process;
        if !words.is_empty() || process.entrypoint.is_some() {
            let (entrypoint, cmd) = (&run.record.own.entrypoint, &run.record.own.cmd);
            let merged = command::merge(entrypoint, cmd, process.entrypoint.as_deref(), &words);
            run.overrides.command = Some(merged);
        }
        run.overrides.env = own.env;
        run.overrides.cwd.clone_from(&process.workdir);
        run.overrides.user.clone_from(&process.user);
        run.overrides.tty = Some(process.tty);
        run.record.config.tty = process.tty;
        run.record.config.stdin_open = process.interactive;
    }
    Ok(Some(run))
}

/// Whether a container is what these flags would make: same image or tree, and every mount that is asked for.
fn is_like(
    context: &Context,
    args: &RunArgs,
    flags: &ContainerFlags,
    container: &ContainerDir,
) -> Result<bool, Report> {
    let record = record::read(container)?;
    let same = match &flags.image.rootfs {
        None => args.image.as_ref() == Some(&record.own.image_name),
        Some(_) => record.config.rootfs.is_some(),
    };
    let draft = spec::draft(context, flags, None, &[])?;
    let has = |target| record.config.mounts.iter().any(|mount| mount.target == target);
    Ok(same
        && draft.mounts.iter().all(|wish| has(wish.spec.target.clone()))
        && (flags.image.rootfs.is_none() || draft.config.rootfs == record.config.rootfs))
}

/// A run of the container that it has made.
fn of_made(args: &RunArgs, made: Made, record: Record) -> Run {
    let goes = protect::lets_go(&record.config) && !args.explain;
    let mut run = prepared(args, made.container().clone(), record);
    run.removal = goes.then(|| Removal::of_made(&made));
    run.made = Some(made);
    run
}

/// A run in a container that another one made, for several that share it: the last one that ends
/// removes it, if it was made with `--rm`.
fn joined(args: &RunArgs, container: ContainerDir, record: Record) -> Result<Run, Report> {
    let asked = args.flags.record.rm && args.flags.security.join.is_some();
    if asked && !record.config.auto_remove {
        let title = record::title(&container);
        progress::note(&format!("note: container {title} was made without --rm, and stays"));
    }
    let goes = record.config.auto_remove && !args.explain;
    let removal = if goes { Removal::recorded(&container)? } else { None };
    let mut run = prepared(args, container, record);
    run.removal = removal;
    Ok(run)
}

fn keeps(container: &ContainerDir) -> Report {
    Report::usage(format!(
        "--rm removes what this run makes, and {} is a container that is there already",
        record::title(container)
    ))
}

fn prepared(args: &RunArgs, container: ContainerDir, record: Record) -> Run {
    Run {
        container,
        record,
        overrides: Overrides::default(),
        detach: args.detach,
        quiet: false,
        removal: None,
        sig_proxy: args.sig_proxy,
        detach_keys: args.detach_keys.clone(),
        log: false,
        explain: args.explain,
        made: None,
        shared: false,
    }
}

/// An error for a flag that has no meaning for a container that exists.
fn refuse(
    context: &Context,
    flags: &ContainerFlags,
    container: &ContainerDir,
) -> Result<(), Report> {
    if flags.record.rm && !context.is_udocker() {
        let title = record::title(container);
        return Err(keeps(container).hint(format!(
            "leave --rm out to run in it ('coracle rm {title}' removes it); for an image of that name: coracle pull {title}"
        )));
    }
    let pulls = |policy: &str| ["always", "newer"].contains(&policy);
    let pull = flags.image.pull.as_deref().is_some_and(pulls) && !context.is_udocker();
    let Some(flag) = adapt::decided_before(flags).or_else(|| pull.then_some("--pull")) else {
        return Ok(());
    };
    Err(Report::usage(format!(
        "{flag} is decided when a container is made, and {} is one already",
        record::title(container)
    ))
    .hint("make another one: 'coracle run IMAGE' with an image that is stored ('coracle pull' fetches it), or whose name no container has"))
}
