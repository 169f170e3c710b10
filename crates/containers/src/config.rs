//! Reads the configuration, and knows where each setting comes from.
//!
//! Five layers, later ones win: the built-in default, `/etc/coracle/config.toml` (the site's),
//! `config.toml` in `$XDG_CONFIG_HOME/coracle` (the user's), the environment, flags. Every value
//! remembers its layer, with file and line, so `coracle config` can say where it comes from and a
//! wrong value is reported where it stands.
//!
//! All settings are declared once, in `settings`: from that declaration come the [`Settings`]
//! struct and its docs, the table that `coracle config` prints, and the section of the manual page
//! (`manual`).
//!
//! A value of the wrong type or out of range is an error. A key that does not exist is a
//! [`Warning`] with the nearest name: a home directory is often shared by machines with different
//! versions of Coracle, and a key that only the newer one knows must not stop the older one.
//!
//! This module reads the files that it is given. It does not look at the environment or for the
//! home directory itself: [`Sources`] comes in from the context. It does not read `registries.conf`
//! and `auth.json` either; it passes their paths.

mod choice;
mod error;
mod expand;
mod file;
mod manual;
pub mod nearest;
mod settings;
mod value;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use choice::{Colour, IdMapping, Progress, PullPolicy};
pub use error::Error;
pub use manual::{environment as manual_environment, section as manual_section};
pub use settings::{SETTINGS, Setting, Settings};
use value::Kind;
pub use value::SettingValue;

/// The site's file.
pub const SYSTEM_FILE: &str = "/etc/coracle/config.toml";

/// Variables `CORACLE_*` that are not settings. They are not warned of.
const OTHER_VARIABLES: &[&str] = &["CORACLE_CONFIG", "CORACLE_LOG", "CORACLE_DOOR"];

/// What the layers are made of. Made by the context, which alone may look at the environment.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// Files, in the order in which they are read: the site's, then the user's. Those that do not
    /// exist are passed over.
    pub files: Vec<PathBuf>,
    /// The file that the user named (`CORACLE_CONFIG`): read last, and must exist.
    pub named_file: Option<PathBuf>,
    /// The environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// The user's home directory, if there is one; defaults are derived from it.
    pub home: Option<PathBuf>,
    /// The working directory: relative paths in variables and flags are seen from here.
    pub directory: Option<PathBuf>,
}

impl Sources {
    /// The usual sources for an environment and a home directory.
    pub fn usual(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        home: Option<PathBuf>,
        directory: Option<PathBuf>,
    ) -> Sources {
        let environment: BTreeMap<OsString, OsString> = environment.into_iter().collect();
        let configuration = absolute(&environment, "XDG_CONFIG_HOME")
            .or_else(|| Some(home.as_deref()?.join(".config")));
        let mut files = vec![PathBuf::from(SYSTEM_FILE)];
        files.extend(configuration.map(|directory| directory.join("coracle/config.toml")));
        let named_file = environment
            .get(OsStr::new("CORACLE_CONFIG"))
            .filter(|value| !value.is_empty())
            .map(PathBuf::from);
        Sources { files, named_file, environment, home, directory }
    }
}

/// A variable that holds an absolute path. The XDG specification says that relative ones are to be
/// ignored.
fn absolute(environment: &BTreeMap<OsString, OsString>, name: &str) -> Option<PathBuf> {
    environment.get(OsStr::new(name)).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum Origin {
    /// Built in.
    #[default]
    Default,
    /// A file.
    File {
        /// Which one.
        path: PathBuf,
        /// The line of the key, counted from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment {
        /// Its name.
        name: String,
    },
    /// A flag of this command line.
    Flag {
        /// Its name, with the dashes.
        name: String,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => out.write_str("default"),
            Origin::File { path, line } => write!(out, "{}:{line}", path.display()),
            Origin::Environment { name } => write!(out, "environment {name}"),
            Origin::Flag { name } => write!(out, "flag {name}"),
        }
    }
}

/// Something in the configuration that has no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where it stands.
    pub origin: Origin,
    /// The key or variable that is not known.
    pub key: String,
    /// The nearest name that is.
    pub nearest: Option<String>,
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Environment { .. } => {
                write!(out, "environment: unknown variable {}", self.key)?;
            }
            origin => write!(out, "{origin}: unknown key {:?}", self.key)?,
        }
        match &self.nearest {
            Some(nearest) => write!(out, ", did you mean {nearest:?}?"),
            None => out.write_str(" (see `coracle config`)"),
        }
    }
}

/// The settings in force, each with its origin.
#[derive(Debug, Clone)]
pub struct Config {
    settings: Settings,
    origins: BTreeMap<&'static str, Origin>,
    warnings: Vec<Warning>,
    directory: Option<PathBuf>,
}

/// One line of `coracle config`.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// Dotted key.
    pub key: &'static str,
    /// The value, as JSON has it.
    pub value: serde_json::Value,
    /// The value, as a person writes it.
    #[serde(skip)]
    pub text: String,
    /// Where it comes from.
    pub origin: Origin,
}

impl Config {
    /// Reads all layers but the flags.
    pub fn load(sources: &Sources) -> Result<Config, Error> {
        let mut config = Config {
            settings: Settings::default(),
            origins: BTreeMap::new(),
            warnings: Vec::new(),
            directory: sources.directory.clone(),
        };
        config.derive_defaults(sources);
        for path in &sources.files {
            config.read_file(path, sources, false)?;
        }
        if let Some(path) = &sources.named_file {
            config.read_file(path, sources, true)?;
        }
        config.read_environment(&sources.environment)?;
        Ok(config)
    }

    /// The values.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What had no effect.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Where the value of a key comes from.
    pub fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or_default()
    }

    /// Puts a flag's value over what was read. `flag` is its name with the dashes.
    pub fn set_flag(&mut self, key: &str, value: &str, flag: &str) -> Result<(), Error> {
        self.set_text(find(key)?, value, Origin::Flag { name: flag.into() })
    }

    /// Puts a value from another program's settings over what was read.
    pub fn set_from(&mut self, key: &str, value: &str, origin: Origin) -> Result<(), Error> {
        self.set_text(find(key)?, value, origin)
    }

    /// One setting. Keys may be written with `_` for `-`.
    pub fn entry(&self, key: &str) -> Result<Entry, Error> {
        let setting = find(key)?;
        Ok(Entry {
            key: setting.key,
            value: (setting.json)(&self.settings),
            text: (setting.text)(&self.settings),
            origin: self.origin(setting.key),
        })
    }

    /// All settings, in the order of their declaration.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        SETTINGS.iter().map(|setting| Entry {
            key: setting.key,
            value: (setting.json)(&self.settings),
            text: (setting.text)(&self.settings),
            origin: self.origin(setting.key),
        })
    }

    /// Defaults that depend on the user's directories.
    fn derive_defaults(&mut self, sources: &Sources) {
        let environment = &sources.environment;
        let data = absolute(environment, "XDG_DATA_HOME").map(|path| (path, "XDG_DATA_HOME"));
        let home = || Some((sources.home.as_deref()?.join(".local/share"), ""));
        if let Some((data, variable)) = data.or_else(home) {
            self.settings.store_dir = Some(data.join("coracle"));
            if !variable.is_empty() {
                let origin = Origin::Environment { name: variable.into() };
                self.origins.insert("store.dir", origin);
            }
        }
        let configuration = absolute(environment, "XDG_CONFIG_HOME")
            .or_else(|| Some(sources.home.as_deref()?.join(".config")));
        if let Some(configuration) = configuration {
            self.settings.auth_file = Some(configuration.join("coracle/auth.json"));
        }
    }

    fn read_file(&mut self, path: &Path, sources: &Sources, must_exist: bool) -> Result<(), Error> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(source) if !must_exist && is_absent(&source) => return Ok(()),
            Err(source) => return Err(Error::Read { path: path.to_owned(), source }),
        };
        let around = expand::Surroundings {
            environment: &sources.environment,
            home: sources.home.as_deref(),
        };
        for item in file::parse(path, &text)? {
            let origin = Origin::File { path: path.to_owned(), line: item.line };
            match find(&item.key) {
                Ok(setting) => {
                    let value = match setting.kind {
                        Kind::Path | Kind::Paths => around.expand_value(&item.value),
                        _ => Ok(item.value.clone()),
                    };
                    value
                        .and_then(|value| (setting.set_toml)(&mut self.settings, &value))
                        .map_err(|wanted| Error::value(setting, &item.value, wanted, &origin))?;
                    self.origins.insert(setting.key, origin);
                }
                Err(_) => self.warnings.push(Warning {
                    origin,
                    nearest: nearest_key(&item.key).map(str::to_owned),
                    key: item.key,
                }),
            }
        }
        Ok(())
    }

    fn read_environment(
        &mut self,
        environment: &BTreeMap<OsString, OsString>,
    ) -> Result<(), Error> {
        for setting in SETTINGS {
            for variable in setting.environment {
                // `NO_COLOR=never` in the declaration: any value of NO_COLOR that is not empty
                // means "never".
                let (name, meaning) = match variable.split_once('=') {
                    Some((name, meaning)) => (name, Some(meaning)),
                    None => (*variable, None),
                };
                let Some(raw) = environment.get(OsStr::new(name)).filter(|raw| !raw.is_empty())
                else {
                    continue;
                };
                let origin = Origin::Environment { name: name.into() };
                let text = match (meaning, raw.to_str()) {
                    (Some(meaning), _) => meaning,
                    (None, Some(text)) => text,
                    (None, None) => return Err(Error::NotUnicode { origin }),
                };
                self.set_text(setting, text, origin)?;
                break;
            }
        }
        self.warn_of_variables(environment);
        Ok(())
    }

    /// A variable that is nearly a setting's is a slip of the pen. One that is far from all is
    /// somebody's own.
    fn warn_of_variables(&mut self, environment: &BTreeMap<OsString, OsString>) {
        let known = || SETTINGS.iter().flat_map(|setting| setting.environment).copied();
        for name in environment.keys().filter_map(|name| name.to_str()) {
            if !name.starts_with("CORACLE_")
                || OTHER_VARIABLES.contains(&name)
                || known().any(|variable| variable == name)
            {
                continue;
            }
            if let Some(nearest) = nearest::nearest(name, known(), 2) {
                self.warnings.push(Warning {
                    origin: Origin::Environment { name: name.into() },
                    key: name.into(),
                    nearest: Some(nearest.into()),
                });
            }
        }
    }

    fn set_text(&mut self, setting: &Setting, text: &str, origin: Origin) -> Result<(), Error> {
        let here = self.directory.as_deref();
        let seen = match setting.kind {
            Kind::Path => expand::from_directory(here, text),
            Kind::Paths => {
                let parts: Vec<String> =
                    text.split(':').map(|part| expand::from_directory(here, part)).collect();
                parts.join(":")
            }
            _ => text.to_owned(),
        };
        (setting.set_text)(&mut self.settings, &seen).map_err(|wanted| {
            let shown = toml::Value::String(text.into());
            Error::value(setting, &shown, wanted, &origin)
        })?;
        self.origins.insert(setting.key, origin);
        Ok(())
    }
}

/// A file that is not there, or in a directory that is not one or not for us: then it is not our
/// configuration.
fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

fn find(key: &str) -> Result<&'static Setting, Error> {
    let wanted = key.replace('_', "-");
    SETTINGS.iter().find(|setting| setting.key == wanted).ok_or_else(|| Error::UnknownKey {
        key: key.into(),
        nearest: nearest_key(&wanted).map(str::to_owned),
    })
}

fn nearest_key(key: &str) -> Option<&'static str> {
    let keys = || SETTINGS.iter().map(|setting| setting.key);
    nearest::nearest(key, keys(), 3).or_else(|| {
        // `dir` or `run.parallel` for `registry.parallel`: the right word in the wrong section.
        let last = |key: &'static str| key.rsplit('.').next().unwrap_or(key);
        let word = key.rsplit('.').next().unwrap_or(key);
        keys().find(|known| last(known) == word)
    })
}

#[cfg(test)]
mod tests;
