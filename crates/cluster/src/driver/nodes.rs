//! The nodes of a batch system: containers are started and ended as its controller asks.
//!
//! What it asks for comes by a door whose path is always the same, so a driver that is started
//! again goes on; it is done in the order in which it comes. What was asked while none was there is
//! found by comparing what the controller says of its nodes with the containers, which is done all
//! the time: so nodes that have died are told, too.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use super::at::words;
use super::doors::{self, Door};
use super::follow::Up;
use super::hosts::{Host, failed, lock};
use super::scale::Changing;
use super::{Container, INTERRUPTED, status};
use crate::channel::{Event, Stream};
use crate::door::Request;
use crate::error::{Error, Result};
use crate::plan;
use crate::slurm::{self, Action, Node, Part};
use crate::spec::{Compute, Service, units};
use crate::wire::frames::Frame;
use crate::wire::messages::Ended;
use crate::wire::{self, Kind};

/// How often the nodes are compared with the containers.
const COMPARE: Duration = Duration::from_secs(5);
/// A door that has ended is opened again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// A node whose container runs registers within so long, or the container is started anew.
const REGISTERS: Duration = Duration::from_secs(25);
/// The controller answers within so long: others wait to change the cluster meanwhile.
const ANSWERS: Duration = Duration::from_secs(3);
/// Lines of a container that has ended which are told.
const LAST_WORDS: &str = "3";
/// How often is looked whether somebody asks for the end.
const GLANCE: Duration = Duration::from_millis(50);
/// A batch system that is up.
struct Nodes<'a> {
    up: &'a Up<'a>,
    /// The controller's container, its host, and the path of its door there.
    control: String,
    host: &'a dyn Host,
    door: String,
    /// Since when nodes are down without a container, or wanted with one that runs.
    since: Mutex<BTreeMap<String, Instant>>,
}

/// Starts and ends nodes of a file's batch system until the watcher asks for the end.
///
/// # Errors
/// If the controller's host does not exist.
pub(super) fn serve(up: &Up<'_>) -> Result<()> {
    let control = up.spec.services.iter().find(|service| service.part == Some(Part::Control));
    let Some(control) = control else { return Ok(()) };
    let site = plan::service_site(up.spec, up.sites, control, 1);
    let nodes = Nodes {
        up,
        control: plan::service_container(up.spec, control, 1),
        host: up.hosts.of(site.host.as_deref())?,
        door: format!("{}/{}", site.doors(), slurm::DOOR),
        since: Mutex::default(),
    };
    thread::scope(|scope| {
        scope.spawn(|| nodes.often(COMPARE, || nodes.compare()));
        nodes.often(AGAIN, || nodes.serve_door());
    });
    Ok(())
}

impl<'a> Nodes<'a> {
    fn say(&self, text: &str) {
        self.up.watcher.note(text);
    }

    fn is_over(&self) -> bool {
        self.up.watcher.is_stopped()
    }

    /// Does something again and again. What fails is told once.
    fn often(&self, pause: Duration, mut work: impl FnMut() -> Result<()>) {
        let mut told = String::new();
        while !self.is_over() {
            match work() {
                Ok(()) => told.clear(),
                Err(error) if !self.is_over() && error.to_string() != told => {
                    told = error.to_string();
                    self.say(&told);
                }
                Err(_) => {}
            }
            let until = Instant::now() + pause;
            while !self.is_over() && Instant::now() < until {
                thread::sleep(GLANCE);
            }
        }
    }

    /// Serves a door until it ends, or the watcher asks for the end.
    fn serve_door(&self) -> Result<()> {
        let (task, mut decoder) = doors::open_at(self.host, &self.door)?;
        let (door, has_ended) = (Door::of(task), AtomicBool::new(false));
        let (sender, requests) = channel::<(u32, Vec<u8>)>();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !self.is_over() && !has_ended.load(Ordering::Relaxed) {
                    thread::sleep(GLANCE);
                }
                door.close();
            });
            let to = &door;
            scope.spawn(move || {
                for (id, payload) in requests {
                    self.answer(to, id, &payload);
                }
            });
            let mut take = || -> Result<(), wire::Error> {
                loop {
                    while let Some(Frame { kind, id, payload }) = decoder.take()? {
                        if kind == Kind::Start {
                            let _ = sender.send((id, payload));
                        }
                    }
                    match door.event() {
                        Some(Event::Output(Stream::Output, bytes)) => decoder.feed(&bytes),
                        Some(Event::Output(Stream::Errors, _)) => {}
                        _ => return Ok(()),
                    }
                }
            };
            let done = take();
            has_ended.store(true, Ordering::Relaxed);
            drop(sender);
            done.map_err(|error| Error::new(error.to_string()))
        })
    }

    fn answer(&self, door: &Door, id: u32, payload: &[u8]) {
        let unpacked = Request::unpack(payload).map_err(|error| Error::new(error.to_string()));
        let done = unpacked.and_then(|request| {
            let unknown = || Error::new(format!("{:?} cannot be asked for", request.node));
            let action = Action::of(&request.node).ok_or_else(unknown)?;
            let names: Vec<&str> = request.command.split_whitespace().collect();
            self.carry_out(action, &names)
        });
        match done {
            Ok(()) => drop(door.write(Kind::Ended, id, &Ended::Code(0).pack())),
            Err(error) => door.refuse(id, &error.to_string()),
        }
    }

    /// Does what the controller asks for.
    fn carry_out(&self, action: Action, names: &[&str]) -> Result<()> {
        let what = match action {
            Action::Resume => "wanted",
            Action::Suspend => "given back",
            Action::Failed => "not registered in time",
            Action::Ready => return Ok(()),
        };
        self.say(&format!("{}: {what}", names.join(", ")));
        loop {
            let done = self.up.changing(|changing| match action {
                Action::Resume => self.start(changing, names),
                Action::Suspend | Action::Failed | Action::Ready => {
                    // One that was asked for again meanwhile, and is in use, stays.
                    let states = self.states()?;
                    let may_go = |name: &&str| {
                        let state = states.iter().find(|node| node.name == *name);
                        state
                            .is_none_or(|node| node.is_away() || node.is_wanted() || node.is_down())
                    };
                    let names: Vec<&str> = names.iter().copied().filter(may_go).collect();
                    self.end(changing, &names)
                }
            })?;
            if done.is_some() {
                return Ok(());
            }
            if self.is_over() {
                return Err(Error::new(INTERRUPTED));
            }
            // Another driver changes the cluster.
            thread::sleep(GLANCE);
        }
    }

    /// The services of nodes.
    fn services(&self) -> impl Iterator<Item = &'a Service> {
        self.up.spec.services.iter().filter(|service| service.part == Some(Part::Compute))
    }

    /// The service of a node, and its number there.
    fn member(&self, name: &str) -> Option<(&'a Service, u32)> {
        let (service, number) = name.rsplit_once('-')?;
        Some((self.services().find(|own| own.name == service)?, number.parse().ok()?))
    }

    /// The numbers of nodes, by service.
    fn by_service(&self, names: &[&str]) -> Result<Vec<(&'a Service, Vec<u32>)>> {
        let mut all: Vec<(&Service, Vec<u32>)> = Vec::new();
        for name in names {
            let unknown = || Error::new(format!("{name} is not a node of this cluster's file"));
            let (service, number) = self.member(name).ok_or_else(unknown)?;
            match all.iter_mut().find(|(other, _)| other.name == service.name) {
                Some((_, numbers)) => numbers.push(number),
                None => all.push((service, vec![number])),
            }
        }
        Ok(all)
    }

    /// Starts the containers of nodes. The controller is told of those that do not start.
    fn start(&self, changing: &Changing<'_>, names: &[&str]) -> Result<()> {
        let began = Instant::now();
        let mut started = names.to_vec();
        for (service, numbers) in self.by_service(names)? {
            for (number, error) in changing.start(service, &numbers)? {
                let name = format!("{}-{number}", service.name);
                started.retain(|other| *other != name);
                self.say(&format!("{name}: not started: {error}"));
                self.set_down(&[&name], "its container was not started")?;
            }
        }
        if !started.is_empty() {
            let time = units::spell(Duration::from_millis(began.elapsed().as_millis() as u64));
            self.say(&format!("{}: started after {time}", started.join(", ")));
        }
        Ok(())
    }

    /// Ends the containers of nodes, if they are there.
    fn end(&self, changing: &Changing<'_>, names: &[&str]) -> Result<()> {
        for (service, numbers) in self.by_service(names)? {
            changing.end(service, &numbers)?;
        }
        Ok(())
    }

    /// Has the controller put the jobs of nodes into the queue again.
    fn set_down(&self, names: &[&str], why: &str) -> Result<()> {
        self.update(names, &["State=DOWN", &format!("Reason={why}")])
    }

    fn update(&self, names: &[&str], what: &[&str]) -> Result<()> {
        let of = format!("NodeName={}", names.join(","));
        self.scontrol(&[&["update", &of], what].concat()).map(drop)
    }

    /// Asks the controller.
    fn scontrol(&self, command: &[&str]) -> Result<String> {
        let command = words(&[&["exec", &self.control, "scontrol"], command].concat());
        let began = Instant::now();
        let done = self.host.run_until(&command, &|| began.elapsed() > ANSWERS)?;
        if done.is_good() { Ok(done.text()) } else { Err(failed(&self.control, &command, &done)) }
    }

    /// What the controller says of its nodes.
    fn states(&self) -> Result<Vec<Node>> {
        Ok(slurm::nodes(&self.scontrol(&["show", "nodes", "--oneliner"])?))
    }

    /// Compares what the controller says of its nodes with the containers.
    fn compare(&self) -> Result<()> {
        self.up.changing(|changing| self.compare_now(changing)).map(drop)
    }

    fn compare_now(&self, changing: &Changing<'_>) -> Result<()> {
        let nodes = self.states()?;
        // By their names without the cluster's.
        let all = status::status(&self.up.spec.name, self.up.hosts)?.into_iter();
        let short = |one: &Container| status::short(&self.up.spec.name, &one.name).to_owned();
        let there: BTreeMap<String, Container> = all.map(|one| (short(&one), one)).collect();
        let mut found = Found::default();
        for node in &nodes {
            let Some((service, number)) = self.member(&node.name) else { continue };
            let Some(kind) = self.kind(service) else { continue };
            let (name, state) = (&*node.name, there.get(&node.name));
            let runs = state.is_some_and(|one| one.state == "running");
            if let Some(one) = state.filter(|_| !runs && !node.is_away()) {
                self.tell_end(name, one);
            }
            // What has to last before something is done.
            let lasts = match (node.is_down(), node.is_wanted()) {
                (true, _) if !runs => Some(kind.idle),
                (false, true) if runs => Some(REGISTERS),
                _ => None,
            };
            let has_lasted = self.lasted(name, lasts);
            if node.is_down() {
                found.again.extend(has_lasted.then_some(name));
            } else if node.is_wanted() {
                found.silent.extend(has_lasted.then_some(name));
                found.wanted.extend((!runs).then_some(name));
            } else if node.is_away() {
                found.gone.extend(state.is_some().then_some(name));
                found.stay.extend((node.is_off() && number <= kind.min).then_some(name));
            } else if !runs {
                found.lost.push(name);
            }
        }
        found.carry_out(self, changing)
    }

    /// Tells that a container has ended, with its last words.
    fn tell_end(&self, name: &str, container: &Container) {
        let logs = words(&["logs", "--tail", LAST_WORDS, &container.name]);
        let done = self.up.hosts.of(Some(&container.host)).and_then(|host| host.run(&logs));
        let said = done.map(|done| [done.out, done.err].concat()).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        self.say(&format!("{name}: {}: {said}", container.status));
    }

    /// The nodes of a service, as the file has them.
    fn kind(&self, service: &Service) -> Option<&'a Compute> {
        let batch = self.up.spec.batch.as_ref()?;
        batch.compute.iter().find(|kind| kind.name == service.name)
    }

    /// Whether what a node is has lasted for so long; `None` if it is nothing that has to last.
    fn lasted(&self, name: &str, time: Option<Duration>) -> bool {
        let mut since = lock(&self.since);
        let Some(time) = time else {
            since.remove(name);
            return false;
        };
        let has = since.entry(name.to_owned()).or_insert_with(Instant::now).elapsed() >= time;
        if has {
            since.remove(name);
        }
        has
    }
}

/// Nodes whose containers are not what they should be.
#[derive(Default)]
struct Found<'n> {
    /// Wanted, without a container.
    wanted: Vec<&'n str>,
    /// Wanted, with one that does not register.
    silent: Vec<&'n str>,
    /// Given back, with one.
    gone: Vec<&'n str>,
    /// Away, and of those that always stay.
    stay: Vec<&'n str>,
    /// In use, without one.
    lost: Vec<&'n str>,
    /// Down for so long that they can be tried again.
    again: Vec<&'n str>,
}

impl Found<'_> {
    /// Does all of it, and tells the first failure.
    fn carry_out(&self, nodes: &Nodes<'_>, changing: &Changing<'_>) -> Result<()> {
        let some = |all: &[&str], work: &dyn Fn(&[&str]) -> Result<()>| {
            if all.is_empty() { Ok(()) } else { work(all) }
        };
        let done = [
            some(&self.gone, &|names| nodes.end(changing, names)),
            some(&self.silent, &|names| {
                nodes.say(&format!("{}: started anew", names.join(", ")));
                nodes.end(changing, names)?;
                nodes.start(changing, names)
            }),
            some(&self.wanted, &|names| nodes.start(changing, names)),
            some(&self.lost, &|names| {
                nodes.say(&format!("{}: no container runs any more", names.join(", ")));
                nodes.set_down(names, "its container has ended")
            }),
            some(&self.again, &|names| {
                nodes.end(changing, names)?;
                nodes.update(names, &["State=POWER_DOWN_FORCE"])
            }),
            some(&self.stay, &|names| nodes.update(names, &["State=POWER_UP"])),
        ];
        done.into_iter().collect()
    }
}
