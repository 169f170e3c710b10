//! Named volumes: directories that outlive containers.
//!
//! A volume is made under `tmp/` and renamed into `volumes/<name>`, with `_data` (the mounted
//! directory) and `volume.json` in it. Two processes may make the same one at once: a rename cannot
//! replace a directory that is not empty, so the second process finds the first one's volume. A
//! command that reports a volume calls [`Volume::sync`] before.
//!
//! What is mounted at `_data` is not the store's: it is neither measured nor removed
//! ([`Volume::is_local`], [`Volume::mount_points`]). This crate does not mount or unmount it.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, Step};
use crate::lock::{Lock, Lockable, Mode};
use crate::root::{encode, random_hex};
use crate::{Delete, Store, names};

pub(crate) const DIRECTORY: &str = "volumes";
/// The directory that is mounted.
pub(crate) const DATA: &str = "_data";
/// The volume's metadata.
pub(crate) const INFO: &str = "volume.json";

/// The volumes of a store.
#[derive(Debug, Clone, Copy)]
pub struct Volumes<'store>(pub(crate) &'store Store);

/// Metadata of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeInfo {
    /// Creation time (RFC 3339).
    pub created: String,
    /// Labels that the user gave.
    pub labels: BTreeMap<String, String>,
    /// The program that mounts its directory; empty for a directory of the store.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub driver: String,
    /// Options it was made with.
    pub options: BTreeMap<String, String>,
    /// True if it was made for an unnamed volume of one container.
    pub anonymous: bool,
}

/// A held lock on a volume.
#[derive(Debug)]
pub struct VolumeLock(#[expect(dead_code, reason = "held for its Drop")] Lock);

/// One volume.
#[derive(Debug, Clone)]
pub struct Volume {
    store: Store,
    name: String,
}

impl Volumes<'_> {
    /// Makes a volume, or finds the existing one with this name; `true` when it is new. Until
    /// [`Volume::sync`] returns, a power failure may remove it again.
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
        let data = format!("{temporary}/{DATA}");
        root.make_dir(&data)?;
        // Independent of the umask: users of the container other than its root must be able to read
        // it.
        root.set_mode(&data, 0o755)?;
        let info_rel = format!("{temporary}/{INFO}");
        root.write_new(&info_rel, &encode(info, || root.join(&info_rel))?, false)?;
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
        let there = self.0.inner.root.exists(&volume.rel())? && !volume.drop_if_lost()?;
        Ok(there.then_some(volume))
    }

    /// All volumes, by name.
    pub fn list(self) -> Result<Vec<Volume>> {
        let mut found: Vec<String> =
            self.0.inner.root.list(DIRECTORY)?.into_iter().map(|(name, _)| name).collect();
        found.retain(|name| names::check(name).is_ok());
        found.sort_unstable();
        let mut volumes = Vec::with_capacity(found.len());
        for name in found {
            let volume = Volume { store: self.0.clone(), name };
            if !volume.drop_if_lost()? {
                volumes.push(volume);
            }
        }
        Ok(volumes)
    }
}

impl Volume {
    fn rel(&self) -> String {
        format!("{DIRECTORY}/{}", self.name)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory that is mounted.
    pub fn data(&self) -> PathBuf {
        self.store.inner.root.join(&self.rel()).join(DATA)
    }

    /// Its metadata.
    pub fn info(&self) -> Result<VolumeInfo> {
        let rel = format!("{}/{INFO}", self.rel());
        match self.store.inner.root.read_json(&rel) {
            // A power failure lost the metadata; the volume's contents are there.
            Err(Error::BadJson { .. }) if self.store.is_blank(&rel)? => Ok(VolumeInfo::default()),
            other => Ok(other?.unwrap_or_default()),
        }
    }

    /// Whether its contents are the store's own. One whose metadata cannot be read may be any.
    pub fn is_local(&self) -> bool {
        self.info().is_ok_and(|info| info.driver.is_empty())
    }

    /// What this process sees mounted at or below the volume; at [`Volume::data`] if it is mounted
    /// itself. No mounted file system is asked.
    pub fn mount_points(&self) -> Result<Vec<PathBuf>> {
        let path = self.store.inner.root.join(&self.rel());
        // The kernel's table has no symbolic links, which the store's own path may have.
        let found = path.canonicalize().and_then(|full| {
            let points = sys::mount::points_within(&full)?;
            let below = |point: &PathBuf| point.strip_prefix(&full).map(|rest| path.join(rest));
            Ok(points.iter().filter_map(|point| below(point).ok()).collect())
        });
        found.map_err(|error| Error::io(Step::Stat, path, error))
    }

    /// Waits for the lock under which it is mounted, unmounted and removed. It is taken after that
    /// of a container.
    pub fn lock(&self) -> Result<VolumeLock> {
        self.store.writable()?;
        let gone = || Error::NoVolume { name: self.name.clone() };
        let exists = || self.store.inner.root.exists(&self.rel());
        if !exists()? {
            return Err(gone());
        }
        let lockable = Lockable {
            rel: format!("{}/lock", self.rel()),
            ..self.store.lockable("", format!("volume {}", self.name), false)
        };
        let limit = Some(self.store.inner.wait.limit);
        let lock = lockable.take(Mode::Exclusive, &self.store.inner.wait, limit);
        // Its last holder may have removed it.
        if !exists()? {
            return Err(gone());
        }
        Ok(VolumeLock(lock?))
    }

    /// Removes the volume and its contents. The caller checks that no container uses it, and that
    /// nothing is mounted there.
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
