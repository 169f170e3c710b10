//! Takes udocker's images and containers over into the store.
//!
//! Images come first: their layers are hashed and kept. A container's tree, with all changes in it,
//! becomes an image of one layer and a container of that, under its old names. What was taken over
//! before is skipped, so the operation can be repeated.

use std::path::{Path, PathBuf};

use super::legacy::{self, LABEL, OldContainer, OldImage};
use crate::container::{make, record, removal, running};
use crate::error::{Error, Result};
use crate::images::import::{self, ImportRequest};
use crate::images::remote;
use crate::images::source::Source;
use crate::protection;
use crate::request::ContainerRequest;
use crate::request::gpus::GpuRequest;
use crate::session::Session;

/// Where udocker's objects are.
#[derive(Debug, Clone)]
pub struct Places {
    /// Images by name and tag.
    pub repos: PathBuf,
    /// Layers by digest.
    pub layers: PathBuf,
    /// Containers by id.
    pub containers: PathBuf,
}

/// An image or a container of udocker's.
pub enum Old {
    /// An image.
    Image(OldImage),
    /// A container.
    Container(OldContainer),
}

/// What was taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// An image.
    Image {
        /// Its name.
        name: String,
    },
    /// A container.
    Container {
        /// Its first name, else its old id.
        name: String,
        /// Its new id.
        id: String,
    },
    /// Nothing: it was taken over before.
    Already,
}

/// All that can be taken over, the images first.
///
/// # Errors
/// If there is no directory of udocker's.
pub fn find(places: &Places) -> Result<Vec<Old>> {
    let Places { repos, layers, containers } = places;
    if !repos.is_dir() && !containers.is_dir() {
        return Err(Error::not_found(format!("udocker has nothing in {}", repos.display()))
            .with_hint("name its directory: --from DIR"));
    }
    let images = legacy::images_in(repos, layers).into_iter().map(Old::Image);
    Ok(images.chain(legacy::containers_in(containers).into_iter().map(Old::Container)).collect())
}

/// Takes one image or container over.
pub fn take(session: &Session, old: &Old) -> Result<Taken> {
    session.cancel().check()?;
    match old {
        Old::Image(old) => image(session, old),
        Old::Container(old) => container(session, old),
    }
}

/// Removes from udocker's directory what was taken over; of a container also the links that are its
/// names.
pub fn remove_source(old: &Old) -> Result<()> {
    let directory = match old {
        Old::Image(old) => &old.directory,
        Old::Container(old) => {
            for name in &old.names {
                let link = old.directory.with_file_name(name);
                std::fs::remove_file(&link).map_err(|error| cannot_remove(&link).cause(error))?;
            }
            &old.directory
        }
    };
    store::remove_owned(directory)
        .map_err(|error| cannot_remove(directory).because(error.to_string()))
}

fn cannot_remove(path: &Path) -> Error {
    Error::failed(format!("cannot remove {}", path.display()))
}

fn image(session: &Session, old: &OldImage) -> Result<Taken> {
    let reference = remote::reference(session, &old.name)?;
    if session.store()?.images().get(&reference)?.is_some() {
        return Ok(Taken::Already);
    }
    old.take(session, None)?;
    Ok(Taken::Image { name: old.name.clone() })
}

fn container(session: &Session, old: &OldContainer) -> Result<Taken> {
    let name = old.names.first().unwrap_or(&old.id);
    old.check().map_err(|error| error.within(format!("cannot take over {name}")))?;
    let Some(protected) = release_tree(session, old)? else { return Ok(Taken::Already) };
    let image = format!("localhost/udocker/{}:latest", old.id.to_ascii_lowercase());
    let mut import = ImportRequest::new(Source::Path(old.directory.join("ROOT")));
    import.config = Some(old.config()?);
    import.message = Some(format!("made by udocker of {}", old.image()));
    import.name = Some(image.clone());
    import::import(session, import)?;
    let mut request = ContainerRequest::default();
    request.record.name = Some(name.clone());
    request.record.labels.insert(LABEL.to_owned(), old.id.clone());
    if protected {
        let label = protection::CONTAINER_LABEL.to_owned();
        request.record.labels.insert(label, "true".to_owned());
    }
    // A mode that this program does not have would keep the container from running.
    let mode = Some(old.mode());
    request.image.exec_mode = mode.filter(|mode| engine::choose::by_name(mode).is_some());
    let nvidia = old.directory.join("nvidia").exists();
    request.files.gpus = GpuRequest::new(None, nvidia, &[])?;
    request.image.name = Some(image);
    let (new, mut record) = make::make(session, &request)?;
    let mut container = new.into_container();
    record.own.image_name = old.image();
    container.write(&record)?;
    for further in old.names.iter().skip(1) {
        container.add_name(further)?;
    }
    Ok(Taken::Container { name: name.clone(), id: container.id().to_owned() })
}

/// Removes the record of a container whose root is udocker's tree, so that the tree can be taken
/// over. The answer is whether the container is protected; `None` if it was taken over before.
fn release_tree(session: &Session, old: &OldContainer) -> Result<Option<bool>> {
    let mut protected = old.directory.join("PROTECT").exists();
    for known in session.store()?.containers().list()? {
        let record = record::read(&known)?;
        if record.config.labels.get(LABEL) != Some(&old.id) {
            continue;
        }
        if record.config.rootfs.is_none() {
            return Ok(None);
        }
        protected |= protection::holds(&record.config);
        if !removal::remove_idle(session, &known, removal::Unnamed::Keep)? {
            return Err(running::running(&known));
        }
    }
    Ok(Some(protected))
}
