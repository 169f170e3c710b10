//! Who lives in a container that has no supervisor.
//!
//! A program that was turned into the guest has nobody to keep its state. Before it starts, one small file named after its pid and
//! its machine (`4711@node17`; a store may be shared) is written into the container's `run/` directory; it holds the start time of the process and the boot, which together with the pid
//! can never mean another process. Nobody removes the file when the program ends: whoever looks next finds the process gone and
//! removes it. A container lives while one of its recorded processes does. A record of another machine counts until somebody looks there.
//!
//! `run/.lock` is held (`flock`) by whoever is starting a program in the container, from before it looks for residents until its own
//! program is executed. So of several `run`s at once one makes the namespaces and the others find them.

use crate::error::{Error, Result};
use crate::spec::ProcessId;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Name of the directory in the container's.
const DIRECTORY: &str = "run";

/// The directory of records, kept open so that it can be used after the root has changed.
#[derive(Debug)]
pub struct Records {
    directory: OwnedFd,
    path: PathBuf,
    /// This machine, asked for before a container's own host name answers.
    host: String,
}

/// The right to start a program in a container. Ends when dropped, or at `execve`.
#[derive(Debug)]
pub struct Turn(#[expect(dead_code, reason = "holds the lock until it is dropped")] OwnedFd);

impl Records {
    /// Opens the directory in a container's, making it where it is missing.
    pub fn open(place: &Path) -> Result<Self> {
        let path = place.join(DIRECTORY);
        let failed = |errno: Errno| Error::File {
            doing: "open".into(),
            path: path.clone(),
            errno: errno.into(),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::open(&path, flags, Mode::empty());
        let directory = match open() {
            Err(Errno::NOENT) => {
                match rustix::fs::mkdir(&path, Mode::from_raw_mode(0o700)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(failed(errno)),
                }
                open()
            }
            result => result,
        };
        Ok(Self { directory: directory.map_err(failed)?, path, host: host() })
    }

    /// Opens the directory where there is one: none where nobody ever ran.
    pub fn existing(place: &Path) -> Option<Self> {
        let path = place.join(DIRECTORY);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
        Some(Self { directory, path, host: host() })
    }

    /// Takes one's turn if it is nobody else's.
    pub fn turn_at_once(&self) -> Option<Turn> {
        let file = self.lock().ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Turn(file))
    }

    fn lock(&self) -> std::result::Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        rustix::fs::openat(&self.directory, ".lock", flags, Mode::from_raw_mode(0o600))
    }

    /// Waits for one's turn.
    pub fn turn(&self) -> Result<Turn> {
        let failed = |errno: Errno| Error::File {
            doing: "lock".into(),
            path: self.path.join(".lock"),
            errno: errno.into(),
        };
        let file = self.lock().map_err(failed)?;
        loop {
            match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(Turn(file)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Records a process.
    pub fn add(&self, pid: u32) -> Result<()> {
        let failed = |errno: Errno| Error::File {
            doing: "write".into(),
            path: self.path.join(pid.to_string()),
            errno: errno.into(),
        };
        let start = sys::process::start_time(pid).unwrap_or_default();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let text = format!("{start} {}", boot_id());
        let name = self.name_of(pid);
        // Whoever looks finds a whole record or none: half of one would be taken for one of somebody dead, and removed.
        let half = format!(".{name}");
        rustix::fs::openat(&self.directory, &half, flags, Mode::from_raw_mode(0o600))
            .and_then(|file| rustix::io::write(&file, text.as_bytes()))
            .and_then(|_| rustix::fs::renameat(&self.directory, &half, &self.directory, &name))
            .map_err(failed)
    }

    /// Takes a record back.
    pub fn remove(&self, pid: u32) {
        let _ = rustix::fs::unlinkat(&self.directory, self.name_of(pid), AtFlags::empty());
    }

    /// Another machine that shares this store and on which somebody lived in the container when last seen from there.
    pub fn elsewhere(&self) -> Option<String> {
        let entries = rustix::fs::Dir::read_from(self.directory.as_fd()).ok()?;
        entries.filter_map(Result::ok).find_map(|entry| {
            let (_, machine) = parse(entry.file_name().to_str().ok()?)?;
            (machine != self.host).then(|| machine.to_owned())
        })
    }

    /// Processes that live on this machine, the oldest first. Records of its dead ones are removed.
    pub fn living(&self) -> Vec<ProcessId> {
        let Ok(entries) = rustix::fs::Dir::read_from(self.directory.as_fd()) else {
            return Vec::new();
        };
        let mut boot = None;
        let mut all: Vec<ProcessId> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let name = entry.file_name().to_str().ok()?;
                let (pid, machine) = parse(name)?;
                if machine != self.host {
                    return None;
                }
                let boot = boot.get_or_insert_with(boot_id);
                match self.read(name) {
                    Some((start_time, boot_id))
                        if boot_id == *boot
                            && sys::process::start_time(pid) == Some(start_time) =>
                    {
                        Some(ProcessId { pid, start_time, boot_id })
                    }
                    _ => {
                        self.remove(pid);
                        None
                    }
                }
            })
            .collect();
        all.sort_by_key(|process| (process.start_time, process.pid));
        all
    }

    fn name_of(&self, pid: u32) -> String {
        format!("{pid}@{}", self.host)
    }

    fn read(&self, name: &str) -> Option<(u64, String)> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::empty()).ok()?;
        let mut text = [0_u8; 128];
        let length = rustix::io::read(&file, &mut text[..]).ok()?;
        let (start, boot) = std::str::from_utf8(&text[..length]).ok()?.split_once(' ')?;
        Some((start.parse().ok()?, boot.to_owned()))
    }
}

/// Processes that live in a container without supervisor, the oldest first; none where it never ran.
pub fn living(place: &Path) -> Vec<ProcessId> {
    Records::existing(place).map(|records| records.living()).unwrap_or_default()
}

/// The name of this machine, as it may stand in a file name.
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().replace('/', "_")
}

fn parse(name: &str) -> Option<(u32, &str)> {
    let (pid, machine) = name.split_once('@')?;
    Some((pid.parse().ok()?, machine))
}

/// Identity of this boot, without the newline; empty where it cannot be read. Read once: it cannot change under a process.
pub fn boot_id() -> String {
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return known.clone();
    }
    let mut text = [0_u8; 64];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let length = rustix::fs::open("/proc/sys/kernel/random/boot_id", flags, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut text[..]))
        .unwrap_or(0);
    let id = String::from_utf8_lossy(&text[..length]).trim().to_owned();
    if !id.is_empty() {
        let _ = KNOWN.set(id.clone());
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_living_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(living(dir.path()).is_empty());
        let records = Records::open(dir.path()).unwrap();
        records.add(std::process::id()).unwrap();
        std::fs::write(dir.path().join("run").join(records.name_of(4_194_305)), "1 x").unwrap();
        std::fs::write(dir.path().join("run").join(records.name_of(1)), "1 other-boot").unwrap();
        let all = living(dir.path());
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].pid, std::process::id());
        assert!(!dir.path().join("run").join(records.name_of(4_194_305)).exists());
        assert!(!dir.path().join("run").join(records.name_of(1)).exists());
        records.remove(std::process::id());
        assert!(living(dir.path()).is_empty());
    }

    #[test]
    fn a_record_is_never_seen_half_written() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    living(dir.path());
                }
            });
            let file = dir.path().join("run").join(records.name_of(std::process::id()));
            let stays = |_| records.add(std::process::id()).is_ok() && file.exists();
            let all = (0..2000).all(stays);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(all);
        });
    }

    #[test]
    fn records_of_another_machine_stay() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        records.add(std::process::id()).unwrap();
        assert_eq!(records.elsewhere(), None);
        let foreign = dir.path().join("run/1@another-machine");
        std::fs::write(&foreign, "1 x").unwrap();
        assert_eq!(living(dir.path()).len(), 1);
        assert_eq!(records.elsewhere().as_deref(), Some("another-machine"));
        assert!(foreign.exists());
    }

    #[test]
    fn turns_exclude_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let turn = records.turn().unwrap();
        let other = std::fs::File::open(dir.path().join("run/.lock")).unwrap();
        let try_lock = FlockOperation::NonBlockingLockExclusive;
        assert_eq!(rustix::fs::flock(&other, try_lock), Err(Errno::WOULDBLOCK));
        drop(turn);
        assert_eq!(rustix::fs::flock(&other, try_lock), Ok(()));
    }
}
