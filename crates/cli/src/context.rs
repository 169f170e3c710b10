//! Everything that comes from the surroundings: environment, home and working directory, terminals, configuration,
//! the store and the host. The only place that looks at them; what is looked up is looked up once, and only if
//! a command asks, because most commands need little and start-up time is felt.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use crate::args::Global;
use crate::config::{Config, Settings, Sources};
use crate::report::{Exit, Report};
use crate::udocker;

/// The surroundings of one command.
pub(crate) struct Context {
    /// Options before the command.
    pub global: Global,
    environment: BTreeMap<OsString, OsString>,
    as_udocker: bool,
    directory: Option<PathBuf>,
    input_is_terminal: bool,
    output_is_terminal: bool,
    config: OnceCell<Config>,
    udocker: OnceCell<udocker::settings::Settings>,
    store: OnceCell<store::Store>,
    host: OnceCell<host::Host>,
}

impl Context {
    /// Looks at the environment, and at nothing else yet.
    pub(crate) fn new(global: Global) -> Self {
        let environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        Self {
            global,
            as_udocker: udocker::is_called(),
            environment,
            directory: std::env::current_dir().ok(),
            input_is_terminal: std::io::stdin().is_terminal(),
            output_is_terminal: std::io::stdout().is_terminal(),
            config: OnceCell::new(),
            udocker: OnceCell::new(),
            store: OnceCell::new(),
            host: OnceCell::new(),
        }
    }

    /// The whole environment.
    pub(crate) fn environment(&self) -> &BTreeMap<OsString, OsString> {
        &self.environment
    }

    /// A variable that is set, not empty, and text.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment
            .get(OsStr::new(name))
            .and_then(|value| value.to_str())
            .filter(|value| !value.is_empty())
    }

    /// Whether the program was called by udocker's name, whose habits then hold.
    pub(crate) fn is_udocker(&self) -> bool {
        self.as_udocker
    }

    /// udocker's settings. They say where its directory is under any name, and count only under its own.
    pub(crate) fn udocker(&self) -> Result<&udocker::settings::Settings, Report> {
        if let Some(settings) = self.udocker.get() {
            return Ok(settings);
        }
        let own = self.is_udocker();
        let absolute = |path: &Option<PathBuf>| {
            path.as_deref().filter(|_| own).map(|path| self.absolute(path)).transpose()
        };
        let home = self.home();
        let settings = udocker::settings::Settings::load(&udocker::settings::Sources {
            environment: &self.environment,
            home: home.as_deref(),
            file: absolute(&self.global.config)?,
            top: absolute(&self.global.store)?,
        })?;
        Ok(self.udocker.get_or_init(|| settings))
    }

    /// Whether only errors and what was asked for are told: `--quiet`, or what udocker's users say by its level.
    pub(crate) fn is_quiet(&self) -> bool {
        self.global.quiet || self.is_udocker() && self.udocker_level() < udocker::settings::LEVEL
    }

    /// How much udocker's users want to be told (0 to 5).
    pub(crate) fn udocker_level(&self) -> u8 {
        self.udocker().map_or(0, udocker::settings::Settings::level)
    }

    /// `$HOME`, else what the user database says.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        let home = self.variable("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        home.or_else(|| host::Caller::from_files().home)
    }

    /// The working directory.
    pub(crate) fn working_directory(&self) -> Result<&Path, Report> {
        self.directory.as_deref().ok_or_else(|| {
            Report::new("the working directory is gone or cannot be read")
                .hint("change to another one")
        })
    }

    /// A path of the user's as an absolute one; links stay.
    pub(crate) fn absolute(&self, path: &Path) -> Result<PathBuf, Report> {
        if path.is_absolute() {
            Ok(path.to_owned())
        } else {
            Ok(self.working_directory()?.join(path))
        }
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Result<&Config, Report> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let mut sources =
            Sources::usual(self.environment.clone(), self.home(), std::env::current_dir().ok());
        let own = self.is_udocker();
        if let Some(file) = self.global.config.as_deref().filter(|_| !own) {
            sources.files.clear();
            sources.named_file = Some(self.absolute(file)?);
        }
        let mut config = Config::load(&sources)?;
        if own {
            self.udocker()?.apply(&mut config)?;
        }
        if let Some(directory) = &self.global.store {
            let mut directory = self.absolute(directory)?;
            if own {
                if !directory.is_dir() {
                    return Err(Report::new(format!("{} is no repository", directory.display()))
                        .hint(format!("make it: udocker mkrepo {}", directory.display()))
                        .exit(Exit(1)));
                }
                directory.push(udocker::STORE);
            }
            config.set_flag("store.dir", &text(&directory)?, "--store")?;
        }
        if !self.is_quiet() {
            for warning in config.warnings() {
                crate::progress::note(&format!("warning: {warning}"));
            }
        }
        Ok(self.config.get_or_init(|| config))
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Result<&Settings, Report> {
        self.config().map(Config::settings)
    }

    /// Where the store is, or would be.
    pub(crate) fn store_path(&self) -> Result<PathBuf, Report> {
        self.settings()?.store_dir.clone().ok_or_else(|| {
            Report::new("there is no home directory, so there is no place for the store")
                .hint("set HOME, or name a directory: coracle --store DIR ... or CORACLE_DIR=DIR")
        })
    }

    /// The store, made if it is not there.
    pub(crate) fn store(&self) -> Result<&store::Store, Report> {
        if let Some(store) = self.store.get() {
            return Ok(store);
        }
        let settings = self.settings()?;
        let mut below = settings.store_read_only.clone();
        for path in &self.global.store_ro {
            below.push(self.absolute(path)?);
        }
        let quiet = self.is_quiet();
        let on_wait: store::OnWait = std::sync::Arc::new(move |waiting: &store::Waiting| {
            if !quiet {
                crate::progress::note(&format!(
                    "waiting for {} ({})",
                    waiting.what, waiting.holder
                ));
            }
            std::ops::ControlFlow::Continue(())
        });
        let wait = store::WaitPolicy { on_wait: Some(on_wait), ..store::WaitPolicy::default() };
        let options = store::Options { create: true, below, wait, ..store::Options::default() };
        let opened = store::Store::open(&self.store_path()?, options)?;
        Ok(self.store.get_or_init(|| opened))
    }

    /// What `host`'s probes may know of the surroundings.
    pub(crate) fn probing(&self) -> host::Context {
        let path = self.environment.get(OsStr::new("PATH"));
        let env = self
            .environment
            .iter()
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
            store: self.store_path().ok(),
            ..host::Context::default()
        }
    }

    /// What is known about this machine by its files, and by those trials that the choice of an engine hangs on.
    pub(crate) fn host(&self) -> &host::Host {
        self.host.get_or_init(|| {
            let mut host = host::Host::quick(&self.probing());
            // A configuration that cannot be read is reported by whoever needs its values first.
            if let Ok(settings) = self.settings() {
                settings.network_helper.restrict(&mut host.programs);
            }
            self.name_programs(&mut host);
            let memory = self.memory_of("host", &host);
            host.try_engines(memory.as_deref(), self.probing().timeout);
            if host.namespaces.user.is_fails() {
                self.try_inside(&mut host);
            }
            host
        })
    }

    /// Tells which programs the user's settings name.
    pub(crate) fn name_programs(&self, host: &mut host::Host) {
        let settings = self.settings().ok();
        if let Some(runtime) = settings.and_then(|settings| settings.runtime.as_deref()) {
            host.programs.name(engine::facts::NAMED_RUNTIME, Path::new(runtime));
        }
        if let Some(apptainer) = settings.and_then(|settings| settings.apptainer.as_deref()) {
            host.programs.name(engine::facts::NAMED_APPTAINER, Path::new(apptainer));
        }
    }

    /// Where what was tried on this machine is remembered, if there is a store.
    fn memory_of(&self, what: &str, host: &host::Host) -> Option<PathBuf> {
        // In a directory that is yet to become a store, a file of ours would be a stranger's.
        let store = self.store_path().ok().filter(|path| path.join("store.json").exists())?;
        let machine = rustix::system::uname().nodename().to_string_lossy().replace('/', "_");
        Some(store.join(format!("{what}-{machine}-{}.json", host.caller.uid)))
    }

    /// Tries the engine inside the process with this very program, or remembers what came of it.
    pub(crate) fn try_inside(&self, host: &mut host::Host) {
        let memory = self.memory_of("inside", host);
        // Where containers would be, so that what their file system forbids shows. The lease keeps
        // others from sweeping `tmp/` meanwhile.
        let scratch = || {
            let store = memory.as_deref().and_then(Path::parent);
            let held = store.and_then(|_| self.store().ok()?.lease().ok());
            let inside = store.filter(|_| held.is_some()).map(|store| store.join("tmp"));
            let directory = inside.filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir);
            let suffix = sys::random::suffix().ok()?;
            Some((directory.join(format!(".coracle-trial-{suffix}")), held))
        };
        let Ok(program) = std::env::current_exe() else { return };
        let timeout = self.probing().timeout;
        host.inside_process = engine::engines::inprocess::probe::known(
            host,
            memory.as_deref(),
            &program,
            scratch,
            timeout,
        );
    }

    /// Whether standard input is a terminal.
    pub(crate) fn input_is_terminal(&self) -> bool {
        self.input_is_terminal
    }

    /// Whether standard output is a terminal.
    pub(crate) fn output_is_terminal(&self) -> bool {
        self.output_is_terminal
    }
}

/// A path that has to go into a record as text.
pub(crate) fn text(path: &Path) -> Result<String, Report> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Report::new(format!("the path {} is not UTF-8", path.display()))
            .hint("rename it, or reach it by a link")
    })
}
