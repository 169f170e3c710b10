//! Id maps of user namespaces, and running a closure in a namespace of its own.
//!
//! The owner of a namespace may write a map of one id. More ids need a helper with privilege in the
//! parent namespace: `newuidmap` and `newgidmap` (setuid), or root itself. See
//! [user_namespaces(7)](https://man7.org/linux/man-pages/man7/user_namespaces.7.html).

use crate::fork::{ForkResult, fork};
use crate::namespace::{self, Kinds};
use rustix::io::Errno;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One line of a map: first id inside, first id outside, count.
pub type Line = (u32, u32, u32);

/// Both maps of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Maps {
    /// User ids.
    pub uids: Vec<Line>,
    /// Group ids.
    pub gids: Vec<Line>,
    /// `newuidmap` and `newgidmap`; without them the caller writes the maps.
    pub helpers: Option<(PathBuf, PathBuf)>,
}

/// The reason why a namespace could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `unshare(2)` failed.
    #[error("cannot make a user namespace: {0}")]
    Unshare(Errno),
    /// Writing a map failed.
    #[error("cannot write {file}: {errno}")]
    Write {
        /// The file.
        file: String,
        /// The kernel's error.
        errno: Errno,
    },
    /// A helper failed.
    #[error("{program} failed ({status}): {output}")]
    Helper {
        /// Its path.
        program: PathBuf,
        /// Its exit status.
        status: String,
        /// Its output.
        output: String,
    },
    /// `fork(2)` or `pipe(2)` failed.
    #[error("cannot start a process for the namespace: {0}")]
    Process(std::io::Error),
    /// The process in the namespace ended without a result.
    #[error("the process in the namespace ended without a result")]
    Vanished,
}

impl Maps {
    /// One user and one group, each mapped to `inside`.
    pub fn single(inside: (u32, u32)) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        Self { uids: vec![(inside.0, uid, 1)], gids: vec![(inside.1, gid, 1)], helpers: None }
    }

    /// Returns true if the owner of the namespace may write these maps itself.
    pub fn is_single(&self) -> bool {
        let one = |lines: &[Line]| matches!(lines, [(_, _, 1)]);
        self.helpers.is_none() && one(&self.uids) && one(&self.gids)
    }

    /// Writes the maps of the calling process's new namespace; requires [`Maps::is_single`].
    pub fn write_own(&self) -> Result<(), Error> {
        // Without this the kernel does not allow an unprivileged user to write a group map.
        match write("/proc/self/setgroups", "deny") {
            // Kernels before 3.19 lack this file.
            Err(Error::Write { errno: Errno::NOENT, .. }) => {}
            result => result?,
        }
        write("/proc/self/uid_map", &text(&self.uids))?;
        write("/proc/self/gid_map", &text(&self.gids))
    }

    /// Writes the maps of another process's namespace, from the parent namespace.
    pub fn write_for(&self, pid: u32) -> Result<(), Error> {
        let Some((for_users, for_groups)) = &self.helpers else {
            write(&format!("/proc/{pid}/uid_map"), &text(&self.uids))?;
            return write(&format!("/proc/{pid}/gid_map"), &text(&self.gids));
        };
        // Both at once: each is a setuid program that reads the user database, some milliseconds in
        // all.
        let users = start(for_users, pid, &self.uids)?;
        let groups = start(for_groups, pid, &self.gids);
        finish(for_users, users)?;
        finish(for_groups, groups?)
    }
}

fn text(lines: &[Line]) -> String {
    lines.iter().fold(String::new(), |mut text, (inside, outside, count)| {
        let _ = writeln!(text, "{inside} {outside} {count}");
        text
    })
}

fn write(file: &str, text: &str) -> Result<(), Error> {
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(file, flags, rustix::fs::Mode::empty())
        .and_then(|open| rustix::io::write(&open, text.as_bytes()))
        .map(drop)
        .map_err(|errno| Error::Write { file: file.into(), errno })
}

fn start(program: &Path, pid: u32, lines: &[Line]) -> Result<std::process::Child, Error> {
    let numbers = lines.iter().flat_map(|(inside, outside, count)| [inside, outside, count]);
    Command::new(program)
        .arg(pid.to_string())
        .args(numbers.map(u32::to_string))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Error::Helper {
            program: program.into(),
            status: "not started".into(),
            output: error.to_string(),
        })
}

fn finish(program: &Path, child: std::process::Child) -> Result<(), Error> {
    let failed =
        |status: String, output: String| Error::Helper { program: program.into(), status, output };
    let output =
        child.wait_with_output().map_err(|error| failed("lost".into(), error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(failed(output.status.to_string(), said))
}

/// Runs `work` in a new process in a new user namespace with these maps, as its root if 0 is
/// mapped, and returns its bytes. With `mounts` the process also has a mount namespace of its own.
///
/// The caller must have one thread (`fork`). A closure that panics or is killed gives
/// [`Error::Vanished`].
pub fn run(maps: &Maps, mounts: bool, work: impl FnOnce() -> Vec<u8>) -> Result<Vec<u8>, Error> {
    let pipe = || {
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|errno| Error::Process(errno.into()))
    };
    let (ready_reader, ready_writer) = pipe()?;
    let (go_reader, go_writer) = pipe()?;
    let (result_reader, result_writer) = pipe()?;
    let pid = match fork().map_err(Error::Process)? {
        ForkResult::Parent(pid) => pid,
        ForkResult::Child => {
            drop((ready_reader, go_writer, result_reader));
            inside(maps, mounts, (ready_writer, go_reader, result_writer), work);
        }
    };
    drop((ready_writer, go_reader, result_writer));
    let result =
        outside(maps, pid.as_raw_nonzero().get() as u32, (ready_reader, go_writer, result_reader));
    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    result
}

fn inside(
    maps: &Maps,
    mounts: bool,
    (ready, go, result): (OwnedFd, OwnedFd, OwnedFd),
    work: impl FnOnce() -> Vec<u8>,
) -> ! {
    let kinds = if mounts { Kinds::USER.with(Kinds::MOUNT) } else { Kinds::USER };
    let errno = match namespace::unshare(kinds) {
        Ok(()) if maps.is_single() => match maps.write_own() {
            Ok(()) => 0,
            Err(Error::Write { errno, .. }) => errno.raw_os_error(),
            Err(_) => Errno::IO.raw_os_error(),
        },
        Ok(()) => 0,
        Err(errno) => errno.raw_os_error(),
    };
    let _ = File::from(ready).write_all(&errno.to_ne_bytes());
    let mut byte = [0];
    if errno != 0 || !matches!(File::from(go).read(&mut byte), Ok(1)) {
        crate::fork::exit_now(1);
    }
    if maps.uids.iter().any(|line| line.0 == 0) {
        let _ = rustix::thread::set_thread_gid(rustix::process::Gid::ROOT);
        let _ = rustix::thread::set_thread_uid(rustix::process::Uid::ROOT);
    }
    let Ok(bytes) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) else {
        crate::fork::exit_now(1);
    };
    let mut result = File::from(result);
    // The leading byte distinguishes an empty result from a process that died.
    let sent = result.write_all(&[1]).and_then(|()| result.write_all(&bytes));
    crate::fork::exit_now(i32::from(sent.is_err()));
}

fn outside(
    maps: &Maps,
    pid: u32,
    (ready, go, result): (OwnedFd, OwnedFd, OwnedFd),
) -> Result<Vec<u8>, Error> {
    let mut answer = [0; 4];
    File::from(ready).read_exact(&mut answer).map_err(|_| Error::Vanished)?;
    let errno = i32::from_ne_bytes(answer);
    if errno != 0 {
        return Err(Error::Unshare(Errno::from_raw_os_error(errno)));
    }
    if !maps.is_single() {
        maps.write_for(pid)?;
    }
    File::from(go).write_all(&[1]).map_err(|_| Error::Vanished)?;
    let mut bytes = Vec::new();
    File::from(result).read_to_end(&mut bytes).map_err(Error::Process)?;
    if bytes.is_empty() {
        return Err(Error::Vanished);
    }
    bytes.remove(0);
    Ok(bytes)
}
