//! `run`: a new container of an image, or another run of an existing container.

use std::io::IsTerminal as _;

use containers::container::attached::Attached;
use containers::container::launch::Ended;
use containers::container::run::{self, RunRequest};

use crate::args::request;
use crate::args::run::{ContainerFlags, RunArgs};
use crate::context::{Context, Show};
use crate::report::{Exit, Report};
use crate::{output, udocker};

/// Runs it.
pub(crate) fn run(context: &Context, args: &RunArgs) -> Result<Exit, Report> {
    let mut flags = args.flags.clone();
    if context.presentation().as_udocker {
        udocker::adapt(context.on_terminal(), &mut flags);
        if flags.image.rootfs.is_none() {
            flags.image.rootfs.clone_from(&context.session()?.dialect().root_of_all);
        }
        // udocker keeps nothing of a tree outside its repository.
        flags.record.rm |= flags.image.rootfs.is_some() && flags.record.name.is_none();
    }
    check(args, &flags)?;
    let attached = attached(context, args, &mut flags)?;
    let image = args.image.as_deref();
    let container = request::container(&flags, image, &args.command, context.surroundings())?;
    let request = RunRequest {
        container,
        detach: args.detach,
        attached,
        detach_keys: args.detach_keys.clone(),
        sig_proxy: args.sig_proxy,
        explain: args.explain,
    };
    let quieter;
    let show = Show { quiet: args.quiet, no_banner: flags.record.nobanner, ..Show::default() };
    let session = if show.quiet || show.no_banner {
        quieter = context.session_showing(show)?;
        &quieter
    } else {
        context.session()?
    };
    output::ended(match run::run(session, request)? {
        Ended::Background(id) => Ended::Background(context.presentation().id(&id)),
        ended => ended,
    })
}

fn check(args: &RunArgs, flags: &ContainerFlags) -> Result<(), Report> {
    if flags.process.tty
        && flags.process.interactive
        && !args.detach
        && !std::io::stdin().is_terminal()
    {
        return Err(Report::usage("standard input is not a terminal, so -it cannot connect to it")
            .hint("use -i alone, or -t alone"));
    }
    Ok(())
}

/// The streams of `--attach`; all where none is named. Input that is not attached is empty.
fn attached(
    context: &Context,
    args: &RunArgs,
    flags: &mut ContainerFlags,
) -> Result<Attached, Report> {
    if args.attach.is_empty() || context.presentation().ignores_attach {
        return Ok(Attached::default());
    }
    let streams: Vec<String> = args.attach.iter().map(|name| name.to_ascii_lowercase()).collect();
    let has = |stream: &str| streams.iter().any(|given| given == stream);
    if let Some(other) =
        streams.iter().find(|name| !["stdin", "stdout", "stderr"].contains(&name.as_str()))
    {
        return Err(Report::usage(format!("--attach: there is no stream '{other}'"))
            .hint("the streams are stdin, stdout and stderr"));
    }
    if args.detach {
        return Err(Report::usage("--attach and --detach exclude each other")
            .hint("leave one out; 'coracle attach' connects to what runs in the background"));
    }
    let attached = Attached { stdout: has("stdout"), stderr: has("stderr") };
    if !(attached.stdout || attached.stderr) {
        return Err(Report::usage("--attach: input alone cannot be attached")
            .hint("attach stdout as well, or leave --attach out and redirect: >/dev/null"));
    }
    flags.process.interactive &= has("stdin");
    Ok(attached)
}
