//! The one place that reads the environment, the working directory and the terminals, and the
//! session that operations get from it.
//!
//! What is looked up is looked up once, and only if a command asks, because most commands need
//! little and start-up time is felt.

use std::cell::OnceCell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use containers::config::{self, Config, Settings, Sources};
use containers::udocker;
use containers::{Cancel, Dialect, Foreign, Session, Surroundings, Threads};
use sys::arguments::Words;

use crate::args::global::Global;
use crate::dialect::Presentation;
use crate::report::{Exit, Report};
use crate::terminal::{Shown, Terminal};

/// What a command shows less than usual while it is under way.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Show {
    /// No progress.
    pub quiet: bool,
    /// Progress on a terminal only, no lines elsewhere.
    pub bars_only: bool,
    /// No banner.
    pub no_banner: bool,
}

/// The surroundings of one command.
pub(crate) struct Context {
    /// Options before the command.
    pub global: Global,
    surroundings: Arc<Surroundings>,
    presentation: Presentation,
    input_is_terminal: bool,
    output_is_terminal: bool,
    config: OnceCell<Config>,
    udocker: OnceCell<udocker::settings::Settings>,
    session: OnceCell<Session>,
}

/// The words of this process, with what others do not see of them.
pub(crate) fn words() -> std::io::Result<Words> {
    Words::received(std::env::args_os(), std::env::vars_os())
}

impl Context {
    /// Looks at the environment, and at nothing else yet.
    pub(crate) fn new(global: Global, words: Words) -> Self {
        let as_udocker = crate::dialect::is_udocker();
        Self {
            global,
            surroundings: Arc::new(Surroundings {
                environment: std::env::vars_os().collect(),
                directory: std::env::current_dir().ok(),
                arguments: Some(words),
                program: None,
                threads: Threads::One,
            }),
            presentation: Presentation::of(as_udocker),
            input_is_terminal: std::io::stdin().is_terminal(),
            output_is_terminal: std::io::stdout().is_terminal(),
            config: OnceCell::new(),
            udocker: OnceCell::new(),
            session: OnceCell::new(),
        }
    }

    /// What operations work on.
    pub(crate) fn session(&self) -> Result<&Session, Report> {
        if let Some(session) = self.session.get() {
            return Ok(session);
        }
        let mut settings = self.settings()?.clone();
        for path in &self.global.store_ro {
            settings.store_read_only.push(self.absolute(path)?);
        }
        settings.tls_verify &= !self.global.insecure;
        let dialect = if self.presentation.as_udocker {
            let dialect = udocker::dialect(self.udocker()?, self.home().as_deref());
            (dialect, udocker::legacy::FOREIGN)
        } else {
            (Dialect::default(), Foreign::default())
        };
        let terminal = Arc::new(self.terminal(Show::default())?);
        let session = Session::new(Arc::clone(&self.surroundings), settings, dialect, terminal);
        Ok(self.session.get_or_init(|| session))
    }

    /// The session for a command that may be asked to show no progress (`--quiet`).
    pub(crate) fn session_for(&self, quiet: bool) -> Result<Session, Report> {
        self.session_showing(Show { quiet, ..Show::default() })
    }

    /// The session for a command that shows less than usual.
    pub(crate) fn session_showing(&self, show: Show) -> Result<Session, Report> {
        let terminal = self.terminal(show)?;
        Ok(self.session()?.with(Arc::new(terminal), Cancel::default()))
    }

    fn terminal(&self, show: Show) -> Result<Terminal, Report> {
        let is_quiet = self.is_quiet();
        Ok(Terminal::new(Shown {
            progress: if show.quiet || is_quiet {
                config::Progress::None
            } else {
                self.settings()?.progress
            },
            bars_only: show.bars_only,
            waiting: !is_quiet,
            banner: self.presentation.banner
                && self.output_is_terminal
                && !is_quiet
                && !show.no_banner,
        }))
    }

    /// How answers look, which differs under udocker's name.
    pub(crate) fn presentation(&self) -> &Presentation {
        &self.presentation
    }

    /// The surroundings that the session is made of.
    pub(crate) fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// The variables of this process that are texts, with their values.
    pub(crate) fn texts(&self) -> Vec<(String, String)> {
        let all = self.surroundings.environment.iter();
        let texts = all.filter_map(|(name, value)| {
            Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
        });
        texts.collect()
    }

    /// udocker's settings. They say where its directory is under any name, and count only under its
    /// own.
    pub(crate) fn udocker(&self) -> Result<&udocker::settings::Settings, Report> {
        if let Some(settings) = self.udocker.get() {
            return Ok(settings);
        }
        let own = self.presentation.as_udocker;
        let absolute = |path: &Option<PathBuf>| {
            path.as_deref().filter(|_| own).map(|path| self.absolute(path)).transpose()
        };
        let home = self.home();
        let settings = udocker::settings::Settings::load(&udocker::settings::Sources {
            environment: &self.surroundings.environment,
            home: home.as_deref(),
            file: absolute(&self.global.config)?,
            top: absolute(&self.global.store)?,
        })?;
        Ok(self.udocker.get_or_init(|| settings))
    }

    /// Whether only errors and the answer are shown: `--quiet`, or udocker's level of messages.
    pub(crate) fn is_quiet(&self) -> bool {
        let level = || self.udocker().map_or(0, udocker::settings::Settings::level);
        self.global.quiet || self.presentation.as_udocker && level() < udocker::settings::LEVEL
    }

    /// `$HOME`, else what the user database says.
    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.surroundings.home()
    }

    /// A path of the user's as an absolute one; links stay.
    pub(crate) fn absolute(&self, path: &Path) -> Result<PathBuf, Report> {
        Ok(self.surroundings.absolute(path)?)
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Result<&Config, Report> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let Surroundings { environment, directory, .. } = &*self.surroundings;
        let mut sources = Sources::usual(environment.clone(), self.home(), directory.clone());
        let own = self.presentation.as_udocker;
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
                    return Err(Report::new(format!(
                        "{} is not a repository",
                        directory.display()
                    ))
                    .hint(format!("make it: udocker mkrepo {}", directory.display()))
                    .exit(Exit(1)));
                }
                directory.push(udocker::STORE);
            }
            config.set_flag("store.dir", &containers::path::text(&directory)?, "--store")?;
        }
        if !self.is_quiet() {
            for warning in config.warnings() {
                crate::terminal::note(&format!("warning: {warning}"));
            }
        }
        Ok(self.config.get_or_init(|| config))
    }

    /// The settings in force.
    pub(crate) fn settings(&self) -> Result<&Settings, Report> {
        self.config().map(Config::settings)
    }

    /// The store, made if it does not exist.
    pub(crate) fn store(&self) -> Result<&store::Store, Report> {
        Ok(self.session()?.store()?)
    }

    /// Whether standard input and standard output are terminals.
    pub(crate) fn on_terminal(&self) -> bool {
        self.input_is_terminal && self.output_is_terminal
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
