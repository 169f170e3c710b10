//! Makes, keeps and checks the index of a flattened tree: one file that says what every name in the
//! tree is, as programs see it. [`abi::index`] has the format.
//!
//! The tree is one in the form of [`crate::owner_xattrs`], which engines without mounts use. Its
//! entry in the store has:
//!
//! ```text
//! trees/<key>/tree/           the files
//! trees/<key>/loose           records that fit on no inode
//! trees/<key>/index           the index, mode 0400           ([`write`], [`checked`])
//! trees/<key>/index.checked   that it was checked, and where ([`checked`])
//! ```
//!
//! - [`build`] walks a tree and returns the bytes.
//! - [`write`] puts them into an entry that is being made.
//! - [`checked`] returns the path of the index of a finished entry. It makes an index that is
//!   missing or damaged anew.
//! - [`verify`] checks an index from the beginning, [`remake`] makes one anew.
//! - [`summary`] counts what is in it.
//!
//! An index that cannot be made or kept is no failure of a run: programs then ask the kernel. So
//! callers of [`write`] and [`checked`] note the error and go on.

mod kept;
mod stamp;
mod summary;
mod walk;

pub use kept::{checked, is_there, remake, verify, write};
pub use summary::{Summary, summary};

use crate::error::Error;
use crate::flatten::read_table;
use crate::layer::TREE;
use crate::owner_xattrs::BY_PATH;
use abi::index::{BuildError, DIGEST, File};
use oci::Digest;
use oci::digest::Digester;
use rustix::fd::AsFd;
use rustix::fs::{Mode, fstat, openat};

/// Name of the index beside its tree.
pub const INDEX: &str = "index";
/// Name of the note beside an index that it was checked.
pub const STAMP: &str = "index.checked";

/// The longest index in bytes; some ten million names.
const LONGEST: usize = 1 << 30;

/// Makes the index of the tree in an entry's directory.
///
/// The tree must not change meanwhile. A file that cannot be read is an error.
pub fn build(entry: impl AsFd) -> Result<Vec<u8>, Error> {
    let entry = entry.as_fd();
    let fail = |step, errno| Error::disk(step, TREE.as_bytes(), errno);
    let top = openat(entry, TREE, sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| fail("open", errno))?;
    let block_size = fstat(&top).map_err(|errno| fail("stat", errno))?.st_blksize;
    let names = walk::walk(top, &read_table(entry, BY_PATH)?)?;
    let files: Vec<File<'_>> = names.files().collect();
    // A size that does not fit is none that a file system has.
    let block_size = u32::try_from(block_size).unwrap_or_default();
    let mut bytes = abi::index::build(&files, block_size).map_err(|error| match error {
        BuildError::TooMany => refused("the image has more names than an index can hold"),
        BuildError::Order { number } => {
            refused(format!("name {number} of the tree is out of order"))
        }
    })?;
    if bytes.len() > LONGEST {
        return Err(refused("the image has more names than an index can hold"));
    }
    let digest = raw(&digest(&bytes));
    if let Some(place) = bytes.get_mut(DIGEST) {
        place.copy_from_slice(&digest);
    }
    Ok(bytes)
}

/// The digest of an index, in which the digest's own bytes count as zeros.
fn digest(bytes: &[u8]) -> Digest {
    let mut digester = Digester::sha256();
    digester.update(bytes.get(..DIGEST.start).unwrap_or(bytes));
    digester.update(&[0; DIGEST.end - DIGEST.start]);
    digester.update(bytes.get(DIGEST.end..).unwrap_or_default());
    digester.finish()
}

/// The bytes that a digest's digits stand for.
fn raw(digest: &Digest) -> [u8; DIGEST.end - DIGEST.start] {
    let mut bytes = [0; DIGEST.end - DIGEST.start];
    for (byte, pair) in bytes.iter_mut().zip(digest.hex().as_bytes().chunks(2)) {
        let digit = |at: usize| pair.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        *byte = (digit(0).unwrap_or_default() << 4 | digit(1).unwrap_or_default()) as u8;
    }
    bytes
}

fn refused(problem: impl Into<String>) -> Error {
    Error::Index { path: INDEX.into(), problem: problem.into() }
}
