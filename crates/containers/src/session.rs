//! Holds what every operation works on: store, facts of the host, settings and dialect.
//!
//! A [`Session`] is made once by a front end, from what the front end has read from its
//! surroundings. It is `Send + Sync`, and any number of operations may use it at once.
//! [`Session::with`] makes a session for one operation: it shares the host's facts and has its own
//! listener and its own [`Cancel`] token. Nothing is looked up before an operation needs it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use store::{ContainerDir, Image};
use sys::arguments::Words;

use crate::config::{IdMapping, Settings};
use crate::dialect::Dialect;
use crate::error::{Error, Result};
use crate::events::{Event, Events, Progress};

/// What a front end has read from its surroundings.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// The environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// The working directory; `None` where it is gone or cannot be read.
    pub directory: Option<PathBuf>,
    /// The words that started this program, its own name first. With these it can be executed
    /// again, where a limit has to be set from outside or its file has to be sealed; `None` where
    /// the process cannot be replaced (a server).
    pub arguments: Option<Words>,
    /// The file of the `coracle` program, which is executed to try what the host allows; `None`
    /// for the file of this process.
    pub program: Option<PathBuf>,
    /// How many threads the process has when an operation is called.
    pub threads: Threads,
}

/// What a front end promises about the threads of its process. See the crate's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Threads {
    /// The process has exactly one thread whenever it calls an operation. Costs nothing.
    One,
    /// It may have several: each operation that forks counts them first, and refuses if there is
    /// more than one.
    #[default]
    Counted,
}

/// Cancels an operation from another thread, or from a signal handler's pipe.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the operation to end. It ends at its next step with [`Error::Cancelled`].
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`Error::Cancelled`] if somebody has cancelled.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            Err(Error::cancelled("the operation was cancelled"))
        } else {
            Ok(())
        }
    }

    /// A reader or writer that fails once somebody has cancelled; [`Cancel::explain`] gives the
    /// failure its meaning back. In a process that an operation has forked the token is a copy,
    /// which stays as it was.
    pub(crate) fn watch<T>(&self, inner: T) -> Watched<'_, T> {
        Watched { inner, cancel: self }
    }

    /// The error of a step that may have failed because somebody has cancelled.
    pub(crate) fn explain(&self, error: Error) -> Error {
        self.check().err().unwrap_or(error)
    }
}

/// A reader or writer that a [`Cancel`] token ends.
pub(crate) struct Watched<'a, T> {
    inner: T,
    cancel: &'a Cancel,
}

impl<T> Watched<'_, T> {
    fn check(&self) -> io::Result<()> {
        let cancelled = || io::Error::other("the operation was cancelled");
        if self.cancel.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    }
}

impl<T: Read> Read for Watched<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.inner.read(buffer)
    }
}

impl<T: Write> Write for Watched<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// How another program's images and containers are used, where the dialect has such a program.
/// Operations reach it through the session, so that they need not know it.
#[derive(Debug, Clone, Copy)]
pub struct Foreign {
    /// Finds the other program's container of this name, and makes it one of this store.
    pub container: fn(&Session, &str) -> Result<Option<ContainerDir>>,
    /// Finds the other program's image of this name, and takes it into this store.
    pub image: fn(&Session, &str) -> Result<Option<Image>>,
    /// Refuses to remove a container whose tree is the other program's.
    pub check_removable: fn(&ContainerDir) -> Result<()>,
    /// Refuses to remove an image that is the other program's.
    pub check_image_removable: fn(&Session, &str) -> Result<()>,
    /// Shows a new container where the other program's users look for it.
    pub announce: fn(&Session, &ContainerDir) -> Result<()>,
}

impl Default for Foreign {
    /// No other program.
    fn default() -> Self {
        Self {
            container: |_, _| Ok(None),
            image: |_, _| Ok(None),
            check_removable: |_| Ok(()),
            check_image_removable: |_, _| Ok(()),
            announce: |_, _| Ok(()),
        }
    }
}

/// The parts of a session that all its operations share.
#[derive(Debug)]
struct Shared {
    surroundings: Arc<Surroundings>,
    settings: Settings,
    dialect: Dialect,
    foreign: Foreign,
    host: OnceLock<host::Host>,
    next_work: AtomicU64,
}

/// What an operation works on.
pub struct Session {
    shared: Arc<Shared>,
    events: Arc<dyn Events>,
    cancel: Cancel,
    store: OnceLock<store::Store>,
}

impl Session {
    /// A session that has looked at nothing yet.
    pub fn new(
        surroundings: Arc<Surroundings>,
        settings: Settings,
        (dialect, foreign): (Dialect, Foreign),
        events: Arc<dyn Events>,
    ) -> Self {
        let shared = Shared {
            surroundings,
            settings,
            dialect,
            foreign,
            host: OnceLock::new(),
            next_work: AtomicU64::new(1),
        };
        let cancel = Cancel::default();
        Self { shared: Arc::new(shared), events, cancel, store: OnceLock::new() }
    }

    /// The same session for one operation, with a listener and a cancellation of its own. It opens
    /// the store for itself, so that a wait for another process is told to this listener and ends
    /// by this token.
    #[must_use]
    pub fn with(&self, events: Arc<dyn Events>, cancel: Cancel) -> Self {
        Self { shared: Arc::clone(&self.shared), events, cancel, store: OnceLock::new() }
    }

    /// Who is told about progress.
    pub fn events(&self) -> &dyn Events {
        &*self.events
    }

    /// The token that cancels this session's operations.
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Tells a line for people.
    pub fn note(&self, text: &str) {
        self.events.event(&Event::Note(text));
    }

    /// Warns.
    pub fn warn(&self, text: &str) {
        self.events.event(&Event::Warning(text));
    }

    /// Begins a piece of work whose progress is told.
    pub fn progress(&self) -> Progress<'_> {
        let work = self.shared.next_work.fetch_add(1, Ordering::Relaxed);
        Progress::new(&*self.events, work)
    }

    /// What differs from one front end's habits to another's.
    pub fn dialect(&self) -> &Dialect {
        &self.shared.dialect
    }

    /// How another program's images and containers are used.
    pub fn foreign(&self) -> &Foreign {
        &self.shared.foreign
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The whole environment.
    pub fn environment(&self) -> &BTreeMap<OsString, OsString> {
        &self.shared.surroundings.environment
    }

    /// A variable that is set, not empty, and UTF-8.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.shared.surroundings.variable(name)
    }

    /// The words that started this program.
    ///
    /// # Errors
    /// Where the process cannot be replaced. `what` needs that.
    pub(crate) fn arguments(&self, what: &str) -> Result<&Words> {
        self.shared.surroundings.arguments.as_ref().ok_or_else(|| {
            Error::unsupported(format!("{what} needs a process that can execute its program again"))
                .with_hint("run it by the command line")
        })
    }

    /// `$HOME`, else what the user database says.
    pub fn home(&self) -> Option<PathBuf> {
        self.shared.surroundings.home()
    }

    /// The working directory.
    pub fn working_directory(&self) -> Result<&Path> {
        self.shared.surroundings.working_directory()
    }

    /// A path of the user's as an absolute one; links stay.
    pub fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.shared.surroundings.absolute(path)
    }

    /// Where the store is, or would be.
    pub fn store_path(&self) -> Result<&Path> {
        self.settings().store_dir.as_deref().ok_or_else(|| {
            Error::invalid("there is no home directory, so there is no place for the store")
                .with_hint(
                    "set HOME, or name a directory: coracle --store DIR ... or CORACLE_DIR=DIR",
                )
        })
    }

    /// The store, made if it does not exist.
    pub fn store(&self) -> Result<&store::Store> {
        if let Some(store) = self.store.get() {
            return Ok(store);
        }
        let (events, cancel) = (Arc::clone(&self.events), self.cancel.clone());
        let on_wait: store::OnWait = Arc::new(move |waiting: &store::Waiting| {
            let text = format!("waiting for {} ({})", waiting.what, waiting.holder);
            events.event(&Event::Waiting(&text));
            if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let wait = store::WaitPolicy { on_wait: Some(on_wait), ..store::WaitPolicy::default() };
        let below = self.settings().store_read_only.clone();
        let options = store::Options { create: true, below, wait, ..store::Options::default() };
        let opened = store::Store::open(self.store_path()?, options)?;
        Ok(self.store.get_or_init(|| opened))
    }

    /// What `host`'s probes may know of the surroundings.
    pub fn probing(&self) -> host::Context {
        let path = self.environment().get(OsStr::new("PATH"));
        let pairs = self.environment().iter();
        let env = pairs
            .filter_map(|(name, value)| {
                Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
            })
            .collect();
        host::Context {
            search: path.map_or_else(
                || host::Context::default().search,
                |path| std::env::split_paths(path).collect(),
            ),
            env,
            store: self.store_path().ok().map(Path::to_owned),
            ..host::Context::default()
        }
    }

    /// What is known about this machine by its files, and by those trials on which the choice of an
    /// engine depends. The trials execute programs (see [`Session::try_inside`]).
    pub fn host(&self) -> &host::Host {
        self.shared.host.get_or_init(|| {
            let mut host = host::Host::quick(&self.probing());
            self.settings().network_helper.restrict(&mut host.programs);
            self.name_programs(&mut host);
            let memory = self.memory_of("host", &host);
            let store = self.store_path().ok();
            host.try_engines(memory.as_deref(), store, self.probing().timeout);
            // In namespaces with one id the engine inside the process shows ids and owners.
            let one =
                || self.settings().userns == IdMapping::One || !engine::facts::maps_ranges(&host);
            let one = host.caller.uid != 0 && one();
            if one || host.namespaces.user.is_fails() || host.overlay.kernel.is_fails() {
                self.try_inside(&mut host);
            }
            host
        })
    }

    /// Tells which programs the user's settings name.
    pub fn name_programs(&self, host: &mut host::Host) {
        if let Some(runtime) = self.settings().runtime.as_deref() {
            host.programs.name(engine::engines::oci::RUNTIME.key, Path::new(runtime));
        }
        if let Some(apptainer) = self.settings().apptainer.as_deref() {
            host.programs.name(engine::engines::apptainer::APPTAINER.key, Path::new(apptainer));
        }
    }

    /// Where what was tried on this machine is remembered, if there is a store.
    fn memory_of(&self, what: &str, host: &host::Host) -> Option<PathBuf> {
        // A directory that is not a store yet must stay as it is: it may be another program's.
        let store = self.store_path().ok().filter(|path| path.join("store.json").exists())?;
        let machine = rustix::system::uname().nodename().to_string_lossy().replace('/', "_");
        Some(store.join(format!("{what}-{machine}-{}.json", host.caller.uid)))
    }

    /// Tries the engines inside the process with the `coracle` program itself, or reads what an
    /// earlier trial found.
    pub fn try_inside(&self, host: &mut host::Host) {
        let memory = self.memory_of("inside", host);
        // Where containers would be, so that what their file system forbids shows. The lease keeps
        // others from sweeping `tmp/` meanwhile.
        let scratch = || {
            let store = memory.as_deref().and_then(Path::parent);
            let held = store.and_then(|_| self.store().ok()?.lease().ok());
            let inside = store.filter(|_| held.is_some()).map(|store| store.join("tmp"));
            let usual = || PathBuf::from(self.variable("TMPDIR").unwrap_or("/tmp"));
            let directory = inside.filter(|path| path.is_dir()).unwrap_or_else(usual);
            let suffix = sys::random::suffix().ok()?;
            Some((directory.join(format!(".coracle-trial-{suffix}")), held))
        };
        let named = self.shared.surroundings.program.clone();
        let Some(program) = named.or_else(|| std::env::current_exe().ok()) else { return };
        let timeout = self.probing().timeout;
        host.inside_process = engine::engines::inprocess::probe::known(
            host,
            memory.as_deref(),
            &program,
            scratch,
            timeout,
        );
    }

    /// Refuses to fork where that is not safe: `doing` says what needs it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the process has more than one thread.
    pub(crate) fn may_fork(&self, doing: &str) -> Result<()> {
        if self.shared.surroundings.threads == Threads::One {
            return Ok(());
        }
        let tasks = std::fs::read_dir("/proc/self/task").map(Iterator::count);
        if tasks.is_ok_and(|count| count == 1) {
            return Ok(());
        }
        Err(Error::unsupported(format!("cannot {doing} in a process with several threads"))
            .because("it forks, and a lock that another thread holds stays locked in the child")
            .with_hint("do it in a process with one thread, made before the first thread"))
    }
}

impl Surroundings {
    /// A variable that is set, not empty, and UTF-8.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment
            .get(OsStr::new(name))
            .and_then(|value| value.to_str())
            .filter(|value| !value.is_empty())
    }

    /// `$HOME`, else what the user database says.
    pub fn home(&self) -> Option<PathBuf> {
        let home = self.variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        home.or_else(|| host::Caller::from_files().home)
    }

    /// The working directory.
    pub fn working_directory(&self) -> Result<&Path> {
        self.directory.as_deref().ok_or_else(|| {
            Error::failed("the working directory is gone or cannot be read")
                .with_hint("change to another one")
        })
    }

    /// A path of the user's as an absolute one; links stay.
    pub fn absolute(&self, path: &Path) -> Result<PathBuf> {
        if path.is_absolute() {
            Ok(path.to_owned())
        } else {
            Ok(self.working_directory()?.join(path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_cancelled_token_ends_a_copy() {
        let cancel = Cancel::default();
        let mut copied = Vec::new();
        let bytes = io::copy(&mut cancel.watch(&b"abc"[..]), &mut copied).unwrap();
        assert_eq!((bytes, &copied[..]), (3, &b"abc"[..]));
        cancel.cancel();
        let failed = io::copy(&mut cancel.watch(&b"abc"[..]), &mut copied).unwrap_err();
        let error = cancel.explain(Error::failed("cannot copy").cause(failed));
        assert_eq!(error.kind(), Kind::Cancelled);
        assert_eq!(cancel.explain(error).within("cannot pull").kind(), Kind::Cancelled);
    }

    #[test]
    fn a_process_with_threads_does_not_fork() {
        let session = Session::new(
            Arc::default(),
            Settings::default(),
            (Dialect::default(), Foreign::default()),
            Arc::new(crate::events::Silent),
        );
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| session.may_fork("start a program")).join().unwrap()
        });
        assert_eq!(refused.unwrap_err().kind(), Kind::Unsupported);
    }
}
