//! Ids and owners in a namespace with one id: what the kernel cannot keep, the view shows inside
//! the program's own process, by the rules and with the records of the modes without namespaces.
//!
//! ```text
//!   program ──chown("f", 42, 42)──► stage, in the program's process: gives f a record
//!           ──stat("f")───────────► the kernel's answer, and the record where there is one
//! ```
//!
//! The kernel makes the tree, so paths are its own; the stage's file, the file that processes
//! share and the log of records are mounted at a place that `/proc` or `/sys` has for other file
//! systems ([`POINTS`]), so nothing is made in the container's tree. What the stage cannot catch or
//! load (32-bit programs, code that is made while a program runs, what enters namespaces of its
//! own) runs by the kernel alone: it sees root's files, and may have none of other owners.
//!
//! It is no boundary: every process has the caller's rights, whatever ids it believes in.

use crate::engines::inprocess::become_guest::{TEXTS, in_namespaces};
use crate::engines::interpose::prepare;
use crate::error::{Error, Result};
use crate::launch::program::{Ready, limits, run};
use crate::plan::{Ids, Plan, Process};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Directories that the kernel keeps empty for other file systems, best first.
const POINTS: [&str; 3] = ["/proc/fs/nfsd", "/sys/fs/fuse/connections", "/sys/kernel/debug"];
/// Where the shared file lies once the first program runs.
const SHARED: &str = hostfs::layout::SHARED;

/// Whether the view shows the ids of a plan.
pub(super) fn is_wanted(plan: &Plan) -> bool {
    plan.emulate_root && matches!(plan.ids, Ids::Single { .. }) && cfg!(target_arch = "x86_64")
}

/// What is mounted, opened while the host's paths still lead to it.
#[derive(Debug)]
pub(super) struct Seen {
    tree: OwnedFd,
    texts: Option<OwnedFd>,
}

impl Seen {
    /// Makes the directory and copies it into detached mounts. `None` on kernels before 5.2, and
    /// where nothing is to be shown.
    pub(super) fn open(plan: &Plan) -> Result<Option<Self>> {
        if !is_wanted(plan) {
            return Ok(None);
        }
        let place = plan.place.join(hostfs::layout::RUN).join(prepare::SEEN);
        // A boundary shares no file with other containers.
        let beside = plan.beside_image.as_ref().filter(|_| !plan.isolate);
        make(&plan.place, &place, beside.map(PathBuf::as_path)).map_err(|error| Error::File {
            doing: "make".into(),
            path: place.clone(),
            errno: error.into(),
        })?;
        let failed = |errno: Errno| Error::MountSource {
            path: place.clone(),
            target: POINTS[0].into(),
            errno: errno.into(),
        };
        let tree = match sys::mount::copy_tree(&place) {
            Err(Errno::NOSYS) => return Ok(None),
            result => result.map_err(failed)?,
        };
        let texts = beside.and_then(|beside| sys::mount::copy_tree(beside).ok());
        Ok(Some(Self { tree, texts }))
    }

    /// Mounts it. The container's tree is made, and `/proc` is in it.
    pub(super) fn mount(self) {
        for point in POINTS {
            if sys::mount::attach(self.tree.as_fd(), Path::new(point)).is_ok() {
                if let Some(texts) = self.texts {
                    let _ = sys::mount::attach(texts.as_fd(), &Path::new(point).join(TEXTS));
                }
                return;
            }
        }
    }
}

/// Makes the directory with the container's log of records in it, and the stage, which all
/// containers of an image have in common.
fn make(container: &Path, place: &Path, beside: Option<&Path>) -> std::io::Result<()> {
    std::fs::create_dir_all(place.join(TEXTS))?;
    if let Some(beside) = beside {
        let path = place.join(prepare::stage_name(crate::launch::run_files::STAGE, 0));
        if !path.exists() {
            // Where that fails, each container has its own.
            let _ = prepare::link_stage(beside, &path);
        }
    }
    prepare::clean_run(place);
    let (log, seen) =
        (container.join(hostfs::layout::INODE_LOG), place.join(hostfs::layout::INODE_LOG));
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&log)?;
    if seen.metadata().is_ok_and(|found| is_same(&found, &file)) {
        return Ok(());
    }
    let _ = std::fs::remove_file(&seen);
    std::fs::hard_link(&log, &seen)
}

fn is_same(found: &Metadata, file: &File) -> bool {
    file.metadata().is_ok_and(|other| (found.dev(), found.ino()) == (other.dev(), other.ino()))
}

/// Where the container has what was mounted.
fn point() -> Option<PathBuf> {
    let mut points = POINTS.iter().map(Path::new);
    points.find(|point| point.join(TEXTS).is_dir()).map(Path::to_path_buf)
}

/// Turns the process into the program; returns why that was not possible.
pub(super) fn execute(plan: &Plan, ready: &Ready, fresh: bool) -> Error {
    let point = is_wanted(plan).then(point);
    if let (Some(None), false) = (&point, fresh)
        && let Err(error) = check_user(&plan.process)
    {
        return error;
    }
    if let Some(point) = point.flatten() {
        let fresh = fresh || !point.join(SHARED).exists();
        match in_namespaces(plan, ready, &point, fresh) {
            // For the kernel.
            Ok(Error::Vanished(why)) if why.is_empty() => {}
            Ok(Error::Vanished(why)) => tell(&why),
            Ok(error) => return error,
            // The stage was not made ready.
            Err(error) => tell(&error.to_string()),
        }
    }
    match limits(&plan.process) {
        Ok(()) => run(ready),
        Err(error) => error,
    }
}

/// In a container that was started without the view nobody can become another user than the one
/// that the kernel knows there.
fn check_user(process: &Process) -> Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    for (kind, id, own) in [("user", process.uid, uid), ("group", process.gid, gid)] {
        if id != own {
            return Err(Error::UnmappedId { kind: kind.into(), id });
        }
    }
    Ok(())
}

/// Tells the user, on the program's standard error, what the program is executed without.
fn tell(why: &str) {
    let line =
        format!("coracle: ids and owners are the kernel's, which knows one user here: {why}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}
