//! Proves that an instruction begins at an address, without knowing where the code begins.
//!
//! Code is a chain of instructions, each directly behind the other, and none longer than 15 bytes.
//! So of any 15 consecutive addresses at least one is a boundary of the true chain. If decoding
//! forward from **each** address of such a stretch leads through one and the same address, that
//! address is a true boundary, whichever chain is the true one. (Chains soon meet, because x86 code
//! synchronises itself.) A chain that reaches bytes which no processor executes is not the true
//! one. More start addresses are used than are needed, up to a few bytes before the address to be
//! proven, in case that the true chain begins there, behind data.

use super::length::{Decoded, LONGEST, decode};
use core::cmp::Ordering;

/// Number of bytes before an address that are used.
pub const BEFORE: usize = 48;

/// Chains must begin at least so many bytes before the address.
const NEAR: usize = 16;

/// A chain that has not been followed yet.
const UNSEEN: u8 = 255;
/// A chain that does not lead to the address, or cannot be followed.
const ASTRAY: u8 = 254;
/// Not a chain of instructions.
const DEAD: u8 = 253;

/// Returns true if it is proven that an instruction begins at `at`. The bytes before it, [`BEFORE`]
/// of them if there are so many, must be code.
///
/// A result of false proves nothing.
pub fn is_proven(bytes: &[u8], at: usize) -> bool {
    let Some(mut chains) = Chains::new(bytes, at, NEAR) else { return false };
    matches!(chains.ends(NEAR), Ends::Same(_) | Ends::Differently)
}

/// Start of the instruction that ends at `at`, if it is proven that one ends and another begins
/// there.
pub fn before(bytes: &[u8], at: usize) -> Option<usize> {
    // The instruction may begin up to 15 bytes before `at`, and chains must lead to its start.
    const FAR: usize = NEAR + LONGEST;
    match Chains::new(bytes, at, FAR)?.ends(FAR) {
        Ends::Same(last) => Some(last),
        Ends::Differently | Ends::Astray | Ends::Nowhere => None,
    }
}

/// Result of following all chains to an address.
enum Ends {
    /// All arrive by the same instruction, which begins here.
    Same(usize),
    /// They arrive by several instructions.
    Differently,
    /// Not all of them arrive.
    Astray,
    /// There are no chains.
    Nowhere,
}

/// The chains that begin before an address.
struct Chains<'a> {
    bytes: &'a [u8],
    /// Start of the first chain.
    start: usize,
    /// Distance from there to the address.
    span: usize,
    /// For each start address the last instruction before the address, or one of the constants
    /// above.
    last: [u8; BEFORE],
}

impl<'a> Chains<'a> {
    /// Requires at least [`LONGEST`] start addresses that lie `near` bytes or more before `at`.
    fn new(bytes: &'a [u8], at: usize, near: usize) -> Option<Self> {
        let start = at.saturating_sub(BEFORE);
        let enough = at - start >= near + LONGEST && at <= bytes.len();
        enough.then_some(Self { bytes, start, span: at - start, last: [UNSEEN; BEFORE] })
    }

    /// Follows the chain from a start address to the address, or to an instruction that was seen
    /// before.
    fn follow(&mut self, from: usize) -> u8 {
        let (mut index, mut end) = (from, UNSEEN);
        let mut lengths = [0_u8; BEFORE];
        while end == UNSEEN {
            end = match decode(&self.bytes[self.start + index..]) {
                Decoded::Instruction(found) => {
                    lengths[index] = found.length as u8;
                    let next = index + found.length;
                    match next.cmp(&self.span) {
                        Ordering::Equal => index as u8,
                        Ordering::Greater => ASTRAY,
                        Ordering::Less => {
                            index = next;
                            self.last[next]
                        }
                    }
                }
                Decoded::Invalid => DEAD,
                Decoded::Unknown => ASTRAY,
            };
        }
        // All instructions of the chain have the same end.
        let mut link = from;
        while link < self.span && self.last[link] == UNSEEN {
            self.last[link] = end;
            if lengths[link] == 0 {
                break;
            }
            link += usize::from(lengths[link]);
        }
        end
    }

    /// Combines the ends of all chains that begin `near` bytes before the address or earlier.
    fn ends(&mut self, near: usize) -> Ends {
        let mut ends = Ends::Nowhere;
        for from in 0..=self.span - near {
            let end = match self.last[from] {
                UNSEEN => self.follow(from),
                known => known,
            };
            let last = self.start + usize::from(end);
            ends = match (end, ends) {
                (DEAD, ends) => ends,
                (ASTRAY, _) => return Ends::Astray,
                (_, Ends::Nowhere) => Ends::Same(last),
                (_, Ends::Same(other)) if other == last => Ends::Same(last),
                _ => Ends::Differently,
            };
        }
        ends
    }
}
