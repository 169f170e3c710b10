//! Imports a root tree from a host directory as one layer archive.
//!
//! [`crate::decode`] and [`crate::apply()`] read archives directly; this module handles
//! directories.

use crate::drivers::Root;
use crate::error::Error;
use crate::pack::{Options, Packed, plain};
use crate::union::{IdMap, Stack};
use std::io::Write;
use std::path::Path;

/// Writes a host directory as a layer. Files belong to 0:0 in it, or with `keep_owners` to their
/// owners on the host. Reading files of mode 000 that belong to the caller widens their mode for a
/// moment.
pub fn directory(path: &Path, keep_owners: bool, writer: impl Write) -> Result<Packed, Error> {
    let ids = if keep_owners { IdMap::identity() } else { IdMap::default() };
    let stack = Stack::own(&Root::Directory(path.to_path_buf()), None, &ids)?;
    plain(&stack, Options::default(), writer)
}
