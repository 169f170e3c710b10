//! `ioctl` that asks for addresses of interfaces; see netdevice(7).
//!
//! The kernel answers first, so that what is no socket, or no interface, is its affair.

use super::{Interfaces, LABEL, broadcast, mask};
use crate::CallContext;
use crate::calls::arguments::Arguments;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Guest};
use crate::verdict::{After, Call, Verdict};
use abi::calls::Arch;
use core::net::Ipv4Addr;

/// `SIOCGIFCONF`: all addresses.
const ALL: u32 = 0x8912;
/// `SIOCGIFADDR`, `SIOCGIFDSTADDR`.
const ADDRESS: [u32; 2] = [0x8915, 0x8917];
/// `SIOCGIFBRDADDR`.
const BROADCAST: u32 = 0x8919;
/// `SIOCGIFNETMASK`.
const MASK: u32 = 0x891b;
const LO: &[u8] = b"lo";
const AF_INET: u8 = 2;
/// `sizeof(struct sockaddr_in)`, which lies behind the name in `struct ifreq`.
const SOCKET_ADDRESS: usize = 16;
/// The address in that.
const AT: usize = LABEL + 4;

/// `struct ifconf` and `struct ifreq` of an architecture.
struct Layout {
    /// Size of a pointer, which lies at the same offset in `struct ifconf`, behind an `int`.
    word: usize,
    /// Size of `struct ifreq`.
    request: usize,
}

impl Layout {
    fn of(call: &Call) -> Self {
        let word = Arch::from_audit(call.arch).map_or(8, Arch::word);
        // The longest member of the union is `struct ifmap`: two words, and 8 bytes.
        Self { word, request: LABEL + 2 * word + 8 }
    }
}

/// Before such a call; `None` for another one.
pub(crate) fn asked<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Option<Verdict> {
    context.world.network?;
    let code = arguments.int(1);
    if !abi::calls::filter::INTERFACES.contains(&code) {
        return None;
    }
    let mut room = [0; 4];
    if code == ALL && context.backend.read(arguments.word(2), &mut room).is_err() {
        return Some(Verdict::Pass);
    }
    Some(Verdict::Watch(After::Interfaces { room: u32::from_le_bytes(room) }))
}

/// After it. Returns the result for the guest.
pub(crate) fn told<N: Backend>(
    context: &mut CallContext<'_, N>,
    call: &Call,
    room: u32,
    result: i64,
) -> i64 {
    let Some(network) = context.world.network.filter(|_| result >= 0) else { return result };
    let interfaces = Interfaces::of(context, &network);
    let (layout, at) = (Layout::of(call), call.arguments[2]);
    let done = match call.arguments[1] as u32 {
        ALL => list(context.backend, &interfaces, (&layout, at), room),
        code => one(context.backend, &interfaces, code, at),
    };
    done.map_or_else(Errno::result, |()| result)
}

/// Writes all addresses, as many as there is room for; without a buffer the size of all.
fn list(
    guest: &mut impl Guest,
    interfaces: &Interfaces,
    (layout, at): (&Layout, u64),
    room: u32,
) -> Result<()> {
    let mut pointer = [0; 8];
    guest.read(at + layout.word as u64, &mut pointer[..layout.word])?;
    let to = u64::from_le_bytes(pointer);
    let mut lo = [0; LABEL];
    lo[..LO.len()].copy_from_slice(LO);
    let own = interfaces.own().map(|(address, _)| (interfaces.place.label, address));
    let mut length = 0;
    for (label, address) in core::iter::once((lo, Ipv4Addr::LOCALHOST)).chain(own) {
        if to != 0 {
            if length + layout.request > room as usize {
                break;
            }
            let mut entry = [0; LABEL + SOCKET_ADDRESS];
            entry[..LABEL].copy_from_slice(&label);
            entry[LABEL] = AF_INET;
            entry[AT..AT + 4].copy_from_slice(&address.octets());
            guest.write(to + length as u64, &entry)?;
        }
        length += layout.request;
    }
    guest.write(at, &(length as u32).to_le_bytes())
}

/// Writes what is asked of one interface's address.
fn one(guest: &mut impl Guest, interfaces: &Interfaces, code: u32, at: u64) -> Result<()> {
    let mut name = [0; LABEL];
    guest.read(at, &mut name)?;
    let name = until_nul(&name);
    if name == LO {
        return Ok(());
    }
    let is_it = name == until_nul(&interfaces.place.label);
    let own = interfaces.own().next().filter(|_| is_it).ok_or(Errno::EADDRNOTAVAIL)?;
    let shown = match code {
        MASK => mask(own.1),
        BROADCAST => broadcast(own),
        _ => own.0,
    };
    debug_assert!(matches!(code, MASK | BROADCAST) || ADDRESS.contains(&code));
    guest.write(at + AT as u64, &shown.octets())
}

fn until_nul(name: &[u8; LABEL]) -> &[u8] {
    name.split(|byte| *byte == 0).next().unwrap_or_default()
}
