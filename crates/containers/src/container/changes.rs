//! Lists what a container has other than its image.

use super::{ids, record, root_form};
use crate::error::{Error, Result};
use crate::session::Session;

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative to the root, without leading slash.
    pub path: Vec<u8>,
    /// Docker's letter: `A` for added, `C` for changed, `D` for deleted.
    pub kind: char,
}

/// All differences, sorted by path.
pub fn changes(session: &Session, name: &str) -> Result<Vec<Change>> {
    let store = session.store()?;
    let container = record::find(session, name)?;
    let record = record::read(&container)?;
    if record.config.rootfs.is_some() {
        return Err(Error::conflict(format!(
            "{name} was made of a plain directory, so there is nothing to compare it with"
        )));
    }
    let trees = root_form::trees(session, store, &record)?;
    let root = root_form::prepare(session, store, &record, &container.path())?;
    // A letter and a path that NUL ends, as they may cross from another process.
    let lines = ids::within_record(session, &record, &root, |ids| {
        let mut lines = Vec::new();
        for change in rootfs::diff::diff(&trees, &root, ids)? {
            lines.push(change.kind.letter() as u8);
            lines.extend_from_slice(&change.path);
            lines.push(0);
        }
        Ok(lines)
    })?;
    let split = lines.split(|byte| *byte == 0).filter_map(|line| line.split_first());
    Ok(split.map(|(kind, path)| Change { path: path.to_vec(), kind: char::from(*kind) }).collect())
}
