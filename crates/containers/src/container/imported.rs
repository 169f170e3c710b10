//! Makes containers from imported trees, and from archives that hold a container's tree and its
//! configuration.
//!
//! Such an archive has udocker's form, so containers go both ways: `ROOT/`, and beside it
//! `container.json` (the image's configuration), `imagerepo.name` and `execmode`. What only Coracle
//! knows (mounts, limits, labels, ...) is in `coracle.json`, which udocker ignores.
//! [`super::export`] writes such archives.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;

use serde_json::Value;
use store::ContainerDir;

use super::record::Record;
use super::{export, make, spool};
use crate::error::{Error, Result};
use crate::images::import::{self, ImportRequest, Imported};
use crate::images::source::{Source, Watched};
use crate::images::{docker_config, remote};
use crate::request::ContainerRequest;
use crate::session::Session;

/// The file with the image's configuration.
const CONFIGURATION: &str = "container.json";
/// Bytes of the tree that are kept before they are written.
const BUFFER: usize = 1 << 20;

/// Makes a container of what was imported.
pub fn of_image(
    session: &Session,
    imported: &Imported,
    name: Option<&str>,
) -> Result<ContainerDir> {
    // The record shows the short name, unless that would be looked up at another registry.
    let reference = &imported.reference;
    let familiar = reference.familiar();
    let same = remote::reference(session, &familiar).is_ok_and(|other| other == *reference);
    let mut request = ContainerRequest::default();
    request.record.name = name.map(str::to_owned);
    request.image.name = Some(if same { familiar } else { reference.to_string() });
    let (made, _) = make::make(session, &request)?;
    made.container().sync()?;
    Ok(made.into_container())
}

/// Makes the container, called `name`, and an image of its tree. `source` is an archive that was
/// exported with a container's configuration; `request.config` is replaced by that.
pub fn of_archive(
    session: &Session,
    request: ImportRequest,
    name: Option<&str>,
) -> Result<ContainerDir> {
    let spool = spool::file(session)?;
    let ImportRequest { source, .. } = request;
    let title = source.title();
    let beside = read(session, source, &spool)
        .map_err(|error| error.within(format!("cannot import {title}")))?;
    if !beside.contains_key(CONFIGURATION) {
        return Err(Error::invalid(format!("{title} was not exported with --clone"))
            .because(format!("the archive has no {CONFIGURATION}"))
            .with_hint("a tree alone is imported without it: coracle import --tocontainer"));
    }
    spool::rewind(&spool)?;
    let tree = Source::Stream { reader: Box::new(spool), name: title };
    rebuild(session, ImportRequest { source: tree, ..request }, &beside, name)
}

/// Writes the archive's tree to `layer`; the answer is the files beside it, by name.
fn read(session: &Session, source: Source, layer: &File) -> Result<BTreeMap<String, Vec<u8>>> {
    let limits = rootfs::Limits::default();
    let plain = rootfs::decode::open(Watched::new(source.open()?, session.cancel()), &limits)?;
    let beside = rootfs::cloned::read(plain, &limits, BufWriter::with_capacity(BUFFER, layer));
    session.cancel().check()?;
    Ok(beside?)
}

/// Makes an image of the tree, a container of that, and gives it what the record says.
fn rebuild(
    session: &Session,
    mut request: ImportRequest,
    beside: &BTreeMap<String, Vec<u8>>,
    name: Option<&str>,
) -> Result<ContainerDir> {
    let text =
        |name: &str| beside.get(name).map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    let json =
        |name: &str| beside.get(name).and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let config = json(CONFIGURATION).unwrap_or_default();
    request.config = Some(docker_config::image_config(&config, &[])?);
    let imported = import::import(session, request)?;
    let mut request = ContainerRequest::default();
    request.record.name = name.map(str::to_owned);
    request.image.name = Some(imported.reference.to_string());
    let mode = text("execmode").map(|mode| mode.trim_matches('"').to_owned());
    request.image.exec_mode = mode.filter(|mode| engine::choose::by_name(mode).is_some());
    let (new, mut record) = make::make(session, &request)?;
    let container = new.into_container();
    if let Some(name) = text("imagerepo.name").filter(|name| !name.is_empty()) {
        record.own.image_name = name;
    }
    let old = json(export::RECORD).and_then(|value| serde_json::from_value::<Record>(value).ok());
    if let Some(old) = old {
        take_over(&mut record, old);
    }
    container.write(&record)?;
    container.sync()?;
    Ok(container)
}

/// Gives a new record what the exported one says, but for what belongs to the new container alone.
fn take_over(record: &mut Record, old: Record) {
    let new = std::mem::replace(&mut record.config, old.config);
    record.config.id = new.id;
    record.config.created = new.created;
    record.config.image = new.image;
    record.config.rootfs = None;
    record.own.entrypoint = old.own.entrypoint;
    record.own.cmd = old.own.cmd;
    record.own.gpus = old.own.gpus;
    record.own.hostauth = old.own.hostauth;
}
