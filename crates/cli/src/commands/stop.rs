//! `stop` and `restart`.

use containers::container::control::{self, StopRequest};
use containers::container::{launch, record};

use crate::args::containers::{RestartArgs, StopArgs};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// `stop`.
pub(crate) fn run(context: &Context, args: &StopArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    let mut names = args.containers.clone();
    if args.all {
        names.extend(control::every_id(session)?);
    }
    let request = StopRequest { seconds: args.time, signal: args.signal.clone() };
    super::each(&names, |name| {
        let container = record::find(session, name)?;
        if let Some(host) = &args.host_is_gone {
            record::forget_host(session, &container, host, args.all)?;
        }
        control::stop_container(session, &container, &request)?;
        output::line(name)
    })
}

/// `restart`.
pub(crate) fn restart(context: &Context, args: &RestartArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    launch::seal_for(session, &args.containers)?;
    let request = StopRequest { seconds: args.time, signal: args.signal.clone() };
    super::each(&args.containers, |name| {
        control::restart(session, name, &request)?;
        output::line(name)
    })
}
