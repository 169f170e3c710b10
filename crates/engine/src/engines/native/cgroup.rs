//! Control groups, version 2, in a directory that the caller owns.
//!
//! A program that nobody supervises leaves its group behind when it ends; an empty one of the same name is taken over by the next start,
//! and [`remove`] is for those who know that it ended. See the kernel's admin-guide/cgroup-v2.

use crate::error::{Error, Result};
use crate::plan::Cgroup;
use std::path::{Path, PathBuf};

fn failed(doing: &str, path: &Path) -> impl Fn(std::io::Error) -> Error + use<> {
    let (doing, path) = (doing.to_owned(), path.to_path_buf());
    move |error| Error::File { doing: doing.clone(), path: path.clone(), errno: error.into() }
}

/// Makes the group, sets its limits, and moves the calling process into it.
pub(super) fn enter(group: &Cgroup) -> Result<()> {
    let controllers: Vec<&str> =
        group.settings.iter().filter_map(|(file, _)| file.split('.').next()).collect();
    // Children have only the controllers that their parent passes on. It may do so already, or be forbidden to; then the limit's own file
    // is missing below, and that is the error to show.
    for controller in controllers {
        let _ =
            std::fs::write(group.parent.join("cgroup.subtree_control"), format!("+{controller}"));
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

/// Removes the group of a container that has ended.
pub fn remove(group: &Cgroup) {
    let _ = std::fs::remove_dir(group.parent.join(&group.name));
}

/// Enters the group of a process where that is another one of the caller's own. Best effort: a container without limits has none.
pub(super) fn follow(pid: u32) {
    let of = |who: &str| {
        let text = std::fs::read_to_string(format!("/proc/{who}/cgroup")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned))
    };
    let (Some(theirs), Some(ours)) = (of(&pid.to_string()), of("self")) else { return };
    if theirs == ours {
        return;
    }
    for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
        let path = PathBuf::from(format!("{mount}{theirs}/cgroup.procs"));
        if std::fs::write(&path, "0").is_ok() {
            return;
        }
    }
}
