//! The driver's end of the doors ([`crate::door`]): it runs what containers of nodes ask for in
//! those of others.
//!
//! Each door has a thread that takes what comes from it, and each command two ([`session`]). The
//! door's thread starts commands, and waits for none of them.

mod session;

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use remote::channel::{Event, Stream};
use remote::wire::frames::{self, Decoder, Frame};
use remote::wire::messages::number;
use remote::wire::{self, Kind};

use super::hosts::{at_once, lock};
use super::{Host, Hosts, Task};
use crate::door::{Request, VARIABLE};
use crate::error::{Error, Result};
use crate::plan::{self, Plan, Words};

use session::Session;

/// A door gets so long to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// So much of what a door says of errors is kept, in bytes.
const WORDS: usize = 4096;

/// A node's container or a host, and where it is.
struct Target {
    name: String,
    /// `None` for the host itself.
    container: Option<String>,
    host: Weak<dyn Host>,
    /// The path of its host's door in its container.
    door: String,
}

/// Where commands can be run, and the options with their variables.
struct Targets {
    nodes: Vec<Target>,
    variables: Vec<String>,
}

/// A door that is open: its host, its path, its process, and what that has sent.
type Found = (Option<String>, String, Box<dyn Task>, Decoder);

/// The doors of a cluster. They are closed when this is dropped, and their commands get SIGTERM.
pub(super) struct Doors(Vec<Opened>);

struct Opened {
    host: Option<String>,
    /// Its path in the containers.
    path: String,
    door: Arc<Door>,
    /// Is closed when the door has ended.
    ended: Receiver<()>,
}

/// What the threads of a door share.
pub(super) struct Door {
    task: Box<dyn Task>,
    sessions: Mutex<HashMap<u32, Arc<Session>>>,
    /// Held while a frame is written.
    writing: Mutex<()>,
}

impl Doors {
    /// Opens a door on each host that has nodes. The containers are there.
    ///
    /// # Errors
    /// If one cannot be opened.
    pub(super) fn open(plan: &Plan, hosts: &Hosts) -> Result<Self> {
        let mut places: Vec<(Option<&str>, &str)> = Vec::new();
        for node in &plan.nodes {
            if !places.iter().any(|(host, _)| *host == node.host.as_deref()) {
                places.push((node.host.as_deref(), &node.doors));
            }
        }
        let open = |(host, directory): (Option<&str>, &str)| {
            let (path, task, decoder) = open(hosts.of(host)?, directory)?;
            // The directory has this name in the containers.
            let path = path.replacen(directory, plan::DOORS, 1);
            Ok((host.map(str::to_owned), path, task, decoder))
        };
        let found: Result<Vec<Found>> = at_once(places.into_iter(), open).into_iter().collect();
        let found = found?;
        let target = |node: &plan::Node| {
            let door = found.iter().find(|(host, ..)| *host == node.host);
            Ok(Target {
                name: node.name.clone(),
                container: Some(node.container.clone()),
                host: hosts.shared(node.host.as_deref())?,
                door: door.map(|(_, path, ..)| path.clone()).unwrap_or_default(),
            })
        };
        let nodes: Result<Vec<_>> = plan.nodes.iter().map(target).collect();
        let targets = Arc::new(Targets { nodes: nodes?, variables: plan.variables.clone() });
        Self::serve(found, &targets)
    }

    /// Opens a door on one host to these hosts themselves, by the names that they have for
    /// themselves. `directory` is where its socket is.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(super) fn to_hosts(
        from: Option<&str>,
        directory: &str,
        names: &[Option<String>],
        hosts: &Hosts,
    ) -> Result<Self> {
        let (path, task, decoder) = open(hosts.of(from)?, directory)?;
        let target = |name: &Option<String>| {
            let host = hosts.of(name.as_deref())?;
            let (name, host) = (host.node_name(), hosts.shared(name.as_deref())?);
            Ok(Target { name, container: None, host, door: path.clone() })
        };
        let nodes: Result<Vec<_>> = names.iter().map(target).collect();
        let targets = Arc::new(Targets { nodes: nodes?, variables: Vec::new() });
        Self::serve(vec![(from.map(str::to_owned), path, task, decoder)], &targets)
    }

    /// The variable that says where the door of a host is.
    pub(super) fn variable(&self, host: Option<&str>) -> Option<String> {
        let door = self.0.iter().find(|opened| opened.host.as_deref() == host);
        door.map(|opened| format!("{VARIABLE}={}", opened.path))
    }

    fn serve(found: Vec<Found>, targets: &Arc<Targets>) -> Result<Self> {
        let mut doors = Vec::new();
        for (host, path, task, decoder) in found {
            let door = Arc::new(Door::of(task));
            let (sender, ended) = channel();
            let (reader, targets) = (Arc::clone(&door), Arc::clone(targets));
            let read = move || {
                // What is wrong with a door's stream, its clients see: it ends.
                let _ = reader.read(decoder, |frame| reader.frame(frame, &targets));
                reader.end_sessions();
                reader.close();
                drop(sender);
            };
            let named = thread::Builder::new().name("door".to_owned());
            named.spawn(read).map_err(|error| Error::new(format!("a thread: {error}")))?;
            doors.push(Opened { host, path, door, ended });
        }
        Ok(Self(doors))
    }

    /// The words of an `exec` on a host, with the variable that says where its door is.
    pub(super) fn told(&self, host: Option<&str>, words: &Words) -> Words {
        let Some((variable, first)) = self.variable(host).zip(words.first()) else {
            return words.clone();
        };
        let mut told = Words::from(vec![first.clone(), "-e".to_owned(), variable]);
        told.append(words.without_first(1));
        told
    }
}

impl Drop for Doors {
    fn drop(&mut self) {
        for opened in &self.0 {
            opened.door.end_sessions();
            opened.door.close();
        }
        for opened in &self.0 {
            if opened.ended.recv_timeout(PATIENCE)
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                let _ = opened.door.task.signal(9);
            }
        }
    }
}

/// Opens the door of a host. Returns the path of its socket there.
fn open(host: &dyn Host, directory: &str) -> Result<(String, Box<dyn Task>, Decoder)> {
    let failed = |error| Error::new(format!("a name for a socket: {error}"));
    let path = format!("{directory}/{}", sys::random::suffix().map_err(failed)?);
    let (task, decoder) = open_at(host, &path)?;
    Ok((path, task, decoder))
}

/// Opens a door whose socket has this path.
pub(super) fn open_at(host: &dyn Host, path: &str) -> Result<(Box<dyn Task>, Decoder)> {
    let words = ["cluster", "door", path].map(str::to_owned);
    let task = host.start(&words, true)?;
    let decoder = opened(&*task)?;
    Ok((task, decoder))
}

/// Waits until a door is open. Returns what it has sent, which may have begun already.
fn opened(task: &dyn Task) -> Result<Decoder> {
    let (mut decoder, mut said) = (Decoder::default(), Vec::new());
    let cannot = |why: &str| Error::new(format!("no door for the nodes: {why}"));
    while let Some(event) = task.event() {
        match event {
            Event::Output(Stream::Output, bytes) => {
                decoder.feed(&bytes);
                match decoder.take().map_err(|error| cannot(&error.to_string()))? {
                    Some(Frame { kind: Kind::Done, .. }) => return Ok(decoder),
                    Some(frame) => {
                        return Err(cannot(&wire::Error::Unexpected(frame.kind).to_string()));
                    }
                    None => {}
                }
            }
            Event::Output(Stream::Errors, bytes) => said.extend(bytes.iter().take(WORDS)),
            Event::Failed(why) => return Err(cannot(&why)),
            Event::Lost(why) => return Err(cannot(&why.to_string())),
            Event::Ended(_) => break,
        }
    }
    let said = String::from_utf8_lossy(&said);
    let said = said.trim();
    Err(cannot(said.strip_prefix("error: ").unwrap_or(said)))
}

impl Door {
    pub(super) fn of(task: Box<dyn Task>) -> Self {
        Self { task, sessions: Mutex::default(), writing: Mutex::default() }
    }

    /// Has its process end.
    pub(super) fn close(&self) {
        let _ = self.task.close_input();
    }

    /// Writes a frame for a connection; false if the door is gone.
    pub(super) fn write(&self, kind: Kind, connection: u32, payload: &[u8]) -> bool {
        let mut frame = VecDeque::new();
        if frames::append(&mut frame, kind, connection, payload).is_err() {
            return false;
        }
        let _held = lock(&self.writing);
        self.task.input(frame.make_contiguous()).is_ok()
    }

    pub(super) fn refuse(&self, connection: u32, why: &str) {
        lock(&self.sessions).remove(&connection);
        self.write(Kind::Refused, connection, why.as_bytes());
    }

    fn end_sessions(&self) {
        let sessions = std::mem::take(&mut *lock(&self.sessions));
        for session in sessions.values() {
            session.end();
        }
    }

    /// Has frames taken until the door has ended.
    pub(super) fn read(
        &self,
        mut decoder: Decoder,
        mut take: impl FnMut(Frame) -> Result<(), wire::Error>,
    ) -> Result<(), wire::Error> {
        loop {
            while let Some(frame) = decoder.take()? {
                take(frame)?;
            }
            match self.task.event() {
                Some(Event::Output(Stream::Output, bytes)) => decoder.feed(&bytes),
                Some(Event::Output(Stream::Errors, _)) => {}
                _ => return Ok(()),
            }
        }
    }

    fn frame(self: &Arc<Self>, frame: Frame, targets: &Targets) -> Result<(), wire::Error> {
        let Frame { kind, id, payload } = frame;
        if kind == Kind::Start {
            match Request::unpack(&payload) {
                Ok(request) => self.start(id, &request, targets),
                Err(error) => self.refuse(id, &error.to_string()),
            }
            return Ok(());
        }
        // One that has ended is told what it has not seen yet.
        let Some(session) = lock(&self.sessions).get(&id).cloned() else { return Ok(()) };
        match kind {
            Kind::Input => {
                if !session.feed(payload) {
                    session.end();
                    self.refuse(id, &wire::Error::Credit(id).to_string());
                }
            }
            Kind::CloseInput => session.close_input(),
            Kind::Signal => session.signal(number(kind, &payload)?.cast_signed()),
            Kind::Credit => session.credit(number(kind, &payload)? as usize),
            Kind::Bye => {
                lock(&self.sessions).remove(&id);
                session.end();
            }
            kind => return Err(wire::Error::Unexpected(kind)),
        }
        Ok(())
    }

    fn start(self: &Arc<Self>, id: u32, request: &Request, targets: &Targets) {
        let wanted = |target: &&Target| {
            target.name == request.node || target.container.as_ref() == Some(&request.node)
        };
        let Some(target) = targets.nodes.iter().find(wanted) else {
            let last = targets.nodes.last().map_or("", |target| &target.name);
            let why =
                format!("{} is not a node of this cluster: they are node1 to {last}", request.node);
            return self.refuse(id, &why);
        };
        let lost = |why: &str| format!("{} is lost: {why}", request.node);
        let Some(host) = target.host.upgrade() else {
            return self.refuse(id, &lost("the driver ends"));
        };
        let shell = ["/bin/sh", "-c", &request.command].map(str::to_owned);
        let task = match &target.container {
            None => host.launch(&shell, request.input),
            Some(container) => {
                let mut words = vec!["exec".to_owned(), "-i".to_owned()];
                words.extend(["-e".to_owned(), format!("{VARIABLE}={}", target.door)]);
                words.extend_from_slice(&targets.variables);
                if let Some(user) = &request.user {
                    words.extend(["--user".to_owned(), user.clone()]);
                }
                words.push(container.clone());
                words.extend(shell);
                host.start(&words, request.input)
            }
        };
        let task = match task {
            Ok(task) => task,
            Err(error) => return self.refuse(id, &lost(&error.to_string())),
        };
        let session = Session::new(task);
        lock(&self.sessions).insert(id, Arc::clone(&session));
        let of = session::Of {
            door: Arc::clone(self),
            connection: id,
            node: request.node.clone(),
            container: target.container.clone(),
            host: Weak::clone(&target.host),
        };
        if let Err(error) = session.run(of, request.input) {
            session.end();
            self.refuse(id, &format!("the driver has no thread for it: {error}"));
        }
    }
}

#[cfg(test)]
mod tests;
