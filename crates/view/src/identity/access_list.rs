//! POSIX access lists, as the bytes of the attributes that hold them: acl(5),
//! `linux/posix_acl_xattr.h`. Pure functions with the results of the kernel's `fs/posix_acl.c`.
//!
//! The entries of the owner, of others, and the mask (the owning group in a list without a mask)
//! always equal the mode of the file. A stored list is not rewritten when the mode changes: its own
//! values of these entries mean nothing, and readers take those of the mode.

use super::credentials::Credentials;
use crate::errno::{Errno, Result};

const HEADER: usize = 4;
const ENTRY: usize = 8;
const VERSION: u32 = 2;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The accesses that a list grants to one thread: bit `w` stands for the set `w` of `R_OK`, `W_OK`
/// and `X_OK`. A union of permissions would say too much: a group's entry must grant the whole set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Granted(u8);

impl Granted {
    /// All that a set of permissions grants.
    fn by(permissions: u32) -> Self {
        let sets = (0..8_u32).filter(|set| set & !permissions == 0);
        Self(sets.fold(0, |granted, set| granted | 1 << set))
    }

    /// Returns true if all of `want` is granted.
    pub const fn allows(self, want: u32) -> bool {
        self.0 & 1 << (want & 7) != 0
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    tag: u16,
    permissions: u32,
    /// The user or group, for entries that name one.
    id: u32,
}

/// A valid list with entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessList<'b> {
    entries: &'b [u8],
}

impl<'b> AccessList<'b> {
    /// Parses the attribute's value, with the kernel's errors; `None` if it has no entries, which
    /// removes a list.
    pub fn parse(bytes: &'b [u8]) -> Result<Option<Self>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (version, entries) = bytes.split_first_chunk::<HEADER>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if entries.len() % ENTRY != 0 {
            return Err(Errno::EINVAL);
        }
        let list = Self { entries };
        if entries.is_empty() {
            Ok(None)
        } else if list.is_valid() {
            Ok(Some(list))
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// `posix_acl_valid`: the order of the entries, and those that must be there.
    fn is_valid(&self) -> bool {
        let (mut before, mut names) = (0, false);
        for Entry { tag, permissions, id } in self.entries() {
            let follows = match tag {
                OWNER => before == 0,
                USER => matches!(before, OWNER | USER),
                OWNING_GROUP => matches!(before, OWNER | USER),
                GROUP | MASK => matches!(before, OWNING_GROUP | GROUP),
                OTHER => before == MASK || matches!(before, OWNING_GROUP | GROUP) && !names,
                _ => false,
            };
            let is_name = matches!(tag, USER | GROUP);
            if !follows || permissions > 7 || is_name && id == u32::MAX {
                return false;
            }
            (before, names) = (tag, names || is_name);
        }
        before == OTHER
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + use<'b> {
        self.entries.chunks_exact(ENTRY).map(|entry| Entry {
            tag: abi::layout::u16_at(entry, 0),
            permissions: abi::layout::u16_at(entry, 2).into(),
            id: abi::layout::u32_at(entry, 4),
        })
    }

    fn has_mask(&self) -> bool {
        self.entries().any(|entry| entry.tag == MASK)
    }

    /// The permissions of owner, group (or mask) and others that follow from the list.
    pub fn mode(&self) -> u32 {
        let middle = if self.has_mask() { MASK } else { OWNING_GROUP };
        self.entries().fold(0, |mode, entry| match entry.tag {
            OWNER => mode | entry.permissions << 6,
            OTHER => mode | entry.permissions,
            tag if tag == middle => mode | entry.permissions << 3,
            _ => mode,
        })
    }

    /// Returns true if it has no entries for particular users or groups, and no mask, so it says no
    /// more than a mode.
    pub fn is_mode(&self) -> bool {
        !self.entries().any(|entry| matches!(entry.tag, USER | GROUP | MASK))
    }

    /// `posix_acl_permission`, for a thread that is not the owner of the file: what the list of a
    /// file with this owning group and mode grants to it.
    pub fn granted(&self, who: &Credentials, group: u32, mode: u32) -> Granted {
        let mask = mode >> 3 & 7;
        let unmasked = !self.has_mask();
        let (mut granted, mut in_group) = (0, false);
        for Entry { tag, permissions, id } in self.entries() {
            match tag {
                USER if id == who.uid.files => return Granted::by(permissions & mask),
                OWNING_GROUP if who.in_group(group) => {
                    let permissions = if unmasked { mask } else { permissions & mask };
                    granted |= Granted::by(permissions).0;
                    in_group = true;
                }
                GROUP if who.in_group(id) => {
                    granted |= Granted::by(permissions & mask).0;
                    in_group = true;
                }
                _ => {}
            }
        }
        if in_group { Granted(granted) } else { Granted::by(mode & 7) }
    }
}

/// Gives the entries of a valid list that equal the mode the values of `mode`.
pub fn set_mode(bytes: &mut [u8], mode: u32) {
    let Some(entries) = bytes.get_mut(HEADER..) else { return };
    let list = AccessList { entries };
    let middle = if list.has_mask() { MASK } else { OWNING_GROUP };
    for entry in entries.chunks_exact_mut(ENTRY) {
        let permissions = match abi::layout::u16_at(entry, 0) {
            OWNER => mode >> 6,
            OTHER => mode,
            tag if tag == middle => mode >> 3,
            _ => continue,
        };
        entry[2..4].copy_from_slice(&(permissions as u16 & 7).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Groups;
    use std::vec::Vec;

    const NONE: u32 = u32::MAX;

    fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn lists_are_valid_in_one_order() {
        let (owner, group, other) = ((OWNER, 6, NONE), (OWNING_GROUP, 4, NONE), (OTHER, 0, NONE));
        let (user, named, mask) = ((USER, 7, 33), (GROUP, 5, 44), (MASK, 7, NONE));
        for (entries, valid) in [
            (&[owner, group, other][..], true),
            (&[owner, user, group, named, mask, other], true),
            (&[owner, user, (USER, 0, 34), group, mask, other], true),
            (&[owner, group, mask, other], true),
            // No mask, twice the same, out of order, incomplete.
            (&[owner, user, group, other], false),
            (&[owner, group, named, other], false),
            (&[owner, owner, group, other], false),
            (&[owner, group, group, other], false),
            (&[owner, group, mask, mask, other], false),
            (&[owner, group, other, other], false),
            (&[owner, group, user, mask, other], false),
            (&[user, owner, group, mask, other], false),
            (&[group, owner, other], false),
            (&[owner, group], false),
            (&[owner, other], false),
            // Bad values.
            (&[(OWNER, 8, NONE), group, other], false),
            (&[owner, (USER, 7, NONE), group, mask, other], false),
            (&[owner, group, (3, 0, NONE), other], false),
        ] {
            let bytes = bytes(entries);
            assert_eq!(AccessList::parse(&bytes).is_ok(), valid, "{entries:?}");
        }
        assert_eq!(AccessList::parse(b""), Ok(None));
        assert_eq!(AccessList::parse(&[2, 0, 0, 0]), Ok(None));
        assert_eq!(AccessList::parse(&[2, 0, 0]), Err(Errno::EINVAL));
        assert_eq!(AccessList::parse(&[1, 0, 0, 0]), Err(Errno::EOPNOTSUPP));
        assert_eq!(AccessList::parse(&[2, 0, 0, 0, 1]), Err(Errno::EINVAL));
    }

    #[test]
    fn a_mode_follows_from_a_list_and_a_list_follows_a_mode() {
        let plain = bytes(&[(OWNER, 6, NONE), (OWNING_GROUP, 4, NONE), (OTHER, 1, NONE)]);
        let list = AccessList::parse(&plain).unwrap().unwrap();
        assert!(list.is_mode() && list.mode() == 0o641);
        let mut masked = bytes(&[
            (OWNER, 6, NONE),
            (USER, 7, 5),
            (OWNING_GROUP, 4, NONE),
            (MASK, 7, NONE),
            (OTHER, 0, NONE),
        ]);
        let list = AccessList::parse(&masked).unwrap().unwrap();
        assert!(!list.is_mode() && list.mode() == 0o670);
        set_mode(&mut masked, 0o100_512);
        let list = AccessList::parse(&masked).unwrap().unwrap();
        assert_eq!(list.mode(), 0o512);
        let permissions: Vec<u32> = list.entries().map(|entry| entry.permissions).collect();
        assert_eq!(permissions, [5, 7, 4, 1, 2]);
        let mut plain = plain;
        set_mode(&mut plain, 0o752);
        assert_eq!(AccessList::parse(&plain).unwrap().unwrap().mode(), 0o752);
    }

    /// The algorithm of acl(5), with the numbers of a file whose group is 50.
    #[test]
    fn the_first_class_that_fits_decides() {
        let list = bytes(&[
            (OWNER, 7, NONE),
            (USER, 0, 10),
            (USER, 7, 11),
            (OWNING_GROUP, 4, NONE),
            (GROUP, 2, 60),
            (GROUP, 0, 70),
            (MASK, 6, NONE),
            (OTHER, 1, NONE),
        ]);
        let list = AccessList::parse(&list).unwrap().unwrap();
        let user = |id, groups: &[u32]| {
            Credentials::new(id, id, Groups::new(groups.iter().copied()).unwrap())
        };
        for (who, mode, granted) in [
            // Named users: their own entry alone, below the mask. Others' permissions do not count.
            (user(10, &[50]), 0o761, &[0][..]),
            (user(11, &[]), 0o761, &[0, 2, 4, 6]),
            (user(11, &[]), 0o771, &[0, 1, 2, 3, 4, 5, 6, 7]),
            (user(11, &[]), 0o747, &[0, 4]),
            // Groups: one entry must grant everything that is wanted.
            (user(20, &[50]), 0o761, &[0, 4]),
            (user(20, &[60]), 0o761, &[0, 2]),
            (user(20, &[50, 60]), 0o761, &[0, 2, 4]),
            (user(20, &[70]), 0o767, &[0]),
            (user(20, &[50, 70]), 0o747, &[0, 4]),
            // Everybody else, whom no mask concerns.
            (user(20, &[]), 0o761, &[0, 1]),
            (user(20, &[]), 0o717, &[0, 1, 2, 3, 4, 5, 6, 7]),
        ] {
            let found = list.granted(&who, 50, mode);
            let sets: Vec<u32> = (0..8).filter(|set| found.allows(*set)).collect();
            assert_eq!(sets, granted, "{:?} {:?} {mode:o}", who.uid.files, who.groups.as_slice());
        }
    }

    #[test]
    fn without_a_mask_the_owning_group_is_in_the_mode() {
        let list = bytes(&[(OWNER, 7, NONE), (OWNING_GROUP, 0, NONE), (OTHER, 0, NONE)]);
        let list = AccessList::parse(&list).unwrap().unwrap();
        let who = Credentials::new(20, 50, Groups::NONE);
        assert_eq!(list.granted(&who, 50, 0o740), Granted::by(4));
    }
}
