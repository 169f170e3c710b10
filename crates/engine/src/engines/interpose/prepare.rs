//! Makes on disk what the kernel would have mounted: directories, files and links.
//!
//! | the plan says | here |
//! |---|---|
//! | bind | a binding, and a place in the tree where there is none |
//! | memory | a directory in `run/memory/`; its size is not limited |
//! | a file system of the kernel | the host's, where it is |
//! | a link | a link |
//! | mask, read-only | a binding of something empty, a flag of the bindings |
//!
//! `noexec`, `nosuid` and `nodev` have no counterpart: set-id bits and devices are never real here,
//! and executing is not prevented.

use super::layers::{LayerPaths, Mapped};
use super::networks::Networks;
use super::points::{Found, Points, TreeCalls};
use super::world::{Bound, Compiled};
use crate::error::{Error, Result};
use crate::plan::{Ids, Mount, MountFlags, Network, NetworkPlace, Plan, Root};
use hostfs::layout;
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use view::identity::Truth;
use view::identity::record::OWNER;
use view::stored;
use view::world::{Identity, Kind};

/// Where devices are.
const DEVICES: &str = "/dev";
/// In the container's `run/`: what its processes see of the container's directory where they have
/// namespaces and the stage.
pub const SEEN: &str = "view";
/// An empty file and an empty directory in it, for masks.
const EMPTY_FILE: &str = ".empty-file";
const EMPTY_DIRECTORY: &str = ".empty-directory";
/// How many changed texts of the container's own files are kept. Where there are more, most are of
/// files that are gone.
const TEXTS_MAX: usize = 512;
/// The bit of a mode on disk that says that there is a record.
const MARK: u32 = 0o1000;
/// `S_IFDIR`.
const DIRECTORY: u32 = 0o040_000;

/// Where the parts of a container lie on the host. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The tree that is `/`, canonical.
    pub root: PathBuf,
    /// The inodes of the tree that belong to the image: pairs of inode number (`u64`) and number of
    /// names inside the image (`u32`), little-endian, 12 bytes each, sorted by inode. The file may
    /// be missing (a tree that is wholly the container's own).
    pub image_inodes: PathBuf,
    /// The log of records of inodes without attributes. There may be none yet.
    pub notes: PathBuf,
    /// A directory of this container for what the engine needs while a process lives there (the
    /// loader's file).
    pub run: PathBuf,
    /// A directory beside the image's tree, for what is made of the image's files.
    pub beside_image: Option<PathBuf>,
    /// The layers of the tree, if it has two.
    pub layers: Option<LayerPaths>,
    /// The container's place among those with which it has networks.
    pub networks: Option<NetworkPlace>,
}

/// A world that is ready.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Bindings and ids.
    pub world: Compiled,
    /// Where things are.
    pub files: Files,
    /// The program's working directory on the host.
    pub cwd: PathBuf,
    /// The binding by which it is entered.
    pub entered: u16,
    /// The layers of the tree, if it has two.
    pub layers: Option<Rc<Mapped>>,
    /// The table of networks, if the container is in one.
    pub networks: Option<Rc<Networks>>,
}

/// Makes everything that the plan mounts, and compiles its table.
///
/// The caller holds the container's lock ([`crate::records::Records::turn`]). `fresh` says that no
/// process lives in the container: then memory is emptied and the files in `/etc` are written; else
/// both stay as the processes there left them.
pub fn prepare(plan: &Plan, fresh: bool) -> Result<Prepared> {
    let (path, lower) = match (&plan.root, &plan.index) {
        (Root::Directory { path }, _) => (path, None),
        (Root::Overlay { lowers, upper, .. }, Some(index)) if lowers.len() == 1 => {
            (upper, lowers.first().map(|lower| (lower, index)))
        }
        _ => {
            return Err(Error::Invalid {
                what: "root".into(),
                value: "overlay".into(),
                why: "an engine without mounts needs one directory, or an image's index".into(),
            });
        }
    };
    let failed = |call: &'static str| {
        move |error: std::io::Error| Error::Root {
            root: path.clone(),
            call: call.into(),
            errno: error.into(),
        }
    };
    let root = path.canonicalize().map_err(failed("realpath"))?;
    let place = plan.place.canonicalize().map_err(failed("realpath"))?;
    if fresh {
        clean(&place);
    }
    let memory = place.join(layout::RUN).join(layout::MEMORY);
    std::fs::create_dir_all(&memory).map_err(failed("mkdir"))?;
    if fresh {
        crate::launch::etc_files::write_all(plan)?;
    }
    let layers = match lower {
        None => None,
        Some((lower, index)) => {
            let lower = lower.canonicalize().map_err(failed("realpath"))?;
            let paths = LayerPaths::new(index, &lower, &root, &place);
            let paths = paths.map_err(|errno| failed("stat")(errno.into()))?;
            let notes = place.join(layout::INODE_LOG);
            Some(Rc::new(Mapped::open(&paths, &notes, fresh).map_err(failed("map"))?))
        }
    };
    let points = Points::new(Bound {
        guest: b"/".to_vec(),
        host: root.as_os_str().as_bytes().to_vec(),
        read_only: false,
        kind: Kind::Tree,
    });
    let points = points.with_layers(layers.clone());
    // A tree of the user's own gets no place for what is only convenient.
    let own = layers.is_some() || root == place.join(layout::ROOT);
    let mut maker = Maker { points, memory, own, devices: devices(&plan.mounts) };
    let user = user_of(&plan.ids);
    for mount in &plan.mounts {
        if *mount == Mount::ReadOnlyRoot {
            // Made while it can be; the error below says what prevents it.
            let _ = maker.working_directory(plan);
        }
        maker.mount(mount, user)?;
    }
    let directory = maker.working_directory(plan)?;
    let identity = plan.emulate_root.then(|| identity(plan));
    let host_name = plan.hostname.as_deref().unwrap_or_default();
    if !host_name.is_empty() {
        maker.show_host_name(host_name)?;
    }
    let world = Compiled::new(maker.points.finish(), identity).with_host_name(host_name);
    let mut files = Files::of(&place, root);
    files.beside_image.clone_from(&plan.beside_image);
    files.layers = layers.as_ref().map(|layers| layers.paths().clone());
    let networks = match &plan.network {
        Network::Names(Some(place)) => {
            files.networks = Some(place.clone());
            let failed = |error: std::io::Error| Error::File {
                doing: "map".into(),
                path: place.table.clone(),
                errno: error.into(),
            };
            Some(Rc::new(Networks::open(place).map_err(failed)?))
        }
        Network::Names(None) => {
            return Err(Error::Invalid {
                what: "network".into(),
                value: "names".into(),
                why: "the container has no place in the table of networks".into(),
            });
        }
        _ => None,
    };
    let entered = world.binding_of(&directory.guest);
    let cwd = real(layers.as_ref(), directory.host).map_err(|errno| Error::WorkingDirectory {
        path: plan.process.cwd.clone(),
        errno: errno.into(),
    })?;
    Ok(Prepared { world, files, cwd, entered, layers, networks })
}

/// Where the kernel finds a file of the container's tree.
fn real(layers: Option<&Rc<Mapped>>, path: PathBuf) -> Result<PathBuf, Errno> {
    let Some(layers) = layers else { return Ok(path) };
    let calls = TreeCalls::new(Rc::clone(layers));
    calls.real_path(&path)
}

/// The container's user and group.
fn user_of(ids: &Ids) -> (u32, u32) {
    let (users, groups) = ids.lines();
    let first = |lines: &[crate::plan::IdRange]| lines.first().map_or(0, |line| line.inside);
    (first(users), first(groups))
}

fn identity(plan: &Plan) -> Identity {
    let (uid, gid) = user_of(&plan.ids);
    Identity {
        host_uid: rustix::process::getuid().as_raw(),
        host_gid: rustix::process::getgid().as_raw(),
        uid,
        gid,
    }
}

/// Empties the directories in the place of memory, and removes temporary files of killed processes.
/// The caller holds the container's lock and has found that no process lives there.
pub fn clean(place: &Path) {
    clean_run(&place.join(layout::RUN));
}

/// The same of the directory where the container's processes have theirs.
pub fn clean_run(run: &Path) {
    let Ok(run) = rustix::fs::open(run, sys::fs::DIRECTORY, Mode::empty()) else { return };
    let _ = sys::fs::remove_tree(&run, layout::MEMORY.as_bytes());
    let _ = rustix::fs::unlinkat(&run, layout::SHARED, AtFlags::empty());
    let entries = sys::fs::read_dir(&run).unwrap_or_default();
    let is_text = |name: &[u8]| name.starts_with(stored::TEXT);
    let too_many = entries.iter().filter(|entry| is_text(&entry.name)).count() > TEXTS_MAX;
    for entry in entries {
        let is_text = is_text(&entry.name);
        let unfinished = layout::is_temporary(&entry.name) || is_text && entry.name.contains(&b'.');
        if unfinished || is_text && too_many {
            // Where the tree has layers, also directories.
            let _ = sys::fs::remove_tree(&run, &entry.name);
        }
    }
}

struct Maker {
    points: Points,
    memory: PathBuf,
    /// The tree is the container's own.
    own: bool,
    /// Tells apart which devices a `/dev` has.
    devices: u64,
}

impl Maker {
    fn mount(&mut self, mount: &Mount, user: (u32, u32)) -> Result<()> {
        match mount {
            Mount::Bind { source, target, flags, optional } => {
                self.bind(source, target, *flags, *optional)
            }
            Mount::Tmpfs { target, flags, options } => self.memory(target, *flags, options, user),
            Mount::Kernel { kind, target, flags, .. } => {
                let source = match kind.as_str() {
                    "proc" => "/proc",
                    "sysfs" => "/sys",
                    "devpts" => "/dev/pts",
                    "mqueue" => "/dev/mqueue",
                    "cgroup2" => "/sys/fs/cgroup",
                    other => {
                        return Err(failed(other, target)(Errno::NODEV));
                    }
                };
                self.bind(Path::new(source), target, *flags, true)
            }
            // The host's `/dev/pts/ptmx` is mostly closed to everybody; `/dev/ptmx` does the same.
            Mount::Symlink { path, to } if to == Path::new("pts/ptmx") => {
                self.bind(Path::new("/dev/ptmx"), path, MountFlags::default(), true)
            }
            // Without namespaces there is nothing of another container's.
            Mount::Shared { .. } => Ok(()),
            Mount::Symlink { path, to } => self.link(path, to),
            Mount::Mask { path } => self.mask(path),
            Mount::ReadOnly { path } => {
                if let Ok(found) = self.points.find(path)
                    && found.kind.is_some()
                {
                    self.read_only(&found);
                }
                Ok(())
            }
            Mount::ReadOnlyRoot => {
                self.points.make_root_read_only();
                Ok(())
            }
        }
    }

    fn bind(
        &mut self,
        source: &Path,
        target: &Path,
        flags: MountFlags,
        optional: bool,
    ) -> Result<()> {
        let host = match source.canonicalize() {
            Ok(host) => host,
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                if optional && matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) {
                    return Ok(());
                }
                return Err(Error::MountSource {
                    path: source.into(),
                    target: target.into(),
                    errno: errno.into(),
                });
            }
        };
        let directory = host.is_dir();
        let found = match self.place(target, directory, self.own || !optional) {
            Err(Error::MountPoint { .. }) if optional => return Ok(()),
            result => result?,
        };
        if found.kind.is_some_and(|kind| (kind == FileType::Directory) != directory) {
            return Err(failed(&source.display().to_string(), target)(Errno::NOTDIR));
        }
        let kind = if host == Path::new("/proc") { Kind::Proc } else { Kind::Host };
        self.points.add(bound(found.guest, &host, flags.read_only, kind));
        Ok(())
    }

    /// The place of a mount, made if it is missing. Where it cannot be made although there is a
    /// directory for it, the view shows it there all the same.
    fn place(&self, target: &Path, directory: bool, make: bool) -> Result<Found> {
        let failed =
            |errno: Errno| Error::MountPoint { target: target.into(), errno: errno.into() };
        let found = self.points.find(target).map_err(failed)?;
        if found.kind.is_some() {
            return Ok(found);
        }
        if !make {
            return Err(failed(Errno::NOENT));
        }
        match self.points.make(&found, directory) {
            Err(errno) if !found.host.parent().is_some_and(Path::is_dir) => Err(failed(errno)),
            _ => Ok(found),
        }
    }

    fn memory(
        &mut self,
        target: &Path,
        flags: MountFlags,
        options: &[(String, String)],
        user: (u32, u32),
    ) -> Result<()> {
        let found = self.place(target, true, true)?;
        if found.kind.is_some_and(|kind| kind != FileType::Directory) {
            return Err(failed("tmpfs", target)(Errno::NOTDIR));
        }
        let host = self.memory.join(memory_name(&found.guest, self.devices));
        let made = match rustix::fs::mkdir(&host, Mode::from_raw_mode(0o700)) {
            Ok(()) => set_top(&host, options, user),
            // A process lives here that uses it already.
            Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        };
        made.map_err(failed("tmpfs", target))?;
        self.points.add(bound(found.guest, &host, flags.read_only, Kind::Host));
        Ok(())
    }

    fn link(&self, path: &Path, to: &Path) -> Result<()> {
        let failed = |errno: Errno| Error::MountPoint { target: path.into(), errno: errno.into() };
        let parent = self.place(path.parent().unwrap_or(Path::new("/")), true, true)?;
        let link = parent.host.join(path.file_name().unwrap_or_default());
        match self.points.symlink(to, &link) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Shows the container's name where the kernel tells the host's. Where a process lives, one may
    /// have set another.
    fn show_host_name(&mut self, name: &str) -> Result<()> {
        let file = self.memory.join(layout::HOST_NAME);
        let written = match std::fs::File::create_new(&file) {
            Ok(mut new) => new.write_all(format!("{name}\n").as_bytes()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        };
        written.map_err(|error| Error::File {
            doing: "write".into(),
            path: file.clone(),
            errno: error.into(),
        })?;
        let Ok(found) = self.place(Path::new("/proc/sys/kernel/hostname"), false, false) else {
            return Ok(());
        };
        self.points.add(bound(found.guest, &file, true, Kind::HostName));
        Ok(())
    }

    /// What the image does not have needs no cover.
    fn mask(&mut self, path: &Path) -> Result<()> {
        let Ok(found) = self.points.find(path) else { return Ok(()) };
        let directory = match found.kind {
            None => return Ok(()),
            Some(kind) => kind == FileType::Directory,
        };
        let host = self.memory.join(if directory { EMPTY_DIRECTORY } else { EMPTY_FILE });
        let made = if directory {
            std::fs::create_dir_all(&host)
        } else {
            std::fs::File::create(&host).map(drop)
        };
        made.map_err(|error| {
            failed("a mask", path)(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        })?;
        self.points.add(bound(found.guest, &host, true, Kind::Mask));
        Ok(())
    }

    fn read_only(&mut self, found: &Found) {
        if let Some(mount) = self.points.mount_of(&found.guest).cloned() {
            // A mount of its own, unless it is one.
            if mount.guest != found.guest {
                self.points.add(Bound {
                    guest: found.guest.clone(),
                    host: found.host.as_os_str().as_bytes().to_vec(),
                    ..mount
                });
            }
        }
        self.points.make_read_only(&found.guest);
    }

    /// The program's working directory, which is made where the container should have it.
    fn working_directory(&self, plan: &Plan) -> Result<Found> {
        let process = &plan.process;
        let failed = |errno: Errno| Error::WorkingDirectory {
            path: process.cwd.clone(),
            errno: errno.into(),
        };
        let found = self.points.find(&process.cwd).map_err(failed)?;
        match found.kind {
            Some(FileType::Directory) => {}
            Some(_) => return Err(failed(Errno::NOTDIR)),
            None if !process.create_cwd => return Err(failed(Errno::NOENT)),
            None if self.points.mount_of(&found.guest).is_some_and(|mount| mount.read_only) => {
                return Err(failed(Errno::ROFS));
            }
            None => self.points.make(&found, true).map_err(failed)?,
        }
        Ok(found)
    }
}

fn bound(guest: Vec<u8>, host: &Path, read_only: bool, kind: Kind) -> Bound {
    Bound { guest, host: host.as_os_str().as_bytes().to_vec(), read_only, kind }
}

fn failed(what: &str, target: &Path) -> impl FnOnce(Errno) -> Error {
    let (what, target) = (what.to_owned(), target.to_path_buf());
    move |errno| Error::Mount { what, target, errno: errno.into() }
}

/// FNV-1a.
fn hash(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The places in `/dev` that a plan binds something to.
fn devices(mounts: &[Mount]) -> u64 {
    let places = mounts.iter().filter_map(|mount| match mount {
        Mount::Bind { target, .. } if target.starts_with(DEVICES) => Some(target),
        _ => None,
    });
    hash(places.flat_map(|place| place.as_os_str().as_bytes().iter().copied().chain([0])))
}

/// A file name for a guest path: `+` stands for a slash, `++` for itself. A long one is cut, and a
/// hash tells it apart.
///
/// What runs in one container has its memory in common, but for a `/dev`: its entries say which
/// devices there are, so runs that were given others have others.
fn memory_name(guest: &[u8], devices: u64) -> PathBuf {
    let mut name = Vec::with_capacity(guest.len());
    for byte in guest {
        match byte {
            b'/' => name.push(b'+'),
            b'+' => name.extend_from_slice(b"++"),
            byte => name.push(*byte),
        }
    }
    if name.len() > 200 {
        name.truncate(200);
        name.extend_from_slice(format!("{:016x}", hash(guest.iter().copied())).as_bytes());
    }
    if guest == DEVICES.as_bytes() {
        name.extend_from_slice(format!("+{devices:016x}").as_bytes());
    }
    PathBuf::from(OsStr::from_bytes(&name))
}

/// Mode and owner of a memory file system's top.
fn set_top(host: &Path, options: &[(String, String)], user: (u32, u32)) -> Result<(), Errno> {
    let option = |key: &str, radix: u32, default: u32| {
        let text = options.iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str());
        text.map_or(Ok(default), |text| u32::from_str_radix(text, radix).map_err(|_| Errno::INVAL))
    };
    let mode = option("mode", 8, 0o1777)? & 0o7777;
    let (uid, gid) = (option("uid", 10, 0)?, option("gid", 10, 0)?);
    let truth = Truth { mode: DIRECTORY | mode, uid, gid, ..Truth::default() };
    let on_disk = mode & 0o1777 | 0o700;
    let top = rustix::fs::open(host, sys::fs::DIRECTORY, Mode::empty())?;
    if on_disk == mode && (uid, gid) == user {
        return rustix::fs::fchmod(&top, Mode::from_raw_mode(on_disk));
    }
    match sys::fs::xattr::set(&top, OWNER.to_bytes(), truth.to_text().as_bytes()) {
        Ok(()) => rustix::fs::fchmod(&top, Mode::from_raw_mode(on_disk | MARK)),
        // Then it belongs to the container's user.
        Err(Errno::OPNOTSUPP | Errno::NOSPC) => {
            rustix::fs::fchmod(&top, Mode::from_raw_mode(on_disk))
        }
        Err(errno) => Err(errno),
    }
}

/// Puts the program by which guests are executed into the container's [`Files::run`] and returns
/// its path. It is quick where the program is there already.
pub fn place_loader(files: &Files, name: &str, program: &[u8]) -> Result<PathBuf> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = files.run.join(name);
    if std::fs::read(&path).is_ok_and(|there| there == program) {
        return Ok(path);
    }
    let failed = |error: std::io::Error| Error::File {
        doing: "write the program that starts the container's programs:".into(),
        path: path.clone(),
        errno: error.into(),
    };
    let staging = files.run.join(format!("{name}.{}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o500)
        .open(&staging)
        .map_err(failed)?;
    std::io::Write::write_all(&mut file, program).map_err(failed)?;
    drop(file);
    std::fs::rename(&staging, &path).map_err(failed)?;
    Ok(path)
}

/// The same for the stage at one of its addresses, under a name with this beginning. The name tells
/// builds and addresses apart: a file of the right size need not be compared, nor the stage be
/// unpacked.
pub fn place_stage(files: &Files, beginning: &str, base: u64) -> Result<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let name = stage_name(beginning, base);
    let path = files.run.join(&name);
    let whole = path.symlink_metadata().is_ok_and(|found| {
        found.is_file()
            && found.len() == blobs::STAGE_SIZE as u64
            && found.uid() == rustix::process::geteuid().as_raw()
    });
    let beside = files.beside_image.as_deref().filter(|_| base == 0);
    if whole || beside.is_some_and(|beside| link_stage(beside, &path).is_ok()) {
        return Ok(path);
    }
    place_loader(files, &name, &blobs::stage(base))
}

/// The name of the stage at one of its addresses, which begins so.
pub fn stage_name(beginning: &str, base: u64) -> String {
    format!("{beginning}{}-{base}", blobs::STAGE_MARK)
}

/// Links the stage for all containers of an image, which is made here beside the image, into a
/// container: to unpack it takes longer than the rest of a start's preparation.
pub fn link_stage(beside: &Path, path: &Path) -> std::io::Result<()> {
    let kept = beside.join(stage_name(crate::launch::run_files::STAGE, 0)).with_extension("file");
    if std::fs::hard_link(&kept, path).is_ok() {
        return Ok(());
    }
    std::fs::create_dir_all(beside)?;
    keep_stage(&kept)?;
    std::fs::hard_link(&kept, path)
}

fn keep_stage(kept: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let unfinished = kept.with_extension(sys::random::suffix()?);
    let file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o500).open(&unfinished);
    let written = file.and_then(|mut file| {
        std::io::Write::write_all(&mut file, &blobs::stage(0))?;
        std::fs::rename(&unfinished, kept)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

impl Files {
    /// The image's tree, where the container's has two layers.
    #[must_use]
    pub fn image_root(&self) -> Option<&[u8]> {
        self.layers.as_ref().map(|layers| layers.lower.as_os_str().as_bytes())
    }

    /// The first of these directories on a file system that is mounted noexec.
    pub fn noexec<'a>(directories: impl IntoIterator<Item = &'a Path>) -> Option<&'a Path> {
        let flag = rustix::fs::StatVfsMountFlags::NOEXEC;
        let is = |path: &&Path| rustix::fs::statvfs(*path).is_ok_and(|on| on.f_flag.contains(flag));
        directories.into_iter().find(is)
    }

    /// The parts of the container whose directory is `place`.
    #[must_use]
    pub fn of(place: &Path, root: PathBuf) -> Self {
        Self {
            root,
            image_inodes: place.join(layout::IMAGE_INODES),
            notes: place.join(layout::INODE_LOG),
            run: place.join(layout::RUN),
            beside_image: None,
            layers: None,
            networks: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_end_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        std::fs::create_dir_all(run.join("memory/+tmp")).unwrap();
        for name in [".copy-of-1-2", ".lock", "loader", "text-12b", "text-12b.77"] {
            std::fs::write(run.join(name), "").unwrap();
        }
        clean(dir.path());
        let mut left: Vec<_> =
            std::fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort_unstable();
        assert_eq!(left, [".lock", "loader", "text-12b"]);
        for number in 0..TEXTS_MAX {
            std::fs::write(run.join(format!("text-{number}")), "").unwrap();
        }
        clean(dir.path());
        assert_eq!(std::fs::read_dir(&run).unwrap().count(), 2);
    }

    #[test]
    fn names_of_memory_are_names() {
        assert_eq!(memory_name(b"/dev/shm", 1), Path::new("+dev+shm"));
        assert_eq!(memory_name(b"/a+b", 1), Path::new("+a++b"));
        assert_ne!(memory_name(b"/dev", 1), memory_name(b"/dev", 2));
        let long = [&b"/"[..], &[b'x'; 4000]].concat();
        assert_eq!(memory_name(&long, 1).as_os_str().len(), 216);
    }
}
