//! System calls that `rustix` lacks, or whose results it shows only in part.

use crate::raw;
use linux_raw_sys::general::{
    __NR_fcntl, __NR_fstatfs, __NR_getdents64, __NR_lseek, __NR_newfstatat, __NR_statfs,
    __NR_statx, __NR_truncate, F_RDLCK, F_SETLEASE, F_SETSIG, F_UNLCK, SIGURG, STATX_BASIC_STATS,
    STATX_BTIME, stat, statfs64, statx,
};
use rustix::fd::{AsFd, AsRawFd};
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// [truncate(2)](https://man7.org/linux/man-pages/man2/truncate.2.html): follows symbolic links,
/// and opens nothing (a pipe is `EINVAL`).
pub fn truncate(path: &CStr, length: u64) -> Result<(), Errno> {
    // SAFETY: the path is a NUL-terminated string that lives during the call, which only reads it.
    unsafe { raw::call(__NR_truncate, [path.as_ptr().addr(), length as usize, 0, 0, 0]) }.map(drop)
}

/// [lseek(2)](https://man7.org/linux/man-pages/man2/lseek.2.html), with any `whence`.
pub fn lseek(file: impl AsFd, offset: u64, whence: u32) -> Result<u64, Errno> {
    let number = file.as_fd().as_raw_fd() as usize;
    // SAFETY: changes only the position of the open file.
    unsafe { raw::call(__NR_lseek, [number, offset as usize, whence as usize, 0, 0]) }
        .map(|position| position as u64)
}

/// [getdents64(2)](https://man7.org/linux/man-pages/man2/getdents64.2.html): the length of what was
/// written.
pub fn getdents(directory: impl AsFd, into: &mut [u8]) -> Result<usize, Errno> {
    let number = directory.as_fd().as_raw_fd() as usize;
    let arguments = [number, into.as_mut_ptr().addr(), into.len(), 0, 0];
    // SAFETY: the call writes at most as many bytes as the buffer has.
    unsafe { raw::call(__NR_getdents64, arguments) }
}

/// [statfs(2)](https://man7.org/linux/man-pages/man2/statfs.2.html), with the id of the file
/// system.
pub fn statfs(path: &CStr) -> Result<statfs64, Errno> {
    let mut facts = MaybeUninit::<statfs64>::uninit();
    // SAFETY: the path is a NUL-terminated string, and the buffer has the size of the structure.
    // The call reads one and fills the other, so on success the buffer is initialised.
    unsafe {
        let arguments = [path.as_ptr().addr(), facts.as_mut_ptr().addr(), 0, 0, 0];
        raw::call(__NR_statfs, arguments)?;
        Ok(facts.assume_init())
    }
}

/// `fstatfs`, likewise; the file may be an `O_PATH` descriptor.
pub fn fstatfs(file: impl AsFd) -> Result<statfs64, Errno> {
    let mut facts = MaybeUninit::<statfs64>::uninit();
    let number = file.as_fd().as_raw_fd() as usize;
    // SAFETY: the buffer has the size of the structure; on success the call has filled it, so it is
    // initialised.
    unsafe {
        raw::call(__NR_fstatfs, [number, facts.as_mut_ptr().addr(), 0, 0, 0])?;
        Ok(facts.assume_init())
    }
}

/// [statx(2)](https://man7.org/linux/man-pages/man2/statx.2.html) with the basic members and the
/// time of birth, in the kernel's own structure.
pub fn statx(dir: impl AsFd, path: &CStr, flags: u32) -> Result<statx, Errno> {
    let mut facts = MaybeUninit::<statx>::zeroed();
    let (number, mask) = (dir.as_fd().as_raw_fd() as usize, STATX_BASIC_STATS | STATX_BTIME);
    let into = facts.as_mut_ptr().addr();
    let arguments = [number, path.as_ptr().addr(), flags as usize, mask as usize, into];
    // SAFETY: the path is a string that ends with a NUL, the buffer has the size of the structure,
    // all of whose members are numbers; the call reads one and writes the other.
    unsafe {
        raw::call(__NR_statx, arguments)?;
        Ok(facts.assume_init())
    }
}

/// [fstatat(2)](https://man7.org/linux/man-pages/man2/fstatat.2.html), in the kernel's own
/// structure.
pub fn fstatat(dir: impl AsFd, path: &CStr, flags: u32) -> Result<stat, Errno> {
    let mut facts = MaybeUninit::<stat>::zeroed();
    let number = dir.as_fd().as_raw_fd() as usize;
    let arguments = [number, path.as_ptr().addr(), facts.as_mut_ptr().addr(), flags as usize, 0];
    // SAFETY: as for `statx`.
    unsafe {
        raw::call(__NR_newfstatat, arguments)?;
        Ok(facts.assume_init())
    }
}

/// Returns true if a regular file, which is open for reading only here, is open for writing
/// anywhere: takes a lease (`F_SETLEASE` of
/// [fcntl(2)](https://man7.org/linux/man-pages/man2/fcntl.2.html)) and releases it. False if the
/// kernel does not know: for other users' files, and if the file system has no leases, or grants
/// them by rules of its own (on network file systems `EAGAIN` means that the server has promised
/// nothing).
pub fn is_open_for_writing(file: impl AsFd) -> bool {
    /// ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, overlay.
    const LOCAL: [i64; 6] =
        [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0x794c_7630];
    let number = file.as_fd().as_raw_fd() as usize;
    // SAFETY: these commands of fcntl take integers, no pointers.
    let call = |command: u32, argument: u32| unsafe {
        raw::call(__NR_fcntl, [number, command as usize, argument as usize, 0, 0])
    };
    // If another process opens the file for writing in between, the kernel requests the lease back
    // by a signal: choose one that is ignored by default.
    if call(F_SETSIG, SIGURG).is_err() {
        return false;
    }
    match call(F_SETLEASE, F_RDLCK) {
        Ok(_) => {
            let _ = call(F_SETLEASE, F_UNLCK);
            false
        }
        Err(errno) => {
            errno == Errno::AGAIN && fstatfs(&file).is_ok_and(|facts| LOCAL.contains(&facts.f_type))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn file_systems_are_the_same_by_name_and_by_file() {
        let by_name = statfs(c"/").unwrap();
        let by_file = fstatfs(std::fs::File::open("/").unwrap()).unwrap();
        assert_eq!(by_name.f_type, by_file.f_type);
        assert_eq!(by_name.f_fsid.val, by_file.f_fsid.val);
        assert!(by_name.f_namelen >= 14);
        assert_eq!(statfs(c"/none/such").map(drop), Err(Errno::NOENT));
    }

    #[test]
    fn both_looks_show_the_same_file() {
        use rustix::fs::CWD;
        let (new, old) = (statx(CWD, c"/", 0).unwrap(), fstatat(CWD, c"/", 0).unwrap());
        assert_eq!((new.stx_ino, u32::from(new.stx_mode)), (old.st_ino, old.st_mode));
        assert_eq!(new.stx_mtime.tv_sec, old.st_mtime as i64);
        assert_eq!(statx(CWD, c"/none/such", 0).map(drop), Err(Errno::NOENT));
        assert_eq!(fstatat(CWD, c"/none/such", 0).map(drop), Err(Errno::NOENT));
    }

    #[test]
    fn writers_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let writer = std::fs::File::create(&path).unwrap();
        let reader = std::fs::File::open(&path).unwrap();
        assert!(is_open_for_writing(&reader));
        drop(writer);
        assert!(!is_open_for_writing(&reader));
        assert!(std::fs::File::create(&path).is_ok(), "no lease is left");
    }

    #[test]
    fn files_get_shorter_and_longer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        truncate(&name, 2).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"12");
        truncate(&name, 4).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"12\0\0");
        assert_eq!(truncate(c"/none/such", 0), Err(Errno::NOENT));
        assert_eq!(truncate(&name, u64::MAX), Err(Errno::INVAL));
    }
}
