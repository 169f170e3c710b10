//! The file of the [table](crate::table), and its rows of networks that are gone.

use std::path::{Path, PathBuf};

use abi::network::{Slot, Table};
use rustix::fs::{Mode, OFlags};
use store::Store;
use sys::shared::SharedWords;

use crate::error::{Error, Result};
use crate::names::host;

/// Path of this host's table, which may not be there.
pub(crate) fn path(store: &Store) -> PathBuf {
    store.networks().path(&format!("table-{}", host()))
}

/// Takes all containers out of networks that are gone: their numbers are those of other networks
/// from now on, and their addresses may be those of other hosts. Hold the lock of the slots.
///
/// # Errors
/// [`Error::Table`] if the table cannot be mapped.
pub(crate) fn free(store: &Store, networks: &[u16]) -> Result<()> {
    let path = path(store);
    let words = existing(&path).map_err(|source| Error::Table { path, source })?;
    let Some(table) = words.as_ref().and_then(|words| Table::open(words.words())) else {
        return Ok(());
    };
    for slot in (0..).map_while(Slot::new) {
        for network in networks {
            table.members().leave(slot, *network);
        }
    }
    Ok(())
}

/// Takes containers out of networks, by their slots and the networks' numbers. Hold the lock of the
/// slots.
///
/// # Errors
/// [`Error::Table`] if the table cannot be mapped.
pub(crate) fn leave(store: &Store, left: &[(u32, u16)]) -> Result<()> {
    let path = path(store);
    let words = existing(&path).map_err(|source| Error::Table { path, source })?;
    let Some(table) = words.as_ref().and_then(|words| Table::open(words.words())) else {
        return Ok(());
    };
    for (slot, network) in left {
        if let Some(slot) = u16::try_from(*slot).ok().and_then(Slot::new) {
            table.members().leave(slot, *network);
        }
    }
    Ok(())
}

/// How the file is opened.
pub(crate) const FLAGS: OFlags = OFlags::RDWR.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// Maps the table; `None` where there is none, or one of another version.
pub(crate) fn existing(path: &Path) -> std::io::Result<Option<SharedWords>> {
    match rustix::fs::open(path, FLAGS, Mode::empty()) {
        Ok(file) => {
            let words = SharedWords::map(&file)?;
            Ok(Table::open(words.words()).is_some().then_some(words))
        }
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
