//! `mkrepo` and `install`: udocker's users make a place and install tools; here a store is made,
//! and there are no tools.

use crate::args::system::{InstallArgs, MkrepoArgs};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// Makes a store in a directory that is not there yet. Under udocker's name it is the part of that
/// directory which `--repo` uses.
pub(crate) fn run(context: &Context, args: &MkrepoArgs) -> Result<Exit, Report> {
    let directory = context.absolute(&args.directory)?;
    std::fs::create_dir(&directory).map_err(|error| {
        Report::new(format!("cannot make {}", directory.display())).cause(error).exit(Exit(1))
    })?;
    let place = if context.presentation().store_below {
        directory.join(containers::udocker::STORE)
    } else {
        directory
    };
    store::Store::open(&place, store::Options { create: true, ..store::Options::default() })?;
    Ok(Exit::OK)
}

/// Says that all is there already.
pub(crate) fn install(context: &Context, args: &InstallArgs) -> Result<Exit, Report> {
    let InstallArgs { force: _, purge: _ } = args;
    if !context.is_quiet() {
        output::line("Info: nothing has to be installed: all engines are part of this program")?;
    }
    Ok(Exit::OK)
}
