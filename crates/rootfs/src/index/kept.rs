//! The index of a tree as a file beside it: written with the tree or when it is first asked for,
//! checked before it is used.
//!
//! A whole check reads the file, compares its digest, looks at every record, and compares the
//! root's record with the tree, because a copied store has other inodes. What was checked is noted
//! ([`super::stamp`]), so the next start reads the note and compares one `stat`.
//!
//! No lock is taken: files are renamed into their place whole, and two processes that make the
//! index of one tree make the same.

use super::stamp::{self, Facts, READ, is_trusted};
use super::{INDEX, LONGEST, build, digest, raw, refused};
use crate::error::Error;
use crate::layer::TREE;
use abi::index::{DIGEST, HEADER, Index, ROOT, check};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use store::{Cached, Store};

/// Its owner may read it, and nobody may write.
const MODE: u32 = 0o400;
/// How often a new index is checked while other processes replace it.
const TRIES: usize = 3;

/// Makes the index of an entry that is being built and writes it beside the tree.
pub fn write(entry: impl AsFd) -> Result<(), Error> {
    let entry = entry.as_fd();
    let bytes = build(entry)?;
    let fail = |step, errno| Error::disk(step, INDEX.as_bytes(), errno);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(entry, INDEX, flags, Mode::from_raw_mode(MODE))
        .map_err(|errno| fail("create", errno))?;
    let mut file = std::fs::File::from(file);
    let written = file
        .write_all(&bytes)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        .and_then(|()| sys::fs::chmod_fd(&file, MODE));
    written.map_err(|errno| {
        // Half an index would be checked and made anew; none is simpler.
        let _ = rustix::fs::unlinkat(entry, INDEX, AtFlags::empty());
        fail("write", errno)
    })
}

/// The path of a tree's index, which describes this very tree and is whole. One that is missing or
/// damaged is made anew, once.
///
/// An error says why there is none: the store cannot be written, the disk is full, a file of the
/// tree cannot be read. The caller goes on without.
///
/// The tree must be one in the form of [`crate::owner_xattrs`].
pub fn checked(store: &Store, tree: &Cached) -> Result<PathBuf, Error> {
    let path = tree.path().join(INDEX);
    if stamp::holds(tree.path()) {
        return Ok(path);
    }
    match whole(&open(tree)?) {
        Ok(found) => {
            stamp::note(store, tree, &found.facts);
            Ok(path)
        }
        Err(why) => {
            tracing::debug!("{}: its index is made: {why}", tree.path().display());
            remake(store, tree)
        }
    }
}

/// Makes the index of a finished tree anew, checks it, and returns its path.
pub fn remake(store: &Store, tree: &Cached) -> Result<PathBuf, Error> {
    let keep = |source| Error::Keep { path: tree.path().to_owned(), source };
    // Before the work: nothing could be written.
    store.trees().can_put_beside(tree).map_err(keep)?;
    let entry = open(tree)?;
    store.trees().put_beside(tree, INDEX, &build(&entry)?, MODE).map_err(keep)?;
    let mut found = whole(&entry);
    for _ in 1..TRIES {
        // Another process may replace it by its own at this moment.
        found = found.or_else(|_| whole(&entry));
    }
    stamp::note(store, tree, &found?.facts);
    Ok(tree.path().join(INDEX))
}

/// Checks a tree's index from the beginning, whatever was noted before, and returns its bytes.
pub fn verify(tree: &Cached) -> Result<Vec<u8>, Error> {
    whole(&open(tree)?).map(|found| found.bytes)
}

/// Whether anything has the name of a tree's index.
#[must_use]
pub fn is_there(tree: &Cached) -> bool {
    let path = tree.path().join(INDEX);
    rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// An index that has passed.
struct Whole {
    facts: Facts,
    bytes: Vec<u8>,
}

fn open(tree: &Cached) -> Result<OwnedFd, Error> {
    rustix::fs::openat(CWD, tree.path(), sys::fs::DIRECTORY, Mode::empty())
        .map_err(|errno| Error::Disk { step: "open", path: tree.path().to_owned(), errno })
}

/// Reads and checks the index in an entry's directory.
fn whole(entry: &OwnedFd) -> Result<Whole, Error> {
    let fail = |step, errno| Error::disk(step, INDEX.as_bytes(), errno);
    let file = rustix::fs::openat(entry, INDEX, READ, Mode::empty())
        .map_err(|errno| fail("open", errno))?;
    let before = rustix::fs::fstat(&file).map_err(|errno| fail("stat", errno))?;
    if !is_trusted(&before) {
        return Err(refused("it is no regular file that only its owner or root may write"));
    }
    let size = usize::try_from(before.st_size).ok();
    let Some(size) = size.filter(|size| (HEADER..=LONGEST).contains(size)) else {
        return Err(refused("its length is impossible"));
    };
    let mut bytes = Vec::with_capacity(size);
    std::fs::File::from(file)
        .take(size as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| fail("read", Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let top = sys::fs::stat(entry, TREE.as_bytes()).map_err(|errno| fail("stat", errno))?;
    content(&bytes, &top)?;
    let after = sys::fs::stat(entry, INDEX.as_bytes()).map_err(|errno| fail("stat", errno))?;
    if bytes.len() != size || Facts::of(&before) != Facts::of(&after) {
        return Err(refused("it was changed meanwhile"));
    }
    Ok(Whole { facts: Facts::of(&before), bytes })
}

/// Whether the bytes are a whole index, of the tree whose root is `top`.
fn content(bytes: &[u8], top: &Stat) -> Result<(), Error> {
    if bytes.get(DIGEST) != Some(&raw(&digest(bytes))[..]) {
        return Err(refused("its digest is wrong"));
    }
    let index = Index::open(bytes).ok_or_else(|| refused("its header is wrong"))?;
    check(&index)
        .map_err(|damage| refused(format!("record {}: {}", damage.number, damage.what)))?;
    let root = index.entry(ROOT).ok_or_else(|| refused("it has no root"))?;
    let ctime = i128::from(top.st_ctime) * 1_000_000_000 + i128::from(top.st_ctime_nsec);
    if (root.inode, i128::from(root.ctime)) != (top.st_ino, ctime) {
        return Err(refused("it describes another tree"));
    }
    Ok(())
}
