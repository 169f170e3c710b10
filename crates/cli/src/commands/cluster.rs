//! `cluster explain`, `up`, `down`, `status`, and what runs in containers of clusters.

pub(crate) mod members;

use std::ffi::OsString;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use cluster::driver::{self, Hosts, Local, Watcher};
use cluster::inside::{self, Probe};
use cluster::plan::{self, Around, Phase, Plan};
use cluster::spec::{self, Spec, units};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;
use sys::event::{MaskGuard, SignalFd, SignalSet};

use crate::args::cluster::{
    ClusterDownArgs, ClusterExplainArgs, ClusterIdleArgs, ClusterProbeArgs, ClusterStatusArgs,
    ClusterUpArgs, Which,
};
use crate::context::Context;
use crate::output;
use crate::output::listing::{Column, Listing};
use crate::report::{Exit, Report};
use crate::terminal::note;

const COLUMNS: &[Column] = &[
    ("Name", "NAME"),
    ("Role", "ROLE"),
    ("Host", "HOST"),
    ("Status", "STATUS"),
    ("Image", "IMAGE"),
    ("Ports", "PORTS"),
];
const MORE: &[Column] = &[("State", "STATE")];
/// SIGHUP, SIGINT, SIGTERM.
const ENDING: [i32; 3] = [1, 2, 15];
/// How often is looked whether somebody else has ended a cluster.
const LOOK: Duration = Duration::from_secs(5);

impl From<cluster::Error> for Report {
    fn from(error: cluster::Error) -> Self {
        Self::of(&error, error.hint().map(str::to_owned))
    }
}

/// `cluster explain`.
pub(crate) fn explain(context: &Context, args: &ClusterExplainArgs) -> Result<Exit, Report> {
    let spec = spec::read(&args.file)?;
    output::print(&planned(context, &spec)?.to_string())?;
    Ok(Exit::OK)
}

/// `cluster up`.
pub(crate) fn up(context: &Context, args: &ClusterUpArgs) -> Result<Exit, Report> {
    let spec = spec::read_to_start(&args.file)?;
    let plan = planned(context, &spec)?;
    let hosts = this_machine(context)?;
    let set = SignalSet::of(&ENDING);
    let _blocked = MaskGuard::block(set).map_err(|error| cannot_wait(&error))?;
    let signals = SignalFd::new(set).map_err(|error| cannot_wait(&error))?;
    let session = context.session()?;
    let wanted = driver::Wanted {
        spec: &spec,
        plan: &plan,
        store: session.store_path()?,
        processors: rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()),
    };
    let interrupted = Interrupted::by(&signals);
    let shown = Shown { interrupted: &interrupted, is_quiet: context.is_quiet() };
    let name = &plan.cluster;
    let was_up = !driver::status(name, &hosts)?.is_empty();
    let started = wanted.start(&hosts, &shown).map(|is_new| {
        if !is_new {
            shown.say(&format!("cluster {name} was up already"));
        }
    });
    if args.detach {
        started.map_err(|error| {
            let hint = error.hint().map_or_else(
                || format!("what was started stays: coracle cluster logs {name}, down {name}"),
                str::to_owned,
            );
            interrupted.report(&error).hint(hint)
        })?;
        if spec.run.is_some() {
            shown.say("[run] waits for: coracle cluster run -f FILE");
        }
        return Ok(Exit::OK);
    }
    let ended = started.and_then(|()| {
        if let Some(status) = driver::run(&plan, &hosts)? {
            return Ok(status);
        }
        shown.say(&format!("cluster {name} is up; ctrl-C ends it"));
        wait(&plan, &hosts, &interrupted)
    });
    // What was there before this command stays where that has failed.
    if ended.is_ok() || !was_up {
        driver::end(wanted.store, name, &hosts)?;
    }
    Ok(Exit(ended.map_err(|error| interrupted.report(&error))?))
}

/// `cluster down`.
pub(crate) fn down(context: &Context, args: &ClusterDownArgs) -> Result<Exit, Report> {
    let name = name(&args.which)?;
    let hosts = this_machine(context)?;
    let count = driver::end(context.session()?.store_path()?, &name, &hosts)?;
    if count == 0 && !context.is_quiet() {
        note(&format!("cluster {name} had no containers"));
    }
    Ok(Exit::OK)
}

/// `cluster status`.
pub(crate) fn status(context: &Context, args: &ClusterStatusArgs) -> Result<Exit, Report> {
    let hosts = this_machine(context)?;
    let containers = driver::status(&name(&args.which)?, &hosts)?;
    let row = |one: &driver::Container| {
        json!({
            "Name": one.name,
            "Role": one.role,
            "Host": one.host,
            "State": one.state,
            "Status": one.status,
            "Image": one.image,
            "Ports": one.ports,
        })
    };
    let rows: Vec<_> = containers.iter().map(row).collect();
    let format = args.format.as_deref();
    let listing = Listing { format, shown: COLUMNS, more: MORE, quiet: None };
    output::print(&listing.render(&rows)?)?;
    Ok(Exit::OK)
}

/// `cluster idle`.
pub(crate) fn idle(_: &Context, _: &ClusterIdleArgs) -> Result<Exit, Report> {
    inside::idle()
}

/// `cluster probe`.
pub(crate) fn probe(_: &Context, args: &ClusterProbeArgs) -> Result<Exit, Report> {
    let within = units::time(&args.within).ok_or_else(|| {
        Report::wrong_words(format!("{:?} is not a time", args.within)).hint("write 10s or 1m30s")
    })?;
    let probe = Probe::parse(&args.kind, &args.place).ok_or_else(|| {
        let fact = format!("{:?} {:?} is nothing to look for", args.kind, args.place);
        Report::wrong_words(fact).hint("write tcp HOST:PORT or http HOST:PORT/PATH")
    })?;
    probe.until(within)?;
    Ok(Exit::OK)
}

fn name(which: &Which) -> Result<String, Report> {
    match (&which.file, &which.name) {
        (Some(file), _) => Ok(spec::read(file)?.name),
        (None, Some(name)) => Ok(spec::name(name)?),
        (None, None) => Err(no_cluster()),
    }
}

fn no_cluster() -> Report {
    Report::wrong_words("which cluster?").hint("give -f FILE or its name")
}

fn planned(context: &Context, spec: &Spec) -> Result<Plan, Report> {
    let session = context.session()?;
    let directory = session.absolute(spec.directory())?;
    let kept = driver::place::directory(session.store_path()?, &spec.name);
    let around = Around {
        program: program()?.display().to_string(),
        directory: directory.display().to_string(),
        host_file: driver::place::host_file(&kept).display().to_string(),
    };
    Ok(plan::plan(spec, &around))
}

fn program() -> Result<std::path::PathBuf, Report> {
    std::env::current_exe()
        .map_err(|error| Report::new("the path of this program is not known").cause(error))
}

/// This machine, with the options that stand before the command.
fn this_machine(context: &Context) -> Result<Hosts, Report> {
    let global = &context.global;
    let mut words = vec![program()?.into_os_string()];
    let mut option = |name: &str, value: Option<OsString>| {
        words.extend(value.into_iter().flat_map(|value| [OsString::from(name), value]));
    };
    option("--store", Some(context.session()?.store_path()?.as_os_str().to_owned()));
    for path in &context.session()?.settings().store_read_only {
        option("--store-ro", Some(path.clone().into_os_string()));
    }
    option("--config", global.config.clone().map(std::path::PathBuf::into_os_string));
    option("--log-level", global.log_level.clone().map(OsString::from));
    if global.insecure {
        words.push("--insecure".into());
    }
    Ok(Hosts::one(Local { program: words }))
}

fn cannot_wait(error: &std::io::Error) -> Report {
    Report::new("signals cannot be waited for").cause(std::io::Error::other(error.to_string()))
}

/// Waits for a signal, or until somebody else has ended the cluster. Returns the exit status.
fn wait(plan: &Plan, hosts: &Hosts, interrupted: &Interrupted<'_>) -> cluster::Result<u8> {
    let timeout = Timespec::try_from(LOOK).ok();
    loop {
        let _ = poll(&mut [PollFd::new(interrupted.signals, PollFlags::IN)], timeout.as_ref());
        if let Some(Exit(status)) = interrupted.is_so().then(|| interrupted.exit()).flatten() {
            return Ok(status);
        }
        if driver::status(&plan.cluster, hosts)?.is_empty() {
            return Ok(0);
        }
    }
}

/// Whether a signal asks this command to end.
struct Interrupted<'s> {
    signals: &'s SignalFd,
    /// The first one; 0 as long as there is none.
    number: AtomicI32,
}

impl<'s> Interrupted<'s> {
    const fn by(signals: &'s SignalFd) -> Self {
        Self { signals, number: AtomicI32::new(0) }
    }

    fn is_so(&self) -> bool {
        if let Ok(Some(signal)) = self.signals.next() {
            let _ = self.number.compare_exchange(
                0,
                signal.number,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        self.number.load(Ordering::Relaxed) != 0
    }

    /// The status of a command that was interrupted.
    fn exit(&self) -> Option<Exit> {
        match self.number.load(Ordering::Relaxed) {
            0 => None,
            number => Some(Exit(128 + number as u8)),
        }
    }

    /// A failure, which may be that of an interrupted command.
    fn report(&self, error: &cluster::Error) -> Report {
        let report = Report::of(error, error.hint().map(str::to_owned));
        match self.exit() {
            Some(exit) => report.exit(exit),
            None => report,
        }
    }
}

/// What the user sees of a start.
struct Shown<'s> {
    interrupted: &'s Interrupted<'s>,
    is_quiet: bool,
}

impl Shown<'_> {
    fn say(&self, text: &str) {
        if !self.is_quiet {
            note(text);
        }
    }
}

impl Watcher for Shown<'_> {
    fn phase(&self, phase: &Phase) -> cluster::Result<()> {
        self.say(&phase.name);
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        self.interrupted.is_so()
    }
}
