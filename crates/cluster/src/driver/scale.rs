//! More or fewer containers of a service in a cluster that is up, and new ones in their place.
//!
//! The containers of a service are counted from 1, without gaps where all hosts answer: new ones
//! have the next numbers, and the last ones go first. Nothing is remembered beside the containers
//! but which of them were begun and are not ready yet ([`begun`]).

use std::collections::BTreeSet;
use std::path::Path;

use super::at::words;
use super::balance::{Asked, Servers};
use super::hosts::{Hosts, failed};
use super::member::{among, members, not_up};
use super::phases::Phases;
use super::{Container, INTERRUPTED, Setting, Watcher, balance, begun, configuration, status};
use crate::error::{Error, Result};
use crate::parts::Part;
use crate::place::Place;
use crate::plan::{self, Plan, Site};
use crate::spec::{BatchKind, Replicas, Service, Spec};

/// So many containers are started or ended at once: each takes memory and processors meanwhile.
const AT_ONCE: usize = 16;
/// The states of containers that have not ended.
const GOES_ON: [&str; 3] = ["running", "restarting", "paused"];
/// What the name of a container has at its end while another one takes its place.
const OLD: &str = "-old";

/// How many containers a service had, and has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scaled {
    /// Before.
    pub before: u32,
    /// Now.
    pub now: u32,
}

/// Has services of a cluster that is up have so many containers. `directory` is where relative
/// paths of the file start, absolute.
///
/// # Errors
/// If a service does not exist, the cluster is not up, a number is none that its rule allows, or a
/// container does not become ready: it is removed, and those that were there stay. If another
/// driver is at it.
pub fn scale(
    spec: &Spec,
    setting: &Setting,
    directory: &Path,
    wanted: &[(String, u32)],
    watcher: &dyn Watcher,
) -> Result<Vec<Scaled>> {
    let services: Vec<(&Service, u32)> = wanted
        .iter()
        .map(|(name, count)| {
            let service = service(spec, name)?;
            is_allowed(spec, service, *count)?;
            Ok((service, *count))
        })
        .collect::<Result<_>>()?;
    let change = |changing: &Changing<'_>| {
        services.iter().map(|(service, count)| changing.set(service, *count, None)).collect()
    };
    changing(spec, setting, directory, watcher, change)
}

/// Starts new containers of services in the place of those that are there. With a balancer no
/// request is lost: there is one container more meanwhile, and each ends its requests before it
/// goes. Without one each is stopped before its successor starts, and started again if that does
/// not become ready.
///
/// # Errors
/// As [`scale`].
pub fn replace(
    spec: &Spec,
    setting: &Setting,
    directory: &Path,
    names: &[String],
    watcher: &dyn Watcher,
) -> Result<()> {
    let services: Vec<&Service> =
        names.iter().map(|name| service(spec, name)).collect::<Result<_>>()?;
    services.iter().try_for_each(|service| is_ours(spec, service))?;
    let change = |changing: &Changing<'_>| {
        // What is on a host that is lost would stay the old one.
        if let Some(lost) = changing.phases.hosts.away().first() {
            let hint = "call 'replace' again when it is back";
            return Err(Error::new(lost.why.clone()).with_hint(hint));
        }
        if services.iter().any(|service| service.part.is_some()) {
            let Phases { hosts, sites, kept, .. } = changing.phases;
            configuration::configure(spec, (hosts, sites), (setting, kept))?;
        }
        let images = changing.phases.plan.phases.iter().filter(|phase| phase.name == plan::IMAGES);
        for phase in images {
            changing.phases.carry_out(phase)?;
        }
        services.iter().try_for_each(|service| changing.replace(service))
    };
    changing(spec, setting, directory, watcher, change)
}

fn service<'s>(spec: &'s Spec, name: &str) -> Result<&'s Service> {
    spec.services.iter().find(|service| service.name == name).ok_or_else(|| {
        let names: Vec<&str> = spec.services.iter().map(|service| &*service.name).collect();
        let hint =
            if names.is_empty() { "the file has none".to_owned() } else { among(name, &names) };
        Error::new(format!("cluster {} has no service {name:?}", spec.name)).with_hint(hint)
    })
}

/// Nodes of a batch system are started and ended as its jobs need them.
fn is_ours(spec: &Spec, service: &Service) -> Result<()> {
    let Some(batch) = spec.batch.as_ref().filter(|_| service.part == Some(Part::Compute)) else {
        return Ok(());
    };
    let title = batch.kind.title();
    let fact = format!("{title} says when nodes of {} are started and ended", service.name);
    let hint = match batch.kind {
        BatchKind::Slurm => "ask it: coracle cluster exec CLUSTER control scontrol update ...",
        BatchKind::GridEngine => "they come with jobs; min of the file says how many always stay",
    };
    Err(Error::new(fact).with_hint(hint))
}

/// A service cannot have a number that its file would refuse.
fn is_allowed(spec: &Spec, service: &Service, count: u32) -> Result<()> {
    is_ours(spec, service)?;
    let name = &service.name;
    if service.part.is_some() && count != 1 {
        return Err(Error::new(format!("a batch system has one {name}")));
    }
    match &service.replicas {
        Replicas::Scaled(rule) if !(rule.min..=rule.max).contains(&count) => {
            let (min, max) = (rule.min, rule.max);
            let fact = format!("{name} has a rule, which allows {min} to {max} containers");
            Err(Error::new(fact).with_hint("change min or max in the file"))
        }
        _ if count > 1 && service.balance.is_none() && service.has_fixed_port() => {
            let fact = format!("containers of {name} cannot share a port of the host");
            let hint = "add balance = { by = \"haproxy\" }, or publish without a port of the host";
            Err(Error::new(fact).with_hint(hint))
        }
        _ => Ok(()),
    }
}

/// Those of the numbers that no container has.
fn missing(numbers: &[u32], there: &[(u32, Container)]) -> Vec<u32> {
    let is_there = |number: &&u32| there.iter().any(|(other, _)| other == *number);
    numbers.iter().filter(|number| !is_there(number)).copied().collect()
}

/// Changes a cluster that is up.
fn changing<T>(
    spec: &Spec,
    setting: &Setting,
    directory: &Path,
    watcher: &dyn Watcher,
    change: impl FnOnce(&Changing<'_>) -> Result<T>,
) -> Result<T> {
    if !super::is_known(setting, &spec.name) {
        return Err(not_up(&spec.name));
    }
    let place = Place::take(&setting.store, &spec.name)?;
    let reached = super::reach_without(setting, &spec.name, directory, &[])
        .and_then(|reached| members(&spec.name, &reached.0).map(|_| reached));
    let (hosts, sites) = match reached {
        Ok(reached) => reached,
        Err(error) => {
            // Another driver may have ended it while this one has waited.
            place.leave();
            return Err(error);
        }
    };
    if hosts.is_local() {
        place.share()?;
    }
    hosts.away().iter().for_each(|lost| watcher.note(&lost.why));
    let plan = plan::plan(spec, &sites);
    let changed = change(&Changing::of(spec, &plan, (&hosts, &sites), place.path(), watcher))?;
    // A command of a driver that was killed may have begun one as late as this driver has worked.
    status::remove_passing(&spec.name, &hosts)?;
    Ok(changed)
}

/// A cluster that is up, and that no other driver changes meanwhile.
pub(super) struct Changing<'a> {
    spec: &'a Spec,
    phases: Phases<'a>,
}

impl<'a> Changing<'a> {
    pub(super) fn of(
        spec: &'a Spec,
        plan: &'a Plan,
        (hosts, sites): (&'a Hosts, &'a [Site]),
        kept: &'a Path,
        watcher: &'a dyn Watcher,
    ) -> Self {
        Self { spec, phases: Phases { plan, hosts, sites, kept, watcher } }
    }

    /// The containers of a service that run or are started again, each with its number. One that a
    /// killed driver has asked to stop still runs, but ends soon: it is none of them.
    pub(super) fn containers(&self, service: &Service) -> Result<Vec<(u32, Container)>> {
        let mut found = self.all(service)?;
        found.retain(|(_, one)| GOES_ON.contains(&&*one.state));
        let stopped = self.stopped(&found)?;
        found.retain(|(_, one)| !stopped.contains(&one.name));
        found.sort_by_key(|(number, _)| *number);
        Ok(found)
    }

    /// The same with those that have ended. What is set aside has no number.
    fn all(&self, service: &Service) -> Result<Vec<(u32, Container)>> {
        Ok(self.numbered(service, status::status(&self.spec.name, self.phases.hosts)?))
    }

    fn numbered(&self, service: &Service, all: Vec<Container>) -> Vec<(u32, Container)> {
        let own = all.into_iter().filter(|one| one.role == service.name);
        let numbered = own.filter_map(|one| {
            let short = status::short(&self.spec.name, &one.name);
            let number = short.rsplit_once('-')?.1.parse().ok()?;
            Some((number, one))
        });
        numbered.collect()
    }

    /// The names of those whose end somebody has asked for.
    fn stopped(&self, found: &[(u32, Container)]) -> Result<BTreeSet<String>> {
        let found: Vec<&Container> = found.iter().map(|(_, one)| one).collect();
        status::stopped(&found, self.phases.hosts)
    }

    /// Has the balancers of a service know its containers, and ends what a killed driver has left.
    pub(super) fn settle(&self, service: &Service) -> Result<()> {
        self.mend(service)?;
        self.tell_balancers(service, |_| true)
    }

    /// Has a service have so many containers on the hosts that answer. Nothing happens if it has
    /// not `from` of them, where that is given: somebody else has changed it.
    pub(super) fn set(&self, service: &Service, count: u32, from: Option<u32>) -> Result<Scaled> {
        self.mend(service)?;
        let there = self.containers(service)?;
        let before = u32::try_from(there.len()).unwrap_or(u32::MAX);
        if from.is_some_and(|from| from != before) {
            self.tell_balancers(service, |_| true)?;
            return Ok(Scaled { before, now: before });
        }
        let wanted = plan::numbers(self.spec, self.phases.sites, service, count)?;
        let missing = missing(&wanted, &there);
        if !missing.is_empty() {
            plan::room::check(self.spec, self.phases.sites, Some((service, &wanted)))?;
        }
        self.see_begun(service, &there, &wanted)?;
        self.grow(service, &missing)?;
        // A command of a driver that was killed may have started one meanwhile.
        let mut gone = self.all(service)?;
        gone.retain(|(number, _)| !wanted.contains(number));
        self.shrink(service, &gone)?;
        if missing.is_empty() && gone.is_empty() {
            self.tell_balancers(service, |_| true)?;
        }
        Ok(Scaled { before, now: count })
    }

    /// Has a service behind a balancer have so many containers also while hosts are lost. `started`
    /// are the numbers that this has added, which go again when all hosts are back.
    pub(super) fn stand_in(
        &self,
        service: &Service,
        count: u32,
        started: &mut Vec<u32>,
    ) -> Result<()> {
        let is_whole = !plan::misses_hosts(self.spec, self.phases.sites, service);
        if is_whole && started.is_empty() {
            return Ok(());
        }
        let there = self.containers(service)?;
        let wanted = plan::numbers(self.spec, self.phases.sites, service, count)?;
        let mut new = missing(&wanted, &there);
        if is_whole {
            self.grow(service, &new)?;
            let mut gone = self.all(service)?;
            gone.retain(|(number, _)| started.contains(number) && !wanted.contains(number));
            self.shrink(service, &gone)?;
            started.clear();
            return self.tell_balancers(service, |_| true);
        }
        new.truncate((count as usize).saturating_sub(there.len()));
        if new.is_empty() {
            return self.tell_balancers(service, |_| true);
        }
        // Also what is only begun has to go again.
        started.extend(&new);
        self.grow(service, &new)?;
        let names: Vec<String> =
            new.iter().map(|number| format!("{}-{number}", service.name)).collect();
        let text = format!("{}: in the place of what is on lost hosts", names.join(", "));
        self.phases.watcher.note(&text);
        Ok(())
    }

    /// Starts containers of these numbers, and has the balancers know them when they are ready.
    fn grow(&self, service: &Service, numbers: &[u32]) -> Result<()> {
        for some in numbers.chunks(AT_ONCE) {
            if let Err(error) = self.begin(service, some) {
                self.remove_new(service, some);
                return Err(error);
            }
            self.tell_balancers(service, |_| true)?;
        }
        Ok(())
    }

    /// Starts those of containers of these numbers that do not run, and waits until all are ready.
    fn begin(&self, service: &Service, numbers: &[u32]) -> Result<()> {
        let kept = (self.phases.kept, self.phases.hosts.driver());
        begun::add(kept, &service.name, numbers)?;
        let all: Vec<(&Service, u32)> = numbers.iter().map(|number| (service, *number)).collect();
        for phase in plan::replicas(self.spec, self.phases.sites, &all) {
            self.phases.carry_out(&phase)?;
        }
        begun::take(kept, &service.name, numbers)
    }

    /// Waits until those are ready that a driver has begun which was killed then. One that does not
    /// become ready stays: it may have been there before, and only was looked at.
    fn see_begun(
        &self,
        service: &Service,
        there: &[(u32, Container)],
        wanted: &[u32],
    ) -> Result<()> {
        let mut begun = begun::read(self.phases.kept, &service.name);
        begun.retain(|number| wanted.contains(number));
        begun.retain(|number| there.iter().any(|(other, _)| other == number));
        begun.chunks(AT_ONCE).try_for_each(|some| self.begin(service, some))
    }

    /// Starts those of these containers that are not there. Returns the numbers of those that do
    /// not start, also when each is tried alone.
    ///
    /// # Errors
    /// If the watcher asks for the end.
    pub(super) fn start(&self, service: &Service, numbers: &[u32]) -> Result<Vec<(u32, Error)>> {
        let there = self.containers(service)?;
        let missing = missing(numbers, &there);
        let stopped = || self.phases.watcher.is_stopped();
        let mut failed = Vec::new();
        for some in missing.chunks(AT_ONCE) {
            if stopped() || self.grow(service, some).is_ok() {
                continue;
            }
            for number in some.iter().take_while(|_| !stopped()) {
                failed.extend(self.grow(service, &[*number]).err().map(|error| (*number, error)));
            }
        }
        if stopped() { Err(Error::new(INTERRUPTED)) } else { Ok(failed) }
    }

    /// Ends containers of these numbers, as far as they are there.
    pub(super) fn end(&self, service: &Service, numbers: &[u32]) -> Result<()> {
        let mut gone = self.all(service)?;
        gone.retain(|(number, _)| numbers.contains(number));
        self.shrink(service, &gone)
    }

    /// Removes containers that did not become ready. What is on a lost host stays.
    fn remove_new(&self, service: &Service, numbers: &[u32]) {
        let all = status::status_of_reached(&self.spec.name, self.phases.hosts);
        let Ok((all, _)) = all else { return };
        let new =
            self.numbered(service, all).into_iter().filter(|(number, _)| numbers.contains(number));
        let new: Vec<Container> = new.map(|(_, container)| container).collect();
        if let Err(left) = self.remove(&new) {
            self.phases.watcher.note(&left.to_string());
        }
    }

    /// Takes containers from the balancers and ends them.
    fn shrink(&self, service: &Service, gone: &[(u32, Container)]) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let short = |one: &Container| status::short(&self.spec.name, &one.name).to_owned();
        let names: Vec<String> = gone.iter().map(|(_, one)| short(one)).collect();
        self.tell_balancers(service, |name| !names.iter().any(|gone| gone == name))?;
        let gone: Vec<Container> = gone.iter().map(|(_, one)| one.clone()).collect();
        self.remove(&gone)
    }

    /// Has the balancers of a service know those of its containers that are wanted, by their names.
    fn tell_balancers(&self, service: &Service, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let (hosts, watcher) = (self.phases.hosts, self.phases.watcher);
        let Some(balanced) = plan::balance::of(self.spec, self.phases.sites, service) else {
            return Ok(());
        };
        let mut servers = Servers::of(&self.spec.name, &service.name, hosts)?;
        servers.retain(wanted);
        let asked =
            Asked { stop: &|| watcher.is_stopped(), note: &|text: &str| watcher.note(text) };
        balance::give(&balanced, &servers, hosts, asked)
    }

    /// Stops and removes containers.
    fn remove(&self, containers: &[Container]) -> Result<()> {
        let remove = |container: &Container| {
            self.on_host(container, &["stop", &container.name])?;
            self.on_host(container, &["rm", "-f", "-v", &container.name])
        };
        for some in containers.chunks(AT_ONCE) {
            let done = super::hosts::at_once(some.iter(), remove);
            done.into_iter().collect::<Result<Vec<()>>>()?;
        }
        Ok(())
    }

    /// Runs a command on a container's host.
    fn on_host(&self, container: &Container, command: &[&str]) -> Result<()> {
        let host = self.phases.hosts.of(Some(&container.host))?;
        let command = words(command);
        let done = host.run(&command)?;
        if done.is_good() { Ok(()) } else { Err(failed(&container.name, &command, &done)) }
    }

    fn replace(&self, service: &Service) -> Result<()> {
        self.mend(service)?;
        if service.balance.is_none() {
            let there = self.exchanged(service)?;
            return there.iter().try_for_each(|one| self.exchange(service, one));
        }
        let there = self.containers(service)?;
        let extra = there.last().map_or(1, |(number, _)| number + 1);
        self.grow(service, &[extra])?;
        let replaced = there.iter().try_for_each(|one| {
            if self.phases.watcher.is_stopped() {
                return Err(Error::new(INTERRUPTED));
            }
            self.shrink(service, std::slice::from_ref(one))?;
            self.grow(service, &[one.0])
        });
        // It stands in for one that did not become ready.
        replaced?;
        let all = self.containers(service)?;
        let last: Vec<_> = all.into_iter().filter(|(number, _)| *number == extra).collect();
        self.shrink(service, &last)
    }

    /// The containers that new ones take the place of: those that go on, and those that have ended
    /// because a driver has stopped them for that, and was killed then.
    fn exchanged(&self, service: &Service) -> Result<Vec<(u32, Container)>> {
        let mut all = self.all(service)?;
        let stopped = self.stopped(&all)?;
        all.retain(|(_, one)| GOES_ON.contains(&&*one.state) || stopped.contains(&one.name));
        all.sort_by_key(|(number, _)| *number);
        Ok(all)
    }

    /// Stops a container and starts a new one of its number; if that does not become ready the old
    /// one goes on.
    fn exchange(&self, service: &Service, (number, old): &(u32, Container)) -> Result<()> {
        let aside = format!("{}{OLD}", old.name);
        self.on_host(old, &["stop", &old.name])?;
        self.on_host(old, &["rename", &old.name, &aside])?;
        self.succeed(service, *number, &Container { name: aside, ..old.clone() })
    }

    /// Starts the container that takes the place of one that was set aside, if it is not there.
    fn succeed(&self, service: &Service, number: u32, old: &Container) -> Result<()> {
        match self.grow(service, &[number]) {
            Ok(()) => self.remove(std::slice::from_ref(old)),
            Err(error) => match self.bring_back(old) {
                Ok(()) => Err(error),
                Err(also) => Err(Error::new(format!("{error}\n{also}"))),
            },
        }
    }

    /// Gives a container its name again, and starts it.
    fn bring_back(&self, old: &Container) -> Result<()> {
        let name = old.name.strip_suffix(OLD).unwrap_or(&old.name);
        self.on_host(old, &["rename", &old.name, name])?;
        let old = Container { name: name.to_owned(), ..old.clone() };
        self.on_host(&old, &["start", &old.name])
    }

    /// Goes on where a driver was killed: a container that was set aside gets its successor, or
    /// comes back.
    fn mend(&self, service: &Service) -> Result<()> {
        let all = status::status(&self.spec.name, self.phases.hosts)?;
        for old in all.iter().filter(|one| one.role == service.name) {
            let name = old.name.strip_suffix(OLD);
            let number = name.and_then(|name| name.rsplit_once('-')?.1.parse().ok());
            if let Some(number) = number
                && let Err(error) = self.succeed(service, number, old)
            {
                self.phases.watcher.note(&error.to_string());
            }
        }
        Ok(())
    }
}
