//! `rm`.

use containers::container::removal::{self, RemoveRequest, Unnamed};
use containers::container::{control, record};

use crate::args::containers::RmArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Removes containers; each is tried, the first failure decides.
pub(crate) fn run(context: &Context, args: &RmArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    let mut names = args.containers.clone();
    if args.all {
        names.extend(control::every_id(session)?);
    }
    let unnamed = if args.volumes { Unnamed::Remove } else { Unnamed::Keep };
    let request = RemoveRequest { force: args.force, unnamed };
    let ended = super::each(&names, |name| {
        if let Some(host) = &args.host_is_gone
            && let Some(container) = record::find_some(session, name)?
        {
            removal::check_removable(session, &container)?;
            record::forget_host(session, &container, host, args.all)?;
        }
        let removed = removal::remove(session, name, request)?;
        if removed { output::line(name) } else { Ok(()) }
    });
    removal::sync(session)?;
    ended
}
