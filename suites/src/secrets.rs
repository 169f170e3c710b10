//! Looks for a value as every user of a machine can: on the command lines of all processes, and in
//! files that others may read.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::command::until;

/// Between two looks at all processes.
const PAUSE: Duration = Duration::from_millis(10);
const SOON: Duration = Duration::from_secs(5);

/// The command lines that have a value now.
pub(crate) fn command_lines(value: &str) -> BTreeSet<String> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let all = all.filter(|entry| entry.file_name().to_str().is_some_and(is_process));
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(value)).collect()
}

/// Reads the command lines of all processes again and again.
pub(crate) struct Watch {
    value: String,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<BTreeSet<String>>,
}

impl Watch {
    /// Watches for a value.
    pub(crate) fn start(value: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, wanted) = (Arc::clone(&stop), value.to_owned());
        let look = move || {
            let mut found = BTreeSet::new();
            while !asked.load(Ordering::Relaxed) {
                found.append(&mut command_lines(&wanted));
                // The processors are for what is watched, which is there for longer.
                std::thread::sleep(PAUSE);
            }
            found
        };
        Self { value: value.to_owned(), stop, thread: std::thread::spawn(look) }
    }

    /// Checks that no process had it on its command line, and that one would have been seen.
    pub(crate) fn ends_without(self) {
        let mut cat = Command::new("cat");
        let cat = cat.arg("-").arg(format!("/{}", self.value)).stdin(Stdio::piped()).spawn();
        let mut cat = cat.expect("a process with the value");
        // The kernel knows its words a moment after it was started.
        let seen =
            until(SOON, || Some(command_lines(&self.value)).filter(|lines| !lines.is_empty()));
        let _ = cat.kill();
        let _ = cat.wait();
        let seen = seen.expect("a command line with the value can be seen");
        self.stop.store(true, Ordering::Relaxed);
        let mut found = self.thread.join().expect("a watch");
        found.retain(|line| !seen.contains(line));
        assert!(found.is_empty(), "every user could see {found:#?}");
    }
}

/// The files at or below a path that have a value and that others can read, whatever leads to the
/// path.
pub(crate) fn files(top: &Path, value: &str) -> Vec<PathBuf> {
    let Ok(meta) = top.symlink_metadata() else { return Vec::new() };
    let mode = meta.permissions().mode();
    if meta.is_file() {
        let has = || fs::read(top).is_ok_and(|bytes| contains(&bytes, value.as_bytes()));
        return if mode & 0o4 != 0 && has() { vec![top.to_owned()] } else { Vec::new() };
    }
    if !meta.is_dir() || mode & 0o1 == 0 {
        return Vec::new();
    }
    let all = fs::read_dir(top).into_iter().flatten().flatten();
    all.flat_map(|entry| files(&entry.path(), value)).collect()
}

/// The directories of Coracle outside of a home that belong to a user.
pub(crate) fn runtime_directories(uid: u32) -> Vec<PathBuf> {
    let places = ["/tmp".to_owned(), "/var/tmp".to_owned(), "/dev/shm".to_owned()];
    let places = places.into_iter().chain([format!("/run/user/{uid}")]);
    let all = places.flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
    let own = all.filter(|entry| {
        let is_named = entry.file_name().to_string_lossy().starts_with("coracle");
        is_named && entry.metadata().is_ok_and(|meta| meta.uid() == uid)
    });
    own.map(|entry| entry.path()).collect()
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
