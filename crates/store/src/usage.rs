//! Disk usage of the store, for `system df`.
//!
//! Sizes are those on the disk (blocks); a file with several names counts once. Layers that several
//! images share are in the totals once.

use std::collections::{HashMap, HashSet};
use std::str::FromStr as _;

use oci::Digest;
use rustix::fs::{FileType, Mode, OFlags};
use sys::fs::DirStack;

use crate::Store;
use crate::blobs::INGEST;
use crate::error::{Error, Result, Step};
use crate::root::Root;
use crate::trees::{Cached, Kind};

/// A number of entries and their size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// How many there are.
    pub count: u64,
    /// Bytes on the disk, all together.
    pub bytes: u64,
    /// Number of entries that nothing uses.
    pub unused_count: u64,
    /// Bytes that removing the unused entries would free.
    pub reclaimable: u64,
}

/// Disk usage of the parts of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Images by id, with their blobs. Unused: those without containers.
    pub images: Amount,
    /// Blobs in the layout. Unused: those that neither an image nor a container refers to.
    pub blobs: Amount,
    /// Unpacked layers, likewise.
    pub layers: Amount,
    /// Flattened trees, likewise.
    pub trees: Amount,
    /// Containers, with the files that are theirs alone. This crate does not know which of them
    /// run.
    pub containers: Amount,
    /// Volumes in the store: of others, the contents are elsewhere. This crate does not know which
    /// of them are in use.
    pub volumes: Amount,
    /// Partial blobs, leftovers and trash.
    pub temporary: Amount,
}

impl Store {
    /// Adds up the disk usage of this store (not of those beneath).
    pub fn usage(&self) -> Result<Usage> {
        let root = &self.inner.root;
        let marked = crate::gc::mark(self)?.digests;
        let mut usage = Usage { images: self.image_usage()?, ..Usage::default() };
        for (digest, size) in self.blobs().list()? {
            usage.blobs.add(size, !marked.contains(&digest));
        }
        for kind in Kind::ALL {
            let amount = if kind == Kind::Layer { &mut usage.layers } else { &mut usage.trees };
            for digest in (crate::Trees { store: self, kind }).list()? {
                amount.add(
                    tree_size(root, &kind.rel(&digest), Shared::Counted)?,
                    !marked.contains(&digest),
                );
            }
        }
        for container in self.containers().list()? {
            usage.containers.add(self.container_size(container.id())?, false);
        }
        for volume in self.volumes().list()?.iter().filter(|volume| volume.is_local()) {
            usage.volumes.add(
                tree_size(root, &format!("volumes/{}", volume.name()), Shared::Counted)?,
                false,
            );
        }
        for directory in ["tmp", INGEST, crate::trees::BUILD, "trash"] {
            for (name, _) in root.list(directory)? {
                if directory != "tmp" || (name != "ingest" && name != "build") {
                    usage.temporary.add(
                        tree_size(root, &format!("{directory}/{name}"), Shared::Excluded)?,
                        true,
                    );
                }
            }
        }
        Ok(usage)
    }

    /// Images by id, and those that no container uses.
    fn image_usage(&self) -> Result<Amount> {
        let mut amount = Amount::default();
        let mut seen = HashSet::new();
        let mut used_digests = HashSet::new();
        for config in self.containers().map(crate::ContainerDir::read_any)? {
            let Some(config) = config? else { continue };
            let mut strings = Vec::new();
            let image = config.get("image").unwrap_or(&serde_json::Value::Null);
            crate::containers::collect_strings(image, &mut strings);
            used_digests.extend(strings.iter().filter_map(|text| Digest::from_str(text).ok()));
        }
        let mut blobs: HashSet<Digest> = HashSet::new();
        let mut used_blobs: HashSet<Digest> = HashSet::new();
        for image in self.images().list()?.iter().filter(|image| image.is_own()) {
            let contents = crate::gc::contents(self, image);
            let id = image.id().ok();
            let used = used_digests.contains(image.digest())
                || id.as_ref().is_some_and(|id| used_digests.contains(id));
            if seen.insert(id.unwrap_or_else(|| image.digest().clone())) {
                amount.count += 1;
                amount.unused_count += u64::from(!used);
            }
            if used {
                used_blobs.extend(contents.iter().cloned());
            }
            blobs.extend(contents);
        }
        for digest in &blobs {
            let stat = self.inner.root.stat(&crate::blobs::rel(digest))?;
            let size = stat.map_or(0, |stat| stat.st_size as u64);
            amount.bytes += size;
            amount.reclaimable += if used_blobs.contains(digest) { 0 } else { size };
        }
        Ok(amount)
    }

    /// Disk usage of a container in bytes: hard links to files of the image do not count.
    pub fn container_size(&self, id: &str) -> Result<u64> {
        tree_size(&self.inner.root, &format!("containers/{id}"), Shared::Excluded)
    }

    /// Disk usage of a volume in bytes.
    pub fn volume_size(&self, name: &str) -> Result<u64> {
        crate::names::check(name)?;
        tree_size(&self.inner.root, &format!("volumes/{name}"), Shared::Counted)
    }
}

impl Cached {
    /// Disk usage of the tree in bytes.
    pub fn size(&self) -> Result<u64> {
        let root = Root::open(self.path())?;
        root.map_or(Ok(0), |root| tree_size(&root, "tree", Shared::Counted))
    }
}

impl Amount {
    fn add(&mut self, bytes: u64, unused: bool) {
        self.count += 1;
        self.bytes += bytes;
        if unused {
            self.unused_count += 1;
            self.reclaimable += bytes;
        }
    }
}

/// How to count files that also have names outside of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shared {
    /// They are counted.
    Counted,
    /// They are left out: removing the tree gives nothing back.
    Excluded,
}

/// Files with several names, by device and inode: names met so far, link count, and size of each in
/// bytes.
type Linked = HashMap<(u64, u64), (u64, u64, u64)>;

/// Disk usage of a file or tree in bytes. Unreadable directories count with their own blocks only,
/// and files that vanish meanwhile with none.
pub(crate) fn tree_size(root: &Root, rel: &str, shared: Shared) -> Result<u64> {
    let Some(stat) = root.stat(rel)? else { return Ok(0) };
    let mut bytes = stat.st_blocks as u64 * 512;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Ok(bytes);
    }
    let Some(top) = root.open_file(rel, OFlags::DIRECTORY | OFlags::NOFOLLOW)? else {
        return Ok(0);
    };
    let fail = |error: sys::fs::Error| {
        Error::io(Step::List, root.join(rel).join(&error.path), error.errno)
    };
    let mut stack = DirStack::new(top.into()).map_err(fail)?;
    let mut linked = Linked::new();
    let mut pending = vec![add_directory(&stack, &mut bytes, &mut linked)];
    while let Some(directories) = pending.last_mut() {
        let Some(name) = directories.pop() else {
            pending.pop();
            stack.leave().map_err(fail)?;
            continue;
        };
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(fd) = rustix::fs::openat(stack.fd(), &name[..], flags, Mode::empty()) else {
            continue;
        };
        stack.enter_fd(&name, fd).map_err(fail)?;
        pending.push(add_directory(&stack, &mut bytes, &mut linked));
    }
    let own = |(met, names, _): &&(u64, u64, u64)| shared == Shared::Counted || met >= names;
    Ok(bytes + linked.values().filter(own).map(|(_, _, room)| room).sum::<u64>())
}

/// Adds the entries of the current directory and returns the names of the directories among them.
fn add_directory(stack: &DirStack, bytes: &mut u64, linked: &mut Linked) -> Vec<Vec<u8>> {
    let mut directories = Vec::new();
    for entry in sys::fs::read_dir(stack.fd()).unwrap_or_default() {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        let Ok(stat) = rustix::fs::statat(stack.fd(), &entry.name[..], flags) else { continue };
        let is_directory = entry.kind == FileType::Directory;
        let room = stat.st_blocks as u64 * 512;
        if is_directory || stat.st_nlink == 1 {
            *bytes += room;
        } else {
            let names = stat.st_nlink;
            linked.entry((stat.st_dev, stat.st_ino)).or_insert((0, names, room)).0 += 1;
        }
        if is_directory {
            directories.push(entry.name);
        }
    }
    directories
}
