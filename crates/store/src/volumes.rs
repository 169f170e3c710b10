//! Named volumes: directories that outlive containers.
//!
//! A volume is made under `tmp/` and renamed into `volumes/<name>`, with `_data` (what is mounted) and `volume.json` in it. Two
//! processes may make the same one at once: a directory that is not empty cannot be renamed over, so the second one finds
//! the first one's.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::root::{encode, random_hex};
use crate::{Delete, Store, names};

const DIRECTORY: &str = "volumes";

/// The volumes of a store.
#[derive(Debug, Clone, Copy)]
pub struct Volumes<'store>(pub(crate) &'store Store);

/// What is known about a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeInfo {
    /// When it was made (RFC 3339).
    pub created: String,
    /// The user's notes.
    pub labels: BTreeMap<String, String>,
    /// Options it was made with.
    pub options: BTreeMap<String, String>,
    /// It was made for one container, which had an unnamed volume.
    pub anonymous: bool,
}

/// One volume.
#[derive(Debug, Clone)]
pub struct Volume {
    store: Store,
    name: String,
}

impl Volumes<'_> {
    /// Makes a volume, or finds the one that has this name; `true` when it is new.
    pub fn create(self, name: &str, info: &VolumeInfo) -> Result<(Volume, bool)> {
        names::check(name)?;
        if let Some(volume) = self.get(name)? {
            return Ok((volume, false));
        }
        self.0.writable()?;
        let _lease = self.0.lease()?;
        let root = &self.0.inner.root;
        let temporary = format!("tmp/volume-{}", random_hex(16)?);
        root.make_dir(&temporary)?;
        let data = format!("{temporary}/_data");
        root.make_dir(&data)?;
        // Whatever the umask: users of the container other than its root look in too.
        root.set_mode(&data, 0o755)?;
        let info_rel = format!("{temporary}/volume.json");
        root.write_new(&info_rel, &encode(info, || root.join(&info_rel))?, self.0.syncs_names())?;
        let volume = Volume { store: self.0.clone(), name: name.to_owned() };
        match root.rename(&temporary, &volume.rel()) {
            Ok(()) => Ok((volume, true)),
            Err(error) => {
                let _ = sys::fs::remove_tree(root.as_fd(), temporary.as_bytes());
                let taken = [Errno::NOTEMPTY, Errno::EXIST].map(Errno::raw_os_error);
                if error.errno().is_some_and(|errno| taken.contains(&errno)) {
                    return Ok((volume, false));
                }
                Err(error)
            }
        }
    }

    /// The volume with this name.
    pub fn get(self, name: &str) -> Result<Option<Volume>> {
        if names::check(name).is_err() {
            return Ok(None);
        }
        let volume = Volume { store: self.0.clone(), name: name.to_owned() };
        Ok(self.0.inner.root.exists(&volume.rel())?.then_some(volume))
    }

    /// All volumes, by name.
    pub fn list(self) -> Result<Vec<Volume>> {
        let mut found: Vec<String> =
            self.0.inner.root.list(DIRECTORY)?.into_iter().map(|(name, _)| name).collect();
        found.retain(|name| names::check(name).is_ok());
        found.sort_unstable();
        Ok(found.into_iter().map(|name| Volume { store: self.0.clone(), name }).collect())
    }
}

impl Volume {
    fn rel(&self) -> String {
        format!("{DIRECTORY}/{}", self.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory that is mounted.
    pub fn data(&self) -> PathBuf {
        self.store.inner.root.join(&self.rel()).join("_data")
    }

    /// What is known about it.
    pub fn info(&self) -> Result<VolumeInfo> {
        let info = self.store.inner.root.read_json(&format!("{}/volume.json", self.rel()))?;
        Ok(info.unwrap_or_default())
    }

    /// Removes it and what is in it. Whether a container uses it is the caller's question.
    pub fn remove(self) -> Result<()> {
        self.remove_with(&crate::remove_owned)
    }

    /// As [`Volume::remove`], for files of subordinate users.
    pub fn remove_with(self, delete: &Delete<'_>) -> Result<()> {
        self.store.writable()?;
        let trashed = self.store.to_trash(&self.rel())?;
        let Some(trashed) = trashed else { return Err(Error::NoVolume { name: self.name }) };
        self.store.delete_trashed(&trashed, delete)
    }
}
