//! Decodes the arguments of a socket call: in registers, or in an array of words that
//! `socketcall(2)` of i386 points to.

use crate::errno::Result;
use crate::guest::Guest;
use crate::verdict::{After, Call, Verdict};
use abi::calls::{Arch, Op, socketcall};

/// The number of words of each of `socketcall`'s calls.
const WORDS: [usize; 21] = [0, 3, 3, 3, 2, 3, 3, 3, 4, 4, 4, 6, 6, 2, 5, 5, 3, 3, 4, 5, 4];
/// `send` and `recv` have no address.
const WITHOUT_ADDRESS: [u64; 2] = [9, 10];

/// A socket call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// The operation, also of a `socketcall`.
    pub(super) op: Op,
    /// Its arguments.
    pub(super) arguments: [u64; 6],
    /// What `accept` has returned.
    pub(super) accepted: Option<u64>,
    /// The call as it was caught.
    call: Call,
    indirect: bool,
}

impl Request {
    /// Decodes a call. `None` if the kernel will report an error, or if there is no address.
    pub(super) fn read(guest: &mut impl Guest, call: &Call, op: Op) -> Option<Self> {
        if op != Op::Socketcall {
            let mut arguments = call.arguments;
            if matches!(Arch::from_audit(call.arch), Some(Arch::I386)) {
                for word in &mut arguments {
                    *word &= 0xffff_ffff;
                }
            }
            return Some(Self { op, arguments, accepted: None, call: *call, indirect: false });
        }
        let number = call.arguments[0] & 0xffff_ffff;
        let op = socketcall(number as u32)?;
        if WITHOUT_ADDRESS.contains(&number) {
            return None;
        }
        let mut bytes = [0; 24];
        let used = 4 * WORDS.get(number as usize)?;
        guest.read(call.arguments[1], &mut bytes[..used]).ok()?;
        let mut arguments = [0; 6];
        for (argument, word) in arguments.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *argument = u64::from(u32::from_le_bytes(*word));
        }
        Some(Self { op, arguments, accepted: None, call: *call, indirect: true })
    }

    /// Returns true if structures in memory are those of i386.
    pub(super) fn is_32_bit(&self) -> bool {
        self.arch() == Arch::I386
    }

    /// The architecture of structures in memory.
    pub(super) fn arch(&self) -> Arch {
        Arch::from_audit(self.call.arch).unwrap_or(Arch::X86_64)
    }

    /// The same call with other arguments. Its number stays, so that a filter of the guest decides
    /// it as before.
    pub(super) fn instead(
        &self,
        guest: &mut impl Guest,
        arguments: [u64; 6],
        after: After,
    ) -> Result<Verdict> {
        let mut call = self.call;
        if self.indirect {
            let mut bytes = [0; 24];
            for (word, argument) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(arguments) {
                *word = (argument as u32).to_le_bytes();
            }
            call.arguments[1] = guest.scratch(&bytes, 4)?;
        } else {
            call.arguments = arguments;
        }
        Ok(Verdict::Instead(call, after))
    }
}
