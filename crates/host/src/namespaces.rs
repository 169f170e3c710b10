//! User namespaces: tests that they can be made and that they grant privileges, which some hosts
//! deny.
//!
//! The trial takes the same steps as a container: unshare, write the id maps, mount something. The
//! error of the first failing step, together with the switches in `/proc/sys`, shows the cause:
//!
//! | step | answer | meaning |
//! |---|---|---|
//! | unshare | `ENOSPC`, `EUSERS` | `max_user_namespaces` is used up or 0, here or in a namespace above |
//! | unshare | `EINVAL` | the kernel has none, or (RHEL 7) they are off at boot |
//! | unshare | `EPERM` | a sysctl of Debian, a chroot, an unmapped id, SELinux, or a seccomp filter: told apart below |
//! | unshare | `ENOSYS`, SIGSYS | a seccomp filter |
//! | maps, mount | `EPERM`, `EACCES` | AppArmor lets it be made and takes the capabilities away |

use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use sys::probe::{Child, Ended, Link};

use crate::attempt::{Failure, Step, attempt};
use crate::security::{Security, status_field};
use crate::{SeccompMode, Trial};

/// The cause for which user namespaces do not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Barrier {
    /// The kernel was built without them.
    NotInKernel,
    /// `user.max_user_namespaces` is 0, here or in a namespace above.
    Limit,
    /// `kernel.unprivileged_userns_clone` is 0 (Debian, Arch).
    Sysctl,
    /// AppArmor allows them but removes every capability inside (Ubuntu 23.10 and later).
    AppArmor,
    /// SELinux refuses.
    SeLinux,
    /// A seccomp filter of an outer container refuses `unshare` or `clone`.
    Seccomp,
    /// The caller's root directory is not the root of its mount namespace.
    Chroot,
    /// The caller's own ids are not mapped in its user namespace.
    Unmapped,
    /// Something else.
    Other,
}

/// Results of the trials.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespaces {
    /// A user namespace with one mapped id, in which a mount could be made.
    pub user: Trial,
    /// The cause of a failure, for programs to decide on.
    pub barrier: Option<Barrier>,
    /// `user.max_user_namespaces` in this namespace.
    pub max_user: Option<u64>,
    /// A pid namespace in it, with a fresh `/proc`.
    pub pid: Trial,
    /// A fresh `/proc` could be mounted in that pid namespace. Refused inside containers that mask
    /// parts of `/proc`.
    pub proc_mount: Trial,
    /// A network namespace in it.
    pub net: Trial,
    /// An ipc namespace in it.
    pub ipc: Trial,
    /// A uts namespace in it.
    pub uts: Trial,
    /// A cgroup namespace in it (4.6).
    pub cgroup: Trial,
    /// A time namespace in it (5.6).
    pub time: Trial,
}

/// Tries a user namespace in which something can be mounted; returns the cause of a failure.
pub(crate) fn user(security: &Security, timeout: Duration) -> (Trial, Option<Barrier>) {
    let how = "unshare(CLONE_NEWUSER), id maps, mount(tmpfs) in a child";
    match attempt(timeout, mount_something) {
        Ok(()) => (Trial::works(how), None),
        Err(failure) => {
            let barrier = barrier_of(&failure, &Circumstances::read(security));
            let trial = Trial::fails(how, format!("{}: {}", barrier.means(), failure.why()))
                .with_errno(failure.number())
                .with_advice(barrier.advice());
            (trial, Some(barrier))
        }
    }
}

impl Namespaces {
    pub(crate) fn probe(security: &Security, timeout: Duration) -> Namespaces {
        let (user, barrier) = user(security, timeout);
        let within = |flags: UnshareFlags, name: &str| {
            let how = format!("unshare({name}) in a user namespace in a child");
            trial_of(how, &user, || {
                attempt(timeout, |link| {
                    enter_user_namespace(link)?;
                    link.unshare(flags).step(&format!("unshare({name})"))
                })
            })
        };
        Namespaces {
            pid: within(UnshareFlags::NEWPID, "CLONE_NEWPID"),
            net: within(UnshareFlags::NEWNET, "CLONE_NEWNET"),
            ipc: within(UnshareFlags::NEWIPC, "CLONE_NEWIPC"),
            uts: within(UnshareFlags::NEWUTS, "CLONE_NEWUTS"),
            cgroup: within(UnshareFlags::NEWCGROUP, "CLONE_NEWCGROUP"),
            time: within(UnshareFlags::NEWTIME, "CLONE_NEWTIME"),
            proc_mount: trial_of("mount(proc) in a new pid namespace".into(), &user, || {
                attempt(timeout, mount_proc)
            })
            .advise(
                "the surrounding container masks parts of /proc; pid namespaces get the host's /proc \
                 by a bind mount instead",
            ),
            max_user: security
                .sysctl("user.max_user_namespaces")
                .and_then(|value| u64::try_from(value).ok()),
            user,
            barrier,
        }
    }
}

/// A trial that needs a user namespace.
fn trial_of(how: String, user: &Trial, try_it: impl FnOnce() -> Result<(), Failure>) -> Trial {
    if user.is_fails() {
        return Trial::fails(how, "needs a user namespace");
    }
    match try_it() {
        Ok(()) => Trial::works(how),
        Err(failure) => Trial::fails(how, failure.why()).with_errno(failure.number()),
    }
}

/// Moves a probe's child into its own user and mount namespaces, with its own id mapped to root and
/// no mount shared with the outside.
pub(crate) fn enter_user_namespace(link: &Link) -> Result<(), Failure> {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    link.unshare(UnshareFlags::NEWUSER).step("unshare(CLONE_NEWUSER)")?;
    write_map("/proc/self/setgroups", "deny").or_else(|failure| match failure.errno {
        // Before 3.19 this file does not exist, and gid_map may be written without it.
        Some(Errno::NOENT) => Ok(()),
        _ => Err(failure),
    })?;
    write_map("/proc/self/uid_map", &format!("0 {uid} 1\n"))?;
    write_map("/proc/self/gid_map", &format!("0 {gid} 1\n"))?;
    own_mounts(link)
}

/// Makes a mount namespace whose mounts do not propagate to the outside.
pub(crate) fn own_mounts(link: &Link) -> Result<(), Failure> {
    link.unshare(UnshareFlags::NEWNS).step("unshare(CLONE_NEWNS)")?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .or_else(|errno| match errno {
            // In a chroot "/" is not a mount point; nothing mounted here outlives the namespace
            // anyway.
            Errno::INVAL => Ok(()),
            errno => Err(errno),
        })
        .step("mount(MS_REC|MS_PRIVATE) of /")
}

fn write_map(path: &str, text: &str) -> Result<(), Failure> {
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .step(&format!("writing {path}"))
}

fn mount_something(link: &Link) -> Result<(), Failure> {
    enter_user_namespace(link)?;
    mount("tmpfs", "/proc", "tmpfs", MountFlags::NOSUID, None).step("mount(tmpfs)")
}

fn mount_proc(link: &Link) -> Result<(), Failure> {
    enter_user_namespace(link)?;
    link.unshare(UnshareFlags::NEWPID).step("unshare(CLONE_NEWPID)")?;
    let first = Child::spawn(|_| match mount("proc", "/proc", "proc", MountFlags::NOSUID, None) {
        Ok(()) => 0,
        Err(errno) => errno.raw_os_error(),
    })
    .step("fork in a new pid namespace")?;
    let deadline = std::time::Instant::now() + Duration::from_secs(2);
    match first.finish(deadline).step("waitpid")?.ended {
        Ended::Exited(0) => Ok(()),
        Ended::Exited(code) => Err(Failure::new("mount(proc)", Errno::from_raw_os_error(code))),
        Ended::Killed(signal) => {
            Err(Failure { step: "mount(proc)".into(), errno: None, signal: Some(signal) })
        }
        Ended::TimedOut => {
            Err(Failure { step: "mount(proc) hangs".into(), errno: None, signal: None })
        }
    }
}

/// Facts that distinguish the causes of `EPERM`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Circumstances {
    clone_switch: Option<i64>,
    apparmor_switch: Option<i64>,
    apparmor_label: Option<String>,
    selinux_enforcing: bool,
    seccomp: SeccompMode,
    chroot: bool,
    mapped: bool,
}

impl Circumstances {
    fn read(security: &Security) -> Circumstances {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let uid_map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let uid = rustix::process::geteuid().as_raw();
        Circumstances {
            clone_switch: security.sysctl("kernel.unprivileged_userns_clone"),
            apparmor_switch: security.sysctl("kernel.apparmor_restrict_unprivileged_userns"),
            apparmor_label: security.label.clone().filter(|_| security.has_lsm("apparmor")),
            selinux_enforcing: security.selinux_enforcing == Some(true),
            seccomp: SeccompMode::from_status(status_field(&status, "Seccomp")),
            // Without /proc neither is known and neither is suspected.
            chroot: !mountinfo.is_empty() && !root_is_mount_point(&mountinfo),
            mapped: uid_map.is_empty() || is_mapped(&uid_map, uid),
        }
    }
}

/// A root directory that is not a mount point was set by chroot(2), and the kernel refuses user
/// namespaces there.
fn root_is_mount_point(mountinfo: &str) -> bool {
    mountinfo.lines().any(|line| line.split(' ').nth(4) == Some("/"))
}

fn is_mapped(uid_map: &str, uid: u32) -> bool {
    uid_map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap_or(0_u64));
        let (Some(inside), Some(_), Some(count)) = (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        (inside..inside + count).contains(&u64::from(uid))
    })
}

fn barrier_of(failure: &Failure, around: &Circumstances) -> Barrier {
    let unshare = failure.step.starts_with("unshare(CLONE_NEWUSER)");
    match failure.errno {
        None if failure.signal == Some(31) => Barrier::Seccomp,
        Some(Errno::NOSPC | Errno::USERS) if unshare => Barrier::Limit,
        Some(Errno::INVAL) if unshare => Barrier::NotInKernel,
        Some(Errno::NOSYS) => Barrier::Seccomp,
        Some(Errno::PERM | Errno::ACCESS) if unshare => around.why_refused(),
        Some(Errno::PERM | Errno::ACCESS) => around.why_powerless(),
        _ => Barrier::Other,
    }
}

impl Circumstances {
    /// The cause if `unshare` itself was refused.
    fn why_refused(&self) -> Barrier {
        if self.clone_switch == Some(0) {
            Barrier::Sysctl
        } else if !self.mapped {
            Barrier::Unmapped
        } else if self.chroot {
            Barrier::Chroot
        } else if self.seccomp == SeccompMode::Filter {
            Barrier::Seccomp
        } else if self.apparmor_switch.is_some_and(|value| value > 0) {
            Barrier::AppArmor
        } else if self.selinux_enforcing {
            Barrier::SeLinux
        } else {
            Barrier::Other
        }
    }

    /// The cause if the namespace was made, but a later step was refused.
    fn why_powerless(&self) -> Barrier {
        let confined = self.apparmor_label.as_deref().is_some_and(|label| label != "unconfined");
        if self.apparmor_switch.is_some_and(|value| value > 0) || confined {
            Barrier::AppArmor
        } else if self.seccomp == SeccompMode::Filter {
            Barrier::Seccomp
        } else if self.selinux_enforcing {
            Barrier::SeLinux
        } else {
            Barrier::Other
        }
    }
}

impl Barrier {
    /// Describes the cause in a few words.
    pub fn means(self) -> &'static str {
        match self {
            Barrier::NotInKernel => {
                "the kernel has no user namespaces, or they were disabled at boot"
            }
            Barrier::Limit => "user.max_user_namespaces is 0 or used up",
            Barrier::Sysctl => "kernel.unprivileged_userns_clone is 0",
            Barrier::AppArmor => "AppArmor removes the capabilities inside",
            Barrier::SeLinux => "SELinux refuses",
            Barrier::Seccomp => "a seccomp filter of the surrounding container refuses",
            Barrier::Chroot => "coracle runs in a chroot, where the kernel refuses them",
            Barrier::Unmapped => "the caller's user id is not mapped in its own namespace",
            Barrier::Other => "refused for an unknown reason",
        }
    }

    /// The remedy, and who can apply it. Coracle also works without user namespaces; see engine I1.
    pub fn advice(self) -> &'static str {
        match self {
            Barrier::NotInKernel => {
                "administrator: use a kernel with CONFIG_USER_NS; on RHEL 7 boot with \
                 user_namespace.enable=1 and set user.max_user_namespaces"
            }
            Barrier::Limit => "administrator: sysctl -w user.max_user_namespaces=28633",
            Barrier::Sysctl => "administrator: sysctl -w kernel.unprivileged_userns_clone=1",
            Barrier::AppArmor => {
                "administrator: add an AppArmor profile for coracle with 'userns,' (see \
                 apparmor.d(5)), or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
            }
            Barrier::SeLinux => {
                "administrator: 'ausearch -m avc -ts recent' shows the missing rule"
            }
            Barrier::Seccomp => {
                "start the surrounding container with a seccomp profile that allows unshare, clone \
                 and mount (docker: --security-opt seccomp=unconfined --security-opt \
                 apparmor=unconfined)"
            }
            Barrier::Chroot => "start coracle outside the chroot, or enter it by pivot_root",
            Barrier::Unmapped => "start the surrounding container with this user id in its map",
            Barrier::Other => "use an engine that needs no namespaces",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(step: &str, errno: Errno, around: Circumstances) -> Barrier {
        barrier_of(&Failure::new(step, errno), &Circumstances { mapped: true, ..around })
    }

    #[test]
    fn each_refusal_is_told_from_the_others() {
        let unshare = "unshare(CLONE_NEWUSER)";
        let nothing = Circumstances::default;
        assert_eq!(refused(unshare, Errno::NOSPC, nothing()), Barrier::Limit);
        assert_eq!(refused(unshare, Errno::USERS, nothing()), Barrier::Limit);
        assert_eq!(refused(unshare, Errno::INVAL, nothing()), Barrier::NotInKernel);
        assert_eq!(refused(unshare, Errno::NOSYS, nothing()), Barrier::Seccomp);
        assert_eq!(refused(unshare, Errno::PERM, nothing()), Barrier::Other);
        let debian = Circumstances { clone_switch: Some(0), ..nothing() };
        assert_eq!(refused(unshare, Errno::PERM, debian), Barrier::Sysctl);
        let docker = Circumstances { seccomp: SeccompMode::Filter, ..nothing() };
        assert_eq!(refused(unshare, Errno::PERM, docker.clone()), Barrier::Seccomp);
        assert_eq!(refused("mount(tmpfs)", Errno::PERM, docker), Barrier::Seccomp);
        let chroot = Circumstances { chroot: true, ..nothing() };
        assert_eq!(refused(unshare, Errno::PERM, chroot), Barrier::Chroot);
        let ubuntu = Circumstances { apparmor_switch: Some(1), ..nothing() };
        assert_eq!(
            refused("writing /proc/self/uid_map", Errno::ACCESS, ubuntu.clone()),
            Barrier::AppArmor
        );
        assert_eq!(refused("mount(tmpfs)", Errno::ACCESS, ubuntu), Barrier::AppArmor);
        let killed = Failure { step: "the trial".into(), errno: None, signal: Some(31) };
        assert_eq!(barrier_of(&killed, &nothing()), Barrier::Seccomp);
    }

    #[test]
    fn maps_and_roots() {
        assert!(is_mapped("         0          0 4294967295\n", 1000));
        assert!(!is_mapped("         0       1000          1\n", 1000));
        assert!(!is_mapped("", 0));
        assert!(root_is_mount_point("22 1 254:0 / / rw - ext4 /dev/vda rw\n"));
        assert!(!root_is_mount_point("22 1 254:0 / /proc rw - proc proc rw\n"));
    }
}
