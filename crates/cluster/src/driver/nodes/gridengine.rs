//! The nodes of a Grid Engine.
//!
//! It asks for none: what it says of its jobs and nodes is read again and again, and compared with
//! the containers. A node is taken away step by step: first it gets no new job, and if it has none
//! then, its daemon is ended by the controller, and the container after it. So no job comes in
//! between, and the controller takes leave of the node: one that it has not taken leave of is not
//! known to it when it comes again.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::{Lasting, Nodes};
use crate::driver::Container;
use crate::driver::follow::GLANCE;
use crate::driver::scale::Changing;
use crate::error::Result;
use crate::gridengine::answers::{self, Answers, Job, State};
use crate::gridengine::demand::{Place, demand};
use crate::gridengine::question;
use crate::plan;
use crate::spec::Compute;

/// How often the controller is asked; if it does not answer, less and less often.
const LOOK: Duration = Duration::from_secs(1);
const LONGEST_LOOK: Duration = Duration::from_secs(8);
/// A node whose container runs registers within so long, or the container is started anew.
const REGISTERS: Duration = Duration::from_secs(10);
/// A node is not started again before. The controller forgets a connection some seconds after its
/// end, and by the node's name: one that has come back meanwhile would be forgotten with it.
const RESTS: Duration = Duration::from_secs(6);
/// While the controller has nothing to do, containers are looked at in one of so many turns.
const AT_REST: u32 = 5;
/// A daemon that is to end has so long.
const ENDS: Duration = Duration::from_secs(10);
/// It is waited for so long at once.
const ENDS_SOON: Duration = Duration::from_secs(3);
/// A job that could run on nodes that are there, and does not within so long, waits for something
/// else. It counts again after the second time.
const RUNS: Duration = Duration::from_secs(15);
const COUNTS_AGAIN: Duration = Duration::from_mins(5);

/// What is remembered from turn to turn.
#[derive(Default)]
struct Memory {
    /// Turns until containers are looked at.
    rest: u32,
    /// When nodes have ended that are not to be started yet.
    ended: BTreeMap<String, Instant>,
    /// Jobs that could run since.
    could_run: BTreeMap<u32, Instant>,
    /// Jobs that do not count before.
    passed: BTreeMap<u32, Instant>,
}

/// Starts and ends nodes until the watcher asks for the end.
pub(super) fn serve(nodes: &Nodes<'_>) {
    let mut memory = Memory::default();
    nodes.up.often((LOOK, LONGEST_LOOK), || nodes.turn(&mut memory));
}

impl Memory {
    /// Whether a node has not ended just now.
    fn has_rested(&self, name: &str) -> bool {
        self.ended.get(name).is_none_or(|ended| Instant::now() >= *ended + RESTS)
    }

    /// Nodes have ended.
    fn end(&mut self, names: &[&str]) {
        let now = Instant::now();
        self.ended.retain(|_, ended| now < *ended + RESTS);
        self.ended.extend(names.iter().map(|name| ((*name).to_owned(), now)));
    }

    /// Jobs, but for those that wait for something else than nodes.
    fn that_count(&mut self, jobs: &[Job]) -> Vec<Job> {
        let now = Instant::now();
        let waits = |number: &u32| jobs.iter().any(|job| job.number == *number);
        self.could_run.retain(|number, _| waits(number));
        self.passed.retain(|number, until| waits(number) && now < *until);
        jobs.iter().filter(|job| !self.passed.contains_key(&job.number)).cloned().collect()
    }

    /// Jobs that could run now, of those that count.
    fn could_run(&mut self, numbers: &[u32], say: impl Fn(&str)) {
        let now = Instant::now();
        self.could_run.retain(|number, _| numbers.contains(number));
        for number in numbers {
            let since = *self.could_run.entry(*number).or_insert(now);
            if now.duration_since(since) >= RUNS {
                self.could_run.remove(number);
                self.passed.insert(*number, now + COUNTS_AGAIN);
                say(&format!("job {number}: it waits for something else than nodes"));
            }
        }
    }
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It takes jobs.
    Ready,
    /// Its container runs, and it has not registered yet, or is silent.
    Coming,
    /// It has no container, and may be started.
    Off,
    /// It has no container, and is not to be started yet.
    Resting,
    /// It gets no new job.
    Leaving,
    /// Its container has ended.
    Ended,
    /// It is on a host that is lost.
    Lost,
}

/// A node that the file has, and what is known of it.
struct Known<'a> {
    /// Its name, and that of its host for Grid Engine.
    name: String,
    host: String,
    kind: &'a Compute,
    number: u32,
    state: &'a State,
    container: Option<&'a Container>,
    standing: Standing,
}

impl Known<'_> {
    /// Its instance of the queue.
    fn instance(&self) -> String {
        format!("{}@{}", self.kind.name, self.host)
    }

    fn names(&self) -> Names {
        Names { name: self.name.clone(), host: self.host.clone(), instance: self.instance() }
    }

    /// Whether a job could have been put on it, or still is, though nothing runs there.
    fn is_dead(&self) -> bool {
        let runs = matches!(self.standing, Standing::Ready | Standing::Coming | Standing::Leaving);
        let takes_jobs = !self.state.is_silent() && !self.state.is_disabled();
        !runs && (takes_jobs || !self.state.jobs.is_empty())
    }
}

impl Nodes<'_> {
    fn turn(&self, memory: &mut Memory) -> Result<()> {
        if self.find(memory)?.is_none() {
            return Ok(());
        }
        // Others are kept from changing the cluster only where there is something to do.
        let mend = |changing: &Changing<'_>| {
            memory.rest = 0;
            match self.find(memory)? {
                Some(found) => found.carry_out(self, changing, memory),
                None => Ok(()),
            }
        };
        self.up.changing(mend).map(drop)
    }

    /// What the controller says now.
    fn answers(&self) -> Result<Answers> {
        answers::read(&self.ask(&question())?)
    }

    /// What is to be done; `None` if that is nothing.
    fn find(&self, memory: &mut Memory) -> Result<Option<Found>> {
        let answers = self.answers()?;
        let is_used = |state: &State| !state.is_silent() || !state.jobs.is_empty();
        let is_at_rest = answers.jobs.is_empty() && !answers.nodes.values().any(is_used);
        memory.rest = memory.rest.saturating_sub(1);
        if is_at_rest && memory.rest > 0 {
            return Ok(None);
        }
        memory.rest = AT_REST;
        let there = self.containers()?;
        let mut known = self.known(&answers, &there, memory);
        // Jobs are put on them in this order.
        known.sort_by_key(|one| one.standing);
        let place = |one: &Known<'_>| {
            let slots = plan::processors(one.kind, self.up.sites);
            let free = match one.standing {
                Standing::Ready => slots.saturating_sub(one.state.used),
                Standing::Coming if one.state.jobs.is_empty() => slots,
                Standing::Off => slots,
                _ => 0,
            };
            let (queue, host) = (one.kind.name.clone(), one.host.clone());
            Place { queue, host, free, is_ready: one.standing == Standing::Ready }
        };
        let places: Vec<Place> = known.iter().map(place).collect();
        let jobs: Vec<Job> = memory.that_count(&answers.jobs);
        let demand = demand(&jobs, &places);
        memory.could_run(&demand.could_run, |text| self.say(text));
        let mut found = Found::default();
        for (at, one) in known.iter().enumerate() {
            let stays = one.number <= one.kind.min;
            found.add(self, one, stays || demand.places.contains(&at));
        }
        // Those of a file that had more.
        let is_more = |name: &&String| {
            let kind =
                self.member(name).and_then(|(service, number)| Some((self.kind(service)?, number)));
            kind.is_some_and(|(kind, number)| number > kind.max)
        };
        found.gone.extend(there.keys().filter(is_more).cloned());
        Ok((!found.is_nothing()).then_some(found))
    }

    /// All nodes that the file has and the controller knows.
    fn known<'n>(
        &'n self,
        answers: &'n Answers,
        there: &'n BTreeMap<String, Container>,
        memory: &Memory,
    ) -> Vec<Known<'n>> {
        let mut all = Vec::new();
        for service in self.services() {
            let Some(kind) = self.kind(service) else { continue };
            let may_start = self.may_start(&kind.name);
            for number in 1..=kind.max {
                let host = plan::service_container(self.up.spec, service, number);
                let Some(state) = answers.nodes.get(&host) else { continue };
                let name = format!("{}-{number}", service.name);
                let container = there.get(&name);
                let standing = match container {
                    _ if self.is_on_lost(service, number) => Standing::Lost,
                    None if may_start && memory.has_rested(&name) => Standing::Off,
                    None => Standing::Resting,
                    Some(one) if one.state != "running" => Standing::Ended,
                    Some(_) if state.is_disabled() || state.is_wrong() => Standing::Leaving,
                    Some(_) if state.is_silent() => Standing::Coming,
                    Some(_) => Standing::Ready,
                };
                all.push(Known { name, host, kind, number, state, container, standing });
            }
        }
        all
    }

    /// Has the controller change what it thinks of nodes or jobs.
    fn tell(&self, command: &[&str], of: &[String]) -> Result<()> {
        let of: Vec<&str> = of.iter().map(|one| &**one).filter(|one| !one.is_empty()).collect();
        if of.is_empty() { Ok(()) } else { self.ask(&[command, &of].concat()).map(drop) }
    }
}

/// The names that a node has.
struct Names {
    /// In the cluster, and for Grid Engine.
    name: String,
    host: String,
    /// That of its instance of the queue.
    instance: String,
}

/// Nodes whose containers are not what they should be.
#[derive(Default)]
struct Found {
    /// Wanted, without a container.
    wanted: Vec<Names>,
    /// They run, and do not register.
    silent: Vec<String>,
    /// They get no new job, and have none: their daemons are to end. These are hosts.
    leaving: Vec<String>,
    /// Their containers are to end.
    gone: Vec<String>,
    /// They had no job for so long that they go.
    idle: Vec<Names>,
    /// Nothing runs there any more. These are instances of queues.
    dead: Vec<String>,
    /// Jobs that such nodes had.
    jobs: Vec<String>,
    /// Containers that should answer, and have ended or are silent.
    failed: Vec<Container>,
}

impl Found {
    /// What a node needs.
    fn add(&mut self, nodes: &Nodes<'_>, one: &Known<'_>, is_wanted: bool) {
        let lasts = match one.standing {
            Standing::Ready if one.state.jobs.is_empty() && !is_wanted => {
                Some((Lasting::Idle, one.kind.idle))
            }
            Standing::Coming => Some((Lasting::Unregistered, REGISTERS)),
            Standing::Leaving if one.state.jobs.is_empty() => Some((Lasting::Leaving, ENDS)),
            _ => None,
        };
        let has_lasted = nodes.has_lasted(&one.name, lasts);
        let mut is_dead = one.is_dead();
        match one.standing {
            Standing::Ready if has_lasted => self.idle.push(one.names()),
            Standing::Coming if has_lasted => {
                is_dead = true;
                self.failed.extend(one.container.cloned());
                self.silent.push(one.name.clone());
            }
            Standing::Leaving if has_lasted => self.gone.push(one.name.clone()),
            Standing::Leaving if one.state.jobs.is_empty() && !one.state.is_silent() => {
                self.leaving.push(one.host.clone());
            }
            Standing::Off if is_wanted => self.wanted.push(one.names()),
            Standing::Ended if one.state.is_disabled() => self.gone.push(one.name.clone()),
            Standing::Ended => {
                self.failed.extend(one.container.cloned());
                self.gone.push(one.name.clone());
            }
            _ => {}
        }
        if is_dead {
            self.dead.push(one.instance());
            self.jobs.extend(one.state.jobs.iter().map(ToString::to_string));
        }
    }

    fn is_nothing(&self) -> bool {
        let all = [&self.silent, &self.leaving, &self.gone, &self.dead, &self.jobs];
        self.wanted.is_empty() && self.idle.is_empty() && all.iter().all(|all| all.is_empty())
    }

    /// Does all of it, and tells the first failure.
    fn carry_out(
        mut self,
        nodes: &Nodes<'_>,
        changing: &Changing<'_>,
        memory: &mut Memory,
    ) -> Result<()> {
        self.failed.iter().for_each(|container| nodes.tell_failed(container));
        if !self.jobs.is_empty() {
            self.jobs.sort_unstable();
            self.jobs.dedup();
            let jobs = self.jobs.join(", ");
            nodes.say(&format!("{jobs}: jobs of nodes that are lost, put into the queue again"));
        }
        // None of them gets a job again before its jobs are back in the queue.
        let mut done = vec![
            nodes.tell(&["qmod", "-d"], &self.dead),
            nodes.tell(&["qmod", "-f", "-rj"], &self.jobs),
            nodes.tell(&["qconf", "-ke"], &[self.leaving.join(",")]),
        ];
        if !self.silent.is_empty() {
            nodes.say(&format!("{}: ended, as they do not answer", self.silent.join(", ")));
        }
        let gone: Vec<&str> = self.silent.iter().chain(&self.gone).map(|name| &**name).collect();
        nodes.forget(&gone);
        done.push(nodes.end(changing, &gone));
        memory.end(&gone);
        done.push(start(&self.wanted, nodes, changing));
        done.push(retire(&self.idle, nodes, changing, memory));
        done.into_iter().collect()
    }
}

/// Takes nodes away that have no job. What is not done within a while is left to the next turns.
fn retire(
    idle: &[Names],
    nodes: &Nodes<'_>,
    changing: &Changing<'_>,
    memory: &mut Memory,
) -> Result<()> {
    if idle.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = idle.iter().map(|one| &*one.name).collect();
    nodes.say(&format!("{}: not needed any more", names.join(", ")));
    let instances: Vec<String> = idle.iter().map(|one| one.instance.clone()).collect();
    nodes.tell(&["qmod", "-d"], &instances)?;
    // A job may have come before.
    let now = nodes.answers()?;
    let has_none = |one: &&Names| now.nodes.get(&one.host).is_some_and(|node| node.jobs.is_empty());
    let gone: Vec<&Names> = idle.iter().filter(has_none).collect();
    let hosts: Vec<&str> = gone.iter().map(|one| &*one.host).collect();
    nodes.tell(&["qconf", "-ke"], &[hosts.join(",")])?;
    let began = Instant::now();
    let mut ended = Vec::new();
    while ended.len() < gone.len() && began.elapsed() < ENDS_SOON && !nodes.is_over() {
        thread::sleep(GLANCE);
        let there = nodes.containers()?;
        let runs = |name: &str| there.get(name).is_some_and(|one| one.state == "running");
        ended = gone.iter().map(|one| &*one.name).filter(|name| !runs(name)).collect();
    }
    memory.end(&ended);
    nodes.end(changing, &ended)
}

/// Starts nodes.
fn start(wanted: &[Names], nodes: &Nodes<'_>, changing: &Changing<'_>) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = wanted.iter().map(|one| &*one.name).collect();
    let instances: Vec<String> = wanted.iter().map(|one| one.instance.clone()).collect();
    nodes.say(&format!("{}: wanted", names.join(", ")));
    nodes.start(changing, &names)?;
    // An earlier life may have left marks. It gets no job before it answers.
    nodes.tell(&["qmod", "-e"], &instances)?;
    nodes.tell(&["qmod", "-cq"], &instances)
}
