//! Reads udocker's own directory: images and containers in its layout.
//!
//! ```text
//! repos/<name>/<tag>/   TAG, v1 or v2, ancestry or manifest, layers as links into layers/, PROTECT
//! layers/               sha256:<digest>, or <id>.layer and <id>.json
//! containers/<id>/      ROOT/, container.json, imagerepo.name, execmode, PROTECT
//! containers/<name>     a link to <id>
//! ```
//!
//! An image that is used is copied into the store once ([`image`]): its layers are hashed, and it
//! gets a manifest in OCI's form whatever form it had (`OpenMOLE` writes schema 1 itself). For a
//! container that is used, a record is made whose root is udocker's tree as it is ([`container`]).
//! Neither changes udocker's files; [`super::migrate`] copies them.

use std::fs::File;
use std::path::{Path, PathBuf};

use oci::{Descriptor, Digest, ImageConfig, Manifest, Reference, media};
use serde_json::Value;
use store::{ContainerDir, Image};

use crate::container::make;
use crate::container::record::{self, Record};
use crate::dialect::{Legacy, uuid};
use crate::error::{Error, Result};
use crate::images::docker_config::{image_config, platform};
use crate::images::pull::{self, Road};
use crate::images::source::Watched;
use crate::images::{layers, remote};
use crate::protection;
use crate::request::ContainerRequest;
use crate::session::{Foreign, Session};

/// How operations use udocker's images and containers.
pub const FOREIGN: Foreign =
    Foreign { container, image, check_removable, check_image_removable, announce };

/// The label of a container that was made of one of udocker's: udocker's id.
pub const LABEL: &str = "dev.coracle.udocker.container";

/// The largest number of parts of an image's name.
const DEEPEST: usize = 16;

/// An image in udocker's directory.
pub struct OldImage {
    /// `NAME:TAG`, as udocker writes it.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    layers: PathBuf,
}

/// A container in udocker's directory.
pub struct OldContainer {
    /// Its UUID.
    pub id: String,
    /// Its names.
    pub names: Vec<String>,
    /// Its directory.
    pub directory: PathBuf,
}

/// All images of udocker's directory, if the dialect has one.
pub fn images(session: &Session) -> Vec<OldImage> {
    let all = |legacy: &Legacy| images_in(&legacy.repos, &legacy.layers);
    session.dialect().legacy.as_ref().map(all).unwrap_or_default()
}

/// All images of a directory of repositories.
pub fn images_in(repos: &Path, layers: &Path) -> Vec<OldImage> {
    let mut found = Vec::new();
    let mut waiting = vec![(repos.to_owned(), 0)];
    while let Some((directory, depth)) = waiting.pop() {
        if depth > 1 && directory.join("TAG").exists() {
            if let Some(name) = name_of(repos, &directory) {
                found.push(OldImage { name, directory, layers: layers.to_owned() });
            }
            continue;
        }
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        waiting.extend(inner.filter(|_| depth < DEEPEST).map(|entry| (entry.path(), depth + 1)));
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn name_of(repos: &Path, directory: &Path) -> Option<String> {
    let path = directory.strip_prefix(repos).ok()?;
    Some(format!("{}:{}", path.parent()?.to_str()?, path.file_name()?.to_str()?))
}

/// udocker's image of this name.
fn find_image(session: &Session, name: &str) -> Option<OldImage> {
    let wanted = remote::reference(session, name).ok();
    let same = |image: &OldImage| {
        image.name == name
            || image.name.strip_suffix(":latest") == Some(name)
            || wanted.is_some() && remote::reference(session, &image.name).ok() == wanted
    };
    images(session).into_iter().find(same)
}

/// The error of a removal that would leave the object listed: nothing is removed from udocker's
/// directory.
fn stays(what: &str, directory: &Path) -> Error {
    Error::denied(format!("{what} is udocker's, in {}", directory.display())).with_hint(
        "udocker itself removes it, or 'coracle migrate udocker --mv' when it was taken over",
    )
}

/// Refuses to remove an image that udocker has.
pub fn check_image_removable(session: &Session, name: &str) -> Result<()> {
    find_image(session, name).map_or(Ok(()), |old| Err(stays(name, &old.directory)))
}

/// Refuses to remove a container whose tree is udocker's.
pub fn check_removable(container: &ContainerDir) -> Result<()> {
    let config = record::read(container)?.config;
    match config.rootfs.filter(|_| config.labels.contains_key(LABEL)) {
        Some(tree) => Err(stays(&record::title(container), &tree)),
        None => Ok(()),
    }
}

/// Copies the image of this name into the store, if udocker has it.
pub fn image(session: &Session, name: &str) -> Result<Option<Image>> {
    match find_image(session, name) {
        Some(image) => {
            image.take(session, remote::reference(session, name).ok().as_ref()).map(Some)
        }
        None => Ok(None),
    }
}

impl OldImage {
    /// Whether udocker protects it from removal.
    pub fn is_protected(&self) -> bool {
        self.directory.join("PROTECT").exists()
    }

    /// For which platform it is; empty if that cannot be read.
    pub fn platform(&self) -> String {
        self.parts().map_or_else(|_| String::new(), |(_, config)| platform(&config).to_string())
    }

    /// Its layers, the lowest first.
    pub fn layers(&self) -> Result<Vec<PathBuf>> {
        Ok(self.parts()?.0)
    }

    /// The file of a layer: the link beside the manifest, else the one in `layers/`.
    fn file(&self, name: &str) -> PathBuf {
        let beside = self.directory.join(name);
        if beside.exists() { beside } else { self.layers.join(name) }
    }

    /// The layers, the lowest first, and the configuration.
    fn parts(&self) -> Result<(Vec<PathBuf>, Value)> {
        let wrong = |what: &str| {
            Error::failed(format!("udocker's image {} cannot be read", self.name))
                .because(format!("{}: {what}", self.directory.display()))
        };
        let texts = |list: &Value, key: &str| -> Vec<String> {
            let entries = list.as_array().into_iter().flatten();
            let text = |entry: &Value| {
                if key.is_empty() { entry.as_str() } else { entry[key].as_str() }.map(str::to_owned)
            };
            entries.filter_map(text).collect()
        };
        if self.directory.join("ancestry").exists() {
            // The newest layer comes first.
            let ids = texts(&read(&self.directory.join("ancestry"))?, "");
            let top = ids.first().ok_or_else(|| wrong("its ancestry is empty"))?;
            let config = read(&self.file(&format!("{top}.json")))?;
            let layers = ids.iter().rev().map(|id| self.file(&format!("{id}.layer")));
            return Ok((layers.filter(|path| path.exists()).collect(), config));
        }
        let manifest = read(&self.directory.join("manifest"))?;
        let (digests, config) = if manifest["fsLayers"].is_array() {
            let digests = texts(&manifest["fsLayers"], "blobSum").into_iter().rev().collect();
            let text = manifest["history"][0]["v1Compatibility"].as_str().unwrap_or("{}");
            (digests, serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?)
        } else {
            let config = manifest["config"]["digest"].as_str();
            let config = config.ok_or_else(|| wrong("its manifest names no configuration"))?;
            (texts(&manifest["layers"], "digest"), read(&self.file(config))?)
        };
        Ok((digests.iter().map(|digest: &String| self.file(digest)).collect(), config))
    }

    /// Copies it into the store, as `wanted` if that is given.
    pub fn take(&self, session: &Session, wanted: Option<&Reference>) -> Result<Image> {
        let within = |report: Error| report.within(format!("cannot take over {}", self.name));
        let store = session.store()?;
        let progress = session.progress();
        let road = Road::new(session, &progress)?;
        let _lease = store.lease()?;
        let (files, old) = self.parts()?;
        let (mut layers, mut diff_ids) = (Vec::new(), Vec::new());
        for file in &files {
            let (descriptor, diff_id) = layer(&road, file).map_err(within)?;
            layers.push(descriptor);
            diff_ids.push(diff_id);
        }
        let config = image_config(&old, &diff_ids)?;
        let descriptor = Descriptor::of(media::OCI_CONFIG, config.raw());
        pull::put(store, &descriptor, config.raw())?;
        let manifest = Manifest::build(media::OCI_MANIFEST, descriptor, layers);
        let mut descriptor = pull::keep(store, &manifest, &config, &manifest.descriptor().digest)?;
        if self.is_protected() {
            let yes = "true".to_owned();
            descriptor.annotations.insert(protection::IMAGE_ANNOTATION.to_owned(), yes);
        }
        pull::unpack_all(&road, &manifest, &config).map_err(within)?;
        let reference = match wanted {
            Some(reference) => reference.clone(),
            None => remote::reference(session, &self.name)?,
        };
        store.images().tag(&reference, &descriptor)?;
        store
            .images()
            .get(&reference)?
            .ok_or_else(|| Error::failed(format!("{} was removed meanwhile", self.name)))
    }
}

fn read(path: &Path) -> Result<Value> {
    let cannot = || Error::failed(format!("cannot read {}", path.display()));
    let text = std::fs::read(path).map_err(|error| cannot().cause(error))?;
    serde_json::from_slice(&text).map_err(|error| cannot().cause(error))
}

/// Stores one layer. Its content may differ from the digest in its name, so it is hashed.
fn layer(road: &Road<'_>, path: &Path) -> Result<(Descriptor, Digest)> {
    let mut file = File::open(path)
        .map_err(|error| Error::failed(format!("cannot read {}", path.display())).cause(error))?;
    let stored = road.store.blobs().put_reader(&mut Watched::new(&mut file, road.cancel));
    road.cancel.check()?;
    let (digest, size) = stored?;
    let named: Option<Digest> =
        path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
    if named.is_some_and(|named| named.algorithm() == digest.algorithm() && named != digest) {
        return Err(Error::failed(format!("{} is damaged: it is {digest}", path.display()))
            .with_hint("pull the image again"));
    }
    layers::described(road, &digest, size, path)
}

/// All containers of udocker's directory, if the dialect has one.
pub fn containers(session: &Session) -> Vec<OldContainer> {
    let all = |legacy: &Legacy| containers_in(&legacy.containers);
    session.dialect().legacy.as_ref().map(all).unwrap_or_default()
}

/// The containers of a directory: those that have a tree.
pub fn containers_in(directory: &Path) -> Vec<OldContainer> {
    let entries = || std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<OldContainer> = entries()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| entry.path().join("ROOT").is_dir())
        .filter_map(|entry| {
            let id = entry.file_name().into_string().ok()?;
            Some(OldContainer { id, names: Vec::new(), directory: entry.path() })
        })
        .collect();
    for entry in entries() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.file_name().unwrap_or_default().to_owned();
        let named = found.iter_mut().find(|found| found.id.as_str() == target);
        if let (Some(named), Ok(name)) = (named, entry.file_name().into_string()) {
            named.names.push(name);
        }
    }
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found
}

/// Makes a record for udocker's container of this name or id, if there is one. Its tree stays where
/// it is.
pub fn container(session: &Session, name: &str) -> Result<Option<ContainerDir>> {
    let found = containers(session);
    let named = |old: &&OldContainer| old.id == name || old.names.iter().any(|known| known == name);
    let Some(old) = found.iter().find(named) else { return Ok(None) };
    // It may have a record already, under another of its names.
    for known in session.store()?.containers().list()? {
        let is_it = |record: Record| record.config.labels.get(LABEL) == Some(&old.id);
        if record::read(&known).is_ok_and(is_it) {
            return Ok(Some(known));
        }
    }
    let mut container = old.adopt(session)?;
    for further in old.names.iter().skip(1) {
        // Another container may have that name.
        let _ = container.add_name(further);
    }
    Ok(Some(container))
}

/// Writes a trace of a new container into udocker's directory. A user who named that directory
/// looks there for what `create` has made.
pub fn announce(session: &Session, container: &ContainerDir) -> Result<()> {
    let Some(legacy) = session.dialect().legacy.as_ref().filter(|legacy| legacy.announces) else {
        return Ok(());
    };
    let directory = legacy.containers.join(uuid(container.id()));
    let image = record::read(container)?.own.image_name;
    let written = std::fs::create_dir_all(&directory)
        .and_then(|()| std::fs::write(directory.join("imagerepo.name"), image));
    written.map_err(|error| {
        Error::failed(format!("cannot write {}", directory.display())).cause(error)
    })
}

impl OldContainer {
    fn text(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.directory.join(name)).unwrap_or_default();
        text.trim().to_owned()
    }

    /// The image it was made from.
    pub fn image(&self) -> String {
        self.text("imagerepo.name")
    }

    /// Its execution mode; empty if it was never set.
    pub fn mode(&self) -> String {
        self.text("execmode").trim_matches('"').to_owned()
    }

    /// `W` if its tree can be written, else `R`.
    pub fn access(&self) -> char {
        let root = self.directory.join("ROOT");
        if rustix::fs::access(&root, rustix::fs::Access::WRITE_OK).is_ok() { 'W' } else { 'R' }
    }

    /// The configuration of its image.
    pub fn config(&self) -> Result<ImageConfig> {
        let old = read(&self.directory.join("container.json")).unwrap_or(Value::Null);
        image_config(&old, &[])
    }

    /// Refuses a tree whose files udocker has rewritten for its F modes.
    pub fn check(&self) -> Result<()> {
        let mode = self.mode();
        if !mode.starts_with('F') {
            return Ok(());
        }
        let name = self.names.first().unwrap_or(&self.id);
        Err(Error::failed(format!("{name} was set up for udocker's mode {mode}"))
            .because("its links and programs were rewritten for that")
            .with_hint(format!("let udocker undo it: udocker setup --execmode=P1 {name}")))
    }

    fn adopt(&self, session: &Session) -> Result<ContainerDir> {
        self.check()?;
        let mut request = ContainerRequest::default();
        request.image.rootfs = Some(self.directory.join("ROOT"));
        request.record.labels.insert(LABEL.to_owned(), self.id.clone());
        request.record.name = Some(self.names.first().unwrap_or(&self.id).clone());
        let config = self.config()?;
        make::adopt(session, &request, &config, &self.image())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_found() {
        let scratch = tempfile::tempdir().unwrap();
        let repos = scratch.path().join("repos");
        for name in ["busybox/1", "quay.io/a/b/latest"] {
            std::fs::create_dir_all(repos.join(name)).unwrap();
            std::fs::write(repos.join(name).join("TAG"), name).unwrap();
        }
        let names: Vec<String> =
            images_in(&repos, Path::new("/none")).into_iter().map(|image| image.name).collect();
        assert_eq!(names, ["busybox:1", "quay.io/a/b:latest"]);
        let containers = scratch.path().join("containers");
        std::fs::create_dir_all(containers.join("u-1/ROOT")).unwrap();
        std::fs::create_dir_all(containers.join("broken")).unwrap();
        std::os::unix::fs::symlink("/elsewhere/containers/u-1", containers.join("c7")).unwrap();
        let found = containers_in(&containers);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].id.as_str(), &found[0].names[..]), ("u-1", &["c7".to_owned()][..]));
    }
}
