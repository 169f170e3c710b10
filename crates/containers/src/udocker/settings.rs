//! Reads udocker's settings: `udocker.conf` and the variables `UDOCKER_*`.
//!
//! The files are `/etc/udocker.conf`, `~/.udocker/udocker.conf`, `$UDOCKER_DIR/udocker.conf` and
//! the one that `--config` names. The environment wins over files, flags win over both. They count
//! only under udocker's name: there they win over Coracle's files, and Coracle's variables win over
//! them. All values are text. Lists and truth values are read with or without quotes; udocker
//! itself takes `"False"` for true. Keys that only describe udocker's own tools are ignored.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::config::{Config, Origin};
use crate::error::{Error, Result};
use crate::images::remote::host_of;

use super::STORE;

/// udocker's usual level of messages: banner and notes.
pub const LEVEL: u8 = 3;

/// A key of the file and the variable with the same meaning.
const KEYS: &[(&str, &str)] = &[
    ("topdir", "UDOCKER_DIR"),
    ("reposdir", "UDOCKER_REPOS"),
    ("layersdir", "UDOCKER_LAYERS"),
    ("containersdir", "UDOCKER_CONTAINERS"),
    ("keystore", "UDOCKER_KEYSTORE"),
    ("verbose_level", "UDOCKER_LOGLEVEL"),
    ("dockerio_registry_url", "UDOCKER_REGISTRY"),
    ("override_default_execution_mode", "UDOCKER_DEFAULT_EXECUTION_MODE"),
    ("tmpdir", "UDOCKER_TMP"),
    ("cmd", ""),
    ("location", ""),
    ("valid_host_env", ""),
    ("invalid_host_env", ""),
    ("timeout", ""),
    ("ctimeout", ""),
    ("use_runc_executable", "UDOCKER_USE_RUNC_EXECUTABLE"),
    ("use_singularity_executable", "UDOCKER_USE_SINGULARITY_EXECUTABLE"),
    ("http_proxy", ""),
    ("http_insecure", ""),
];

/// A value and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Value {
    text: String,
    origin: Origin,
}

/// The settings in force.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    values: BTreeMap<&'static str, Value>,
    /// udocker's directory.
    pub top: PathBuf,
    /// Whether that was named by a file, a variable or a flag.
    pub top_is_named: bool,
}

/// Where the settings come from.
pub struct Sources<'a> {
    /// The environment.
    pub environment: &'a BTreeMap<OsString, OsString>,
    /// The user's home directory.
    pub home: Option<&'a Path>,
    /// `--config`.
    pub file: Option<PathBuf>,
    /// `--repo`.
    pub top: Option<PathBuf>,
}

impl Settings {
    /// Reads all of them.
    pub fn load(sources: &Sources<'_>) -> Result<Self> {
        let mut settings = Self::default();
        let usual = sources.home.map(|home| home.join(".udocker"));
        let named = variable(sources.environment, "UDOCKER_DIR").map(PathBuf::from);
        let mut files = vec![PathBuf::from("/etc/udocker.conf")];
        files.extend(usual.iter().chain(&named).map(|top| top.join("udocker.conf")));
        for file in &files {
            settings.read(file, false)?;
        }
        if let Some(file) = &sources.file {
            settings.read(file, true)?;
        }
        for (key, name) in KEYS.iter().filter(|(_, name)| !name.is_empty()) {
            if let Some(text) = variable(sources.environment, name) {
                let origin = Origin::Environment { name: (*name).to_owned() };
                settings.values.insert(key, Value { text: text.to_owned(), origin });
            }
        }
        if let Some(top) = &sources.top {
            let origin = Origin::Flag { name: "--repo".to_owned() };
            let text = crate::path::text(top)?;
            settings.values.insert("topdir", Value { text, origin });
        }
        let top = settings.path("topdir", sources.home);
        settings.top_is_named = top.is_some();
        settings.top = top.or(usual).unwrap_or_default();
        Ok(settings)
    }

    fn read(&mut self, file: &Path, must_exist: bool) -> Result<()> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(_) if !must_exist => return Ok(()),
            Err(error) => {
                return Err(Error::failed(format!("cannot read {}", file.display())).cause(error));
            }
        };
        for (line, key, text) in parse(&text) {
            if let Some((known, _)) = KEYS.iter().find(|(known, _)| *known == key) {
                let origin = Origin::File { path: file.to_owned(), line };
                self.values.insert(known, Value { text, origin });
            }
        }
        Ok(())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|value| value.text.as_str()).filter(|text| !text.is_empty())
    }

    fn path(&self, key: &str, home: Option<&Path>) -> Option<PathBuf> {
        let text = self.text(key)?;
        Some(match (text.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => PathBuf::from(text),
        })
    }

    /// One of udocker's directories: `repos`, `layers` or `containers`.
    pub fn directory(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}dir"), None).unwrap_or_else(|| self.top.join(name))
    }

    /// The file where udocker keeps credentials.
    pub fn keystore(&self) -> PathBuf {
        self.path("keystore", None).unwrap_or_else(|| self.top.join("keystore"))
    }

    /// The directory for large temporary files, if one is set.
    pub fn temporary(&self) -> Option<PathBuf> {
        self.path("tmpdir", None).filter(|path| path.is_dir())
    }

    /// The tree that every container has as its root (`location`), if one is set.
    pub fn location(&self, home: Option<&Path>) -> Option<PathBuf> {
        self.path("location", home)
    }

    /// The words of a list, written as in Python or in the shell; `None` if it is not set.
    pub fn list(&self, key: &str) -> Option<Vec<String>> {
        let text = self.text(key)?;
        let bare = text.trim_matches(['[', ']', '(', ')', '{', '}']);
        // In brackets a word may have spaces.
        let part = |c: char| c == ',' || bare == text && c.is_whitespace();
        let words = bare.split(part).map(|word| word.trim().trim_matches(['"', '\'']).to_owned());
        Some(words.filter(|word| !word.is_empty()).collect())
    }

    /// Whether this directory was named.
    pub fn is_named(&self, name: &str) -> bool {
        self.text(&format!("{name}dir")).is_some()
    }

    /// The level of messages: 0 none, 3 the usual ones, 5 all.
    pub fn level(&self) -> u8 {
        self.text("verbose_level").and_then(|text| text.parse().ok()).unwrap_or(LEVEL)
    }

    /// Puts the settings that mean something here into the configuration.
    pub fn apply(&self, config: &mut Config) -> Result<()> {
        if self.top_is_named {
            let place = crate::path::text(&self.top.join(STORE))?;
            self.put(config, "topdir", "store.dir", &place)?;
        }
        if let Some(url) = self.text("dockerio_registry_url") {
            let (host, plain) = host_of(url);
            self.put(config, "dockerio_registry_url", "registry.default", &host)?;
            if plain {
                self.put(config, "dockerio_registry_url", "registry.insecure", &host)?;
            }
        }
        if let Some(proxy) = self.text("http_proxy") {
            self.put(config, "http_proxy", "registry.https-proxy", proxy)?;
            self.put(config, "http_proxy", "registry.http-proxy", proxy)?;
        }
        if let Some(text) = self.text("http_insecure") {
            let check = match truth(text) {
                Some(insecure) => (!insecure).to_string(),
                // The setting's own error says what the value should be.
                None => text.to_owned(),
            };
            self.put(config, "http_insecure", "registry.tls-verify", &check)?;
        }
        // Both are the time to wait for a registry that sends nothing.
        if let Some(key) = ["timeout", "ctimeout"].into_iter().find(|key| self.text(key).is_some())
        {
            let seconds = self.text(key).unwrap_or_default();
            self.put(config, key, "registry.timeout", &format!("{seconds}s"))?;
        }
        // The word asks for udocker's own program, which does not exist here.
        for (from, key) in [
            ("use_runc_executable", "run.runtime"),
            ("use_singularity_executable", "run.apptainer"),
        ] {
            if let Some(program) = self.text(from).filter(|text| *text != "UDOCKER") {
                self.put(config, from, key, program)?;
            }
        }
        if let Some(mode) = self.text("override_default_execution_mode") {
            self.put(config, "override_default_execution_mode", "run.execmode", mode)?;
        }
        Ok(())
    }

    fn put(&self, config: &mut Config, from: &str, key: &str, text: &str) -> Result<()> {
        let ours = match config.origin(key) {
            Origin::Environment { name } => name.starts_with("CORACLE_"),
            _ => false,
        };
        match self.values.get(from).filter(|_| !ours) {
            Some(value) => Ok(config.set_from(key, text, value.origin.clone())?),
            None => Ok(()),
        }
    }
}

fn variable<'a>(environment: &'a BTreeMap<OsString, OsString>, name: &str) -> Option<&'a str> {
    environment
        .get(OsStr::new(name))
        .and_then(|value| value.to_str())
        .filter(|text| !text.is_empty())
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" | "none" => Some(false),
        _ => None,
    }
}

/// Lines, keys and values as Python's `configparser` reads them, without quotes around a value.
fn parse(text: &str) -> Vec<(usize, String, String)> {
    let mut found: Vec<(usize, String, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';', '[']) {
            continue;
        }
        if line.starts_with([' ', '\t'])
            && let Some((_, _, value)) = found.last_mut()
        {
            value.push_str(bare);
            continue;
        }
        if let Some((key, value)) = bare.split_once(['=', ':']) {
            let key = key.trim().to_ascii_lowercase();
            // An older form names the class: `Config.topdir`.
            let key = key.strip_prefix("config.").unwrap_or(&key).to_owned();
            found.push((index + 1, key, value.trim().to_owned()));
        }
    }
    for (_, _, value) in &mut found {
        for quote in ['"', '\''] {
            let inner = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
            if let Some(inner) = inner.map(str::to_owned) {
                *value = inner;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_what_they_say() {
        let text = "[DEFAULT]\n# no\nhttp_insecure = False\n; nor this\nTopdir: '/a b'\n\
                    list = [1,\n  2]\nx=\"y=z\"\n";
        let found: Vec<(String, String)> =
            parse(text).into_iter().map(|(_, key, value)| (key, value)).collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            found,
            [
                pair("http_insecure", "False"),
                pair("topdir", "/a b"),
                pair("list", "[1,2]"),
                pair("x", "y=z")
            ]
        );
    }

    #[test]
    fn the_environment_wins_over_files_and_flags_over_both() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("udocker.conf");
        std::fs::write(
            &file,
            "topdir = /file\nhttp_insecure = False\nreposdir = /elsewhere\nverbose_level = 1\n",
        )
        .unwrap();
        let environment = [("UDOCKER_DIR".into(), "/variable".into())].into();
        let mut sources =
            Sources { environment: &environment, home: None, file: Some(file), top: None };
        let settings = Settings::load(&sources).unwrap();
        assert_eq!(settings.top, Path::new("/variable"));
        assert_eq!(settings.directory("repos"), Path::new("/elsewhere"));
        assert_eq!(settings.directory("layers"), Path::new("/variable/layers"));
        assert_eq!(settings.level(), 1);
        let mut config = Config::load(&crate::config::Sources::default()).unwrap();
        settings.apply(&mut config).unwrap();
        assert!(config.settings().tls_verify);
        assert_eq!(config.settings().store_dir.as_deref(), Some(Path::new("/variable/coracle")));
        sources.top = Some("/flag".into());
        assert_eq!(Settings::load(&sources).unwrap().top, Path::new("/flag"));
    }

    #[test]
    fn registries() {
        assert_eq!(host_of("https://registry-1.docker.io"), ("docker.io".into(), false));
        assert_eq!(host_of("http://127.0.0.1:5000/v2"), ("127.0.0.1:5000".into(), true));
    }
}
