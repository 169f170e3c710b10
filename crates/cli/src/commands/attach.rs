//! `attach`.

use engine::supervise::{self, AttachOptions, Console};

use crate::args::containers::AttachArgs;
use crate::container::{launch, record};
use crate::context::Context;
use crate::progress;
use crate::report::{Exit, Report};

/// Connects to a running container until it ends or the user leaves.
pub(crate) fn run(context: &Context, args: &AttachArgs) -> Result<Exit, Report> {
    let container = record::find(context, &args.container)?;
    let config = record::read(&container)?.config;
    let mut notice = |text: &str| progress::note(&format!("{text}\r"));
    let detach_keys = launch::detach_keys(context, args.detach_keys.as_deref())?;
    let console = Console { detach_keys, sig_proxy: args.sig_proxy, notice: &mut notice };
    let options = AttachOptions { input: config.stdin_open && !args.no_stdin };
    let ended = supervise::attach(&container.path(), options, console).map_err(|error| {
        Report::from(error).within(format!("cannot attach to {}", args.container))
    })?;
    Ok(launch::exit_of(ended))
}
