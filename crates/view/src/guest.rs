//! What a backend lends: the guest's memory, and calls made on its behalf.

use crate::errno::{Errno, Result};
use crate::task::Task;
use crate::text::Text;
use core::ffi::CStr;
use linux_raw_sys::general::{statfs64, statx, timespec};

/// A file that the backend holds open for the view (in the tracer: one of the tracer's; in the stage: one of the process itself).
/// Whoever opened it closes it, on every path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFd(pub i32);

/// Longest path that [`Host::alias`] gives, in bytes.
pub const ALIAS_MAX: usize = 27;

/// Where a host path starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dir {
    /// Nowhere: the path is absolute, in the host's own root.
    Root,
    /// A file that the backend holds. An empty path is the file itself.
    Held(HostFd),
    /// A descriptor of the guest's. An empty path is the file itself. The tracer reaches it through `/proc/PID/fd`, the stage directly.
    Guest(i32),
    /// The guest's working directory. An empty path is the directory itself.
    Cwd,
}

/// What may be known of a path as the guest writes it ([`Host::is_straight`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Straight {
    /// A directory to which the kernel comes by this text.
    Way,
    /// The same, and there is no user of the guest's who may not search it and every directory above.
    OpenWay,
    /// A file that stands for nothing else.
    Ordinary,
}

impl Straight {
    /// A directory, for whom directories may refuse (`everybody`) or not.
    pub const fn way(everybody: bool) -> Self {
        if everybody { Self::OpenWay } else { Self::Way }
    }
}

/// The guest's memory.
pub trait Guest {
    /// Reads all of `into`, or [`crate::Errno::EFAULT`].
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()>;
    /// Reads as far as the memory goes; `EFAULT` if that is nothing.
    fn read_some(&mut self, at: u64, into: &mut [u8]) -> Result<usize>;
    /// Writes all of `from`, or `EFAULT` (some may have been written).
    fn write(&mut self, at: u64, from: &[u8]) -> Result<()>;
    /// Puts bytes where the guest's next call can read them; they last until that call has returned and
    /// [`crate::calls::leave`] has seen its result. `align` is a power of two up to 16.
    /// At most 128 KiB in all for one call: [`crate::Errno::E2BIG`].
    fn scratch(&mut self, bytes: &[u8], align: usize) -> Result<u64>;
    /// As [`Guest::scratch`], but only room: its bytes are written afterwards, in pieces, by [`Guest::write`].
    fn scratch_room(&mut self, length: usize, align: usize) -> Result<u64>;

    /// Reads a string up to its NUL; longer than a path can be is [`crate::Errno::ENAMETOOLONG`].
    fn read_text(&mut self, at: u64, into: &mut Text) -> Result<()>;
}

/// Calls on the host's files for the guest, with the caller's own rights. Named after the kernel's calls; flags are the kernel's.
///
/// Errors are the kernel's. `path` may be empty where [`Dir`] says so. Nothing here follows the guest's root or bindings: that is the
/// view's work, whose host paths have no symbolic links left except where a method's `flags` say that the last one is meant.
pub trait Host {
    /// `openat2`; `resolve` is `RESOLVE_*`. Where the kernel has no openat2 (or refuses it), a nonzero `resolve` gives `ENOSYS`, once and
    /// for all: see [`Host::has_openat2`]. `O_CLOEXEC` is always set.
    fn open(
        &mut self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<HostFd>;
    /// Whether `open` takes `resolve`.
    fn has_openat2(&self) -> bool;
    /// `close`.
    fn close(&mut self, fd: HostFd);
    /// `statx` with `STATX_BASIC_STATS | STATX_BTIME`; on kernels before 4.11 made from `fstatat`. `flags` are `AT_*`.
    fn statx(&mut self, dir: Dir, path: &CStr, flags: u32, into: &mut statx) -> Result<()>;
    /// `readlinkat`. Longer than a path can be is `ENAMETOOLONG`.
    fn readlink(&mut self, dir: Dir, path: &CStr, into: &mut Text) -> Result<()>;
    /// The kernel's name of a directory or file: the text of the link `/proc/…/fd/N` or `/proc/…/cwd` (for [`Dir::Root`] it is `/`). With
    /// ` (deleted)` at the end where there is no such name any more; `pipe:[1]` and the like for what never had one. `ENAMETOOLONG` where
    /// the kernel says so, or `ENOENT`.
    fn path_of(&mut self, dir: Dir, into: &mut Text) -> Result<()>;
    /// `faccessat2` with `AT_EACCESS`; `mode` is `R_OK | W_OK | X_OK`, `flags` are `AT_*`.
    fn access(&mut self, dir: Dir, path: &CStr, mode: u32, flags: u32) -> Result<()>;
    /// `mkdirat`; `mode` is the final one (the guest's umask has been applied, the backend's own is 0 for this call).
    fn mkdir(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()>;
    /// `mknodat`, likewise. Types other than files, pipes and sockets are the view's to emulate.
    fn mknod(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()>;
    /// `unlinkat`.
    fn unlink(&mut self, dir: Dir, path: &CStr, flags: u32) -> Result<()>;
    /// `renameat2`.
    fn rename(&mut self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()>;
    /// `linkat`; links to symbolic links are made unless `flags` has `AT_SYMLINK_FOLLOW`.
    fn link(&mut self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()>;
    /// `symlinkat`.
    fn symlink(&mut self, target: &CStr, dir: Dir, path: &CStr) -> Result<()>;
    /// `fchmodat`, following; with an empty path the file of `dir` itself, also where that was opened with `O_PATH`.
    fn chmod(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()>;
    /// `fchownat`.
    fn chown(&mut self, dir: Dir, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<()>;
    /// `utimensat`; `None` is now.
    fn utimens(
        &mut self,
        dir: Dir,
        path: &CStr,
        times: Option<&[timespec; 2]>,
        flags: u32,
    ) -> Result<()>;
    /// `truncate`.
    fn truncate(&mut self, dir: Dir, path: &CStr, length: u64) -> Result<()>;
    /// `statfs`.
    fn statfs(&mut self, dir: Dir, path: &CStr, into: &mut statfs64) -> Result<()>;
    /// `getxattr`; with `nofollow` of a link itself. An empty `into` asks for the size.
    fn getxattr(
        &mut self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        name: &CStr,
        into: &mut [u8],
    ) -> Result<usize>;
    /// `setxattr`; `flags` are `XATTR_CREATE`, `XATTR_REPLACE`.
    fn setxattr(
        &mut self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        name: &CStr,
        value: &[u8],
        flags: u32,
    ) -> Result<()>;
    /// `listxattr`: names, each followed by a NUL.
    fn listxattr(
        &mut self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        into: &mut [u8],
    ) -> Result<usize>;
    /// `removexattr`.
    fn removexattr(&mut self, dir: Dir, path: &CStr, nofollow: bool, name: &CStr) -> Result<()>;
    /// `pread`.
    fn pread(&mut self, fd: HostFd, into: &mut [u8], offset: u64) -> Result<usize>;
    /// `write`, all of it.
    fn write_all(&mut self, fd: HostFd, from: &[u8]) -> Result<()>;
    /// `memfd_create` (an unlinked file in a temporary directory where the kernel has none): for texts made up for the guest.
    fn memory_file(&mut self, name: &CStr) -> Result<HostFd>;

    /// Whether this inode of the container's tree is shared with the image: how many names it has inside the image, else `None`. Asked
    /// only for regular files with more than one link.
    fn image_links(&mut self, inode: u64) -> Option<u32>;
    /// Whether a copy may have taken the place of this inode of the image ([`Host::copy_up`]) while somebody could have it open. True where that is
    /// not known.
    fn was_replaced(&mut self, inode: u64) -> bool {
        let _ = inode;
        true
    }
    /// Whether this is the device of the container's tree: then a file with an inode number of the image's list is the image's, whatever
    /// name led to it. False where that is not certain.
    fn is_image_device(&self, major: u32, minor: u32) -> bool {
        let _ = (major, minor);
        false
    }
    /// Replaces a file that is shared with the image by a copy of its own (contents, mode, times, attributes), by rename. `path` is
    /// absolute. May take long; see [`crate::Verdict::CopyUp`].
    fn copy_up(&mut self, path: &CStr) -> Result<()>;
    /// Record of an inode that cannot carry an attribute (a symbolic link, pipe or socket, or any file where the file system has none), as
    /// [`crate::identity`] wrote it. The key holds device and inode number and the time of birth where known.
    fn note(&mut self, key: &[u8], into: &mut [u8]) -> Option<usize>;
    /// Whether there may be any such record. True where that would have to be looked for.
    fn has_notes(&mut self) -> bool {
        true
    }
    /// Writes such a record; `None` removes it. It is on disk, whole, when this returns, and other backends of this container see it.
    fn set_note(&mut self, key: &[u8], record: Option<&[u8]>) -> Result<()>;

    /// Whether a descriptor of the guest's was opened with `O_PATH`: it names a file, and nothing can be done with what it names. `EBADF` where
    /// there is no such descriptor.
    fn only_names(&mut self, descriptor: i32) -> Result<bool>;
    /// Whether a process of this container executes the file with this device (major, minor) and inode number. Asked before a regular file that
    /// somebody may execute is written to: `ETXTBSY`.
    fn is_executed(&mut self, device: (u32, u32), inode: u64) -> bool;
    /// Whether anybody has a file, which is open for reading here, open for writing: then it is not executed (`ETXTBSY`). False where the
    /// kernel does not tell.
    fn is_written(&mut self, file: HostFd) -> bool;
    /// Whether a program and its interpreter are opened once more by their host paths when an `execve` is carried out, so that the plan has to have
    /// them.
    fn opens_by_path(&self) -> bool {
        true
    }

    /// Id of the calling process (`getpid`, as the guest sees it).
    fn pid(&self) -> u32;
    /// Id of the calling thread.
    fn tid(&self) -> u32;
    /// Guest path of the program that a process of this container runs; false if it is none of this container's.
    fn program_of(&mut self, pid: u32, into: &mut Text) -> bool;
    /// Shows the state of another thread of this container (not of the calling one, which is in the context); false if it is none, or not
    /// known here.
    fn with_task(&mut self, tid: u32, look: &mut dyn FnMut(&Task)) -> bool {
        let _ = (tid, look);
        false
    }
    /// Puts a path of at most [`ALIAS_MAX`] bytes into `into` by which the guest's calls, and those of other processes, reach a directory that the
    /// view holds: `/proc/PID/fd/N`, or a link. Takes the descriptor over, and keeps it as long as the container runs (the same directory gives the same
    /// path), because addresses of sockets name it. Where that path is longer than `most`, it may be a shorter one, which only this call of the guest's
    /// understands. `ENAMETOOLONG` where there is no such path.
    fn alias(&mut self, directory: HostFd, most: usize, into: &mut Text) -> Result<()> {
        let _ = (most, into);
        self.close(directory);
        Err(Errno::ENAMETOOLONG)
    }
    /// Puts a path of at most 64 bytes into `into` that is a magic link to a file that the view holds, of any kind: for this call of the guest's, and no
    /// longer. Takes the descriptor over. `ENAMETOOLONG` where there is no such path.
    fn lend(&mut self, file: HostFd, into: &mut Text) -> Result<()> {
        let _ = into;
        self.close(file);
        Err(Errno::ENAMETOOLONG)
    }
    /// `kill(-1, signal)`: to every process of this container but the caller, and to none else. `ESRCH` where there is none.
    fn signal_all(&mut self, signal: u32) -> Result<()> {
        let _ = signal;
        Err(Errno::ESRCH)
    }

    /// Whether this is known of a directory of the container's own tree ([`crate::world::Kind::Tree`], absolute host path): no component of it
    /// is a symbolic link. With `everybody`: and there is no user of the guest's who may not search it and every directory above.
    ///
    /// What is known is shared by all backends of the container, and forgotten at every [`Host::changed`]. An implementation keeps, for
    /// instance, one word per entry, made of a hash of path and `everybody` and of a generation that `changed` counts up. Knowing nothing is always right.
    fn is_plain(&mut self, dir: &[u8], everybody: bool) -> bool {
        let _ = (dir, everybody);
        false
    }
    /// The generation of what is known, to be read before a directory is looked at. `None` where nothing is ever remembered; then
    /// nobody looks for the sake of remembering.
    fn plain_generation(&mut self) -> Option<u64> {
        None
    }
    /// Makes known what [`Host::is_plain`] asks. Nothing is remembered if there was a [`Host::changed`] since `generation` was read.
    fn set_plain(&mut self, dir: &[u8], everybody: bool, generation: u64) {
        let _ = (dir, everybody, generation);
    }
    /// Whether something is known of a path as the guest gives it: absolute (or empty, for the root), from [`Host::tree_descriptor`]; otherwise from the
    /// working directory, as long as that is [remembered](Host::remembered_cwd). Worlds with other bindings know other paths.
    fn is_straight(&mut self, path: &[u8], what: Straight) -> bool {
        let _ = (path, what);
        false
    }
    /// Makes known what [`Host::is_straight`] asks, as [`Host::set_plain`] does. A relative path must have been found from what
    /// [`Host::remembered_cwd`] gives.
    fn set_straight(&mut self, path: &[u8], what: Straight, generation: u64) {
        let _ = (path, what, generation);
    }
    /// A directory of the tree is about to be, or was, removed, renamed, or made to let other people in: nothing is known any more.
    fn changed(&mut self) {}
    /// With which error files of the container's tree have no label (`security.selinux`), because the host labels none. `None` where they may have one.
    fn label_refusal(&mut self) -> Option<Errno> {
        None
    }
    /// `newfstatat` (`fstat` where the path is empty) into the guest's memory at `into`, in the layout of x86-64; with a `mask` it is `statx`.
    /// `None` where that cannot be done so; nothing has been written then.
    fn stat_into(
        &mut self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mask: Option<u32>,
        into: u64,
    ) -> Option<Result<()>> {
        let _ = (dir, path, flags, mask, into);
        None
    }
    /// A descriptor among the guest's own that is the root of the tree (the host path of the binding at `/`): the guest's calls may start from it,
    /// and are answered `EBADF` if it is gone.
    fn tree_descriptor(&mut self) -> Option<i32> {
        None
    }
    /// The kernel's name of the working directory, as [`Host::path_of`] gives it, where that costs one quick call or nothing, because it is
    /// remembered since the last `chdir`, `fchdir` or [`Host::changed`]. False, and `into` means nothing, where it cannot be told so. A name
    /// outside of the container's own tree may be one of before.
    fn remembered_cwd(&mut self, into: &mut Text) -> bool {
        let _ = into;
        false
    }
}

/// A backend: both.
pub trait Backend: Guest + Host {}
impl<T: Guest + Host> Backend for T {}
