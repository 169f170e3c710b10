//! Makes, enters, kills and removes control groups (version 2) in a directory that the caller owns.
//!
//! A program without a supervisor leaves its group behind when it ends. The next start uses an
//! empty group of the same name. [`remove`] is for callers that know that the container has ended.
//! See the kernel's admin-guide/cgroup-v2.

use crate::error::{Error, Result};
use crate::plan::{CGROUP_PREFIX, Cgroup};
use std::path::{Path, PathBuf};

fn failed(doing: &str, path: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
    let (doing, path) = (doing.to_owned(), path.to_path_buf());
    move |error| Error::File { doing: doing.clone(), path: path.clone(), errno: error.into() }
}

/// Makes the group, sets its limits, and moves the calling process into it.
pub(crate) fn enter(group: &Cgroup) -> Result<()> {
    let controllers: Vec<&str> =
        group.settings.iter().filter_map(|(file, _)| file.split('.').next()).collect();
    // Children have only the controllers that their parent passes on. It may do so already, or be
    // forbidden to; then the limit's own file is missing below, and that is the error to show.
    for controller in controllers {
        let pass_on = || pass_on(&group.parent, controller);
        if pass_on().is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy) {
            // A group that passes controllers on may have no processes of its own, and a scope of
            // systemd's has the caller's shell.
            move_aside(&group.parent);
            let _ = pass_on();
        }
    }
    let path = group.parent.join(&group.name);
    match std::fs::create_dir(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        result => result.map_err(failed("make", &path))?,
    }
    for (file, value) in &group.settings {
        let file = path.join(file);
        std::fs::write(&file, value).map_err(failed("write", &file))?;
    }
    let file = path.join("cgroup.procs");
    std::fs::write(&file, "0").map_err(failed("enter", &file))
}

/// Passes a controller on to the groups below.
fn pass_on(parent: &Path, controller: &str) -> std::io::Result<()> {
    std::fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"))
}

/// Sets a limit of a group in which processes live.
///
/// # Errors
/// The group lacks the controller and cannot get it, or the kernel refuses the value.
pub fn set(group: &Path, file: &str, value: &str) -> Result<()> {
    let path = group.join(file);
    if let (false, Some(parent), Some((controller, _))) =
        (path.exists(), group.parent(), file.split_once('.'))
    {
        let _ = pass_on(parent, controller);
    }
    // Opened as it is: the kernel's files cannot be made.
    let opened = std::fs::OpenOptions::new().write(true).open(&path);
    opened
        .and_then(|mut open| std::io::Write::write_all(&mut open, value.as_bytes()))
        .map_err(failed("write", &path))
}

/// Moves the processes of a group into one below it, as far as they are the caller's.
fn move_aside(parent: &Path) {
    let aside = parent.join("outside-coracle");
    let _ = std::fs::create_dir(&aside);
    let text = std::fs::read_to_string(parent.join("cgroup.procs")).unwrap_or_default();
    for pid in text.lines() {
        let _ = std::fs::write(aside.join("cgroup.procs"), pid);
    }
}

/// Where version 2 is mounted, alone or beside version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The directory of the group that was made for the container in which a process lives, if one was.
pub fn of(pid: u32) -> Option<PathBuf> {
    let path = path_of(&pid.to_string())?;
    let ours = path.rsplit('/').next().is_some_and(|name| name.starts_with(CGROUP_PREFIX));
    let directory = |mount: &str| PathBuf::from(format!("{mount}{path}"));
    MOUNTS.iter().filter(|_| ours).map(|mount| directory(mount)).find(|path| path.is_dir())
}

/// Kills every process of a group at once, whatever they fork meanwhile (5.14).
pub fn kill(group: &Path) {
    let _ = std::fs::write(group.join("cgroup.kill"), "1");
}

/// Removes the group of a container that has ended.
pub fn remove(group: &Path) {
    // The last process may be dying still.
    for pause in [0, 1, 4, 16, 64] {
        std::thread::sleep(std::time::Duration::from_millis(pause));
        match std::fs::remove_dir(group) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {}
            _ => return,
        }
    }
}

fn path_of(who: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{who}/cgroup")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned))
}

/// Enters the group of a process where the caller owns it and is in another one. Best effort: a
/// container without limits has no group.
pub(crate) fn follow(pid: u32) {
    let (Some(theirs), Some(ours)) = (path_of(&pid.to_string()), path_of("self")) else { return };
    if theirs == ours {
        return;
    }
    for mount in MOUNTS {
        let path = PathBuf::from(format!("{mount}{theirs}/cgroup.procs"));
        if std::fs::write(&path, "0").is_ok() {
            return;
        }
    }
}
