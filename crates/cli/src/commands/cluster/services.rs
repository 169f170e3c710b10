//! `cluster scale`, `replace`, `watch` and `node`: services of a cluster that is up.

use std::path::Path;
use std::time::Duration;

use cluster::balance;
use cluster::driver::{self, Setting, Watcher};
use cluster::slurm::{self, Action};
use cluster::spec::{self, Spec};

use super::{Interrupted, Shown, ending, setting};
use crate::args::cluster::{
    ClusterAskArgs, ClusterNodeArgs, ClusterReplaceArgs, ClusterScaleArgs, ClusterWatchArgs,
};
use crate::context::Context;
use crate::report::{Exit, Report};
use crate::terminal::note;

/// `cluster scale`.
pub(crate) fn scale(context: &Context, args: &ClusterScaleArgs) -> Result<Exit, Report> {
    let spec = spec::read_to_start(&args.file)?;
    let wanted: Vec<(String, u32)> =
        args.wanted.iter().map(|text| wanted(text)).collect::<Result<_, Report>>()?;
    let scaled = changed(context, &spec, |setting, directory, watcher| {
        driver::scale(&spec, setting, directory, &wanted, watcher)
    })?;
    if !context.is_quiet() {
        for ((name, _), scaled) in wanted.iter().zip(scaled) {
            note(&format!("{name} has {} containers, and had {}", scaled.now, scaled.before));
        }
    }
    Ok(Exit::OK)
}

/// `SERVICE=N`.
fn wanted(text: &str) -> Result<(String, u32), Report> {
    let most = spec::REPLICAS;
    let read = |(name, count): (&str, &str)| {
        let count = count.parse().ok().filter(|count| *count <= most)?;
        Some((name.to_owned(), count))
    };
    text.split_once('=').and_then(read).ok_or_else(|| {
        let fact = format!("{text:?} is not SERVICE=N");
        Report::wrong_words(fact).hint(format!("write web=3; N is at most {most}"))
    })
}

/// `cluster replace`.
pub(crate) fn replace(context: &Context, args: &ClusterReplaceArgs) -> Result<Exit, Report> {
    let spec = spec::read_to_start(&args.file)?;
    changed(context, &spec, |setting, directory, watcher| {
        driver::replace(&spec, setting, directory, &args.services, watcher)
    })?;
    Ok(Exit::OK)
}

/// Changes a cluster until a signal comes.
fn changed<T>(
    context: &Context,
    spec: &Spec,
    change: impl FnOnce(&Setting, &Path, &dyn Watcher) -> cluster::Result<T>,
) -> Result<T, Report> {
    let (_blocked, signals) = ending()?;
    let interrupted = Interrupted::by(&signals);
    let shown = Shown { interrupted: &interrupted, is_quiet: context.is_quiet() };
    let directory = context.session()?.absolute(spec.directory())?;
    change(&setting(context)?, &directory, &shown).map_err(|error| interrupted.report(&error))
}

/// `cluster watch`.
pub(crate) fn watch(context: &Context, args: &ClusterWatchArgs) -> Result<Exit, Report> {
    let spec = spec::read_to_start(&args.file)?;
    let (_blocked, signals) = ending()?;
    let interrupted = Interrupted::by(&signals);
    let directory = context.session()?.absolute(spec.directory())?;
    driver::watch(&spec, &setting(context)?, &directory, &Told(&interrupted))?;
    Ok(interrupted.exit().unwrap_or(Exit::OK))
}

/// A line for each decision, with its time.
struct Told<'s>(&'s Interrupted<'s>);

impl Watcher for Told<'_> {
    fn phase(&self, _: &str) -> cluster::Result<()> {
        Ok(())
    }

    fn signal(&self, within: Duration) -> Option<i32> {
        self.0.next(within)
    }

    fn note(&self, text: &str) {
        note(&format!("{:.0} {text}", containers::time::now()));
    }

    fn is_stopped(&self) -> bool {
        self.0.is_so()
    }
}

/// `cluster node`.
pub(crate) fn node(context: &Context, args: &ClusterNodeArgs) -> Result<Exit, Report> {
    let action = Action::of(&args.action).ok_or_else(|| {
        let words = Action::ALL.map(Action::word).join(", ");
        Report::wrong_words(format!("{:?} is not one of {words}", args.action))
    })?;
    let of_job = || {
        let mut all = context.texts().into_iter();
        Some(all.find(|(name, _)| name == "SLURM_JOB_NODELIST")?.1)
    };
    let nodes = args.nodes.clone().or_else(of_job);
    let nodes = nodes.ok_or_else(|| Report::wrong_words("which nodes?"))?;
    Ok(Exit(slurm::ask(action, &nodes)?))
}

/// `cluster ask`.
pub(crate) fn ask(_: &Context, _: &ClusterAskArgs) -> Result<Exit, Report> {
    balance::serve(Path::new(balance::SOCKET))?;
    Ok(Exit::OK)
}
