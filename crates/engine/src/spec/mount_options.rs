//! Options of one mount: the words of `-v`, `--mount`, `--tmpfs` and CDI files as typed flags.
//!
//! The words are parsed once ([`MountOptions::add`]), when a user gives them. `container.json`
//! keeps them as a list of words, in a fixed order; reading it parses them again by the same rules.
//!
//! `ro` and `rw` are [`super::MountSpec::read_only`], and volumes have words of their own
//! (`nocopy`): the command line takes both before it asks here.

use serde::{Deserialize, Serialize};

use super::MountKind;

/// Whether mounts that the host makes later beneath the source appear in the container
/// (`mount_namespaces(7)`, "Shared subtrees"). Always for everything beneath the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They do not: `private`, `rprivate`.
    Private,
    /// They do: `slave`, `rslave`.
    Slave,
}

/// Options of one mount. `None` is the default of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<String>", into = "Vec<String>")]
pub struct MountOptions {
    /// `exec` or `noexec`.
    pub exec: Option<bool>,
    /// `suid` or `nosuid`.
    pub suid: Option<bool>,
    /// `dev` or `nodev`.
    pub dev: Option<bool>,
    /// Of binds and volumes.
    pub propagation: Option<Propagation>,
    /// `size=`, `mode=`, `nr_inodes=`, `uid=`, `gid=`, `huge=` of a memory file system, as tmpfs(5)
    /// takes them.
    pub memory: Vec<(String, String)>,
    /// Words of a record that a newer program wrote. A run with one is refused.
    pub unknown: Vec<String>,
}

/// What memory file systems take.
const MEMORY: [&str; 6] = ["size", "mode", "nr_inodes", "uid", "gid", "huge"];

impl MountOptions {
    /// Adds one word; a later one replaces an earlier one.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence.
    pub fn add(&mut self, kind: MountKind, word: &str) -> Result<(), String> {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let memory = kind == MountKind::Tmpfs;
        match (key, value) {
            ("exec" | "noexec", "") => self.exec = Some(key == "exec"),
            ("suid" | "nosuid", "") => self.suid = Some(key == "suid"),
            ("dev" | "nodev", "") => self.dev = Some(key == "dev"),
            ("private" | "rprivate", "") if !memory => {
                self.propagation = Some(Propagation::Private);
            }
            ("slave" | "rslave", "") if !memory => self.propagation = Some(Propagation::Slave),
            ("shared" | "rshared", "") if !memory => {
                return Err(format!(
                    "'{word}' cannot be had without privilege: mounts made in the container never appear on the host; \
                     'rslave' shows the host's later mounts in the container"
                ));
            }
            // Binds take everything beneath the source along. SELinux labels have nothing to act
            // on: a user's files have the user's labels. Consistency is for other systems.
            (
                "bind" | "rbind" | "z" | "Z" | "cached" | "delegated" | "consistent" | "default",
                "",
            ) if !memory => {}
            (key, value) if memory && MEMORY.contains(&key) && !value.is_empty() => {
                self.memory.retain(|(known, _)| known != key);
                self.memory.push((key.to_owned(), value.to_owned()));
            }
            _ => return Err(format!("unknown option '{word}'")),
        }
        Ok(())
    }

    /// Options of a mount from words.
    ///
    /// # Errors
    /// As [`MountOptions::add`].
    pub fn of<'w>(
        kind: MountKind,
        words: impl IntoIterator<Item = &'w str>,
    ) -> Result<Self, String> {
        let mut options = Self::default();
        words.into_iter().try_for_each(|word| options.add(kind, word))?;
        Ok(options)
    }

    /// The words.
    pub fn words(&self) -> Vec<String> {
        let switch = |set: Option<bool>, name: &str| {
            set.map(|set| if set { name.to_owned() } else { format!("no{name}") })
        };
        let propagation = self.propagation.map(|propagation| match propagation {
            Propagation::Private => "rprivate".to_owned(),
            Propagation::Slave => "rslave".to_owned(),
        });
        let memory = self.memory.iter().map(|(key, value)| format!("{key}={value}"));
        [switch(self.suid, "suid"), switch(self.dev, "dev"), switch(self.exec, "exec"), propagation]
            .into_iter()
            .flatten()
            .chain(memory)
            .chain(self.unknown.iter().cloned())
            .collect()
    }
}

impl From<MountOptions> for Vec<String> {
    fn from(options: MountOptions) -> Self {
        options.words()
    }
}

impl From<Vec<String>> for MountOptions {
    /// From a record, which does not say the kind here: all that one of the kinds takes.
    fn from(words: Vec<String>) -> Self {
        let mut options = Self::default();
        for word in words {
            let kind = if word.contains('=') { MountKind::Tmpfs } else { MountKind::Bind };
            if options.add(kind, &word).is_err() {
                options.unknown.push(word);
            }
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back() {
        let bind = MountOptions::of(MountKind::Bind, ["noexec", "z", "suid", "slave"]).unwrap();
        assert_eq!(bind.words(), ["suid", "noexec", "rslave"]);
        assert_eq!(bind.propagation, Some(Propagation::Slave));
        let memory = MountOptions::of(MountKind::Tmpfs, ["size=1", "mode=700", "size=2", "nodev"]);
        let memory = memory.unwrap();
        assert_eq!(memory.words(), ["nodev", "mode=700", "size=2"]);
        let newer: MountOptions = serde_json::from_str(r#"["noexec","colour"]"#).unwrap();
        assert_eq!((newer.exec, newer.unknown.as_slice()), (Some(false), &["colour".into()][..]));
        for options in [bind, memory, newer] {
            let text = serde_json::to_string(&options).unwrap();
            assert_eq!(serde_json::from_str::<MountOptions>(&text).unwrap(), options);
        }
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        for (kind, word, part) in [
            (MountKind::Bind, "rshared", "privilege"),
            (MountKind::Bind, "size=3", "unknown"),
            (MountKind::Volume, "rx", "unknown"),
            (MountKind::Tmpfs, "rslave", "unknown"),
            (MountKind::Tmpfs, "size=", "unknown"),
        ] {
            let error = MountOptions::of(kind, [word]).unwrap_err();
            assert!(error.contains(part), "{word}: {error}");
        }
    }
}
