//! Reaches the hosts of a cluster: an agent on each, and a place for the store of each.
//!
//! What was found is written into the cluster's directory before anything is started, so that
//! other commands find the same stores; and where the plan has its containers, so that a command in
//! one reaches its host alone.

mod stores;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use remote::channel::Channel;
use remote::clock;
use remote::launcher::{Binary, Launcher, Way, control_directory};
use remote::routes::{self, Known, Route};
use remote::wire::messages::{Facts, Hello};
use serde::{Deserialize, Serialize};

pub(super) use stores::Wants;

use super::hosts::{Host, Lost, at_once};
use super::remote::{Remote, Stores};
use super::slow;
use super::{Hosts, Setting};
use crate::batch::{self, Allocation, System, allocation};
use crate::error::{Error, Result};
use crate::place::{self, Place};
use crate::plan::{Act, Plan, Site};
use crate::spec::{Kind, Spec};

/// An agent answers within so long; `ssh` and `srun` may wait for a busy host.
pub(super) const ANSWER: Duration = Duration::from_mins(1);
/// One that was lost is tried for so long, again and again. The end of the cluster waits for that.
const GLANCE: Duration = Duration::from_secs(10);
/// A job whose hosts are released has ended within so long.
const END: Duration = Duration::from_secs(5);

/// The kinds of a [`Reach`].
const SSH: &str = "ssh";
const SLURM: &str = "slurm";

/// How the hosts of a cluster are reached. It is kept in the cluster's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// `ssh` or `slurm`.
    kind: String,
    /// More words for the launcher.
    options: Vec<String>,
    /// The hosts, in the order of the nodes.
    hosts: Vec<Reached>,
    /// The job of Slurm that has them.
    #[serde(default)]
    job: Option<String>,
    /// They are the file's, and not those of an allocation, which ends what is on them.
    #[serde(skip)]
    is_listed: bool,
}

/// A host of a [`Reach`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Reached {
    /// What the launcher is given.
    name: String,
    /// The address by which the others reach it, if the file says so.
    address: Option<Ipv4Addr>,
    /// The store that is written; nothing before it was looked for.
    #[serde(default)]
    store: Option<PathBuf>,
    /// The store that images are read from as well.
    #[serde(default)]
    read_only: Option<PathBuf>,
    /// The store that is written was made for the cluster.
    #[serde(default)]
    own: bool,
    /// The containers that the plan has put there.
    #[serde(default)]
    containers: Vec<String>,
}

impl Reach {
    /// What a file says; `None` for this machine alone.
    ///
    /// # Errors
    /// If there are no hosts for it now, such as outside of an allocation.
    pub fn of(spec: &Spec, setting: &Setting) -> Result<Option<Self>> {
        match &spec.backends[0].kind {
            Kind::Local => Ok(None),
            Kind::Ssh { hosts, options } => Ok(Some(Self {
                kind: SSH.to_owned(),
                options: options.clone(),
                hosts: hosts
                    .iter()
                    .map(|host| Reached::new(host.host.clone(), host.address))
                    .collect(),
                job: None,
                is_listed: true,
            })),
            Kind::Slurm { .. } | Kind::Template { .. } => {
                let found = allocation(|name| setting.variable(name).map(str::to_owned))?;
                let found = found.filter(|found| Some(found.system) == batch::system(spec));
                let found = found.ok_or_else(|| {
                    Error::new("this is not in an allocation of the file's batch system")
                })?;
                Self::allocated(spec, found).map(Some)
            }
            other => {
                let fact = format!("a backend of kind {} cannot be reached", other.word());
                Err(Error::new(fact))
            }
        }
    }

    /// The hosts of an allocation, as many as there are nodes. Those of Slurm are reached by
    /// `srun`, others by `ssh`.
    fn allocated(spec: &Spec, allocation: Allocation) -> Result<Self> {
        let Allocation { system, hosts: mut names, id, .. } = allocation;
        let wanted = spec.nodes as usize;
        if names.len() < wanted {
            let fact = format!("{} hosts are too few for {wanted} nodes", names.len());
            return Err(Error::new(fact).with_hint("ask for more, or make nodes smaller"));
        }
        if spec.services.is_empty() {
            names.truncate(wanted.max(1));
        }
        let host = |name| Reached::new(name, None);
        let kind = if system == System::Slurm { SLURM } else { SSH };
        let hosts = names.into_iter().map(host).collect();
        let job = (system == System::Slurm).then_some(id);
        Ok(Self { kind: kind.to_owned(), options: Vec::new(), hosts, job, is_listed: false })
    }

    /// True if containers end with the agents that have started them, which are steps of a job.
    pub(super) fn ends_with_agents(&self) -> bool {
        self.kind == SLURM
    }

    /// True if the job that has the hosts has ended, and with it what was on them.
    ///
    /// # Errors
    /// If the batch system does not answer.
    pub(super) fn is_over(&self) -> Result<bool> {
        self.job.as_deref().map_or(Ok(false), batch::has_ended)
    }

    /// The same of a job that gives out no more steps, and may take a moment to end.
    ///
    /// # Errors
    /// As [`Reach::is_over`].
    pub(super) fn ends_soon(&self) -> Result<bool> {
        let until = Instant::now() + END;
        loop {
            let is_over = self.is_over()?;
            if is_over || self.job.is_none() || Instant::now() >= until {
                return Ok(is_over);
            }
            std::thread::sleep(END / 10);
        }
    }

    /// What is kept of a cluster; `None` for one of this machine alone, or that is not there.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn kept(store: &Path, cluster: &str) -> Result<Option<Self>> {
        let path = file(&place::directory(store, cluster));
        let wrong = |why: String| {
            Error::new(format!("cannot read {}: {why}", path.display()))
                .with_hint("end the containers on each host: coracle cluster down NAME")
        };
        match std::fs::read(&path) {
            Ok(text) => {
                let reach = serde_json::from_slice(&text);
                reach.map(Some).map_err(|error| wrong(error.to_string()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(wrong(error.to_string())),
        }
    }

    fn launcher(&self, setting: &Setting, host: &Reached, binary: &Arc<Binary>) -> Launcher {
        let name = host.name.clone();
        let way = if self.kind == SLURM {
            // Also from outside of it.
            let options = self.job.iter().map(|id| format!("--jobid={id}")).collect();
            Way::Srun { node: name, options }
        } else {
            let runtime = setting.variable("XDG_RUNTIME_DIR").map(PathBuf::from);
            let places: Vec<PathBuf> = runtime.into_iter().chain(["/tmp".into()]).collect();
            let control = control_directory(&places);
            Way::Ssh { host: name, options: self.options.clone(), control }
        };
        Launcher::new(way, Arc::clone(binary))
    }

    /// Starts an agent on each host, all at once. Also returns why those are not reached that are
    /// not, by their names.
    fn open(&self, setting: &Setting, hello: &Hello) -> Result<(Vec<Opened<'_>>, NotReached)> {
        self.open_some(setting, hello, self.hosts.iter(), ANSWER)
    }

    /// The same on some of the hosts, which answer within so long.
    fn open_some<'r>(
        &self,
        setting: &Setting,
        hello: &Hello,
        hosts: impl Iterator<Item = &'r Reached>,
        within: Duration,
    ) -> Result<(Vec<Opened<'r>>, NotReached)> {
        let binary = Binary::of(&setting.program).map_err(|error| {
            Error::new(format!("cannot read {}: {error}", setting.program.display()))
        })?;
        let binary = Arc::new(binary);
        let deadline = Instant::now() + within;
        let open = |host: &'r Reached| {
            let began = Instant::now();
            let launcher = self.launcher(setting, host, &binary);
            let channel = Channel::open(&host.name, &launcher, hello, deadline)?;
            let clock = channel.facts().time.zip(clock::now());
            let clock = clock.and_then(|(told, now)| clock::differs(&host.name, told, now));
            Ok(Opened { host, channel, launcher, clock, time: began.elapsed() })
        };
        let mut failed = Vec::new();
        let mut opened = Vec::new();
        let hosts: Vec<&Reached> = hosts.collect();
        for (host, one) in hosts.iter().zip(at_once(hosts.iter().copied(), open)) {
            match one {
                Ok(one) => opened.push(one),
                Err(error) => failed.push((host.name.clone(), error)),
            }
        }
        Ok((opened, failed))
    }

    /// The same, and no agent is left if a host is not reached.
    fn open_all(&self, setting: &Setting, hello: &Hello) -> Result<Vec<Opened<'_>>> {
        let (opened, failed) = self.open(setting, hello)?;
        let names = opened.iter().map(|one| (one.channel.name(), one.channel.facts()));
        match first(failed).or(differ(names).err()) {
            None => Ok(opened),
            Some(error) => {
                // On purpose: these agents have nothing to wait for.
                for one in opened {
                    one.channel.close();
                }
                Err(error)
            }
        }
    }

    /// Reaches the hosts to start a cluster on them, and looks for their stores. What is found is
    /// kept before this returns.
    ///
    /// # Errors
    /// If a host is not reached, or has no place for a store.
    pub(super) fn to_start(
        &self,
        (setting, place): (&Setting, &Place),
        wants: &dyn Fn() -> Wants,
        hold: Option<Duration>,
    ) -> Result<Nodes> {
        // Agents of earlier drivers are to clean nothing up, whether this one holds or not.
        let mut hello = Hello::new(place.cluster(), true, hold.unwrap_or_default());
        let kept = Self::kept(&setting.store, place.cluster())?;
        if let Some(kept) = kept.as_ref().filter(|_| self.is_listed) {
            self.is_like(kept, place.cluster())?;
        }
        let kept = kept.filter(|kept| kept.names().eq(self.names()));
        let known: Option<Vec<_>> =
            kept.and_then(|kept| kept.hosts.iter().map(Reached::stores).collect());
        // Only new stores are chosen by that.
        let known = known.ok_or_else(wants);
        hello.room = known.as_ref().err().map_or(0, |wants| wants.room);
        let opened = self.open_all(setting, &hello)?;
        let stores = match known {
            Ok(stores) => stores,
            Err(wants) => {
                // Hosts where there may be marks soon.
                self.keep(setting, place)?;
                stores::find(&opened, (setting, place), wants)?
            }
        };
        let mut found = self.clone();
        for (host, stores) in found.hosts.iter_mut().zip(&stores) {
            host.store = Some(stores.store.clone());
            host.read_only.clone_from(&stores.read_only);
            host.own = stores.is_own;
        }
        found.keep(setting, place)?;
        let nodes = Nodes::new(opened.into_iter().zip(stores));
        if hold.is_some() {
            nodes.clean_up_by(&["cluster", "down", place.cluster()])?;
        }
        nodes.mark_stores(place.cluster())?;
        Ok(nodes)
    }

    fn keep(&self, setting: &Setting, place: &Place) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|error| Error::new(error.to_string()))?;
        setting.here.put(&file(place.path()), 0o600, &text)
    }

    /// Keeps where a plan has its containers, so that who wants one reaches its host alone.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn keep_containers(setting: &Setting, place: &Place, plan: &Plan) -> Result<()> {
        let Some(mut kept) = Self::kept(&setting.store, place.cluster())? else { return Ok(()) };
        for step in plan.phases.iter().flat_map(|phase| &phase.steps) {
            let on = |host: &&mut Reached| Some(&host.name) == step.host.as_ref();
            if let (Act::Start { container, .. }, Some(host)) =
                (&step.act, kept.hosts.iter_mut().find(on))
            {
                host.containers.push(container.clone());
            }
        }
        kept.keep(setting, place)
    }

    /// The same cluster on the hosts that have containers that are meant by a name; `None` if none
    /// is known to have one.
    pub(super) fn with(&self, cluster: &str, node: &str) -> Option<Self> {
        let hosts = self.hosts.iter().filter(|host| host.has(cluster, node));
        let hosts: Vec<Reached> = hosts.cloned().collect();
        (!hosts.is_empty()).then(|| Self { hosts, ..self.clone() })
    }

    /// True if a driver has ended before it knew the stores: nothing was started.
    fn is_empty(&self) -> bool {
        self.hosts.iter().all(|host| host.store.is_none())
    }

    /// Reaches the hosts of a cluster that was started.
    ///
    /// # Errors
    /// If a host is not reached.
    pub(super) fn again(&self, setting: &Setting, cluster: &str) -> Result<Nodes> {
        let opened = self.open_all(setting, &Hello::new(cluster, false, Duration::ZERO))?;
        Self::nodes(opened)
    }

    /// Reaches the hosts of a cluster that is to end, of which agents of earlier drivers have
    /// nothing to clean up any more. Also returns why the first of those is not reached that are
    /// not.
    ///
    /// # Errors
    /// If this machine cannot start launchers.
    pub(super) fn to_end(
        &self,
        setting: &Setting,
        cluster: &str,
    ) -> Result<(Nodes, Option<Error>)> {
        let (opened, failed) = self.open(setting, &Hello::new(cluster, true, Duration::ZERO))?;
        if self.is_empty() {
            stores::remove_marks(&opened, cluster)?;
            for one in opened {
                one.channel.close();
            }
            return Ok((Nodes::new(std::iter::empty()), first(failed)));
        }
        let nodes = Self::nodes(opened)?;
        // A host that has ended the cluster by itself has a new store now.
        nodes.mark_stores(cluster)?;
        Ok((nodes, first(failed)))
    }

    /// Reaches the hosts of a cluster that answer within so long, and tells the others. Those that
    /// are `lost` are not tried.
    ///
    /// # Errors
    /// If there is none, with the reason of the first.
    pub(super) fn as_far_as_possible(
        &self,
        setting: &Setting,
        cluster: &str,
        (lost, within): (&[Lost], Duration),
    ) -> Result<(Nodes, Vec<Lost>)> {
        if self.is_empty() {
            return Ok((Nodes::new(std::iter::empty()), Vec::new()));
        }
        let is_tried = |host: &&Reached| !lost.iter().any(|lost| lost.host == host.name);
        let tried = self.hosts.iter().filter(is_tried);
        let hello = Hello::new(cluster, false, Duration::ZERO);
        let (opened, mut failed) = self.open_some(setting, &hello, tried, within)?;
        if opened.is_empty() {
            let why = || lost.first().map(|lost| Error::new(lost.why.clone()));
            let failed = (!failed.is_empty()).then(|| failed.swap_remove(0).1);
            return Err(failed.or_else(why).unwrap_or_else(|| Error::new("there are no hosts")));
        }
        let failed = failed.into_iter().map(|(host, error)| Lost { host, why: error.to_string() });
        let lost = lost.iter().cloned().chain(failed).collect();
        Ok((Self::nodes(opened)?, lost))
    }

    /// Those of these hosts that answer again.
    pub(super) fn that_answer(&self, setting: &Setting, cluster: &str, lost: &[Lost]) -> Vec<Lost> {
        let is_lost = |host: &&Reached| lost.iter().any(|lost| lost.host == host.name);
        let hello = Hello::new(cluster, false, Duration::ZERO);
        let tried = self.hosts.iter().filter(is_lost);
        let opened = self.open_some(setting, &hello, tried, GLANCE);
        let opened = opened.map(|(opened, _)| opened).unwrap_or_default();
        let answers = |lost: &&Lost| opened.iter().any(|one| one.host.name == lost.host);
        let found = lost.iter().filter(answers).cloned().collect();
        for one in opened {
            one.channel.close();
        }
        found
    }

    /// All hosts in their order, of which these are reached.
    pub(super) fn in_order(&self, reached: &[Site]) -> Vec<Site> {
        let site = |host: &Reached| {
            let own = reached.iter().find(|site| site.host.as_ref() == Some(&host.name)).cloned();
            own.unwrap_or_else(|| Site::lost(host.name.clone(), host.address))
        };
        self.hosts.iter().map(site).collect()
    }

    fn nodes(opened: Vec<Opened<'_>>) -> Result<Nodes> {
        let mut all = Vec::new();
        for one in opened {
            let stores = one.host.stores().ok_or_else(|| {
                Error::new(format!("the store on {} is not known", one.host.name))
                    .with_hint("run coracle cluster up -d again, and then down")
            })?;
            all.push((one, stores));
        }
        Ok(Nodes::new(all.into_iter()))
    }

    /// What runs on a host that the file does not name any more is not seen, and would be started
    /// a second time elsewhere, beside its volume.
    fn is_like(&self, kept: &Self, cluster: &str) -> Result<()> {
        if kept.names().eq(self.names()) {
            return Ok(());
        }
        let list = |reach: &Self| reach.names().collect::<Vec<_>>().join(", ");
        let fact = format!(
            "cluster {cluster} was started on {}, and the file names {}",
            list(kept),
            list(self)
        );
        let hint = format!(
            "end it first: coracle cluster down {cluster}; with --force if a host is gone for good"
        );
        Err(Error::new(fact).with_hint(hint))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.hosts.iter().map(|host| &*host.name)
    }
}

/// Hosts that are not reached, each with the reason.
type NotReached = Vec<(String, Error)>;

/// The first reason.
fn first(failed: NotReached) -> Option<Error> {
    failed.into_iter().next().map(|(_, error)| error)
}

/// An agent that answers.
struct Opened<'r> {
    host: &'r Reached,
    channel: Channel,
    launcher: Launcher,
    /// What is wrong with its clock.
    clock: Option<String>,
    /// How long that has taken.
    time: Duration,
}

impl Reached {
    fn new(name: String, address: Option<Ipv4Addr>) -> Self {
        Self { name, address, store: None, read_only: None, own: false, containers: Vec::new() }
    }

    /// Whether a container that is meant by a name was put there.
    fn has(&self, cluster: &str, node: &str) -> bool {
        self.containers.iter().any(|name| may_mean(cluster, node, name))
    }

    /// Its stores, if they were looked for.
    fn stores(&self) -> Option<Stores> {
        let (store, read_only) = (self.store.clone()?, self.read_only.clone());
        Some(Stores { store, read_only, is_own: self.own })
    }
}

/// Hosts that are reached.
pub(super) struct Nodes {
    all: Vec<(Remote, Option<Ipv4Addr>)>,
    /// What is wrong with their clocks, and which is slow.
    pub(super) notes: Vec<String>,
}

impl Nodes {
    fn new<'r>(all: impl Iterator<Item = (Opened<'r>, Stores)>) -> Self {
        let (mut notes, mut times) = (Vec::new(), Vec::new());
        let node = |(one, stores): (Opened<'r>, Stores)| {
            notes.extend(one.clock);
            times.push((one.host.name.as_str(), one.time));
            let address = one.host.address.or_else(|| address_of(one.channel.facts()));
            (Remote::new(one.channel, one.launcher, stores), address)
        };
        let mut all: Vec<(Remote, Option<Ipv4Addr>)> = all.map(node).collect();
        let known = all.iter().map(|(remote, address)| {
            let facts = remote.facts();
            let (interfaces, ports) = (&facts.interfaces[..], &facts.equipment.ports[..]);
            Known { address: *address, interfaces, ports }
        });
        let routes = routes::find(&known.collect::<Vec<_>>());
        for ((remote, _), route) in all.iter_mut().zip(routes) {
            remote.set_route(route);
        }
        notes.extend(slow::told("the start of its agent", &times));
        Self { all, notes }
    }

    /// What a plan has to know of them.
    pub(super) fn sites(&self, cluster: &str, directory: &Path, setting: &Setting) -> Vec<Site> {
        let routes: Vec<&Route> =
            self.all.iter().filter_map(|(remote, _)| remote.route()).collect();
        let variables = |remote: &Remote| {
            let all = remote.route().map(|own| routes::variables(own, &routes)).unwrap_or_default();
            // What the user has said is as right on the hosts.
            let said = |name: &str, found| setting.variable(name).map_or(found, str::to_owned);
            let own = all.into_iter().map(|(name, found)| (name.to_owned(), said(name, found)));
            if routes.len() > 1 { own.collect() } else { Vec::new() }
        };
        let site = |(remote, address): &(Remote, Option<Ipv4Addr>)| {
            let facts = remote.facts();
            Site {
                is_lost: false,
                host: Some(remote.name().to_owned()),
                program: facts.executable.display().to_string(),
                directory: directory.display().to_string(),
                kept: place::directory(&remote.stores().store, cluster).display().to_string(),
                address: address.or_else(|| remote.route().map(|route| route.address)),
                variables: variables(remote),
                sees_driver: remote.stores().read_only.as_ref() == Some(&setting.store),
                processors: u32::try_from(facts.cpus).unwrap_or(u32::MAX),
                memory: facts.memory,
                user: facts.uid.to_string(),
            }
        };
        self.all.iter().map(site).collect()
    }

    /// In words: the route from each host to the others, and what its adapters lack.
    pub(super) fn found(&self) -> Vec<String> {
        if self.all.len() < 2 {
            return Vec::new();
        }
        let of = |(remote, _): &(Remote, Option<Ipv4Addr>)| {
            let (name, equipment) = (remote.name(), &remote.facts().equipment);
            let route = match remote.route() {
                Some(route) => format!("{name}: {route}"),
                None => format!("{name}: no interface leads to all other hosts"),
            };
            let short = equipment.is_short_of_locked_memory().then(|| {
                let size = equipment.memlock.unwrap_or_default() >> 10;
                format!(
                    "warning: {name}: programs may lock {size} KiB of memory, and InfiniBand needs \
                     more; administrator: add '* - memlock unlimited' to /etc/security/limits.conf"
                )
            });
            [Some(route), short]
        };
        self.all.iter().flat_map(of).flatten().collect()
    }

    fn mark_stores(&self, cluster: &str) -> Result<()> {
        let mark = |(remote, _): &(Remote, Option<Ipv4Addr>)| stores::mark_store(remote, cluster);
        at_once(self.all.iter(), mark).into_iter().collect()
    }

    /// Tells each agent what it does if this driver is lost.
    ///
    /// # Errors
    /// If one is lost.
    pub(super) fn clean_up_by(&self, words: &[&str]) -> Result<()> {
        let told = at_once(self.all.iter(), |(remote, _)| remote.clean_up_by(words));
        told.into_iter().collect()
    }

    /// As hosts of a cluster that `here` drives.
    pub(super) fn driven_by(self, here: Hosts) -> Hosts {
        let boxed = |(remote, _)| Box::new(remote) as Box<dyn Host>;
        here.with(self.all.into_iter().map(boxed).collect())
    }
}

/// The address at which `ssh` has reached a host.
fn address_of(facts: &Facts) -> Option<Ipv4Addr> {
    // "CLIENT PORT SERVER PORT"
    let connection = facts.variables.get("SSH_CONNECTION")?;
    let address: Ipv4Addr = connection.split(' ').nth(2)?.parse().ok()?;
    (!address.is_loopback()).then_some(address)
}

fn file(directory: &Path) -> PathBuf {
    directory.join("hosts.json")
}

/// Two names must not lead to one host.
fn differ<'f>(all: impl Iterator<Item = (&'f str, &'f Facts)> + Clone) -> Result<()> {
    let mut rest = all;
    while let Some((name, facts)) = rest.next() {
        let same = |other: &Facts| {
            other.boot_id == facts.boot_id
                && other.host == facts.host
                && other.addresses == facts.addresses
        };
        if let Some((other, _)) = rest.clone().find(|(_, other)| same(other)) {
            let fact = format!("{name} and {other} are one host, {}", facts.host);
            return Err(Error::new(fact).with_hint("a host is one node: name each once"));
        }
    }
    Ok(())
}

/// Whether a name may mean a container, of which nothing but the name is known.
fn may_mean(cluster: &str, node: &str, container: &str) -> bool {
    let short = super::status::short(cluster, container);
    let role = short.rsplit_once('-').map_or(short, |(role, _)| role);
    [container, short, role].contains(&node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_may_be_meant_by_service_and_number() {
        let names = ["lab-db-1", "lab-db-10", "lab-web-db-1", "lab-node1"];
        let meant = |node: &str| -> Vec<&str> {
            names.into_iter().filter(|name| may_mean("lab", node, name)).collect()
        };
        assert_eq!(meant("db"), ["lab-db-1", "lab-db-10"]);
        assert_eq!(meant("db-1"), ["lab-db-1"]);
        assert_eq!(meant("web-db"), ["lab-web-db-1"]);
        assert_eq!(meant("lab-node1"), ["lab-node1"]);
        assert_eq!(meant("node1"), ["lab-node1"]);
        assert_eq!(meant("node"), [""; 0]);
    }
}
