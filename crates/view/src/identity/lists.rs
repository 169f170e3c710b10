//! Reads and writes the access lists of files ([`super::access_list`]), and passes a directory's
//! default list on to new files.
//!
//! A list is kept as every attribute that only root may set: under another name, or in the log. The
//! file's record says that there is one ([`Lists`]), so no file without a list is asked for it.
//! Order of writing: first the list, then the record; a list is removed before the record forgets
//! it. So a record may only say too much: a list that is not there grants what the mode does.

use super::access_list::{self, AccessList, Granted};
use super::capabilities::Capability;
use super::credentials::Credentials;
use super::noted;
use super::record::{HIDDEN_ATTRIBUTES, Lists, Truth, can_carry};
use crate::errno::{Errno, Result};
use crate::guest::{Dir, Host};
use core::ffi::CStr;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFLNK, S_IRWXG, statx};

/// Size of the longest list, in bytes.
pub const LIST_MAX: usize = 1024;

/// Which of the two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Who may use the file.
    Access,
    /// What files that are made in the directory inherit.
    Default,
}

impl Which {
    /// The list that an attribute's name means.
    pub fn of(name: &[u8]) -> Option<Self> {
        [Self::Access, Self::Default].into_iter().find(|which| which.name() == name)
    }

    /// The attribute's name for the guest.
    pub fn name(self) -> &'static [u8] {
        &self.on_disk().to_bytes()[HIDDEN_ATTRIBUTES.len()..]
    }

    const fn on_disk(self) -> &'static CStr {
        match self {
            Self::Access => c"user.coracle.x.system.posix_acl_access",
            Self::Default => c"user.coracle.x.system.posix_acl_default",
        }
    }
}

/// A file: where calls of the host reach it, and its status.
pub type At<'f> = (Dir, &'f CStr, &'f statx);

/// Returns true if an attribute that the file system refused is in the inode's record in the log.
fn in_log(facts: &statx, errno: Errno) -> bool {
    match errno {
        Errno::EOPNOTSUPP => true,
        Errno::EPERM | Errno::ENODATA => !can_carry(u32::from(facts.stx_mode)),
        _ => false,
    }
}

/// Reads a list. `ENODATA` if there is none.
pub fn read(
    host: &mut impl Host,
    (dir, path, facts): At<'_>,
    which: Which,
    into: &mut [u8; LIST_MAX],
) -> Result<usize> {
    match host.getxattr(dir, path, true, which.on_disk(), into) {
        Err(errno) if in_log(facts, errno) => noted::get(host, facts, which.name(), into),
        result => result,
    }
}

/// Writes a list.
pub fn write(
    host: &mut impl Host,
    (dir, path, facts): At<'_>,
    which: Which,
    bytes: &[u8],
) -> Result<()> {
    match host.setxattr(dir, path, true, which.on_disk(), bytes, 0) {
        Err(errno) if in_log(facts, errno) => noted::set(host, facts, which.name(), bytes, 0),
        result => result,
    }
}

/// Removes a list, if there is one.
pub fn remove(host: &mut impl Host, (dir, path, facts): At<'_>, which: Which) -> Result<()> {
    let removed = match host.removexattr(dir, path, true, which.on_disk()) {
        Err(errno) if in_log(facts, errno) => noted::remove(host, facts, which.name()),
        result => result,
    };
    if removed == Err(Errno::ENODATA) { Ok(()) } else { removed }
}

/// What the access list of a file grants to a thread. Reads it only if that decides: as in the
/// kernel, the owner's permissions are those of the mode, and so are everybody's if the mode has
/// none for the group.
#[inline(never)]
pub fn granted(
    host: &mut impl Host,
    at: At<'_>,
    who: &Credentials,
    truth: &Truth,
) -> Option<Granted> {
    if !truth.lists.access
        || truth.uid == who.uid.files
        || truth.mode & S_IRWXG == 0
        || who.has(Capability::DAC_OVERRIDE)
    {
        return None;
    }
    let mut bytes = [0; LIST_MAX];
    let list = match read(host, at, Which::Access, &mut bytes) {
        Ok(length) => AccessList::parse(&bytes[..length]),
        Err(Errno::ENODATA) => return None,
        Err(errno) => Err(errno),
    };
    Some(match list {
        Ok(Some(list)) => list.granted(who, truth.gid, truth.mode),
        // A list that cannot be read grants nothing.
        Ok(None) | Err(_) => Granted::default(),
    })
}

/// The mode of a new file that is asked for with `mode` (with its type), and the lists that it
/// gets. A default list of the directory takes the place of the umask.
pub fn limited(
    host: &mut impl Host,
    at: At<'_>,
    parent: &Truth,
    mode: u32,
    umask: u32,
) -> Result<(u32, Lists)> {
    let kind = Truth { mode, ..Truth::default() };
    if kind.kind() == S_IFLNK {
        return Ok((mode, Lists::NONE));
    }
    let inherited = if parent.lists.default { by_default(host, at, &kind)? } else { None };
    Ok(inherited.unwrap_or((mode & !umask, Lists::NONE)))
}

#[inline(never)]
fn by_default(host: &mut impl Host, parent: At<'_>, asked: &Truth) -> Result<Option<(u32, Lists)>> {
    let mut bytes = [0; LIST_MAX];
    let length = match read(host, parent, Which::Default, &mut bytes) {
        Err(Errno::ENODATA) => return Ok(None),
        length => length?,
    };
    Ok(AccessList::parse(&bytes[..length])?.map(|list| {
        let default = asked.is_directory();
        let lists = Lists { access: !list.is_mode(), default, granted: None };
        (asked.mode & (list.mode() | !0o777), lists)
    }))
}

/// Writes the lists of a new file, which [`limited`] has found out, from the default list of its
/// directory.
#[inline(never)]
pub fn inherit(
    host: &mut impl Host,
    parent: At<'_>,
    (dir, path): (Dir, &CStr),
    new: &Truth,
) -> Result<()> {
    let mut bytes = [0; LIST_MAX];
    let length = read(host, parent, Which::Default, &mut bytes)?;
    let list = &mut bytes[..length];
    let mut facts = abi::layout::stat::EMPTY_STATX;
    host.statx(dir, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, &mut facts)?;
    if new.lists.default {
        write(host, (dir, path, &facts), Which::Default, list)?;
    }
    if new.lists.access {
        access_list::set_mode(list, new.mode);
        write(host, (dir, path, &facts), Which::Access, list)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{self, Found, Groups, Want, rules};
    use crate::testing::Fake;
    use crate::world::{Identity, Kind};
    use std::vec::Vec;

    const IDENTITY: Identity = Identity { host_uid: 1000, host_gid: 1000, uid: 0, gid: 0 };
    const NONE: u32 = u32::MAX;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = std::vec![2, 0, 0, 0];
        for (tag, permissions, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// User 33 may read and write, user 34 nothing.
    fn named() -> Vec<u8> {
        let (owner, group, mask, other) =
            ((1, 6, NONE), (4, 0, NONE), (16, 6, NONE), (32, 4, NONE));
        list(&[owner, (2, 6, 33), (2, 0, 34), group, mask, other])
    }

    fn fake() -> Fake {
        let mut fake = Fake::new();
        fake.file("/c/f", "x").dir("/c/d").file("/c/d/new", "");
        for node in &mut fake.tree.nodes {
            (node.uid, node.gid) = (1000, 1000);
        }
        fake
    }

    fn user(id: u32) -> Credentials {
        Credentials::new(id, id, Groups::NONE)
    }

    fn seen(fake: &mut Fake, who: Option<&Credentials>, path: &CStr) -> Found {
        identity::look(fake, &IDENTITY, who, Kind::Tree, Dir::Root, path).unwrap()
    }

    /// Gives a file a list and a mode, as the guest's `setxattr` does.
    fn set(fake: &mut Fake, path: &CStr, which: Which, mode: u32, bytes: &[u8]) {
        let found = seen(fake, None, path);
        write(fake, (Dir::Root, path, &found.facts), which, bytes).unwrap();
        let mut new = Truth { mode: found.truth.kind() | mode, ..found.truth };
        match which {
            Which::Access => new.lists.access = true,
            Which::Default => new.lists.default = true,
        }
        let at = (Dir::Root, path);
        identity::set_truth(fake, &IDENTITY, Kind::Tree, at, &found, &new).unwrap();
    }

    #[test]
    fn a_list_decides_for_all_but_the_owner() {
        let mut fake = fake();
        set(&mut fake, c"/c/f", Which::Access, 0o664, &named());
        for (who, read, write) in [
            (user(33), true, true),
            (user(34), false, false),
            (user(35), true, false),
            (Credentials::new(36, 0, Groups::NONE), false, false),
        ] {
            let truth = seen(&mut fake, Some(&who), c"/c/f").truth;
            let may = |want| rules::may(&who, &truth, want).is_ok();
            assert_eq!((may(Want::READ), may(Want::WRITE)), (read, write), "{:?}", who.uid.files);
        }
        // The mask is in the mode. If that has nothing for the group, the kernel looks at no list.
        set(&mut fake, c"/c/f", Which::Access, 0o644, &named());
        let truth = seen(&mut fake, Some(&user(33)), c"/c/f").truth;
        assert_eq!(rules::may(&user(33), &truth, Want::READ), Ok(()));
        assert_eq!(rules::may(&user(33), &truth, Want::WRITE), Err(Errno::EACCES));
        set(&mut fake, c"/c/f", Which::Access, 0o604, &named());
        let truth = seen(&mut fake, Some(&user(34)), c"/c/f").truth;
        assert_eq!(rules::may(&user(34), &truth, Want::READ), Ok(()));
    }

    #[test]
    fn a_list_is_read_only_where_it_decides() {
        let mut fake = fake();
        set(&mut fake, c"/c/f", Which::Access, 0o664, &named());
        let cost = |fake: &mut Fake, who: Option<&Credentials>| {
            fake.calls();
            seen(fake, who, c"/c/f");
            fake.calls()
        };
        let (once, twice) = (["statx", "getxattr"], ["statx", "getxattr", "getxattr"]);
        assert_eq!(cost(&mut fake, None), once);
        assert_eq!(cost(&mut fake, Some(&Credentials::ROOT)), once);
        assert_eq!(cost(&mut fake, Some(&user(0))), once);
        assert_eq!(cost(&mut fake, Some(&user(33))), twice);
        set(&mut fake, c"/c/f", Which::Access, 0o604, &named());
        assert_eq!(cost(&mut fake, Some(&user(33))), once);
        // Neither for a file with a record and no list, nor for one without a record.
        let found = seen(&mut fake, None, c"/c/f");
        let new = Truth { uid: 5, lists: Lists::NONE, ..found.truth };
        let at = (Dir::Root, c"/c/f");
        identity::set_truth(&mut fake, &IDENTITY, Kind::Tree, at, &found, &new).unwrap();
        assert_eq!(cost(&mut fake, Some(&user(33))), once);
    }

    #[test]
    fn a_list_that_cannot_be_read_grants_nothing() {
        let mut fake = fake();
        set(&mut fake, c"/c/f", Which::Access, 0o664, b"damaged");
        let truth = seen(&mut fake, Some(&user(35)), c"/c/f").truth;
        assert_eq!(rules::may(&user(35), &truth, Want::READ), Err(Errno::EACCES));
        // One that is not there is one that has just been removed.
        let facts = seen(&mut fake, None, c"/c/f").facts;
        remove(&mut fake, (Dir::Root, c"/c/f", &facts), Which::Access).unwrap();
        let truth = seen(&mut fake, Some(&user(35)), c"/c/f").truth;
        assert_eq!(rules::may(&user(35), &truth, Want::READ), Ok(()));
    }

    #[test]
    fn new_files_inherit_default_lists() {
        const FILE: u32 = linux_raw_sys::general::S_IFREG;
        const DIRECTORY: u32 = linux_raw_sys::general::S_IFDIR;
        let mut fake = fake();
        let at = (Dir::Root, c"/c/d");
        let limits = |fake: &mut Fake, mode| {
            let parent = seen(fake, None, at.1);
            let at = (at.0, at.1, &parent.facts);
            limited(fake, at, &parent.truth, mode, 0o077).unwrap()
        };
        assert_eq!(limits(&mut fake, FILE | 0o666), (FILE | 0o600, Lists::NONE));
        set(&mut fake, at.1, Which::Default, 0o755, &named());
        let lists = Lists { access: true, ..Lists::NONE };
        assert_eq!(limits(&mut fake, FILE | 0o666), (FILE | 0o664, lists));
        assert_eq!(limits(&mut fake, FILE | 0o640), (FILE | 0o640, lists));
        let all = Lists { default: true, ..lists };
        assert_eq!(limits(&mut fake, DIRECTORY | 0o777), (DIRECTORY | 0o664, all));
        assert_eq!(limits(&mut fake, S_IFLNK | 0o777), (S_IFLNK | 0o777, Lists::NONE));

        let new = Truth { mode: FILE | 0o640, lists, ..Truth::default() };
        let parent = seen(&mut fake, None, at.1).facts;
        inherit(&mut fake, (at.0, at.1, &parent), (Dir::Root, c"/c/d/new"), &new).unwrap();
        let facts = seen(&mut fake, None, c"/c/d/new").facts;
        let mut bytes = [0; LIST_MAX];
        let file = (Dir::Root, c"/c/d/new", &facts);
        let length = read(&mut fake, file, Which::Access, &mut bytes).unwrap();
        let found = AccessList::parse(&bytes[..length]).unwrap().unwrap();
        assert_eq!((found.mode(), length), (0o640, named().len()));
        assert_eq!(read(&mut fake, file, Which::Default, &mut bytes), Err(Errno::ENODATA));

        // A list without names is a mode.
        let plain = list(&[(1, 7, NONE), (4, 5, NONE), (32, 0, NONE)]);
        set(&mut fake, at.1, Which::Default, 0o755, &plain);
        assert_eq!(limits(&mut fake, FILE | 0o666), (FILE | 0o640, Lists::NONE));
    }
}
