//! The table of networks ([`abi::network`]) of a container that has no network namespace, mapped.

use crate::plan::NetworkPlace;
use abi::network::{Slot, Table};
use rustix::fs::{Mode, OFlags};
use std::io::{Error, ErrorKind, Result};
use sys::shared::SharedWords;
use view::sockets::inet::Network;

/// The table, and the container's place in it.
#[derive(Debug)]
pub struct Networks {
    words: SharedWords,
    slot: Slot,
}

impl Networks {
    /// Maps the table.
    pub fn open(place: &NetworkPlace) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(&place.table, flags, Mode::empty())?;
        let words = SharedWords::map(&file)?;
        let slot = Slot::new(place.slot).ok_or(ErrorKind::InvalidData)?;
        Table::open(words.words()).ok_or(Error::from(ErrorKind::InvalidData))?;
        Ok(Self { words, slot })
    }

    /// As the view sees it.
    pub fn network(&self) -> Option<Network<'_>> {
        let uid = rustix::process::geteuid().as_raw();
        Some(Network { table: Table::open(self.words.words())?, slot: self.slot, uid })
    }
}
