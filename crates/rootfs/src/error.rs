//! The crate's error: a variant per step, with the entry or path and what the kernel said.

use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What went wrong between a layer and a tree.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive could not be read (network, disk, or a broken compressed stream).
    #[error("cannot read the archive at byte {offset}: {source}")]
    Read {
        /// Position in the uncompressed stream.
        offset: u64,
        /// What the reader said.
        source: std::io::Error,
    },
    /// The output stream could not be written.
    #[error("cannot write the archive: {0}")]
    Write(#[source] std::io::Error),
    /// The bytes are no tar archive as the formats define it.
    #[error("the archive is damaged at byte {offset}{}: {problem}", entry_text(entry))]
    Archive {
        /// Position of the header in the uncompressed stream.
        offset: u64,
        /// Name of the entry, empty where it is not known.
        entry: Vec<u8>,
        /// What is wrong.
        problem: String,
    },
    /// An entry that would write outside the tree, or means something that no layer may mean.
    #[error("entry {:?} is refused: {why}", show(entry))]
    Refused {
        /// Name of the entry.
        entry: Vec<u8>,
        /// The reason.
        why: String,
    },
    /// An entry beyond a limit.
    #[error("{what} of {found} is over the limit of {limit}{}", entry_text(entry))]
    Limit {
        /// Name of the entry, shortened; empty where the whole archive is meant.
        entry: Vec<u8>,
        /// What is limited.
        what: &'static str,
        /// What was found.
        found: u64,
        /// What is allowed.
        limit: u64,
    },
    /// A system call failed.
    #[error("cannot {step} {path:?}: {errno}")]
    Disk {
        /// What was tried, as a verb phrase.
        step: &'static str,
        /// Path in the tree, or on the host where the step says so.
        path: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
    /// An operation of several calls failed.
    #[error("cannot {}", .0)]
    Tree(sys::fs::Error),
    /// The ownership table or the metadata beside a tree cannot be used.
    #[error("{path:?} cannot be used (line {line}): {problem}")]
    Table {
        /// The file.
        path: PathBuf,
        /// Line number from 1; 0 where there is none.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// Compression that we do not read.
    #[error("the layer is compressed by {0}, which is not supported")]
    Compression(&'static str),
    /// A hard link to a file that is in no layer.
    #[error(
        "entry {:?} is a hard link to {:?}, which is in no layer of the image",
        show(entry),
        show(target)
    )]
    LinkTarget {
        /// The link.
        entry: Vec<u8>,
        /// What it points to.
        target: Vec<u8>,
    },
    /// A path for `cp` or `import` that cannot be used.
    #[error("{path:?}: {problem}")]
    Path {
        /// As the user gave it.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The chosen driver cannot work here.
    #[error("driver {driver} cannot be used: {why}")]
    Driver {
        /// Its name.
        driver: &'static str,
        /// The reason.
        why: String,
    },
    /// A thread of ours ended early.
    #[error("the {0} thread ended unexpectedly")]
    Thread(&'static str),
}

fn entry_text(entry: &[u8]) -> String {
    if entry.is_empty() { String::new() } else { format!(" (entry {:?})", show(entry)) }
}

/// A name for people: lossy, and cut in the middle where it is very long.
pub(crate) fn show(name: &[u8]) -> String {
    if name.len() <= 240 {
        return String::from_utf8_lossy(name).into_owned();
    }
    let (head, tail) = (&name[..120], &name[name.len() - 80..]);
    format!(
        "{}...({} bytes)...{}",
        String::from_utf8_lossy(head),
        name.len(),
        String::from_utf8_lossy(tail)
    )
}

pub(crate) fn path_buf(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

impl Error {
    pub(crate) fn disk(step: &'static str, path: &[u8], errno: Errno) -> Self {
        Self::Disk { step, path: path_buf(path), errno }
    }

    pub(crate) fn refused(entry: &[u8], why: impl Into<String>) -> Self {
        Self::Refused { entry: entry.to_vec(), why: why.into() }
    }

    /// The kernel's error number, where one is behind it.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Disk { errno, .. } => Some(errno.raw_os_error()),
            Self::Tree(error) => Some(error.errno.raw_os_error()),
            Self::Read { source, .. } | Self::Write(source) => source.raw_os_error(),
            _ => None,
        }
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Disk { errno: Errno::NOSPC | Errno::DQUOT, .. } => {
                "the disk or the quota is full; `coracle prune` frees what no container uses"
            }
            Self::Disk { errno: Errno::PERM | Errno::ACCESS, .. } => {
                "the store must belong to you; files of subordinate ids need a user namespace to be changed"
            }
            Self::Disk { errno: Errno::MFILE | Errno::NFILE, .. } => {
                "too many open files: raise `ulimit -n`"
            }
            Self::Tree(error) => return error.hint(),
            Self::Archive { .. } | Self::Read { .. } => {
                "if the blob's digest is right, the image was made like this; else pull it again"
            }
            Self::Refused { .. } => "the image is broken or hostile; nothing of the layer was kept",
            Self::Limit { .. } => {
                "if you trust the image, raise the limit in config.toml, section [limits]"
            }
            Self::Table { .. } => "the layer can be removed and pulled again",
            _ => return None,
        };
        Some(text.into())
    }
}

impl From<sys::fs::Error> for Error {
    fn from(error: sys::fs::Error) -> Self {
        Self::Tree(error)
    }
}
