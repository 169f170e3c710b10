//! The nodes of a batch system: containers are started and ended as its controller wants.

mod gridengine;
mod pauses;
mod slurm;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use self::pauses::Pauses;
use super::at::{last_words, words};
use super::follow::Up;
use super::hosts::{Host, failed, lock};
use super::scale::Changing;
use super::{Container, status};
use crate::error::Result;
use crate::parts::Part;
use crate::plan;
use crate::spec::{BatchKind, Compute, Service, units};

/// The controller answers within so long: others wait to change the cluster meanwhile.
const ANSWERS: Duration = Duration::from_secs(3);
/// Lines of a container that has ended which are told.
const LAST_WORDS: &str = "3";

/// A batch system that is up.
struct Nodes<'a> {
    up: &'a Up<'a>,
    /// The controller's container, and its host.
    control: String,
    host: &'a dyn Host,
    /// What nodes are that has to last, and since when they are that.
    since: Mutex<BTreeMap<String, (Lasting, Instant)>>,
    pauses: Mutex<Pauses>,
}

/// What a node is for some time before something is done.
#[derive(Clone, Copy, PartialEq)]
enum Lasting {
    /// It has no job.
    Idle,
    /// Its container runs, and the controller does not know it.
    Unregistered,
    /// Its daemon is to end.
    Leaving,
    /// The controller has given it up.
    Down,
}

/// Starts and ends nodes of a file's batch system until the watcher asks for the end.
///
/// # Errors
/// If the controller's host does not exist.
pub(super) fn serve(up: &Up<'_>) -> Result<()> {
    let control = up.spec.services.iter().find(|service| service.part == Some(Part::Control));
    let (Some(batch), Some(control)) = (&up.spec.batch, control) else { return Ok(()) };
    let site = plan::service_site(up.spec, up.sites, control, 1);
    let nodes = Nodes {
        up,
        control: plan::service_container(up.spec, control, 1),
        host: up.hosts.of(site.host.as_deref())?,
        since: Mutex::default(),
        pauses: Mutex::default(),
    };
    match batch.kind {
        BatchKind::Slurm => slurm::serve(&nodes, &site.doors()),
        BatchKind::GridEngine => gridengine::serve(&nodes),
    }
    Ok(())
}

impl<'a> Nodes<'a> {
    fn say(&self, text: &str) {
        self.up.watcher.note(text);
    }

    fn is_over(&self) -> bool {
        self.up.watcher.is_stopped()
    }

    /// Whether a node is on a host that is lost.
    fn is_on_lost(&self, service: &Service, number: u32) -> bool {
        plan::service_site(self.up.spec, self.up.sites, service, number).is_lost
    }

    /// The services of nodes.
    fn services(&self) -> impl Iterator<Item = &'a Service> {
        self.up.spec.services.iter().filter(|service| service.part == Some(Part::Compute))
    }

    /// The nodes of a service, as the file has them.
    fn kind(&self, service: &Service) -> Option<&'a Compute> {
        let batch = self.up.spec.batch.as_ref()?;
        batch.compute.iter().find(|kind| kind.name == service.name)
    }

    /// The service of a node, and its number there.
    fn member(&self, name: &str) -> Option<(&'a Service, u32)> {
        let (service, number) = name.rsplit_once('-')?;
        Some((self.services().find(|own| own.name == service)?, number.parse().ok()?))
    }

    /// The numbers of nodes, by service. The controller may still know some that the file does not
    /// have any more.
    fn by_service(&self, names: &[&str]) -> Vec<(&'a Service, Vec<u32>)> {
        let mut all: Vec<(&Service, Vec<u32>)> = Vec::new();
        for name in names {
            let Some((service, number)) = self.member(name) else {
                self.say(&format!("{name}: not a node of the file"));
                continue;
            };
            match all.iter_mut().find(|(other, _)| other.name == service.name) {
                Some((_, numbers)) => numbers.push(number),
                None => all.push((service, vec![number])),
            }
        }
        all
    }

    /// The containers of the cluster, by their names without the cluster's.
    fn containers(&self) -> Result<BTreeMap<String, Container>> {
        let all = status::status(&self.up.spec.name, self.up.hosts)?.into_iter();
        let short = |one: &Container| status::short(&self.up.spec.name, &one.name).to_owned();
        Ok(all.map(|one| (short(&one), one)).collect())
    }

    /// Starts the containers of nodes. Returns the names of those that did not start.
    fn start(&self, changing: &Changing<'_>, names: &[&str]) -> Result<Vec<String>> {
        let began = Instant::now();
        let (mut started, mut failed) = (names.to_vec(), Vec::new());
        for (service, numbers) in self.by_service(names) {
            for (number, error) in changing.start(service, &numbers)? {
                let name = format!("{}-{number}", service.name);
                started.retain(|other| *other != name);
                self.say(&format!("{name}: not started: {error}"));
                failed.push(name);
                self.pause(&service.name);
            }
        }
        if !started.is_empty() {
            let time = units::spell_since(began);
            self.say(&format!("{}: started after {time}", started.join(", ")));
        }
        Ok(failed)
    }

    /// Ends the containers of nodes, if they are there.
    fn end(&self, changing: &Changing<'_>, names: &[&str]) -> Result<()> {
        for (service, numbers) in self.by_service(names) {
            changing.end(service, &numbers)?;
        }
        Ok(())
    }

    /// Runs a command in the controller's container.
    fn ask(&self, command: &[&str]) -> Result<String> {
        let command = words(&[&["exec", &self.control], command].concat());
        let began = Instant::now();
        let done = self.host.run_until(&command.clone().into(), &|| began.elapsed() > ANSWERS)?;
        if done.is_good() { Ok(done.text()) } else { Err(failed(&self.control, &command, &done)) }
    }

    /// A container has ended or does not answer: tells its last words, and its kind pauses.
    fn tell_failed(&self, container: &Container) {
        let host = self.up.hosts.of(Some(&container.host));
        let said = host.map(|host| last_words(host, &container.name, LAST_WORDS));
        let said = said.unwrap_or_default();
        let said = if said.is_empty() { "it has said nothing" } else { &said };
        self.say(&format!("{}: {}: {said}", container.name, container.status));
        self.pause(&container.role);
    }

    /// Whether what a node is has lasted for so long; `None` if it is nothing that has to last.
    fn has_lasted(&self, name: &str, what: Option<(Lasting, Duration)>) -> bool {
        let mut since = lock(&self.since);
        let Some((what, time)) = what else {
            since.remove(name);
            return false;
        };
        let now = (what, Instant::now());
        let begun = since.entry(name.to_owned()).or_insert(now);
        if begun.0 != what {
            *begun = now;
        }
        begun.1.elapsed() >= time
    }

    /// Whether nodes of a kind may be started: none has failed just now.
    fn may_start(&self, kind: &str) -> bool {
        !lock(&self.pauses).holds(kind, Instant::now())
    }

    /// A node of a kind has failed.
    fn pause(&self, kind: &str) {
        lock(&self.pauses).begin(kind, Instant::now());
    }

    /// Nodes are about to begin anew: nothing of them has lasted.
    fn forget(&self, names: &[&str]) {
        lock(&self.since).retain(|name, _| !names.contains(&&**name));
    }
}
