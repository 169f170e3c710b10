//! Finds or makes the volumes that a new container mounts, and knows which volumes are in use.
//!
//! A new volume with a name is on the disk before anything is told of it or runs in it: it outlives
//! every container. While one is filled, a file beside its content says so; where that is left
//! over, it is filled again.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::path::PathBuf;

use engine::spec::{MountKind, MountSpec};
use store::{ContainerDir, Volume, VolumeInfo};

use super::ids;
use super::record::Record;
use crate::error::{Error, Result};
use crate::journal::{self, Actor, Kind};
use crate::request::mounts::MountRequest;
use crate::session::Session;

/// A volume that was made for this container or is empty.
#[derive(Debug)]
pub struct Fresh {
    /// Its place in the container.
    pub target: PathBuf,
    /// The volume.
    pub volume: Volume,
    /// It goes with the container.
    pub anonymous: bool,
    /// It is to be filled from the container's image.
    pub fill: bool,
}

impl Fresh {
    /// The file that says that somebody fills it, or did not come to the end of that.
    pub fn filling(&self) -> PathBuf {
        filling(&self.volume)
    }
}

fn filling(volume: &Volume) -> PathBuf {
    volume.data().with_file_name("filling")
}

/// Turns requests into mounts; volumes that are not there are made.
pub fn place(
    session: &Session,
    requests: Vec<MountRequest>,
) -> Result<(Vec<MountSpec>, Vec<Fresh>), Error> {
    let store = session.store()?;
    let (mut mounts, mut fresh) = (Vec::with_capacity(requests.len()), Vec::new());
    for mut request in requests {
        if request.spec.kind == MountKind::Volume {
            let name = match &request.spec.name {
                Some(name) => name.clone(),
                None => random_name()?,
            };
            let info = VolumeInfo {
                created: jiff::Timestamp::now().to_string(),
                anonymous: request.spec.unnamed,
                ..VolumeInfo::default()
            };
            let (volume, new) = store.volumes().create(&name, &info)?;
            if new {
                if !request.spec.unnamed {
                    volume.sync()?;
                }
                journal::tell(session, Kind::Volume, "create", Actor::volume(&name));
            }
            request.spec.source = volume.data();
            // As in Docker, what a driver mounts does not begin with the image's files: others may
            // use it. It is not mounted yet.
            if new || volume.is_local() && wants_files(&volume) {
                let (target, anonymous) = (request.spec.target.clone(), request.spec.unnamed);
                fresh.push(Fresh { target, volume, anonymous, fill: !request.no_copy });
            }
            request.spec.name = Some(name);
        }
        mounts.push(request.spec);
    }
    Ok((mounts, fresh))
}

fn wants_files(volume: &Volume) -> bool {
    let is_empty = |mut entries: std::fs::ReadDir| entries.next().is_none();
    std::fs::read_dir(volume.data()).is_ok_and(is_empty) || filling(volume).exists()
}

/// A name for a volume that was given none.
pub fn random_name() -> Result<String> {
    // One digit short of a container's id, which no volume may look like.
    let mut name = store::random_id()?;
    name.truncate(62);
    name.push('a');
    Ok(name)
}

/// The volumes that were made for a container, which did not name them; or for one whose volumes it
/// has by `--volumes-from`. Another one that mounts such a volume by its name has it for good.
pub fn unnamed_of(record: Record) -> Vec<String> {
    let mounts = record.config.mounts.into_iter();
    mounts.filter(|mount| mount.unnamed).filter_map(|mount| mount.name).collect()
}

/// Removes unnamed volumes of a container that is gone, except those that another one mounts: it
/// may have them from `--volumes-from`, or be a clone. No container can be made while that is
/// looked up. What others do in the store at this moment is not waited for long.
pub fn release(session: &Session, names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let found = OnceCell::new();
    let select = |volume: &Volume| {
        names.iter().any(|name| name == volume.name())
            && found
                .get_or_init(|| used(session))
                .as_ref()
                .is_ok_and(|used| !used.contains(volume.name()))
    };
    let freed = session.store()?.release_volumes(&select, &|path| ids::delete(session, path))?;
    for name in freed.items {
        journal::tell(session, Kind::Volume, "destroy", Actor::volume(&name));
    }
    Ok(())
}

/// The volumes that containers mount. A record that cannot be read may name any, so it is an error.
pub fn used(session: &Session) -> Result<HashSet<String>> {
    let mut used = HashSet::new();
    for record in session.store()?.containers().map(ContainerDir::read::<Record>)? {
        match record {
            Ok(record) => used.extend(record.config.mounts.into_iter().filter_map(|m| m.name)),
            // It was removed meanwhile.
            Err(store::Error::NoContainer { .. }) => {}
            Err(error) => {
                return Err(Error::from(error).within("it is not known which volumes are in use"));
            }
        }
    }
    Ok(used)
}
