//! `start`.

use engine::plan::Overrides;
use store::ContainerDir;

use crate::args::containers::StartArgs;
use crate::container::launch::{self, Run};
use crate::container::record;
use crate::container::removal::Removal;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Starts containers: in the background, or one in the foreground with `--attach`.
pub(crate) fn run(context: &Context, args: &StartArgs) -> Result<Exit, Report> {
    launch::seal_for(context, &args.containers)?;
    if args.attach || args.interactive {
        let [name] = args.containers.as_slice() else {
            return Err(Report::usage("only one container can be attached to"));
        };
        let container = record::find(context, name)?;
        not_running(&container, name)?;
        let mut run = of(container)?;
        run.record.config.stdin_open &= args.interactive;
        run.detach_keys.clone_from(&args.detach_keys);
        run.detach = false;
        return launch::launch(context, &run);
    }
    super::each(&args.containers, |name| {
        let container = record::find(context, name)?;
        record::is_here(&container)?;
        // As in Docker, starting what runs is no error.
        if launch::is_running(&container)? {
            return output::line(name);
        }
        detached(context, container)?;
        output::line(name)
    })
}

/// Starts a container in the background.
pub(crate) fn detached(context: &Context, container: ContainerDir) -> Result<(), Report> {
    launch::launch(context, &of(container)?).map(drop)
}

fn of(container: ContainerDir) -> Result<Run, Report> {
    let record = record::read(&container)?;
    let removal = if record.config.auto_remove { Removal::recorded(&container)? } else { None };
    Ok(Run {
        removal,
        made: None,
        container,
        record,
        overrides: Overrides::default(),
        detach: true,
        quiet: true,
        sig_proxy: true,
        detach_keys: None,
        log: true,
        explain: false,
        shared: false,
    })
}

fn not_running(container: &ContainerDir, name: &str) -> Result<(), Report> {
    record::is_here(container)?;
    if launch::is_running(container)? {
        return Err(Report::new(format!("container {name} is running"))
            .hint(format!("coracle attach {name}")));
    }
    Ok(())
}
