//! How one call site can be rewritten.
//!
//! ```text
//!   Long    b8 nr nr nr nr          mov $nr, %eax        →  e9 stub             the instruction before the call, of five bytes or more
//!           0f 05                   syscall                 0f 05               (any that can be moved)
//!
//!   Short   48 89 f8                mov %rdi, %rax       →  eb pad              the instruction before, of two to four bytes,
//!           0f 05                   syscall                 0f 05               and padding near by, which jumps to the stub
//!
//!   Call    0f 05                   syscall              →  eb pad              the call itself, and padding
//!
//!   padding 66 2e 0f 1f 84 00 …     nopw …               →  eb over; e9 stub    one instruction of seven bytes or more
//!           cc cc cc cc cc          int3 …               →  e9 stub             or traps
//! ```
//!
//! `Long` and `Short` leave the `syscall` where it is: threads that are blocked in it or stand before it, kernels that restart it, and whoever
//! jumps to it directly find it, and calls that are not caught are made there, at the address where a debugger or `pthread_cancel` wants to
//! see them. `Call` cannot do that, so it comes last.
//!
//! That the instruction before the call is one, and padding is padding, is proven ([`super::boundary`]).

use super::boundary::{before, is_proven};
use super::length::{Decoded, Instruction, Kind, decode};
use core::ops::Range;

/// Which of the forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The instruction before the call becomes a jump to the stub.
    Long,
    /// It becomes a jump to padding.
    Short,
    /// The call becomes a jump to padding.
    Call,
}

/// Padding that is used as a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Padding {
    /// Where it begins.
    pub at: usize,
    /// Bytes of a single instruction that does nothing; 0 for traps.
    pub over: usize,
}

impl Padding {
    /// Where the jump to the stub is put.
    pub const fn step(self) -> usize {
        if self.over == 0 { self.at } else { self.at + 2 }
    }
}

/// How a site is rewritten. Places are indices into [`Text::bytes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Where the `syscall` stands.
    pub site: usize,
    /// The form.
    pub form: Form,
    /// Length of the instruction before the call, which is moved into the stub; 0 for [`Form::Call`].
    pub moved: usize,
    /// The padding, for all but [`Form::Long`].
    pub padding: Option<Padding>,
    /// The number, where the moved instruction is the one that sets it.
    pub number: Option<u32>,
}

/// Code in which a site stands.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// The bytes, with some before and behind what may be changed.
    pub bytes: &'a [u8],
    /// What may be changed: a page, which takes the place of the old one as a whole.
    pub page: (usize, usize),
}

/// The first two bytes of `syscall`.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// What takes the place of a `syscall` where no filter is there to catch it: `into`, which no processor executes in 64-bit mode and no
/// compiler writes there, and the second byte of what was there. So whoever gets the signal knows the instruction by itself.
pub const TRAP: [u8; 2] = [0xce, 0x05];
/// Bytes of a jump with a distance of four bytes.
pub const JUMP: usize = 5;
/// Bytes of one with a distance of one.
const HOP: usize = 2;

impl Text<'_> {
    fn may_change(&self, range: &Range<usize>) -> bool {
        self.page.0 <= range.start && range.end <= self.page.1
    }

    /// The instruction before `site`: its length, and what it is.
    fn before(&self, site: usize) -> Option<Instruction> {
        match decode(&self.bytes[before(self.bytes, site)?..]) {
            Decoded::Instruction(found) => Some(found),
            Decoded::Invalid | Decoded::Unknown => None,
        }
    }

    /// Finds the form for the `syscall` at `site`, which is one: it has been executed. (For others, a form
    /// with an instruction that is moved is proof enough.) `is_free` says whether padding
    /// is still what it was.
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

    /// Padding that a short jump at `from` reaches; `site` is where an instruction is known to be.
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
        // Forward, from one instruction to the next.
        let mut at = site + SYSCALL.len();
        while at < from + HOP + 128 {
            let Decoded::Instruction(found) = decode(self.bytes.get(at..)?) else { break };
            if let Some(padding) = self.padding_at(at, found).filter(fits) {
                return Some(padding);
            }
            at += found.length;
        }
        // Backward, where it looks like padding.
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
