//! What is known of files that cannot carry it themselves (links, pipes), in a container whose tree is a plain directory.
//!
//! While programs run it stands in a log by inode (`notes`, see [`engine::engines::interpose`]). Whoever makes a tree hands it over as a table by
//! path (`loose`), and whoever reads one wants such a table (`owners`).

use std::path::Path;

use engine::engines::interpose::loose;
use rootfs::owner_xattrs::BY_PATH;
use rootfs::{Owners, Record, drivers};
use rustix::fs::{CWD, Mode, OFlags};

use crate::report::Report;

/// The log's name.
const NOTES: &str = "notes";

/// Writes records into the log.
pub(crate) fn add(place: &Path, records: &Owners) -> Result<(), Report> {
    let texts = records.iter().map(|(path, record)| (path, record.to_xattr()));
    Ok(loose::note(&place.join(drivers::ROOT), &place.join(NOTES), texts)?)
}

/// Takes over what the maker of the tree left.
pub(crate) fn from_loose(place: &Path) -> Result<(), Report> {
    let table = place.join(BY_PATH);
    if !table.exists() {
        return Ok(());
    }
    add(place, &Owners::read(&table)?)?;
    std::fs::remove_file(&table)
        .map_err(|error| Report::new(format!("cannot remove {}", table.display())).cause(error))
}

/// Makes the table from the log.
pub(crate) fn to_table(place: &Path) -> Result<(), Report> {
    let mut owners = Owners::new();
    for (path, text) in loose::noted(&place.join(drivers::ROOT), &place.join(NOTES))? {
        if let Some(record) = Record::from_xattr(text.as_bytes()) {
            owners.insert(&path, record);
        }
    }
    let table = place.join(drivers::ROOT_OWNERS);
    if owners.is_empty() && !table.exists() {
        return Ok(());
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, place, flags, Mode::empty())
        .map_err(|error| Report::new(format!("cannot open {}", place.display())).cause(error))?;
    Ok(owners.save(&directory, drivers::ROOT_OWNERS)?)
}
