//! A note beside an index that it was checked: what the file was then, and during which starts of
//! which machines.
//!
//! ```text
//! coracle-checked FORMAT          of the index, as it begins with
//! INODE SIZE MTIME CTIME          of the index; times in nanoseconds since 1970
//! BOOT                            `/proc/sys/kernel/random/boot_id`, a line for each
//! ```
//!
//! The boot id makes it a matter of one start of one machine. So neither the index nor the note has
//! to be synced: what a power failure leaves of them is checked again. Machines that share a store
//! each have their line.

use super::{INDEX, STAMP};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use std::path::Path;
use store::{Cached, Store};
use sys::machine::Machine;

/// How a file beside a tree is opened: not through a link, and without waiting for the other end of
/// a pipe.
pub(super) const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
/// How many starts of machines are kept; the oldest is dropped.
const BOOTS: usize = 64;
/// Longer than a note with that many lines.
const ROOM: usize = 4096;

/// What tells a file apart from others and from its own earlier contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    inode: u64,
    size: i64,
    mtime: i128,
    ctime: i128,
}

impl Facts {
    pub(super) fn of(stat: &Stat) -> Self {
        let time = |seconds: i64, rest: u64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        Self {
            inode: stat.st_ino,
            size: stat.st_size,
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    fn line(&self) -> String {
        format!("{} {} {} {}", self.inode, self.size, self.mtime, self.ctime)
    }
}

/// Whether the index in an entry's directory is the one that was checked on this machine.
pub(super) fn holds(entry: &Path) -> bool {
    let Some(text) = read(entry) else { return false };
    let Some(boot) = boot() else { return false };
    let index = entry.join(INDEX);
    let Ok(stat) = rustix::fs::statat(CWD, &index, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    is_trusted(&stat) && boots(&text, &Facts::of(&stat)).any(|known| known == boot)
}

/// Notes that the index was checked here. In a store that cannot be written it is checked at each
/// start.
pub(super) fn note(store: &Store, tree: &Cached, facts: &Facts) {
    let Some(boot) = boot() else { return };
    let before = read(tree.path()).unwrap_or_default();
    let mut known: Vec<&str> = boots(&before, facts).filter(|known| *known != boot).collect();
    let _ = known.drain(..known.len().saturating_sub(BOOTS - 1));
    known.push(boot);
    let text = format!("{}\n{}\n{}\n", title(), facts.line(), known.join("\n"));
    if let Err(error) = store.trees().put_beside(tree, STAMP, text.as_bytes(), 0o644) {
        tracing::debug!("that the index was checked is not noted: {error}");
    }
}

/// Whether a file can have been written by the caller or root alone.
pub(super) fn is_trusted(stat: &Stat) -> bool {
    let owner = stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw();
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    owner && regular && stat.st_mode & 0o022 == 0
}

/// The start of this machine, if the kernel tells.
fn boot() -> Option<&'static str> {
    Some(&Machine::here().boot_id[..]).filter(|id| !id.is_empty())
}

/// The starts during which these very contents were checked.
fn boots<'a>(text: &'a str, facts: &Facts) -> impl Iterator<Item = &'a str> {
    let mut lines = text.lines();
    let fits = lines.next() == Some(&title()) && lines.next() == Some(&facts.line());
    lines.take_while(move |_| fits)
}

/// The first line. An index of another format is checked, and made anew, by its own program.
fn title() -> String {
    format!("coracle-checked {}", abi::index::MAGIC.escape_ascii())
}

fn read(entry: &Path) -> Option<String> {
    let file = rustix::fs::openat(CWD, entry.join(STAMP), READ, Mode::empty()).ok()?;
    if !is_trusted(&rustix::fs::fstat(&file).ok()?) {
        return None;
    }
    let mut room = [0; ROOM];
    let length = rustix::io::read(&file, &mut room[..]).ok()?;
    Some(std::str::from_utf8(room.get(..length)?).ok()?.to_owned())
}
