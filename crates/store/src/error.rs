//! What can go wrong in a store, one variant per step, each with its path and the kernel's answer.
//!
//! A system call that failed is [`Error::Io`] with the [`Step`] that was being done; everything else is a
//! statement about the store itself. [`Error::hint`] says what a person can do about it.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What was being done to a path when the kernel refused.
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
    /// Renaming, the step that makes something visible.
    Rename,
    /// Making a symbolic link.
    Link,
    /// Reading a symbolic link.
    ReadLink,
    /// Deleting.
    Remove,
    /// Reading a directory.
    List,
    /// Asking for an entry's kind, owner and size.
    Stat,
    /// Taking a lock.
    Lock,
    /// Asking the kernel for random bytes.
    Random,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::MakeDirectory => "make the directory",
            Self::Mode => "set the mode of",
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "write to the disk",
            Self::Rename => "rename into place",
            Self::Link => "make the link",
            Self::ReadLink => "read the link",
            Self::Remove => "delete",
            Self::List => "list",
            Self::Stat => "look at",
            Self::Lock => "lock",
            Self::Random => "get random bytes for",
        })
    }
}

/// Everything that this crate reports.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was being done.
        step: Step,
        /// To which path.
        path: PathBuf,
        /// The kernel's answer.
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
        /// One name in it that no store has.
        found: String,
    },
    /// A later version of this program made the store.
    #[error("the store {} has format {found}; this program knows format {known}", path.display())]
    TooNew {
        /// The store.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that is understood here.
        known: u32,
    },
    /// Others could replace what is in the store.
    #[error("{} {why}, so others could put programs into it", path.display())]
    Untrusted {
        /// The directory in question.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The store can be read but not changed.
    #[error("the store {} is read-only: {reason}", path.display())]
    ReadOnly {
        /// The store.
        path: PathBuf,
        /// Why it is.
        reason: String,
    },
    /// The file system lacks something without which no root tree can be kept.
    #[error("the file system ({file_system}) at {} cannot hold a store: it has no {lacking}", path.display())]
    Unfit {
        /// The store.
        path: PathBuf,
        /// The kind of file system.
        file_system: String,
        /// What it lacks.
        lacking: String,
    },
    /// No way of locking works there.
    #[error("no kind of lock works at {}: {tried}", path.display())]
    NoLocks {
        /// The store.
        path: PathBuf,
        /// Each kind and how it failed.
        tried: String,
    },
    /// Another process held a lock for longer than was to be waited.
    #[error("{what} is still held by {holder} after {seconds} s")]
    Busy {
        /// What is locked, in words.
        what: String,
        /// Who holds it, as far as that can be known.
        holder: String,
        /// How long this process waited.
        seconds: u64,
        /// The lock's file.
        path: PathBuf,
    },
    /// The caller's wait callback asked to stop.
    #[error("stopped while waiting for {what}")]
    Stopped {
        /// What is locked, in words.
        what: String,
    },
    /// This process would wait for itself.
    #[error(
        "{what} needs the store for itself, but this process still uses {count} of its entries"
    )]
    OwnLease {
        /// What was to be done.
        what: &'static str,
        /// How many leases are alive.
        count: usize,
    },
    /// What arrived is not what was announced.
    #[error("{expected} was expected but {found} arrived")]
    WrongDigest {
        /// The digest that was asked for.
        expected: String,
        /// The digest of what came.
        found: String,
    },
    /// More or fewer bytes than announced.
    #[error("{digest} has {expected} bytes but {found} arrived")]
    WrongSize {
        /// The blob.
        digest: String,
        /// The announced size.
        expected: u64,
        /// The bytes that came.
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
        /// How it shows.
        why: String,
    },
    /// A file of the store is larger than it may be.
    #[error("{} has {size} bytes, more than the {limit} that are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// A file of the store is not the JSON that it should be.
    #[error("{} is damaged", path.display())]
    BadJson {
        /// The file.
        path: PathBuf,
        /// The parser's complaint.
        #[source]
        source: serde_json::Error,
    },
    /// The list of images is missing or damaged, so nobody knows what is in use.
    #[error("the list of images, {}, is damaged: {why}", path.display())]
    BadIndex {
        /// The file.
        path: PathBuf,
        /// How it shows.
        why: String,
    },
    /// A blob that should be a manifest, index or configuration is none.
    #[error("{digest} is not a usable {what}: {why}")]
    BadDocument {
        /// The blob.
        digest: String,
        /// What it should be.
        what: &'static str,
        /// The parser's complaint.
        why: String,
    },
    /// A value of the caller's cannot be written as JSON.
    #[error("cannot write {} as JSON", path.display())]
    Encode {
        /// The file it was meant for.
        path: PathBuf,
        /// The serialiser's complaint.
        #[source]
        source: serde_json::Error,
    },
    /// No such image.
    #[error("no image {name:?} is in the store")]
    NoImage {
        /// As asked for.
        name: String,
    },
    /// Several images answer to this name.
    #[error("{name:?} means several images: {}", candidates.join(", "))]
    AmbiguousImage {
        /// As asked for.
        name: String,
        /// What it could mean.
        candidates: Vec<String>,
    },
    /// The image has other names or containers.
    #[error("image {name} is in use: {why}")]
    ImageInUse {
        /// The image.
        name: String,
        /// By what.
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
        /// As asked for.
        name: String,
    },
    /// Several containers have ids that begin like this.
    #[error("{name:?} means several containers: {}", candidates.join(", "))]
    AmbiguousContainer {
        /// As asked for.
        name: String,
        /// The ids.
        candidates: Vec<String>,
    },
    /// The name belongs to another container.
    #[error("the name {name:?} is in use by container {id}")]
    NameInUse {
        /// The name.
        name: String,
        /// The container that has it.
        id: String,
    },
    /// Not a name that a container or volume may have.
    #[error("{name:?} is not a usable name: {why}")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No such volume.
    #[error("no volume {name:?}")]
    NoVolume {
        /// As asked for.
        name: String,
    },
    /// A caller's removal function failed.
    #[error("cannot remove {}", path.display())]
    Removal {
        /// What was to be removed.
        path: PathBuf,
        /// Why it could not be.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// A failed system call.
    pub(crate) fn io(step: Step, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { step, path: path.into(), source: source.into() }
    }

    /// The kernel's number, when a system call failed.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Whether the disk or the user's share of it is full.
    pub fn is_full(&self) -> bool {
        self.errno()
            .map(Errno::from_raw_os_error)
            .is_some_and(|errno| [Errno::NOSPC, Errno::DQUOT].contains(&errno))
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Io { source, path, .. } => return io_hint(source, path),
            Self::NoStore { .. } => {
                "pull an image to make one, or name another with --store or CORACLE_DIR".into()
            }
            Self::NotAStore { .. } => "name an empty or a new directory".into(),
            Self::TooNew { .. } => "use the newer coracle that made it, or another store".into(),
            Self::Untrusted { path, .. } => {
                format!("chmod go-w {}, or use another directory", path.display())
            }
            Self::ReadOnly { .. } => {
                "name a store of your own with CORACLE_DIR and stack this one beneath it with --store-ro"
                    .into()
            }
            Self::Unfit { .. } => {
                "put the store on a local disk, /tmp or $XDG_RUNTIME_DIR with CORACLE_DIR".into()
            }
            Self::NoLocks { .. } => {
                "ask for the file system to be mounted with locks (Lustre: -o flock), or put the store elsewhere with CORACLE_DIR"
                    .into()
            }
            Self::Busy { path, .. } => format!(
                "wait for it to end; if it runs on another machine that is gone, use \
                 'coracle stop --host-is-gone HOST CONTAINER', or remove {}",
                path.display()
            ),
            Self::WrongDigest { .. } | Self::WrongSize { .. } => {
                "the source sent something else than it announced; pull again".into()
            }
            Self::BadBlob { .. } | Self::BadDocument { .. } => {
                "coracle verify --repair drops damaged data; the next pull fetches it again".into()
            }
            Self::BadJson { path, .. } => return record_hint(path),
            Self::BadIndex { path, .. } => format!(
                "put {} back from a copy, or let coracle verify --repair make it anew from the blobs (images lose their names; pulling gives them back)",
                path.display()
            ),
            Self::NoBlob { .. } => "pull the image again".into(),
            Self::AmbiguousImage { .. } | Self::AmbiguousContainer { .. } => {
                "give more of the id, or the full name".into()
            }
            Self::ImageInUse { .. } => {
                "remove its containers (coracle rm) or its other names first, or use coracle rmi -f"
                    .into()
            }
            Self::NoImage { .. } => "coracle images lists what is there; coracle pull fetches".into(),
            Self::NoContainer { .. } => "coracle ps -a lists all containers".into(),
            Self::NoVolume { .. } => "coracle volume ls lists all volumes".into(),
            Self::NameInUse { name, .. } => {
                format!("remove or rename it (coracle rm {name}), or choose another name")
            }
            _ => return None,
        })
    }
}

/// What to do about a container whose record is damaged; there is no other copy of it.
fn record_hint(path: &std::path::Path) -> Option<String> {
    let id = path.parent()?.file_name()?.to_str()?;
    let is_record = path.file_name()? == "container.json" && crate::names::is_id(id);
    is_record.then(|| format!("coracle rm {} removes the container", &id[..12]))
}

/// The advice that follows from an error number alone.
fn io_hint(source: &io::Error, path: &std::path::Path) -> Option<String> {
    let shown = path.display();
    Some(match Errno::from_raw_os_error(source.raw_os_error()?) {
        Errno::NOSPC => format!(
            "the disk that holds {shown} is full (or out of inodes): coracle prune frees space; what was fetched so far is kept and resumed"
        ),
        Errno::DQUOT => format!(
            "your quota on the disk that holds {shown} is used up: coracle prune frees space, CORACLE_DIR names another place"
        ),
        Errno::ROFS => {
            format!("{shown} is on a read-only file system: name another store with CORACLE_DIR")
        }
        Errno::ACCESS | Errno::PERM => format!("check the owner and the mode of {shown}"),
        Errno::IO => "the disk or the file server reports a fault".into(),
        Errno::STALE => "the file server has lost this directory; mount it again".into(),
        _ => return None,
    })
}
