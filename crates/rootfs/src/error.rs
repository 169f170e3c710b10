//! The crate's error: one variant per step, with the entry or path and the kernel's error.

use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Error of a conversion between layers and trees.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive could not be read (network, disk, or a broken compressed stream).
    #[error("cannot read the archive at byte {offset}: {source}")]
    Read {
        /// Position in the uncompressed stream.
        offset: u64,
        /// The reader's error.
        source: std::io::Error,
    },
    /// The output stream could not be written.
    #[error("cannot write the archive: {0}")]
    Write(#[source] std::io::Error),
    /// The bytes are not a valid tar archive.
    #[error("the archive is damaged at byte {offset}{}: {problem}", entry_text(entry))]
    Archive {
        /// Position of the header in the uncompressed stream.
        offset: u64,
        /// Name of the entry, empty if it is not known.
        entry: Vec<u8>,
        /// The violation.
        problem: String,
    },
    /// An entry that would write outside the tree, or that a layer must not contain.
    #[error("entry {:?} is refused: {why}", display_name(entry))]
    Refused {
        /// Name of the entry.
        entry: Vec<u8>,
        /// The reason.
        why: String,
    },
    /// An entry beyond a limit.
    #[error("{what} of {found} is over the limit of {limit}{}", entry_text(entry))]
    Limit {
        /// Name of the entry, shortened; empty if the limit is on the whole archive.
        entry: Vec<u8>,
        /// The limited quantity.
        what: &'static str,
        /// Its value.
        found: u64,
        /// Its limit.
        limit: u64,
    },
    /// A system call failed.
    #[error("cannot {step} {path:?}: {errno}")]
    Disk {
        /// The failed step, as a verb phrase.
        step: &'static str,
        /// Path in the tree, or on the host if the step says so.
        path: PathBuf,
        /// The kernel's error.
        errno: Errno,
    },
    /// An operation of several system calls failed.
    #[error("cannot {}", .0)]
    Tree(sys::fs::Error),
    /// The ownership table or the metadata beside a tree cannot be used.
    #[error("{path:?} cannot be used (line {line}): {problem}")]
    Table {
        /// The file.
        path: PathBuf,
        /// Line number from 1; 0 if there is none.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// The index of a tree cannot be used, or not be made.
    #[error("{path:?} cannot be used: {problem}")]
    Index {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The store does not take a file beside a tree.
    #[error("cannot keep the index of {path:?}: {source}")]
    Keep {
        /// The tree's entry.
        path: PathBuf,
        /// The store's error.
        source: store::Error,
    },
    /// A compression format that is not supported.
    #[error("the layer is compressed by {0}, which is not supported")]
    Compression(&'static str),
    /// A hard link to a file that is in no layer.
    #[error(
        "entry {:?} is a hard link to {:?}, which is in no layer of the image",
        display_name(entry),
        display_name(target)
    )]
    LinkTarget {
        /// The link.
        entry: Vec<u8>,
        /// Its target.
        target: Vec<u8>,
    },
    /// A path for `cp` or `import` that cannot be used.
    #[error("{path:?}: {problem}")]
    Path {
        /// As the user gave it.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The chosen driver does not work here.
    #[error("driver {driver} cannot be used: {why}")]
    Driver {
        /// Its name.
        driver: &'static str,
        /// The reason.
        why: String,
    },
    /// A thread ended early.
    #[error("the {0} thread ended unexpectedly")]
    Thread(&'static str),
}

fn entry_text(entry: &[u8]) -> String {
    if entry.is_empty() { String::new() } else { format!(" (entry {:?})", display_name(entry)) }
}

/// A name for messages: lossy, and shortened in the middle if it is very long.
pub(crate) fn display_name(name: &[u8]) -> String {
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

    /// The kernel's error number, if a system call failed.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Disk { errno, .. } => Some(errno.raw_os_error()),
            Self::Tree(error) => Some(error.errno.raw_os_error()),
            Self::Read { source, .. } | Self::Write(source) => source.raw_os_error(),
            Self::Keep { source, .. } => source.errno(),
            _ => None,
        }
    }

    /// Advice for the user.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Disk { errno: Errno::NOSPC | Errno::DQUOT, .. } => {
                "the disk or the quota is full; 'coracle prune' removes unused content"
            }
            Self::Disk { errno: Errno::PERM | Errno::ACCESS, .. } => {
                "the store must belong to you; files of subordinate ids can only be changed in a \
                 user namespace"
            }
            Self::Disk { errno: Errno::MFILE | Errno::NFILE, .. } => {
                "too many open files: raise 'ulimit -n'"
            }
            Self::Tree(error) => return error.hint(),
            Self::Keep { source, .. } => return source.hint(),
            Self::Archive { .. } | Self::Read { .. } => {
                "pull or copy it again; if that does not help, it was made with this damage, or \
                 is not a tar archive"
            }
            Self::Refused { .. } => "the image is damaged or malicious; the layer was not kept",
            Self::Limit { .. } => {
                "if you trust the image, raise the limit in config.toml, section [limits]"
            }
            Self::Compression(_) => {
                "no engine of containers reads such a layer from a registry: copy the image with its \
                 layers compressed anew, as 'skopeo copy --dest-compress-format gzip'"
            }
            Self::Table { .. } => "remove the image and pull it again",
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
