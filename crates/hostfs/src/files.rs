//! The methods of [`view::Host`] that concern files, each as one system call where that is
//! possible.
//!
//! Calls that older kernels do not have, or that a sandbox refuses altogether (`EPERM`, as older
//! versions of Docker do), are replaced by older ones, and are not tried again.

use crate::at::{Process, at, by_path, from_root, open_start, path_of, start};
use crate::kernel::{CWD, Feature, Target};
pub use crate::look::look;
use crate::overlay::{self, Effect, Overlay};
use crate::{at::DirPath, io};
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EACCESS, AT_EMPTY_PATH, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, O_ACCMODE,
    O_CLOEXEC, O_CREAT, O_NOFOLLOW, O_PATH, O_TRUNC, S_IFLNK, S_IFMT, statfs64, statx, timespec,
};
use view::errno::Result;
use view::{Dir, Errno, HostFd, Text};

/// How often `openat2` is repeated that says `EAGAIN`, because something was renamed meanwhile.
const RENAMES: usize = 64;

/// Calls on files for a guest.
#[derive(Debug, Clone, Copy)]
pub struct Files<P> {
    /// Makes the calls.
    pub process: P,
}

impl<P: Process> Files<P> {
    /// `open`; see [`view::Host::open`], as for all methods here.
    #[inline]
    pub fn open(
        &self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<HostFd> {
        let reads = flags & (O_ACCMODE | O_CREAT | O_TRUNC) == 0 || flags & O_PATH != 0;
        let effect = if reads { Effect::Reads } else { Effect::Changes };
        self.call(effect, (dir, path), |dir, path| self.open_real(dir, path, flags, mode, resolve))
    }

    fn open_real(
        &self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<HostFd> {
        let process = &self.process;
        if resolve == 0 || path.is_empty() {
            return at(process, dir, path, |at| {
                let flags = if at.magic { flags & !O_NOFOLLOW } else { flags };
                process.openat(at.dir, at.path, flags, mode)
            });
        }
        let open = |dir, path: &CStr| open_resolved(process, dir, path, (flags, mode), resolve);
        match start(dir, path)? {
            Dir::Root => from_root(process, path, open),
            dir => match process.descriptor(dir)? {
                Some(dir) => open(dir, path),
                // A magic link on the way is what `resolve` could forbid.
                None => open(open_start(process, dir)?.fd(), path),
            },
        }
    }

    /// Whether there is `openat2`.
    pub fn has_openat2(&self) -> bool {
        !self.process.lacks(Feature::Openat2)
    }

    /// `close`.
    pub fn close(&self, fd: HostFd) {
        self.process.close(fd);
    }

    /// `statx`.
    #[inline]
    pub fn statx(&self, dir: Dir, path: &CStr, flags: u32, into: &mut statx) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Reads, (dir, path), |dir, path| {
            let dir = start(dir, path)?;
            if path.is_empty()
                && dir != Dir::Root
                && let Some(file) = process.descriptor(dir)?
            {
                return look(process, file, c"", flags | AT_EMPTY_PATH, into);
            }
            at(process, dir, path, |at| look(process, at.dir, at.path, at.flags(flags), into))
        })
    }

    /// `readlink`; with an empty path of the link that a descriptor is.
    #[inline]
    pub fn readlink(&self, dir: Dir, path: &CStr, into: &mut Text) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Reads, (dir, path), |dir, path| {
            let dir = start(dir, path)?;
            into.fill(|bytes| {
                if !path.is_empty() || dir == Dir::Root {
                    return at(process, dir, path, |at| process.readlinkat(at.dir, at.path, bytes));
                }
                match process.descriptor(dir)? {
                    Some(file) => process.readlinkat(file, c"", bytes),
                    // The text of the magic link itself is what `path_of` gives.
                    None => process.readlinkat(open_start(process, dir)?.fd(), c"", bytes),
                }
            })
        })?;
        // A magic link of `/proc` may lead to a file of the image.
        overlay::to_place(process, into)
    }

    /// The kernel's name of a start.
    pub fn path_of(&self, dir: Dir, into: &mut Text) -> Result<()> {
        path_of(&self.process, dir, into)?;
        match Overlay::of(&self.process) {
            Some(layers) => layers.replace_name(into),
            None => Ok(()),
        }
    }

    /// `faccessat2` with `AT_EACCESS`.
    pub fn access(&self, dir: Dir, path: &CStr, mode: u32, flags: u32) -> Result<()> {
        self.call(Effect::Reads, (dir, path), |dir, path| {
            at(&self.process, dir, path, |at| access(&self.process, at, mode, flags))
        })
    }

    /// `mkdirat`.
    pub fn mkdir(&self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Makes, (dir, path), |dir, path| {
            at(process, dir, path, |at| {
                process.mkdirat(at.dir, at.path, mode)?;
                keep_owners_rights(process, at, mode, AT_REMOVEDIR)
            })
        })
    }

    /// `mknodat`.
    pub fn mknod(&self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Makes, (dir, path), |dir, path| {
            at(process, dir, path, |at| {
                process.mknodat(at.dir, at.path, mode)?;
                keep_owners_rights(process, at, mode, 0)
            })
        })
    }

    /// `unlinkat`.
    pub fn unlink(&self, dir: Dir, path: &CStr, flags: u32) -> Result<()> {
        let process = &self.process;
        let mut unlink = |dir, path: &CStr| {
            at(process, dir, path, |at| process.unlinkat(at.dir, at.path, flags))
        };
        match Overlay::of(process) {
            Some(layers) => overlay::unlink(layers, dir, path, flags, &mut unlink),
            None => unlink(dir, path),
        }
    }

    /// `renameat2`.
    pub fn rename(&self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()> {
        let process = &self.process;
        let rename = |from: (Dir, &CStr), to: (Dir, &CStr)| {
            at(process, from.0, from.1, |from| {
                at(process, to.0, to.1, |to| {
                    process.renameat2((from.dir, from.path), (to.dir, to.path), flags)
                })
            })
        };
        match Overlay::of(process) {
            Some(layers) => overlay::rename(layers, from, to, flags, rename),
            None => rename(from, to),
        }
    }

    /// `linkat`.
    pub fn link(&self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()> {
        let process = &self.process;
        let link = |from: (Dir, &CStr), to: (Dir, &CStr)| {
            at(process, from.0, from.1, |from| {
                let follow = if from.magic { AT_SYMLINK_FOLLOW } else { 0 };
                let flags = from.flags(flags) | follow;
                at(process, to.0, to.1, |to| {
                    process.linkat((from.dir, from.path), (to.dir, to.path), flags)
                })
            })
        };
        match Overlay::of(process) {
            Some(layers) => overlay::link(layers, from, to, link),
            None => link(from, to),
        }
    }

    /// `symlinkat`.
    pub fn symlink(&self, target: &CStr, dir: Dir, path: &CStr) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Makes, (dir, path), |dir, path| {
            at(process, dir, path, |at| process.symlinkat(target, at.dir, at.path))
        })
    }

    /// `fchmodat`.
    pub fn chmod(&self, dir: Dir, path: &CStr, mode: u32) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Changes, (dir, path), |dir, path| {
            at(process, dir, path, |at| process.fchmodat(at.dir, at.path, mode))
        })
    }

    /// `fchownat`.
    pub fn chown(&self, dir: Dir, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Changes, (dir, path), |dir, path| {
            at(process, dir, path, |at| {
                process.fchownat(at.dir, at.path, uid, gid, at.flags(flags))
            })
        })
    }

    /// `utimensat`.
    pub fn utimens(
        &self,
        dir: Dir,
        path: &CStr,
        times: Option<&[timespec; 2]>,
        flags: u32,
    ) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Changes, (dir, path), |dir, path| {
            at(process, dir, path, |at| {
                process.utimensat(at.dir, Some(at.path), times, at.flags(flags))
            })
        })
    }

    /// `truncate`.
    pub fn truncate(&self, dir: Dir, path: &CStr, length: u64) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Changes, (dir, path), |dir, path| {
            by_path(process, dir, path, |path, _| process.truncate(Target::Path(path), length))
        })
    }

    /// `statfs`.
    pub fn statfs(&self, dir: Dir, path: &CStr, into: &mut statfs64) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Reads, (dir, path), |dir, path| {
            let dir = start(dir, path)?;
            if path.is_empty()
                && matches!(dir, Dir::Held(_) | Dir::Guest(_))
                && let Some(file) = process.descriptor(dir)?
            {
                return process.statfs(Target::File(file), into);
            }
            by_path(process, dir, path, |path, _| process.statfs(Target::Path(path), into))
        })
    }

    /// `getxattr`.
    pub fn getxattr(
        &self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        name: &CStr,
        into: &mut [u8],
    ) -> Result<usize> {
        let process = &self.process;
        self.call(Effect::Reads, (dir, path), |dir, path| {
            if path.is_empty()
                && let start @ Dir::Guest(_) = start(dir, path)?
                && let Some(file) = process.descriptor(start)?
            {
                match process.getxattr(Target::File(file), name, into) {
                    // It was opened with `O_PATH`, as the view's own files are.
                    Err(Errno::EBADF) => {}
                    result => return result,
                }
            }
            let call = |tree, rest: &CStr, flags| process.getxattrat(tree, rest, flags, name, into);
            if let Some(result) = self.xattr_from_tree(dir, path, nofollow, call) {
                return result;
            }
            by_path(process, dir, path, |path, magic| {
                process.getxattr(Target::path(path, nofollow && !magic), name, into)
            })
        })
    }

    /// `setxattr`.
    pub fn setxattr(
        &self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        name: &CStr,
        value: &[u8],
        flags: u32,
    ) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Changes, (dir, path), |dir, path| {
            by_path(process, dir, path, |path, magic| {
                process.setxattr(Target::path(path, nofollow && !magic), name, value, flags)
            })
        })
    }

    /// `listxattr`.
    pub fn listxattr(
        &self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        into: &mut [u8],
    ) -> Result<usize> {
        let process = &self.process;
        self.call(Effect::Reads, (dir, path), |dir, path| {
            let call = |tree, rest: &CStr, flags| process.listxattrat(tree, rest, flags, into);
            if let Some(result) = self.xattr_from_tree(dir, path, nofollow, call) {
                return result;
            }
            by_path(process, dir, path, |path, magic| {
                process.listxattr(Target::path(path, nofollow && !magic), into)
            })
        })
    }

    /// `removexattr`.
    pub fn removexattr(&self, dir: Dir, path: &CStr, nofollow: bool, name: &CStr) -> Result<()> {
        let process = &self.process;
        self.call(Effect::Changes, (dir, path), |dir, path| {
            by_path(process, dir, path, |path, magic| {
                process.removexattr(Target::path(path, nofollow && !magic), name)
            })
        })
    }

    /// `pread`.
    pub fn pread(&self, fd: HostFd, into: &mut [u8], offset: u64) -> Result<usize> {
        io::pread(&self.process, fd, into, offset)
    }

    /// `write` of all bytes.
    pub fn write_all(&self, fd: HostFd, from: &[u8]) -> Result<()> {
        io::write_all(&self.process, fd, from)
    }

    /// `memfd_create`, or a file without a name in `directory`.
    pub fn memory_file(&self, name: &CStr, directory: &[u8]) -> Result<HostFd> {
        let process = &self.process;
        if !process.lacks(Feature::MemoryFile) {
            match process.memfd_create(name) {
                Err(Errno::ENOSYS | Errno::EPERM) => process.set_lacking(Feature::MemoryFile),
                result => return result,
            }
        }
        io::nameless_file(process, directory)
    }

    /// Makes a call on the layer that has the file.
    #[inline]
    fn call<T>(
        &self,
        effect: Effect,
        (dir, path): (Dir, &CStr),
        mut call: impl FnMut(Dir, &CStr) -> Result<T>,
    ) -> Result<T> {
        let mut answer = None;
        let call: overlay::Call<'_> =
            &mut |dir, path| call(dir, path).map(|result| answer = Some(result));
        match Overlay::of(&self.process) {
            Some(layers) => layers.call(effect, (dir, path), call),
            None => call(dir, path),
        }?;
        answer.ok_or(Errno::EIO)
    }

    /// A call on attributes of a file in the container's tree, from the tree's descriptor. `None`
    /// where there is no such call, or no such path.
    fn xattr_from_tree(
        &self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        call: impl FnOnce(HostFd, &CStr, u32) -> Result<usize>,
    ) -> Option<Result<usize>> {
        let process = &self.process;
        if dir != Dir::Root || process.lacks(Feature::Xattrat) {
            return None;
        }
        let (tree, rest) = process.in_tree(path)?;
        match call(tree, rest, if nofollow { AT_SYMLINK_NOFOLLOW } else { 0 }) {
            Err(Errno::ENOSYS | Errno::EPERM) => process.set_lacking(Feature::Xattrat),
            Err(errno) if process.is_tree_lost(errno) => {}
            result => return Some(result),
        }
        None
    }
}

/// `openat2`. `EPERM` may be an answer for this file: then it is asked what never is refused.
fn open_resolved<P: Process>(
    process: &P,
    dir: HostFd,
    path: &CStr,
    (flags, mode): (u32, u32),
    resolve: u64,
) -> Result<HostFd> {
    if process.lacks(Feature::Openat2) {
        return Err(Errno::ENOSYS);
    }
    let mut result = process.openat2(dir, path, flags, mode, resolve);
    for _ in 0..RENAMES {
        if result != Err(Errno::EAGAIN) {
            break;
        }
        result = process.openat2(dir, path, flags, mode, resolve);
    }
    let is_refused = match result {
        Err(Errno::ENOSYS) => true,
        Err(Errno::EPERM) => is_openat2_refused(process),
        _ => false,
    };
    if is_refused {
        process.set_lacking(Feature::Openat2);
        return Err(Errno::ENOSYS);
    }
    result
}

/// Whether `openat2` does not work for the host's root either.
#[cold]
pub fn is_openat2_refused<P: Process>(process: &P) -> bool {
    let root = process.openat2(CWD, c"/", O_PATH | O_CLOEXEC, 0, 0);
    root.inspect(|file| process.close(*file)).is_err()
}

fn access<P: Process>(process: &P, at: &DirPath<'_>, mode: u32, flags: u32) -> Result<()> {
    const WRITE: u32 = 2;
    if !process.lacks(Feature::Faccessat2) {
        match process.faccessat2(at.dir, at.path, mode, at.flags(flags) | AT_EACCESS) {
            Err(Errno::ENOSYS) => process.set_lacking(Feature::Faccessat2),
            // A filter refuses the call. (Of the kernel's own answers, only an immutable file
            // that is to be written has this error.)
            Err(Errno::EPERM) if mode & WRITE == 0 => {}
            result => return result,
        }
    }
    // `faccessat` follows: only a look tells links from their targets. A link allows everything.
    if at.flags(flags) & AT_SYMLINK_NOFOLLOW != 0 {
        let status = process.fstatat(at.dir, at.path, AT_SYMLINK_NOFOLLOW)?;
        if status.st_mode & S_IFMT == S_IFLNK {
            return Ok(());
        }
    }
    process.faccessat(at.dir, at.path, mode)
}

/// Gives the owner's rights back to a new file that the umask took: the umask is the guest's and
/// may take all of them, but the view needs them on disk. Where that fails, the file is removed;
/// `flags` is how.
fn keep_owners_rights<P: Process>(
    process: &P,
    at: &DirPath<'_>,
    mode: u32,
    flags: u32,
) -> Result<()> {
    const OWNER: u32 = 0o700;
    if !P::APPLIES_UMASK || mode & OWNER == 0 {
        return Ok(());
    }
    let keep = || {
        let status = process.fstatat(at.dir, at.path, AT_SYMLINK_NOFOLLOW)?;
        if mode & OWNER & !status.st_mode == 0 {
            return Ok(());
        }
        process.fchmodat(at.dir, at.path, status.st_mode & 0o7777 | mode & OWNER)
    };
    match keep() {
        // It was made, and has been removed or moved meanwhile.
        Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(()),
        result => result.inspect_err(|_| {
            let _ = process.unlinkat(at.dir, at.path, flags);
        }),
    }
}
