//! The guest's registers at a caught call.

use abi::syscalls::{ARCH_I386, ARCH_X86_64};
use view::Call;

/// Registers of the guest at a caught call. The instructions in `entry` write and read them, or
/// they come from a signal's context.
///
/// Each slot has one, at a fixed offset ([`crate::slots::Slot`]).
#[repr(C, align(16))]
pub(crate) struct Frame {
    /// xmm0 to xmm15. The stage never changes their upper halves, and all other vector state.
    pub(crate) vectors: [u128; 16],
    pub(crate) rdi: u64,
    pub(crate) rsi: u64,
    pub(crate) rdx: u64,
    pub(crate) r10: u64,
    pub(crate) r8: u64,
    pub(crate) r9: u64,
    /// First the number of the call, later the result.
    pub(crate) rax: u64,
    pub(crate) rbx: u64,
    pub(crate) rbp: u64,
    pub(crate) r12: u64,
    pub(crate) r13: u64,
    pub(crate) r14: u64,
    pub(crate) r15: u64,
    /// Only for i386 calls, which keep it; `syscall` overwrites it.
    pub(crate) rcx: u64,
    /// The processor's flags.
    pub(crate) flags: u64,
    /// Address at which the guest continues: behind its `syscall` instruction. The kernel leaves it
    /// in rcx, and so does the stage.
    pub(crate) return_address: u64,
    /// The guest's stack pointer.
    pub(crate) stack: u64,
    /// How the call was caught: [`BY_SIGNAL`], [`NARROW`].
    pub(crate) origin: u64,
    /// The number of the call, because `rax` changes.
    pub(crate) number: u64,
}

/// In [`Frame::origin`]: the site is not rewritten, the call was caught by `SIGSYS`.
pub(crate) const BY_SIGNAL: u64 = 1;
/// In [`Frame::origin`]: an i386 call (`int 0x80`).
pub(crate) const NARROW: u64 = 2;

impl Frame {
    /// The call in the view's form.
    pub(crate) fn call(&self) -> Call {
        let number = self.number as u32;
        if self.origin & NARROW == 0 {
            let arguments = [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9];
            Call { arch: ARCH_X86_64, number, arguments }
        } else {
            let arguments = [self.rbx, self.rcx, self.rdx, self.rsi, self.rdi, self.rbp];
            Call { arch: ARCH_I386, number, arguments: arguments.map(|word| word & 0xffff_ffff) }
        }
    }

    /// Address of the guest's `syscall` (or `int 0x80`) instruction: both are two bytes long.
    pub(crate) fn site(&self) -> u64 {
        self.return_address.wrapping_sub(2)
    }

    /// Returns true if the call was caught by a signal.
    pub(crate) fn is_by_signal(&self) -> bool {
        self.origin & BY_SIGNAL != 0
    }
}
