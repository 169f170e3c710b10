//! A host behind a stream: its agent runs the commands.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use remote::channel::Channel;
use remote::launcher::Launcher;
use remote::routes::Route;
use remote::wire::messages::{Facts, OWN, Start};
use sys::arguments;

use super::hosts::{Attach, Done, Host, Task};
use crate::error::{Error, Result};
use crate::plan::Words;

/// A command of the driver says at most so much.
const SAYS: usize = 16 << 20;

/// A host and the stores of the commands on it.
#[derive(Debug)]
pub(super) struct Remote {
    /// Taken when this is dropped.
    channel: Option<Channel>,
    launcher: Launcher,
    stores: Stores,
    /// What leads to the other hosts.
    route: Option<Route>,
}

/// The stores on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stores {
    /// The one that is written.
    pub(super) store: PathBuf,
    /// One that images are read from as well.
    pub(super) read_only: Option<PathBuf>,
    /// The one that is written was made for the cluster, and ends with it.
    pub(super) is_own: bool,
}

impl Stores {
    /// The one that the host's commands use by themselves.
    pub(super) fn usual(store: PathBuf) -> Self {
        Self { store, read_only: None, is_own: false }
    }

    /// The options before a command.
    pub(super) fn options(&self) -> Vec<String> {
        let mut words = vec!["--store".to_owned(), self.store.display().to_string()];
        if let Some(path) = &self.read_only {
            words.extend(["--store-ro".to_owned(), path.display().to_string()]);
        }
        words
    }
}

impl Remote {
    pub(super) fn new(channel: Channel, launcher: Launcher, stores: Stores) -> Self {
        Self { channel: Some(channel), launcher, stores, route: None }
    }

    pub(super) fn set_route(&mut self, route: Option<Route>) {
        self.route = route;
    }

    fn channel(&self) -> &Channel {
        match &self.channel {
            Some(channel) => channel,
            // Only a drop takes it.
            None => unreachable!(),
        }
    }

    pub(super) fn facts(&self) -> &Facts {
        self.channel().facts()
    }

    pub(super) fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    pub(super) fn stores(&self) -> &Stores {
        &self.stores
    }

    /// Tells the agent what it does if this driver is lost.
    pub(super) fn clean_up_by(&self, words: &[&str]) -> Result<()> {
        let own = self.before(OWN);
        Ok(self.channel().at_end([own, super::at::words(words)].concat())?)
    }

    fn start_program(&self, start: Start, input: bool) -> Result<Box<dyn Task>> {
        let start = if input { start.with_input() } else { start };
        Ok(Box::new(self.channel().start(&start)?))
    }

    /// This program there, or another path of it, with the options that stand before a command.
    fn before(&self, program: &str) -> Vec<String> {
        [vec![program.to_owned()], self.stores.options()].concat()
    }

    /// What the agent starts for a command.
    fn command(&self, words: &Words) -> Start {
        let words = words.of_program(self.before(OWN));
        // They are texts, as those that they are made of.
        let text = |word: OsString| word.to_string_lossy().into_owned();
        let variables = words.variables().map(|(name, word)| (name, text(word))).collect();
        Start { variables, ..Start::new(words.shown().into_iter().map(text)) }
    }

    /// The words by which a launcher starts a command. It carries no variables, so a file has what
    /// is hidden, which the command removes; its path is returned, too.
    fn by_launcher(&self, words: &Words) -> Result<(Vec<String>, Option<PathBuf>)> {
        let words = words.of_program(self.program()?);
        let mut all: Vec<String> =
            words.shown().iter().map(|word| word.to_string_lossy().into_owned()).collect();
        if !words.has_hidden() {
            return Ok((all, None));
        }
        let failed = |error| Error::new(format!("a name for a file: {error}"));
        let name = format!("hidden-{}", sys::random::suffix().map_err(failed)?);
        let path = self.facts().runtime.join(name);
        self.put(&path, 0o600, &words.pack())?;
        let variable = format!("{}={}", arguments::VARIABLE, path.display());
        all.splice(..0, ["env".to_owned(), variable]);
        Ok((all, Some(path)))
    }
}

impl Host for Remote {
    fn name(&self) -> &str {
        self.channel().name()
    }

    fn run_until(&self, words: &Words, _: &(dyn Fn() -> bool + Sync)) -> Result<Done> {
        let running = self.channel().start(&self.command(words))?;
        let output = running.output(SAYS)?;
        Ok(Done { status: output.ended.exit_status(), out: output.stdout, err: output.stderr })
    }

    fn run_attached(&self, words: &Words, _: Attach) -> Result<u8> {
        let (words, file) = self.by_launcher(words)?;
        let mut command = self.launcher.terminal(&words);
        // This process waits for signals that end the launcher.
        sys::child::unblocked(&mut command);
        let program = self.launcher.program();
        let ended = super::local::attached(command, &|error| {
            Error::new(format!("cannot start {program}: {error}"))
        });
        if let Some(path) = file {
            // It is there if the launcher has failed.
            let remove = [OsStr::new("rm"), OsStr::new("-f"), path.as_os_str()];
            let remove = remove.map(|word| word.to_string_lossy().into_owned());
            let _ = self.launch(&remove, false).and_then(|task| Done::of(&*task, SAYS));
        }
        ended
    }

    fn told(&self) -> Option<(&Facts, Option<&Route>)> {
        Some((self.facts(), self.route.as_ref()))
    }

    fn begin(&self, words: &Words, input: bool) -> Result<Box<dyn Task>> {
        self.start_program(self.command(words), input)
    }

    fn launch(&self, words: &[String], input: bool) -> Result<Box<dyn Task>> {
        self.start_program(Start::new(words.to_vec()), input)
    }

    fn program(&self) -> Result<Vec<String>> {
        Ok(self.before(&self.facts().executable.display().to_string()))
    }

    fn node_name(&self) -> String {
        self.facts().host.clone()
    }

    fn put(&self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        Ok(self.channel().put(path, mode, &mut &*bytes)?)
    }

    fn lost(&self) -> Option<String> {
        self.channel().lost().map(|why| why.to_string())
    }
}

/// A driver that drops its hosts leaves on purpose; one that is lost does not get here.
impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            channel.close();
        }
    }
}
