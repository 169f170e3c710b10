//! Named volumes as objects of their own: making, listing, removing and describing them.
//!
//! What happens to volumes when containers are made and removed is in
//! [`crate::container::volumes`]. Removing a volume with files of subordinate users may fork.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde_json::{Value, json};
use store::{Volume, VolumeInfo};

use crate::container::{ids, volumes};
use crate::error::{Error, Result};
use crate::filter::{self, Filters};
use crate::journal::{self, Actor, Kind};
use crate::session::Session;
use crate::time;

/// The only driver.
pub const DRIVER: &str = "local";

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
    /// Its driver; `None` for [`DRIVER`].
    pub driver: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// Makes a volume, unless there is one of this name; its name.
pub fn create(session: &Session, request: VolumeRequest) -> Result<String> {
    let VolumeRequest { name, driver, mut labels } = request;
    if let Some(driver) = driver.filter(|driver| driver != DRIVER) {
        return Err(Error::unsupported(format!("there is no volume driver '{driver}'"))
            .with_hint(format!("{DRIVER} is the only one")));
    }
    if name.is_none() {
        labels.insert(UNNAMED.to_owned(), String::new());
    }
    let name = name.map_or_else(volumes::random_name, Ok)?;
    let info = VolumeInfo { created: time::now().to_string(), labels, ..VolumeInfo::default() };
    // A volume that was there is synced too: another process may just have made it.
    let (volume, new) = session.store()?.volumes().create(&name, &info)?;
    volume.sync()?;
    if new {
        journal::tell(session, Kind::Volume, "create", Actor::volume(&name));
    }
    Ok(name)
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
            && filters.any("driver", |wanted| wanted == DRIVER)
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

    /// Removes a volume; whether there was one.
    pub fn remove(&self, name: &str) -> Result<bool> {
        let session = self.session;
        session.cancel().check()?;
        let store = session.store()?;
        if store.volumes().get(name)?.is_none() {
            return Ok(false);
        }
        if self.used.contains(name) {
            return Err(in_use(name));
        }
        // Looked up again at a time when no other process can make a container that mounts it.
        let select = |volume: &Volume| {
            volume.name() == name && volumes::used(session).is_ok_and(|used| !used.contains(name))
        };
        store.prune_volumes(&select, &|path: &Path| ids::delete(session, path))?;
        if store.volumes().get(name)?.is_some() {
            return Err(in_use(name));
        }
        journal::tell(session, Kind::Volume, "destroy", Actor::volume(name));
        Ok(true)
    }

    /// Waits until the removals are on the disk: one wait for all of them.
    pub fn sync(&self) -> Result<()> {
        Ok(self.session.store()?.volumes().sync_removals()?)
    }
}

fn in_use(name: &str) -> Error {
    Error::conflict(format!("volume '{name}' is in use")).with_hint(format!(
        "'coracle ps -a --filter volume={name}' lists the containers that use it"
    ))
}

/// The error for a volume that does not exist.
pub fn missing(name: &str) -> Error {
    Error::not_found(format!("there is no volume '{name}'"))
        .with_hint("'coracle volume ls' lists what is there")
}

/// A volume in the form of Docker's `inspect`.
pub fn inspect(session: &Session, name: &str) -> Result<Value> {
    describe(&session.store()?.volumes().get(name)?.ok_or_else(|| missing(name))?)
}

/// A volume in the form of Docker's `inspect`.
pub fn describe(volume: &Volume) -> Result<Value> {
    let info = volume.info()?;
    Ok(json!({
        "Name": volume.name(),
        "Driver": DRIVER,
        "Mountpoint": volume.data(),
        "CreatedAt": info.created,
        "Labels": info.labels,
        "Options": info.options,
        "Scope": "local",
        "Anonymous": info.anonymous,
    }))
}
