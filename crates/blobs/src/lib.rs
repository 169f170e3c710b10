//! Freestanding programs that are built with this crate and embedded in the binary.
//!
//! [`stage`] is the static program that guests execute instead of their own (see [`abi::boot`]),
//! [`LOADER_I386`] the one for 32-bit guests ([`abi::boot32`]). Engines write them to a file or to
//! memory.

mod stub32;

use abi::boot::{BASE_STEP, BASES};

/// The list of relocations and the image, packed.
const PACKED: &[u8] = include_bytes!(env!("CORACLE_STAGE"));

/// Bytes of what is packed.
const UNPACKED: usize = decimal(env!("CORACLE_STAGE_UNPACKED"));

/// Bytes of the stage's file.
pub const STAGE_SIZE: usize = decimal(env!("CORACLE_STAGE_SIZE"));

/// Identifies a build of the stage. It is part of a file's name, so that a file with the right name
/// and size need not be compared.
pub const STAGE_MARK: &str = env!("CORACLE_STAGE_MARK");

/// Offset of the program headers in the file, the size of one, and the number of those with an
/// address, as the link script makes them.
const HEADERS: usize = 64;
const HEADER: usize = 56;
const LOADED: usize = 2;

/// The stage for x86-64 at one of its addresses (0 to [`BASES`] - 1), as a complete ELF file. Each
/// call unpacks it, which takes about half a millisecond.
///
/// # Panics
/// Where there is no such place.
#[must_use]
pub fn stage(base: u64) -> Vec<u8> {
    assert!(base < BASES, "the stage has {BASES} places");
    let mut image = zstd::bulk::decompress(PACKED, UNPACKED).unwrap_or_default();
    let (length, rest) = image.split_first_chunk().expect("the list is there");
    let length = u32::from_le_bytes(*length) as usize;
    let places: Vec<usize> = rest[..length]
        .as_chunks()
        .0
        .iter()
        .map(|offset| u32::from_le_bytes(*offset) as usize)
        .collect();
    image.drain(..4 + length);
    let moved = base * BASE_STEP;
    // The entry, and the addresses (virtual and physical) of what is mapped.
    let own = [24].into_iter().chain(
        (0..LOADED).flat_map(|index| [16, 24].map(|field| HEADERS + HEADER * index + field)),
    );
    for place in own.chain(places) {
        let word = &mut image[place..place + 8];
        let address = u64::from_le_bytes(*word.first_chunk().expect("eight bytes"));
        word.copy_from_slice(&address.wrapping_add(moved).to_le_bytes());
    }
    image
}

const fn decimal(digits: &str) -> usize {
    let bytes = digits.as_bytes();
    let (mut number, mut at) = (0, 0);
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as usize;
        at += 1;
    }
    number
}

/// The loader for i386, likewise.
pub const LOADER_I386: &[u8] = &stub32::FILE;
