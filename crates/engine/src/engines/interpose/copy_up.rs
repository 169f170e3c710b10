//! Files that a container shares with its image, and the copy that is made before the first change.
//!
//! The regular files of a container's tree are hard links of the image's. [`Images`] knows which: a sorted list of inodes. [`copy_up`] puts a
//! copy in the place of such a file, with its contents, mode, times and attributes: made in a directory of the container's own on the same
//! file system, then renamed over the shared file, so that the name is never missing and nobody sees half a copy.
//!
//! What stays as with overlay: a descriptor opened for reading before the copy shows the image's file further on, and of a file with several
//! names inside the image only the one that is changed gets the copy.

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, Timestamps};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use view::calls::support::COPY;

/// Bytes of an entry: inode (8), names inside the image (4), little-endian.
const ENTRY: usize = 12;

/// The inodes of a tree that are the image's.
#[derive(Debug, Clone, Default)]
pub struct Images {
    entries: Vec<u8>,
}

impl Images {
    /// Reads the list; none there is an empty one.
    pub fn read(path: &Path) -> std::io::Result<Self> {
        match std::fs::read(path) {
            Ok(entries) => Ok(Self { entries }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Whether nothing is shared.
    pub fn is_empty(&self) -> bool {
        self.entries.len() < ENTRY
    }

    fn at(&self, index: usize) -> Option<(u64, u32)> {
        let entry = self.entries.get(index * ENTRY..(index + 1) * ENTRY)?;
        let links = entry.get(8..).and_then(<[u8]>::first_chunk)?;
        Some((u64::from_le_bytes(*entry.first_chunk()?), u32::from_le_bytes(*links)))
    }

    /// How many names an inode has inside the image, if it is the image's.
    pub fn links(&self, inode: u64) -> Option<u32> {
        let (mut low, mut high) = (0, self.entries.len() / ENTRY);
        while low < high {
            let middle = low + (high - low) / 2;
            let (here, links) = self.at(middle)?;
            match here.cmp(&inode) {
                std::cmp::Ordering::Equal => return Some(links),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }
}

/// Where copies are made.
#[derive(Debug, Clone)]
pub struct CopyDir {
    /// A directory of the container's on the file system of its tree.
    directory: PathBuf,
}

/// How names of copies begin that are being made.
pub(super) const UNFINISHED: &str = ".copy-of-";

static COUNTER: AtomicU64 = AtomicU64::new(0);

impl CopyDir {
    /// In a directory that exists.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn name(&self) -> PathBuf {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        self.directory.join(format!("{UNFINISHED}{}-{count}", std::process::id()))
    }

    /// Puts a copy in the place of a regular file. `path` is absolute. Somebody else's copy meanwhile is as good.
    ///
    /// May take as long as the file is large; works from any thread.
    pub fn copy_up(&self, path: &Path) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let source = rustix::fs::open(path, flags, Mode::empty())?;
        let (name, copy) = self.begin()?;
        let result = fill(&source, &copy).and_then(|()| self.replace(&source, &name, path));
        // The copy, where it was not taken.
        let _ = rustix::fs::unlink(&name);
        result
    }

    /// A file for a copy.
    fn begin(&self) -> Result<(PathBuf, OwnedFd), Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let name = self.name();
            match rustix::fs::open(&name, flags, Mode::from_raw_mode(0o600)) {
                // A process with our number was killed over its copy.
                Err(Errno::EXIST) => {}
                result => return result.map(|copy| (name, copy)),
            }
        }
    }

    fn replace(&self, source: &OwnedFd, copy: &Path, path: &Path) -> Result<(), Errno> {
        let _lock = self.lock()?;
        let parent = path.parent().ok_or(Errno::NOENT)?;
        let before = rustix::fs::stat(parent)?;
        if !is_same(source, path)? {
            return Ok(());
        }
        // Not an exchange: whoever has the shared file open is to see that its name is gone, and not where copies are made.
        match rustix::fs::rename(copy, path) {
            Err(Errno::NOENT) => return Ok(()),
            result => result?,
        }
        // The directory's times are the guest's: for it, nothing happened here.
        let _ = rustix::fs::utimensat(CWD, parent, &times_of(&before), AtFlags::empty());
        Ok(())
    }

    /// One replacement at a time in all processes of the container.
    fn lock(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let name = self.directory.join(".copy-turn");
        let file = rustix::fs::open(&name, flags, Mode::from_raw_mode(0o600))?;
        loop {
            match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(file),
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn is_same(source: &OwnedFd, path: &Path) -> Result<bool, Errno> {
    let source = rustix::fs::fstat(source)?;
    match rustix::fs::lstat(path) {
        Ok(there) => Ok((there.st_dev, there.st_ino) == (source.st_dev, source.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Everything of a file but its name.
fn fill(source: &OwnedFd, copy: &OwnedFd) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(source)?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    sys::fs::copy::contents(source, copy)?;
    for name in sys::fs::xattr::list(source)? {
        let Some(value) = sys::fs::xattr::get(source, &name)? else { continue };
        match sys::fs::xattr::set(copy, &name, &value) {
            // Labels of the host's policy are given by the host.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::ACCESS) if !name.starts_with(b"user.") => {}
            result => result?,
        }
    }
    // By this the view knows the copy of a file that it still has open; where there are no attributes, by its size.
    let _ = sys::fs::xattr::set(copy, COPY.to_bytes(), stat.st_ino.to_string().as_bytes());
    // Another group of the caller's; else the copy has the group that new files get here.
    let _ = rustix::fs::fchown(copy, None, Some(rustix::fs::Gid::from_raw(stat.st_gid)));
    rustix::fs::fchmod(copy, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    rustix::fs::futimens(copy, &times_of(&stat))
}

/// When a file was read and written.
fn times_of(stat: &rustix::fs::Stat) -> Timestamps {
    let time =
        |tv_sec, nanoseconds: u64| rustix::fs::Timespec { tv_sec, tv_nsec: nanoseconds as _ };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as _),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as _),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn the_list_is_searched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("inodes");
        assert!(Images::read(&path).unwrap().is_empty());
        let inodes = [3_u64, 4, 100, 1 << 40];
        let mut bytes = Vec::new();
        for (inode, links) in inodes.into_iter().zip(1_u32..) {
            bytes.extend(inode.to_le_bytes());
            bytes.extend(links.to_le_bytes());
        }
        std::fs::write(&path, bytes).unwrap();
        let images = Images::read(&path).unwrap();
        for (inode, links) in inodes.into_iter().zip(1..) {
            assert_eq!(images.links(inode), Some(links));
            assert_eq!(images.links(inode + 10), None);
        }
        assert_eq!(images.links(0), None);
        assert_eq!(images.links(u64::MAX), None);
        assert_eq!(Images::default().links(1), None);
    }

    #[test]
    fn a_copy_takes_the_place_and_the_image_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["image", "ROOT", "run"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let (image, path) = (at("image/file"), at("ROOT/file"));
        std::fs::write(&image, "shared").unwrap();
        std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o1754)).unwrap();
        let attribute = sys::fs::xattr::set(
            std::fs::File::options().write(true).open(&image).unwrap(),
            b"user.coracle.owner",
            b"0:0:754:f:0:0",
        );
        std::fs::hard_link(&image, &path).unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(123_456_789_123);
        std::fs::File::open(&image).unwrap().set_modified(long_ago).unwrap();
        std::fs::File::open(at("ROOT")).unwrap().set_modified(long_ago).unwrap();
        let copy_dir = CopyDir::new(at("run"));
        copy_dir.copy_up(&path).unwrap();
        let (old, new) = (std::fs::metadata(&image).unwrap(), std::fs::metadata(&path).unwrap());
        assert_ne!(old.ino(), new.ino());
        assert_eq!((old.nlink(), new.nlink()), (1, 1));
        assert_eq!(new.mode(), old.mode());
        assert_eq!(new.modified().unwrap(), long_ago);
        assert_eq!(std::fs::metadata(at("ROOT")).unwrap().modified().unwrap(), long_ago);
        assert_eq!(std::fs::read(&path).unwrap(), b"shared");
        if attribute.is_ok() {
            let copy = std::fs::File::open(&path).unwrap();
            let value = sys::fs::xattr::get(&copy, b"user.coracle.owner").unwrap();
            assert_eq!(value.as_deref(), Some(&b"0:0:754:f:0:0"[..]));
        }
        let left: Vec<_> = std::fs::read_dir(at("run"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name != ".copy-turn")
            .collect();
        assert_eq!(left, Vec::<std::ffi::OsString>::new());
        std::os::unix::fs::symlink("file", at("ROOT/link")).unwrap();
        assert_eq!(copy_dir.copy_up(&at("ROOT/link")), Err(Errno::LOOP));
        assert_eq!(copy_dir.copy_up(&at("ROOT/none")), Err(Errno::NOENT));
    }

    #[test]
    fn several_at_once_make_one_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        std::fs::hard_link(&path, dir.path().join("image")).unwrap();
        let copy_dir = CopyDir::new(dir.path().to_owned());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| copy_dir.copy_up(&path).unwrap());
            }
        });
        assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 20]);
        assert_eq!(std::fs::metadata(dir.path().join("image")).unwrap().nlink(), 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
