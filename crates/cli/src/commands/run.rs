//! `run`: a new container of an image, or another run of an existing container.

use std::io::IsTerminal as _;

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
    check(context, args, &flags)?;
    let image = args.image.as_deref();
    let container = request::container(&flags, image, &args.command, context.surroundings())?;
    let request = RunRequest {
        container,
        detach: args.detach,
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

fn check(context: &Context, args: &RunArgs, flags: &ContainerFlags) -> Result<(), Report> {
    if flags.process.tty
        && flags.process.interactive
        && !args.detach
        && !std::io::stdin().is_terminal()
    {
        return Err(Report::usage("standard input is not a terminal, so -it cannot connect to it")
            .hint("use -i alone, or -t alone"));
    }
    let has = |stream: &str| args.attach.iter().any(|given| given.eq_ignore_ascii_case(stream));
    let attach = !args.attach.is_empty() && !context.presentation().ignores_attach;
    if attach && !["stdout", "stderr"].iter().all(|stream| has(stream)) {
        return Err(Report::usage(
            "--attach: standard output and standard error are always attached together",
        )
        .hint("redirect what you do not want: >/dev/null, 2>/dev/null"));
    }
    Ok(())
}
