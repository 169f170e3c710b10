//! Abstract names of Unix sockets (unix(7)) in a container with networks of its own, which the
//! kernel keeps for each network namespace: a name gets the container's mark before it.
//!
//! A mark has eight bytes. A name that leaves no room for them keeps its length if it ends with so
//! many zeros, as that of a program that gives the whole structure; a mark of the other kind says
//! so. Any other is refused, where the kernel would take it. Names that the kernel has chosen
//! itself (five digits) are unique on the host, and stay.

use super::inet::Network;
use crate::errno::{Errno, Result};
use abi::layout::sockaddr_un::{PATH, SIZE};

const AF_UNIX: u16 = 1;
const MARK: usize = 8;
/// Where a name begins, behind the byte that says that it is abstract.
const NAME: usize = PATH + 1;
/// Length of a name that the kernel has chosen.
const CHOSEN: usize = 5;

/// The container's mark; `cut`: zeros at the name's end were left out.
fn mark(network: &Network<'_>, cut: bool) -> [u8; MARK] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // The table's block and the slot in it: 22 bits.
    let number = network.table.base().to_bits() >> 2 & 0x3f_ffff | u32::from(network.slot.number());
    let mut mark = [if cut { b'C' } else { b'c' }; MARK];
    for (at, digit) in mark[1..MARK - 1].iter_mut().enumerate() {
        *digit = DIGITS[(number >> (4 * at) & 0xf) as usize];
    }
    mark[MARK - 1] = b':';
    mark
}

/// Returns true for the address of an abstract name that the guest has chosen.
pub(super) fn is_its(bytes: &[u8]) -> bool {
    bytes.len() > NAME
        && u16::from_le_bytes([bytes[0], bytes[1]]) == AF_UNIX
        && bytes[PATH] == 0
        && !(bytes.len() == NAME + CHOSEN && bytes[NAME..].iter().all(u8::is_ascii_hexdigit))
}

/// The kernel's address for an abstract name of the guest ([`is_its`]), and its length.
pub(super) fn marked(network: &Network<'_>, bytes: &[u8]) -> Result<([u8; SIZE], usize)> {
    let name = bytes.get(NAME..).unwrap_or_default();
    let cut = bytes.len() + MARK > SIZE;
    let kept = if cut { name.len().saturating_sub(MARK) } else { name.len() };
    let (kept, rest) = name.split_at(kept);
    if rest.iter().any(|byte| *byte != 0) {
        return Err(Errno::ENAMETOOLONG);
    }
    let mut address = [0; SIZE];
    let length = NAME + MARK + kept.len();
    let room = address.get_mut(..length).ok_or(Errno::EINVAL)?;
    room[..PATH].copy_from_slice(&AF_UNIX.to_le_bytes());
    room[NAME..NAME + MARK].copy_from_slice(&mark(network, cut));
    room[NAME + MARK..].copy_from_slice(kept);
    Ok((address, length))
}

/// Takes the container's mark off an address that the kernel has returned, in place. Returns the
/// length, or `None` if it has none.
pub(super) fn unmarked(network: &Network<'_>, bytes: &mut [u8], length: usize) -> Option<usize> {
    let address = bytes.get_mut(..length)?;
    if length < NAME + MARK || !is_its(address) {
        return None;
    }
    let cut = address[NAME..].starts_with(&mark(network, true));
    if !cut && !address[NAME..].starts_with(&mark(network, false)) {
        return None;
    }
    address.copy_within(NAME + MARK.., NAME);
    address[length - MARK..].fill(0);
    Some(if cut { length } else { length - MARK })
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::network::{Slot, Table};
    use core::net::Ipv4Addr;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    fn address(name: &[u8]) -> Vec<u8> {
        [&[1, 0, 0][..], name].concat()
    }

    #[test]
    fn a_mark_is_put_on_and_taken_off() {
        let words: Vec<AtomicU64> =
            (0..abi::network::SIZE / 8).map(|_| AtomicU64::new(0)).collect();
        let table = Table::create(&words, Ipv4Addr::new(127, 77, 0, 0)).unwrap();
        let network = |slot| Network { table, slot: Slot::new(slot).unwrap(), uid: 1000 };
        let padded = [&b"x"[..], &[0; 106]].concat();
        let longest = [b'y'; 107 - MARK];
        for name in [&b"dbus"[..], b"a", b"12345x", b"1234g", &padded, &longest, b"a\0b\0"] {
            let given = address(name);
            assert!(is_its(&given), "{name:?}");
            let (mut bytes, length) = marked(&network(9), &given).unwrap();
            assert!(length <= SIZE && bytes[..3] == [1, 0, 0] && bytes[..length] != given);
            let other = marked(&network(10), &given).unwrap();
            assert_ne!(bytes[..length], other.0[..other.1], "{name:?}");
            let mut foreign = bytes;
            assert_eq!(unmarked(&network(10), &mut foreign, length), None);
            let shown = unmarked(&network(9), &mut bytes, length).unwrap();
            assert_eq!(bytes[..shown], given, "{name:?}");
        }
        assert_eq!(marked(&network(9), &address(&[b'z'; 107])), Err(Errno::ENAMETOOLONG));
        for not_its in [&address(b"")[..], &address(b"00a1f"), b"\x01\0/run", b"\x02\0\0abcdefgh"] {
            assert!(!is_its(not_its), "{not_its:?}");
        }
    }
}
