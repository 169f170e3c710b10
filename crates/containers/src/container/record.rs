//! A container's record (`container.json`): the engine's [`ContainerConfig`], and the fields that
//! only commands read.

use engine::spec::ContainerConfig;
use rootfs::Driver;
use serde::{Deserialize, Serialize};
use store::ContainerDir;

use crate::error::Result;
use crate::session::Session;

/// A container's record. The engine reads it as a [`ContainerConfig`], which passes over the rest.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Record {
    /// What the engine needs.
    #[serde(flatten)]
    pub config: ContainerConfig,
    /// What the commands want to know.
    #[serde(flatten)]
    pub own: Own,
}

/// The commands' part of a record.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Own {
    /// The image, as the user wrote it.
    pub image_name: String,
    /// The entrypoint alone, before it was merged with the command.
    pub entrypoint: Vec<String>,
    /// The command alone.
    pub cmd: Vec<String>,
    /// How its root is made. In the file it is called `stand`.
    #[serde(rename = "stand")]
    pub root_form: RootForm,
    /// `--index=off`: without mounts it has a whole tree of links.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_index: bool,
    /// `--hostauth`: users and groups are the host's.
    pub hostauth: bool,
    /// GPUs and other devices that are found anew at each start.
    pub gpus: crate::request::gpus::GpuRequest,
}

impl<'de> Deserialize<'de> for Record {
    /// Reads the text twice, once for each part: `flatten` would keep every field in memory first,
    /// which counts when ten thousand containers are listed.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        let wrong = serde::de::Error::custom::<serde_json::Error>;
        let config = serde_json::from_str(text.get()).map_err(wrong)?;
        let own = serde_json::from_str(text.get()).map_err(wrong)?;
        Ok(Self { config, own })
    }
}

/// How a container's root is made. The digests here keep their content in the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RootForm {
    /// How the root is made.
    pub driver: Option<Driver>,
    /// The flattened tree that is used in place of the layers.
    pub tree: Option<String>,
    /// The tree with the true owners, above all others.
    pub owners: Option<String>,
}

/// Reads a container's record.
pub fn read(container: &ContainerDir) -> Result<Record> {
    let mut record: Record = container.read()?;
    if record.config.id.is_empty() {
        container.id().clone_into(&mut record.config.id);
    }
    Ok(record)
}

/// The container that a name or id means.
pub fn find(session: &Session, name: &str) -> Result<ContainerDir> {
    match find_some(session, name)? {
        Some(container) => Ok(container),
        None => Ok(session.store()?.containers().find(name)?),
    }
}

/// The same, `None` where there is none.
pub fn find_some(session: &Session, name: &str) -> Result<Option<ContainerDir>> {
    match session.store()?.containers().find(name) {
        Ok(container) => Ok(Some(container)),
        Err(store::Error::NoContainer { .. } | store::Error::BadName { .. }) => {
            (session.foreign().container)(session, name)
        }
        Err(error) => Err(error.into()),
    }
}

/// `--host-is-gone`: what that host recorded about a container does not count any more. `every`:
/// all containers are meant, also those that the host has nothing to do with.
pub fn forget_host(
    session: &Session,
    container: &ContainerDir,
    host: &str,
    every: bool,
) -> Result<()> {
    use engine::supervise::{Error, state};
    session.store()?.forget_host(host, container)?;
    match state::forget_host(&container.path(), host) {
        Err(Error::OtherHost { .. }) if every => Ok(()),
        forgotten => Ok(forgotten?),
    }
}

/// The container that has this name, which is not the beginning of an id.
pub fn named(session: &Session, name: &str) -> Result<Option<ContainerDir>> {
    let Some(found) = find_some(session, name)? else { return Ok(None) };
    let has = found.id() == name || found.names()?.iter().any(|known| known == name);
    Ok(has.then_some(found))
}

/// The first name of a container, else its short id.
pub fn title(container: &ContainerDir) -> String {
    let names = container.names().unwrap_or_default();
    names.first().cloned().unwrap_or_else(|| container.short_id().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_come_back() {
        let mut record = Record::default();
        record.config.id = "x".into();
        record.config.command = vec!["a".into(), String::new()];
        record.own.cmd = vec!["a".into()];
        record.own.root_form.tree = Some("sha256:0".into());
        let text = serde_json::to_string(&record).unwrap();
        let back: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(back.config, record.config);
        assert_eq!((back.own.cmd, back.own.root_form), (record.own.cmd, record.own.root_form));
        let engine: ContainerConfig = serde_json::from_str(&text).unwrap();
        assert_eq!(engine.id, "x");
    }
}
