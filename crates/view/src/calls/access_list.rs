//! Parses POSIX access lists, which are extended attributes: acl(5), `linux/posix_acl_xattr.h`.
//!
//! The entries of a list do not grant or refuse access here; only the mode that follows from the
//! list counts.

/// The mode that follows from an access list; see acl(5) and `linux/posix_acl_xattr.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AccessList {
    /// Permission bits of owner, group (or mask) and others.
    pub(super) mode: u32,
    /// It has no entries for particular users or groups, and no mask, so it says no more than a
    /// mode.
    pub(super) is_mode: bool,
    /// It has no entries.
    pub(super) empty: bool,
}

impl AccessList {
    /// Parses the attribute's value; `None` if the kernel would refuse it.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (version, entries) = bytes.split_first_chunk()?;
        if u32::from_le_bytes(*version) != 2 || entries.len() % 8 != 0 {
            return None;
        }
        let (mut seen, mut user, mut group, mut mask, mut other) = (0_u32, 0, 0, 0, 0);
        for entry in entries.chunks_exact(8) {
            let tag = u32::from(abi::layout::u16_at(entry, 0));
            let permissions = u32::from(abi::layout::u16_at(entry, 2));
            if permissions > 7 {
                return None;
            }
            match tag {
                0x01 => user = permissions,
                0x04 => group = permissions,
                0x10 => mask = permissions,
                0x20 => other = permissions,
                0x02 | 0x08 => {}
                _ => return None,
            }
            seen |= tag;
        }
        if seen == 0 {
            return Some(Self { mode: 0, is_mode: false, empty: true });
        }
        if seen & 0x25 != 0x25 || (seen & 0x0a != 0 && seen & 0x10 == 0) {
            return None;
        }
        let middle = if seen & 0x10 != 0 { mask } else { group };
        let mode = user << 6 | middle << 3 | other;
        Some(Self { mode, is_mode: seen == 0x25, empty: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_lists() {
        let list = |entries: &[(u16, u16)]| {
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            for (tag, permissions) in entries {
                bytes.extend(tag.to_le_bytes());
                bytes.extend(permissions.to_le_bytes());
                bytes.extend(u32::MAX.to_le_bytes());
            }
            AccessList::parse(&bytes)
        };
        let plain = list(&[(1, 6), (4, 4), (0x20, 0)]).unwrap();
        assert!(plain.is_mode && plain.mode == 0o640);
        let named = list(&[(1, 6), (2, 7), (4, 4), (0x10, 7), (0x20, 0)]).unwrap();
        assert!(!named.is_mode && named.mode == 0o670);
        assert_eq!(list(&[(1, 6), (2, 7), (4, 4), (0x20, 0)]), None);
        assert!(list(&[]).unwrap().empty);
    }
}
