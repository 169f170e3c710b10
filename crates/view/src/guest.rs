//! The traits that a backend implements: [`Guest`] is the guest's memory, [`Host`] makes calls
//! on the guest's behalf, [`Sockets`] those on its sockets.

use crate::errno::{Errno, Result};
use crate::identity::Truth;
pub use crate::sockets::host::{SocketKind, SocketOption, Sockets};
use crate::task::Task;
use crate::text::Text;
use core::ffi::CStr;
use linux_raw_sys::general::{statfs64, statx, timespec};

/// A file that the backend holds open for the view: a descriptor of the tracer, or in the stage one
/// of the guest's process itself. The function that opened it closes it, also on errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFd(pub i32);

/// Longest path that [`Host::alias`] gives, in bytes.
pub const ALIAS_MAX: usize = 27;

/// Longest host name, in bytes: `__NEW_UTS_LEN`.
pub const HOST_NAME_MAX: usize = 64;

/// The directory that a host path is relative to.
///
/// Nothing has the number 0, so that `None` has it: empty [`crate::CallBuffers`] are zeros then,
/// and no copy of their 73 kB is in the binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Dir {
    /// The host's own root: the path is absolute.
    Root = 1,
    /// A file that the backend holds. An empty path means the file itself.
    Held(HostFd),
    /// A descriptor of the guest. An empty path means the file itself. The tracer reaches it
    /// through `/proc/PID/fd`, the stage uses it directly.
    Guest(i32),
    /// The guest's working directory. An empty path means the directory itself.
    Cwd,
}

/// What a call of the guest's own does at a path that the kernel is given
/// ([`Host::real_path`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It uses a file that exists.
    Use,
    /// It opens a file, and makes it if it is missing.
    Open,
    /// It makes a name that does not exist.
    Make,
}

/// What the backend may remember of a path as the guest writes it ([`Host::is_straight`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Straight {
    /// It is a directory, and the kernel resolves this text to it.
    Way,
    /// The same, and every user of the guest may search it and all directories above it.
    OpenWay,
    /// It is a file that no rule treats specially.
    Ordinary,
}

impl Straight {
    /// A directory: with `everybody` one that every user of the guest may search.
    pub const fn way(everybody: bool) -> Self {
        if everybody { Self::OpenWay } else { Self::Way }
    }
}

/// The guest's memory.
pub trait Guest {
    /// Reads all of `into`, or fails with [`crate::Errno::EFAULT`].
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()>;
    /// Reads as many bytes as are mapped; `EFAULT` if there are none.
    fn read_some(&mut self, at: u64, into: &mut [u8]) -> Result<usize>;
    /// Writes all of `from`, or fails with `EFAULT` (part of it may have been written).
    fn write(&mut self, at: u64, from: &[u8]) -> Result<()>;
    /// Puts bytes into memory that the guest's next call can read. They stay there until that call
    /// has returned and [`crate::calls::leave`] has seen its result. `align` is a power of two up
    /// to 16. The sum for one call is at most 128 KiB; more fails with [`crate::Errno::E2BIG`].
    fn scratch(&mut self, bytes: &[u8], align: usize) -> Result<u64>;
    /// Reserves memory as [`Guest::scratch`] does, without contents. The caller writes the bytes
    /// afterwards, in pieces, with [`Guest::write`].
    fn scratch_room(&mut self, length: usize, align: usize) -> Result<u64>;

    /// Reads a string up to its NUL. A string longer than a path fails with
    /// [`crate::Errno::ENAMETOOLONG`].
    fn read_text(&mut self, at: u64, into: &mut Text) -> Result<()>;
}

/// System calls on the host's files for the guest, made with the rights of the user who started the
/// container. Methods are named after the kernel's calls; flags are the kernel's.
///
/// Errors are the kernel's. `path` may be empty where [`Dir`] allows it. No method follows the
/// guest's root or bindings: the view does that. Its host paths contain no symbolic links, except
/// that the last component may be one if the `flags` of a method say so.
pub trait Host {
    /// `openat2`; `resolve` is `RESOLVE_*`. Where the kernel lacks openat2 or refuses it, every
    /// call with a nonzero `resolve` fails with `ENOSYS`: see [`Host::has_openat2`]. `O_CLOEXEC` is
    /// always set.
    fn open(
        &mut self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mode: u32,
        resolve: u64,
    ) -> Result<HostFd>;
    /// Returns true if `open` supports `resolve`.
    fn has_openat2(&self) -> bool;
    /// `close`.
    fn close(&mut self, fd: HostFd);
    /// `statx` with `STATX_BASIC_STATS | STATX_BTIME`; on kernels before 4.11 made from `fstatat`.
    /// `flags` are `AT_*`.
    fn statx(&mut self, dir: Dir, path: &CStr, flags: u32, into: &mut statx) -> Result<()>;
    /// Mode, device and number of an open file, as [`Host::statx`] gives them, where that is
    /// quicker.
    fn inode_of(&mut self, dir: Dir, into: &mut statx) -> Result<()> {
        self.statx(dir, c"", linux_raw_sys::general::AT_EMPTY_PATH, into)
    }
    /// `readlinkat`. A target longer than a path fails with `ENAMETOOLONG`.
    fn readlink(&mut self, dir: Dir, path: &CStr, into: &mut Text) -> Result<()>;
    /// The kernel's name of a directory or file: the target of the link `/proc/…/fd/N` or
    /// `/proc/…/cwd` (for [`Dir::Root`] it is `/`). A deleted file's name ends in ` (deleted)`;
    /// files that never had a name have one like `pipe:[1]`. Fails with `ENAMETOOLONG` or `ENOENT`
    /// as the kernel does.
    fn path_of(&mut self, dir: Dir, into: &mut Text) -> Result<()>;
    /// `faccessat2` with `AT_EACCESS`; `mode` is `R_OK | W_OK | X_OK`, `flags` are `AT_*`.
    fn access(&mut self, dir: Dir, path: &CStr, mode: u32, flags: u32) -> Result<()>;
    /// `mkdirat`; `mode` is the final one: the guest's umask has been applied, and the backend's
    /// own umask is 0 during this call.
    fn mkdir(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()>;
    /// `mknodat`; `mode` as in [`Host::mkdir`]. The view itself emulates all types other than
    /// files, pipes and sockets.
    fn mknod(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()>;
    /// `unlinkat`.
    fn unlink(&mut self, dir: Dir, path: &CStr, flags: u32) -> Result<()>;
    /// `renameat2`.
    fn rename(&mut self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()>;
    /// `linkat`; a symbolic link itself gets the new name unless `flags` contain
    /// `AT_SYMLINK_FOLLOW`.
    fn link(&mut self, from: (Dir, &CStr), to: (Dir, &CStr), flags: u32) -> Result<()>;
    /// `symlinkat`.
    fn symlink(&mut self, target: &CStr, dir: Dir, path: &CStr) -> Result<()>;
    /// `fchmodat`, which follows links. With an empty path it changes the file of `dir` itself,
    /// also if that was opened with `O_PATH`.
    fn chmod(&mut self, dir: Dir, path: &CStr, mode: u32) -> Result<()>;
    /// `fchownat`.
    fn chown(&mut self, dir: Dir, path: &CStr, uid: u32, gid: u32, flags: u32) -> Result<()>;
    /// `utimensat`; `None` sets the current time.
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
    /// `getxattr`; with `nofollow` it reads the attribute of a link itself. With an empty `into` it
    /// returns the size.
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
    /// `listxattr`: the names, each followed by a NUL.
    fn listxattr(
        &mut self,
        dir: Dir,
        path: &CStr,
        nofollow: bool,
        into: &mut [u8],
    ) -> Result<usize>;
    /// `removexattr`.
    fn removexattr(&mut self, dir: Dir, path: &CStr, nofollow: bool, name: &CStr) -> Result<()>;
    /// `lseek` of an open directory; one of the guest's shares its position with the guest.
    fn seek(&mut self, dir: Dir, offset: u64, whence: u32) -> Result<u64> {
        let _ = (dir, offset, whence);
        Err(Errno::ENOSYS)
    }
    /// `getdents64`, likewise.
    fn getdents(&mut self, dir: Dir, into: &mut [u8]) -> Result<usize> {
        let _ = (dir, into);
        Err(Errno::ENOSYS)
    }
    /// The record of the image's directory that is merged with the directory at an absolute path of
    /// the container's tree, if there is one.
    fn base_of(&mut self, path: &CStr) -> Option<u32> {
        let _ = path;
        None
    }
    /// Waits until another process has moved the directory that it is moving. If that process was
    /// killed, no directory is moved any more, and that is written down
    /// ([`abi::shared::changes::Changes::moves`]).
    fn await_move(&mut self) {}
    /// `pread`.
    fn pread(&mut self, fd: HostFd, into: &mut [u8], offset: u64) -> Result<usize>;
    /// `write`, repeated until everything is written.
    fn write_all(&mut self, fd: HostFd, from: &[u8]) -> Result<()>;
    /// `memfd_create`, for files whose contents the view makes up for the guest. Where the kernel
    /// has no memory files, it is an unlinked file in a temporary directory.
    fn memory_file(&mut self, name: &CStr) -> Result<HostFd>;

    /// What the image's index says of a file with this status, if it is one of the image
    /// ([`crate::World::image`]).
    fn truth_in_image(&mut self, facts: &statx) -> Option<Truth> {
        let _ = facts;
        None
    }
    /// Returns true if a file with this status is one of an image with an index. What the container
    /// makes of it when it is changed always has a record.
    fn is_in_image(&mut self, facts: &statx) -> bool {
        let _ = facts;
        false
    }
    /// Puts the path into `into` by which the kernel finds a file of the container's tree, where
    /// that has two layers ([`crate::World::image`]); else the path itself, which is absolute. What
    /// a new file needs above it is made. Returns true if `open` cannot make the file, because
    /// something is in its place that the guest does not see: then it is made by [`Host::mknod`].
    fn real_path(&mut self, path: &CStr, purpose: Purpose, into: &mut Text) -> Result<bool> {
        let _ = purpose;
        into.set(path.to_bytes())?;
        Ok(false)
    }

    /// Replaces the kernel's name of a file of the image by the host path that the view uses, which
    /// ends in ` (deleted)` if the container has removed it. Other names stay.
    fn to_place(&mut self, name: &mut Text) -> Result<()> {
        let _ = name;
        Ok(())
    }

    /// If the container's tree shares this inode with the image: the number of its names inside the
    /// image. The view asks only for regular files with more than one link.
    fn image_links(&mut self, inode: u64) -> Option<u32>;
    /// Returns true if [`Host::copy_up`] may have replaced this inode of the image by a copy while
    /// a process could have it open. Returns true if the backend does not know.
    fn was_replaced(&mut self, inode: u64) -> bool {
        let _ = inode;
        true
    }
    /// Returns true if this is the device of the container's tree. A file there whose inode number
    /// is in the image's list belongs to the image, by whatever name it was reached. Returns false
    /// if that is uncertain.
    fn is_image_device(&self, major: u32, minor: u32) -> bool {
        let _ = (major, minor);
        false
    }
    /// Replaces a file that is shared with the image by a private copy (contents, mode, times,
    /// attributes), by rename. `path` is absolute. This may take long; see
    /// [`crate::Verdict::CopyUp`].
    fn copy_up(&mut self, path: &CStr) -> Result<()>;
    /// Reads the record, as [`crate::identity`] wrote it, of an inode that cannot carry an
    /// attribute: a symbolic link, pipe or socket, or any file on a file system without attributes.
    /// The key holds device and inode number, and the time of birth if it is known.
    fn note(&mut self, key: &[u8], into: &mut [u8]) -> Option<usize>;
    /// Returns false if there is certainly no such record, and true if it would have to be looked
    /// for.
    fn has_notes(&mut self) -> bool {
        true
    }
    /// Writes such a record; `None` removes it. When this returns, the whole record is on disk and
    /// the container's other backends see it.
    fn set_note(&mut self, key: &[u8], record: Option<&[u8]>) -> Result<()>;

    /// Puts the container's host name into `into` and returns its length. `None` while it is the
    /// one that the container started with ([`crate::World::host_name`]), which has to be found out
    /// quickly.
    fn host_name(&mut self, into: &mut [u8; HOST_NAME_MAX]) -> Option<usize> {
        let _ = into;
        None
    }
    /// Gives all processes of the container, and those that will be started in it while one of them
    /// lives, this host name of at most [`HOST_NAME_MAX`] bytes.
    fn set_host_name(&mut self, name: &[u8]) -> Result<()> {
        let _ = name;
        Err(Errno::EPERM)
    }
    /// A file for a guest that sets the host name by writing to it: what the first line says as
    /// soon as there is one, cut where it is too long, is the name.
    fn host_name_file(&mut self) -> Result<HostFd> {
        Err(Errno::EROFS)
    }

    /// Returns true if a descriptor of the guest was opened with `O_PATH`, so that it only names a
    /// file. `EBADF` if there is no such descriptor.
    fn only_names(&mut self, descriptor: i32) -> Result<bool>;
    /// Returns true if a process of this container executes the file with this device (major,
    /// minor) and inode number. The view asks before a regular file that may be executed is written
    /// to: `ETXTBSY`.
    fn is_executed(&mut self, device: (u32, u32), inode: u64) -> bool;
    /// Returns true if any process has this file open for writing; such a file cannot be executed
    /// (`ETXTBSY`). The backend has it open for reading. Returns false if the kernel does not tell.
    fn is_written(&mut self, file: HostFd) -> bool;
    /// Returns true if the backend opens a program and its interpreter once more by their host
    /// paths when it carries out an `execve`, so that the plan must contain the paths.
    fn opens_by_path(&self) -> bool {
        true
    }

    /// Index of the binding by which the directory of a guest's descriptor was entered, if
    /// [`Host::set_entered`] has noted it.
    fn entered(&mut self, descriptor: i32) -> Option<usize> {
        let _ = descriptor;
        None
    }
    /// Notes it, so that every copy of the descriptor has it. The view asks for it only where
    /// bindings overlap. The kernel keeps it with the open file as the signal of `F_SETSIG`, which
    /// means nothing for a directory without `F_NOTIFY`: that is inherited, copied and sent as the
    /// file is. So only 64 bindings can be noted, and none for `O_PATH`.
    fn set_entered(&mut self, descriptor: i32, binding: usize) {
        let _ = (descriptor, binding);
    }

    /// Lets other threads of the container go on for a moment, about 100 microseconds. Returns
    /// false without a pause if `since` (seconds since 1970) is not a time of the last two seconds,
    /// and if others cannot go on, because this thread makes their calls (the tracer's).
    fn pause(&mut self, since: i64) -> bool {
        let _ = since;
        false
    }
    /// Id of the calling process (`getpid`, as the guest sees it).
    fn pid(&self) -> u32;
    /// Id of the calling thread.
    fn tid(&self) -> u32;
    /// Puts the guest path of the program that a process of this container runs into `into`.
    /// Returns false if the process does not belong to this container.
    fn program_of(&mut self, pid: u32, into: &mut Text) -> bool;
    /// Calls `look` with the state of another thread of this container; the calling thread's state
    /// is in the context. Returns false if there is no such thread, or this backend does not know
    /// its state.
    fn with_task(&mut self, tid: u32, look: &mut dyn FnMut(&Task)) -> bool {
        let _ = (tid, look);
        false
    }
    /// Puts a path of at most [`ALIAS_MAX`] bytes into `into` by which the guest's calls, and those
    /// of other processes, reach a directory that the view holds: `/proc/PID/fd/N`, or a link. The
    /// backend takes the descriptor over and keeps it as long as the container runs, because
    /// addresses of sockets contain the path; the same directory always gives the same path. If
    /// that path is longer than `most`, the result may be a shorter one that is valid only for this
    /// call of the guest. `ENAMETOOLONG` if there is no such path.
    fn alias(&mut self, directory: HostFd, most: usize, into: &mut Text) -> Result<()> {
        let _ = (most, into);
        self.close(directory);
        Err(Errno::ENAMETOOLONG)
    }
    /// Puts a path of at most 64 bytes into `into` that is a magic link to a file of any kind that
    /// the view holds. It is valid only for this call of the guest. The backend takes the
    /// descriptor over. `ENAMETOOLONG` if there is no such path.
    fn lend(&mut self, file: HostFd, into: &mut Text) -> Result<()> {
        let _ = into;
        self.close(file);
        Err(Errno::ENAMETOOLONG)
    }
    /// `kill(-1, signal)`: sends the signal to every process of this container except the caller,
    /// and to no other process. `ESRCH` if there is none.
    fn signal_all(&mut self, signal: u32) -> Result<()> {
        let _ = signal;
        Err(Errno::ESRCH)
    }

    /// Returns true if a directory of the container's own tree ([`crate::world::Kind::Tree`],
    /// absolute host path) is known to be *plain*: no component of its path is a symbolic link.
    /// With `everybody`, every user of the guest may also search it and every directory above it.
    ///
    /// All backends of the container share this cache; every [`Host::changed`] empties it. An
    /// implementation keeps, for instance, one word for each entry, made from a hash of path and
    /// `everybody` and from a generation that `changed` advances. Returning false is always
    /// correct.
    fn is_plain(&mut self, dir: &[u8], everybody: bool) -> bool {
        let _ = (dir, everybody);
        false
    }
    /// The current generation of that cache; the view reads it before it looks at a directory.
    /// `None` if the backend never remembers anything: then the view makes no call only to fill the
    /// cache.
    fn plain_generation(&mut self) -> Option<u64> {
        None
    }
    /// Stores what [`Host::is_plain`] asks for. Has no effect if there was a [`Host::changed`]
    /// since `generation` was read.
    fn set_plain(&mut self, dir: &[u8], everybody: bool, generation: u64) {
        let _ = (dir, everybody, generation);
    }
    /// Returns true if `what` is known of a path as the guest gives it. An absolute path (or the
    /// empty one, for the root) starts at [`Host::tree_descriptor`], any other at the working
    /// directory, and is known only while that is [remembered](Host::remembered_cwd). Worlds with
    /// different bindings do not share this knowledge.
    fn is_straight(&mut self, path: &[u8], what: Straight) -> bool {
        let _ = (path, what);
        false
    }
    /// Stores what [`Host::is_straight`] asks for, under the conditions of [`Host::set_plain`]. A
    /// relative path must have been resolved from the directory that [`Host::remembered_cwd`]
    /// gives.
    fn set_straight(&mut self, path: &[u8], what: Straight, generation: u64) {
        let _ = (path, what, generation);
    }
    /// Empties the cache of directories. The view calls it before and after a directory of the tree
    /// is removed or renamed, or its search permission changes.
    fn changed(&mut self) {}
    /// The error for reading a label (`security.selinux`) of the container tree's files, if the
    /// host labels none of them. `None` if they may have labels.
    fn label_refusal(&mut self) -> Option<Errno> {
        None
    }
    /// `newfstatat` (`fstat` if the path is empty) into the guest's memory at `into`, in the layout
    /// of x86-64; with a `mask` it is `statx`. `None` if the backend cannot do that; then it has
    /// written nothing.
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
    /// A descriptor in the guest's own table for the root of the tree (the host path of the binding
    /// at `/`). The guest's calls may start from it; they fail with `EBADF` if the guest has closed
    /// it.
    fn tree_descriptor(&mut self) -> Option<i32> {
        None
    }
    /// The same for the upper directory, where the tree has two layers
    /// ([`crate::World::image`]); then [`Host::tree_descriptor`] is the image's tree.
    fn upper_descriptor(&mut self) -> Option<i32> {
        None
    }
    /// Puts the kernel's name of the working directory into `into`, as [`Host::path_of`] gives it,
    /// if that costs at most one quick call because it is remembered since the last `chdir`,
    /// `fchdir` or [`Host::changed`]. Returns false, with `into` undefined, if it is not
    /// remembered. The name of a directory outside of the container's own tree may be outdated.
    fn remembered_cwd(&mut self, into: &mut Text) -> bool {
        let _ = into;
        false
    }
}

/// A backend: a type that implements all three traits.
pub trait Backend: Guest + Host + Sockets {}
impl<T: Guest + Host + Sockets> Backend for T {}
