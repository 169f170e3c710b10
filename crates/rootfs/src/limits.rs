//! Size limits of one layer.

/// Limits of one archive. The defaults accept every realistic image; each violation is an error
/// that names the entry and the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Entries in the archive.
    pub entries: u64,
    /// Sum of all file sizes, holes included, in bytes.
    pub total_bytes: u64,
    /// One file's size, holes included, in bytes.
    pub file_bytes: u64,
    /// One path or link target, in bytes. The kernel's own bound for one call is 4096.
    pub path_bytes: u64,
    /// One extended attribute's value, in bytes.
    pub xattr_bytes: u64,
    /// One PAX header or GNU long name, in bytes.
    pub header_bytes: u64,
    /// Data ranges of one sparse file.
    pub sparse_ranges: u64,
    /// Uncompressed bytes per compressed byte, once `ratio_after` bytes have come out.
    pub ratio: u64,
    /// Below this many uncompressed bytes the ratio is not checked.
    pub ratio_after: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 5_000_000,
            total_bytes: 1 << 40,
            file_bytes: 1 << 40,
            path_bytes: 4095,
            xattr_bytes: 65536,
            header_bytes: 4 << 20,
            sparse_ranges: 1_000_000,
            ratio: 250,
            ratio_after: 4 << 30,
        }
    }
}
