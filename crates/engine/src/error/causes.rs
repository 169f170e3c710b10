//! The usual causes of an errno, by the step that failed: a sentence, and what can be done.
//!
//! The kernel says `EINVAL` for a dozen reasons. Which of them it is follows mostly from the step:
//! what is listed here was met on real hosts or is in the manual page of the call.

use super::Errno;
use rustix::io::Errno as E;

/// The kind of step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// `mount(2)`, `move_mount(2)` of something that is not an overlay.
    Mount,
    /// `mount(2)` of an overlay.
    Overlay,
    /// `pivot_root(2)` and what belongs to it.
    Root,
    /// Opening or copying the source of a mount.
    MountSource,
    /// Making a file or directory to mount on.
    MountPoint,
    /// `setns(2)`.
    Enter,
    /// A file of Coracle or of the kernel.
    File,
    /// A file of a control group.
    Cgroup,
    /// `fork(2)`, `clone(2)`.
    Fork,
    /// `seccomp(2)`.
    Filter,
    /// Any other system call.
    Call,
}

const OTHER_ENGINE: &str = "use an engine without mounts: --execmode=P1 or --execmode=I1";

/// What usually causes this errno at this step, and what can be done about it.
pub(super) fn hint(step: Step, errno: Errno) -> Option<String> {
    let errno = E::from_raw_os_error(errno.0);
    let text = of_step(step, errno).or_else(|| of_any(errno))?;
    Some(text.replace("OTHER_ENGINE", OTHER_ENGINE))
}

/// Causes that only this step has.
fn of_step(step: Step, errno: E) -> Option<&'static str> {
    Some(match (step, errno) {
        (Step::Mount | Step::Overlay | Step::Root, E::PERM | E::ACCESS) => {
            "an enclosing container or a security policy (AppArmor, SELinux) forbids mounts: \
             OTHER_ENGINE; `coracle doctor` says what works here"
        }
        (Step::Overlay, E::INVAL) => {
            "the file system of the store cannot hold the layers of an overlay (NFS, another \
             overlay, a kernel before 5.11): use a store on a local file system (CORACLE_DIR), or \
             --execmode=P1"
        }
        (Step::Overlay, E::STALE) => {
            "the upper directory was used with other layers before: remove the container and make \
             it anew"
        }
        (Step::Overlay, E::BUSY) => {
            "the upper directory is mounted already: stop the container's other processes"
        }
        (Step::Overlay | Step::Mount, E::NODEV) => {
            "the kernel has no such file system, or its module is not loaded: ask the \
             administrator, or use --execmode=P1"
        }
        (Step::Root, E::INVAL) => {
            "the root of this process is not a mount point, as in a chroot or an initramfs, so it \
             cannot be exchanged: OTHER_ENGINE"
        }
        (Step::Mount, E::INVAL) => {
            "the mount's options do not fit its kind, or the kernel is older than the option: \
             look at the options of --volume and --tmpfs"
        }
        (Step::Mount | Step::Overlay | Step::MountSource, E::NOSPC) => {
            "the limit of mounts is reached (/proc/sys/fs/mount-max)"
        }
        (Step::MountSource, E::INVAL) => {
            "the kernel does not let it be shown at another place: a mount beneath it hides \
             something from the caller, or it belongs to another mount namespace"
        }
        (Step::MountSource, E::PERM | E::ACCESS) => {
            "the caller may not read it, or not search a directory above it"
        }
        (Step::MountPoint, E::ROFS) => {
            "the place does not exist and lies on a read-only file system: mount at a place that \
             exists"
        }
        (Step::MountPoint, E::PERM | E::ACCESS) => {
            "the place does not exist and the container's user may not make it: mount at a place \
             that exists"
        }
        (Step::Enter, E::PERM | E::ACCESS) => {
            "the container belongs to another user, or was started with other privileges: run the \
             command as the user who started it"
        }
        (Step::Enter, E::INVAL) => {
            "this process has several threads or is in that namespace already, or the kernel has \
             no such namespaces"
        }
        (Step::Cgroup, E::PERM | E::ACCESS) => {
            "the control group does not belong to the caller: log in through systemd, or ask for \
             a delegated group; `coracle doctor` shows it"
        }
        (Step::Cgroup, E::NOENT | E::INVAL) => {
            "the controller for this limit is not delegated to the caller, or its value is out of \
             range; `coracle doctor` lists the controllers"
        }
        (Step::File, E::NOENT | E::NOTDIR) => {
            "the file or its directory was removed meanwhile, or never made: if it is the store's, \
             `coracle verify` checks it"
        }
        (Step::Fork, E::AGAIN) => {
            "the limit of processes is reached (ulimit -u, or pids.max of a control group)"
        }
        (Step::Fork, E::NOSPC) => {
            "the limit of nested pid namespaces is reached, or /proc/sys/user/max_pid_namespaces"
        }
        (Step::Filter, E::PERM | E::ACCESS | E::INVAL) => {
            "system call filters are forbidden or not built into this kernel: \
             use --execmode=P2 or --execmode=F2"
        }
        _ => return None,
    })
}

/// Causes that every step can have.
fn of_any(errno: E) -> Option<&'static str> {
    Some(match errno {
        E::PERM => {
            "a security policy (AppArmor, SELinux, a system call filter) or an enclosing container \
             forbids it; `coracle doctor` says what works here"
        }
        E::ACCESS => "the caller has no permission for it, or for a directory above it",
        E::INVAL => {
            "this kernel does not know the request, or not with these arguments; `coracle doctor` \
             says what works here"
        }
        E::NOSPC => {
            "the file system is full, of bytes or of inodes ('coracle prune' frees space in the \
             store), or a limit of the kernel is reached"
        }
        E::DQUOT => "the caller's quota is used up: free space, or move the store (CORACLE_DIR)",
        E::ROFS => "the file system is mounted read-only",
        E::NOSYS => {
            "the kernel is older than this call, or a system call filter around this process hides \
             it; `coracle doctor` says what works here"
        }
        E::NOMEM => "the memory, or that of the enclosing control group, is used up",
        E::AGAIN => "a limit of the caller is reached (ulimit -a)",
        E::FBIG => "the limit of the size of files is reached (ulimit -f)",
        E::IO => "the disk or its server reports an error; `dmesg` may tell",
        E::STALE => "the file is gone on its server: start again, or look at the server's mounts",
        E::TXTBSY => "a program executes the file: start again",
        E::MFILE | E::NFILE => "the limit of open files is reached (ulimit -n)",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_errors_of_every_step_have_a_cause() {
        for step in [
            Step::Mount,
            Step::Overlay,
            Step::Root,
            Step::MountSource,
            Step::MountPoint,
            Step::Enter,
            Step::File,
            Step::Cgroup,
            Step::Fork,
            Step::Filter,
            Step::Call,
        ] {
            for errno in [E::PERM, E::INVAL, E::NOSPC, E::NOSYS, E::ACCESS] {
                let text = hint(step, errno.into());
                assert!(text.is_some_and(|text| text.len() > 20), "{step:?} {errno:?}");
            }
            assert_eq!(hint(step, E::XDEV.into()), None);
        }
        for errno in [E::NOENT, E::DQUOT, E::FBIG, E::IO, E::ROFS, E::STALE, E::TXTBSY] {
            assert!(hint(Step::File, errno.into()).is_some(), "{errno:?}");
        }
        assert!(hint(Step::Root, E::INVAL.into()).unwrap().contains("--execmode=P1"));
    }
}
