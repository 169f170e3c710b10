//! Opens and makes a store.
//!
//! Opening costs few system calls, because every `run` does it: it opens the directory, checks its
//! owner, reads `store.json` with the probed abilities of the file system, and checks write
//! permission. Missing directories are made when something is put into them.
//!
//! A store is refused if other users could put programs into it: if everybody may write to it, or
//! (checked when it is made) may replace it. A store that belongs to another user is opened for
//! reading only, unless its owner shares it with a group of this process. The superuser does not
//! write into a user's store, because that user could not change the new files.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::abilities::{self, Abilities};
use crate::error::{Error, Result, Step};
use crate::lock::LockMethod;
use crate::root::{Root, encode};
use crate::{Inner, Options, Store};

/// The format that this program writes.
const FORMAT: u32 = 1;
const FILE: &str = "store.json";
/// Number of file systems and kernels whose abilities are kept.
const REMEMBERED: usize = 32;
/// The names at the top of a store, also of one that was only half made.
const NAMES: [&str; 11] = [
    "containers",
    "events",
    "layers",
    "locks",
    "networks",
    "oci",
    "store.json",
    "tmp",
    "trash",
    "trees",
    "volumes",
];

#[derive(Debug, Default, Serialize, Deserialize)]
struct StoreFile {
    version: u32,
    /// The kind of lock that all hosts use; there once the store was opened on a network file
    /// system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locks: Option<LockMethod>,
    /// Probed abilities, by file system and kernel.
    #[serde(default)]
    abilities: BTreeMap<String, Abilities>,
    /// Fields that later programs of the same format add.
    #[serde(flatten)]
    other: serde_json::Map<String, serde_json::Value>,
}

pub(crate) fn open(path: &Path, options: Options) -> Result<Store> {
    if !path.is_absolute() {
        return Err(Error::NotAbsolute { path: path.to_owned() });
    }
    let root = match Root::open(path)? {
        Some(root) => root,
        None if options.create && !options.read_only => make_directory(path)?,
        None => return Err(Error::NoStore { path: path.to_owned() }),
    };
    let root = Arc::new(root);
    let mut read_only = why_read_only(&root, options.read_only)?;
    let file = read_file(&root)?;
    if file.is_none() {
        check_is_store(&root, options.create && read_only.is_none())?;
    }
    let is_new = file.is_none();
    let mut file = file.unwrap_or(StoreFile { version: FORMAT, ..StoreFile::default() });
    if file.version > FORMAT {
        let path = path.to_owned();
        return Err(Error::TooNew { path, found: file.version, known: FORMAT });
    }
    let abilities = match options.abilities {
        Some(abilities) => abilities,
        None => known_abilities(&root, &mut file, is_new, &mut read_only)?,
    };
    if abilities.network {
        root.set_network();
    }
    if read_only.is_none() {
        if let Some(lacking) = abilities.lacking() {
            let file_system = abilities.file_system.clone();
            let path = path.to_owned();
            return Err(Error::Unfit { path, file_system, lacking: lacking.into() });
        }
        if is_new {
            make_layout(&root)?;
            write_file(&root, &file)?;
        }
    }
    let below = options.below.iter().map(|path| open_below(path)).collect::<Result<_>>()?;
    let store = Store {
        inner: Arc::new(Inner {
            root,
            abilities,
            read_only,
            below,
            durability: options.durability,
            wait: options.wait,
            lease: Mutex::default(),
            unsynced: Mutex::default(),
            swept: std::sync::atomic::AtomicBool::default(),
        }),
    };
    let root = &store.inner.root;
    // Elsewhere it is there already.
    let lacks_index = is_new && store.inner.read_only.is_none() && root.on_network();
    if lacks_index && has_no_blobs(root)? {
        crate::index::begin(&store, true)?;
    }
    Ok(store)
}

fn open_below(path: &Path) -> Result<Store> {
    open(path, Options { read_only: true, ..Options::default() })
}

/// Makes the store's directory and those above it, for this user alone.
fn make_directory(path: &Path) -> Result<Root> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let is_there = |above: &&Path| above.exists();
    let first = path.ancestors().skip(1).find(is_there).map(Path::to_owned);
    builder.create(path).map_err(|source| Error::io(Step::MakeDirectory, path, source))?;
    // Files in the store are on the disk only if the directories above it are.
    let new = |above: &&Path| first.as_ref().is_some_and(|first| above.starts_with(first));
    for above in path.ancestors().skip(1).take_while(new) {
        let Some(above) = Root::open(above)? else { continue };
        match above.sync_dir(".") {
            // The permissions may allow making a directory but not reading its parent.
            Err(error) if error.errno() == Some(Errno::ACCESS.raw_os_error()) => {}
            other => other?,
        }
    }
    if let Some(parent) = path.parent()
        && abilities::replaceable(parent)?
    {
        let why = "is writable for everybody and not sticky";
        return Err(Error::Untrusted { path: parent.to_owned(), why });
    }
    Root::open(path)?.ok_or_else(|| Error::NoStore { path: path.to_owned() })
}

/// The reason why the store is read-only, if it is; an error if its contents cannot be trusted.
fn why_read_only(root: &Root, asked: bool) -> Result<Option<String>> {
    let stat = rustix::fs::fstat(root).map_err(|errno| Error::io(Step::Stat, &root.path, errno))?;
    if stat.st_mode & 0o002 != 0 {
        let why = "is writable for everybody";
        return Err(Error::Untrusted { path: root.path.clone(), why });
    }
    if asked {
        return Ok(Some("it was opened for reading only".into()));
    }
    let me = rustix::process::geteuid().as_raw();
    let group_shared = stat.st_mode & 0o020 != 0 && me != 0;
    if stat.st_uid != me && !group_shared {
        return Ok(Some(format!("it belongs to user id {}, and this is {me}", stat.st_uid)));
    }
    match rustix::fs::accessat(root.as_fd(), ".", Access::WRITE_OK, AtFlags::empty()) {
        Ok(()) => Ok(None),
        Err(Errno::ROFS) => Ok(Some("the file system is mounted read-only".into())),
        Err(Errno::ACCESS | Errno::PERM) => Ok(Some("you may not write to it".into())),
        Err(errno) => Err(Error::io(Step::Stat, &root.path, errno)),
    }
}

fn read_file(root: &Root) -> Result<Option<StoreFile>> {
    match root.read_json(FILE) {
        // A power failure right after the store was made can leave the file empty; only probe
        // results are lost.
        Err(Error::BadJson { source, .. }) if source.is_eof() => Ok(None),
        other => other,
    }
}

fn write_file(root: &Root, file: &StoreFile) -> Result<()> {
    let bytes = encode(file, || root.join(FILE))?;
    root.replace(FILE, &bytes, true)
}

/// Abilities from an earlier probe on this file system with this kernel, or from a new probe.
fn known_abilities(
    root: &Arc<Root>,
    file: &mut StoreFile,
    is_new: bool,
    read_only: &mut Option<String>,
) -> Result<Abilities> {
    let key = abilities::key(root)?;
    if let Some(known) = file.abilities.get(&key) {
        return agreed(root, known.clone(), file.locks);
    }
    if read_only.is_some() {
        return Abilities::assume(root);
    }
    let found = match Abilities::probe(root) {
        Err(Error::Io { source, .. })
            if source.raw_os_error() == Some(Errno::ROFS.raw_os_error()) =>
        {
            *read_only = Some("the file system is mounted read-only".into());
            return Abilities::assume(root);
        }
        other => other?,
    };
    while file.abilities.len() >= REMEMBERED {
        file.abilities.pop_first();
    }
    file.abilities.insert(key, found.clone());
    if found.network && file.locks.is_none() {
        file.locks = Some(found.locks);
    }
    if !is_new {
        write_file(root, file)?;
    }
    agreed(root, found, file.locks)
}

/// The abilities with the kind of lock that the hosts have agreed on. It does not follow from this
/// host's mount: another one may be mounted with other options.
fn agreed(root: &Root, found: Abilities, locks: Option<LockMethod>) -> Result<Abilities> {
    match locks {
        Some(LockMethod::Symlink) => Ok(Abilities { locks: LockMethod::Symlink, ..found }),
        Some(locks) if found.network => {
            if !sys::carried::reaches_hosts(root.as_fd()) {
                return Err(Error::OtherLocks { path: root.path.clone() });
            }
            Ok(Abilities { locks, ..found })
        }
        _ => Ok(found),
    }
}

/// Accepts a directory without `store.json` if it is empty, a store that was only half made, or a
/// plain OCI layout in the right place (to be read).
fn check_is_store(root: &Root, create: bool) -> Result<()> {
    let names = root.list(".")?;
    // A killed writer leaves a temporary sibling of the file that it was to replace.
    let foreign = names
        .iter()
        .map(|(name, _)| name)
        .find(|name| !NAMES.contains(&name.as_str()) && !name.starts_with(".store.json."));
    match foreign {
        Some(name) => Err(Error::NotAStore { path: root.path.clone(), found: name.clone() }),
        None if create || root.exists("oci/oci-layout")? => Ok(()),
        None => Err(Error::NoStore { path: root.path.clone() }),
    }
}

/// Makes the directories and an empty OCI layout. Two processes may do so at once.
fn make_layout(root: &Root) -> Result<()> {
    for name in
        ["oci/blobs/sha256", "containers", "layers", "locks", "tmp", "trash", "trees", "volumes"]
    {
        root.make_dir(name)?;
    }
    for (name, content) in [
        ("oci/oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#),
        ("oci/index.json", crate::index::EMPTY),
    ] {
        let is_index = name.ends_with("index.json");
        // Another host that saw the file before its content would trust that for a while: there it
        // is made in one step, under its lock.
        if is_index && (root.on_network() || !has_no_blobs(root)?) {
            continue;
        }
        match root.write_new(name, content.as_bytes(), is_index) {
            Err(Error::Io { source, .. })
                if source.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => {}
            other => other?,
        }
    }
    Ok(())
}

/// If there are blobs, a missing index is damage, which is told where it is read.
fn has_no_blobs(root: &Root) -> Result<bool> {
    Ok(root.list("oci/blobs/sha256")?.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_use_one_kind_of_lock() {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap().unwrap());
        let local = Abilities::probe(&root).unwrap();
        let network = Abilities { network: true, ..local.clone() };
        let method = |root: &Root, found: &Abilities, locks| {
            agreed(root, found.clone(), locks).map(|abilities| abilities.locks)
        };
        let symlink = Some(LockMethod::Symlink);
        assert_eq!(method(&root, &network, symlink).unwrap(), LockMethod::Symlink);
        // The server's own processes follow its clients.
        assert_eq!(method(&root, &local, symlink).unwrap(), LockMethod::Symlink);
        assert_eq!(method(&root, &local, Some(LockMethod::Ofd)).unwrap(), local.locks);
        if sys::carried::reaches_hosts(root.as_fd()) {
            assert_eq!(method(&root, &network, Some(LockMethod::Ofd)).unwrap(), LockMethod::Ofd);
        }
        // A file system of which it is not known that other hosts see a lock.
        let unknown = Root::open(Path::new("/proc")).unwrap().unwrap();
        let refused = method(&unknown, &network, Some(LockMethod::Flock)).unwrap_err();
        assert!(matches!(&refused, Error::OtherLocks { .. }), "{refused}");
        assert!(refused.hint().is_some());
    }
}
