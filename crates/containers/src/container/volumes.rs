//! Named volumes: found or made when a container is, and filled with what the image has at their place.
//!
//! A new volume with a name is on the disk before anything is told of it or runs in it: it outlives
//! every container. While one is filled, a file beside its content says so; where that is left
//! over, it is filled again.

use std::cell::OnceCell;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use engine::spec::{MountKind, MountSpec};
use store::{Store, Volume, VolumeInfo};

use super::mounts::Wish;
use crate::output::time;
use crate::report::Report;

/// A volume that was made for this container or is empty.
#[derive(Debug)]
pub(crate) struct Fresh {
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
    pub(crate) fn filling(&self) -> PathBuf {
        filling(&self.volume)
    }
}

fn filling(volume: &Volume) -> PathBuf {
    volume.data().with_file_name("filling")
}

/// Turns wishes into mounts; volumes that are not there are made.
pub(crate) fn place(
    store: &Store,
    wishes: Vec<Wish>,
) -> Result<(Vec<MountSpec>, Vec<Fresh>), Report> {
    let (mut mounts, mut fresh) = (Vec::with_capacity(wishes.len()), Vec::new());
    for mut wish in wishes {
        if wish.spec.kind == MountKind::Volume {
            let name = match &wish.spec.name {
                Some(name) => name.clone(),
                None => random_name()?,
            };
            let info = VolumeInfo {
                created: time::now().to_string(),
                anonymous: wish.anonymous,
                ..VolumeInfo::default()
            };
            let (volume, new) = store.volumes().create(&name, &info)?;
            if new && !wish.anonymous {
                volume.sync()?;
            }
            wish.spec.source = volume.data();
            if new || is_empty(&volume.data()) || filling(&volume).exists() {
                let (target, anonymous) = (wish.spec.target.clone(), wish.anonymous);
                fresh.push(Fresh { target, volume, anonymous, fill: !wish.no_copy });
            }
            wish.spec.name = Some(name);
        }
        mounts.push(wish.spec);
    }
    Ok((mounts, fresh))
}

fn is_empty(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// A name for a volume that was given none.
pub(crate) fn random_name() -> Result<String, Report> {
    let mut bytes = [0_u8; 31];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Report::new("cannot make a random name").cause(error))?;
    // One digit short of a container's id, which no volume may look like.
    let mut name = String::with_capacity(63);
    for byte in bytes {
        let _ = write!(name, "{byte:02x}");
    }
    name.push('a');
    Ok(name)
}

/// The names of the unnamed volumes that a container mounts.
pub(crate) fn anonymous_of(
    context: &crate::context::Context,
    container: &store::ContainerDir,
) -> Vec<String> {
    let (Ok(store), Ok(record)) = (context.store(), super::record::read(container)) else {
        return Vec::new();
    };
    let is_anonymous = |name: &&str| {
        let volume = store.volumes().get(name).ok().flatten();
        volume.is_some_and(|volume| volume.info().is_ok_and(|info| info.anonymous))
    };
    let names = record.config.mounts.iter().filter_map(|mount| mount.name.as_deref());
    names.filter(is_anonymous).map(str::to_owned).collect()
}

/// Removes unnamed volumes of a container that is gone, except those that another one mounts: it
/// may have them from `--volumes-from`, or be a clone. Nobody can make a container while that is
/// looked up. What others do in the store at this moment is not waited for long.
pub(crate) fn release(context: &crate::context::Context, names: &[String]) -> Result<(), Report> {
    if names.is_empty() {
        return Ok(());
    }
    let used = OnceCell::new();
    let select = |volume: &store::Volume| {
        names.iter().any(|name| name == volume.name())
            && used
                .get_or_init(|| crate::commands::prune::used_volumes(context))
                .as_ref()
                .is_ok_and(|used| !used.contains(volume.name()))
    };
    context.store()?.release_volumes(&select, &|path| super::ids::delete(context, path))?;
    Ok(())
}
