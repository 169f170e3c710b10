//! `cluster rank` and `cluster mpi`, which the driver and launchers of MPI start.

use std::ffi::OsStr;
use std::fmt::Write as _;

use cluster::ranks::image;
use cluster::ranks::rank::Ranks;

use super::own_words;
use crate::args::cluster::{ClusterMpiArgs, ClusterRankArgs};
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// `cluster rank`.
pub(crate) fn rank(context: &Context, args: &ClusterRankArgs) -> Result<Exit, Report> {
    let ranks = Ranks::of(context.session()?.store_path()?, &args.cluster, &args.launch)?;
    if let Some(number) = args.signal {
        output::line(ranks.signal(number).to_string())?;
        return Ok(Exit::OK);
    }
    if args.failures {
        let mut lines = String::new();
        for failure in ranks.failures() {
            let _ = writeln!(lines, "{failure}");
        }
        ranks.remove();
        output::print(&lines)?;
        return Ok(Exit::OK);
    }
    let words = ranks.words(own_words(context)?, args.words.clone())?;
    let environment = &context.surroundings().environment;
    let variable = |name: &str| Some(environment.get(OsStr::new(name))?.to_str()?.to_owned());
    Ok(Exit(ranks.run(&words, variable)?))
}

/// `cluster mpi`.
pub(crate) fn mpi(context: &Context, args: &ClusterMpiArgs) -> Result<Exit, Report> {
    let environment = &context.surroundings().environment;
    let path = environment.get(OsStr::new("PATH")).and_then(|path| path.to_str());
    let found = image::look(&args.given.command, path.unwrap_or_default());
    let text = serde_json::to_string(&found)
        .map_err(|error| Report::new("what was found cannot be written").cause(error))?;
    output::line(&text)?;
    Ok(Exit::OK)
}
