//! Locks between processes, on one machine or several, with a limited wait.
//!
//! Three kinds, chosen by a probe ([`crate::Abilities`]):
//!
//! | kind | where | released when the holder dies |
//! |---|---|---|
//! | `flock(2)` | everywhere local; NFS; Lustre mounted with `flock`; Ceph | by the kernel |
//! | open-file-description locks | file systems that know byte ranges only | by the kernel |
//! | symbolic links | where other hosts may not see these, or neither works | is found out |
//!
//! Where `flock` is local, a byte range is locked too, for the clients of an NFS server. Other
//! hosts may not see locks on NFS mounted with `nolock`, Lustre without `flock`, and most FUSE
//! ([`sys::carried`] has the list).
//!
//! All hosts must use the same kind, so the kind is written into `store.json` when a store on a
//! network file system is first opened.
//!
//! Making a symbolic link is atomic everywhere, also over NFS, and the link's text is there from
//! the first moment: it names the owner (`host boot-id pid-namespace pid start-time random time
//! machine-id`). A link is stale if its owner was on this machine ([`sys::machine`] decides that)
//! and is gone (earlier boot, or no such process, or another one with that number). A stale link
//! is removed under a second link, so that two processes never remove it at once. A link of
//! another machine, or another pid namespace, cannot be judged, at whatever age: a pull or a run
//! may last for days, and its machine's clock may be wrong. It is reported. It is removed by the
//! next command of its own machine that sweeps ([`clear_own`]), or when a user declares that
//! machine gone ([`crate::Store::forget_host`]). A shared holder has a link of its own
//! (`<lock>.s.<random>`). An exclusive holder first makes its link, then waits until no shared
//! ones are left, so each side sees the other.
//!
//! A lock file that belongs to a piece of content (one blob, one layer) is unlinked by its holder
//! before the release. A process that opened it meanwhile sees that the locked file no longer has
//! that name, and begins again.
//!
//! No process waits inside the kernel: a waiter tries, sleeps and tries again, so that a callback
//! can report the wait and stop it, and so that signals end it. The crate's documentation has the
//! order in which locks are taken.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use sys::ofd::{OfdLock, try_ofd_lock};

use crate::error::{Error, Result, Step};
use crate::root::Root;

mod link;

/// Kind of lock between the processes that use a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockMethod {
    /// `flock(2)`.
    Flock,
    /// `fcntl(2)` with `F_OFD_SETLK`.
    Ofd,
    /// Symbolic links that name their owner.
    Symlink,
}

/// Shared or exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// A wait, as reported to the caller.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The locked thing, in words: `blob sha256:1234…`.
    pub what: String,
    /// The holder, as far as it is known: `process 4711`.
    pub holder: String,
    /// How long the wait has lasted.
    pub since: Duration,
}

/// Called after [`WaitPolicy::FIRST_NOTICE`] and then about once in a second;
/// [`ControlFlow::Break`] ends the wait with [`Error::Stopped`].
pub type OnWait = Arc<dyn Fn(&Waiting) -> ControlFlow<()> + Send + Sync>;

/// How long to wait for other processes, and the callback to report it.
#[derive(Clone)]
pub struct WaitPolicy {
    /// Limit for locks that are held briefly or by an operation that should end soon (index, names,
    /// garbage collection).
    pub limit: Duration,
    /// Limit for content that another process is fetching or unpacking; `None` waits as long as
    /// that process lives.
    pub content_limit: Option<Duration>,
    /// Called for every wait that a user would notice.
    pub on_wait: Option<OnWait>,
}

impl WaitPolicy {
    /// Shorter waits are not reported.
    pub const FIRST_NOTICE: Duration = Duration::from_millis(300);
}

impl Default for WaitPolicy {
    fn default() -> Self {
        Self { limit: Duration::from_mins(1), content_limit: None, on_wait: None }
    }
}

impl std::fmt::Debug for WaitPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitPolicy")
            .field("limit", &self.limit)
            .field("content_limit", &self.content_limit)
            .finish_non_exhaustive()
    }
}

/// A held lock; dropping it releases it.
#[derive(Debug)]
pub(crate) struct Lock {
    held: Held,
    /// Remove the lock's file on release (only for exclusive locks).
    ephemeral: Option<(Arc<Root>, String)>,
}

#[derive(Debug)]
enum Held {
    File { _file: File },
    Link(#[expect(dead_code, reason = "held for its Drop")] link::Held),
}

/// A lock that can be taken: its file in the store and its kind.
#[derive(Debug, Clone)]
pub(crate) struct Lockable {
    pub(crate) root: Arc<Root>,
    pub(crate) method: LockMethod,
    pub(crate) rel: String,
    /// The locked thing, in words, for messages.
    pub(crate) what: String,
    /// True if the exclusive holder removes the lock's file on release.
    pub(crate) ephemeral: bool,
}

impl Lockable {
    /// Takes the lock if no other process has it.
    pub(crate) fn try_take(&self, mode: Mode) -> Result<Option<Lock>> {
        let held = self.try_hold(mode)?;
        if held.is_some() {
            self.root.refresh(self.covers());
        }
        Ok(held)
    }

    /// The directories in which other hosts may have changed something while they had the lock.
    fn covers(&self) -> Vec<&str> {
        const BLOBS: &str = "oci/blobs/sha256";
        const MORE: &str = "oci/blobs/sha512";
        if let Some(directory) = self.rel.strip_suffix("/lock") {
            return vec!["containers", directory];
        }
        let name = self.rel.strip_prefix("locks/").unwrap_or_default();
        match name.split('-').next().unwrap_or_default() {
            "gc" => {
                vec!["oci", BLOBS, MORE, "layers", "trees", "containers", "volumes", "tmp", "trash"]
            }
            "index" => vec!["oci"],
            "names" => vec!["containers"],
            "blob" => vec![BLOBS, MORE, "tmp/ingest"],
            "layer" => vec!["layers", "tmp/build"],
            "tree" => vec!["trees", "tmp/build"],
            _ => vec!["networks"],
        }
    }

    fn try_hold(&self, mode: Mode) -> Result<Option<Lock>> {
        let held = match self.method {
            LockMethod::Symlink => link::try_take(&self.root, &self.rel, mode)?.map(Held::Link),
            method => self.try_file(method, mode)?.map(|file| Held::File { _file: file }),
        };
        let ephemeral = (self.ephemeral && mode == Mode::Exclusive)
            .then(|| (Arc::clone(&self.root), self.rel.clone()));
        Ok(held.map(|held| Lock { held, ephemeral }))
    }

    fn try_file(&self, method: LockMethod, mode: Mode) -> Result<Option<File>> {
        loop {
            let file = self.root.create_file(&self.rel, OFlags::empty())?;
            match lock_file(&file, method, mode) {
                Ok(()) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(Error::io(Step::Lock, self.root.join(&self.rel), errno)),
            }
            if !self.ephemeral || self.is_current(&file)? {
                return Ok(Some(file));
            }
        }
    }

    /// Returns true if the file still has the lock's name: its last holder may have removed it.
    fn is_current(&self, file: &File) -> Result<bool> {
        self.root.refresh(["locks"]);
        let here = match file.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::StaleNetworkFileHandle => {
                return Ok(false);
            }
            here => {
                here.map_err(|error| Error::io(Step::Stat, self.root.join(&self.rel), error))?
            }
        };
        let there = self.root.stat(&self.rel)?;
        Ok(there.is_some_and(|there| (there.st_dev, there.st_ino) == (here.dev(), here.ino())))
    }

    /// Takes the lock, waiting for at most `limit`.
    pub(crate) fn take(
        &self,
        mode: Mode,
        policy: &WaitPolicy,
        limit: Option<Duration>,
    ) -> Result<Lock> {
        if let Some(lock) = self.try_take(mode)? {
            return Ok(lock);
        }
        let start = Instant::now();
        let mut pause = Duration::from_micros(500);
        let mut next_notice = WaitPolicy::FIRST_NOTICE;
        loop {
            std::thread::sleep(pause);
            if let Some(lock) = self.try_take(mode)? {
                return Ok(lock);
            }
            let since = start.elapsed();
            if limit.is_some_and(|limit| since >= limit) {
                return Err(Error::Busy {
                    what: self.what.clone(),
                    holder: self.holder(),
                    seconds: since.as_secs(),
                    path: self.root.join(&self.rel),
                });
            }
            if since >= next_notice {
                next_notice = since + Duration::from_secs(1);
                if let Some(on_wait) = &policy.on_wait {
                    let waiting = Waiting { what: self.what.clone(), holder: self.holder(), since };
                    if on_wait(&waiting).is_break() {
                        return Err(Error::Stopped { what: self.what.clone() });
                    }
                }
            }
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// The lock's holder, in words.
    fn holder(&self) -> String {
        if self.method == LockMethod::Symlink {
            return link::holder(&self.root, &self.rel);
        }
        let Ok(Some(stat)) = self.root.stat(&self.rel) else { return UNKNOWN.into() };
        match holders_now(stat.st_ino).as_slice() {
            [] => UNKNOWN.into(),
            [one] => format!("process {one}"),
            [one, rest @ ..] => format!("process {one} and {} more", rest.len()),
        }
    }
}

const UNKNOWN: &str = "another coracle";

/// The processes that hold locks on an inode. The kernel goes on by number where a reader stopped,
/// so the file lacks a lock if another one was released meanwhile: then it is read again.
fn holders_now(inode: u64) -> Vec<u32> {
    let read = || std::fs::read_to_string("/proc/locks").unwrap_or_default();
    (0..READS).map(|_| holders(&read(), inode)).find(|found| !found.is_empty()).unwrap_or_default()
}

/// How often `/proc/locks` is read until the lock is in it.
const READS: usize = 20;

/// The processes that hold locks on an inode, from the text of `/proc/locks`
/// ([proc_locks(5)](https://man7.org/linux/man-pages/man5/proc_locks.5.html)). The device is not
/// compared: overlay and btrfs show another one there than `stat` does. Open-file-description locks
/// have the process number -1.
fn holders(locks: &str, inode: u64) -> Vec<u32> {
    let mut found: Vec<u32> = locks
        .lines()
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, _, _, _, pid, file, ..] = fields.as_slice() else { return None };
            let same = file.rsplit(':').next()?.parse::<u64>().ok()? == inode;
            pid.parse().ok().filter(|_| same)
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Takes the lock on an open file without waiting.
pub(crate) fn lock_file(file: &File, method: LockMethod, mode: Mode) -> rustix::io::Result<()> {
    let lock = match mode {
        Mode::Shared => OfdLock::Shared,
        Mode::Exclusive => OfdLock::Exclusive,
    };
    rustix::io::retry_on_intr(|| match method {
        LockMethod::Ofd => try_ofd_lock(file, lock),
        _ => sys::carried::try_both(file, lock),
    })
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The lock is still held here: the file is removed first, then its descriptor is closed
        // with the field.
        if let (Held::File { .. }, Some((root, rel))) = (&self.held, &self.ephemeral) {
            let _ = root.unlink(rel);
        }
    }
}

/// Removes the locks in these directories that belong to a host which a user declares gone. The
/// kernel, or the file server, releases the other kinds of lock.
pub(crate) fn forget_host(root: &Root, directories: &[&str], host: &str) -> Result<()> {
    directories.iter().try_for_each(|directory| link::forget(root, directory, host))
}

/// Removes the locks that dead processes of this machine have left in the store.
pub(crate) fn clear_own(root: &Arc<Root>) -> Result<()> {
    link::clear_own(root, "locks")
}

/// Returns true if symbolic links work as locks in this store; used by the probe.
pub(crate) fn links_work(root: &Arc<Root>, rel: &str) -> Result<()> {
    match link::try_take(root, rel, Mode::Exclusive)? {
        Some(held) => {
            if link::try_take(root, rel, Mode::Exclusive)?.is_some() {
                return Err(Error::io(Step::Lock, root.join(rel), Errno::NOTSUP));
            }
            drop(held);
            Ok(())
        }
        None => Err(Error::io(Step::Lock, root.join(rel), Errno::NOTSUP)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lockable(root: &Arc<Root>, method: LockMethod, ephemeral: bool) -> Lockable {
        Lockable {
            root: Arc::clone(root),
            method,
            rel: "locks/thing".into(),
            what: "thing".into(),
            ephemeral,
        }
    }

    #[test]
    fn each_kind_locks_shared_and_exclusive() {
        for method in [LockMethod::Flock, LockMethod::Ofd, LockMethod::Symlink] {
            for ephemeral in [false, true] {
                let directory = tempfile::tempdir().unwrap();
                let root = Arc::new(Root::open(directory.path()).unwrap().unwrap());
                let lock = lockable(&root, method, ephemeral);
                let a = lock.try_take(Mode::Shared).unwrap().unwrap();
                let b = lock.try_take(Mode::Shared).unwrap().unwrap();
                assert!(lock.try_take(Mode::Exclusive).unwrap().is_none(), "{method:?}");
                drop(a);
                assert!(lock.try_take(Mode::Exclusive).unwrap().is_none(), "{method:?}");
                drop(b);
                let c = lock.try_take(Mode::Exclusive).unwrap().unwrap();
                assert!(lock.try_take(Mode::Shared).unwrap().is_none(), "{method:?}");
                assert!(lock.try_take(Mode::Exclusive).unwrap().is_none(), "{method:?}");
                drop(c);
                assert!(lock.try_take(Mode::Exclusive).unwrap().is_some(), "{method:?}");
            }
        }
    }

    #[test]
    fn ephemeral_lock_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap().unwrap());
        for method in [LockMethod::Flock, LockMethod::Ofd, LockMethod::Symlink] {
            drop(lockable(&root, method, true).try_take(Mode::Exclusive).unwrap().unwrap());
            assert!(root.list("locks").unwrap().is_empty(), "{method:?}");
        }
    }

    /// Between opening and locking, the last holder may have removed the file, and another process
    /// may have made it anew.
    #[test]
    fn a_lock_on_a_removed_file_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap().unwrap());
        let lock = lockable(&root, LockMethod::Flock, true);
        let early = root.create_file(&lock.rel, OFlags::empty()).unwrap();
        assert!(lock.is_current(&early).unwrap());
        root.unlink(&lock.rel).unwrap();
        assert!(!lock.is_current(&early).unwrap());
        let _other = lock.try_take(Mode::Exclusive).unwrap().unwrap();
        assert!(!lock.is_current(&early).unwrap());
    }

    #[test]
    fn a_bounded_wait_ends_and_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap().unwrap());
        let lock = lockable(&root, LockMethod::Flock, false);
        let _held = lock.try_take(Mode::Exclusive).unwrap().unwrap();
        let error = lock
            .take(Mode::Shared, &WaitPolicy::default(), Some(Duration::from_millis(20)))
            .unwrap_err();
        let me = format!("process {}", std::process::id());
        assert!(matches!(&error, Error::Busy { holder, .. } if *holder == me), "{error}");
        let policy = WaitPolicy {
            on_wait: Some(Arc::new(|_| ControlFlow::Break(()))),
            ..WaitPolicy::default()
        };
        assert!(matches!(lock.take(Mode::Shared, &policy, None), Err(Error::Stopped { .. })));
    }

    #[test]
    fn reads_proc_locks() {
        let text = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:1234 0 EOF\n\
                    2: OFDLCK ADVISORY  WRITE -1 fe:00:1234 0 EOF\n\
                    3: FLOCK  ADVISORY  WRITE 9 fe:00:99 0 EOF\n";
        assert_eq!(holders(text, 1234), [4711]);
    }
}
