//! A root tree from outside, as one layer archive.
//!
//! An archive is taken as it is by [`crate::decode`] and [`crate::apply()`]; here is the way from a directory.

use crate::drivers::Root;
use crate::error::Error;
use crate::pack::{Options, Packed, plain};
use crate::union::{IdMap, Stack};
use std::io::Write;
use std::path::Path;

/// Writes a host directory as a layer. Files belong to 0:0 in it, or with `keep_owners` to whom they belong on the host.
/// Reading files of mode 000 that belong to the caller widens their mode for a moment.
pub fn directory(path: &Path, keep_owners: bool, writer: impl Write) -> Result<Packed, Error> {
    let ids = if keep_owners { IdMap::identity() } else { IdMap::default() };
    let stack = Stack::own(&Root::Directory(path.to_path_buf()), &ids)?;
    plain(&stack, Options::default(), writer)
}
