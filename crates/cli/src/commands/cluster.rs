//! `cluster explain`, `up`, `down`, `status`, and what runs in containers of clusters.

pub(crate) mod members;
pub(crate) mod ranks;
pub(crate) mod services;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cluster::door;
use cluster::driver::{self, Local, Ran, Setting, Watcher};
use cluster::files;
use cluster::inside::{self, Probe};
use cluster::plan::{self, Plan};
use cluster::spec::{self, Kind, Spec, units};
use cluster::spread;
use remote::agent;
use serde_json::json;
use sys::event::{MaskGuard, SignalFd, SignalSet};

use crate::args::cluster::{
    ClusterAgentArgs, ClusterDoorArgs, ClusterDownArgs, ClusterExplainArgs, ClusterFilesArgs,
    ClusterIdleArgs, ClusterMeetArgs, ClusterProbeArgs, ClusterSpreadArgs, ClusterStatusArgs,
    ClusterUpArgs, ClusterVrrpArgs, Which,
};
use crate::commands::batch;
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
const MORE: &[Column] = &[("State", "STATE"), ("Facts", "FACTS")];
/// SIGHUP, SIGINT, SIGTERM.
const ENDING: [i32; 3] = [1, 2, 15];
/// The same signal within so long counts once, as one does that is still pending (signal(7)): a
/// batch script passes on what the batch system may send to all processes of a job.
const TOGETHER: Duration = Duration::from_millis(200);

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
    let (_blocked, signals) = ending()?;
    if batch::is_outside(context, &spec)? {
        return batch::up(context, &spec, own_words(context)?, args.detach, &signals);
    }
    let interrupted = Interrupted::by(&signals);
    let shown = Shown { interrupted: &interrupted, is_quiet: context.is_quiet() };
    let setting = setting(context)?;
    let directory = context.session()?.absolute(spec.directory())?;
    let name = &spec.name;
    let was_up = driver::is_known(&setting, name);
    // With --detach the containers are left when this command ends, however it does.
    let hold = (!args.detach).then_some(time(&args.grace)?);
    let session = context.session()?;
    let started = driver::start(&spec, (&setting, session), &directory, (hold, &shown));
    if started.as_ref().is_ok_and(|cluster| !cluster.is_new) {
        shown.say(&format!("cluster {name} was up already"));
    }
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
        if driver::is_followed(&spec) {
            let file = context.session()?.absolute(&args.file)?;
            let log = driver::watch_apart(&spec, &setting, &file)?;
            shown.say(&format!("it is followed in the background: {}", log.display()));
        }
        return Ok(Exit::OK);
    }
    let cluster = match started {
        Ok(cluster) => cluster,
        Err(error) => {
            // What was there before this command stays.
            if !was_up && let Err(left) = driver::end(&setting, &spec.name, false) {
                note(&left.to_string());
            }
            return Err(interrupted.report(&error));
        }
    };
    let work = || {
        if let Some(ran) = cluster.run(session, &shown)? {
            return Ok(ran);
        }
        shown.say(&format!("cluster {name} is up; ctrl-C ends it"));
        cluster.wait(&setting, &shown)?;
        let Exit(status) = interrupted.exit().unwrap_or(Exit::OK);
        Ok(Ran { status, notes: Vec::new(), lost: None })
    };
    let ended = cluster.following(&spec, (&setting, &directory), &shown, work);
    if let Ok(ran @ Ran { lost: Some(_), .. }) = &ended
        && cluster.can_stay()
    {
        note(&format!("cluster {name} stays, with its output; then: coracle cluster down {name}"));
        return ended_with(ran);
    }
    match (ended, cluster.end(&setting)) {
        (Ok(ran @ Ran { status: 0, .. }), gone) => {
            let exit = ended_with(&ran)?;
            gone.map(|()| exit).map_err(Into::into)
        }
        (Ok(ran), gone) => {
            if let Err(left) = gone {
                note(&left.to_string());
            }
            ended_with(&ran)
        }
        (Err(error), gone) => {
            if let Err(left) = gone {
                note(&left.to_string());
            }
            Err(interrupted.report(&error))
        }
    }
}

/// What an application comes to: its exit status. Where output is lost, that is an error, which
/// does not hide the status of one that has failed.
fn ended_with(ran: &Ran) -> Result<Exit, Report> {
    for text in &ran.notes {
        note(text);
    }
    let Some(error) = &ran.lost else { return Ok(Exit(ran.status)) };
    let report = Report::of(error, error.hint().map(str::to_owned));
    Err(if ran.status == 0 { report } else { report.exit(Exit(ran.status)) })
}

/// `cluster down`.
pub(crate) fn down(context: &Context, args: &ClusterDownArgs) -> Result<Exit, Report> {
    let name = name(&args.which)?;
    let had_job = batch::down(context, &name)?;
    let count = driver::end(&setting(context)?, &name, args.force)?;
    if count == 0 && !had_job && !context.is_quiet() {
        note(&format!("cluster {name} had no containers"));
    }
    Ok(Exit::OK)
}

/// `cluster status`.
pub(crate) fn status(context: &Context, args: &ClusterStatusArgs) -> Result<Exit, Report> {
    let name = name(&args.which)?;
    let (hosts, mut lost) = driver::reach_some(&setting(context)?, &name)?;
    let (containers, also) = driver::status_of_reached(&name, &hosts)?;
    lost.extend(also);
    let facts = |host: &str| {
        hosts.told(host).map(|(facts, route)| {
            let has = &facts.equipment;
            json!({"Route": route, "Memlock": has.memlock, "Devices": has.devices, "Cdi": has.cdi})
        })
    };
    let row = |one: &driver::Container| {
        json!({
            "Name": one.name,
            "Role": one.role,
            "Host": one.host,
            "State": one.state,
            "Status": one.status,
            "Image": one.image,
            "Ports": one.ports,
            "Facts": facts(&one.host),
        })
    };
    let mut rows = batch::rows(context, &name)?;
    rows.extend(containers.iter().map(row));
    rows.extend(lost.iter().map(|lost| {
        json!({
            "Name": "", "Role": "", "Host": lost.host, "State": "lost", "Status": "not reached",
            "Image": "", "Ports": "",
        })
    }));
    let format = args.format.as_deref();
    let listing = Listing { format, shown: COLUMNS, more: MORE, quiet: None };
    output::print(&listing.render(&rows)?)?;
    for lost in &lost {
        note(&lost.why);
    }
    Ok(if lost.is_empty() { Exit::OK } else { Exit(1) })
}

/// `cluster agent`.
pub(crate) fn agent(context: &Context, _: &ClusterAgentArgs) -> Result<Exit, Report> {
    let environment = context.texts();
    let release = env!("CARGO_PKG_VERSION").to_owned();
    let options = agent::Options { release, environment, runtime: None };
    match agent::serve(&options) {
        Ok(agent::Exit::CleanUpFailed) => Ok(Exit(1)),
        Ok(_) => Ok(Exit::OK),
        Err(error) => {
            let hint = error.hint();
            Err(Report::of(&error, hint))
        }
    }
}

/// `cluster spread`.
pub(crate) fn spread(context: &Context, args: &ClusterSpreadArgs) -> Result<Exit, Report> {
    let (source, unpack, address) = (args.source.clone(), args.unpack, args.address);
    spread::serve(context.session()?, &spread::Options { source, unpack, address })?;
    Ok(Exit::OK)
}

/// `cluster idle`.
pub(crate) fn idle(_: &Context, _: &ClusterIdleArgs) -> Result<Exit, Report> {
    inside::idle()
}

/// `cluster meet`.
pub(crate) fn meet(_: &Context, args: &ClusterMeetArgs) -> Result<Exit, Report> {
    let meet = if args.known { inside::know } else { inside::meet };
    meet(&args.nodes, time(&args.within)?)?;
    Ok(Exit::OK)
}

fn time(text: &str) -> Result<Duration, Report> {
    units::time(text).ok_or_else(|| {
        Report::wrong_words(format!("{text:?} is not a time")).hint("write 10s or 1m30s")
    })
}

/// `cluster files`.
pub(crate) fn files(_: &Context, args: &ClusterFilesArgs) -> Result<Exit, Report> {
    let ask = match (args.within, args.beside) {
        (true, _) => files::Ask::InDirectory,
        (_, true) => files::Ask::Beside,
        _ => files::Ask::All,
    };
    let bytes = files::answer(ask, &args.path, &mut std::io::stdin())?;
    let written = std::io::stdout().write_all(&bytes).and_then(|()| std::io::stdout().flush());
    written.map_err(|error| Report::new("cannot write what there is").cause(error))?;
    Ok(Exit::OK)
}

/// `cluster door`.
pub(crate) fn door(_: &Context, args: &ClusterDoorArgs) -> Result<Exit, Report> {
    door::serve(&args.path)?;
    Ok(Exit::OK)
}

/// The program of the name `rsh`, which launchers of MPI start as if it were `ssh`; its exit status
/// for its own failures is that of ssh.
pub(crate) fn rsh(words: Vec<OsString>, door: Option<&Path>) -> Exit {
    let not_text = |_| cluster::Error::new("a word is not UTF-8");
    let words: Result<Vec<String>, _> = words.into_iter().map(OsString::into_string).collect();
    let request = words.map_err(not_text).and_then(|words| door::parse(&words));
    let ended = request.and_then(|request| door::rsh(&request, door));
    Exit(ended.unwrap_or_else(|error| {
        note(&format!("rsh: {error}"));
        255
    }))
}

/// `cluster probe`.
pub(crate) fn probe(_: &Context, args: &ClusterProbeArgs) -> Result<Exit, Report> {
    let within = time(&args.within)?;
    let probe = Probe::parse(&args.kind, &args.place).ok_or_else(|| {
        let fact = format!("{:?} {:?} is nothing to look for", args.kind, args.place);
        Report::wrong_words(fact).hint("write tcp HOST:PORT or http HOST:PORT/PATH")
    })?;
    probe.until(within)?;
    Ok(Exit::OK)
}

/// `cluster vrrp`.
pub(crate) fn vrrp(_: &Context, args: &ClusterVrrpArgs) -> Result<Exit, Report> {
    Ok(Exit(cluster::vrrp::run(&args.name, args.priority, &args.given.command)?))
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
    let directory = context.session()?.absolute(spec.directory())?;
    let sites = match spec.backends[0].kind {
        Kind::Local => vec![setting(context)?.site(&spec.name, &directory)],
        _ => plan::unknown_sites(spec, &directory.display().to_string()),
    };
    Ok(plan::plan(spec, &sites))
}

fn program() -> Result<std::path::PathBuf, Report> {
    std::env::current_exe()
        .map_err(|error| Report::new("the path of this program is not known").cause(error))
}

/// This program, with the options that stand before a command.
fn own_words(context: &Context) -> Result<Vec<OsString>, Report> {
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
    Ok(words)
}

/// What the driver has of this machine.
fn setting(context: &Context) -> Result<Setting, Report> {
    Ok(Setting {
        here: Local { program: own_words(context)? },
        store: context.session()?.store_path()?.to_owned(),
        program: program()?,
        environment: context.texts(),
        processors: rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count()),
    })
}

/// Waits for signals that ask for the end, as long as the guard is there.
fn ending() -> Result<(MaskGuard, SignalFd), Report> {
    let set = SignalSet::of(&ENDING);
    let blocked = MaskGuard::block(set).map_err(|error| cannot_wait(&error))?;
    Ok((blocked, SignalFd::new(set).map_err(|error| cannot_wait(&error))?))
}

fn cannot_wait(error: &std::io::Error) -> Report {
    Report::new("signals cannot be waited for").cause(std::io::Error::other(error.to_string()))
}

/// Whether a signal asks this command to end.
struct Interrupted<'s> {
    signals: &'s SignalFd,
    /// The first one; 0 as long as there is none.
    number: AtomicI32,
    /// The last one that was passed on.
    passed: Mutex<Option<(i32, Instant)>>,
}

impl<'s> Interrupted<'s> {
    const fn by(signals: &'s SignalFd) -> Self {
        Self { signals, number: AtomicI32::new(0), passed: Mutex::new(None) }
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

    /// Waits for a signal to pass on, for so long at most.
    fn next(&self, within: Duration) -> Option<i32> {
        let number = self.signals.next_within(within).ok().flatten()?.number;
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if passed.is_some_and(|(last, at)| last == number && at.elapsed() < TOGETHER) {
            return None;
        }
        *passed = Some((number, Instant::now()));
        Some(number)
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
    fn note(&self, text: &str) {
        self.say(text);
    }

    fn phase(&self, name: &str) -> cluster::Result<()> {
        self.say(name);
        Ok(())
    }

    fn signal(&self, within: Duration) -> Option<i32> {
        self.interrupted.next(within)
    }

    fn is_stopped(&self) -> bool {
        self.interrupted.is_so()
    }
}
