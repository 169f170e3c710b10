//! Decides what a thread may do with a file: pure functions of credentials and truths that return
//! the kernel's error.

use super::capabilities::Capability;
use super::credentials::{Credentials, KEEP};
use super::record::{Lists, Truth};
use crate::errno::{Errno, Result};
use linux_raw_sys::general::{
    O_ACCMODE, O_NOATIME, O_PATH, O_RDONLY, O_TRUNC, O_WRONLY, S_IFREG, S_ISGID, S_ISUID, S_ISVTX,
    S_IXGRP, UTIME_NOW, UTIME_OMIT, timespec,
};

/// The access that is wanted: `R_OK`, `W_OK`, `X_OK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want(pub u32);

impl Want {
    /// To read.
    pub const READ: Self = Self(4);
    /// To write.
    pub const WRITE: Self = Self(2);
    /// To execute or search.
    pub const EXECUTE: Self = Self(1);
    /// To make or delete names in a directory.
    pub const CHANGE_NAMES: Self = Self(3);

    /// To open with these flags.
    pub const fn to_open(flags: u32) -> Self {
        let want = match flags & O_ACCMODE {
            O_RDONLY => 4,
            O_WRONLY => 2,
            _ => 6,
        };
        Self(if flags & O_TRUNC != 0 { want | 2 } else { want })
    }
}

/// The permission check by access list and mode, with the capabilities that override it: `EACCES`.
/// The file must have been looked at for this thread.
pub fn may(who: &Credentials, file: &Truth, want: Want) -> Result<()> {
    let wanted = want.0 & 7;
    let by_mode = |shift: u32| wanted & !(file.mode >> shift) == 0;
    let granted = if who.uid.files == file.uid {
        by_mode(6)
    } else if let Some(granted) = file.lists.granted {
        granted.allows(wanted)
    } else {
        by_mode(if who.in_group(file.gid) { 3 } else { 0 })
    };
    if granted {
        return Ok(());
    }
    let executable = file.is_directory() || file.mode & 0o111 != 0;
    if who.has(Capability::DAC_OVERRIDE) && (want.0 & 1 == 0 || executable) {
        return Ok(());
    }
    let reading = if file.is_directory() { want.0 & 2 == 0 } else { want.0 == 4 };
    if who.has(Capability::DAC_READ_SEARCH) && reading {
        return Ok(());
    }
    Err(Errno::EACCES)
}

/// Allows passing through a directory.
pub fn may_search(who: &Credentials, directory: &Truth) -> Result<()> {
    may(who, directory, Want::EXECUTE)
}

/// Allows making a name in a directory: `EACCES`, or `ENOTDIR`.
pub fn may_create(who: &Credentials, parent: &Truth) -> Result<()> {
    if !parent.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    may(who, parent, Want::CHANGE_NAMES)
}

/// Allows removing (or renaming, or replacing) `victim`, a name in `parent`: `EACCES` by the mode,
/// `EPERM` by the sticky bit.
pub fn may_delete(who: &Credentials, parent: &Truth, victim: &Truth) -> Result<()> {
    may_create(who, parent)?;
    let free = parent.mode & S_ISVTX == 0
        || who.uid.files == victim.uid
        || who.uid.files == parent.uid
        || who.has(Capability::FOWNER);
    if free { Ok(()) } else { Err(Errno::EPERM) }
}

/// Allows opening an existing file with `open` flags.
pub fn may_open(who: &Credentials, file: &Truth, flags: u32) -> Result<()> {
    if flags & O_PATH != 0 {
        return Ok(());
    }
    may(who, file, Want::to_open(flags))?;
    if flags & O_NOATIME != 0 {
        return may_change(who, file);
    }
    Ok(())
}

/// Allows making a hard link, as with `fs.protected_hardlinks`: `EPERM`.
pub fn may_link(who: &Credentials, file: &Truth) -> Result<()> {
    let ordinary = file.kind() == S_IFREG
        && file.mode & S_ISUID == 0
        && file.mode & (S_ISGID | S_IXGRP) != S_ISGID | S_IXGRP;
    if ordinary && may(who, file, Want(6)).is_ok() { Ok(()) } else { may_change(who, file) }
}

/// Allows what only the owner may do (`chmod`, `utimensat` with times, `O_NOATIME`): `EPERM`.
pub fn may_change(who: &Credentials, file: &Truth) -> Result<()> {
    if who.uid.files == file.uid || who.has(Capability::FOWNER) {
        Ok(())
    } else {
        Err(Errno::EPERM)
    }
}

/// `utimensat`: setting both times to now needs only write permission.
pub fn may_set_times(who: &Credentials, file: &Truth, times: Option<&[timespec; 2]>) -> Result<()> {
    let all = |nanoseconds: u32| {
        times.is_some_and(|times| {
            times.iter().all(|time| time.tv_nsec as u64 == u64::from(nanoseconds))
        })
    };
    if all(UTIME_OMIT) {
        return Ok(());
    }
    if times.is_some() && !all(UTIME_NOW) {
        return may_change(who, file);
    }
    may_change(who, file).or_else(|_| may(who, file, Want::WRITE))
}

/// Allows `chown` to `uid` and `gid` ([`KEEP`] changes nothing): `EPERM`.
pub fn may_chown(who: &Credentials, file: &Truth, uid: u32, gid: u32) -> Result<()> {
    if who.has(Capability::CHOWN) {
        return Ok(());
    }
    let mine = who.uid.files == file.uid;
    let user_stays = uid == KEEP || (mine && uid == file.uid);
    let group_fits = gid == KEEP || (mine && (gid == file.gid || who.in_group(gid)));
    if user_stays && group_fits { Ok(()) } else { Err(Errno::EPERM) }
}

/// Owner and mode of a new file in `parent`; `mode` has the type, and the umask has been applied,
/// or the directory's default list ([`super::lists::limited`]).
pub fn new_file(
    who: &Credentials,
    parent: &Truth,
    (mode, lists): (u32, Lists),
    device: (u32, u32),
) -> Truth {
    let mut new = Truth { mode, uid: who.uid.files, gid: who.gid.files, device, lists };
    if parent.mode & S_ISGID != 0 {
        new.gid = parent.gid;
        if new.is_directory() {
            new.mode |= S_ISGID;
        } else if new.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP
            && new.kind() == S_IFREG
            && !who.in_group(new.gid)
            && !who.has(Capability::FSETID)
        {
            new.mode &= !S_ISGID;
        }
    }
    new
}
