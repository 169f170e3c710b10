//! A host behind a stream: its agent runs the commands.

use std::path::{Path, PathBuf};

use remote::channel::Channel;
use remote::launcher::Launcher;
use remote::routes::Route;
use remote::wire::messages::{Facts, OWN, Start};

use super::hosts::{Attach, Done, Host, Task};
use crate::error::{Error, Result};

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
        Ok(self.channel().at_end(self.words(OWN, &super::at::words(words)))?)
    }

    fn begin(&self, start: Start, input: bool) -> Result<Box<dyn Task>> {
        let start = if input { start.with_input() } else { start };
        Ok(Box::new(self.channel().start(&start)?))
    }

    fn words(&self, program: &str, words: &[String]) -> Vec<String> {
        let mut all = vec![program.to_owned()];
        all.extend(self.stores.options());
        all.extend_from_slice(words);
        all
    }
}

impl Host for Remote {
    fn name(&self) -> &str {
        self.channel().name()
    }

    fn run(&self, words: &[String]) -> Result<Done> {
        let running = self.channel().start(&Start::new(self.words(OWN, words)))?;
        let output = running.output(SAYS)?;
        Ok(Done { status: output.ended.exit_status(), out: output.stdout, err: output.stderr })
    }

    fn run_attached(&self, words: &[String], _: Attach) -> Result<u8> {
        let program = self.facts().executable.display().to_string();
        let mut command = self.launcher.terminal(&self.words(&program, words));
        // This process waits for signals that end the launcher.
        sys::child::unblocked(&mut command);
        let program = self.launcher.program();
        super::local::attached(command, &|error| {
            Error::new(format!("cannot start {program}: {error}"))
        })
    }

    fn told(&self) -> Option<(&Facts, Option<&Route>)> {
        Some((self.facts(), self.route.as_ref()))
    }

    fn start(&self, words: &[String], input: bool) -> Result<Box<dyn Task>> {
        self.begin(Start::new(self.words(OWN, words)), input)
    }

    fn launch(&self, words: &[String], input: bool) -> Result<Box<dyn Task>> {
        self.begin(Start::new(words.to_vec()), input)
    }

    fn program(&self) -> Result<Vec<String>> {
        Ok(self.words(&self.facts().executable.display().to_string(), &[]))
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
