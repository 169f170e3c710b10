//! The table of this host's containers in networks ([`abi::network`]), from which engines without
//! network namespaces translate addresses.
//!
//! The file `networks/table-<host>` is made when the first container joins a network on this host.
//! It is written under the lock of the slots, and read by all programs in networks without one.

use std::net::Ipv4Addr;
use std::path::PathBuf;

pub use abi::network::Published;
use abi::network::{BLOCK, Membership, SIZE, Slot, Table};
use rustix::fs::{Mode, OFlags};
use store::Store;
use sys::shared::SharedWords;

use crate::error::{Error, Result};
use crate::members::{Endpoint, change_slots};
use crate::names::host;
use crate::rows;

/// A container's place in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Path of the table.
    pub table: PathBuf,
    /// The container's slot: 0 to 4095.
    pub slot: u16,
}

/// What the table says of a container.
#[derive(Debug, Clone)]
pub struct Row<'a> {
    /// The container's id.
    pub id: &'a str,
    /// Its slot.
    pub slot: u32,
    /// Its networks, if it is in any.
    pub endpoints: &'a [Endpoint],
    /// Ports that it publishes.
    pub published: &'a [Published],
    /// Somebody lives in the container: what its programs have bound stays known.
    pub lives: bool,
    /// Loopback addresses of the host at which it asks for names (resolv.conf(5)).
    pub resolvers: &'a [Ipv4Addr],
}

/// Writes a container that has joined its networks into the table.
///
/// # Errors
/// [`Error::NoSlot`] for a slot that is none; [`Error::TwoPlaces`]; [`Error::TooMany`] for more
/// networks or published ranges than a container may have; [`Error::Table`] if the file cannot be
/// made or mapped.
pub fn enter(store: &Store, row: &Row<'_>) -> Result<Place> {
    let (host, number) = (host(), u16::try_from(row.slot).ok());
    let slot = number.and_then(Slot::new).ok_or(Error::NoSlot { limit: crate::members::SLOTS })?;
    let node = node(row.endpoints)?;
    let path = rows::path(store);
    let written = change_slots(store, &host, |slots| -> Result<()> {
        let words = open(&path).map_err(|source| Error::Table { path: path.clone(), source })?;
        let Some(table) = Table::open(words.words()) else {
            let source = std::io::ErrorKind::InvalidData.into();
            return Err(Error::Table { path: path.clone(), source });
        };
        table.set_resolvers(row.resolvers);
        let (members, id) = (table.members(), key(row.id));
        if !row.lives || members.container(slot) != Some(id) {
            slots.check_published(&members, slot, row.published)?;
            table.take(slot, id);
            for published in row.published {
                if !members.publish(slot, *published) {
                    let limit = abi::network::members::PUBLISHED;
                    return Err(Error::TooMany { what: "published ranges of ports", limit });
                }
            }
        }
        members.set_node(slot, node);
        for endpoint in row.endpoints {
            let membership = Membership {
                network: slots.number(&endpoint.network_id),
                address: endpoint.address,
                prefix: endpoint.subnet.prefix(),
                cluster: endpoint.node.is_some(),
            };
            if !members.join(slot, membership) {
                let limit = abi::network::members::MEMBERSHIPS;
                return Err(Error::TooMany { what: "networks", limit });
            }
        }
        let internal = row.endpoints.iter().all(|endpoint| endpoint.internal);
        members.set_internal(slot, internal && !row.endpoints.is_empty());
        Ok(())
    })?;
    written?;
    Ok(Place { table: path, slot: slot.number() })
}

/// The place of a slot that is in the table already.
///
/// # Errors
/// [`Error::NoSlot`] for a slot that is none.
pub fn place(store: &Store, slot: u32) -> Result<Place> {
    let slot = u16::try_from(slot).ok().and_then(Slot::new);
    let slot = slot.ok_or(Error::NoSlot { limit: crate::members::SLOTS })?;
    Ok(Place { table: rows::path(store), slot: slot.number() })
}

/// The host's address in the networks of several hosts.
fn node(endpoints: &[Endpoint]) -> Result<Option<Ipv4Addr>> {
    let mut of_several = endpoints.iter().filter(|endpoint| endpoint.node.is_some());
    let Some(first) = of_several.next() else { return Ok(None) };
    match of_several.find(|other| other.node != first.node) {
        None => Ok(first.node),
        Some(other) => {
            Err(Error::TwoPlaces { name: other.network.clone(), other: first.network.clone() })
        }
    }
}

/// The first eight bytes of a container's id.
pub(crate) fn key(id: &str) -> u64 {
    id.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(1).max(1)
}

/// Maps the table; makes it where there is none, or one of another version.
fn open(path: &std::path::Path) -> std::io::Result<SharedWords> {
    if let Some(words) = rows::existing(path)? {
        return Ok(words);
    }
    let unfinished = path.with_extension("new");
    let flags = rows::FLAGS | OFlags::CREATE | OFlags::TRUNC;
    let file = rustix::fs::open(&unfinished, flags, Mode::from_raw_mode(0o600))?;
    let words = SharedWords::create(&file, SIZE)?;
    Table::create(words.words(), block(path)).ok_or(std::io::ErrorKind::InvalidData)?;
    std::fs::rename(&unfinished, path)?;
    Ok(words)
}

/// The block of real addresses of a table: another one for each user and store, as far as there are
/// blocks. If two have the same one, their containers take ports from each other, and get others.
fn block(path: &std::path::Path) -> Ipv4Addr {
    const BLOCKS: u64 = (1 << 24) / BLOCK as u64;
    let uid = u64::from(rustix::process::getuid().as_raw());
    let hash = abi::shared::hash(path.as_os_str().as_encoded_bytes(), uid);
    // The host's own loopback addresses lie in the first block.
    let number = 1 + hash % (BLOCKS - 1);
    Ipv4Addr::from_bits(0x7f00_0000 | (number as u32 * BLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_loopback_addresses_and_not_the_first() {
        for number in 0..2000 {
            let block = block(std::path::Path::new(&format!("/home/{number}/table")));
            assert!(block.is_loopback() && block.octets()[1..] != [0, 0, 0], "{block}");
            assert!(u32::from(block).is_multiple_of(BLOCK), "{block}");
        }
    }

    #[test]
    fn a_table_is_made_once_and_anew_for_another_version() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table-here");
        let slot = Slot::new(3).unwrap();
        let words = open(&path).unwrap();
        Table::open(words.words()).unwrap().take(slot, 7);
        let again = open(&path).unwrap();
        assert_eq!(Table::open(again.words()).unwrap().members().container(slot), Some(7));
        std::fs::write(&path, vec![7; SIZE]).unwrap();
        let anew = open(&path).unwrap();
        assert_eq!(Table::open(anew.words()).unwrap().members().container(slot), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn keys_are_not_zero() {
        assert_eq!(key(&"0".repeat(64)), 1);
        assert_eq!(key(&"00000000000000ff11".repeat(4)), 0xff);
    }
}
