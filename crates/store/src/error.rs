//! Errors of the store, one variant per kind, each with its path and the kernel's error.
//!
//! A failed system call is [`Error::Io`] with the [`Step`] that failed; every other variant is a
//! statement about the store itself. [`Error::hint`] says what a user can do about it.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The operation on a path that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Opening an existing file or directory.
    Open,
    /// Creating a file.
    Create,
    /// Making a directory.
    MakeDirectory,
    /// Setting permissions.
    Mode,
    /// Reading a file.
    Read,
    /// Writing to a file.
    Write,
    /// Waiting until data is on the disk.
    Sync,
    /// Renaming a file into place, which makes it visible.
    Rename,
    /// Making a symbolic link.
    Link,
    /// Reading a symbolic link.
    ReadLink,
    /// Deleting.
    Remove,
    /// Reading a directory.
    List,
    /// Reading an entry's kind, owner and size.
    Stat,
    /// Taking a lock.
    Lock,
    /// Getting random bytes from the kernel.
    Random,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::MakeDirectory => "create the directory",
            Self::Mode => "set the mode of",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Rename => "rename into place",
            Self::Link => "create the link",
            Self::ReadLink => "read the link",
            Self::Remove => "delete",
            Self::List => "list",
            Self::Stat => "stat",
            Self::Lock => "lock",
            Self::Random => "get random bytes for",
        })
    }
}

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// The operation.
        step: Step,
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The path given for a store is not absolute.
    #[error("the path of a store must be absolute: {}", path.display())]
    NotAbsolute {
        /// The path as given.
        path: PathBuf,
    },
    /// There is no store at this path, and none was to be made.
    #[error("there is no store at {}", path.display())]
    NoStore {
        /// The path as given.
        path: PathBuf,
    },
    /// The directory holds something else.
    #[error("{} is not a store: it holds {found:?}", path.display())]
    NotAStore {
        /// The directory.
        path: PathBuf,
        /// A name in it that no store has.
        found: String,
    },
    /// A later version of this program made the store.
    #[error("the store {} has format {found}; this program reads format {known}", path.display())]
    TooNew {
        /// The store.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this program reads.
        known: u32,
    },
    /// Other users could replace files in the store.
    #[error("{} {why}, so other users could put programs into it", path.display())]
    Untrusted {
        /// The directory in question.
        path: PathBuf,
        /// The problem.
        why: &'static str,
    },
    /// The store can be read but not changed.
    #[error("the store {} is read-only: {reason}", path.display())]
    ReadOnly {
        /// The store.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file system lacks a feature that root trees need.
    #[error(
        "the file system ({file_system}) at {} cannot hold a store: it has no {lacking}",
        path.display()
    )]
    Unfit {
        /// The store.
        path: PathBuf,
        /// The kind of file system.
        file_system: String,
        /// The missing feature.
        lacking: String,
    },
    /// No kind of lock works there.
    #[error("no kind of lock works at {}: {tried}", path.display())]
    NoLocks {
        /// The store.
        path: PathBuf,
        /// Each kind and how it failed.
        tried: String,
    },
    /// Hosts lock the store by the kernel, and this host's mount keeps its locks to itself.
    #[error(
        "the hosts that have the store {} lock it through the file server, and this host's mount \
         keeps locks to itself",
        path.display()
    )]
    OtherLocks {
        /// The store.
        path: PathBuf,
    },
    /// Another process held a lock for longer than the wait limit.
    #[error("{what} is still held by {holder} after {seconds} s")]
    Busy {
        /// The locked thing, in words.
        what: String,
        /// The holder, as far as it is known.
        holder: String,
        /// How long this process waited.
        seconds: u64,
        /// The lock's file.
        path: PathBuf,
    },
    /// The caller's wait callback asked to stop.
    #[error("stopped while waiting for {what}")]
    Stopped {
        /// The locked thing, in words.
        what: String,
    },
    /// The exclusive lock would wait for leases of this process itself.
    #[error(
        "{what} needs exclusive use of the store, but this process still holds {count} leases on it"
    )]
    OwnLease {
        /// The operation.
        what: &'static str,
        /// Number of leases of this process.
        count: usize,
    },
    /// The content that arrived has another digest than announced.
    #[error("received content with digest {found} instead of {expected}")]
    WrongDigest {
        /// The digest that was asked for.
        expected: String,
        /// The digest of the content that arrived.
        found: String,
    },
    /// More or fewer bytes arrived than announced.
    #[error("received {found} bytes instead of {expected} for {digest}")]
    WrongSize {
        /// The blob.
        digest: String,
        /// The announced size.
        expected: u64,
        /// The number of bytes that arrived.
        found: u64,
    },
    /// A blob is not in the store.
    #[error("blob {digest} is not in the store")]
    NoBlob {
        /// The blob.
        digest: String,
    },
    /// A stored blob is damaged.
    #[error("blob {digest} is damaged: {why}")]
    BadBlob {
        /// The blob.
        digest: String,
        /// Its file.
        path: PathBuf,
        /// The evidence.
        why: String,
    },
    /// A file of the store is larger than it may be.
    #[error("{} has {size} bytes; the limit is {limit}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file of the store is not the expected JSON.
    #[error("{} is damaged", path.display())]
    BadJson {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// The list of images is missing or damaged, so it is unknown which blobs are in use.
    #[error("the list of images, {}, is damaged: {why}", path.display())]
    BadIndex {
        /// The file.
        path: PathBuf,
        /// The evidence.
        why: String,
    },
    /// A blob that should be a manifest, index or configuration cannot be parsed as one.
    #[error("{digest} is not a usable {what}: {why}")]
    BadDocument {
        /// The blob.
        digest: String,
        /// The expected kind.
        what: &'static str,
        /// The parser's error.
        why: String,
    },
    /// A value from the caller cannot be written as JSON.
    #[error("cannot write {} as JSON", path.display())]
    Encode {
        /// The file to be written.
        path: PathBuf,
        /// The serialiser's error.
        #[source]
        source: serde_json::Error,
    },
    /// No such image.
    #[error("no image {name:?} is in the store")]
    NoImage {
        /// The name as given.
        name: String,
    },
    /// Several images match this name.
    #[error("{name:?} matches several images: {}", candidates.join(", "))]
    AmbiguousImage {
        /// The name as given.
        name: String,
        /// The images that match.
        candidates: Vec<String>,
    },
    /// The image has other names or containers.
    #[error("image {name} is in use: {why}")]
    ImageInUse {
        /// The image.
        name: String,
        /// The reason.
        why: String,
    },
    /// A layer or tree is not in the store.
    #[error("{what} {digest} is not in the store")]
    NoTree {
        /// `layer` or `tree`.
        what: &'static str,
        /// Its digest.
        digest: String,
    },
    /// No such container.
    #[error("no container {name:?}")]
    NoContainer {
        /// The name as given.
        name: String,
    },
    /// Several containers have ids that begin like this.
    #[error("{name:?} matches several containers: {}", candidates.join(", "))]
    AmbiguousContainer {
        /// The name as given.
        name: String,
        /// The ids that match.
        candidates: Vec<String>,
    },
    /// The name belongs to another container.
    #[error("the name {name:?} is in use by container {id}")]
    NameInUse {
        /// The name.
        name: String,
        /// The id of that container.
        id: String,
    },
    /// A container or volume cannot have this name.
    #[error("{name:?} is not a usable name: {why}")]
    BadName {
        /// The name.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// No such volume.
    #[error("no volume {name:?}")]
    NoVolume {
        /// The name as given.
        name: String,
    },
    /// A caller's removal function failed.
    #[error("cannot remove {}", path.display())]
    Removal {
        /// The file or directory to be removed.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// Makes an error of a failed system call.
    pub(crate) fn io(step: Step, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { step, path: path.into(), source: source.into() }
    }

    /// The error number, if a system call failed.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Returns true if the disk is full or the user's quota is used up.
    pub fn is_full(&self) -> bool {
        self.errno()
            .map(Errno::from_raw_os_error)
            .is_some_and(|errno| [Errno::NOSPC, Errno::DQUOT].contains(&errno))
    }

    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Io { source, path, .. } => return io_hint(source, path),
            Self::NoStore { .. } => {
                "pull an image to create one, or name another one with --store or CORACLE_DIR"
                    .into()
            }
            Self::NotAStore { .. } => "name an empty or a new directory".into(),
            Self::TooNew { .. } => {
                "use the newer version of coracle that created it, or another store".into()
            }
            Self::Untrusted { path, .. } => {
                format!("chmod go-w {}, or use another directory", path.display())
            }
            Self::ReadOnly { .. } => {
                "set CORACLE_DIR to a store that you can write to, and add this one with --store-ro"
                    .into()
            }
            Self::Unfit { .. } => {
                "put the store on a local disk, /tmp or $XDG_RUNTIME_DIR with CORACLE_DIR".into()
            }
            Self::NoLocks { .. } => {
                "ask the administrator to mount the file system with locks (Lustre: -o flock), or \
                 set CORACLE_DIR to a directory on another file system"
                    .into()
            }
            Self::OtherLocks { .. } => {
                "ask the administrator to mount it as on the other hosts (NFS: without nolock and \
                 local_lock, Lustre: -o flock), or set CORACLE_DIR to another directory"
                    .into()
            }
            Self::Busy { path, .. } => format!(
                "wait until it ends; if it was killed on another machine, 'coracle prune' there \
                 removes what it left; if that machine is gone, use 'coracle stop --host-is-gone \
                 HOST CONTAINER', or remove {}",
                path.display()
            ),
            Self::WrongDigest { .. } | Self::WrongSize { .. } => {
                "the source sent other content than it announced; pull again".into()
            }
            Self::BadBlob { .. } | Self::BadDocument { .. } => {
                "'coracle verify --repair' removes damaged content; the next pull fetches it again"
                    .into()
            }
            Self::BadJson { path, .. } => return record_hint(path),
            Self::BadIndex { path, .. } => format!(
                "restore {} from a backup, or let 'coracle verify --repair' rebuild it from the \
                 blobs (images lose their names; pull them to restore the names)",
                path.display()
            ),
            Self::NoBlob { .. } => "pull the image again".into(),
            Self::AmbiguousImage { .. } | Self::AmbiguousContainer { .. } => {
                "give more digits of the id, or the full name".into()
            }
            Self::ImageInUse { .. } => {
                "remove its containers ('coracle rm') or its other names first, or use \
                 'coracle rmi -f'"
                    .into()
            }
            Self::NoImage { .. } => {
                "'coracle images' lists all images; 'coracle pull' fetches one".into()
            }
            Self::NoContainer { .. } => "'coracle ps -a' lists all containers".into(),
            Self::NoVolume { .. } => "'coracle volume ls' lists all volumes".into(),
            Self::NameInUse { name, .. } => {
                format!(
                    "remove that container ('coracle rm {name}'), rename it, or choose another name"
                )
            }
            _ => return None,
        })
    }
}

/// Advice for a container whose record is damaged; there is no other copy of the record.
fn record_hint(path: &std::path::Path) -> Option<String> {
    let id = path.parent()?.file_name()?.to_str()?;
    let is_record = path.file_name()? == "container.json" && crate::names::is_id(id);
    is_record.then(|| format!("'coracle rm {}' removes the container", &id[..12]))
}

/// Advice that follows from an error number alone.
fn io_hint(source: &io::Error, path: &std::path::Path) -> Option<String> {
    let shown = path.display();
    Some(match Errno::from_raw_os_error(source.raw_os_error()?) {
        Errno::NOSPC => format!(
            "the file system of {shown} is full or out of inodes: 'coracle prune' frees space; the \
             next pull resumes from the data fetched so far"
        ),
        Errno::DQUOT => format!(
            "your quota on the file system of {shown} is used up: 'coracle prune' frees space, \
             CORACLE_DIR names another directory"
        ),
        Errno::ROFS => {
            format!("{shown} is on a read-only file system: name another store with CORACLE_DIR")
        }
        Errno::ACCESS | Errno::PERM => format!("check the owner and the mode of {shown}"),
        Errno::IO => "the disk or the file server reports an I/O error".into(),
        Errno::STALE => {
            "the file server no longer knows this directory; mount the file system again".into()
        }
        _ => return None,
    })
}
