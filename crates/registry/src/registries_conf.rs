//! Reads podman's `registries.conf`, version 2 (containers-registries.conf(5)): mirrors, rewrites,
//! insecure and blocked registries.
//!
//! A `[[registry]]` applies to the references that begin with its `prefix` (else `location`); the
//! longest one wins. Its mirrors are tried in order before its own location. Drop-in files replace
//! the registries of the same prefix. `unqualified-search-registries` and `short-name-mode` are
//! ignored: a short name means Docker Hub here, as in Docker. Version 1's lists of insecure and
//! blocked registries are read too.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use oci::Reference;
use serde::Deserialize;

use crate::{Error, limits};

/// Mirrors, rewrites and blocks.
#[derive(Debug, Clone, Default)]
pub struct RegistriesConf {
    registries: BTreeMap<String, Registry>,
}

#[derive(Debug, Clone)]
struct Registry {
    location: Option<String>,
    insecure: bool,
    blocked: bool,
    mirror_by_digest_only: bool,
    mirrors: Vec<Mirror>,
    path: PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::struct_field_names, reason = "the names of the file")]
struct Mirror {
    location: String,
    #[serde(default)]
    insecure: bool,
    pull_from_mirror: Option<String>,
}

#[derive(Deserialize)]
struct FileV2 {
    #[serde(default)]
    registry: Vec<RegistryTable>,
    registries: Option<FileV1>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RegistryTable {
    prefix: Option<String>,
    location: Option<String>,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    blocked: bool,
    #[serde(default)]
    mirror_by_digest_only: bool,
    #[serde(default)]
    mirror: Vec<Mirror>,
}

#[derive(Deserialize, Default)]
struct FileV1 {
    insecure: Option<ListV1>,
    block: Option<ListV1>,
}

#[derive(Deserialize)]
struct ListV1 {
    #[serde(default)]
    registries: Vec<String>,
}

/// One location of a reference: a registry host and the repository's name there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// `host[:port]`.
    pub registry: String,
    /// The repository's name there.
    pub repository: String,
    /// True if the certificate is not checked and plain HTTP is allowed.
    pub insecure: bool,
    /// True for a mirror.
    pub mirror: bool,
}

impl RegistriesConf {
    /// Reads `file` and then the `*.conf` of `drop_ins` in the order of their names. Missing files
    /// and directories are skipped.
    pub fn load(file: &Path, drop_ins: &[PathBuf]) -> Result<Self, Error> {
        let mut conf = RegistriesConf::default();
        conf.read(file)?;
        for directory in drop_ins {
            let Ok(entries) = std::fs::read_dir(directory) else { continue };
            let mut files: Vec<PathBuf> =
                entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
            files.retain(|path| path.extension().is_some_and(|e| e == "conf"));
            files.sort();
            for file in files {
                conf.read(&file)?;
            }
        }
        Ok(conf)
    }

    fn read(&mut self, path: &Path) -> Result<(), Error> {
        let fail = |source| Error::File { action: "read", path: path.to_owned(), source };
        let file = match File::open(path) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(());
            }
            other => other.map_err(fail)?,
        };
        let mut text = String::new();
        file.take(limits::CONFIG_FILE).read_to_string(&mut text).map_err(fail)?;
        self.add(&text, path)
    }

    fn add(&mut self, text: &str, path: &Path) -> Result<(), Error> {
        let refuse = |reason: String| Error::ConfigFile { path: path.to_owned(), reason };
        let parsed: FileV2 = toml::from_str(text).map_err(|e| refuse(e.message().to_owned()))?;
        for table in parsed.registry {
            let prefix = table.prefix.or_else(|| table.location.clone()).unwrap_or_default();
            let prefix = prefix.trim_end_matches('/').to_owned();
            if prefix.is_empty() {
                return Err(refuse("a [[registry]] has neither prefix nor location".to_owned()));
            }
            if prefix.starts_with("*.") && table.location.is_some() {
                return Err(refuse(format!("the prefix {prefix} must not have a location")));
            }
            if table.mirror.iter().any(|mirror| mirror.location.is_empty()) {
                return Err(refuse(format!("a mirror of {prefix} has no location")));
            }
            let registry = Registry {
                location: table.location.map(|l| l.trim_end_matches('/').to_owned()),
                insecure: table.insecure,
                blocked: table.blocked,
                mirror_by_digest_only: table.mirror_by_digest_only,
                mirrors: table.mirror,
                path: path.to_owned(),
            };
            self.registries.insert(prefix, registry);
        }
        let old = parsed.registries.unwrap_or_default();
        for (list, insecure) in [(old.insecure, true), (old.block, false)] {
            for name in list.map(|list| list.registries).unwrap_or_default() {
                let registry = self.registries.entry(name).or_insert_with(|| Registry {
                    location: None,
                    insecure: false,
                    blocked: false,
                    mirror_by_digest_only: false,
                    mirrors: Vec::new(),
                    path: path.to_owned(),
                });
                registry.insecure |= insecure;
                registry.blocked |= !insecure;
            }
        }
        Ok(())
    }

    /// The locations of a reference, in the order in which to try them.
    pub fn places(&self, reference: &Reference) -> Result<Vec<Place>, Error> {
        let name = reference.name();
        let Some((prefix, registry)) = self.find(&name) else {
            return Ok(vec![Place {
                registry: reference.registry().to_owned(),
                repository: reference.repository().to_owned(),
                insecure: false,
                mirror: false,
            }]);
        };
        if registry.blocked {
            let path = registry.path.display().to_string();
            return Err(Error::Blocked { name, path });
        }
        let refuse = |location: &str| Error::ConfigFile {
            path: registry.path.clone(),
            reason: format!("{location} is not a registry's location"),
        };
        let mut places = Vec::new();
        for mirror in registry.mirrors.iter().filter(|m| registry.uses(m, reference)) {
            let moved = rewrite(&name, prefix, &mirror.location);
            let place = place(&moved, mirror.insecure, true);
            places.push(place.ok_or_else(|| refuse(&mirror.location))?);
        }
        let moved = match &registry.location {
            Some(location) => rewrite(&name, prefix, location),
            None => name.clone(),
        };
        places.push(place(&moved, registry.insecure, false).ok_or_else(|| refuse(&moved))?);
        Ok(places)
    }

    /// Returns true if a whole registry is marked insecure.
    pub fn is_insecure(&self, registry: &str) -> bool {
        self.find(registry).is_some_and(|(_, entry)| entry.insecure)
    }

    fn find(&self, name: &str) -> Option<(&str, &Registry)> {
        self.registries
            .iter()
            .filter(|(prefix, _)| matches(name, prefix))
            .max_by_key(|(prefix, _)| prefix.len())
            .map(|(prefix, registry)| (prefix.as_str(), registry))
    }
}

impl Registry {
    fn uses(&self, mirror: &Mirror, reference: &Reference) -> bool {
        match mirror.pull_from_mirror.as_deref() {
            Some("digest-only") => reference.is_digest(),
            Some("tag-only") => !reference.is_digest(),
            _ => !self.mirror_by_digest_only || reference.is_digest(),
        }
    }
}

/// Returns true if `prefix` (`host/path`, `host`, `*.domain`) is a prefix of `name` that ends at a
/// boundary.
fn matches(name: &str, prefix: &str) -> bool {
    if let Some(domain) = prefix.strip_prefix("*.") {
        let host = name.split(['/', ':']).next().unwrap_or_default();
        return host
            .strip_suffix(domain)
            .is_some_and(|front| front.len() > 1 && front.ends_with('.'));
    }
    name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':']))
}

fn rewrite(name: &str, prefix: &str, location: &str) -> String {
    let location = location.trim_end_matches('/');
    if prefix.starts_with("*.") {
        let path = name.find('/').map_or("", |at| &name[at..]);
        return format!("{location}{path}");
    }
    format!("{location}{}", &name[prefix.len()..])
}

/// Splits `host[:port]/repository`.
pub(crate) fn place(name: &str, insecure: bool, mirror: bool) -> Option<Place> {
    let (registry, repository) = name.split_once('/')?;
    crate::url::split_authority(registry)?;
    let registry = registry.to_owned();
    let repository = repository.to_owned();
    (!repository.is_empty()).then_some(Place { registry, repository, insecure, mirror })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(text: &str) -> RegistriesConf {
        let mut conf = RegistriesConf::default();
        conf.add(text, Path::new("/etc/containers/registries.conf")).unwrap();
        conf
    }

    fn places(conf: &RegistriesConf, name: &str) -> Vec<String> {
        let reference = Reference::parse(name).unwrap();
        let show = |p: Place| {
            format!("{}/{}{}", p.registry, p.repository, if p.insecure { "!" } else { "" })
        };
        conf.places(&reference).unwrap().into_iter().map(show).collect()
    }

    #[test]
    fn mirrors_and_rewrites() {
        let conf = conf(
            r#"
            unqualified-search-registries = ["quay.io"]
            short-name-mode = "enforcing"
            [[registry]]
            prefix = "docker.io"
            location = "docker.io"
            [[registry.mirror]]
            location = "mirror.local:5000/hub"
            insecure = true
            [[registry.mirror]]
            location = "pinned.local"
            pull-from-mirror = "digest-only"
            [[registry]]
            prefix = "docker.io/special"
            location = "other.io/x"
            [[registry]]
            location = "h:5000"
            insecure = true
            [[registry]]
            prefix = "*.corp.example"
            insecure = true
            "#,
        );
        let debian = ["mirror.local:5000/hub/library/debian!", "docker.io/library/debian"];
        assert_eq!(places(&conf, "debian"), debian);
        let pinned = format!("debian@sha256:{}", "0".repeat(64));
        assert_eq!(places(&conf, &pinned)[1], "pinned.local/library/debian");
        assert_eq!(places(&conf, "special/a"), ["other.io/x/a"]);
        assert_eq!(places(&conf, "specialist/a").len(), 2);
        assert_eq!(places(&conf, "h:5000/a"), ["h:5000/a!"]);
        assert_eq!(places(&conf, "h:50001/a"), ["h:50001/a"]);
        assert_eq!(places(&conf, "reg.corp.example:1/a"), ["reg.corp.example:1/a!"]);
        assert_eq!(places(&conf, "corp.example/a"), ["corp.example/a"]);
        assert!(conf.is_insecure("h:5000") && !conf.is_insecure("h"));
    }

    #[test]
    fn blocks_and_version_1() {
        let conf = conf(
            "[[registry]]\nlocation = \"bad.io\"\nblocked = true\n\
             [registries.insecure]\nregistries = [\"old.io\"]\n\
             [registries.block]\nregistries = [\"worse.io\"]\n",
        );
        for name in ["bad.io/a", "worse.io/a"] {
            let error = conf.places(&Reference::parse(name).unwrap()).unwrap_err();
            assert!(matches!(error, Error::Blocked { .. }));
            assert!(error.to_string().contains("registries.conf"));
        }
        assert_eq!(places(&conf, "old.io/a"), ["old.io/a!"]);
    }

    #[test]
    fn refuses_nonsense() {
        let mut conf = RegistriesConf::default();
        for bad in ["[[registry]]\n", "x = ", "[[registry]]\nprefix=\"*.a\"\nlocation=\"b\"\n"] {
            assert!(
                matches!(conf.add(bad, Path::new("f")), Err(Error::ConfigFile { .. })),
                "{bad}"
            );
        }
    }

    #[test]
    fn drop_ins_replace() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("registries.conf");
        let drop = dir.path().join("registries.conf.d");
        std::fs::create_dir(&drop).unwrap();
        std::fs::write(&main, "[[registry]]\nlocation=\"a.io\"\nblocked=true\n").unwrap();
        std::fs::write(drop.join("1.conf"), "[[registry]]\nlocation=\"a.io\"\ninsecure=true\n")
            .unwrap();
        std::fs::write(drop.join("2.txt"), "nonsense").unwrap();
        let conf = RegistriesConf::load(&main, &[drop, dir.path().join("none")]).unwrap();
        assert_eq!(places(&conf, "a.io/x"), ["a.io/x!"]);
        assert!(RegistriesConf::load(Path::new("/nonexistent"), &[]).is_ok());
    }
}
