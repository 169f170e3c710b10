//! Executes Coracle again from a file that a container cannot write to.
//!
//! Until a container's program is executed, its process executes this one, and the image can name
//! it: `#!/proc/self/exe`, or an entry point. Then a process of the container has the host's file
//! of this program as its `/proc/PID/exe`, and opening that link leads out of the container: it can
//! be opened again for writing as soon as no process executes it. Where the caller owns the file,
//! as with a program in the home, that would hand the host to the image (the class of
//! CVE-2019-5736).
//!
//! So before a container that is a boundary is made or entered, the program executes itself again
//! through a mount of its own: a copy of the mount beneath the file, read-only, in no namespace.
//! Its flag is the kernel's answer to every way of writing through that link, and no process of the
//! container can reach the mount to change it. Kernels that cannot copy mounts (before 5.12)
//! execute a sealed copy in memory.
//!
//! Nothing is done where the container could not write anyway: the file is root's, or its mount is
//! read-only already. It is left as it is where AppArmor lets only named programs make user
//! namespaces, since a program without a path has no name: there it should be root's.

use crate::error::{Error, Result};
use crate::launch::file_limit;
use rustix::fs::{Access, AtFlags, MemfdFlags, Mode, OFlags, SealFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use sys::process::Strings;

/// The program that this process executes.
const PROGRAM: &str = "/proc/self/exe";
/// "1": only programs that AppArmor knows by path make user namespaces.
const BY_NAME_ONLY: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Call { doing: doing.into(), errno: errno.into() }
}

/// Executes this program again with the same words and variables, from a file that no container can
/// write to; returns where it is one.
///
/// To be called before anything has been done that would be done twice.
pub fn seal<S: AsRef<[u8]>>(arguments: &[S], environment: &[S]) -> Result<()> {
    if is_sealed() {
        return Ok(());
    }
    let failed = call("execute this program from a file that a container cannot write to");
    let invalid = || failed(Errno::INVAL);
    let arguments = Strings::new(arguments).ok_or_else(invalid)?;
    let environment = Strings::new(environment).ok_or_else(invalid)?;
    let file = mounted().or_else(|_| copy()).map_err(&failed)?;
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let path = path.map_err(|_| invalid())?;
    file_limit::give_back();
    Err(failed(sys::process::exec(&path, &arguments, &environment)))
}

/// Whether a container could not write to the file that this process executes.
fn is_sealed() -> bool {
    let read_only = rustix::fs::statvfs(PROGRAM)
        .is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    if read_only || is_sealed_memory() {
        // The kernel has named the process after the number of a descriptor.
        let is_number = |name: CString| name.to_bytes().iter().all(u8::is_ascii_digit);
        if rustix::thread::name().is_ok_and(is_number) {
            let _ = rustix::thread::set_name(c"coracle");
        }
        return true;
    }
    let is_roots = rustix::fs::stat(PROGRAM).is_ok_and(|found| found.st_uid == 0)
        && rustix::fs::accessat(rustix::fs::CWD, PROGRAM, Access::WRITE_OK, AtFlags::EACCESS)
            .is_err();
    is_roots || std::fs::read(BY_NAME_ONLY).is_ok_and(|text| text.starts_with(b"1"))
}

fn is_sealed_memory() -> bool {
    rustix::fs::open(PROGRAM, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::fs::fcntl_get_seals(&file))
        .is_ok_and(|seals| seals.contains(SealFlags::WRITE))
}

/// The file in a mount of its own. It is found by its path: the mount that the link of `/proc`
/// leads to is none of the namespace in which it is copied.
fn mounted() -> std::result::Result<OwnedFd, Errno> {
    let path = rustix::fs::readlink(PROGRAM, Vec::new())?;
    let file = sys::mount::read_only_apart(Path::new(OsStr::from_bytes(path.as_bytes())))?;
    let (found, wanted) = (rustix::fs::fstat(&file)?, rustix::fs::stat(PROGRAM)?);
    let is_same = (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino);
    if is_same { Ok(file) } else { Err(Errno::STALE) }
}

/// A copy in memory that cannot be changed any more.
fn copy() -> std::result::Result<OwnedFd, Errno> {
    let from = rustix::fs::open(PROGRAM, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let to = rustix::fs::memfd_create("coracle", flags)?;
    let mut left = usize::try_from(rustix::fs::fstat(&from)?.st_size).map_err(|_| Errno::FBIG)?;
    while left > 0 {
        match rustix::fs::sendfile(&to, &from, None, left)? {
            0 => return Err(Errno::IO),
            count => left -= count.min(left),
        }
    }
    rustix::fs::fcntl_add_seals(&to, SEALS)?;
    Ok(to)
}
