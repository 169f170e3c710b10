//! What `container.json` holds: the engine's [`ContainerConfig`], and what only the commands want to know.

use engine::spec::ContainerConfig;
use rootfs::Driver;
use serde::{Deserialize, Serialize};
use store::ContainerDir;

use crate::context::Context;
use crate::report::Report;

/// A container's record. The engine reads it as a [`ContainerConfig`], which passes over the rest.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Record {
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
pub(crate) struct Own {
    /// The image, as the user wrote it.
    pub image_name: String,
    /// The entrypoint alone, before it was merged with the command.
    pub entrypoint: Vec<String>,
    /// The command alone.
    pub cmd: Vec<String>,
    /// What its root stands on.
    pub stand: Stand,
    /// `--hostauth`: users and groups are the host's.
    pub hostauth: bool,
    /// GPUs and other devices that are found anew at each start.
    pub gpus: super::gpus::Wishes,
}

impl<'de> Deserialize<'de> for Record {
    /// Reads the text twice, once for each part: `flatten` would keep every field in memory first, which counts when ten
    /// thousand containers are listed.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<serde_json::value::RawValue>::deserialize(deserializer)?;
        let wrong = serde::de::Error::custom::<serde_json::Error>;
        let config = serde_json::from_str(text.get()).map_err(wrong)?;
        let own = serde_json::from_str(text.get()).map_err(wrong)?;
        Ok(Self { config, own })
    }
}

/// What a container's root stands on. Digests that stand here keep their content in the store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Stand {
    /// How the root is made.
    pub driver: Option<Driver>,
    /// The flattened tree that is used in place of the layers.
    pub tree: Option<String>,
    /// The tree with the true owners, above all others.
    pub owners: Option<String>,
}

/// Reads a container's record.
pub(crate) fn read(container: &ContainerDir) -> Result<Record, Report> {
    let mut record: Record = container.read()?;
    if record.config.id.is_empty() {
        container.id().clone_into(&mut record.config.id);
    }
    Ok(record)
}

/// The container that a name or id means.
pub(crate) fn find(context: &Context, name: &str) -> Result<ContainerDir, Report> {
    match find_some(context, name)? {
        Some(container) => Ok(container),
        None => Ok(context.store()?.containers().find(name)?),
    }
}

/// The same, `None` where there is none.
pub(crate) fn find_some(context: &Context, name: &str) -> Result<Option<ContainerDir>, Report> {
    match context.store()?.containers().find(name) {
        Ok(container) => Ok(Some(container)),
        Err(store::Error::NoContainer { .. } | store::Error::BadName { .. }) => {
            crate::udocker::legacy::container(context, name)
        }
        Err(error) => Err(error.into()),
    }
}

/// Refuses where a container runs on another machine that shares the store, or in another pid
/// namespace: nothing may change it from here.
pub(crate) fn is_here(container: &ContainerDir) -> Result<(), Report> {
    Ok(engine::supervise::state::is_here(&container.path())?)
}

/// `--host-is-gone`: what that host recorded about a container does not count any more. `every`:
/// all containers are meant, also those that the host has nothing to do with.
pub(crate) fn forget_host(
    context: &Context,
    container: &ContainerDir,
    host: &str,
    every: bool,
) -> Result<(), Report> {
    use engine::supervise::{Error, state};
    context.store()?.forget_host(host, container)?;
    match state::forget_host(&container.path(), host) {
        Err(Error::OtherHost { .. }) if every => Ok(()),
        forgotten => Ok(forgotten?),
    }
}

/// The container that has this name, which is not the beginning of an id.
pub(crate) fn named(context: &Context, name: &str) -> Result<Option<ContainerDir>, Report> {
    let Some(found) = find_some(context, name)? else { return Ok(None) };
    let has = found.id() == name || found.names()?.iter().any(|known| known == name);
    Ok(has.then_some(found))
}

/// The first name of a container, else its short id.
pub(crate) fn title(container: &ContainerDir) -> String {
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
        record.own.stand.tree = Some("sha256:0".into());
        let text = serde_json::to_string(&record).unwrap();
        let back: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(back.config, record.config);
        assert_eq!((back.own.cmd, back.own.stand), (record.own.cmd, record.own.stand));
        let engine: ContainerConfig = serde_json::from_str(&text).unwrap();
        assert_eq!(engine.id, "x");
    }
}
