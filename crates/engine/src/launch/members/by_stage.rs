//! Finds the processes of a container without mounts, also those that no record names because the
//! run that started them has ended.
//!
//! Each executes the stage, whose file lies in the container's `run/`: its link `/proc/PID/exe`
//! says where, whatever program the guest runs. The stage as a backend inside processes has another
//! name than the stage that loads programs for a tracer. Where the stage had to be executed out of
//! memory, the shared file among the process's mappings tells.
//!
//! Most containers have no process, and many may be asked about. So first the kernel is asked
//! whether the file that a container's processes share is open for writing (a lease says so), or a
//! process of it is just executing a program (counters in the file say so), or the lock of its
//! tracers is held. Only then all processes are looked at.

use super::Presence;
use crate::launch::run_files::{LOADER, RUN, SHARED, STAGE};
use crate::processes;
use crate::spec::ProcessId;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use sys::life::of_any_thread;

/// The `run/` of the container of a process that has the backend inside; `None` for other
/// processes, and for those that may not be looked at.
#[must_use]
pub fn home(pid: u32) -> Option<PathBuf> {
    executes(pid, &[STAGE])
}

/// The `run/` with the program that a process executes, if it begins as one of these.
fn executes(pid: u32, names: &[&str]) -> Option<PathBuf> {
    let program = sys::life::link(pid, "exe").ok()?;
    let text = program.to_str()?;
    let text = text.strip_suffix(" (deleted)").unwrap_or(text);
    let path = Path::new(text);
    let name = path.file_name()?.to_str()?.trim_start_matches("memfd:");
    if !names.iter().any(|beginning| name.starts_with(beginning)) {
        return None;
    }
    let directory = path.parent()?;
    if directory.file_name().is_some_and(|name| name == RUN) {
        return Some(directory.to_path_buf());
    }
    mapped(pid)
}

/// The same for a process whose program has no name, by the file that it shares with the others.
fn mapped(pid: u32) -> Option<PathBuf> {
    let read = |of: &Path| {
        let maps = fs::read_to_string(of.join("maps"));
        // Those of a thread that has ended are empty.
        let maps = maps.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        if maps.is_empty() { Err(Errno::SRCH) } else { Ok(maps) }
    };
    let maps = of_any_thread(pid, read).ok()?;
    maps.lines().find_map(|line| {
        let address = u64::from_str_radix(line.split('-').next()?, 16).ok()?;
        let path = Path::new(line.get(line.find('/')?..)?);
        let is_it = abi::boot::is_loaders(address)
            && path.file_name().is_some_and(|name| name == SHARED)
            && path.parent().and_then(Path::file_name).is_some_and(|name| name == RUN);
        is_it.then(|| path.parent().map(Path::to_path_buf))?
    })
}

/// Whether a process lives in the container whose directory is `place`.
#[must_use]
pub fn any(place: &Path) -> bool {
    !all(place).is_empty()
}

/// The processes in the container whose directory is `place`.
#[must_use]
pub fn all(place: &Path) -> Vec<ProcessId> {
    let run = place.join(RUN);
    if !is_shared(&run.join(SHARED)) && Presence::is_none(place) {
        return Vec::new();
    }
    let run = run.canonicalize().unwrap_or(run);
    let is_there = |pid: u32| executes(pid, &[STAGE, LOADER]).as_deref() == Some(&run);
    processes::all().into_iter().filter_map(|pid| processes::which(pid, is_there)).collect()
}

/// Whether a process has mapped the file, or may have.
///
/// A process that executes a program has it not mapped for a moment. So it counts before and after
/// ([`Shared::execution_begins`](abi::shared::Shared::execution_begins)), and the answer is no only
/// where no process has counted while the kernel was asked.
fn is_shared(file: &Path) -> bool {
    let Ok(file) = fs::File::open(file) else { return false };
    let before = executions(&file);
    let is_quiet = before.is_some_and(|[begun, ended]| begun == ended);
    !is_quiet || sys::lease::is_written(&file).unwrap_or(true) || executions(&file) != before
}

/// Programs that have set out to be executed, and those that have begun; `None` where the file is
/// too short for that.
fn executions(file: &fs::File) -> Option<[u64; 2]> {
    let mut beginning = [0; abi::shared::EXECUTIONS_END];
    file.read_exact_at(&mut beginning, 0).ok()?;
    Some(abi::shared::executions(&beginning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::shared::Shared;

    fn numbers(all: &[ProcessId]) -> Vec<u32> {
        all.iter().map(|process| process.pid).collect()
    }

    #[test]
    fn a_process_that_executes_a_stage_lives_where_that_is() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let run = place.join(RUN);
        fs::create_dir(&run).unwrap();
        assert!(!any(&place));
        let stage = run.join(format!("{STAGE}x-0"));
        testkit::command::copy_program(Path::new("/bin/sleep"), &stage);
        let shared = run.join(SHARED);
        fs::write(&shared, [0; 4096]).unwrap();
        assert!(!any(&place));
        let mut child = std::process::Command::new(&stage).arg("60").spawn().unwrap();
        assert_eq!(home(child.id()), Some(run));
        // As a process that has it mapped.
        let file = fs::File::options().write(true).open(&shared).unwrap();
        assert_eq!(numbers(&all(&place)), [child.id()]);
        fs::remove_file(&stage).unwrap();
        assert!(any(&place));
        assert_eq!(numbers(&processes::roots(&all(&place))), [child.id()]);
        drop(file);
        // Another test's child has all files of this process open until it executes its program.
        let is_closed = || (!any(&place)).then_some(());
        assert!(testkit::command::until(std::time::Duration::from_secs(10), is_closed).is_some());
        // As one that is between two programs, and has nothing mapped.
        let words = sys::shared::SharedWords::create(
            fs::File::options().read(true).write(true).open(&shared).unwrap(),
            Shared::size(0),
        );
        let words = words.unwrap();
        Shared::create(words.words(), &[]).unwrap().execution_begins();
        drop(words);
        assert!(any(&place));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!any(&place));
        assert_eq!(home(std::process::id()), None);
    }

    #[test]
    fn whom_a_tracer_serves_lives_there_too() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        fs::create_dir(place.join(RUN)).unwrap();
        let loader = place.join(RUN).join(format!("{LOADER}x-0"));
        testkit::command::copy_program(Path::new("/bin/sleep"), &loader);
        let mut child = std::process::Command::new(&loader).arg("60").spawn().unwrap();
        assert!(!any(&place));
        let presence = Presence::new(&place);
        assert!(presence.is_some());
        assert_eq!((numbers(&all(&place)), home(child.id())), (vec![child.id()], None));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
