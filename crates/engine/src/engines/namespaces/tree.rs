//! The container's tree: its root, what is mounted in it, and making it `/`.
//!
//! Three phases, because no path may ever be resolved half on the host and half in the container:
//! 1. [`open_sources`] copies every host file and directory that will be mounted into detached mount trees (host paths);
//! 2. [`enter_root`] mounts the root over the container's own directory and pivots into it;
//! 3. [`mount_all`] attaches the copies and makes the rest (container paths, resolved by [`inside`]), then [`leave_host`] lets go of
//!    the host's tree.
//!
//! The old root stays stacked over the new one until the end (a fresh `/proc` needs one that is visible): absolute paths begin below
//! it, and `.` still leads to it. So would `..` from any directory of the new root, because a step up to `/` arrives on what is
//! mounted there. Symbolic links of an image may hold `..`; therefore no path with one is left to the kernel.
//!
//! Kernels before 5.2 cannot copy mount trees; there a source is kept as an `O_PATH` descriptor and bound in phase 3 through the working
//! directory (directories) or `/proc/self/fd` (files; `/proc` is always first in a plan).

use crate::error::{Error, Result};
use crate::plan::{Mount, MountFlags, Plan, Root};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags as Legacy, MountPropagationFlags, UnmountFlags};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use sys::fs::resolve;
use sys::mount::Attributes;

/// Longest option string that `mount(2)` takes: one page with its end.
const OPTIONS_LIMIT: usize = 4095;

/// A source that was opened while the host was still visible.
#[derive(Debug)]
pub(super) enum Opened {
    /// A detached mount tree with its attributes set.
    Tree(OwnedFd),
    /// A plain descriptor, on kernels without mount trees.
    Path(OwnedFd),
    /// The host has no such file and the mount is optional, or the operation has no source.
    Nothing,
}

pub(super) fn attributes(flags: MountFlags) -> Attributes {
    let mut all = Attributes::NONE;
    for (wanted, attribute) in [
        (flags.read_only, Attributes::READ_ONLY),
        (flags.noexec, Attributes::NOEXEC),
        (flags.nosuid, Attributes::NOSUID),
        (flags.nodev, Attributes::NODEV),
    ] {
        if wanted {
            all = all.with(attribute);
        }
    }
    all
}

fn legacy(flags: MountFlags) -> Legacy {
    let mut all = Legacy::empty();
    all.set(Legacy::RDONLY, flags.read_only);
    all.set(Legacy::NOEXEC, flags.noexec);
    all.set(Legacy::NOSUID, flags.nosuid);
    all.set(Legacy::NODEV, flags.nodev);
    all
}

/// What was opened in phase 1.
#[derive(Debug)]
pub(super) struct Sources {
    /// One entry for each mount of the plan.
    opened: Vec<Opened>,
    /// The host's root, where a mount may have to fall back to a file system of the host.
    host: Option<OwnedFd>,
    /// The host's `/dev/null`, which hides files: what has that name in the container may be the
    /// image's.
    null: Option<OwnedFd>,
}

/// Phase 1.
pub(super) fn open_sources(plan: &Plan) -> Result<Sources> {
    let opened = plan.mounts.iter().map(open_source).collect::<Result<_>>()?;
    let wanted =
        plan.mounts.iter().any(|mount| matches!(mount, Mount::Kernel { or_bind: true, .. }));
    let host = if wanted {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open("/", flags, Mode::empty()).ok()
    } else {
        None
    };
    let hides = plan.mounts.iter().any(|mount| matches!(mount, Mount::Mask { .. }));
    let null = hides.then(|| {
        let failed = |errno: Errno| Error::File {
            doing: "open".into(),
            path: "/dev/null".into(),
            errno: errno.into(),
        };
        rustix::fs::open("/dev/null", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)
    });
    Ok(Sources { opened, host, null: null.transpose()? })
}

fn open_source(mount: &Mount) -> Result<Opened> {
    let Mount::Bind { source, target, flags, optional } = mount else {
        return Ok(Opened::Nothing);
    };
    let failed = |errno: Errno| Error::MountSource {
        path: source.clone(),
        target: target.clone(),
        errno: errno.into(),
    };
    match sys::mount::copy_tree(source) {
        Ok(tree) => {
            let wanted = attributes(*flags);
            let set = || {
                if !wanted.is_empty() {
                    sys::mount::set_attributes(tree.as_fd(), wanted, true)?;
                }
                if flags.private {
                    sys::mount::make_private(tree.as_fd())?;
                }
                Ok(())
            };
            match set() {
                // Kernels before 5.12: done after attaching.
                Ok(()) | Err(Errno::NOSYS) => Ok(Opened::Tree(tree)),
                Err(errno) => Err(failed(errno)),
            }
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) if *optional => Ok(Opened::Nothing),
        Err(Errno::NOSYS) => {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            match rustix::fs::open(source, flags, Mode::empty()) {
                Ok(path) => Ok(Opened::Path(path)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) if *optional => {
                    Ok(Opened::Nothing)
                }
                Err(errno) => Err(failed(errno)),
            }
        }
        Err(errno) => Err(failed(errno)),
    }
}

/// Phase 2: after this `/` is the container, and the host's tree is stacked at `.`.
pub(super) fn enter_root(plan: &Plan) -> Result<()> {
    let place = match &plan.root {
        Root::Overlay { lowers, upper, work, volatile } => {
            mount_overlay(&plan.place, lowers, upper, work, *volatile)?;
            &plan.place
        }
        Root::Directory { path } => {
            let failed = |errno: Errno| Error::Mount {
                what: "the root tree".into(),
                target: path.clone(),
                errno: errno.into(),
            };
            let flags = Legacy::BIND | Legacy::REC;
            rustix::mount::mount(path, path, c"", flags, None).map_err(failed)?;
            path
        }
    };
    let failed = |call: &str| {
        let (root, call) = (place.clone(), call.to_owned());
        move |errno: Errno| Error::Root { root, call, errno: errno.into() }
    };
    rustix::process::chdir(place).map_err(failed("chdir"))?;
    rustix::process::pivot_root(".", ".").map_err(failed("pivot_root"))
}

/// Mounts a root and opens its top, for copying into a container that does not run.
///
/// The caller is root of a user namespace with a mount namespace of its own, which takes the mount along when it ends.
pub fn mounted(root: &Root, place: &Path) -> Result<std::os::fd::OwnedFd> {
    let top = match root {
        Root::Overlay { lowers, upper, work, volatile } => {
            mount_overlay(place, lowers, upper, work, *volatile)?;
            place
        }
        Root::Directory { path } => path,
    };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(top, flags, Mode::empty()).map_err(|errno| Error::File {
        doing: "open".into(),
        path: top.into(),
        errno: errno.into(),
    })
}

/// Mounts an overlay on `place`.
///
/// A volatile overlay leaves a mark in its work directory that forbids the next mount: it means "what was written may not have
/// reached the disk when the machine crashed". Our containers accept that, as Docker's do, and remove the mark.
pub(in crate::engines) fn mount_overlay(
    place: &Path,
    lowers: &[PathBuf],
    upper: &Path,
    work: &Path,
    volatile: bool,
) -> Result<()> {
    if volatile {
        let mark = work.join("work/incompat/volatile");
        let _ = rustix::fs::unlink(mark.join("dirty"));
        let _ = rustix::fs::rmdir(mark);
    }
    let failed = |errno: Errno| Error::Mount {
        what: format!("overlay of {} layers", lowers.len()),
        target: "/".into(),
        errno: errno.into(),
    };
    let mut tail = String::new();
    for (key, path) in [("upperdir", upper), ("workdir", work)] {
        tail.extend([",", key, "=", &escaped(path, &[',', '\\'])]);
    }
    tail.push_str(",userxattr");
    if volatile {
        tail.push_str(",volatile");
    }
    let names = |base: Option<&Path>| {
        let shorten = |path: &PathBuf| {
            let path = base.and_then(|base| path.strip_prefix(base).ok()).unwrap_or(path);
            escaped(path, &[',', ':', '\\'])
        };
        lowers.iter().map(shorten).collect::<Vec<_>>().join(":")
    };
    let mut options = format!("lowerdir={}{tail}", names(None));
    if options.len() > OPTIONS_LIMIT
        && let Some(base) = common_directory(lowers)
    {
        // Relative names are resolved from the working directory.
        rustix::process::chdir(&base).map_err(failed)?;
        options = format!("lowerdir={}{tail}", names(Some(&base)));
    }
    if options.len() > OPTIONS_LIMIT {
        return long_overlay(place, lowers, upper, work, volatile);
    }
    let text = CString::new(options).map_err(|_| failed(Errno::INVAL))?;
    let mount = |text: &CString| {
        rustix::mount::mount("overlay", place, "overlay", Legacy::empty(), Some(text.as_c_str()))
    };
    match mount(&text) {
        // `volatile` came with 5.10, distributions' backports of `userxattr` may lack it.
        Err(Errno::INVAL) if volatile => {
            let plain = text.to_string_lossy().replace(",volatile", "");
            CString::new(plain).map_err(|_| Errno::INVAL).and_then(|text| mount(&text))
        }
        result => result,
    }
    .map_err(failed)
}

/// An overlay of more layers than fit into one page of options: one option per layer (6.5).
fn long_overlay(
    place: &Path,
    lowers: &[PathBuf],
    upper: &Path,
    work: &Path,
    volatile: bool,
) -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: format!("overlay of {} layers (more than fit without Linux 6.5)", lowers.len()),
        target: "/".into(),
        errno: errno.into(),
    };
    let text = |path: &Path| path.to_str().map(str::to_owned).ok_or(failed(Errno::ILSEQ));
    let mut options = Vec::new();
    for lower in lowers {
        options.push(("lowerdir+", text(lower)?));
    }
    options.push(("upperdir", text(upper)?));
    options.push(("workdir", text(work)?));
    options.push(("userxattr", String::new()));
    if volatile {
        options.push(("volatile", String::new()));
    }
    let options: Vec<_> = options.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let tree = sys::mount::new_filesystem("overlay", &options, Attributes::NONE).map_err(failed)?;
    sys::mount::attach(tree.as_fd(), place).map_err(failed)
}

fn escaped(path: &Path, special: &[char]) -> String {
    let mut text = String::new();
    for character in path.to_string_lossy().chars() {
        if special.contains(&character) {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

fn common_directory(paths: &[PathBuf]) -> Option<PathBuf> {
    let mut common = paths.first()?.parent()?.to_path_buf();
    while !paths.iter().all(|path| path.starts_with(&common)) {
        common = common.parent()?.to_path_buf();
    }
    Some(common)
}

/// Phase 3: everything that is mounted inside.
pub(super) fn mount_all(plan: &Plan, sources: &Sources) -> Result<()> {
    let make_points = matches!(plan.root, Root::Overlay { .. });
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Error::MountPoint { target: "/".into(), errno: errno.into() })?;
    for (n, (mount, source)) in plan.mounts.iter().zip(&sources.opened).enumerate() {
        let first = n == 0;
        match mount {
            Mount::Bind { source: path, target, flags, optional } => {
                let make = make_points || !*optional;
                let place =
                    inside(&root, target, make).and_then(|place| own(plan, first, target, place));
                match place.and_then(|place| bind(source, &place, *flags, make)) {
                    Ok(()) => {}
                    Err(Error::MountPoint { .. }) if *optional => {}
                    Err(Error::Mount { errno, .. }) => {
                        let what = path.display().to_string();
                        return Err(Error::Mount { what, target: target.clone(), errno });
                    }
                    Err(error) => return Err(error),
                }
            }
            Mount::Tmpfs { target, flags, options } => {
                let place = own(plan, first, target, inside(&root, target, true)?)?;
                kernel("tmpfs", &place, *flags, options)?;
            }
            Mount::Kernel { kind, target, flags, options, or_bind } => {
                let place = own(plan, first, target, inside(&root, target, true)?)?;
                match kernel(kind, &place, *flags, options) {
                    Err(Error::Mount { errno, .. })
                        if *or_bind && errno.0 == Errno::PERM.raw_os_error() =>
                    {
                        bind_from_host(sources.host.as_ref(), target, &place, *flags)?;
                    }
                    // The host's `/dev` may have no place for it, and message queues work without.
                    Err(Error::MountPoint { .. }) if kind == "mqueue" => {}
                    result => result?,
                }
            }
            Mount::Symlink { path, to } => link(&root, path, to)?,
            // What the image does not have needs no cover.
            Mount::Mask { path } => {
                let null = sources.null.as_ref();
                inside(&root, path, false).map_or(Ok(()), |place| mask(null, &place))?;
            }
            Mount::ReadOnly { path } => {
                inside(&root, path, false).map_or(Ok(()), |place| make_read_only(&place))?;
            }
            Mount::ReadOnlyRoot => read_only_root()?,
        }
    }
    Ok(())
}

/// The place of a mount, where it is one that the mount may have: the `/proc` of a boundary, which
/// is the first of a plan's, is where everybody looks for it, and nothing is put over or into it,
/// by whatever link. What hides parts of it, and this program itself, rely on that.
fn own(plan: &Plan, first: bool, target: &Path, place: PathBuf) -> Result<PathBuf> {
    let proc = Path::new("/proc");
    let fits = if first { place == proc } else { !place.starts_with(proc) };
    if fits || !plan.isolate {
        return Ok(place);
    }
    Err(Error::Invalid {
        what: "mount".into(),
        value: target.display().to_string(),
        why: "with --isolate /proc is the kernel's, and nothing can be mounted in it or over it"
            .into(),
    })
}

/// How many links may lead from one to the next (as in the kernel, `path_resolution(7)`).
const LINKS: usize = 40;

/// The path of a mount's target without symbolic links: as the container will see it, never through the host's root that is stacked
/// over the container's. Missing directories on the way are made if `make` says so; the last component may be missing.
fn inside(root: &OwnedFd, target: &Path, make: bool) -> Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let failed = |errno: Errno| Error::MountPoint { target: target.into(), errno: errno.into() };
    let mut path = without_slashes(target.as_os_str().as_bytes());
    // Mostly there is no link, and one call says so.
    let name_only = OFlags::PATH | OFlags::CLOEXEC;
    if resolve::strict(root, &path, name_only, resolve::Method::Best).is_ok() {
        return Ok(absolute(&path));
    }
    let make_directory = |missing: &resolve::Obstacle<'_>| match missing.errno {
        Errno::NOENT if make => {
            rustix::fs::mkdirat(missing.dir, missing.name, Mode::from_raw_mode(0o755))
        }
        errno => Err(errno),
    };
    for _ in 0..LINKS {
        let (parent, name) = resolve::split(&path);
        if name.is_empty() || name == b"." || name == b".." {
            let place = resolve::in_root(root, &path, make_directory).map_err(failed)?;
            return Ok(absolute(&place.path));
        }
        let place = resolve::in_root(root, parent, make_directory).map_err(failed)?;
        match rustix::fs::readlinkat(&place.dir, name, Vec::new()) {
            Ok(link) => {
                let link = link.as_bytes();
                let from = if link.first() == Some(&b'/') { &[][..] } else { &place.path };
                path = without_slashes(&resolve::join(from, link));
            }
            Err(_) => return Ok(absolute(&resolve::join(&place.path, name))),
        }
    }
    Err(failed(Errno::LOOP))
}

/// Without slashes at either end, so that the last component is what stands after the last one.
fn without_slashes(path: &[u8]) -> Vec<u8> {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(start, |last| last + 1);
    path[start..end].to_vec()
}

fn absolute(path: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    PathBuf::from(std::ffi::OsString::from_vec([b"/", path].concat()))
}

/// A link such as `/dev/fd`, unless there is something.
fn link(root: &OwnedFd, path: &Path, to: &Path) -> Result<()> {
    let parent = inside(root, path.parent().unwrap_or(Path::new("/")), true)?;
    let place = parent.join(path.file_name().unwrap_or_default());
    match rustix::fs::symlink(to, &place) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Error::MountPoint { target: path.into(), errno: errno.into() }),
    }
}

/// Lets go of the host's tree.
pub(super) fn leave_host() -> Result<()> {
    rustix::mount::unmount(".", UnmountFlags::DETACH).map_err(|errno| Error::Root {
        root: "/".into(),
        call: "umount2".into(),
        errno: errno.into(),
    })
}

fn bind(source: &Opened, target: &Path, flags: MountFlags, make: bool) -> Result<()> {
    let attach = || match source {
        Opened::Tree(tree) => sys::mount::attach(tree.as_fd(), target),
        Opened::Path(path) => bind_path(path, target),
        Opened::Nothing => Ok(()),
    };
    let failed = |errno: Errno| Error::Mount {
        what: "bind".into(),
        target: target.into(),
        errno: errno.into(),
    };
    match attach() {
        Err(Errno::NOENT) if make => {
            make_point(target, is_directory(source).map_err(failed)?)?;
            attach().map_err(failed)?;
        }
        Err(errno @ (Errno::NOENT | Errno::NOTDIR)) => {
            return Err(Error::MountPoint { target: target.into(), errno: errno.into() });
        }
        result => result.map_err(failed)?,
    }
    // On a copy they were set already, by kernels that can.
    let done = match source {
        Opened::Tree(_) => sys::mount::has_set_attributes(),
        Opened::Path(_) => false,
        Opened::Nothing => true,
    };
    if done {
        return Ok(());
    }
    if flags.private {
        let change = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change(target, change).map_err(failed)?;
    }
    let set = MountFlags { private: false, ..flags };
    if set != MountFlags::default() {
        remount(target, set).map_err(failed)?;
    }
    Ok(())
}

fn is_directory(source: &Opened) -> Result<bool, Errno> {
    match source {
        Opened::Tree(file) | Opened::Path(file) => {
            let mode = rustix::fs::fstat(file)?.st_mode;
            Ok(FileType::from_raw_mode(mode) == FileType::Directory)
        }
        Opened::Nothing => Ok(true),
    }
}

/// Binds a descriptor of a file that is still mounted in our namespace, on kernels without mount trees.
fn bind_path(source: &OwnedFd, target: &Path) -> Result<(), Errno> {
    let mode = rustix::fs::fstat(source)?.st_mode;
    let flags = Legacy::BIND | Legacy::REC;
    if FileType::from_raw_mode(mode) != FileType::Directory {
        let path = format!("/proc/self/fd/{}", source.as_raw_fd());
        return rustix::mount::mount(path, target, c"", flags, None);
    }
    let here = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    rustix::process::fchdir(source)?;
    let result = rustix::mount::mount(".", target, c"", flags, None);
    rustix::process::fchdir(&here)?;
    result
}

/// Sets flags of a mount by remounting it and what is beneath, on kernels without `mount_setattr`.
///
/// Inside a user namespace a remount must repeat the flags that the mount has already: they are locked.
fn remount(target: &Path, flags: MountFlags) -> Result<(), Errno> {
    let full = std::fs::canonicalize(target)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let table = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(unescaped(field)))
        .filter(|path| path.starts_with(&full))
        .collect();
    points.dedup();
    for point in points {
        let has = rustix::fs::statvfs(&point)?.f_flag;
        let mut all = legacy(flags) | Legacy::BIND;
        for (bit, flag) in [
            (rustix::fs::StatVfsMountFlags::RDONLY, Legacy::RDONLY),
            (rustix::fs::StatVfsMountFlags::NOSUID, Legacy::NOSUID),
            (rustix::fs::StatVfsMountFlags::NODEV, Legacy::NODEV),
            (rustix::fs::StatVfsMountFlags::NOEXEC, Legacy::NOEXEC),
            (rustix::fs::StatVfsMountFlags::NOATIME, Legacy::NOATIME),
            (rustix::fs::StatVfsMountFlags::RELATIME, Legacy::RELATIME),
        ] {
            all.set(flag, all.contains(flag) || has.contains(bit));
        }
        rustix::mount::mount_remount(&point, all, c"")?;
    }
    Ok(())
}

/// Mountinfo writes spaces and the like as three octal digits.
fn unescaped(field: &str) -> String {
    let mut out = Vec::new();
    let bytes = field.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let code = field
            .get(at + 1..at + 4)
            .filter(|_| bytes[at] == b'\\')
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn kernel(
    kind: &str,
    target: &Path,
    flags: MountFlags,
    options: &[(String, String)],
) -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: kind.into(),
        target: target.into(),
        errno: errno.into(),
    };
    let words: Vec<String> = options
        .iter()
        .map(|(key, value)| if value.is_empty() { key.clone() } else { format!("{key}={value}") })
        .collect();
    let data = CString::new(words.join(",")).map_err(|_| failed(Errno::INVAL))?;
    let mount = || rustix::mount::mount(kind, target, kind, legacy(flags), Some(data.as_c_str()));
    match mount() {
        Err(Errno::NOENT) => {
            make_point(target, true)?;
            mount().map_err(failed)
        }
        result => result.map_err(failed),
    }
}

/// Binds the same path of the host. One that the host does not have is left out.
fn bind_from_host(
    host: Option<&OwnedFd>,
    target: &Path,
    place: &Path,
    flags: MountFlags,
) -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: "the host's tree".into(),
        target: target.into(),
        errno: errno.into(),
    };
    let host = host.ok_or(Errno::PERM).map_err(failed)?;
    let path = target.strip_prefix("/").unwrap_or(target);
    let tree = match sys::mount::copy_tree_at(host.as_fd(), path) {
        Err(Errno::NOENT) => return Ok(()),
        result => result.map_err(failed)?,
    };
    if flags != MountFlags::default() {
        sys::mount::set_attributes(tree.as_fd(), attributes(flags), true).map_err(failed)?;
    }
    sys::mount::attach(tree.as_fd(), place).map_err(failed)
}

fn mask(null: Option<&OwnedFd>, path: &Path) -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: "a mask".into(),
        target: path.into(),
        errno: errno.into(),
    };
    let mode = match rustix::fs::stat(path) {
        Ok(stat) => stat.st_mode,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
        Err(errno) => return Err(failed(errno)),
    };
    if FileType::from_raw_mode(mode) == FileType::Directory {
        let flags = Legacy::RDONLY | Legacy::NOSUID | Legacy::NODEV | Legacy::NOEXEC;
        return rustix::mount::mount("tmpfs", path, "tmpfs", flags, Some(c"size=0"))
            .map_err(failed);
    }
    let null = null.ok_or(Errno::NOENT).map_err(failed)?;
    match sys::mount::copy_of(null.as_fd()) {
        Ok(copy) => sys::mount::attach(copy.as_fd(), path).map_err(failed),
        Err(Errno::NOSYS) => bind_path(null, path).map_err(failed),
        Err(errno) => Err(failed(errno)),
    }
}

fn make_read_only(path: &Path) -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: "a read-only view".into(),
        target: path.into(),
        errno: errno.into(),
    };
    let flags = MountFlags { read_only: true, ..MountFlags::default() };
    match sys::mount::copy_tree(path) {
        Ok(tree) => match sys::mount::set_attributes(tree.as_fd(), attributes(flags), true) {
            Ok(()) => sys::mount::attach(tree.as_fd(), path),
            Err(Errno::NOSYS) => {
                sys::mount::attach(tree.as_fd(), path).and_then(|()| remount(path, flags))
            }
            Err(errno) => Err(errno),
        },
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(Errno::NOSYS) => {
            rustix::mount::mount(path, path, c"", Legacy::BIND | Legacy::REC, None)
                .and_then(|()| remount(path, flags))
        }
        Err(errno) => Err(errno),
    }
    .map_err(failed)
}

fn read_only_root() -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: "the root read-only".into(),
        target: "/".into(),
        errno: errno.into(),
    };
    let root =
        rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    match sys::mount::set_attributes(root.as_fd(), Attributes::READ_ONLY, false) {
        Err(Errno::NOSYS) => {
            let flags = Legacy::BIND | Legacy::RDONLY;
            rustix::mount::mount_remount("/", flags, c"")
        }
        result => result,
    }
    .map_err(failed)
}

/// Makes a place to mount on, a directory or an empty file, where [`inside`] found none.
fn make_point(place: &Path, directory: bool) -> Result<()> {
    let made = if directory {
        rustix::fs::mkdir(place, Mode::from_raw_mode(0o755))
    } else {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::open(place, flags, Mode::from_raw_mode(0o644)).map(drop)
    };
    match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(Error::MountPoint { target: place.into(), errno: errno.into() }),
    }
}

pub(super) fn make_directories(path: &Path) -> Result<(), Errno> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => {
            if let Some(parent) = path.parent() {
                make_directories(parent)?;
            }
            match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(errno),
            }
        }
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_for_the_option_string() {
        assert_eq!(escaped(Path::new("/a,b:c\\d"), &[',', ':', '\\']), "/a\\,b\\:c\\\\d");
    }

    #[test]
    fn the_common_directory_of_layers() {
        let paths = ["/s/layers/a/tree", "/s/layers/b/tree"].map(PathBuf::from);
        assert_eq!(common_directory(&paths).unwrap(), PathBuf::from("/s/layers"));
        assert_eq!(common_directory(&paths[..1]).unwrap(), PathBuf::from("/s/layers/a"));
    }

    #[test]
    fn mountinfo_fields_are_decoded() {
        assert_eq!(unescaped("/a\\040b\\134"), "/a b\\");
        assert_eq!(unescaped("/plain\\"), "/plain\\");
    }
}
