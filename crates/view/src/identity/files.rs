//! Reads and writes owner and mode of a file as the guest sees them: the attribute, the mark, the
//! record in the log.
//!
//! All functions take a host path without symbolic links (or a held descriptor and an empty path)
//! and never follow a link at its end.
//!
//! Order of writing: first the attribute, then the mode with the mark. To remove a record: first
//! the mode without the mark, then the attribute. A crash in between leaves a file that is
//! described by its mode on disk, never one with the record of another file.
//!
//! A new inode that is to have a record is made with a mode that says so ([`unfinished_bits`]). Who
//! finds it meanwhile waits for the record.

use super::capabilities::Capability;
use super::credentials::{Credentials, KEEP};
use super::lists;
use super::record::{
    HIDDEN_ATTRIBUTES, Lists, ORIGIN, OWNER, RECORD_MAX, Truth, can_carry, is_unfinished,
    may_be_recorded, note_key, unfinished_bits,
};
use super::rules;
use crate::errno::{Errno, Result};
use crate::guest::{Dir, Host};
use crate::world::{Identity, Kind};
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFBLK, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG,
    S_ISGID, S_ISUID, S_ISVTX, S_IXGRP, statx,
};

/// A status with all fields zero.
pub const NO_FACTS: statx = abi::layout::stat::EMPTY_STATX;

/// A file, as the kernel and as the guest see it.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The kernel's status.
    pub facts: statx,
    /// Type, mode and owner as the guest sees them.
    pub truth: Truth,
    /// There is a record, as an attribute or in the log.
    pub recorded: bool,
}

impl Found {
    /// Returns true if owner and mode are emulated. They are not for real devices, and for files
    /// that the kernel makes up: for those the host's kernel decides what the caller may do.
    pub const fn emulates(&self, kind: Kind) -> bool {
        matches!(kind, Kind::Tree | Kind::Host | Kind::HostName)
            && !matches!(self.facts.stx_mode as u32 & S_IFMT, S_IFCHR | S_IFBLK)
    }
}

/// `statx` of a host file, with its type, mode and owner for the guest. `who` is the thread whose
/// permission is to be checked, if any.
pub fn look(
    host: &mut impl Host,
    identity: &Identity,
    who: Option<&Credentials>,
    kind: Kind,
    dir: Dir,
    path: &CStr,
) -> Result<Found> {
    let mut facts = NO_FACTS;
    host.statx(dir, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, &mut facts)?;
    let (truth, recorded) = truth_of(host, identity, who, kind, (dir, path), &facts);
    Ok(Found { facts, truth, recorded })
}

/// Type, mode and owner of a file for the guest, from its `statx`; the flag is true if they come
/// from a record. Asks the host only if there may be a record. `who` is the thread whose permission
/// is to be checked, if any: only for it an access list is read.
pub fn truth_of(
    host: &mut impl Host,
    identity: &Identity,
    who: Option<&Credentials>,
    kind: Kind,
    (dir, path): (Dir, &CStr),
    facts: &statx,
) -> (Truth, bool) {
    let mode = u32::from(facts.stx_mode);
    if kind == Kind::Tree
        && let Some(truth) = host.truth_in_image(facts)
    {
        return (with_list(host, who, (dir, path), facts, truth), true);
    }
    if matches!(kind, Kind::Tree | Kind::Host | Kind::HostName) && may_be_recorded(mode) {
        let mut found = recorded(host, dir, path, facts);
        if found.is_none() && is_unfinished(mode) {
            found = once_recorded(host, (dir, path), facts);
        }
        if let Some(recorded) = found {
            return (with_list(host, who, (dir, path), facts, recorded), true);
        }
    }
    (unrecorded(identity, kind, facts), false)
}

/// Waits for the record of an inode that another thread is making. `None` for one that was made
/// some time ago: its mode is what it has.
#[cold]
#[inline(never)]
fn once_recorded(host: &mut impl Host, (dir, path): (Dir, &CStr), facts: &statx) -> Option<Truth> {
    while host.pause(facts.stx_ctime.tv_sec) {
        if let Some(truth) = recorded(host, dir, path, facts) {
            return Some(truth);
        }
    }
    None
}

/// Adds what an access list grants to the thread whose permission is to be checked.
fn with_list(
    host: &mut impl Host,
    who: Option<&Credentials>,
    (dir, path): (Dir, &CStr),
    facts: &statx,
    mut truth: Truth,
) -> Truth {
    if let Some(who) = who.filter(|_| truth.lists.access) {
        truth.lists.granted = lists::granted(host, (dir, path, facts), who, &truth);
    }
    truth
}

/// Type, mode and owner of a file without a record.
pub fn unrecorded(identity: &Identity, kind: Kind, facts: &statx) -> Truth {
    let (uid, gid) = match kind {
        Kind::Host => (identity.uid, identity.gid),
        Kind::Tree | Kind::Proc | Kind::Mask | Kind::HostName => (0, 0),
    };
    Truth {
        mode: u32::from(facts.stx_mode),
        uid: if facts.stx_uid == identity.host_uid { uid } else { facts.stx_uid },
        gid: if facts.stx_gid == identity.host_gid { gid } else { facts.stx_gid },
        device: (facts.stx_rdev_major, facts.stx_rdev_minor),
        lists: Lists::NONE,
    }
}

/// The number of the image's inode that an inode was made of, or is merged with.
pub fn origin(host: &mut impl Host, (dir, path): (Dir, &CStr), facts: &statx) -> Option<u64> {
    let mode = u32::from(facts.stx_mode);
    if mode & S_ISVTX == 0 || !can_carry(mode) {
        return None;
    }
    let mut text = [0; 20];
    let length = host.getxattr(dir, path, true, ORIGIN, &mut text).ok()?;
    core::str::from_utf8(text.get(..length)?).ok()?.parse().ok()
}

fn recorded(host: &mut impl Host, dir: Dir, path: &CStr, facts: &statx) -> Option<Truth> {
    let mode = u32::from(facts.stx_mode);
    let mut text = [0; RECORD_MAX];
    let length = if can_carry(mode) {
        match host.getxattr(dir, path, true, OWNER, &mut text) {
            Ok(length) => length,
            // The file system has no attributes, or had no room, or the caller may not read it.
            Err(_) => host.note(&note_key(facts), &mut text)?,
        }
    } else {
        host.note(&note_key(facts), &mut text)?
    };
    let mut truth = Truth::from_text(text.get(..length)?)?;
    // An ordinary file may stand for a device; otherwise the type on disk is the true one.
    if !(truth.is_device() && mode & S_IFMT == S_IFREG) && truth.kind() != mode & S_IFMT {
        truth.mode = truth.bits() | mode & S_IFMT;
        truth.device = (facts.stx_rdev_major, facts.stx_rdev_minor);
    }
    if mode & S_IFMT == S_IFLNK {
        truth.mode = mode;
    }
    Some(truth)
}

/// Makes a file be `new` to the guest: changes mode, record and mark on disk as needed. Always sets
/// its time of change to now.
pub fn set_truth(
    host: &mut impl Host,
    identity: &Identity,
    kind: Kind,
    (dir, path): (Dir, &CStr),
    found: &Found,
    new: &Truth,
) -> Result<()> {
    let device = matches!(u32::from(found.facts.stx_mode) & S_IFMT, S_IFCHR | S_IFBLK);
    if device || !matches!(kind, Kind::Tree | Kind::Host | Kind::HostName) {
        // Real devices and the kernel's own files have no records.
        return host.chmod(dir, path, new.bits());
    }
    // A user who could search the directory may lose that permission.
    let listed = new.lists.access && !found.truth.lists.access;
    let closes =
        found.truth.is_directory() && (found.truth.mode & !new.mode & 0o111 != 0 || listed);
    perhaps_closing(host, closes, |host| {
        change_truth(host, identity, kind, (dir, path), found, new)
    })
}

/// Changes a directory. If users may lose search permission by it, the cache of directories is
/// emptied before and after.
pub fn perhaps_closing<H: Host>(
    host: &mut H,
    closes: bool,
    change: impl FnOnce(&mut H) -> Result<()>,
) -> Result<()> {
    if closes {
        host.changed();
    }
    let result = change(host);
    if closes {
        host.changed();
    }
    result
}

fn change_truth(
    host: &mut impl Host,
    identity: &Identity,
    kind: Kind,
    (dir, path): (Dir, &CStr),
    found: &Found,
    new: &Truth,
) -> Result<()> {
    let taken = if kind == Kind::Host {
        take_group(host, identity, (dir, path), found, new)?
    } else {
        *found
    };
    let found = &taken;
    let plain = unrecorded(identity, kind, &found.facts);
    let stays_plain = (plain.uid, plain.gid) == (new.uid, new.gid);
    if !can_carry(u32::from(found.facts.stx_mode)) {
        return set_note(host, (dir, path), found, new, stays_plain);
    }
    let foreign = found.facts.stx_uid != identity.host_uid;
    if kind == Kind::Host && !foreign {
        return change_on_host(host, (dir, path), found, new, stays_plain);
    }
    let bits = new.disk_bits();
    let marked = may_be_recorded(u32::from(found.facts.stx_mode));
    let needs_mark = new.needs_record()
        || !stays_plain
        || host.is_in_image(&found.facts)
        || marked && hides(host, dir, path);
    if foreign || !needs_mark {
        // The kernel decides about files of other users.
        let bits = if foreign { new.bits() } else { bits | new.mode & S_ISVTX };
        host.chmod(dir, path, bits)?;
        if found.recorded && !foreign {
            remove_record(host, dir, path, found);
        }
        return Ok(());
    }
    mark(host, kind, (dir, path), found, new)
}

/// Gives a file of the host's own the group that it is to have, if the caller may do that: it is
/// one of the caller's. Returns the file after that.
fn take_group(
    host: &mut impl Host,
    identity: &Identity,
    (dir, path): (Dir, &CStr),
    found: &Found,
    new: &Truth,
) -> Result<Found> {
    let plain = unrecorded(identity, Kind::Host, &found.facts);
    if plain.gid == new.gid || found.facts.stx_uid != identity.host_uid {
        return Ok(*found);
    }
    let gid = if new.gid == identity.gid { identity.host_gid } else { new.gid };
    let flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
    if host.chown(dir, path, KEEP, gid, flags).is_err() {
        // The kernel refuses it, or does not know the group here: the record has it.
        return Ok(*found);
    }
    let mut facts = NO_FACTS;
    host.statx(dir, path, flags, &mut facts)?;
    Ok(Found { facts, ..*found })
}

/// Changes a file that the caller owns on the host, outside of the container's tree. What the
/// caller could do there is done; the record has only what is left.
fn change_on_host(
    host: &mut impl Host,
    (dir, path): (Dir, &CStr),
    found: &Found,
    new: &Truth,
    stays_plain: bool,
) -> Result<()> {
    if !stays_plain || new.needs_record_in(Kind::Host) {
        return mark(host, Kind::Host, (dir, path), found, new);
    }
    let bits = new.host_bits();
    host.chmod(dir, path, bits)?;
    if bits & S_ISGID != 0 {
        // The kernel keeps the bit from those who are not in the group.
        let mut facts = NO_FACTS;
        host.statx(dir, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, &mut facts)?;
        if u32::from(facts.stx_mode) & S_ISGID == 0 {
            return mark(host, Kind::Host, (dir, path), found, new);
        }
    }
    if found.recorded {
        remove_record(host, dir, path, found);
    }
    Ok(())
}

/// Writes a record, and marks the inode.
pub(super) fn mark(
    host: &mut impl Host,
    kind: Kind,
    (dir, path): (Dir, &CStr),
    found: &Found,
    new: &Truth,
) -> Result<()> {
    if found.facts.stx_mode & 0o200 == 0 {
        // Only a user who may write the file can set attributes.
        host.chmod(dir, path, u32::from(found.facts.stx_mode) & 0o3777 | 0o200)?;
    }
    write_record(host, dir, path, found, new)?;
    host.chmod(dir, path, new.marked_bits(kind))
}

/// Returns true if an inode has attributes that only root may set, or the number of another one.
/// The mark stands for these too.
#[inline(never)]
fn hides(host: &mut impl Host, dir: Dir, path: &CStr) -> bool {
    let mut names = [0; 1024];
    match host.listxattr(dir, path, true, &mut names) {
        Ok(length) => {
            let stays =
                |name: &[u8]| name.starts_with(HIDDEN_ATTRIBUTES) || name == ORIGIN.to_bytes();
            names[..length].split(|byte| *byte == 0).any(stays)
        }
        // The list is longer than that of most files.
        Err(Errno::ERANGE) => true,
        Err(_) => false,
    }
}

/// Returns true if an inode may have attributes that only root may set: without the mark, one of
/// the container's own has none.
pub fn may_hide(identity: &Identity, kind: Kind, facts: &statx) -> bool {
    !carries(identity, kind, facts) || may_be_recorded(u32::from(facts.stx_mode))
}

/// Returns true if an inode is the container's own, and carries its record as an attribute.
fn carries(identity: &Identity, kind: Kind, facts: &statx) -> bool {
    kind == Kind::Tree && facts.stx_uid == identity.host_uid && can_carry(u32::from(facts.stx_mode))
}

/// Marks an inode that has got such an attribute, or is about to.
pub fn hidden_was_set(
    host: &mut impl Host,
    identity: &Identity,
    kind: Kind,
    (dir, path): (Dir, &CStr),
    found: &Found,
) -> Result<()> {
    if found.recorded || !carries(identity, kind, &found.facts) {
        return Ok(());
    }
    mark(host, kind, (dir, path), found, &found.truth)
}

fn write_record(
    host: &mut impl Host,
    dir: Dir,
    path: &CStr,
    found: &Found,
    new: &Truth,
) -> Result<()> {
    let text = new.to_text();
    match host.setxattr(dir, path, true, OWNER, text.as_bytes(), 0) {
        Err(Errno::EOPNOTSUPP | Errno::ENOSPC | Errno::ERANGE | Errno::E2BIG | Errno::ENOSYS) => {
            host.set_note(&note_key(&found.facts), Some(text.as_bytes()))
        }
        result => result,
    }
}

fn remove_record(host: &mut impl Host, dir: Dir, path: &CStr, found: &Found) {
    if host.removexattr(dir, path, true, OWNER).is_err() {
        // The record was in the log. A failure leaves a record that is never read.
        let _ = host.set_note(&note_key(&found.facts), None);
    }
}

/// Records owner and mode of a pipe, socket or link.
fn set_note(
    host: &mut impl Host,
    (dir, path): (Dir, &CStr),
    found: &Found,
    new: &Truth,
    stays_plain: bool,
) -> Result<()> {
    let link = new.kind() == S_IFLNK;
    if link {
        // The mode of a link cannot be changed; this sets the time of change.
        host.chown(dir, path, u32::MAX, u32::MAX, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW)?;
    } else {
        host.chmod(dir, path, new.disk_bits())?;
    }
    // An overlay has made the inode the container's own now, with another number.
    let mut facts = NO_FACTS;
    host.statx(dir, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, &mut facts)?;
    let key = note_key(&facts);
    if stays_plain && (link || !new.needs_record() && new.mode & S_ISVTX == 0) {
        if found.recorded { host.set_note(&key, None) } else { Ok(()) }
    } else {
        host.set_note(&key, Some(new.to_text().as_bytes()))
    }
}

/// The mode, without type, with which a new file is to be made on disk before [`created`] is called
/// for it.
pub fn bits_of_new(identity: &Identity, kind: Kind, new: &Truth) -> u32 {
    // A directory that is made has the bit only from the one above it, as its group.
    let inherits = new.is_directory() && new.mode & S_ISGID != 0;
    if kind == Kind::Host && can_carry(new.mode) {
        let plain = new.uid == identity.uid && (new.gid == identity.gid || inherits);
        return if plain && !new.needs_record_in(kind) {
            new.host_bits()
        } else {
            unfinished_bits(new.kind())
        };
    }
    if is_plain_new(identity, kind, new) { new.disk_bits() } else { unfinished_bits(new.kind()) }
}

/// Records a file for the guest that was just made on disk with [`bits_of_new`]. Does nothing for a
/// file that belongs to the container's root and has an ordinary mode; [`is_plain_new`] tells that
/// in advance.
pub fn created(
    host: &mut impl Host,
    identity: &Identity,
    kind: Kind,
    (dir, path): (Dir, &CStr),
    new: &Truth,
) -> Result<()> {
    if is_plain_new(identity, kind, new) && can_carry(new.mode) && new.mode & S_ISVTX == 0 {
        return Ok(());
    }
    let mut facts = NO_FACTS;
    host.statx(dir, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, &mut facts)?;
    let found = Found { facts, truth: *new, recorded: false };
    if kind == Kind::Host
        && !new.needs_record_in(kind)
        && unrecorded(identity, kind, &facts) == *new
    {
        // The directory has given it its group.
        return Ok(());
    }
    if !can_carry(u32::from(facts.stx_mode)) {
        let plain = unrecorded(identity, kind, &facts);
        let stays_plain = (plain.uid, plain.gid) == (new.uid, new.gid);
        let key = note_key(&facts);
        if stays_plain && (new.kind() == S_IFLNK || !new.needs_record() && new.mode & S_ISVTX == 0)
        {
            // The number of a deleted inode may have been used again.
            let mut old = [0; RECORD_MAX];
            if host.note(&key, &mut old).is_some() {
                host.set_note(&key, None)?;
            }
            // It was not known that the directory gives it its group.
            let unfinished = is_unfinished(u32::from(facts.stx_mode));
            return if unfinished { host.chmod(dir, path, new.disk_bits()) } else { Ok(()) };
        }
        host.set_note(&key, Some(new.to_text().as_bytes()))?;
        // A pipe is finished now. The kernel made a socket with the guest's umask, which may remove
        // bits that its owner on disk needs: connecting requires write permission.
        let (bits, mode) = (new.disk_bits(), u32::from(facts.stx_mode));
        let lacks = bits & 0o700 & !mode != 0 || is_unfinished(mode);
        return if lacks && new.kind() != S_IFLNK { host.chmod(dir, path, bits) } else { Ok(()) };
    }
    set_truth(host, identity, kind, (dir, path), &found, new)
}

/// Returns true if a new file needs no record: `open` with `O_CREAT`, `mkdir` and so on may be left
/// to the kernel if its mode is `new.mode & 0o7777` there too.
pub fn is_plain_new(identity: &Identity, kind: Kind, new: &Truth) -> bool {
    let (uid, gid) = match kind {
        Kind::Host => (identity.uid, identity.gid),
        Kind::Tree | Kind::Proc | Kind::Mask | Kind::HostName => (0, 0),
    };
    // Whether a directory has the bit on disk, the one above it decides.
    let inherits = kind == Kind::Host && new.is_directory() && new.mode & S_ISGID != 0;
    (new.uid, new.gid) == (uid, gid) && !new.needs_record_in(kind) && !inherits
}

/// The same for a file in a known directory, from which the kernel may take the group.
pub fn is_plain_in(identity: &Identity, kind: Kind, parent: &statx, new: &Truth) -> bool {
    if kind != Kind::Host || u32::from(parent.stx_mode) & S_ISGID == 0 {
        return is_plain_new(identity, kind, new);
    }
    let above = unrecorded(identity, kind, parent);
    (new.uid, new.gid) == (identity.uid, above.gid) && !new.needs_record_in(kind)
}

/// Checks that a process may pass through a directory: `EACCES` if not, `ENOTDIR` if it is not a
/// directory. Costs nothing for a process that overrides modes.
pub fn search(
    host: &mut impl Host,
    identity: &Identity,
    who: &Credentials,
    kind: Kind,
    dir: Dir,
    path: &CStr,
) -> Result<()> {
    if who.overrides() || kind == Kind::Proc {
        return Ok(());
    }
    let found = look(host, identity, Some(who), kind, dir, path)?;
    match found.truth.kind() {
        S_IFDIR => rules::may_search(who, &found.truth),
        // The caller follows the link, or reports it.
        S_IFLNK => Ok(()),
        _ => Err(Errno::ENOTDIR),
    }
}

/// Returns true if the mode on disk forbids what the guest may do, because a new file was just made
/// without the owner's bits. Then [`set_truth`] with the same truth corrects it.
pub fn is_locked(identity: &Identity, kind: Kind, found: &Found) -> bool {
    let owner = found.truth.disk_bits() & 0o700;
    kind == Kind::Tree
        && found.facts.stx_uid == identity.host_uid
        && can_carry(u32::from(found.facts.stx_mode))
        && owner & !u32::from(found.facts.stx_mode) != 0
}

/// Removes setuid and setgid bits from a file that `who` opens for writing or truncates, unless the
/// writer may keep them.
pub fn written(
    host: &mut impl Host,
    identity: &Identity,
    who: &Credentials,
    kind: Kind,
    (dir, path): (Dir, &CStr),
    found: &Found,
) -> Result<()> {
    if found.truth.mode & (S_ISUID | S_ISGID) == 0
        || found.truth.kind() != S_IFREG
        || who.has(Capability::FSETID)
    {
        return Ok(());
    }
    let new = Truth { mode: without_set_id(&found.truth, who), ..found.truth };
    if new == found.truth {
        return Ok(());
    }
    set_truth(host, identity, kind, (dir, path), found, &new)
}

/// The mode of a file that is not a directory after a write or `chown`.
pub fn without_set_id(file: &Truth, who: &Credentials) -> u32 {
    let mut mode = file.mode & !S_ISUID;
    let keeps_group = who.in_group(file.gid) || who.has(Capability::FSETID);
    if file.mode & S_ISGID != 0 && (file.mode & S_IXGRP != 0 || !keeps_group) {
        mode &= !S_ISGID;
    }
    mode
}
