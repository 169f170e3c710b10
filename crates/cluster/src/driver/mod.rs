//! Carries out a plan: phases one after the other, the steps of one at once.
//!
//! Every step is a command of Coracle on a [`Host`], and looks first whether its work is done
//! already. So `up` after a killed `up` goes on, and nothing is remembered beside what the
//! commands leave, containers and a network with the cluster's label, which containers are not
//! ready yet (`begun`), and where other hosts and their stores are (`reach`). `down` removes these.

mod admin;
mod archive;
mod at;
mod balance;
mod begun;
mod configuration;
mod copy;
mod doors;
mod down;
mod follow;
mod hosts;
mod images;
mod local;
mod logs;
mod member;
mod network;
mod nodes;
mod phases;
mod ranks;
mod reach;
mod relay;
mod remote;
mod scale;
mod slow;
mod status;
mod steps;
mod transfer;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use containers::Session;

use crate::error::{Error, Result};
use crate::place::{self, Place};
use crate::plan::{Act, Plan, Site, Step};
use crate::spec::{Service, Spec, units};

pub use copy::{Copies, Inside};
use doors::Doors;
use down::down;
pub use hosts::{Attach, Done, Host, Hosts, Lost, Task};
pub use local::Local;
pub use logs::{Logs, Reader};
pub use member::{Exec, exec, run_again};
use phases::Phases;
pub use reach::Reach;
pub use scale::{Scaled, replace, scale};
pub use status::{Container, status_of_reached};
pub use watch::{is_followed, watch, watch_apart};

/// What happens meanwhile.
pub trait Watcher: Sync {
    /// A phase begins. An error ends the start before it.
    fn phase(&self, name: &str) -> Result<()>;
    /// Waits for a signal that the application is to get, for so long at most.
    fn signal(&self, within: Duration) -> Option<i32>;

    /// Something that the user may want to know.
    fn note(&self, text: &str) {
        let _ = text;
    }

    /// Whether the start is given up. Asked some times a second.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// A host that may be lost has so long to answer. The end of the cluster, and other changes of it,
/// wait for that.
const SOON: Duration = Duration::from_secs(15);

/// What an error says after [`Watcher::is_stopped`].
const INTERRUPTED: &str = "interrupted";

/// What the driver has of its own machine.
#[derive(Debug, Clone)]
pub struct Setting {
    /// This machine.
    pub here: Local,
    /// The directory of its store.
    pub store: PathBuf,
    /// The path of this program.
    pub program: PathBuf,
    /// The variables of this process.
    pub environment: Vec<(String, String)>,
    /// Processors that this process may use.
    pub processors: u32,
}

impl Setting {
    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| &**value).filter(|value| !value.is_empty())
    }

    fn hosts(&self) -> Hosts {
        Hosts::here(self.here.clone())
    }

    /// What a plan has to know of this machine.
    pub fn site(&self, cluster: &str, directory: &Path) -> Site {
        Site {
            host: None,
            program: self.program.display().to_string(),
            directory: directory.display().to_string(),
            kept: place::directory(&self.store, cluster).display().to_string(),
            sees_driver: true,
            processors: self.processors,
            memory: ::remote::agent::memory(),
            user: rustix::process::geteuid().as_raw().to_string(),
            ..Site::default()
        }
    }
}

/// A cluster whose hosts are reached.
pub struct Cluster {
    /// Its hosts.
    pub hosts: Hosts,
    /// What is known of them.
    sites: Vec<Site>,
    /// What its file comes to on them.
    pub plan: Plan,
    /// There was something to do.
    pub is_new: bool,
    /// The application is ended after that.
    time: Option<Duration>,
    /// Its containers end with this process.
    ends_with_driver: bool,
}

/// How an application has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its exit status, 128+n for signal n, and [`TIME_OUT`] where its time was over. Of several
    /// ranks that of the first that has failed.
    pub status: u8,
    /// What else there is to say of its end.
    pub notes: Vec<String>,
    /// Why output is missing that a further copy may bring. The containers should stay for that.
    pub lost: Option<Error>,
}

/// The status of an application whose time was over, which is that of timeout(1).
pub const TIME_OUT: u8 = 124;

/// Starts all of a cluster but its run. What is there is left as it is. `directory` is where
/// relative paths of the file start, absolute; archives of `input` are in the session's store.
/// With a time to `hold`, the agents of other hosts end the cluster when this process is lost while
/// it has the [`Cluster`], and no other driver has come within that time.
///
/// # Errors
/// The first step that fails, with what its command has said; what was started before stays. If
/// another driver is at it.
pub fn start(
    spec: &Spec,
    (setting, session): (&Setting, &Session),
    directory: &Path,
    (hold, watcher): (Option<Duration>, &dyn Watcher),
) -> Result<Cluster> {
    if !setting.store.exists() {
        make_store(&setting.here)?;
    }
    let place = Place::take(&setting.store, &spec.name)?;
    let mut ends_with_driver = false;
    let (hosts, sites) = match Reach::of(spec, setting)? {
        None => {
            place.share()?;
            (setting.hosts(), vec![setting.site(&spec.name, directory)])
        }
        Some(reach) => {
            ends_with_driver = reach.ends_with_agents();
            if reach.ends_with_agents() && hold.is_none() {
                let fact = "containers on hosts of a job end with this command";
                let hint = "leave --detach out, and let the command run: coracle cluster up ... &";
                return Err(Error::new(fact).with_hint(hint));
            }
            watcher.phase("hosts")?;
            let wants = || reach::Wants::of(spec, session);
            let nodes = reach.to_start((setting, &place), &wants, hold)?;
            nodes.notes.iter().for_each(|text| watcher.note(text));
            let sites = nodes.sites(&spec.name, directory, setting);
            nodes.found().iter().for_each(|text| watcher.note(text));
            (nodes.driven_by(setting.hosts()), sites)
        }
    };
    if let Err(error) = crate::plan::room::check(spec, &sites, None) {
        place.leave();
        return Err(error);
    }
    status::remove_passing(&spec.name, &hosts)?;
    let plan = crate::plan::plan(spec, &sites);
    plan.found_variables().iter().for_each(|text| watcher.note(text));
    Reach::keep_containers(setting, &place, &plan)?;
    if spec.nodes > 0 {
        let text = crate::plan::host_file(spec, &sites);
        let put = |host: &dyn Host| {
            let site = site_of(&sites, host);
            host.put(Path::new(&site.host_file()), 0o644, text.as_bytes())
        };
        hosts.each(put).into_iter().collect::<Result<Vec<()>>>()?;
    }
    configuration::configure(spec, (&hosts, &sites), (setting, place.path()))?;
    let mut is_new = false;
    let kept = (place.path(), hosts.driver());
    let numbers = |service: &Service| (1..=service.replicas.first()).collect::<Vec<u32>>();
    for service in &spec.services {
        begun::add(kept, &service.name, &numbers(service))?;
    }
    let phases = Phases { plan: &plan, hosts: &hosts, sites: &sites, kept: place.path(), watcher };
    for phase in &plan.phases {
        if matches!(phase.steps[..], [Step { act: Act::Run { .. } | Act::Ranks(_), .. }]) {
            break;
        }
        if watcher.is_stopped() {
            return Err(Error::new(INTERRUPTED));
        }
        if matches!(phase.steps[..], [Step { act: Act::Input(_), .. }, ..]) {
            watcher.phase(&phase.name)?;
            let stop = || watcher.is_stopped();
            let transfer = transfer::Transfer { hosts: &hosts, session, stop: &stop };
            is_new |= transfer.input(&phase.steps)?;
        } else if !matches!(phase.steps[..], [Step { act: Act::Reach(_), .. }, ..]) {
            watcher.phase(&phase.name)?;
            is_new |= phases.carry_out(phase)?;
        }
    }
    for service in &spec.services {
        begun::take(kept, &service.name, &numbers(service))?;
        if let Some(text) = crate::plan::balance::clients(spec, &sites, service) {
            watcher.note(&text);
        }
    }
    let time = spec.run.as_ref().and_then(|run| run.time);
    Ok(Cluster { hosts, sites, plan, is_new, time, ends_with_driver })
}

/// Has the store of a host's commands.
fn make_store(host: &dyn Host) -> Result<()> {
    // Any command makes it.
    let words = ["info".to_owned()];
    let done = host.run(&words)?;
    if done.is_good() {
        return Ok(());
    }
    Err(hosts::failed(format!("the store on {}", host.name()), &words, &done))
}

/// The site of a host; each host has one.
fn site_of<'s>(sites: &'s [Site], host: &dyn Host) -> &'s Site {
    sites.iter().find(|site| site.host.as_deref() == Some(host.name())).unwrap_or(&sites[0])
}

/// True if something of a cluster is kept here: it was started, and not ended.
pub fn is_known(setting: &Setting, cluster: &str) -> bool {
    let all = std::fs::read_dir(place::directory(&setting.store, cluster));
    all.into_iter().flatten().flatten().any(|entry| entry.file_name() != place::JOB)
}

/// Reaches the hosts of a cluster that was started: this machine if nothing else is known.
///
/// # Errors
/// If a host is not reached.
pub fn reach(setting: &Setting, cluster: &str) -> Result<Hosts> {
    reach_sites(setting, cluster, Path::new("/")).map(|(hosts, _)| hosts)
}

/// Reaches the hosts on which a container was started, and no others; `None` if they are not known,
/// or one is not reached.
fn reach_with(setting: &Setting, cluster: &str, node: &str) -> Result<Option<Hosts>> {
    let kept = Reach::kept(&setting.store, cluster)?;
    let nodes = kept.and_then(|reach| reach.with(cluster, node)?.again(setting, cluster).ok());
    Ok(nodes.map(|nodes| nodes.driven_by(setting.hosts())))
}

/// Reaches the hosts of a cluster as far as they answer. Also returns those that do not.
///
/// # Errors
/// If none does.
pub fn reach_some(setting: &Setting, cluster: &str) -> Result<(Hosts, Vec<Lost>)> {
    let hosts = setting.hosts();
    match Reach::kept(&setting.store, cluster)? {
        None => Ok((hosts, Vec::new())),
        Some(reach) if reach.is_over()? => Ok((hosts, Vec::new())),
        Some(reach) => {
            let (nodes, lost) = reach.as_far_as_possible(setting, cluster, (&[], reach::ANSWER))?;
            Ok((nodes.driven_by(hosts), lost))
        }
    }
}

/// As [`reach`], with what a plan has to know of the hosts.
fn reach_sites(setting: &Setting, cluster: &str, directory: &Path) -> Result<(Hosts, Vec<Site>)> {
    reach_by(setting, cluster, directory, |reach| Ok((reach.again(setting, cluster)?, Vec::new())))
}

/// Reaches the hosts that answer soon. Those that are `lost` are not tried.
///
/// # Errors
/// If none answers.
fn reach_without(
    setting: &Setting,
    cluster: &str,
    directory: &Path,
    lost: &[Lost],
) -> Result<(Hosts, Vec<Site>)> {
    reach_by(setting, cluster, directory, |reach| {
        reach.as_far_as_possible(setting, cluster, (lost, SOON))
    })
}

/// Reaches hosts as `by` does, which also returns those that are lost; with what a plan has to know
/// of all of them.
fn reach_by(
    setting: &Setting,
    cluster: &str,
    directory: &Path,
    by: impl FnOnce(&Reach) -> Result<(reach::Nodes, Vec<Lost>)>,
) -> Result<(Hosts, Vec<Site>)> {
    let hosts = setting.hosts();
    match Reach::kept(&setting.store, cluster)? {
        None => Ok((hosts, vec![setting.site(cluster, directory)])),
        Some(reach) if reach.is_over()? => {
            Err(Error::new(format!("the job that had cluster {cluster} has ended"))
                .with_hint("start it again: coracle cluster up -f FILE"))
        }
        Some(reach) => {
            let (nodes, lost) = by(&reach)?;
            let sites = reach.in_order(&nodes.sites(cluster, directory, setting));
            Ok((nodes.driven_by(hosts).without(lost), sites))
        }
    }
}

/// Ends a cluster: its containers, its network, and what was kept of it here. Returns how many
/// containers there were. All is well where nothing is left. A host that is not reached is an
/// error, but the others end their part; with `forget` it is left as it is.
///
/// # Errors
/// If something stays, a host is not reached, or another driver is at it.
pub fn end(setting: &Setting, cluster: &str, forget: bool) -> Result<usize> {
    if !setting.store.exists() {
        return Ok(0);
    }
    watch::end(setting, cluster)?;
    let place = Place::take(&setting.store, cluster)?;
    let here = setting.hosts();
    let (hosts, lost) = match Reach::kept(&setting.store, cluster)? {
        None => {
            place.share()?;
            (here, None)
        }
        Some(reach) if reach.is_over()? => return place.remove().map(|()| 0),
        Some(reach) => {
            let (nodes, lost) = reach.to_end(setting, cluster)?;
            let lost = if lost.is_some() && reach.ends_soon()? { None } else { lost };
            (nodes.driven_by(here), lost)
        }
    };
    let count = down(cluster, &hosts)?;
    drop(hosts);
    match lost.filter(|_| !forget) {
        None => place.remove().map(|()| count),
        Some(error) => {
            let hint = "when it is back, or with --force, which forgets it: cluster down again";
            Err(error.with_hint(hint))
        }
    }
}

impl Cluster {
    /// Ends the cluster over the same streams. Where one was lost all hosts are reached anew: it
    /// may be back.
    ///
    /// # Errors
    /// As [`end`].
    pub fn end(self, setting: &Setting) -> Result<()> {
        if !self.hosts.lost().is_empty() {
            drop(self.hosts);
            return end(setting, &self.plan.cluster, false).map(drop);
        }
        watch::end(setting, &self.plan.cluster)?;
        let place = Place::take(&setting.store, &self.plan.cluster)?;
        if self.hosts.is_local() {
            place.share()?;
        }
        down(&self.plan.cluster, &self.hosts)?;
        drop(self.hosts);
        place.remove()
    }

    /// True if containers stay when this process ends.
    pub fn can_stay(&self) -> bool {
        !self.ends_with_driver
    }

    /// Runs the application to its end, with a way from its node to the others, and copies its
    /// output. `None` if there is none.
    ///
    /// # Errors
    /// If its command cannot be started, or its host is lost.
    pub fn run(&self, session: &Session, watcher: &dyn Watcher) -> Result<Option<Ran>> {
        let signal = |within| watcher.signal(within);
        let ended = if let Some(ranks) = self.plan.ranks() {
            ranks::run(&self.plan, ranks, &self.hosts, (false, &signal), self.time)?
        } else {
            let Some((host, _, words)) = self.plan.run() else { return Ok(None) };
            let doors = Doors::open(&self.plan, &self.hosts)?;
            let task = self.hosts.of(host)?.begin(&doors.told(host, words), false)?;
            (relay::relay(task, false, &signal, self.time)?, None)
        };
        let stop = || watcher.is_stopped();
        let transfer = transfer::Transfer { hosts: &self.hosts, session, stop: &stop };
        Ok(Some(Ran::of(ended, self.time, || transfer.output(&self.plan))))
    }
}

impl Ran {
    /// An application that has ended, and what becomes of its output.
    fn of(
        (ended, note): (relay::Ended, Option<String>),
        time: Option<Duration>,
        output: impl FnOnce() -> transfer::Output,
    ) -> Self {
        let relay::Ended { status, is_late } = ended;
        let mut ran = Self { status, notes: note.into_iter().collect(), lost: None };
        if let (true, Some(time)) = (is_late, time) {
            let time = units::spell(time);
            ran.status = TIME_OUT;
            ran.notes.push(format!("the run was ended: its time of {time} was over"));
        }
        let output = output();
        if ran.status != 0 && !output.copied.is_empty() {
            let copied = output.copied.join(", ");
            ran.notes.push(format!("the run has failed; its output is in {copied}"));
        }
        ran.lost = output.failed;
        for fact in output.missing {
            if ran.status == 0 && ran.lost.is_none() {
                let hint = "look where it is: coracle cluster exec NODE ls";
                ran.lost = Some(Error::new(format!("output: {fact}")).with_hint(hint));
            } else {
                ran.notes.push(format!("output: {fact}"));
            }
        }
        ran
    }
}
