//! Makes the stage's file in the container's `run/`, and picks its place in a process.
//!
//! It lies in the container's `run/`, under a name that tells builds and places apart, and its link
//! in `/proc/PID/exe` tells which processes live in the container. Where programs cannot be
//! executed there (`noexec`), it is executed out of memory.

use crate::engines::interpose::prepare::{Files, place_stage, stage_name};
use crate::error::{Error, Result};
use abi::boot::{BASES, start};
use rustix::fs::{Access, AtFlags, CWD, MemfdFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

/// How its name begins.
pub(super) const NAME: &str = crate::launch::run_files::STAGE;

/// The stage, ready to be executed.
#[derive(Debug)]
pub(super) struct StageFile {
    /// By which it is executed.
    pub(super) path: CString,
    /// Where in a process it goes.
    pub(super) base: u64,
    /// In memory: open as long as it may be executed.
    _memory: Option<OwnedFd>,
}

/// The first place where nothing is mapped: where Coracle runs in such a container itself, another
/// stage is in this process.
fn free_base() -> Option<u64> {
    (0..BASES).find(|&base| !sys::mapped::is_mapped(start(base)))
}

/// Makes it where it is not there yet.
pub(super) fn place(files: &Files) -> Result<StageFile> {
    let base = free_base().ok_or(Error::Nested { most: BASES as u32 })?;
    let path = place_stage(files, NAME, base)?;
    let path = CString::new(path.into_os_string().into_vec()).unwrap_or_default();
    // A file system without programs says so here, whatever the mode.
    match rustix::fs::accessat(CWD, &path, Access::EXEC_OK, AtFlags::EACCESS) {
        Err(Errno::ACCESS) => in_memory(base),
        _ => Ok(StageFile { path, base, _memory: None }),
    }
}

#[cfg(test)]
impl StageFile {
    /// As if it were there.
    pub(super) fn at(path: &str) -> Self {
        Self { path: CString::new(path).unwrap_or_default(), base: 0, _memory: None }
    }
}

fn in_memory(base: u64) -> Result<StageFile> {
    let failed = |errno: Errno| Error::Call {
        doing: "put the stage into memory, since programs cannot be executed in the store".into(),
        errno: errno.into(),
    };
    let name = stage_name(NAME, base);
    let file = rustix::fs::memfd_create(&*name, MemfdFlags::CLOEXEC).map_err(failed)?;
    let image = blobs::stage(base);
    let mut rest = &image[..];
    while !rest.is_empty() {
        let written =
            rustix::io::retry_on_intr(|| rustix::io::write(&file, rest)).map_err(failed)?;
        rest = &rest[written..];
    }
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
    Ok(StageFile { path, base, _memory: Some(file) })
}
