//! Installs system call filters, see
//! [seccomp(2)](https://man7.org/linux/man-pages/man2/seccomp.2.html).

use crate::raw;
use abi::bpf::Instruction;
use linux_raw_sys::general as numbers;
use rustix::io::Errno;

const SET_MODE_FILTER: usize = 1;
const FLAG_SPEC_ALLOW: usize = 1 << 2;

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

fn set_filter(program: &[Instruction], flags: usize) -> Result<usize, Errno> {
    let length = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let program = Program { length, instructions: program.as_ptr() };
    // SAFETY: `program` and the instructions that it points to live until the call returns.
    unsafe { set_program(&raw const program as usize, flags) }
}

/// Installs the filter of a `struct sock_fprog`. Before Linux 3.17 `prctl` did that, without flags.
///
/// # Safety
/// The structure and its instructions must live until the call returns.
pub(crate) unsafe fn set_program(program: usize, flags: usize) -> Result<usize, Errno> {
    const PR_SET_SECCOMP: usize = 22;
    const SECCOMP_MODE_FILTER: usize = 2;
    // SAFETY: the caller guarantees that the structure and its instructions live during the calls;
    // the other arguments are integers.
    unsafe {
        match raw::call(numbers::__NR_seccomp, [SET_MODE_FILTER, flags, program, 0, 0]) {
            Err(Errno::NOSYS) if flags == 0 => {
                raw::call(numbers::__NR_prctl, [PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0])
            }
            result => result,
        }
    }
}

/// Installs a filter for this thread and all its descendants, permanently.
pub fn install(program: &[Instruction]) -> Result<(), Errno> {
    // Without the flag kernels before 5.16 slow every filtered process down against Spectre v4.
    match set_filter(program, FLAG_SPEC_ALLOW) {
        Err(Errno::INVAL | Errno::NOSYS) => set_filter(program, 0).map(drop),
        result => result.map(drop),
    }
}
