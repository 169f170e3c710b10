//! The nodes of a Slurm.
//!
//! What its controller asks for comes by a door whose path is always the same, so a driver that is
//! started again goes on; it is done in the order in which it comes. What was asked while none was
//! there is found by comparing what the controller says of its nodes with the containers, which is
//! done all the time: so nodes that have died are told, too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use remote::wire::Kind;
use remote::wire::frames::Frame;
use remote::wire::messages::Ended;

use super::{Lasting, Nodes};
use crate::door::Request;
use crate::driver::doors::{self, Door};
use crate::driver::follow::GLANCE;
use crate::driver::scale::Changing;
use crate::driver::{Container, INTERRUPTED};
use crate::error::{Error, Result};
use crate::slurm::{self, Action, Node};

/// How often the nodes are compared with the containers.
const COMPARE: Duration = Duration::from_secs(5);
/// A node whose container runs registers within so long, or the container is started anew.
const REGISTERS: Duration = Duration::from_secs(25);
/// A door that has ended is opened again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// Starts and ends nodes until the watcher asks for the end. `doors` is the directory of doors on
/// the controller's host.
pub(super) fn serve(nodes: &Nodes<'_>, doors: &str) {
    let door = format!("{doors}/{}", slurm::DOOR);
    thread::scope(|scope| {
        scope.spawn(|| nodes.up.often((COMPARE, COMPARE), || nodes.compare()));
        nodes.up.often((AGAIN, AGAIN), || nodes.serve_door(&door));
    });
}

impl Nodes<'_> {
    /// Serves a door until it ends, or the watcher asks for the end.
    fn serve_door(&self, door: &str) -> Result<()> {
        let (task, decoder) = doors::open_at(self.host, door)?;
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
            let done = door.read(decoder, |Frame { kind, id, payload }| {
                if kind == Kind::Start {
                    let _ = sender.send((id, payload));
                }
                Ok(())
            });
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
        let (starts, what) = match action {
            Action::Resume => (true, "wanted"),
            Action::Suspend => (false, "given back"),
            Action::Failed => (false, "not registered in time"),
            Action::Ready => return Err(Error::new("a driver cannot be asked for that")),
        };
        self.say(&format!("{}: {what}", names.join(", ")));
        loop {
            let done = self.up.changing(|changing| {
                if starts { self.resume(changing, names) } else { self.give_back(changing, names) }
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

    /// Ends nodes that were given back. One that was asked for again meanwhile, and is in use,
    /// stays.
    fn give_back(&self, changing: &Changing<'_>, names: &[&str]) -> Result<()> {
        let states = self.states()?;
        let may_go = |name: &&str| {
            let state = states.iter().find(|node| node.name == *name);
            state.is_none_or(|node| node.is_away() || node.is_wanted() || node.is_down())
        };
        let names: Vec<&str> = names.iter().copied().filter(may_go).collect();
        self.end(changing, &names)
    }

    /// Starts the containers of nodes. The controller is told of those that do not start.
    fn resume(&self, changing: &Changing<'_>, names: &[&str]) -> Result<()> {
        let is_lost = |name: &str| {
            self.member(name).is_some_and(|(service, number)| self.is_on_lost(service, number))
        };
        let (lost, names): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| is_lost(name));
        let mut told = Ok(());
        if !lost.is_empty() {
            self.say(&format!("{}: not started: the host is lost", lost.join(", ")));
            told = self.set_down(&lost, "its host is lost");
        }
        let failed = self.start(changing, &names)?;
        let failed: Vec<&str> = failed.iter().map(|name| &**name).collect();
        if !failed.is_empty() {
            told = told.and(self.set_down(&failed, "its container was not started"));
        }
        told
    }

    /// Has the controller put the jobs of nodes into the queue again.
    fn set_down(&self, names: &[&str], why: &str) -> Result<()> {
        self.update(names, &["State=DOWN", &format!("Reason={why}")])
    }

    fn update(&self, names: &[&str], what: &[&str]) -> Result<()> {
        let of = format!("NodeName={}", names.join(","));
        self.scontrol(&[&["update", &of], what].concat()).map(drop)
    }

    fn scontrol(&self, command: &[&str]) -> Result<String> {
        self.ask(&[&["scontrol"], command].concat())
    }

    /// What the controller says of its nodes.
    fn states(&self) -> Result<Vec<Node>> {
        Ok(slurm::nodes(&self.scontrol(&["show", "nodes", "--oneliner"])?))
    }

    /// Compares what the controller says of its nodes with the containers. Others are kept from
    /// changing the cluster only where there is something to do.
    fn compare(&self) -> Result<()> {
        if self.differences()?.is_none() {
            return Ok(());
        }
        let mend = |changing: &Changing<'_>| match self.differences()? {
            Some(found) => found.carry_out(self, changing),
            None => Ok(()),
        };
        self.up.changing(mend).map(drop)
    }

    /// What is to be done; `None` if that is nothing.
    fn differences(&self) -> Result<Option<Found>> {
        let nodes = self.states()?;
        let there: BTreeMap<String, Container> = self.containers()?;
        let mut found = Found::default();
        for node in &nodes {
            let Some((service, number)) = self.member(&node.name) else { continue };
            let Some(kind) = self.kind(service) else { continue };
            let (name, state) = (&node.name, there.get(&node.name));
            let runs = state.is_some_and(|one| one.state == "running");
            // What has to last before something is done.
            let lasts = match (node.is_down(), node.is_wanted()) {
                (true, _) if !runs || node.is_silent() => Some((Lasting::Down, kind.idle)),
                (false, true) if runs => Some((Lasting::Unregistered, REGISTERS)),
                _ => None,
            };
            let is_lost = self.is_on_lost(service, number);
            let lasts = lasts.filter(|_| !is_lost);
            let has_lasted = self.has_lasted(name, lasts);
            let add = |all: &mut Vec<String>, is: bool| all.extend(is.then(|| name.clone()));
            let may_start = self.may_start(&kind.name);
            if node.is_down() {
                add(&mut found.again, has_lasted && may_start);
            } else if node.is_wanted() {
                let is_silent = runs && has_lasted;
                add(&mut found.silent, is_silent);
                add(&mut found.wanted, !runs && may_start);
                found.failed.extend(state.filter(|_| is_silent || !runs && may_start).cloned());
            } else if node.is_away() {
                add(&mut found.gone, state.is_some());
                add(&mut found.stay, node.is_off() && number <= kind.min && !is_lost);
            } else if !runs {
                add(if is_lost { &mut found.cut_off } else { &mut found.lost }, true);
                found.failed.extend(state.cloned());
            }
        }
        // Those of a file that had more.
        let is_known = |name: &String| nodes.iter().any(|node| node.name == *name);
        let unknown = there.keys().filter(|name| self.member(name).is_some() && !is_known(name));
        if !nodes.is_empty() {
            found.gone.extend(unknown.cloned());
        }
        Ok((!found.is_nothing()).then_some(found))
    }
}

/// Nodes whose containers are not what they should be.
#[derive(Default)]
struct Found {
    /// Wanted, without a container.
    wanted: Vec<String>,
    /// Wanted, with one that does not register.
    silent: Vec<String>,
    /// Given back, with one.
    gone: Vec<String>,
    /// Away, and of those that always stay.
    stay: Vec<String>,
    /// In use, without one.
    lost: Vec<String>,
    /// In use, on a host that is lost.
    cut_off: Vec<String>,
    /// Down for so long that they can be tried again.
    again: Vec<String>,
    /// Containers that should answer, and have ended or are silent.
    failed: Vec<Container>,
}

impl Found {
    fn is_nothing(&self) -> bool {
        let now = [&self.wanted, &self.silent, &self.gone, &self.stay, &self.lost, &self.cut_off];
        now.iter().all(|all| all.is_empty()) && self.again.is_empty()
    }

    /// Does all of it, and tells the first failure.
    fn carry_out(&self, nodes: &Nodes<'_>, changing: &Changing<'_>) -> Result<()> {
        let some = |all: &[String], work: &dyn Fn(&[&str]) -> Result<()>| {
            let names: Vec<&str> = all.iter().map(|name| &**name).collect();
            if names.is_empty() { Ok(()) } else { work(&names) }
        };
        self.failed.iter().for_each(|container| nodes.tell_failed(container));
        let done = [
            some(&self.gone, &|names| nodes.end(changing, names)),
            some(&self.silent, &|names| {
                nodes.say(&format!("{}: started anew", names.join(", ")));
                nodes.forget(names);
                nodes.end(changing, names)?;
                nodes.resume(changing, names)
            }),
            some(&self.wanted, &|names| nodes.resume(changing, names)),
            some(&self.lost, &|names| {
                nodes.say(&format!("{}: no container runs any more", names.join(", ")));
                nodes.set_down(names, "its container has ended")
            }),
            some(&self.cut_off, &|names| nodes.set_down(names, "its host is lost")),
            some(&self.again, &|names| {
                nodes.forget(names);
                nodes.end(changing, names)?;
                nodes.update(names, &["State=POWER_DOWN_FORCE"])
            }),
            some(&self.stay, &|names| nodes.update(names, &["State=POWER_UP"])),
        ];
        done.into_iter().collect()
    }
}
