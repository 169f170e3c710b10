//! Proofs that an instruction begins at an address, without knowing where the code begins.
//!
//! Code is a chain of instructions, one behind the other, none longer than 15 bytes. So of any 15 addresses in a row, at least one is a link
//! of the true chain. Who decodes forward from each address of such a stretch, and finds that **all** chains lead through one address
//! (they soon meet: x86 code synchronises itself), has decoded forward from a true boundary, whichever it was; chains that reach bytes which no
//! processor executes are not the true one. More addresses are asked than are needed, up to a few bytes before the one to be proven,
//! in case that the chain begins there, behind data.

use super::length::{Decoded, LONGEST, decode};
use core::cmp::Ordering;

/// How many bytes before an address are looked at.
pub const BEFORE: usize = 48;

/// Up to how many bytes before an address chains must lead there.
const NEAR: usize = 16;

/// A chain that nobody has followed yet.
const UNSEEN: u8 = 255;
/// One that does not lead to the address, or of which that cannot be told.
const ASTRAY: u8 = 254;
/// One that is none.
const DEAD: u8 = 253;

/// Whether an instruction begins at `at`. The bytes before it, [`BEFORE`] of them if there are as many, must be code.
///
/// False says nothing.
pub fn is_proven(bytes: &[u8], at: usize) -> bool {
    let Some(mut chains) = Chains::new(bytes, at, NEAR) else { return false };
    matches!(chains.ends(NEAR), Ends::Same(_) | Ends::Differently)
}

/// Where the instruction begins that ends at `at`. That it does, and that one begins at `at`, is proven.
pub fn before(bytes: &[u8], at: usize) -> Option<usize> {
    // It may begin up to 15 bytes before `at`, and chains must lead there.
    const FAR: usize = NEAR + LONGEST;
    match Chains::new(bytes, at, FAR)?.ends(FAR) {
        Ends::Same(last) => Some(last),
        Ends::Differently | Ends::Astray | Ends::Nowhere => None,
    }
}

/// How a number of chains lead to an address.
enum Ends {
    /// All by the instruction that begins here.
    Same(usize),
    /// By several.
    Differently,
    /// Not all of them do.
    Astray,
    /// There are none.
    Nowhere,
}

/// Chains that begin before an address.
struct Chains<'a> {
    bytes: &'a [u8],
    /// Where the first of them begins.
    start: usize,
    /// How far the address is from there.
    span: usize,
    /// For each beginning the last instruction before the address, or what else is known.
    last: [u8; BEFORE],
}

impl<'a> Chains<'a> {
    /// With at least [`LONGEST`] beginnings that are `near` bytes before `at` or more.
    fn new(bytes: &'a [u8], at: usize, near: usize) -> Option<Self> {
        let start = at.saturating_sub(BEFORE);
        let enough = at - start >= near + LONGEST && at <= bytes.len();
        enough.then_some(Self { bytes, start, span: at - start, last: [UNSEEN; BEFORE] })
    }

    /// Follows the chain from a beginning to the address, or to where another one has been.
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
        // All links of the chain end as it does.
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

    /// How those end that begin `near` bytes before the address or earlier.
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
