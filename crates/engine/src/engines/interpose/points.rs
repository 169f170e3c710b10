//! Resolves the targets of mounts while the table of bindings grows, and makes mount points.
//!
//! A target is resolved as a program in the container would resolve it: through what is mounted so
//! far, links included, and `..` stops at the root. A process in the container could replace
//! directories by links meanwhile. That changes only where its own names lead: nothing is ever made
//! through a link ([`sys::fs::resolve`]).

use super::kernel::HostKernel;
use super::layers::Mapped;
use super::world::{Bound, is_at_or_below};
use hostfs::Files;
use linux_raw_sys::general::{AT_SYMLINK_NOFOLLOW, S_IFREG, statx_timestamp, timespec};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use sys::fs::resolve;
use view::Dir;
use view::guest::Purpose;
use view::world::Kind;

/// What a guest path means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Absolute, without links.
    pub(super) guest: Vec<u8>,
    /// Where that lies on the host.
    pub(super) host: PathBuf,
    /// What is there.
    pub(super) kind: Option<FileType>,
}

/// The mounts so far.
#[derive(Debug, Default)]
pub(super) struct Points {
    mounts: Vec<Bound>,
    /// Calls on the container's tree, where that has layers.
    tree: Option<TreeCalls>,
}

/// Calls on a tree with layers, by the paths that the view uses.
#[derive(Debug)]
pub(super) struct TreeCalls {
    pub(super) files: Files<HostKernel>,
}

impl TreeCalls {
    pub(super) fn new(layers: Rc<Mapped>) -> Self {
        let mut process = HostKernel::default();
        process.set_layers(Some(layers));
        Self { files: Files { process } }
    }

    /// Where the kernel finds a file.
    pub(super) fn real_path(&self, path: &Path) -> Result<PathBuf, Errno> {
        let mut real = view::Text::EMPTY;
        with_name(path, |path| {
            hostfs::overlay::real_path(&self.files.process, path, Purpose::Use, &mut real)
        })?;
        Ok(OsStr::from_bytes(real.as_bytes()).into())
    }

    /// The type and mode of a file.
    pub(super) fn status(&self, path: &Path) -> Result<u32, Errno> {
        let mut facts = view::identity::NO_FACTS;
        with_name(path, |path| self.files.statx(Dir::Root, path, AT_SYMLINK_NOFOLLOW, &mut facts))?;
        Ok(facts.stx_mode.into())
    }

    fn link(&self, path: &Path) -> Result<Vec<u8>, Errno> {
        let mut target = view::Text::EMPTY;
        with_name(path, |path| self.files.readlink(Dir::Root, path, &mut target))?;
        Ok(target.as_bytes().to_vec())
    }

    /// Makes a missing directory or empty file, with the directories above it. None of them gets
    /// other times.
    fn make(&self, root: &Path, path: &[u8], directory: bool) -> Result<(), Errno> {
        let mut at = root.to_path_buf();
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next() {
            let above = at.clone();
            at.push(OsStr::from_bytes(name));
            let is_directory = directory || names.peek().is_some();
            let made = self.keeping_times(&above, || {
                with_name(&at, |path| {
                    let mode = if is_directory {
                        self.files.mkdir(Dir::Root, path, DIRECTORY_MODE)?;
                        DIRECTORY_MODE
                    } else {
                        self.files.mknod(Dir::Root, path, S_IFREG | FILE_MODE)?;
                        FILE_MODE
                    };
                    // The caller's mask is not the container's.
                    self.files.chmod(Dir::Root, path, mode)
                })
            });
            match made {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn keeping_times(
        &self,
        directory: &Path,
        make: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut before = view::identity::NO_FACTS;
        with_name(directory, |path| self.files.statx(Dir::Root, path, 0, &mut before))?;
        make()?;
        let time =
            |time: statx_timestamp| timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_nsec.into() };
        let times = [time(before.stx_atime), time(before.stx_mtime)];
        with_name(directory, |path| self.files.utimens(Dir::Root, path, Some(&times), 0))
    }
}

/// Makes a call with a path.
pub(super) fn with_name<T>(
    path: &Path,
    call: impl FnOnce(&CStr) -> view::errno::Result<T>,
) -> Result<T, Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    call(&path).map_err(|errno| Errno::from_raw_os_error(errno.0.into()))
}

impl Points {
    /// With the root.
    pub(super) fn new(root: Bound) -> Self {
        Self { mounts: vec![root], tree: None }
    }

    /// The container's tree has these layers.
    pub(super) fn with_layers(self, layers: Option<Rc<Mapped>>) -> Self {
        Self { tree: layers.map(TreeCalls::new), ..self }
    }

    /// The calls by which a path of the host is reached, if that is not the kernel's way.
    fn tree_of(&self, path: &Path) -> Option<&TreeCalls> {
        let root = self.mounts.iter().find(|mount| mount.guest == b"/")?;
        self.tree.as_ref().filter(|_| path.starts_with(OsStr::from_bytes(&root.host)))
    }

    fn status(&self, path: &Path) -> Result<u32, Errno> {
        match self.tree_of(path) {
            Some(tree) => tree.status(path),
            None => rustix::fs::statat(CWD, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
                .map(|stat| stat.st_mode),
        }
    }

    fn target(&self, path: &Path) -> Result<Vec<u8>, Errno> {
        match self.tree_of(path) {
            Some(tree) => tree.link(path),
            None => Ok(rustix::fs::readlinkat(CWD, path, Vec::new())?.into_bytes()),
        }
    }

    /// Makes a symbolic link at a path of the host.
    pub(super) fn symlink(&self, to: &Path, path: &Path) -> Result<(), Errno> {
        let Some(tree) = self.tree_of(path) else { return rustix::fs::symlink(to, path) };
        let to = CString::new(to.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
        with_name(path, |path| tree.files.symlink(&to, Dir::Root, path))
    }

    /// Mounts over whatever is at and beneath its place.
    pub(super) fn add(&mut self, mount: Bound) {
        self.mounts.retain(|earlier| !is_at_or_below(&earlier.guest, &mount.guest));
        self.mounts.push(mount);
    }

    /// Everything at and beneath a path becomes read-only.
    pub(super) fn make_read_only(&mut self, guest: &[u8]) {
        for mount in &mut self.mounts {
            mount.read_only |= is_at_or_below(&mount.guest, guest);
        }
    }

    /// The root alone becomes read-only.
    pub(super) fn make_root_read_only(&mut self) {
        for mount in self.mounts.iter_mut().filter(|mount| mount.guest == b"/") {
            mount.read_only = true;
        }
    }

    /// The mounts in the order in which they were made.
    pub(super) fn finish(self) -> Vec<Bound> {
        self.mounts
    }

    /// The mount that a path without links lies in.
    pub(super) fn mount_of(&self, guest: &[u8]) -> Option<&Bound> {
        let over = self.mounts.iter().filter(|mount| is_at_or_below(guest, &mount.guest));
        over.max_by_key(|mount| mount.guest.len())
    }

    fn host_of(&self, guest: &[u8]) -> PathBuf {
        let Some(mount) = self.mount_of(guest) else { return PathBuf::from("/") };
        let skip = if mount.guest == b"/" { 0 } else { mount.guest.len() };
        let rest = &guest[skip..];
        let mut host = mount.host.clone();
        if rest.len() > 1 {
            if host == b"/" {
                host.clear();
            }
            host.extend_from_slice(rest);
        }
        PathBuf::from(OsStr::from_bytes(&host))
    }

    fn is_mount(&self, guest: &[u8]) -> bool {
        self.mounts.iter().any(|mount| mount.guest == guest)
    }

    /// Resolves a path. What is missing is taken as it is written.
    pub(super) fn find(&self, path: &Path) -> Result<Found, Errno> {
        let parts = |path: &[u8]| -> VecDeque<Vec<u8>> {
            let all = path.split(|byte| *byte == b'/');
            all.filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec).collect()
        };
        let mut pending = parts(path.as_os_str().as_bytes());
        let mut at: Vec<u8> = Vec::new();
        let mut kind = Some(FileType::Directory);
        let mut links = 0;
        while let Some(part) = pending.pop_front() {
            if part == b".." {
                at.truncate(at.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                continue;
            }
            let next = [&at[..], b"/", &part].concat();
            let host = self.host_of(&next);
            match self.status(&host) {
                Ok(mode) => kind = Some(FileType::from_raw_mode(mode)),
                Err(Errno::NOENT) => kind = None,
                Err(errno) => return Err(errno),
            }
            match kind {
                Some(FileType::Symlink) if !self.is_mount(&next) => {
                    links += 1;
                    if links > resolve::LINKS_MAX {
                        return Err(Errno::LOOP);
                    }
                    let target = self.target(&host)?;
                    if target.starts_with(b"/") {
                        at.clear();
                    }
                    for part in parts(&target).into_iter().rev() {
                        pending.push_front(part);
                    }
                    kind = Some(FileType::Directory);
                }
                Some(FileType::Directory) | None => at = next,
                Some(_) if pending.is_empty() => at = next,
                Some(_) => return Err(Errno::NOTDIR),
            }
        }
        if at.is_empty() {
            at.push(b'/');
        }
        let host = self.host_of(&at);
        Ok(Found { guest: at, host, kind })
    }

    /// Makes a missing directory or empty file, with the directories above it. In the container's
    /// own tree everything is made step by step from its top; elsewhere (a volume) by its host
    /// path.
    pub(super) fn make(&self, found: &Found, directory: bool) -> Result<(), Errno> {
        let in_tree = |mount: &&Bound| mount.kind == Kind::Tree && mount.guest == b"/";
        match self.mount_of(&found.guest).filter(in_tree) {
            Some(root) if self.tree.is_some() => {
                let (root, path) = (Path::new(OsStr::from_bytes(&root.host)), &found.guest[1..]);
                self.tree.as_ref().map_or(Ok(()), |tree| tree.make(root, path, directory))
            }
            Some(root) => make_in_tree(OsStr::from_bytes(&root.host), &found.guest[1..], directory),
            None => make_on_host(&found.host, directory),
        }
    }
}

/// The mode of directories that are made on the way.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

fn make_in_tree(root: &OsStr, path: &[u8], directory: bool) -> Result<(), Errno> {
    let root = rustix::fs::open(root, sys::fs::DIRECTORY, Mode::empty())?;
    let make_directory = |missing: &resolve::Obstacle<'_>| match missing.errno {
        Errno::NOENT => new_directory(missing.dir, missing.name),
        errno => Err(errno),
    };
    let (parent, name) = resolve::split(path);
    let place = resolve::in_root(&root, parent, make_directory)?;
    if directory { new_directory(&place.dir, name) } else { new_file(&place.dir, name) }
}

fn new_directory(parent: impl rustix::fd::AsFd, name: &[u8]) -> Result<(), Errno> {
    let parent = parent.as_fd();
    let create = || rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(DIRECTORY_MODE));
    match sys::fs::keep_time(parent, create) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    // The caller's mask is not the container's.
    let made = rustix::fs::openat(parent, name, sys::fs::DIRECTORY, Mode::empty())?;
    rustix::fs::fchmod(&made, Mode::from_raw_mode(DIRECTORY_MODE))
}

fn new_file(parent: impl rustix::fd::AsFd, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = parent.as_fd();
    let create = || rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(FILE_MODE));
    match sys::fs::keep_time(parent, create) {
        Ok(made) => rustix::fs::fchmod(&made, Mode::from_raw_mode(FILE_MODE)),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn make_on_host(path: &Path, directory: bool) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    std::fs::create_dir_all(parent)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let parent = rustix::fs::open(parent, sys::fs::DIRECTORY, Mode::empty())?;
    let name = name.as_bytes();
    if directory { new_directory(&parent, name) } else { new_file(&parent, name) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn bound(guest: &str, host: &Path) -> Bound {
        Bound {
            guest: guest.into(),
            host: host.as_os_str().as_bytes().to_vec(),
            read_only: false,
            kind: if guest == "/" { Kind::Tree } else { Kind::Host },
        }
    }

    #[test]
    fn targets_are_resolved_as_inside() {
        let dir = tempfile::tempdir().unwrap();
        let (root, data) = (dir.path().join("root"), dir.path().join("data"));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(data.join("in")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        symlink("/a", root.join("abs")).unwrap();
        symlink("../../../../a/b", root.join("a/up")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink("/a/b", data.join("out")).unwrap();
        let mut points = Points::new(bound("/", &root));
        points.add(bound("/data", &data));
        let guest = |path: &str| {
            let found = points.find(Path::new(path))?;
            Ok((String::from_utf8(found.guest).unwrap(), found.kind.is_some()))
        };
        let is = |path: &str, exists: bool| Ok((path.to_owned(), exists));
        assert_eq!(guest("/"), is("/", true));
        assert_eq!(guest("/abs/b/"), is("/a/b", true));
        assert_eq!(guest("/a/up"), is("/a/b", true));
        assert_eq!(guest("/data/in"), is("/data/in", true));
        assert_eq!(guest("/data/out/x/y"), is("/a/b/x/y", false));
        assert_eq!(guest("/../etc/new"), is("/etc/new", false));
        assert_eq!(guest("/loop"), Err(Errno::LOOP));
        assert_eq!(guest("/file/x"), Err(Errno::NOTDIR));
        let new = points.find(Path::new("/abs/n/e/w")).unwrap();
        points.make(&new, false).unwrap();
        assert!(root.join("a/n/e/w").is_file());
        let new = points.find(Path::new("/data/n")).unwrap();
        assert_eq!(new.host, data.join("n"));
        points.make(&new, true).unwrap();
        assert!(data.join("n").is_dir());
    }
}
