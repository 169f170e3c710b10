//! What a cluster file comes to: phases of steps, as data. `explain` prints it, the
//! [`driver`](crate::driver) carries it out.
//!
//! Phases follow each other; the steps of one are carried out at once. A step is a command of
//! Coracle on a node wherever that is possible, so that what is printed can be typed.

pub(crate) mod balance;
mod explain;
mod files;
mod found;
pub(crate) mod gridengine;
pub(crate) mod images;
mod parts;
mod ranks;
pub(crate) mod room;
pub(crate) mod sbatch;
mod sites;
pub(crate) mod slurm;
#[cfg(test)]
mod tests;
mod words;

use std::net::Ipv4Addr;
use std::time::Duration;

use remote::shell::{join, quote};

use crate::parts::Part;
use crate::spec::{BatchKind, Compute, Image, Kind, Launch, Network, Ready, Service, Spec, units};

pub use balance::{Balanced, Balancer};
pub use sites::Site;
use sites::{fitting, site};
pub(crate) use sites::{misses_hosts, numbers, service_site};
pub use words::Words;

/// The label of every container and network of a cluster, with the cluster's name.
pub const LABEL: &str = "coracle.cluster";
/// The label of a service's containers, with the service's name.
pub const SERVICE_LABEL: &str = "coracle.service";
/// The label of a node container, with its name.
pub const NODE_LABEL: &str = "coracle.node";
/// The host file of MPI, in node containers.
pub const HOST_FILE: &str = "/etc/coracle/hosts";
/// This program, in node containers and in those that look whether a service is ready.
pub const PROGRAM: &str = "/run/coracle/coracle";
/// The same in node containers under the name by which it starts commands on other nodes
/// ([`crate::door`]).
pub const RSH: &str = "/run/coracle/rsh";
/// The directory of doors' sockets, in node containers.
pub const DOORS: &str = "/run/coracle/door";

/// The name of the phase that has the images.
pub(crate) const IMAGES: &str = "images";

/// Nodes reach each other within so long.
const MEETING: Duration = Duration::from_mins(1);

/// What a cluster file comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The cluster's name.
    pub cluster: String,
    /// Where nodes come from, in words.
    pub backend: String,
    /// The phases, in their order.
    pub phases: Vec<Phase>,
    /// The nodes, in their order.
    pub nodes: Vec<Node>,
    /// Options of `exec` with the variables that launchers of MPI start further ones by.
    pub variables: Vec<String>,
    /// In words: further variables of nodes, and where their values come from.
    pub found: Option<String>,
    /// How the first node of each kind is started when the batch system asks for it.
    pub asked: Vec<Step>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its container.
    pub container: String,
    /// The host that it is on, as in [`Step`].
    pub host: Option<String>,
    /// The directory on that host which is [`DOORS`] in the container.
    pub doors: String,
}

impl Node {
    /// The cluster's directory on its host.
    pub(crate) fn kept(&self) -> &str {
        self.doors.strip_suffix("/door").unwrap_or(&self.doors)
    }
}

/// Steps that are carried out at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Phase {
    /// Its name: `images`, `network`, `start db`, `ready`.
    pub name: String,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// A part of a phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The host that it is carried out on; `None` for the one that drives.
    pub host: Option<String>,
    /// What is done.
    pub act: Act,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// In words: what is not a command of Coracle.
    Told(String),
    /// In words: how a host is reached, which is done before all else.
    Reach(String),
    /// Has an image on the machine that drives, which pulls one that is not there.
    Image(String),
    /// Has an image on other hosts, from the machine that drives.
    Spread {
        /// Its name.
        image: String,
        /// The hosts, in the order in which it is passed on.
        hosts: Vec<String>,
        /// A store that they see does not serve for it.
        pack: bool,
        /// The hosts are nodes of Slurm.
        slurm: bool,
    },
    /// Has the cluster's network.
    Network(Vec<String>),
    /// Has the networks of all hosts joined to one.
    Join,
    /// Starts a container that is not there yet.
    Start {
        /// Its name.
        container: String,
        /// The command.
        words: Words,
    },
    /// Waits until a container is ready.
    Ready {
        /// The container.
        container: String,
        /// How that is found out.
        by: ReadyBy,
        /// It has failed after so long.
        within: Duration,
    },
    /// Tells the balancers of a service which containers it has.
    Balance(Box<Balanced>),
    /// Waits, by this command, until other hosts know containers.
    Known(Vec<String>),
    /// Runs the application to its end as ranks that the host's launcher starts.
    Ranks(Ranks),
    /// Runs the application to its end.
    Run {
        /// The container.
        container: String,
        /// The command.
        words: Words,
    },
    /// Copies something of the machine that drives to a node.
    Input(Copy),
    /// Copies something of a node to the machine that drives.
    Output(Copy),
}

/// A copy between the machine that drives and a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// The node.
    pub node: String,
    /// Its container.
    pub container: String,
    /// The path that is copied, absolute.
    pub from: String,
    /// The path that the copy has, absolute.
    pub to: String,
}

/// An application whose processes are started by `srun` or `mpiexec`, each as a run of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// The hosts, in the order of the nodes.
    pub hosts: Vec<Slots>,
    /// Options of `run`.
    pub options: Words,
    /// The image.
    pub image: String,
    /// The command in the container.
    pub command: Vec<String>,
    /// The hosts are those of an allocation of Slurm.
    pub by_srun: bool,
}

/// A host of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// The host, as in [`Step`].
    pub host: Option<String>,
    /// The address by which other hosts reach it, if it is known.
    pub address: Option<Ipv4Addr>,
    /// How many ranks it has.
    pub slots: u32,
}

/// How it is found out that a container is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadyBy {
    /// Its program runs.
    Running,
    /// This command ends with 0: one of Coracle's, which tries for as long as is needed.
    Trying(Vec<String>),
    /// This command ends with 0; it is repeated.
    Repeating(Vec<String>),
}

impl Plan {
    /// The application, if the host's launcher starts it.
    pub fn ranks(&self) -> Option<&Ranks> {
        self.phases.iter().flat_map(|phase| &phase.steps).find_map(|step| match &step.act {
            Act::Ranks(ranks) => Some(ranks),
            _ => None,
        })
    }

    /// The variables that were found on hosts for their nodes, a line for hosts with the same.
    pub fn found_variables(&self) -> Vec<String> {
        let mut all: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
        for step in self.phases.iter().flat_map(|phase| &phase.steps) {
            let (Act::Start { words, .. }, Some(host)) = (&step.act, &step.host) else { continue };
            let found = found::variables(words);
            match all.iter_mut().find(|(_, other)| *other == found) {
                Some((hosts, _)) if !hosts.contains(&&**host) => hosts.push(host),
                Some(_) => {}
                None => all.push((vec![host], found)),
            }
        }
        let lines = all.iter().filter(|(_, found)| !found.is_empty());
        lines.map(|(hosts, found)| format!("{}: {}", hosts.join(", "), found.join(" "))).collect()
    }

    /// The host, the container and the command of the application; `None` if there is none.
    pub fn run(&self) -> Option<(Option<&str>, &str, &Words)> {
        let mut steps = self.phases.iter().flat_map(|phase| &phase.steps);
        steps.find_map(|step| match &step.act {
            Act::Run { container, words } => Some((step.host.as_deref(), &container[..], words)),
            _ => None,
        })
    }
}

/// Sites for a plan that is only shown: of what is known when a host is reached, there are names.
pub fn unknown_sites(spec: &Spec, directory: &str) -> Vec<Site> {
    let site = |host: String, address| Site {
        host: Some(host),
        program: "$CORACLE".to_owned(),
        directory: directory.to_owned(),
        kept: "$CLUSTER".to_owned(),
        address,
        processors: 1,
        user: "$UID".to_owned(),
        ..Site::default()
    };
    let sites = match &spec.backends[0].kind {
        Kind::Ssh { hosts, .. } => {
            hosts.iter().map(|host| site(host.host.clone(), host.address)).collect()
        }
        _ => (1..=spec.nodes.max(1)).map(|number| site(format!("host {number}"), None)).collect(),
    };
    found::named(sites)
}

/// Plans the first backend of a file for these hosts, of which there is at least one.
pub fn plan(spec: &Spec, sites: &[Site]) -> Plan {
    let backend = &spec.backends[0];
    let mut phases: Vec<Phase> = Vec::new();
    let mut phase =
        |name: &str, steps: Vec<Step>| phases.push(Phase { name: name.to_owned(), steps });
    phase("hosts", hosts(spec));
    let is_here = sites.iter().any(|site| site.host.is_none());
    phase(IMAGES, if is_here { images::all(spec) } else { images::spread(spec, sites) });
    phase("network", network(spec, sites));
    phase("join", join_hosts(spec));
    phase("start nodes", nodes(spec, sites));
    phase("meet", meet(spec, sites));
    phase("input", files::input(spec, sites));
    for level in levels(spec) {
        let numbers = |service: &Service| 1..=service.replicas.first();
        let all: Vec<(&Service, u32)> = level
            .iter()
            .flat_map(|service| numbers(service).map(move |number| (*service, number)))
            .collect();
        phases.extend(replicas(spec, sites, &all));
        phases.extend(level.iter().flat_map(|one| balance::phases(spec, sites, one)));
    }
    let mut phase =
        |name: &str, steps: Vec<Step>| phases.push(Phase { name: name.to_owned(), steps });
    phase("run", run(spec, sites));
    phase("output", files::output(spec, sites));
    phase("move", moving(spec));
    phases.retain(|phase| !phase.steps.is_empty());
    let nodes = (1..=spec.nodes).map(|number| {
        let (name, site) = (format!("node{number}"), site(sites, number));
        let (container, host) = (node_container(spec, &name), site.host.clone());
        Node { name, container, host, doors: site.doors() }
    });
    let (cluster, backend) = (spec.name.clone(), describe(&backend.kind, spec));
    let variables = launch_variables(spec);
    let found = found::told(spec, sites);
    let is_compute = |service: &&Service| service.part == Some(Part::Compute);
    let compute = spec.services.iter().filter(is_compute);
    let asked = compute.map(|service| start(spec, sites, service, 1)).collect();
    Plan { cluster, backend, phases, nodes: nodes.collect(), variables, found, asked }
}

/// The phases that start containers of services, which do not wait for each other.
pub(crate) fn replicas(spec: &Spec, sites: &[Site], all: &[(&Service, u32)]) -> Vec<Phase> {
    let mut names: Vec<&str> = all.iter().map(|(service, _)| &*service.name).collect();
    names.dedup();
    let names = names.join(", ");
    let image = all.first().and_then(|(service, _)| service.image.as_ref());
    let containers: Vec<String> =
        all.iter().map(|(service, number)| service_container(spec, service, *number)).collect();
    let each = |step: fn(&Spec, &[Site], &Service, u32) -> Step| {
        all.iter().map(|(service, number)| step(spec, sites, service, *number)).collect()
    };
    vec![
        Phase { name: format!("start {names}"), steps: each(start) },
        Phase { name: format!("ready {names}"), steps: each(ready) },
        Phase {
            name: format!("known {names}"),
            steps: known_to_all(spec, sites, image, &containers),
        },
    ]
}

/// The name of a node's container.
pub fn node_container(spec: &Spec, node: &str) -> String {
    format!("{}-{node}", spec.name)
}

/// The name of a container of a service; they are counted from 1.
pub fn service_container(spec: &Spec, service: &Service, number: u32) -> String {
    format!("{}-{}-{number}", spec.name, service.name)
}

/// The lines of the host file of MPI: every node, with its slots.
pub fn host_file(spec: &Spec, sites: &[Site]) -> String {
    let line = |number: u32| format!("node{number} slots={}\n", slots(spec, sites, number));
    (1..=spec.nodes).map(line).collect()
}

/// How many processes a node takes: what the file says, else its share of its host's processors.
fn slots(spec: &Spec, sites: &[Site], number: u32) -> u32 {
    let site = site(sites, number);
    let sharing = (1..=spec.nodes).filter(|&other| self::site(sites, other) == site).count();
    let share = site.processors / u32::try_from(sharing).unwrap_or(1).max(1);
    spec.run.as_ref().and_then(|run| run.slots).unwrap_or(share.max(1))
}

fn told(text: String) -> Step {
    Step { host: None, act: Act::Told(text) }
}

fn reach(text: String) -> Step {
    Step { host: None, act: Act::Reach(text) }
}

fn describe(kind: &Kind, spec: &Spec) -> String {
    match kind {
        Kind::Local => "local: this machine".to_owned(),
        Kind::Ssh { hosts, .. } => {
            let names: Vec<&str> = hosts.iter().map(|host| &*host.host).collect();
            format!("ssh: {}", names.join(", "))
        }
        Kind::Slurm { .. } => {
            format!("slurm: this allocation, or sbatch for {} nodes", spec.nodes.max(1))
        }
        other => format!("{}: {} nodes", other.word(), spec.nodes.max(1)),
    }
}

/// How hosts are reached or made.
fn hosts(spec: &Spec) -> Vec<Step> {
    let backend = &spec.backends[0];
    let count = spec.nodes.max(1);
    let options = |options: &[String]| {
        let words: Vec<String> =
            options.iter().map(|option| format!(" {}", quote(option))).collect();
        words.concat()
    };
    let time = backend.time.map(units::spell);
    let timed =
        |before: &str| time.as_ref().map(|time| format!("{before}{time}")).unwrap_or_default();
    match &backend.kind {
        Kind::Local => Vec::new(),
        Kind::Ssh { hosts, options: words } => hosts
            .iter()
            .map(|host| reach(format!("ssh{} {} coracle cluster agent", options(words), host.host)))
            .collect(),
        Kind::Slurm { .. } => {
            let submit = join(&sbatch::words(spec, &[]));
            vec![
                reach(format!("outside of an allocation: {submit} ...")),
                reach(format!(
                    "srun --overlap --nodes={count} --ntasks-per-node=1 coracle cluster agent"
                )),
            ]
        }
        Kind::Template { system, queue, options: words, template } => {
            let queue = queue.as_ref().map(|name| format!(", queue {name}")).unwrap_or_default();
            let template = template.as_deref().unwrap_or("the built-in template");
            let words = options(words);
            vec![told(format!(
                "{system}: {count} nodes by {template}{queue}{}{words}",
                timed(" for ")
            ))]
        }
        Kind::Qemu { memory, cpus, network, storage } => {
            let memory = memory
                .map_or("the usual memory".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
            let cpus = cpus.unwrap_or(1);
            vec![told(format!(
                "{count} virtual machines of {memory} and {cpus} processors, linked as {}, files by {}",
                format!("{network:?}").to_lowercase(),
                format!("{storage:?}").to_lowercase()
            ))]
        }
        Kind::Cloud { provider, machine, region, storage } => {
            let part = |before: &str, text: &Option<String>| {
                text.as_ref().map(|text| format!("{before}{text}")).unwrap_or_default()
            };
            vec![told(format!(
                "coracle-{provider}: {count} machines{}{}{}",
                part(" of type ", machine),
                part(" in ", region),
                part(" with storage ", storage)
            ))]
        }
    }
}

fn network(spec: &Spec, sites: &[Site]) -> Vec<Step> {
    if spec.network == Some(Network::Host) {
        return Vec::new();
    }
    let step = |site: &Site| {
        let mut words = vec!["network".into(), "create".into()];
        words.extend(pair("--label", &format!("{LABEL}={}", spec.name)));
        words.extend(spec.subnet.iter().flat_map(|subnet| pair("--subnet", subnet)));
        let moving = spec.services.iter().filter(|service| spec.has_moving_address(service));
        words.extend(moving.flat_map(|service| pair("--aux-address", &service.name)));
        if site.host.is_some() {
            words.extend(pair("--scope", "cluster"));
            words.extend(pair("--port", PORTS));
            words.extend(site.address.iter().flat_map(|at| pair("--address", &at.to_string())));
        }
        words.push(spec.name.clone());
        Step { host: site.host.clone(), act: Act::Network(words) }
    };
    sites.iter().map(step).collect()
}

/// The ports of which the network's agent gets one on each host, below those that the kernel gives
/// away (`ip_local_port_range`). It follows from no name: others use the same names, and nobody can
/// keep a port from who needs it.
const PORTS: &str = "20000-31999";

fn join_hosts(spec: &Spec) -> Vec<Step> {
    let is_alone = spec.backends[0].kind == Kind::Local || spec.network == Some(Network::Host);
    if is_alone { Vec::new() } else { vec![Step { host: None, act: Act::Join }] }
}

fn pair(flag: &str, value: &str) -> [String; 2] {
    [flag.to_owned(), value.to_owned()]
}

/// The beginning of a command that starts a container, up to its volumes.
fn beginning(
    spec: &Spec,
    container: &str,
    (host_name, aliases): (&str, &[&str]),
    label: (&str, &str),
) -> Words {
    let mut words = Words::default();
    words.extend(["run", "-d", "--pull", "never"]);
    words.extend(pair("--name", container));
    words.extend(pair("--hostname", host_name));
    if spec.network == Some(Network::Host) {
        words.extend(pair("--network", "host"));
    } else {
        words.extend(pair("--network", &spec.name));
        words.extend(aliases.iter().flat_map(|alias| pair("--network-alias", alias)));
    }
    words.extend(mode(spec));
    words.extend(pair("--label", &format!("{LABEL}={}", spec.name)));
    words.extend(pair("--label", &format!("{}={}", label.0, label.1)));
    words
}

/// The mode of all containers where the network has one kind of members.
fn mode(spec: &Spec) -> Option<String> {
    match spec.network {
        Some(Network::Names) => Some("--execmode=I1".to_owned()),
        Some(Network::Overlay) => Some("--execmode=N1".to_owned()),
        _ => None,
    }
}

/// A volume, whose path on the host starts from the file.
fn volume(site: &Site, text: &str) -> [String; 2] {
    let relative = text == "." || text.starts_with("./") || text.starts_with("../");
    if relative { pair("-v", &format!("{}/{text}", site.directory)) } else { pair("-v", text) }
}

fn image_name(spec: &Spec, own: Option<&Image>) -> String {
    match own.or(spec.image.as_ref()) {
        Some(Image::Named(name)) => name.clone(),
        Some(Image::Built(directory)) => format!("{}-{}", spec.name, directory.replace('/', "-")),
        None => String::new(),
    }
}

fn nodes(spec: &Spec, sites: &[Site]) -> Vec<Step> {
    (1..=spec.nodes).map(|number| node(spec, site(sites, number), number)).collect()
}

/// Every node knows and reaches every other one before anything runs on them.
fn meet(spec: &Spec, sites: &[Site]) -> Vec<Step> {
    if spec.nodes < 2 || spec.network == Some(Network::Host) {
        return Vec::new();
    }
    let names: Vec<String> = (1..=spec.nodes).map(|number| format!("node{number}")).collect();
    let step = |number: u32| {
        let container = node_container(spec, &format!("node{number}"));
        let words = ["exec", &container, PROGRAM, "cluster", "meet", "--within"];
        let mut words: Vec<String> = words.map(str::to_owned).to_vec();
        words.push(units::spell(MEETING));
        words.extend(names.iter().cloned());
        let by = ReadyBy::Trying(words);
        let act = Act::Ready { container, by, within: MEETING };
        Step { host: site(sites, number).host.clone(), act }
    };
    (1..=spec.nodes).map(step).collect()
}

/// A node's container has a program of ours that waits.
fn node(spec: &Spec, site: &Site, number: u32) -> Step {
    let name = format!("node{number}");
    let container = node_container(spec, &name);
    let mut words = beginning(spec, &container, (&name, &[&name]), (NODE_LABEL, &name));
    words.variables(&spec.env);
    words.extend(found::words(spec, site));
    words.extend(spec.volumes.iter().flat_map(|text| volume(site, text)));
    words.extend(pair("-v", &format!("{}:{PROGRAM}:ro", site.program)));
    words.extend(pair("-v", &format!("{}:{RSH}:ro", site.program)));
    words.extend(pair("-v", &format!("{}:{DOORS}:ro", site.doors())));
    words.extend(pair("-v", &format!("{}:{HOST_FILE}:ro", site.host_file())));
    words.push("--init");
    words.extend(pair("--entrypoint", PROGRAM));
    words.push(image_name(spec, None));
    words.extend(["cluster", "idle"]);
    Step { host: site.host.clone(), act: Act::Start { container, words } }
}

fn start(spec: &Spec, sites: &[Site], service: &Service, number: u32) -> Step {
    let site = service_site(spec, sites, service, number);
    let container = service_container(spec, service, number);
    let own = format!("{}-{number}", service.name);
    let label = (SERVICE_LABEL, &*service.name);
    // The service's name leads to its balancers, if it has some.
    let aliases = [&own, &*service.name];
    let aliases = if service.balance.is_some() { &aliases[..1] } else { &aliases[..] };
    let part = service.part.zip(spec.batch.as_ref()).map(|(part, batch)| (part, batch.kind));
    // Grid Engine wants a container to call itself what the others call it first.
    let is_gridengine = matches!(part, Some((_, BatchKind::GridEngine)));
    let host_name = if is_gridengine { &container } else { &own };
    let mut words = beginning(spec, &container, (host_name, aliases), label);
    words.extend(pair("--restart", service.restart.word()));
    words.variables(&service.env);
    words.extend(service.volumes.iter().flat_map(|text| volume(site, text)));
    if service.balance.is_none() {
        words.extend(service.publish.iter().flat_map(|text| pair("-p", text)));
    }
    words.extend(service.user.iter().flat_map(|user| pair("--user", user)));
    words.extend(service.directory.iter().flat_map(|path| pair("--workdir", path)));
    if let Some((part, kind)) = part {
        let own = match kind {
            BatchKind::Slurm => slurm::own(site, part),
            BatchKind::GridEngine => gridengine::own(),
        };
        words.extend(parts::options(site, kind, part, &own));
    }
    words.push(image_name(spec, service.image.as_ref()));
    words.extend(service.command.iter().cloned());
    Step { host: site.host.clone(), act: Act::Start { container, words } }
}

fn ready(spec: &Spec, sites: &[Site], service: &Service, number: u32) -> Step {
    let site = service_site(spec, sites, service, number);
    let container = service_container(spec, service, number);
    let within = service.ready_within;
    let probe = |what: &[String]| {
        let words = ["cluster", "probe", "--within"].map(str::to_owned).into_iter();
        let words = words.chain([units::spell(within)]).chain(what.iter().cloned());
        ReadyBy::Trying(in_passing(spec, site, service.image.as_ref(), words))
    };
    let host = match spec.network {
        Some(Network::Host) => "localhost".to_owned(),
        _ => container.clone(),
    };
    let by = match &service.ready {
        Ready::Started => ReadyBy::Running,
        Ready::Tcp(port) => probe(&["tcp".into(), format!("{host}:{port}")]),
        Ready::Http { port, path } => probe(&["http".into(), format!("{host}:{port}{path}")]),
        Ready::Command(command) => {
            let words = ["exec".to_owned(), container.clone()];
            ReadyBy::Repeating(words.into_iter().chain(command.iter().cloned()).collect())
        }
    };
    Step { host: site.host.clone(), act: Act::Ready { container, by, within } }
}

/// Every other host knows containers before anything that comes after them starts.
fn known_to_all(
    spec: &Spec,
    sites: &[Site],
    image: Option<&Image>,
    containers: &[String],
) -> Vec<Step> {
    if sites.len() < 2 || spec.network == Some(Network::Host) || containers.is_empty() {
        return Vec::new();
    }
    let step = |site: &Site| {
        let words = ["cluster", "meet", "--known", "--within"].map(str::to_owned).into_iter();
        let words = words.chain([units::spell(MEETING)]).chain(containers.iter().cloned());
        let act = Act::Known(in_passing(spec, site, image, words));
        Step { host: site.host.clone(), act }
    };
    sites.iter().filter(|site| !site.is_lost).map(step).collect()
}

/// A command of this program in a container that ends with it.
fn in_passing(
    spec: &Spec,
    site: &Site,
    image: Option<&Image>,
    command: impl Iterator<Item = String>,
) -> Vec<String> {
    let mut words: Vec<String> = ["run", "--rm", "--pull", "never"].map(str::to_owned).to_vec();
    match spec.network {
        Some(Network::Host) => words.extend(pair("--network", "host")),
        _ => words.extend(pair("--network", &spec.name)),
    }
    words.extend(mode(spec));
    words.extend(pair("--label", &format!("{LABEL}={}", spec.name)));
    words.extend(pair("-v", &format!("{}:{PROGRAM}:ro", site.program)));
    words.extend(pair("--entrypoint", PROGRAM));
    words.push(image_name(spec, image));
    words.extend(command);
    words
}

/// What launchers of MPI in node containers are told: the program by which they start others, and
/// that root may do so. Open MPI to 4, the same from 5 on, and Hydra, which is MPICH's.
const LAUNCHING: [(&str, &str); 8] = [
    ("OMPI_MCA_plm_rsh_agent", RSH),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("PRTE_MCA_plm_ssh_agent", RSH),
    ("PRTE_ALLOW_RUN_AS_ROOT", "1"),
    ("PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("HYDRA_LAUNCHER", "ssh"),
    ("HYDRA_LAUNCHER_EXEC", RSH),
];

fn launch_variables(spec: &Spec) -> Vec<String> {
    let is_set = |name: &str| spec.env.iter().any(|(own, _)| own == name);
    let own = LAUNCHING.into_iter().filter(|(name, _)| !is_set(name));
    own.flat_map(|(name, value)| pair("-e", &format!("{name}={value}"))).collect()
}

fn run(spec: &Spec, sites: &[Site]) -> Vec<Step> {
    let Some(run) = &spec.run else { return Vec::new() };
    if run.launch == Launch::Ranks {
        return vec![ranks::step(spec, run, sites)];
    }
    let container = node_container(spec, &run.on);
    let mut words = Words::from(vec!["exec".to_owned()]);
    words.extend(launch_variables(spec));
    words.variables(&run.env);
    words.extend(run.directory.iter().flat_map(|path| pair("--workdir", path)));
    words.push(container.clone());
    words.extend(run.command.iter().cloned());
    let number = run.on.strip_prefix("node").and_then(|rest| rest.parse().ok()).unwrap_or(1);
    vec![Step { host: site(sites, number).host.clone(), act: Act::Run { container, words } }]
}

fn moving(spec: &Spec) -> Vec<Step> {
    let Some(checkpoint) = &spec.checkpoint else { return Vec::new() };
    let mut steps = Vec::new();
    if let Some(end) = &checkpoint.before_end {
        let signal = end.signal.as_deref().map_or("", |name| name);
        steps.push(told(format!("{} before the end: signal {signal}", units::spell(end.margin))));
    }
    if let Some(files) = &checkpoint.files {
        steps.push(told(format!("keep {} of {}/{}", files.keep, files.dir, files.pattern)));
    }
    for backend in spec.backends.iter().skip(1) {
        steps.push(told(format!("go on at {}", describe(&backend.kind, spec))));
    }
    steps
}

/// Processors of each of these nodes: where the file says nothing, all of the smallest host's.
pub(crate) fn processors(kind: &Compute, sites: &[Site]) -> u32 {
    let least = || sites.iter().map(|site| site.processors).min().unwrap_or(0);
    kind.cpus.unwrap_or_else(least).max(1)
}

/// Services in groups: those of one wait for those of groups before.
fn levels(spec: &Spec) -> Vec<Vec<&Service>> {
    let mut levels: Vec<Vec<&Service>> = Vec::new();
    let mut left: Vec<&Service> = spec.services.iter().collect();
    while !left.is_empty() {
        let done = |name: &String| levels.iter().flatten().any(|service| service.name == *name);
        let (now, later): (Vec<&Service>, Vec<&Service>) =
            left.into_iter().partition(|service| service.after.iter().all(done));
        if now.is_empty() {
            // The file was checked: there is no circle.
            break;
        }
        levels.push(now);
        left = later;
    }
    levels
}
