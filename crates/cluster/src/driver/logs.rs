//! What the containers of a cluster write, in one stream: each line behind the name of its
//! container.
//!
//! Each container has a thread that takes its log from its host, puts its lines together and
//! writes as many as there are by one call, under a lock. So lines are never mixed, and a reader
//! that is slow makes all wait: memory holds a line and some pieces of each container. When
//! following, containers that come later are followed, too.

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use remote::channel::{Event, Stream};
use remote::wire::messages::Ended;

use super::status::{short, status};
use super::{Container, Hosts, Task, member};
use crate::error::{Error, Result};

/// A longer line is broken, so that it does not fill the memory.
const LONGEST: usize = 1 << 20;
const TERM: i32 = 15;
/// How often is looked whether somebody still wants it.
const LOOK: Duration = Duration::from_millis(100);
/// How often is looked for new containers.
const NEW: Duration = Duration::from_secs(2);
/// Colours of names, as compose has them: cyan, yellow, green, magenta, blue.
const COLOURS: [&str; 5] = ["\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[34m"];

/// What is wanted of the logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logs {
    /// Goes on as they grow, until nothing of the cluster runs.
    pub follow: bool,
    /// Only so many lines of each from the end.
    pub tail: Option<u64>,
    /// With times.
    pub timestamps: bool,
}

/// Who reads the logs.
pub trait Reader: Sync {
    /// Takes whole lines. Returns false if no more is wanted.
    ///
    /// # Errors
    /// If they cannot be written.
    fn take(&self, stream: Stream, lines: &[u8]) -> Result<bool>;
    /// Whether names are shown in colours.
    fn is_coloured(&self, stream: Stream) -> bool;
    /// Whether no more is wanted. Asked some times a second.
    fn is_stopped(&self) -> bool;
}

impl Logs {
    /// Shows the logs of a cluster's containers: of all, or of those that are meant by names.
    ///
    /// # Errors
    /// If there are none, or a log cannot be read.
    pub fn show(
        &self,
        cluster: &str,
        names: &[String],
        hosts: &Hosts,
        reader: &dyn Reader,
    ) -> Result<()> {
        let all = member::members(cluster, hosts)?;
        let chosen = chosen(cluster, names, &all)?;
        let width = chosen.iter().map(|one| short(cluster, &one.name).len()).max();
        let show = Show { logs: self, cluster, names, hosts, reader, width: width.unwrap_or(0) };
        show.all(&chosen)
    }

    fn words(&self, container: &str, is_late: bool) -> Vec<String> {
        let mut words = vec!["logs".to_owned()];
        words.extend(self.follow.then(|| "--follow".to_owned()));
        words.extend(self.timestamps.then(|| "--timestamps".to_owned()));
        // All of a container that has come later.
        words.extend(self.tail.filter(|_| !is_late).map(|tail| format!("--tail={tail}")));
        words.push(container.to_owned());
        words
    }
}

fn chosen(cluster: &str, names: &[String], all: &[Container]) -> Result<Vec<Container>> {
    if names.is_empty() {
        return Ok(all.iter().filter(|container| !container.role.is_empty()).cloned().collect());
    }
    let mut chosen: Vec<Container> = Vec::new();
    for name in names {
        for container in member::meant(cluster, name, all)? {
            if !chosen.contains(&container) {
                chosen.push(container);
            }
        }
    }
    Ok(chosen)
}

struct Show<'s> {
    logs: &'s Logs,
    cluster: &'s str,
    names: &'s [String],
    hosts: &'s Hosts,
    reader: &'s dyn Reader,
    width: usize,
}

/// A log that is read, or was.
struct Source {
    /// `None` when it has ended.
    task: Option<Arc<dyn Task>>,
    has_failed: bool,
}

impl Source {
    const fn of(task: Arc<dyn Task>) -> Self {
        Self { task: Some(task), has_failed: false }
    }
}

/// What a thread says at its end: its container, and why it ended.
type End = (String, Result<()>);

impl Show<'_> {
    fn all(&self, chosen: &[Container]) -> Result<()> {
        let (sender, ends) = channel::<End>();
        let lock = Mutex::new(());
        std::thread::scope(|scope| {
            let mut sources: HashMap<String, Source> = HashMap::new();
            let mut failure: Option<Error> = None;
            let mut found = chosen.to_vec();
            let mut next = Instant::now() + NEW;
            let (mut is_late, mut is_wanted, mut is_given_up) = (false, true, false);
            loop {
                for container in found.drain(..) {
                    let begun = self.begin(scope, &container, is_late, (&sender, &lock));
                    match begun {
                        Ok(task) => drop(sources.insert(container.name, Source::of(task))),
                        Err(error) => {
                            failure.get_or_insert(error);
                            is_given_up = true;
                        }
                    }
                }
                is_late = true;
                is_wanted &= !self.reader.is_stopped();
                if is_given_up || !is_wanted {
                    for task in sources.values().filter_map(|source| source.task.as_ref()) {
                        let _ = task.signal(TERM);
                    }
                }
                if let Ok((name, ended)) = ends.recv_timeout(LOOK) {
                    is_wanted &= !matches!(&ended, Err(error) if *error == gone());
                    sources.insert(name, Source { task: None, has_failed: ended.is_err() });
                    failure = failure.or(ended.err());
                }
                let is_live = sources.values().any(|source| source.task.is_some());
                let looks = self.logs.follow && is_wanted && !is_given_up;
                if looks && (!is_live || Instant::now() >= next) {
                    next = Instant::now() + NEW;
                    match self.not_followed(&sources) {
                        Ok(more) => found = more,
                        Err(error) => {
                            failure.get_or_insert(error);
                            is_given_up = true;
                        }
                    }
                }
                if !is_live && found.is_empty() {
                    break;
                }
            }
            match failure {
                Some(error) if is_wanted => Err(error),
                _ => Ok(()),
            }
        })
    }

    /// Containers that run and are not followed.
    fn not_followed(&self, sources: &HashMap<String, Source>) -> Result<Vec<Container>> {
        let all = status(self.cluster, self.hosts)?;
        let mut found = chosen(self.cluster, &[], &all)?;
        found.retain(|container| {
            let is_known = sources
                .get(&container.name)
                .is_some_and(|source| source.task.is_some() || source.has_failed);
            let meant = |name: &String| {
                member::meant(self.cluster, name, std::slice::from_ref(container)).is_ok()
            };
            let is_chosen = self.names.is_empty() || self.names.iter().any(meant);
            container.state == "running" && !is_known && is_chosen
        });
        Ok(found)
    }

    fn begin<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        container: &Container,
        is_late: bool,
        (sender, lock): (&Sender<End>, &'scope Mutex<()>),
    ) -> Result<Arc<dyn Task>> {
        let words = self.logs.words(&container.name, is_late);
        let host = self.hosts.of(Some(&container.host))?;
        let task: Arc<dyn Task> = Arc::from(host.start(&words, false)?);
        let (name, sender, own) = (container.name.clone(), sender.clone(), Arc::clone(&task));
        scope.spawn(move || {
            let ended = self.read(&name, &*own, lock);
            let _ = own.signal(TERM);
            let _ = sender.send((name, ended));
        });
        Ok(task)
    }

    /// Reads one log to its end.
    fn read(&self, name: &str, task: &dyn Task, lock: &Mutex<()>) -> Result<()> {
        let short = short(self.cluster, name);
        let sum: usize = short.bytes().map(usize::from).sum();
        let colour = COLOURS[sum % COLOURS.len()];
        let head = |stream: Stream| {
            let name = format!("{short:<width$} | ", width = self.width);
            if self.reader.is_coloured(stream) { format!("{colour}{name}\x1b[0m") } else { name }
        };
        let [mut out, mut err] =
            [Stream::Output, Stream::Errors].map(|stream| (stream, Lines::behind(head(stream))));
        let write = |stream: Stream, lines: &[u8]| -> Result<()> {
            let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.is_empty() || self.reader.take(stream, lines)? { Ok(()) } else { Err(gone()) }
        };
        let mut whole = Vec::new();
        loop {
            let Some(event) = task.event() else { return Ok(()) };
            let ended = match event {
                Event::Output(stream, bytes) => {
                    let (_, lines) = if stream == Stream::Output { &mut out } else { &mut err };
                    whole.clear();
                    lines.take(&bytes, &mut whole);
                    write(stream, &whole)?;
                    continue;
                }
                Event::Ended(ended) => Ok(ended),
                Event::Failed(why) => Err(Error::new(format!("the log of {name}: {why}"))),
                Event::Lost(why) => Err(Error::new(format!("the log of {name}: {why}"))),
            };
            for (stream, lines) in [&mut out, &mut err] {
                whole.clear();
                lines.finish(&mut whole);
                write(*stream, &whole)?;
            }
            return match ended? {
                Ended::Code(0) => Ok(()),
                _ => Err(Error::new(format!("the log of {name} cannot be read"))),
            };
        }
    }
}

/// The reader wants no more.
fn gone() -> Error {
    Error::new("nobody reads the logs")
}

/// Puts lines together, each behind a text.
struct Lines {
    head: String,
    begun: Vec<u8>,
}

impl Lines {
    const fn behind(head: String) -> Self {
        Self { head, begun: Vec::new() }
    }

    /// Takes a piece of a stream and gives the lines that it completes.
    fn take(&mut self, mut piece: &[u8], whole: &mut Vec<u8>) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(&piece[..end]);
            self.give(whole);
            piece = &piece[end + 1..];
        }
        while self.begun.len() + piece.len() > LONGEST {
            let (now, rest) = piece.split_at(LONGEST - self.begun.len());
            self.begun.extend_from_slice(now);
            self.give(whole);
            piece = rest;
        }
        self.begun.extend_from_slice(piece);
    }

    /// Gives a line that has no end.
    fn finish(&mut self, whole: &mut Vec<u8>) {
        if !self.begun.is_empty() {
            self.give(whole);
        }
    }

    fn give(&mut self, whole: &mut Vec<u8>) {
        whole.extend_from_slice(self.head.as_bytes());
        whole.append(&mut self.begun);
        whole.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_whatever_the_pieces() {
        let text = b"one\n\ntwo\r\nlast".repeat(3);
        let want = "a | one\na | \na | two\r\na | lastone\na | \na | two\r\na | lastone\na | \n\
                    a | two\r\na | last\n";
        for size in 1..text.len() {
            let (mut lines, mut whole) = (Lines::behind("a | ".to_owned()), Vec::new());
            for piece in text.chunks(size) {
                lines.take(piece, &mut whole);
            }
            lines.finish(&mut whole);
            assert_eq!(String::from_utf8(whole).unwrap(), want, "pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_an_end_does_not_fill_the_memory() {
        let (mut lines, mut whole) = (Lines::behind("a | ".to_owned()), Vec::new());
        for _ in 0..100 {
            whole.clear();
            lines.take(&vec![b'x'; LONGEST / 3], &mut whole);
            assert!(lines.begun.len() <= LONGEST && whole.len() <= LONGEST + 5);
        }
    }
}
