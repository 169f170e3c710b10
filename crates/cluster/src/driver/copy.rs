//! Copies files between this machine and the containers of a cluster, and between these.
//!
//! The container's end is `coracle cp` on its host, with an archive as its input or output, so the
//! host may be any. What the archive's first entry is called, and where it is unpacked, follows
//! Docker's rules for names as `coracle cp` has them.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use containers::Session;
use containers::container::copy::{Found, Landing, Packing, Source, is_directory, spool};
use remote::channel::{Event, Stream};

use super::archive::{HEAD, feed, result};
use super::{Container, Hosts, Task, member};
use crate::error::{Error, Result};

/// Copies of a cluster.
pub struct Copies<'c> {
    /// The cluster.
    pub cluster: &'c str,
    /// Its hosts.
    pub hosts: &'c Hosts,
    /// What is on this machine.
    pub session: &'c Session,
    /// Follow a link that the source is.
    pub follow: bool,
    /// Owners stay; else all belongs to the container's root.
    pub keep_owners: bool,
}

/// A place in a container of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inside<'p> {
    /// The node, service or container.
    pub node: &'p str,
    /// The path.
    pub path: &'p str,
}

impl Copies<'_> {
    /// From a container to this machine.
    ///
    /// # Errors
    /// If one of the two cannot be read or written.
    pub fn copy_out(&self, from: Inside<'_>, target: &Path) -> Result<()> {
        let landing = Landing::of(from.path, target)?;
        let mut file = spool(self.session)?;
        self.write(from, Some(&landing.entry), &mut file)?;
        Ok(landing.unpack(file)?)
    }

    /// Writes something of a container as an archive.
    ///
    /// # Errors
    /// If it cannot be read, or the archive cannot be written.
    pub fn archive_out(&self, from: Inside<'_>, to: &mut dyn Write) -> Result<()> {
        self.write(from, None, to)
    }

    /// From this machine into a container.
    ///
    /// # Errors
    /// If one of the two cannot be read or written.
    pub fn copy_in(&self, source: &Path, to: Inside<'_>) -> Result<()> {
        let packing = Packing::of(source, self.follow)?;
        let container = member::running(self.cluster, to.node, self.hosts)?;
        let found = self.look(&container, to.path)?;
        let (directory, entry) = packing.place(to.node, to.path, found)?;
        let mut file = packing.pack(self.session, &entry, self.keep_owners)?;
        self.read(&container, &directory, &mut file)
    }

    /// Unpacks an archive in a directory of a container.
    ///
    /// # Errors
    /// If it cannot be read, or the directory does not exist.
    pub fn archive_into(&self, archive: &mut (dyn Read + Send), to: Inside<'_>) -> Result<()> {
        let container = member::running(self.cluster, to.node, self.hosts)?;
        self.read(&container, to.path, archive)
    }

    /// From one container into another one. Nothing is kept on this machine.
    ///
    /// # Errors
    /// If one of the two cannot be read or written.
    pub fn between(&self, from: Inside<'_>, to: Inside<'_>) -> Result<()> {
        let source = member::running(self.cluster, from.node, self.hosts)?;
        let target = member::running(self.cluster, to.node, self.hosts)?;
        let is_directory = match self.look(&source, from.path)? {
            Found::Directory => true,
            Found::File => false,
            Found::Nothing => {
                let fact = format!("there is no {} in {}", from.path, source.name);
                return Err(Error::new(fact));
            }
        };
        let shown = format!("{}:{}", from.node, from.path);
        let found = self.look(&target, to.path)?;
        let place = Source::in_container(&shown, from.path, is_directory);
        let (directory, entry) = place.place(to.node, to.path, found)?;
        let entry = entry.to_string_lossy();
        let reading = self.begin(&source, &self.out_words(&source, from.path, Some(&entry)))?;
        let writing = self.begin_input(&target, &directory)?;
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| result(&*writing, &target.name, &mut |_| Ok(())));
            let moved = result(&*reading, &source.name, &mut |bytes| {
                writing.input(bytes).map_err(|_| Error::new(CLOSED))
            });
            if moved.is_ok() {
                let _ = writing.close_input();
            } else {
                // Without its end the archive is not taken for whole.
                let _ = writing.signal(15);
            }
            let ended = ended.join().unwrap_or_else(|_| Err(Error::new("the copy was given up")));
            // Which of the two has failed: a target that ends early is the cause.
            match (moved, ended) {
                (Ok(()), ended) => ended,
                (Err(error), Err(other)) if error.to_string() == CLOSED => Err(other),
                (Err(error), _) => Err(error),
            }
        })
    }

    fn out_words(&self, container: &Container, path: &str, entry: Option<&str>) -> Vec<String> {
        let mut words = vec!["cp".to_owned()];
        words.extend(self.follow.then(|| "-L".to_owned()));
        words.extend(entry.map(|entry| format!("--entry={entry}")));
        words.extend(["--".to_owned(), format!("{}:{path}", container.name), "-".to_owned()]);
        words
    }

    fn begin(&self, container: &Container, words: &[String]) -> Result<Box<dyn Task>> {
        self.hosts.of(Some(&container.host))?.start(words, false)
    }

    fn begin_input(&self, container: &Container, directory: &str) -> Result<Box<dyn Task>> {
        let mut words = vec!["cp".to_owned()];
        words.extend(self.keep_owners.then(|| "-a".to_owned()));
        words.extend(["--".into(), "-".into(), format!("{}:{directory}", container.name)]);
        self.hosts.of(Some(&container.host))?.start(&words, true)
    }

    fn write(&self, from: Inside<'_>, entry: Option<&str>, to: &mut dyn Write) -> Result<()> {
        let container = member::running(self.cluster, from.node, self.hosts)?;
        let task = self.begin(&container, &self.out_words(&container, from.path, entry))?;
        let write = |error: std::io::Error| Error::new(format!("cannot write the copy: {error}"));
        result(&*task, &container.name, &mut |bytes| to.write_all(bytes).map_err(write))?;
        to.flush().map_err(write)
    }

    fn read(
        &self,
        container: &Container,
        directory: &str,
        archive: &mut (dyn Read + Send),
    ) -> Result<()> {
        let task = self.begin_input(container, directory)?;
        feed(&*task, &container.name, archive)
    }

    /// What is at a path in a container.
    fn look(&self, container: &Container, path: &str) -> Result<Found> {
        let mut words = self.out_words(container, path, Some("x"));
        words.insert(1, "-L".to_owned());
        let task = self.begin(container, &words)?;
        let mut file = spool(self.session)?;
        let mut count = 0;
        // An error means that nothing is there.
        while let Some(event) = task.event() {
            if let Event::Output(Stream::Output, bytes) = event {
                count += bytes.len();
                write_head(&mut file, &bytes)?;
                if count >= HEAD {
                    break;
                }
            }
        }
        match count {
            0..512 => Ok(Found::Nothing),
            _ if is_directory(&file)? => Ok(Found::Directory),
            _ => Ok(Found::File),
        }
    }
}

fn write_head(file: &mut File, bytes: &[u8]) -> Result<()> {
    file.write_all(bytes).map_err(|error| Error::new(format!("cannot write the copy: {error}")))
}

/// What an error says of a command that reads no more.
const CLOSED: &str = "the other end of the copy has ended";
