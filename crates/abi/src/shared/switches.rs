//! Switches that turn off features of the in-process engine: for tests of its fallbacks, and for
//! users whose machine has a defect.

/// Switches, as bits. Usually all are off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switches(pub u64);

/// Names for the command line, in the order of their bits.
const NAMES: [&str; 10] = [
    "no-rewriting",
    "no-openat2",
    "no-wipe-on-fork",
    "no-exec-memory",
    "no-statx",
    "no-set-mm",
    "report-sites",
    "no-memory-files",
    "no-fixed-noreplace",
    "no-filter-cache",
];

impl Switches {
    /// Call sites are never rewritten: mode I2.
    pub const NO_REWRITING: Self = Self(1 << 0);
    /// `openat2` does not exist, as on kernels before 5.6.
    pub const NO_OPENAT2: Self = Self(1 << 1);
    /// `MADV_WIPEONFORK` does not exist, as on kernels before 4.14.
    pub const NO_WIPE_ON_FORK: Self = Self(1 << 2);
    /// `mprotect(PROT_EXEC)` of memory that was written is refused, as SELinux may do.
    pub const NO_EXEC_MEMORY: Self = Self(1 << 3);
    /// `statx` does not exist, as on kernels before 4.11.
    pub const NO_STATX: Self = Self(1 << 4);
    /// `PR_SET_MM_MAP` is refused.
    pub const NO_SET_MM: Self = Self(1 << 5);
    /// Every rewritten site is reported on standard error.
    pub const REPORT_SITES: Self = Self(1 << 6);
    /// `memfd_create` is refused, as on kernels before 3.17.
    pub const NO_MEMORY_FILES: Self = Self(1 << 7);
    /// `MAP_FIXED_NOREPLACE` is only a hint, as on kernels before 4.17.
    pub const NO_FIXED_NOREPLACE: Self = Self(1 << 8);
    /// The kernel runs the filter for every call, as before 5.11.
    pub const NO_FILTER_CACHE: Self = Self(1 << 9);
    /// Calls are caught only by patching the code of every file: modes F. Has no name.
    pub const TEXTS: Self = Self(1 << 32);
    /// In these modes every call raises a signal: mode F1.
    pub const ONLY_TRAPS: Self = Self(1 << 33);
    /// The container has namespaces of its own, whose mounts are its tree: paths are the kernel's,
    /// and only ids and owners are emulated. What cannot be caught goes to the kernel as it is. Has
    /// no name.
    pub const NAMESPACES: Self = Self(1 << 34);

    /// Returns true if all of `other` are on.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds the switches of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Parses names with commas between them. Returns the first unknown name as the error.
    pub fn parse(text: &str) -> Result<Self, &str> {
        let mut found = Self::default();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let bit = NAMES.iter().position(|known| *known == name).ok_or(name)?;
            found = found.with(Self(1 << bit));
        }
        Ok(found)
    }

    /// The names of the switches that are on.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES
            .into_iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 >> bit & 1 != 0)
            .map(|(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        assert_eq!(Switches::parse(""), Ok(Switches::default()));
        let two = Switches::NO_OPENAT2.with(Switches::REPORT_SITES);
        assert_eq!(Switches::parse("no-openat2, report-sites"), Ok(two));
        assert!(two.names().eq(["no-openat2", "report-sites"]));
        assert_eq!(Switches::parse("no-openat2,x"), Err("x"));
        assert!(two.has(Switches::NO_OPENAT2) && !two.has(Switches::NO_STATX));
    }
}
