//! Finds the processes of a container that has a mount namespace of its own, also those that no
//! record names because the run that started them has ended.
//!
//! The process that makes the namespace identifies it in `run/.namespace`: the boot, the number
//! of its inode, and the number that no other namespace gets (Linux 6.11). All processes of that
//! namespace are the container's; a namespace that one of them makes for itself is not seen.
//!
//! The inode's number alone proves nothing, because another container's namespace may have it
//! later. Where the kernel has no number that is used once, the table of mounts of each process
//! must name the container's directory, whose name is random.
//!
//! A start asks whether a process was left before it mounts the overlay a second time. It asks the
//! kernel first whether that namespace still exists (`listmount`), which spares a scan of `/proc`.

use crate::processes;
use crate::records::boot_id;
use crate::spec::ProcessId;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use sys::life::of_any_thread;

/// The file's name in the container's directory.
const FILE: &str = "run/.namespace";
/// How long it is.
const LENGTH: usize = 128;

/// A namespace as it was written down.
#[derive(Debug, PartialEq, Eq)]
struct Namespace {
    boot: String,
    inode: u64,
    /// 0 where the kernel has none, or would not tell us of it.
    number: u64,
}

/// Which process made the user namespace above the mount namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The caller, whose questions the kernel answers.
    Caller,
    /// Another program, with privileges.
    Unknown,
}

/// Writes down the mount namespace of a process as that of the container whose directory is
/// `place`. What cannot be written is not found.
pub(crate) fn note(place: &Path, pid: u32, owner: Owner) {
    let Ok(file) = fs::File::open(link(pid)) else { return };
    let Ok(inode) = file.metadata().map(|meta| meta.ino()) else { return };
    let number = match owner {
        Owner::Caller => sys::namespace::mount_namespace_number(&file).unwrap_or(0),
        Owner::Unknown => 0,
    };
    let text = format!("{} {inode} {number}", boot_id());
    // Written over: to cut a file off costs more than all else here.
    let open =
        fs::OpenOptions::new().write(true).create(true).truncate(false).open(place.join(FILE));
    let _ = open.and_then(|mut file| file.write_all(format!("{text:LENGTH$}").as_bytes()));
}

/// The processes of the container whose directory is `place`, without those of Coracle that serve
/// it.
#[must_use]
pub fn all(place: &Path) -> Vec<ProcessId> {
    let Some(namespace) = Namespace::read(place) else { return Vec::new() };
    if namespace.boot != boot_id()
        || namespace.number != 0
            && sys::namespace::is_mount_namespace(namespace.number) == Ok(false)
        // The caller is in that namespace itself.
        || fs::metadata(link(std::process::id())).is_ok_and(|own| own.ino() == namespace.inode)
    {
        return Vec::new();
    }
    let is_there = |pid: u32| namespace.has(pid, place) && !processes::is_ours(pid);
    processes::all().into_iter().filter_map(|pid| processes::which(pid, is_there)).collect()
}

fn link(pid: u32) -> String {
    format!("/proc/{pid}/ns/mnt")
}

impl Namespace {
    fn read(place: &Path) -> Option<Self> {
        let file = fs::File::open(place.join(FILE)).ok()?;
        let text = String::from_utf8(sys::fs::read_rest(file).ok()?).ok()?;
        let mut words = text.split_ascii_whitespace();
        let boot = words.next()?.to_owned();
        let inode = words.next()?.parse().ok()?;
        let number = words.next()?.parse().ok()?;
        Some(Self { boot, inode, number })
    }

    /// Whether a process is in it.
    fn has(&self, pid: u32, place: &Path) -> bool {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let opened =
            of_any_thread(pid, |of| rustix::fs::open(of.join("ns/mnt"), flags, Mode::empty()));
        let Ok(file) = opened else { return false };
        if !rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_ino == self.inode) {
            return false;
        }
        if self.number != 0 {
            return sys::namespace::mount_namespace_number(&file) == Ok(self.number);
        }
        let Some(name) = place.file_name().and_then(|name| name.to_str()) else { return false };
        fs::read_to_string(format!("/proc/{pid}/mountinfo")).is_ok_and(|text| text.contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("6ab1f0c3".repeat(8));
        fs::create_dir_all(place.join("run")).unwrap();
        (dir, place)
    }

    #[test]
    fn nobody_is_taken_for_a_resident_by_a_number_alone() {
        let (_dir, place) = place();
        assert_eq!(all(&place), []);
        note(&place, std::process::id(), Owner::Caller);
        let written = Namespace::read(&place).unwrap();
        assert_eq!(written.boot, boot_id());
        // The namespace of this process does not belong to a container.
        assert_eq!(all(&place), []);
        let own = std::process::id();
        assert!(written.has(own, &place) || written.number == 0);
        // Another one's number, and none: this process's mounts do not name the container.
        let number = written.number + 1;
        assert!(!Namespace { boot: written.boot.clone(), number, ..written }.has(own, &place));
        assert!(!Namespace { boot: written.boot.clone(), number: 0, ..written }.has(own, &place));
        assert!(!Namespace { boot: written.boot, inode: 1, number: 0 }.has(own, &place));
    }

    #[test]
    fn a_namespace_of_another_boot_has_nobody() {
        let (_dir, place) = place();
        note(&place, 1, Owner::Caller);
        fs::write(place.join(FILE), "other-boot 1 0\n").unwrap();
        assert_eq!(all(&place), []);
        fs::write(place.join(FILE), "half").unwrap();
        assert_eq!(all(&place), []);
    }
}
