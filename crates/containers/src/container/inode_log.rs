//! Reads and writes the owners and modes of files that cannot carry them as an attribute (links,
//! pipes), in a container whose tree is a plain directory.
//!
//! While programs run, these records are in a log by inode (`notes`, see
//! [`engine::engines::interpose`]). The maker of a tree hands them over as a table by path
//! (`loose`), and readers of a tree want such a table (`owners`).

use std::path::Path;

use engine::engines::interpose::by_path;
use rootfs::owner_xattrs::BY_PATH;
use rootfs::union::{UPPER_NOTED, UPPER_OWNERS};
use rootfs::{Owners, Record, drivers};
use rustix::fs::{CWD, Mode, OFlags};

use crate::error::{Error, Result};

/// The log's name: `INODE_LOG` of the crate `hostfs`.
pub const NOTES: &str = "notes";

/// The upper directory of an overlay.
const UPPER: &str = "upper";

/// Writes records into the log.
pub fn add(place: &Path, records: &Owners) -> Result<()> {
    write(&place.join(drivers::ROOT), &place.join(NOTES), records)
}

/// The same of an upper directory, which is mounted.
pub fn add_to_upper(place: &Path, records: &Owners) -> Result<()> {
    write(&place.join(UPPER), &place.join(NOTES), records)
}

/// Writes records of a tree into a log.
pub fn write(tree: &Path, log: &Path, records: &Owners) -> Result<()> {
    let texts = records.iter().map(|(path, record)| (path, record.to_xattr()));
    Ok(by_path::note(tree, log, texts)?)
}

/// Takes over what the maker of the tree left.
pub fn from_loose(place: &Path) -> Result<()> {
    let table = place.join(BY_PATH);
    if !table.exists() {
        return Ok(());
    }
    add(place, &Owners::read(&table)?)?;
    std::fs::remove_file(&table)
        .map_err(|error| Error::failed(format!("cannot remove {}", table.display())).cause(error))
}

/// The same of the maker of the image's tree, which lies beneath an upper directory: engines
/// without mounts have these records from the image's index.
pub fn from_image(place: &Path, lower: &Path) -> Result<()> {
    let table = place.join(BY_PATH);
    if !table.exists() {
        return Ok(());
    }
    write(lower, &place.join(NOTES), &Owners::read(&table)?)?;
    std::fs::remove_file(&table)
        .map_err(|error| Error::failed(format!("cannot remove {}", table.display())).cause(error))
}

/// Takes the table of an upper directory over into the log: what was copied in while no program
/// ran, or came with the directory.
pub fn from_upper_table(place: &Path) -> Result<()> {
    let table = place.join(UPPER_OWNERS);
    if !table.exists() {
        return Ok(());
    }
    write(&place.join(UPPER), &place.join(NOTES), &Owners::read(&table)?)?;
    std::fs::remove_file(&table)
        .map_err(|error| Error::failed(format!("cannot remove {}", table.display())).cause(error))
}

/// Marks the files of an upper directory that have records of an earlier version of Coracle, which
/// did without marks. Who has made a log since has marked all.
pub fn mark_records(place: &Path) -> Result<()> {
    let upper = place.join(UPPER);
    let is_used = |path: &Path| path.read_dir().is_ok_and(|mut all| all.next().is_some());
    if place.join(NOTES).exists() || !is_used(&upper) {
        return Ok(());
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let top = rustix::fs::openat(CWD, &upper, flags, Mode::empty())
        .map_err(|error| Error::failed(format!("cannot open {}", upper.display())).cause(error))?;
    rootfs::owner_xattrs::mark_records(top)?;
    let log = place.join(NOTES);
    std::fs::File::create(&log)
        .map_err(|error| Error::failed(format!("cannot make {}", log.display())).cause(error))?;
    Ok(())
}

/// Makes the table from the log.
pub fn to_table(place: &Path) -> Result<()> {
    to_table_of(place, &place.join(drivers::ROOT))
}

/// The same of a tree that lies elsewhere.
pub fn to_table_of(place: &Path, tree: &Path) -> Result<()> {
    save(place, tree, drivers::ROOT_OWNERS)
}

/// The same of an upper directory.
pub fn to_upper_table(place: &Path) -> Result<()> {
    save(place, &place.join(UPPER), UPPER_NOTED)
}

/// The records that the log has of a container's tree.
fn save(place: &Path, tree: &Path, name: &str) -> Result<()> {
    let mut owners = Owners::new();
    for (path, text) in by_path::noted(tree, &place.join(NOTES))? {
        if let Some(record) = Record::from_xattr(text.as_bytes()) {
            owners.insert(&path, record);
        }
    }
    let table = place.join(name);
    if owners.is_empty() && !table.exists() {
        return Ok(());
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, place, flags, Mode::empty())
        .map_err(|error| Error::failed(format!("cannot open {}", place.display())).cause(error))?;
    Ok(owners.save(&directory, name)?)
}
