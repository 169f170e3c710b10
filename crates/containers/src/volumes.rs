//! Named volumes as objects of their own: making, listing, removing and describing them.
//!
//! What happens to volumes when containers are made and removed is in
//! [`crate::container::volumes`]. Those that a program of the site mounts are in
//! [`crate::container::volume_driver`].
//! Removing a volume with files of subordinate users may fork.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde_json::{Value, json};
use store::{Volume, VolumeInfo};

use crate::container::volume_driver::{self as driver, actor, in_use};
pub use crate::container::volume_driver::{DRIVER, driver_of};
use crate::container::{ids, volumes};
use crate::error::{Error, Result};
use crate::filter::{self, Filters};
use crate::journal::{self, Kind};
use crate::session::Session;
use crate::time;

/// The label of a volume that was made without a name, as in Docker: `volume prune` removes it, but
/// no container that mounts it by its name does.
pub const UNNAMED: &str = "com.docker.volume.anonymous";

/// The filters that a list of volumes knows.
pub const FILTERS: &[&str] = &["name", "label", "dangling", "driver"];

/// A volume to be made.
#[derive(Debug, Clone, Default)]
pub struct VolumeRequest {
    /// Its name; `None` for a random one.
    pub name: Option<String>,
    /// Its driver; `None` for [`DRIVER`], or for what the volume of this name has.
    pub driver: Option<String>,
    /// Options for its driver.
    pub options: BTreeMap<String, String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// Makes a volume, unless there is one of this name; its name. A driver mounts it at its first use.
///
/// # Errors
/// If the driver is not there, or the volume has another one or other options.
pub fn create(session: &Session, request: VolumeRequest) -> Result<String> {
    let VolumeRequest { name, driver: asked, options, mut labels } = request;
    let driver = asked.clone().filter(|driver| driver != DRIVER).unwrap_or_default();
    if !driver.is_empty() {
        driver::program(session, &driver)?;
    } else if let Some(key) = options.keys().next() {
        let what = format!("driver '{DRIVER}' has no option '{key}'");
        return Err(Error::unsupported(what)
            .with_hint("options are for the driver that --driver names, or mount it with -v"));
    }
    if name.is_none() {
        labels.insert(UNNAMED.to_owned(), String::new());
    }
    let name = name.map_or_else(volumes::random_name, Ok)?;
    let created = time::now().to_string();
    let info = VolumeInfo { created, labels, driver, options, anonymous: false };
    // A volume that was there is synced too: another process may just have made it.
    let (volume, new) = session.store()?.volumes().create(&name, &info)?;
    volume.sync()?;
    if new {
        journal::tell(session, Kind::Volume, "create", actor(&name, &info));
    } else if asked.is_some() {
        let there = volume.info()?;
        if (&there.driver, &there.options) != (&info.driver, &info.options) {
            return Err(other(&name, &there));
        }
    }
    Ok(name)
}

fn other(name: &str, there: &VolumeInfo) -> Error {
    let driver = driver_of(there);
    Error::conflict(format!("volume '{name}' is there, with other options or another driver"))
        .because(format!("its driver is '{driver}'"))
        .with_hint(format!("'coracle volume inspect {name}' shows them; choose another name"))
}

/// The volume of this name.
///
/// # Errors
/// If there is none.
pub fn get(session: &Session, name: &str) -> Result<Volume> {
    session.store()?.volumes().get(name)?.ok_or_else(|| missing(name))
}

/// A volume with what is known about it.
#[derive(Debug)]
pub struct Listed {
    /// The volume.
    pub volume: Volume,
    /// Its record.
    pub info: VolumeInfo,
}

/// The volumes that the filters match; see [`FILTERS`].
pub fn list(session: &Session, filters: &Filters) -> Result<Vec<Listed>> {
    // A record that cannot be read must not keep the rest from being shown.
    let used = volumes::used(session).unwrap_or_default();
    let mut listed = Vec::new();
    for volume in session.store()?.volumes().list()? {
        let info = volume.info()?;
        let dangling = !used.contains(volume.name());
        let wanted = filters.any("name", |wanted| volume.name().contains(wanted))
            && filters.any("driver", |wanted| wanted == driver_of(&info))
            && filters.all("dangling", |value| filter::truth(value) == dangling)
            && filters.labels(&info.labels);
        if wanted {
            listed.push(Listed { volume, info });
        }
    }
    Ok(listed)
}

/// Removes volumes. The answers come one by one, so that a failure does not keep the others from
/// being removed.
pub struct Removal<'a> {
    session: &'a Session,
    used: HashSet<String>,
}

impl<'a> Removal<'a> {
    /// Looks up which volumes are in use.
    pub fn new(session: &'a Session) -> Result<Self> {
        Ok(Self { session, used: volumes::used(session)? })
    }

    /// Removes a volume; whether there was one. That of a driver is unmounted first, and what is in
    /// it stays where it is.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let session = self.session;
        session.cancel().check()?;
        let store = session.store()?;
        let Some(volume) = store.volumes().get(name)? else { return Ok(false) };
        if self.used.contains(name) {
            return Err(in_use(name));
        }
        let info = volume.info()?;
        // Held until it is gone: who mounts it meanwhile would mount in the trash.
        let lock = if info.driver.is_empty() { None } else { Some(volume.lock()?) };
        if lock.is_some() {
            driver::unmount_locked(session, &volume, &info)?;
        }
        if let Some(point) = volume.mount_points()?.first() {
            let point = point.display();
            return Err(Error::conflict(format!("volume '{name}' is not removed"))
                .because(format!("something is mounted at {point}"))
                .with_hint(format!("unmount it first: umount {point}")));
        }
        // Looked up again at a time when no other process can make a container that mounts it.
        let select = |volume: &Volume| {
            volume.name() == name && volumes::used(session).is_ok_and(|used| !used.contains(name))
        };
        store.prune_volumes(&select, &|path: &Path| ids::delete(session, path))?;
        if store.volumes().get(name)?.is_some() {
            return Err(in_use(name));
        }
        journal::tell(session, Kind::Volume, "destroy", actor(name, &info));
        Ok(true)
    }

    /// Waits until the removals are on the disk: one wait for all of them.
    pub fn sync(&self) -> Result<()> {
        Ok(self.session.store()?.volumes().sync_removals()?)
    }
}

/// The error for a volume that does not exist.
pub fn missing(name: &str) -> Error {
    Error::not_found(format!("there is no volume '{name}'"))
        .with_hint("'coracle volume ls' lists what is there")
}

/// A volume in the form of Docker's `inspect`.
pub fn inspect(session: &Session, name: &str) -> Result<Value> {
    describe(&get(session, name)?)
}

/// A volume in the form of Docker's `inspect`.
pub fn describe(volume: &Volume) -> Result<Value> {
    let info = volume.info()?;
    let mut value = json!({
        "Name": volume.name(),
        "Driver": driver_of(&info),
        "Mountpoint": volume.data(),
        "CreatedAt": info.created,
        "Labels": info.labels,
        "Options": info.options,
        "Scope": "local",
        "Anonymous": info.anonymous,
    });
    if !info.driver.is_empty() {
        value["Status"] = json!({ "Mounted": driver::is_mounted(volume)? });
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
