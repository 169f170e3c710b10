//! Overlay mounts in a user namespace, on the store's file system.
//!
//! The trial makes a small overlay in a hidden directory beside the store, changes a file of the
//! lower layer (which must be copied up) and deletes another (which must leave a whiteout). Names
//! in the mount options are relative, so that special characters in the store's path do no harm.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use serde::{Deserialize, Serialize};
use sys::probe::Link;

use crate::attempt::{Failure, Step, attempt};
use crate::namespaces::enter_user_namespace;
use crate::scratch::{Scratch, nearest_existing};
use crate::{Context, FsKind, Namespaces, Programs, Trial};

/// Features of overlay that work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Overlay {
    /// The kernel's own overlay, mounted in a user namespace with `userxattr` (5.11), with one file
    /// changed and one deleted in it.
    pub kernel: Trial,
    /// `mknod c 0 0`, the whiteout, by an unprivileged user (5.8).
    pub whiteout: Trial,
    /// The option `volatile` (5.10), which avoids the sync of the whole file system at the last
    /// unmount.
    pub volatile: Trial,
    /// `fuse-overlayfs`: the program is installed, and `/dev/fuse` can be opened.
    pub fuse: Trial,
}

const HOW_KERNEL: &str = "mount(overlay, userxattr) in a user namespace on the store's file system; a file changed and one deleted";
const HOW_FUSE: &str = "fuse-overlayfs run in a user namespace on the store's file system";

impl Overlay {
    pub(crate) fn probe(
        context: &Context,
        namespaces: &Namespaces,
        programs: &Programs,
    ) -> Overlay {
        let Some(near) = context.store.as_deref().and_then(nearest_existing) else {
            return Overlay::default();
        };
        let whiteout = match Scratch::new_in(&near) {
            Ok(scratch) => whiteout(scratch.path()),
            Err(errno) => {
                let why = format!("cannot make a directory in {}: {errno}", near.display());
                let trial = Trial::fails(HOW_KERNEL, why).with_errno(Some(errno.raw_os_error()));
                let fuse = fuse(context, &near, namespaces, programs);
                return Overlay {
                    kernel: trial.clone(),
                    whiteout: trial.clone(),
                    volatile: trial,
                    fuse,
                };
            }
        };
        let with = |options: &'static str, how: &str| {
            if namespaces.user.is_fails() {
                return Trial::fails(how, "needs a user namespace");
            }
            match mounted(context.timeout, &near, options) {
                Ok(()) => Trial::works(how),
                Err(failure) => {
                    let advice = kernel_advice(&failure, &near);
                    Trial::fails(how, failure.why())
                        .with_errno(failure.number())
                        .with_advice(advice)
                }
            }
        };
        Overlay {
            kernel: with("userxattr", HOW_KERNEL),
            volatile: with("userxattr,volatile", "the same with the option volatile"),
            whiteout,
            fuse: fuse(context, &near, namespaces, programs),
        }
    }
}

/// The trial on which the choice of an engine depends. Untried where nothing depends on it: where
/// no file can be made, and on a network file system, which cannot hold an overlay's upper layer.
pub(crate) fn of_kernel(store: &Path, timeout: Duration) -> Trial {
    let Some(near) = nearest_existing(store) else { return Trial::Untried };
    let is_writable = rustix::fs::access(&near, rustix::fs::Access::WRITE_OK).is_ok();
    if !is_writable || FsKind::of(&near).is_none_or(FsKind::is_network) {
        return Trial::Untried;
    }
    match mounted(timeout, &near, "userxattr") {
        Ok(()) => Trial::works(HOW_KERNEL),
        Err(failure) => Trial::fails(HOW_KERNEL, failure.why()).with_errno(failure.number()),
    }
}

fn whiteout(directory: &Path) -> Trial {
    let how = "mknod(S_IFCHR, 0:0) on the store's file system";
    let made = rustix::fs::mknodat(
        CWD,
        directory.join("whiteout"),
        FileType::CharacterDevice,
        Mode::RUSR | Mode::WUSR,
        0,
    );
    match made {
        Ok(()) => Trial::works(how),
        Err(errno) => Trial::fails(how, format!("mknod: {errno}"))
            .with_errno(Some(errno.raw_os_error()))
            .with_advice(
                "needs kernel 5.8 or newer; without it images with deletions are flattened before use",
            ),
    }
}

fn mounted(timeout: Duration, near: &Path, options: &'static str) -> Result<(), Failure> {
    let scratch = prepared(near)?;
    attempt(timeout, |link| {
        enter_user_namespace(link)?;
        rustix::process::chdir(scratch.path()).step("chdir")?;
        let data = format!("lowerdir=lower,upperdir=upper,workdir=work,{options}");
        let data = std::ffi::CString::new(data).unwrap_or_default();
        mount("overlay", "merged", "overlay", MountFlags::empty(), data.as_c_str())
            .step("mount(overlay)")?;
        use_it()
    })
}

/// Makes `lower` with two files, and three empty directories.
fn prepared(near: &Path) -> Result<Scratch, Failure> {
    let scratch = Scratch::new_in(near).step("mkdir")?;
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(scratch.path().join(name)).step("mkdir")?;
    }
    for name in ["changed", "deleted"] {
        std::fs::write(scratch.path().join("lower").join(name), "below").step("write")?;
    }
    Ok(scratch)
}

fn use_it() -> Result<(), Failure> {
    std::fs::write("merged/changed", "above").step("changing a file in the overlay")?;
    std::fs::remove_file("merged/deleted").step("deleting a file in the overlay")?;
    let right = std::fs::read_to_string("upper/changed").is_ok_and(|text| text == "above")
        && std::fs::read_to_string("lower/changed").is_ok_and(|text| text == "below")
        && !Path::new("merged/deleted").exists();
    if right {
        Ok(())
    } else {
        let step = "the overlay does not show the changes made in it".into();
        Err(Failure { step, errno: None, signal: None })
    }
}

fn kernel_advice(failure: &Failure, near: &Path) -> String {
    let kind = FsKind::of(near).unwrap_or_default();
    match failure.errno {
        Some(Errno::NODEV) => "administrator: modprobe overlay".into(),
        Some(Errno::PERM | Errno::ACCESS) => {
            "needs kernel 5.11 or newer (RHEL 8.5 and newer have it too)".into()
        }
        _ if kind.is_network() || matches!(kind, FsKind::Overlay | FsKind::Fuse) => format!(
            "{kind:?} cannot hold the upper layer of an overlay: set CORACLE_DIR to a local disk; \
             otherwise trees are copied"
        ),
        _ => "trees are shared by reflinks or hard links, or copied, instead".into(),
    }
}

/// Runs `fuse-overlayfs` in the foreground in a child's namespaces until its mount shows a file.
fn fuse(context: &Context, near: &Path, namespaces: &Namespaces, programs: &Programs) -> Trial {
    let Some(program) = programs.find("fuse-overlayfs") else {
        return Trial::fails("PATH", "fuse-overlayfs is not installed")
            .with_advice("only needed if the kernel's own overlay does not work");
    };
    if namespaces.user.is_fails() {
        return Trial::fails(HOW_FUSE, "needs a user namespace");
    }
    if crate::inside::is_gvisor() {
        return Trial::fails("/proc/version", "gVisor does not serve fuse-overlayfs");
    }
    let open = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = open {
        return Trial::fails("open(/dev/fuse)", format!("/dev/fuse: {error}"))
            .with_errno(error.raw_os_error())
            .with_advice("administrator: modprobe fuse; chmod 0666 /dev/fuse");
    }
    let result = prepared(near).and_then(|scratch| {
        attempt(context.timeout, |link| run_fuse(link, &program, scratch.path()))
    });
    match result {
        Ok(()) => Trial::works(HOW_FUSE),
        Err(failure) => Trial::fails(HOW_FUSE, failure.why()).with_errno(failure.number()),
    }
}

fn run_fuse(link: &Link, program: &Path, directory: &Path) -> Result<(), Failure> {
    enter_user_namespace(link)?;
    rustix::process::chdir(directory).step("chdir")?;
    let mut server = Command::new(program)
        .args(["-f", "-o", "lowerdir=lower,upperdir=upper,workdir=work", "merged"])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .step("starting fuse-overlayfs")?;
    let deadline = Instant::now() + Duration::from_secs(2);
    while !Path::new("merged/changed").exists() {
        if let Ok(Some(status)) = server.try_wait() {
            let step = format!("fuse-overlayfs ended ({status})");
            return Err(Failure { step, errno: None, signal: None });
        }
        if Instant::now() >= deadline {
            let _ = server.kill();
            let step = "fuse-overlayfs did not mount within 2 s".into();
            return Err(Failure { step, errno: None, signal: None });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let result = use_it();
    // Its end removes the mount; the end of the namespace would do the same.
    let _ = server.kill();
    let _ = server.wait();
    result
}
