//! Records of the programs that run in a container: one small file for each.
//!
//! Before a program starts, a file is written into the container's `run/` directory. Its name is
//! the process id and the place where that has a meaning (boot id and pid namespace; a store may be
//! shared by machines); it holds the start time of the process, which together with the name can
//! never mean another process, and, for users who read it, host name and time ([`entry`]). Where no
//! process stays, the next one that looks finds the program gone and removes the file.
//!
//! | the record was written | the program lives |
//! |---|---|
//! | here (same boot, same pid namespace) | if `/proc` shows the process |
//! | on this machine before its last start | no |
//! | elsewhere, and a Coracle process stays beside it | if that one's lock on the record is held |
//! | elsewhere, and no process stays | yes, until a user denies it ([`Records::forget`]) |
//!
//! A process stays where there is a supervisor, a tracer or a pid namespace to wait for
//! ([`Records::hold`]); it also removes the record at the end. Where the process itself became the
//! program, nothing can hold a lock: a descriptor that the program inherits could be closed or used
//! by it. So callers let a process stay where the store may be shared ([`is_shared`]).
//!
//! `run/.lock` is held by the process that starts a program in the container, from before it looks
//! for members until its own program is executed. So of several `run`s at once one makes the
//! namespaces and the others find them. On a file system that carries locks between machines it
//! keeps those apart too; elsewhere each looks again once its own record is there, and
//! withdraws where another machine's is too.

use crate::error::{Error, Result};
use crate::spec::ProcessId;
use entry::Entry;
use lock::Taken;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use sys::machine::{self, Machine, Relation};

mod entry;
pub(crate) mod lock;

pub use crate::spec::{Elsewhere, Reach};
pub(crate) use lock::Asked;
pub use sys::carried::is_shared;

/// Name of the directory in the container's.
const DIRECTORY: &str = "run";

/// The directory of records, kept open so that it can be used after the root has changed.
#[derive(Debug)]
pub struct Records {
    directory: OwnedFd,
    path: PathBuf,
    /// Where this process is: asked for before a container's own host name and namespaces answer.
    here: &'static Machine,
}

/// The right to start a program in a container. Ends when dropped, or at `execve`.
#[derive(Debug)]
pub struct Turn(OwnedFd);

/// The locked file: the turn lasts as long as it is open.
impl From<Turn> for OwnedFd {
    fn from(turn: Turn) -> Self {
        turn.0
    }
}

/// A lock on a record, which says everywhere that its program lives. Ends when dropped, at
/// `execve`, or with the process.
#[derive(Debug)]
#[must_use]
pub struct Held(#[expect(dead_code, reason = "holds the lock until it is dropped")] OwnedFd);

/// Who lives in a container.
#[derive(Debug, Default)]
pub struct Seen {
    /// Processes here, the oldest first.
    pub living: Vec<ProcessId>,
    /// Somebody who lives elsewhere, as far as that can be known.
    pub elsewhere: Option<Elsewhere>,
}

/// What [`Records::forget`] did.
#[derive(Debug, Default)]
pub struct Forgotten {
    /// How many records of the named host were removed.
    pub count: usize,
    /// Other hosts with records that count.
    pub others: BTreeSet<String>,
    /// A record of that host whose lock is held, so that it stays.
    pub held: Option<PathBuf>,
}

/// What became of a recorded process.
enum Fate {
    Here(ProcessId),
    Gone,
    Elsewhere(Elsewhere),
}

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
        Ok(Self { directory: directory.map_err(failed)?, path, here: Machine::here() })
    }

    /// Opens the directory if it exists; there is none before the first run.
    pub fn existing(place: &Path) -> Option<Self> {
        let path = place.join(DIRECTORY);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
        Some(Self { directory, path, here: Machine::here() })
    }

    /// The directory, for other files about the runs in it.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Its path, as it was outside.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock if it is free.
    pub fn turn_at_once(&self) -> Option<Turn> {
        let file = self.lock().ok()?;
        (lock::take(&file) == Taken::Ours).then_some(Turn(file))
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
        lock::wait(&file).map_err(failed)?;
        Ok(Turn(file))
    }

    /// Waits for one's turn to start a program.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] where the container lives on another machine.
    pub fn begin(&self) -> Result<Turn> {
        let turn = self.turn()?;
        match self.elsewhere() {
            Some(elsewhere) => Err(Error::Elsewhere(elsewhere)),
            None => Ok(turn),
        }
    }

    /// Records a process beside which none of Coracle's stays.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] where the container was started on another machine meanwhile.
    pub fn add(&self, pid: u32) -> Result<()> {
        self.write(pid, false).map(drop)
    }

    /// Records a process beside which the caller stays. A record that is there already is replaced.
    ///
    /// # Errors
    /// As [`Records::add`].
    pub fn hold(&self, pid: u32) -> Result<Held> {
        self.write(pid, true).map(Held)
    }

    fn write(&self, pid: u32, holds: bool) -> Result<OwnedFd> {
        let name = self.name_of(pid);
        let failed = |errno: Errno| Error::File {
            doing: "write".into(),
            path: self.path.join(&name),
            errno: errno.into(),
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        // A process that looks finds a whole record or none: half of one would be taken for one of
        // a dead process, and removed. The lock is there before the name too.
        let half = format!(".{name}");
        let file = rustix::fs::openat(&self.directory, &half, flags, Mode::from_raw_mode(0o600))
            .map_err(failed)?;
        let held = holds && lock::take(&file) == Taken::Ours;
        let all = lock::reach(&file);
        let entry = Entry {
            start: sys::process::start_time(pid).unwrap_or_default(),
            machine: self.here.clone(),
            since: machine::now(),
            reach: if held { all } else { Reach::None },
        };
        rustix::io::write(&file, entry.text().as_bytes())
            .and_then(|_| rustix::fs::renameat(&self.directory, &half, &self.directory, &name))
            .map_err(failed)?;
        if all != Reach::Hosts
            && let Some(elsewhere) = self.elsewhere()
        {
            self.remove(pid);
            return Err(Error::Elsewhere(elsewhere));
        }
        Ok(file)
    }

    /// Takes a record back.
    pub fn remove(&self, pid: u32) {
        self.unlink(&self.name_of(pid));
    }

    fn unlink(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
    }

    /// Somebody who lives in the container elsewhere, as far as that can be known from here.
    pub fn elsewhere(&self) -> Option<Elsewhere> {
        self.foreign().find_map(|(_, fate)| match fate {
            Fate::Elsewhere(elsewhere) => Some(elsewhere),
            _ => None,
        })
    }

    /// Processes that live here, the oldest first. Records of dead ones are removed.
    pub fn living(&self) -> Vec<ProcessId> {
        self.look().living
    }

    /// Returns true if no process lives in the container, on this host or elsewhere.
    pub fn is_empty(&self) -> bool {
        let seen = self.look();
        seen.living.is_empty() && seen.elsewhere.is_none()
    }

    /// Who lives in the container. Records of dead processes are removed.
    pub fn look(&self) -> Seen {
        let mut seen = Seen::default();
        for (_, fate) in self.fates(|_| true) {
            match fate {
                Fate::Here(process) => seen.living.push(process),
                Fate::Elsewhere(elsewhere) => {
                    // Proof of life says more than a record.
                    if seen.elsewhere.as_ref().is_none_or(|known| !known.held) {
                        seen.elsewhere = Some(elsewhere);
                    }
                }
                Fate::Gone => {}
            }
        }
        seen.living.sort_by_key(|process| (process.start_time, process.pid));
        seen
    }

    /// Removes the records of a host that a user declares gone. Those whose lock is held stay.
    pub fn forget(&self, host: &str) -> Forgotten {
        let mut forgotten = Forgotten::default();
        for (name, fate) in self.foreign() {
            match fate {
                Fate::Elsewhere(elsewhere) if elsewhere.host != host => {
                    forgotten.others.insert(elsewhere.host);
                }
                Fate::Elsewhere(elsewhere) if elsewhere.held => {
                    forgotten.held = Some(self.path.join(name));
                }
                Fate::Elsewhere(_) => {
                    self.unlink(&name);
                    forgotten.count += 1;
                }
                _ => {}
            }
        }
        forgotten
    }

    /// What became of processes that are recorded elsewhere: most often no file needs to be opened.
    fn foreign(&self) -> impl Iterator<Item = (String, Fate)> {
        let own = self.suffix();
        self.fates(move |suffix| suffix != own)
    }

    /// What became of the processes whose records have such names; records of dead ones go.
    fn fates(&self, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = (String, Fate)> {
        let entries = sys::fs::read_dir(&self.directory).unwrap_or_default();
        entries.into_iter().filter_map(move |entry| {
            let name = String::from_utf8(entry.name).ok()?;
            let (pid, suffix) = name.split_once('@')?;
            let pid = pid.parse().ok().filter(|_| wanted(suffix))?;
            let fate = self.judge(pid, &name, suffix);
            if matches!(fate, Fate::Gone) {
                self.unlink(&name);
            }
            Some((name, fate))
        })
    }

    fn judge(&self, pid: u32, name: &str, suffix: &str) -> Fate {
        // What cannot be read was cut short by a crash.
        let Some((file, entry)) = self.read(name, suffix) else { return Fate::Gone };
        let Entry { start, machine, since, reach } = entry;
        let relation = self.here.relation_to(&machine, since);
        match relation {
            Relation::Same if sys::process::start_time(pid) == Some(start) => {
                return Fate::Here(ProcessId {
                    pid,
                    start_time: start,
                    boot_id: machine.boot_id,
                    pid_namespace: machine.pid_namespace,
                });
            }
            Relation::Same | Relation::Earlier => return Fate::Gone,
            Relation::Kernel | Relation::Other => {}
        }
        match asked(&file, relation, reach) {
            Asked::Free => Fate::Gone,
            answer => {
                let held = answer == Asked::Held;
                Fate::Elsewhere(Elsewhere::new(&machine, pid, since, held))
            }
        }
    }

    fn suffix(&self) -> String {
        let Machine { name, boot_id, pid_namespace, .. } = self.here;
        if boot_id.is_empty() {
            return format!("{}-{pid_namespace}", name.replace('/', "_"));
        }
        format!("{boot_id}-{pid_namespace}")
    }

    fn name_of(&self, pid: u32) -> String {
        format!("{pid}@{}", self.suffix())
    }

    fn read(&self, name: &str, suffix: &str) -> Option<(OwnedFd, Entry)> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::empty()).ok()?;
        let mut text = [0_u8; 512];
        let length = rustix::io::read(&file, &mut text[..]).ok()?;
        let entry = Entry::parse(std::str::from_utf8(&text[..length]).ok()?, suffix)?;
        Some((file, entry))
    }
}

/// Whether a lock that a process elsewhere holds while it lives is held, where that can be seen
/// from here.
pub(crate) fn asked(file: impl AsFd, relation: Relation, reach: Reach) -> Asked {
    let file = file.as_fd();
    let seen = match relation {
        Relation::Kernel => reach != Reach::None,
        // Both of us have to see the locks.
        _ => reach == Reach::Hosts && lock::reach(file) == Reach::Hosts,
    };
    if seen { lock::ask(file) } else { Asked::Unknown }
}

/// Processes that live in a container on this machine, the oldest first; none where it never ran.
pub fn living(place: &Path) -> Vec<ProcessId> {
    Records::existing(place).map(|records| records.living()).unwrap_or_default()
}

/// Identity of this boot; empty where it cannot be read.
pub fn boot_id() -> String {
    Machine::here().boot_id.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FlockOperation;

    /// A record of a process elsewhere.
    fn foreign(records: &Records, pid: u32, change: impl FnOnce(&mut Entry)) -> PathBuf {
        let machine = Machine {
            name: "another-machine".into(),
            boot_id: "another-boot".into(),
            machine_id: "0".into(),
            pid_namespace: 1,
        };
        let mut entry = Entry { start: 1, machine, since: 5, reach: Reach::None };
        change(&mut entry);
        let Machine { boot_id, pid_namespace, .. } = &entry.machine;
        let path = records.path.join(format!("{pid}@{boot_id}-{pid_namespace}"));
        std::fs::write(&path, entry.text()).unwrap();
        path
    }

    #[test]
    fn only_the_living_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        assert!(living(dir.path()).is_empty());
        let records = Records::open(dir.path()).unwrap();
        records.add(std::process::id()).unwrap();
        let dead = records.path.join(records.name_of(4_194_305));
        let text = std::fs::read(records.path.join(records.name_of(std::process::id()))).unwrap();
        std::fs::write(&dead, text).unwrap();
        let here = records.here.clone();
        let earlier = foreign(&records, 1, |entry| {
            entry.machine = Machine { boot_id: "other-boot".into(), ..here };
        });
        let broken = records.path.join("77@cut");
        std::fs::write(&broken, "").unwrap();
        let all = living(dir.path());
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].pid, std::process::id());
        assert!(!dead.exists() && !broken.exists());
        assert_eq!(
            earlier.exists(),
            records.here.name.starts_with("localhost") && records.here.machine_id.is_empty()
        );
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
    fn a_record_of_another_machine_counts_until_it_is_declared_gone() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        records.add(std::process::id()).unwrap();
        assert_eq!(records.elsewhere(), None);
        let path = foreign(&records, 1, |_| {});
        assert_eq!(living(dir.path()).len(), 1);
        let there = records.elsewhere().unwrap();
        assert_eq!((there.host.as_str(), there.pid, there.since), ("another-machine", 1, 5));
        assert!(!there.held && !records.is_empty());
        assert!(matches!(records.begin(), Err(Error::Elsewhere(_))));
        let wrong = records.forget("node2");
        assert_eq!((wrong.count, wrong.others.len()), (0, 1));
        assert!(path.exists());
        assert_eq!(records.forget("another-machine").count, 1);
        assert!(!path.exists() && records.begin().is_ok());
        assert_eq!(living(dir.path()).len(), 1);
    }

    #[test]
    fn a_lock_proves_life_and_death_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let path = foreign(&records, 1, |entry| entry.reach = Reach::Hosts);
        let holder = std::fs::File::options().write(true).open(&path).unwrap();
        assert_eq!(lock::take(&holder), Taken::Ours);
        if lock::reach(&holder) != Reach::Hosts {
            println!("SKIP a_lock_proves_life_and_death_elsewhere: an unknown file system");
            return;
        }
        assert!(records.elsewhere().unwrap().held);
        let refused = records.forget("another-machine");
        assert_eq!((refused.count, refused.held.as_deref()), (0, Some(&*path)));
        drop(holder);
        assert_eq!(records.elsewhere(), None);
        assert!(!path.exists());
    }

    #[test]
    fn another_pid_namespace_of_this_kernel_is_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let here = records.here.clone();
        let path = foreign(&records, std::process::id(), |entry| {
            entry.machine = Machine { pid_namespace: 1, ..here };
        });
        let there = records.elsewhere().unwrap();
        assert!(there.this_kernel && living(dir.path()).is_empty() && path.exists());
    }

    #[test]
    fn what_is_held_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let held = records.hold(std::process::id()).unwrap();
        let path = records.path.join(records.name_of(std::process::id()));
        let ask = || lock::ask(std::fs::File::open(&path).unwrap());
        assert_eq!(ask(), Asked::Held);
        assert_eq!(living(dir.path()).len(), 1);
        drop(held);
        assert_eq!(ask(), Asked::Free);
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
