//! Writes a container's tree as an archive, alone or with all that the container was told.
//!
//! The second form is udocker's, so containers go both ways: `ROOT/`, and beside it
//! `container.json` (the image's configuration), `imagerepo.name` and `execmode`. What only Coracle
//! knows (mounts, limits, labels, ...) is in `coracle.json`, which udocker passes over.

use std::io::{BufWriter, Write};

use rootfs::pack;
use serde_json::{Value, json};

use super::record::{self, Record};
use super::{ids, root_form, told};
use crate::error::{Error, Result};
use crate::session::Session;

/// The record in the archive.
pub const RECORD: &str = "coracle.json";

/// Bytes that are kept before they are written.
const BUFFER: usize = 1 << 20;

/// Writes the archive. `described`: with what the container was told. The writer must write to a
/// descriptor: it may be used in another process.
pub fn export(
    session: &Session,
    name: &str,
    described: bool,
    writer: &mut dyn Write,
) -> Result<()> {
    let store = session.store()?;
    let container = record::find(session, name)?;
    let record = record::read(&container)?;
    let trees = match record.config.rootfs {
        Some(_) => None,
        None => Some(root_form::trees(session, store, &record)?),
    };
    let root = root_form::prepare(session, store, &record, &container.path())?;
    let beside = described.then(|| describe(&record)).transpose()?;
    let cancel = session.cancel();
    let skipped = ids::within_record(session, &record, &root, |ids| {
        let mut writer = BufWriter::with_capacity(BUFFER, cancel.watch(writer));
        let (trees, root) = (trees.as_ref(), Some(&root));
        let packed = match &beside {
            Some(beside) => pack::cloned(trees, root, ids, beside, &mut writer)?,
            None => pack::export(trees, root, ids, pack::Options::default(), &mut writer)?,
        };
        writer.flush().map_err(|error| Error::failed("cannot write the archive").cause(error))?;
        Ok(packed.skipped.join(&0))
    })
    .map_err(|error| cancel.explain(error))?;
    note_skipped(session, &skipped, "/");
    told::tell(session, "export", &container, &record);
    Ok(())
}

/// Tells which sockets an archive lacks: their paths, with NUL between them.
pub(super) fn note_skipped(session: &Session, skipped: &[u8], root: &str) {
    for path in skipped.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
        session.note(&format!("left out: socket {root}{}", String::from_utf8_lossy(path)));
    }
}

/// The files that describe a container.
fn describe(record: &Record) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let json = |value: &Value| serde_json::to_vec_pretty(value).unwrap_or_default();
    let whole = serde_json::to_value(record)
        .map_err(|error| Error::failed("cannot describe the container").cause(error))?;
    let mut files = vec![
        ("container.json", json(&configuration(record))),
        ("imagerepo.name", record.own.image_name.clone().into_bytes()),
        (RECORD, json(&whole)),
    ];
    if let Some(mode) = &record.config.exec_mode {
        files.push(("execmode", mode.clone().into_bytes()));
    }
    Ok(files)
}

/// The configuration of a container's image with what was changed, keys in order, as udocker has
/// it.
pub fn configuration(record: &Record) -> Value {
    let config = &record.config;
    let list = |words: &[String]| if words.is_empty() { Value::Null } else { json!(words) };
    json!({
        "architecture": config.platform.split('/').nth(1).unwrap_or_default(),
        "config": {
            "Cmd": list(&record.own.cmd),
            "Entrypoint": list(&record.own.entrypoint),
            "Env": config.env,
            "Hostname": config.hostname.clone().unwrap_or_default(),
            "Labels": config.labels,
            "User": config.user,
            "WorkingDir": config.cwd,
        },
        "container": config.id,
        "created": config.created,
        "os": config.platform.split('/').next().unwrap_or_default(),
    })
}
