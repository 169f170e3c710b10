//! Numbers of system calls by name, for each architecture that an x86-64 kernel runs.

mod i386;
mod x86_64;

/// `AUDIT_ARCH_*` of x86-64 (x32 has the same, with a bit set in the number).
pub const ARCH_X86_64: u32 = 0xc000_003e;
/// `AUDIT_ARCH_*` of i386.
pub const ARCH_I386: u32 = 0x4000_0003;
/// `AUDIT_ARCH_*` of arm64.
pub const ARCH_AARCH64: u32 = 0xc000_00b7;
/// Bit of an x32 call's number.
pub const X32_BIT: u32 = 0x4000_0000;

/// Number of a call on x86-64.
pub fn x86_64(name: &str) -> Option<u32> {
    find(x86_64::TABLE, name)
}

/// Number of a call on i386.
pub fn i386(name: &str) -> Option<u32> {
    find(i386::TABLE, name)
}

/// Every call of x86-64, sorted by name.
pub fn all_x86_64() -> &'static [(&'static str, u32)] {
    x86_64::TABLE
}

fn find(table: &[(&str, u32)], name: &str) -> Option<u32> {
    table.binary_search_by_key(&name, |(known, _)| known).ok().map(|at| table[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_right() {
        for table in [x86_64::TABLE, i386::TABLE] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
        assert_eq!(x86_64("read"), Some(0));
        assert_eq!(x86_64("execveat"), Some(linux_raw_sys::general::__NR_execveat));
        assert_eq!(x86_64("openat2"), Some(437));
        assert_eq!(i386("openat2"), Some(437));
        assert_eq!(i386("chown32"), Some(212));
        assert_eq!(x86_64("chown32"), None);
    }
}
