//! Control groups: the mounted version, this process's own group, and whether it may change the
//! subtree.
//!
//! Delegation is tested by making a group and moving a child into it. That works if the batch
//! system or systemd has delegated the group (Slurm with `task/cgroup` does not, `systemd-run
//! --user --scope -p Delegate=yes` does). Otherwise a user's systemd may be able to make a scope.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::{Step, attempt};
use crate::programs::{ask, read_trimmed};
use crate::{Context, Programs, Trial};

/// How control groups are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupLayout {
    /// Not mounted, or not probed.
    #[default]
    None,
    /// Version 1 only.
    V1,
    /// Version 2 only.
    V2,
    /// Version 1 with the controllers, and a version 2 tree beside it.
    Hybrid,
}

/// Control groups as seen by the caller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cgroup {
    /// The mounted versions.
    pub layout: CgroupLayout,
    /// Mount point of the version 2 tree.
    pub mount: Option<PathBuf>,
    /// Directory of this process's group in the version 2 tree.
    pub own: Option<PathBuf>,
    /// The group in which this process may make groups and move processes: its own or one above it.
    pub delegated: Option<PathBuf>,
    /// Result of making a group there.
    pub delegation: Trial,
    /// Controllers of the delegated group (`cpu`, `memory`, `pids`, ...), or of the own group if
    /// nothing is delegated.
    pub controllers: Vec<String>,
    /// `systemd-run --user` finds a session manager.
    pub systemd_user: Trial,
}

const HOW: &str = "mkdir in the own group, and a child moved there";

impl Cgroup {
    pub(crate) fn probe(context: &Context, programs: &Programs) -> Cgroup {
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let (layout, mount) = layout(&mountinfo);
        let mut cgroup = Cgroup { layout, ..Cgroup::default() };
        cgroup.own = mount.as_ref().and_then(|mount| mount.directory_of(&own));
        cgroup.mount = mount.map(|mount| mount.point);
        match cgroup.own.clone() {
            Some(own) => cgroup.try_delegation(&own, context.timeout),
            None => {
                cgroup.delegation =
                    Trial::fails("/proc/self/mountinfo", "no version 2 tree is mounted")
                        .with_advice(
                            "limits need control groups of version 2; administrator: boot with \
                         systemd.unified_cgroup_hierarchy=1",
                        );
            }
        }
        let list = cgroup.delegated.as_ref().or(cgroup.own.as_ref());
        cgroup.controllers = list
            .and_then(|group| read_trimmed(group.join("cgroup.controllers")))
            .map(|names| names.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default();
        cgroup.systemd_user = systemd_user(context, programs);
        cgroup
    }

    /// Tries the own group, then the ones above it: in a scope made by systemd the group above is
    /// delegated too.
    fn try_delegation(&mut self, own: &Path, timeout: Duration) {
        let top = self.mount.clone().unwrap_or_default();
        let mut first = None;
        for group in own.ancestors().take_while(|group| group.starts_with(&top)) {
            match make_group(group, timeout) {
                Ok(()) => {
                    self.delegated = Some(group.to_owned());
                    self.delegation = Trial::works(HOW);
                    return;
                }
                Err(trial) => first = first.or(Some(trial)),
            }
        }
        self.delegation = first.unwrap_or_default();
    }
}

fn make_group(parent: &Path, timeout: Duration) -> Result<(), Trial> {
    let group = parent.join(format!("coracle-probe-{}", std::process::id()));
    let fails = |why: String, errno| {
        Trial::fails(HOW, why).with_errno(errno).with_advice(
            "run inside a scope: systemd-run --user --scope -p Delegate=yes; or request a job with \
             delegated control groups",
        )
    };
    std::fs::create_dir(&group)
        .map_err(|error| fails(format!("{}: {error}", parent.display()), error.raw_os_error()))?;
    let moved = attempt(timeout, |_| {
        std::fs::write(group.join("cgroup.procs"), "0").step("writing cgroup.procs")
    });
    // The child is gone, so the group is empty; the kernel may need a moment to notice.
    for _ in 0..50 {
        match std::fs::remove_dir(&group) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => break,
        }
    }
    moved.map_err(|failure| fails(failure.why(), failure.number()))
}

/// A mounted version 2 tree.
struct Mounted {
    /// The mounted directory of the hierarchy.
    root: PathBuf,
    /// The mount point.
    point: PathBuf,
}

impl Mounted {
    /// The directory of the group that `/proc/self/cgroup` names, if the mount shows it.
    fn directory_of(&self, own: &str) -> Option<PathBuf> {
        let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
        let inside = Path::new(path).strip_prefix(&self.root).ok()?;
        if inside.components().any(|part| part.as_os_str() == "..") {
            return None;
        }
        Some(if inside.as_os_str().is_empty() {
            self.point.clone()
        } else {
            self.point.join(inside)
        })
    }
}

fn layout(mountinfo: &str) -> (CgroupLayout, Option<Mounted>) {
    let mut version1 = false;
    let mut version2 = None;
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        match right.split(' ').next() {
            Some("cgroup") => version1 = true,
            Some("cgroup2") => {
                let mut fields = left.split(' ').skip(3);
                if let (Some(root), Some(point)) = (fields.next(), fields.next()) {
                    version2.get_or_insert(Mounted { root: root.into(), point: point.into() });
                }
            }
            _ => {}
        }
    }
    let layout = match (version1, &version2) {
        (false, None) => CgroupLayout::None,
        (true, None) => CgroupLayout::V1,
        (false, Some(_)) => CgroupLayout::V2,
        (true, Some(_)) => CgroupLayout::Hybrid,
    };
    (layout, version2)
}

/// Lets the user's systemd run `true` in a scope.
fn systemd_user(context: &Context, programs: &Programs) -> Trial {
    let how = "systemd-run --user --scope true";
    let Some(program) = programs.find("systemd-run") else {
        return Trial::fails("PATH", "systemd-run is not installed");
    };
    let Some(directory) = context.env.get("XDG_RUNTIME_DIR") else {
        return Trial::fails(
            "environment",
            "XDG_RUNTIME_DIR is not set: there is no systemd user session",
        )
        .with_advice(
            "log in by ssh or machinectl instead of su; for batch jobs: loginctl enable-linger",
        );
    };
    // systemd-run waits long for a missing manager, so its socket is tried first.
    let socket = Path::new(directory).join("systemd/private");
    if let Err(error) = UnixStream::connect(&socket)
        .or_else(|_| UnixStream::connect(Path::new(directory).join("bus")))
    {
        return Trial::fails("connect", format!("no manager answers in {directory}: {error}"))
            .with_errno(error.raw_os_error())
            .with_advice("'loginctl enable-linger' starts one");
    }
    let mut env = vec![("XDG_RUNTIME_DIR", directory.as_str())];
    if let Some(bus) = context.env.get("DBUS_SESSION_BUS_ADDRESS") {
        env.push(("DBUS_SESSION_BUS_ADDRESS", bus));
    }
    let arguments = ["--user", "--quiet", "--collect", "--scope", "true"];
    match ask(&program, &arguments, &env, context.timeout) {
        Ok((true, _)) => Trial::works(how),
        Ok((false, _)) => Trial::fails(how, "it refused"),
        Err(error) => Trial::fails(how, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    #[test]
    fn layouts() {
        assert_eq!(layout("").0, CgroupLayout::None);
        assert_eq!(layout(HYBRID).0, CgroupLayout::Hybrid);
        assert_eq!(layout(HYBRID.lines().next().unwrap()).0, CgroupLayout::V1);
        assert_eq!(layout(HYBRID.lines().nth(1).unwrap()).0, CgroupLayout::V2);
    }

    #[test]
    fn own_groups() {
        let (_, mounted) = layout(HYBRID);
        let mounted = mounted.unwrap();
        let own = |text: &str| mounted.directory_of(text);
        assert_eq!(own("8:pids:/x\n0::/\n"), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(own("0::/user.slice/a\n"), Some("/sys/fs/cgroup/unified/user.slice/a".into()));
        assert_eq!(own("0::/../outside\n"), None, "outside of our cgroup namespace");
        let deeper = Mounted { root: "/job".into(), point: "/cg".into() };
        assert_eq!(deeper.directory_of("0::/job/step\n"), Some("/cg/step".into()));
        assert_eq!(deeper.directory_of("0::/other\n"), None);
    }
}
