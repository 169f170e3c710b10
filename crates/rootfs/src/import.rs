//! A root tree from outside, as a layer.
use crate::error::Error;
use std::io::Write;
use std::path::Path;

/// Writes a host directory as a layer archive. Everything belongs to 0:0 unless `keep_owners`.
pub fn directory(path: &Path, keep_owners: bool, writer: impl Write) -> Result<u64, Error> {
    let _ = (path, keep_owners, writer);
    Err(Error::Driver { driver: "import", why: "under construction".into() })
}
