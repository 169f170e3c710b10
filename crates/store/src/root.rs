//! The store's directory: every file in it is reached relative to one descriptor.
//!
//! [`Root`] wraps the few calls that the rest of the crate needs and turns each failure into an
//! [`Error`] with the full path. This crate builds relative names from digests, ids and checked
//! names only, never from anything inside an image.
//!
//! [`Root::replace`] is the only way in which a file's content changes: a sibling with a random
//! name is written (and synced, if asked), then renamed over the old one. A killed writer leaves
//! such a sibling (`.<name>.<random>`), which the sweep removes.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Result, Step};

/// Size limit in bytes for a file that is read whole: manifests, configurations and the index are
/// far smaller.
pub(crate) const DOCUMENT_LIMIT: u64 = 64 << 20;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

/// A directory, with its path for messages and for callers that need a path (mounts).
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) path: PathBuf,
    fd: OwnedFd,
    /// Set if other hosts may have the file system ([`Root::on_network`]).
    network: AtomicBool,
}

/// How often a call is tried on a file server that says that it no longer knows a file.
const STALE_TRIES: u32 = 6;

/// Makes a call again while the file server says `ESTALE`: another host has removed or replaced
/// what this host's cache still leads to, and the next look-up asks the server. The kernel itself
/// looks up once more only.
fn retried<T>(call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    while_stale(call, |errno| *errno == Errno::STALE)
}

fn while_stale<T, E>(
    mut call: impl FnMut() -> std::result::Result<T, E>,
    is_stale: impl Fn(&E) -> bool,
) -> std::result::Result<T, E> {
    for attempt in 1..STALE_TRIES {
        match call() {
            Err(error) if is_stale(&error) => {
                std::thread::sleep(Duration::from_millis(5) * attempt);
            }
            other => return other,
        }
    }
    call()
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Root {
    /// Opens the directory; `None` when there is none.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        match fs::open(path, OFlags::PATH | DIRECTORY, Mode::empty()) {
            Ok(fd) => Ok(Some(Self { path: path.to_owned(), fd, network: AtomicBool::new(false) })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io(Step::Open, path, errno)),
        }
    }

    /// Notes that other hosts may have the file system. From then on each file is on the server
    /// before it gets its name, since a failure to write may be told only then, and
    /// [`Root::refresh`] does something.
    pub(crate) fn set_network(&self) {
        self.network.store(true, Ordering::Relaxed);
    }

    /// Returns true if other hosts may have the file system.
    pub(crate) fn on_network(&self) -> bool {
        self.network.load(Ordering::Relaxed)
    }

    /// Has the kernel ask the file server whether these directories have changed, so that names in
    /// them that other hosts have made, replaced or removed are seen. A client of NFS trusts what
    /// it has seen for up to a minute, but asks when a directory is opened.
    pub(crate) fn refresh<'a>(&self, directories: impl IntoIterator<Item = &'a str>) {
        if self.on_network() {
            for directory in directories {
                // A missing directory has nothing to be seen.
                let _ = fs::openat(&self.fd, directory, DIRECTORY, Mode::empty());
            }
        }
    }

    /// The path of an entry.
    pub(crate) fn join(&self, rel: &str) -> PathBuf {
        self.path.join(rel)
    }

    fn fail(&self, step: Step, rel: &str, errno: impl Into<io::Error>) -> Error {
        Error::io(step, self.join(rel), errno)
    }

    /// Opens an existing file; `None` when it is not there.
    pub(crate) fn open_file(&self, rel: &str, flags: OFlags) -> Result<Option<File>> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        match retried(|| fs::openat(&self.fd, rel, flags, Mode::empty())) {
            Ok(fd) => Ok(Some(File::from(fd))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.fail(Step::Open, rel, errno)),
        }
    }

    /// Creates or opens a file for reading and writing, making its directory where that is missing.
    pub(crate) fn create_file(&self, rel: &str, extra: OFlags) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | extra;
        let mode = Mode::from_raw_mode(0o644);
        let open = || retried(|| fs::openat(&self.fd, rel, flags, mode));
        let opened = match open() {
            Err(Errno::NOENT) => {
                self.make_parent(rel)?;
                open()
            }
            other => other,
        };
        opened.map(File::from).map_err(|errno| self.fail(Step::Create, rel, errno))
    }

    /// Reads a small file whole; `None` when it is not there.
    pub(crate) fn read(&self, rel: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        reread(|| {
            let Some(file) = self.open_file(rel, OFlags::RDONLY)? else { return Ok(None) };
            read_all(file, || self.join(rel), limit).map(Some)
        })
    }

    /// Reads and parses a small JSON file; `None` when it is not there.
    pub(crate) fn read_json<T: serde::de::DeserializeOwned>(&self, rel: &str) -> Result<Option<T>> {
        let Some(bytes) = self.read(rel, DOCUMENT_LIMIT)? else { return Ok(None) };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|source| Error::BadJson { path: self.join(rel), source })
    }

    /// Stats an entry without following a symbolic link in its last component; `None` when there is
    /// none.
    pub(crate) fn stat(&self, rel: &str) -> Result<Option<Stat>> {
        match retried(|| fs::statat(&self.fd, rel, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.fail(Step::Stat, rel, errno)),
        }
    }

    /// Returns true if there is an entry with this name.
    pub(crate) fn exists(&self, rel: &str) -> Result<bool> {
        Ok(self.stat(rel)?.is_some())
    }

    /// Makes one directory; `false` when it existed.
    ///
    /// Directories at the top are for this user alone, whatever the mode of the store's own
    /// directory: a layer's setuid programs are setuid to this user on disk, and other users must
    /// not reach them.
    pub(crate) fn make_dir(&self, rel: &str) -> Result<bool> {
        let mode = Mode::from_raw_mode(if rel.contains('/') { 0o755 } else { 0o700 });
        let attempt = || retried(|| fs::mkdirat(&self.fd, rel, mode));
        let answer = match attempt() {
            Err(Errno::NOENT) => {
                self.make_parent(rel)?;
                attempt()
            }
            other => other,
        };
        match answer {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(self.fail(Step::MakeDirectory, rel, errno)),
        }
    }

    /// Sets the mode of a file or directory that this process has just made.
    pub(crate) fn set_mode(&self, rel: &str, mode: u32) -> Result<()> {
        retried(|| fs::chmodat(&self.fd, rel, Mode::from_raw_mode(mode), AtFlags::empty()))
            .map_err(|errno| self.fail(Step::Mode, rel, errno))
    }

    /// Makes the parent directory of a new entry if it is one of the store's own. A missing
    /// directory of a container, volume or layer was removed by another process and must not be
    /// recreated half empty.
    fn make_parent(&self, rel: &str) -> Result<()> {
        let gone = || Err(self.fail(Step::Create, rel, Errno::NOENT));
        let Some((parent, _)) = rel.rsplit_once('/') else { return gone() };
        let top = parent.split_once('/').map(|(top, _)| top);
        if top.is_some_and(|top| !["locks", "oci", "tmp", "trash"].contains(&top)) {
            return gone();
        }
        self.make_dir(parent).map(|_| ())
    }

    /// Renames within the store.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let rename = || retried(|| fs::renameat(&self.fd, from, &self.fd, to));
        match rename() {
            // The error does not say which of the two is missing; a missing target directory can be
            // made.
            Err(Errno::NOENT) if self.exists(from)? => {
                self.make_parent(to)?;
                rename()
            }
            other => other,
        }
        .map_err(|errno| self.fail(Step::Rename, to, errno))
    }

    /// Renames within the store unless the new name exists; `false` if it does. If the file system
    /// cannot do both in one step, the name is checked before.
    pub(crate) fn rename_new(&self, from: &str, to: &str) -> Result<bool> {
        match fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(_) if self.exists(to)? => Ok(false),
            Err(_) => self.rename(from, to).map(|()| true),
        }
    }

    /// Removes a file or link; `false` when there was none.
    pub(crate) fn unlink(&self, rel: &str) -> Result<bool> {
        match retried(|| fs::unlinkat(&self.fd, rel, AtFlags::empty())) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.fail(Step::Remove, rel, errno)),
        }
    }

    /// Makes a symbolic link; `false` when the name exists.
    pub(crate) fn symlink(&self, target: &str, rel: &str) -> Result<bool> {
        let attempt = || retried(|| fs::symlinkat(target, &self.fd, rel));
        let made = match attempt() {
            Err(Errno::NOENT) => {
                self.make_parent(rel)?;
                attempt()
            }
            other => other,
        };
        match made {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(self.fail(Step::Link, rel, errno)),
        }
    }

    /// A symbolic link's target; `None` when there is none or it is something else.
    pub(crate) fn read_link(&self, rel: &str) -> Result<Option<String>> {
        match retried(|| fs::readlinkat(&self.fd, rel, Vec::new())) {
            Ok(target) => Ok(target.into_string().ok()),
            Err(Errno::NOENT | Errno::INVAL | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(self.fail(Step::ReadLink, rel, errno)),
        }
    }

    /// Lists the names in a directory with their kinds (unsorted, without `.` and `..`; names that
    /// are not UTF-8 are left out, since this crate never makes such names). A missing directory
    /// counts as empty.
    pub(crate) fn list(&self, rel: &str) -> Result<Vec<(String, FileType)>> {
        let fd = match retried(|| fs::openat(&self.fd, rel, DIRECTORY, Mode::empty())) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(errno) => return Err(self.fail(Step::Open, rel, errno)),
        };
        let mut names = Vec::new();
        for entry in Dir::new(fd).map_err(|errno| self.fail(Step::List, rel, errno))? {
            let entry = entry.map_err(|errno| self.fail(Step::List, rel, errno))?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name != "." && name != ".." {
                names.push((name.to_owned(), entry.file_type()));
            }
        }
        Ok(names)
    }

    /// Waits until the entries of a directory are on the disk.
    pub(crate) fn sync_dir(&self, rel: &str) -> Result<()> {
        let fd = retried(|| fs::openat(&self.fd, rel, DIRECTORY, Mode::empty()))
            .map_err(|errno| self.fail(Step::Open, rel, errno))?;
        match fs::fsync(&fd) {
            // Some FUSE and network file systems cannot sync a directory: they are synchronous, or
            // have no such operation.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(self.fail(Step::Sync, rel, errno)),
        }
    }

    /// Waits until everything on the store's file system is on the disk.
    pub(crate) fn sync_all(&self) -> Result<()> {
        let fd = fs::openat(&self.fd, ".", DIRECTORY, Mode::empty())
            .map_err(|errno| self.fail(Step::Open, "", errno))?;
        fs::syncfs(&fd).map_err(|errno| self.fail(Step::Sync, "", errno))
    }

    /// Replaces a file's content in one step; with `durable`, the old or the new content survives a
    /// power failure.
    pub(crate) fn replace(&self, rel: &str, bytes: &[u8], durable: bool) -> Result<()> {
        let temporary = sibling(rel, &random_hex(8)?);
        self.replace_by(rel, &temporary, bytes, durable)
    }

    /// The same under a lock that all who replace this file hold. What a killed process left is
    /// replaced with it, so no sweep is needed.
    pub(crate) fn replace_locked(&self, rel: &str, bytes: &[u8], durable: bool) -> Result<()> {
        let temporary = sibling(rel, "new");
        self.unlink(&temporary)?;
        self.replace_by(rel, &temporary, bytes, durable)
    }

    fn replace_by(&self, rel: &str, temporary: &str, bytes: &[u8], durable: bool) -> Result<()> {
        let written =
            self.write_new(temporary, bytes, durable).and_then(|()| self.rename(temporary, rel));
        if written.is_err() {
            // The first failure is reported.
            let _ = self.unlink(temporary);
            return written;
        }
        if durable { self.sync_dir(parent_and_name(rel).0) } else { Ok(()) }
    }

    /// Writes a file that does not exist yet.
    pub(crate) fn write_new(&self, rel: &str, bytes: &[u8], durable: bool) -> Result<()> {
        let mut file = self.create_file(rel, OFlags::EXCL)?;
        file.write_all(bytes).map_err(|source| self.fail(Step::Write, rel, source))?;
        if durable || self.on_network() {
            fs::fsync(&file).map_err(|errno| self.fail(Step::Sync, rel, errno))?;
        }
        Ok(())
    }
}

fn parent_and_name(rel: &str) -> (&str, &str) {
    rel.rsplit_once('/').unwrap_or((".", rel))
}

/// The name of a temporary file beside a file.
fn sibling(rel: &str, ending: &str) -> String {
    let (parent, name) = parent_and_name(rel);
    format!("{parent}/.{name}.{ending}")
}

/// Opens and reads a file again while the file server says `ESTALE`: another host has replaced it
/// since it was opened.
pub(crate) fn reread<T>(call: impl FnMut() -> Result<T>) -> Result<T> {
    while_stale(call, |error| error.errno() == Some(Errno::STALE.raw_os_error()))
}

/// Reads an open file whole, up to `limit`.
///
/// Reads as many bytes as the file has now: such files are replaced by renaming and never grow.
pub(crate) fn read_all(mut file: File, path: impl Fn() -> PathBuf, limit: u64) -> Result<Vec<u8>> {
    let size =
        fs::fstat(&file).map_err(|errno| Error::io(Step::Stat, path(), errno))?.st_size as u64;
    if size > limit {
        return Err(Error::TooLarge { path: path(), size, limit });
    }
    let mut bytes = vec![0; size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::io(Step::Read, path(), source)),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Makes a random id: 64 hexadecimal digits, as a container's.
pub fn random_id() -> Result<String> {
    random_hex(32)
}

/// `bytes` random bytes as lower-case hexadecimal digits.
pub(crate) fn random_hex(bytes: usize) -> Result<String> {
    let mut buffer = [0_u8; 32];
    let wanted = &mut buffer[..bytes];
    sys::random::fill(wanted).map_err(|error| Error::io(Step::Random, "an id", error))?;
    let mut text = String::with_capacity(2 * bytes);
    for byte in wanted {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// Writes a value as indented JSON.
pub(crate) fn encode(value: &impl serde::Serialize, path: impl Fn() -> PathBuf) -> Result<Vec<u8>> {
    let mut bytes =
        serde_json::to_vec(value).map_err(|source| Error::Encode { path: path(), source })?;
    bytes.push(b'\n');
    Ok(bytes)
}
