//! The ways in which one call site can be rewritten.
//!
//! ```text
//!   Long    b8 nr nr nr nr    mov $nr, %eax  →  e9 stub    the instruction before the call, of
//!           0f 05             syscall           0f 05      five bytes or more that can be moved
//!
//!   Short   48 89 f8          mov %rdi, %rax →  eb pad     the instruction before, of two to four
//!           0f 05             syscall           0f 05      bytes, and padding near by, which jumps
//!                                                          to the stub
//!
//!   Call    0f 05             syscall        →  eb pad     the call itself, and padding
//!
//!   padding 66 2e 0f 1f 84 …  nopw …         →  eb over; e9 stub   one instruction of seven bytes
//!                                                                  or more
//!           cc cc cc cc cc    int3 …         →  e9 stub            or traps
//! ```
//!
//! `Long` and `Short` leave the `syscall` in place. So it is still there for threads that are
//! blocked in it or about to execute it, for kernels that restart it, and for code that jumps to it
//! directly; and calls that are not caught are made there, at the address where a debugger or
//! `pthread_cancel` expects them. `Call` cannot do that, so it is the last choice.
//!
//! It is proven that the bytes before the call are one instruction, and that padding is padding
//! ([`super::boundary`]).

use super::boundary::{before, is_proven};
use super::length::{Decoded, Instruction, Kind, decode};
use core::ops::Range;

/// The form of a rewritten site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The instruction before the call becomes a jump to the stub.
    Long,
    /// The instruction before the call becomes a jump to padding.
    Short,
    /// The call becomes a jump to padding.
    Call,
}

/// Padding that holds the jump to a stub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Padding {
    /// Its start.
    pub at: usize,
    /// Length of a single instruction that does nothing; 0 for traps.
    pub over: usize,
}

impl Padding {
    /// Position of the jump to the stub.
    pub const fn step(self) -> usize {
        if self.over == 0 { self.at } else { self.at + 2 }
    }
}

/// The rewriting of one site. Positions are indices into [`Text::bytes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Position of the `syscall`.
    pub site: usize,
    /// The form.
    pub form: Form,
    /// Length of the instruction before the call, which is moved into the stub; 0 for
    /// [`Form::Call`].
    pub moved: usize,
    /// The padding, for all forms except [`Form::Long`].
    pub padding: Option<Padding>,
    /// The number, if the moved instruction sets it.
    pub number: Option<u32>,
}

/// The code that contains a site.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// The bytes, including some before and behind the range that may be changed.
    pub bytes: &'a [u8],
    /// The range that may be changed: a page, which replaces the old one as a whole.
    pub page: (usize, usize),
}

/// The bytes of `syscall`.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Replaces a `syscall` where no filter catches it: `into`, which no processor executes in 64-bit
/// mode and no compiler emits there, and the second byte of the original. So the signal handler
/// recognises the instruction by its bytes.
pub const TRAP: [u8; 2] = [0xce, 0x05];
/// Length of a jump with a distance of four bytes.
pub const JUMP: usize = 5;
/// Length of a jump with a distance of one byte.
const HOP: usize = 2;

impl Text<'_> {
    fn may_change(&self, range: &Range<usize>) -> bool {
        self.page.0 <= range.start && range.end <= self.page.1
    }

    /// The instruction before `site`: its length and kind.
    fn before(&self, site: usize) -> Option<Instruction> {
        match decode(&self.bytes[before(self.bytes, site)?..]) {
            Decoded::Instruction(found) => Some(found),
            Decoded::Invalid | Decoded::Unknown => None,
        }
    }

    /// Chooses the form for the `syscall` at `site`. That it is one is known because it has been
    /// executed. (For other sites, a form with a moved instruction is proof enough.) `is_free`
    /// returns true if padding still has its original contents.
    pub fn plan(&self, site: usize, is_free: impl Fn(Padding) -> bool) -> Option<Plan> {
        if self.bytes.get(site..site + SYSCALL.len())? != SYSCALL {
            return None;
        }
        let movable = self.before(site).filter(|found| {
            matches!(found.kind, Kind::Plain | Kind::Nop)
                && self.may_change(&(site - found.length..site))
        });
        if let Some(found) = movable {
            let (moved, number) = (found.length, self.number(site - found.length));
            if moved >= JUMP {
                return Some(Plan { site, form: Form::Long, moved, padding: None, number });
            }
            if moved >= HOP
                && let Some(padding) = self.padding(site, site - moved, &is_free)
            {
                let padding = Some(padding);
                return Some(Plan { site, form: Form::Short, moved, padding, number: None });
            }
        }
        let padding = Some(
            self.padding(site, site, &is_free).filter(|_| self.may_change(&(site..site + HOP)))?,
        );
        Some(Plan { site, form: Form::Call, moved: 0, padding, number: None })
    }

    /// The number that the instruction at `at` puts into rax: `mov $nr, %eax`, `mov $nr, %rax`.
    fn number(&self, at: usize) -> Option<u32> {
        let ([0xb8, value @ ..] | [0x48, 0xc7, 0xc0, value @ ..]) = &self.bytes[at..] else {
            return None;
        };
        Some(u32::from_le_bytes(value.get(..4)?.try_into().ok()?))
    }

    /// Padding that a short jump at `from` reaches; an instruction is known to begin at `site`.
    fn padding(
        &self,
        site: usize,
        from: usize,
        is_free: impl Fn(Padding) -> bool,
    ) -> Option<Padding> {
        let fits = |padding: &Padding| {
            let end = padding.step() + JUMP;
            let distance = padding.step() as isize - (from + HOP) as isize;
            (-128..=127).contains(&distance)
                && self.may_change(&(padding.at..end))
                && is_free(*padding)
        };
        // Search forward, from one instruction to the next.
        let mut at = site + SYSCALL.len();
        while at < from + HOP + 128 {
            let Decoded::Instruction(found) = decode(self.bytes.get(at..)?) else { break };
            if let Some(padding) = self.padding_at(at, found).filter(fits) {
                return Some(padding);
            }
            at += found.length;
        }
        // Search backward, for bytes that look like padding.
        (site.saturating_sub(136)..site).rev().find_map(|at| {
            let Decoded::Instruction(found) = decode(&self.bytes[at..]) else { return None };
            let padding = self.padding_at(at, found).filter(fits)?;
            is_proven(self.bytes, at).then_some(padding)
        })
    }

    fn padding_at(&self, at: usize, found: Instruction) -> Option<Padding> {
        match found.kind {
            Kind::Nop if found.length >= HOP + JUMP => Some(Padding { at, over: found.length }),
            Kind::Trap if self.bytes.get(at..at + JUMP)?.iter().all(|byte| *byte == 0xcc) => {
                Some(Padding { at, over: 0 })
            }
            _ => None,
        }
    }
}
