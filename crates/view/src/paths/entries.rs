//! The layout of the entries that `getdents` gives.

use crate::calls::arguments::Arguments;
use abi::calls::Op;
use abi::layout::Dirent;
use linux_raw_sys::general::statx;

/// Size of the largest entry: its head, a name of 255 bytes, NUL, type and padding.
pub(super) const ENTRY_MAX: usize = 24 + 256;

/// The layout of an entry; see getdents(2).
pub(super) fn layout_of(arguments: &Arguments<'_>) -> Dirent {
    match arguments.op() {
        Op::Getdents64 => Dirent::WIDE,
        _ => Dirent::old(arguments.arch),
    }
}

/// Writes an entry of `size` bytes; `offset` is the position behind it.
pub(super) fn put(
    layout: Dirent,
    into: &mut [u8; ENTRY_MAX],
    size: usize,
    name: &[u8],
    facts: &statx,
    offset: u64,
) {
    into.fill(0);
    into[..layout.word].copy_from_slice(&facts.stx_ino.to_le_bytes()[..layout.word]);
    into[layout.word..2 * layout.word].copy_from_slice(&offset.to_le_bytes()[..layout.word]);
    // `size` is at most `ENTRY_MAX`.
    into[layout.length..layout.length + 2].copy_from_slice(&(size as u16).to_le_bytes());
    let kind_at = if layout.type_before_name { layout.name - 1 } else { size - 1 };
    // The file type of an entry is the upper bits of the mode.
    into[kind_at] = (u32::from(facts.stx_mode) >> 12) as u8;
    into[layout.name..layout.name + name.len()].copy_from_slice(name);
}
