//! `attach`.

use containers::container::exec::{self, AttachRequest};

use crate::args::containers::AttachArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Connects to a running container until it ends or the user leaves.
pub(crate) fn run(context: &Context, args: &AttachArgs) -> Result<Exit, Report> {
    let request = AttachRequest {
        container: args.container.clone(),
        no_stdin: args.no_stdin,
        sig_proxy: args.sig_proxy,
        detach_keys: args.detach_keys.clone(),
    };
    output::ended(exec::attach(context.session()?, &request)?)
}
