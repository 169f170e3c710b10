//! Which processes live in a container without any process of ours beside them.
//!
//! Each executes the stage, whose file lies in the container's `run/`: its link `/proc/PID/exe` says where, whatever the guest's own programs
//! are. Where the stage had to be executed out of memory, it is the shared file among the process's mappings that tells.

use super::stage_file::NAME;
use crate::engines::interpose::common;
use std::fs;
use std::path::{Path, PathBuf};

/// The name of the directory in a container's.
const RUN: &str = "run";

/// The `run/` of the container in which a process lives; `None` where it lives in none, or may not be asked.
#[must_use]
pub fn home(pid: u32) -> Option<PathBuf> {
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let text = program.to_str()?;
    let text = text.strip_suffix(" (deleted)").unwrap_or(text);
    let path = Path::new(text);
    if !path.file_name()?.to_str()?.trim_start_matches("memfd:").starts_with(NAME) {
        return None;
    }
    let directory = path.parent()?;
    if directory.file_name().is_some_and(|name| name == RUN) {
        return Some(directory.to_path_buf());
    }
    mapped(pid)
}

/// The same of a process whose program has no name, by the file that it shares with the others.
fn mapped(pid: u32) -> Option<PathBuf> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    maps.lines().find_map(|line| {
        let address = u64::from_str_radix(line.split('-').next()?, 16).ok()?;
        let path = Path::new(line.get(line.find('/')?..)?);
        let is_it = abi::boot::is_loaders(address)
            && path.file_name().is_some_and(|name| name == common::NAME)
            && path.parent().and_then(Path::file_name).is_some_and(|name| name == RUN);
        is_it.then(|| path.parent().map(Path::to_path_buf))?
    })
}

/// Whether anybody lives in the container whose directory is `place`.
#[must_use]
pub fn any(place: &Path) -> bool {
    !all(place).is_empty()
}

/// Who lives in the container whose directory is `place`.
#[must_use]
pub fn all(place: &Path) -> Vec<u32> {
    let run = place.join(RUN);
    // Without the file nobody ever did; that is the usual case, and costs one call.
    if run.join(common::NAME).symlink_metadata().is_err() {
        return Vec::new();
    }
    let run = run.canonicalize().unwrap_or(run);
    let mut found = crate::supervise::processes::all();
    found.retain(|&pid| home(pid).as_deref() == Some(&run));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_executes_a_stage_lives_where_that_is() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let run = place.join(RUN);
        fs::create_dir(&run).unwrap();
        assert!(!any(&place));
        let stage = run.join(format!("{NAME}x-0"));
        fs::copy("/bin/sleep", &stage).unwrap();
        fs::write(run.join(common::NAME), "").unwrap();
        assert!(!any(&place));
        let mut child = std::process::Command::new(&stage).arg("60").spawn().unwrap();
        assert_eq!(home(child.id()), Some(run));
        assert_eq!(all(&place), [child.id()]);
        fs::remove_file(&stage).unwrap();
        assert!(any(&place));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!any(&place));
        assert_eq!(home(std::process::id()), None);
    }
}
