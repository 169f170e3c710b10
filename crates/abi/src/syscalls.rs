//! The identifiers of architectures in seccomp and ptrace, and numbers of calls by name, from the
//! table in [`crate::calls`].

use crate::calls::{Arch, find_name};

/// `AUDIT_ARCH_*` of x86-64 (x32 has the same, with a bit set in the number).
pub const ARCH_X86_64: u32 = 0xc000_003e;
/// `AUDIT_ARCH_*` of i386.
pub const ARCH_I386: u32 = 0x4000_0003;
/// `AUDIT_ARCH_*` of arm64.
pub const ARCH_AARCH64: u32 = 0xc000_00b7;
/// Bit of an x32 call's number.
pub const X32_BIT: u32 = 0x4000_0000;

/// Number of a call on x86-64. Searches the whole table: for hundreds of names, make a map of
/// [`crate::calls::CALLS`].
pub fn x86_64(name: &str) -> Option<u32> {
    find_name(name)?.number(Arch::X86_64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_name() {
        assert_eq!(x86_64("read"), Some(0));
        assert_eq!(x86_64("execveat"), Some(linux_raw_sys::general::__NR_execveat));
        assert_eq!(x86_64("openat2"), Some(437));
        assert_eq!(x86_64("chown32"), None);
        assert_eq!(x86_64("no such call"), None);
    }
}
