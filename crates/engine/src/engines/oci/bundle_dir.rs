//! The directory of a bundle, with the mounted root and `config.json`, and the runtime's command
//! line.

use super::bundle::{Config, Terms};
use crate::engines::external::first_process::WORD;
use crate::engines::external::handed::{Handed, Order, open};
use crate::engines::external::helper::{LAUNCHER, complaint, execute};
use crate::engines::namespaces::tree;
use crate::error::{Error, Result};
use crate::launch::terminal::has_own_devices;
use crate::plan::{Mount, Plan, Root};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::thread::CapabilitySet;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::call(doing, errno)
}

/// A bundle: a directory in memory.
pub(super) struct BundleDir {
    directory: PathBuf,
    id: String,
}

impl BundleDir {
    /// Makes it in a mount namespace of the caller's own, for a container whose first process does
    /// as `first` says.
    pub(super) fn make(
        runtime: &Path,
        plan: &Plan,
        first: &Order<'_>,
        directory: PathBuf,
    ) -> Result<Self> {
        let failed = |errno: Errno| Error::Mount {
            what: "memory for the bundle".into(),
            target: directory.clone(),
            errno: errno.into(),
        };
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("tmpfs", &directory, "tmpfs", flags, Some(c"mode=700"))
            .map_err(failed)?;
        let root = match &plan.root {
            Root::Overlay { lowers, upper, work, volatile } => {
                let root = directory.join("rootfs");
                make(&root)?;
                tree::mount_overlay(&root, lowers, upper, work, *volatile)?;
                root
            }
            // The tree of R2 and R3 has only places to mount on.
            Root::Directory { .. } if first.engine.is_some() => {
                let root = directory.join("rootfs");
                make(&root)?;
                if plan.mounts.iter().any(is_whole) {
                    let flags = MountFlags::BIND | MountFlags::REC;
                    rustix::mount::mount("/", &root, c"", flags, None)
                        .map_err(call("show the whole host"))?;
                }
                root
            }
            // No runtime can change the root to the directory that it is.
            Root::Directory { path } if path == Path::new("/") => {
                let root = directory.join("rootfs");
                make(&root)?;
                let flags = MountFlags::BIND | MountFlags::REC;
                rustix::mount::mount(path, &root, c"", flags, None)
                    .map_err(call("show the whole host"))?;
                root
            }
            Root::Directory { path } => path.clone(),
        };
        if first.engine.is_none() {
            readable_accounts(&root)?;
        }
        let shared = share(plan, &directory)?;
        let present = Plan { mounts: present(&shared, &root)?, ..shared };
        if matches!(plan.root, Root::Overlay { .. }) {
            tree::make_missing(&root, &present.mounts)?;
            tree::make_working_directory(&root, &present)?;
        }
        let mut args = vec![LAUNCHER.to_owned(), WORD.to_owned()];
        args.extend(plan.process.argv.iter().cloned());
        let capabilities = match first.engine {
            None => known_capabilities(),
            // The tracer needs none, and its guests must not have what the view does not know.
            Some(_) if first.plan.emulate_root => 0,
            // For another map of the root here (`verify_root_map` in the kernel).
            Some(_) => 1 << CapabilitySet::SETFCAP.bits().trailing_zeros(),
        };
        let kernel = sys::mount::has_set_attributes();
        // crun 1.8 opens what is to be changed so as a directory.
        let recursive = |source: &Path| kernel && (!is_crun(runtime) || source.is_dir());
        let terms = Terms { root: &root, args, capabilities, recursive: &recursive };
        let text = Config::of(&present, terms).to_json()?;
        let path = directory.join("config.json");
        std::fs::write(&path, text).map_err(|error| Error::File {
            doing: "write".into(),
            path,
            errno: error.into(),
        })?;
        let short = plan.container.get(..12).unwrap_or("container");
        Ok(Self { id: format!("coracle-{short}-{}", std::process::id()), directory })
    }

    /// Runs the runtime to its end; returns the number of the container's first process. Its
    /// messages go to `said`.
    pub(super) fn start(&self, runtime: &Path, handed: &Handed, said: &OwnedFd) -> Result<u32> {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let program = runtime.display().to_string();
        let mut words = vec![program];
        if is_crun(runtime) {
            // It would look for a controller that an ordinary user has; and refuses hosts that have
            // both versions of them.
            words.push("--cgroup-manager=disabled".into());
            let unified = Path::new("/sys/fs/cgroup/unified");
            if unified.is_dir() {
                let flags = MountFlags::BIND | MountFlags::REC;
                let _ = rustix::mount::mount(unified, "/sys/fs/cgroup", c"", flags, None);
            }
        }
        words.extend(["--root".into(), path("state"), "run".into(), "--detach".into()]);
        words.extend(["--bundle".into(), self.directory.display().to_string()]);
        words.extend(["--pid-file".into(), path("pid")]);
        let handed = handed.numbered();
        words.extend([format!("--preserve-fds={}", handed.len()), self.id.clone()]);
        let status = execute(runtime, &words, &handed, said)?.code();
        let failed = |output: String| Error::Helper {
            program: runtime.into(),
            status: format!("status {status}"),
            output,
        };
        if status != 0 {
            return Err(failed(complaint(said)));
        }
        let text = std::fs::read_to_string(self.directory.join("pid")).unwrap_or_default();
        text.trim().parse().map_err(|_| failed(": it has not written the process id".into()))
    }
}

/// A runtime reads the container's accounts even where it is told numbers, and waits for ever for a
/// pipe without a writer.
fn readable_accounts(root: &Path) -> Result<()> {
    let top = open(root, OFlags::PATH | OFlags::DIRECTORY)?;
    for name in ["etc/passwd", "etc/group"] {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let none = rustix::fs::ResolveFlags::empty();
        let Ok(file) = sys::fs::resolve::open_in_root(&top, name, flags, none) else { continue };
        let kind = rustix::fs::fstat(&file).map_err(call("look at the container's accounts"))?;
        let kind = FileType::from_raw_mode(kind.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return Err(Error::Invalid {
                what: "image".into(),
                value: format!("/{name}"),
                why: "it is not a regular file, and the host's runtime would read it".into(),
            });
        }
    }
    Ok(())
}

/// Whether a mount is the host's root in its own place: then it is the tree, as it is.
fn is_whole(mount: &Mount) -> bool {
    matches!(mount, Mount::Bind { target, .. } if target == Path::new("/"))
}

/// The plan with what it takes from other containers mounted in the bundle, where the runtime finds
/// it by its path.
fn share(plan: &Plan, directory: &Path) -> Result<Plan> {
    let mut plan = plan.clone();
    for (n, mount) in plan.mounts.iter_mut().enumerate() {
        let Mount::Shared { of, path } = mount else { continue };
        let tree = tree::of_process(*of, path)?;
        let source = directory.join(format!("shared-{n}"));
        make(&source)?;
        sys::mount::attach(tree.as_fd(), &source).map_err(|errno| Error::Mount {
            what: "another container's memory".into(),
            target: path.clone(),
            errno: errno.into(),
        })?;
        let (target, flags) = (path.clone(), crate::plan::MountFlags::default());
        *mount = Mount::Bind { source, target, flags, optional: false };
    }
    Ok(plan)
}

/// The mounts of a plan that can be made: optional ones need their source, and a place in a tree
/// that is not the container's own.
fn present(plan: &Plan, root: &Path) -> Result<Vec<Mount>> {
    let foreign = matches!(plan.root, Root::Directory { .. });
    let top = open(root, OFlags::PATH | OFlags::DIRECTORY)?;
    let mut all = Vec::new();
    for mount in plan.mounts.iter().filter(|mount| !is_whole(mount)) {
        if let Mount::Bind { source, target, optional, .. } = mount {
            match rustix::fs::stat(source) {
                Ok(_) => {}
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) if *optional => continue,
                Err(errno) => {
                    return Err(Error::MountSource {
                        path: source.clone(),
                        target: target.clone(),
                        errno: errno.into(),
                    });
                }
            }
            if *optional && foreign && !has(&top, target) {
                continue;
            }
        }
        // The host's `/dev` may have no place for it, and message queues work without.
        let unneeded = |target: &Path| !has_own_devices(plan) && !target.exists();
        match mount {
            Mount::Kernel { kind, target, .. } if kind == "mqueue" && unneeded(target) => {}
            mount => all.push(mount.clone()),
        }
    }
    Ok(all)
}

pub(super) fn is_crun(runtime: &Path) -> bool {
    runtime.file_name().is_some_and(|name| name.as_bytes().starts_with(b"crun"))
}

/// Whether a tree has a path.
fn has(top: &OwnedFd, path: &Path) -> bool {
    let path = path.strip_prefix("/").unwrap_or(path).as_os_str().as_bytes();
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    sys::fs::resolve::open_in_root(top, path, flags, rustix::fs::ResolveFlags::empty()).is_ok()
}

/// All capabilities that kernel and this program know.
fn known_capabilities() -> u64 {
    let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
    let last: u32 = last.trim().parse().unwrap_or(31);
    u64::MAX >> (63 - last.min(63))
}

pub(super) fn make(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|error| Error::File {
        doing: "make".into(),
        path: directory.into(),
        errno: error.into(),
    })
}
