//! `rm`.

use engine::supervise::{self, Signal, StopOptions};
use store::ContainerDir;

use crate::args::containers::RmArgs;
use crate::container::{launch, record};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use crate::udocker::legacy;

/// Removes containers; each is tried, the first failure decides.
pub(crate) fn run(context: &Context, args: &RmArgs) -> Result<Exit, Report> {
    let mut names = args.containers.clone();
    if args.all {
        names.extend(
            context.store()?.containers().list()?.iter().map(|container| container.id().to_owned()),
        );
    }
    let ended = super::each(&names, |name| {
        let container = match record::find_some(context, name)? {
            Some(container) => container,
            // As Docker: `rm -f` of what is not there is done already.
            None if args.force => return Ok(()),
            None => record::find(context, name)?,
        };
        super::protect::check_container(&container)?;
        if context.is_udocker() {
            legacy::check_removable(&container)?;
        }
        if let Some(host) = &args.host_is_gone {
            record::forget_host(context, &container, host, args.all)?;
        }
        loop {
            if args.force {
                let options = StopOptions { signal: Signal::KILL, timeout: None };
                supervise::stop(&container.path(), options)?;
                // A supervised `--rm` container is gone by now.
                if !container.exists()? {
                    break;
                }
            }
            if launch::remove_idle(context, &container)? {
                break;
            }
            // Whoever was just starting it has it running now that the lock was ours.
            if !args.force {
                record::is_here(&container)?;
                return Err(running(&container));
            }
        }
        output::line(name)
    });
    // One wait for all of them.
    context.store()?.containers().sync_removals()?;
    ended
}

/// An error where a container runs.
pub(crate) fn not_running(container: &ContainerDir) -> Result<(), Report> {
    record::is_here(container)?;
    if launch::is_running(container)? { Err(running(container)) } else { Ok(()) }
}

pub(crate) fn running(container: &ContainerDir) -> Report {
    let title = record::title(container);
    Report::new(format!("container {title} is running"))
        .hint(format!("stop it first (coracle stop {title}), or use --force"))
}
