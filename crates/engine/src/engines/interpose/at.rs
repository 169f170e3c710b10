//! Where a call of the view's starts, in words of the kernel.
//!
//! | start | path | the kernel gets |
//! |---|---|---|
//! | nowhere | absolute | the path |
//! | held | relative | the descriptor and the path |
//! | held | empty | `/proc/self/fd/N`, followed: calls that do not take descriptors that only name a file take this |
//! | guest's | relative | `/proc/THREAD/fd/N/PATH` |
//! | guest's | empty | `/proc/THREAD/fd/N`, followed |
//!
//! Nothing is opened for that, except where the path would become too long.

use linux_raw_sys::general::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::ffi::CStr;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use view::errno::Result;
use view::text::PATH_MAX;
use view::{Dir, Errno, HostFd};

/// Files held for the view, by number.
#[derive(Debug, Default)]
pub(super) struct Held(Vec<Option<OwnedFd>>);

impl Held {
    pub(super) fn keep(&mut self, file: OwnedFd) -> HostFd {
        let number = file.as_raw_fd();
        let index = number as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(file);
        HostFd(number)
    }

    pub(super) fn get(&self, fd: HostFd) -> Result<BorrowedFd<'_>> {
        let file = usize::try_from(fd.0).ok().and_then(|index| self.0.get(index)?.as_ref());
        file.map(AsFd::as_fd).ok_or(Errno::EBADF)
    }

    pub(super) fn take(&mut self, fd: HostFd) -> Option<OwnedFd> {
        self.0.get_mut(usize::try_from(fd.0).ok()?)?.take()
    }
}

/// The root of the container's tree, held open: most host paths lie in it, and walking to it takes longer than what is left of them.
#[derive(Debug)]
pub(super) struct Tree {
    directory: OwnedFd,
    /// Its path, with a slash behind it.
    prefix: Vec<u8>,
    /// Major and minor number.
    pub(super) device: (u32, u32),
}

impl Tree {
    /// `None` where it cannot be opened, or is the host's own root.
    pub(super) fn open(root: &[u8]) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(root, flags, Mode::empty()).ok()?;
        let device = rustix::fs::fstat(&directory).ok()?.st_dev;
        let prefix = [root, b"/"].concat();
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        (root != b"/").then_some(Self { directory, prefix, device })
    }

    /// Whether a path leads to something below it by its name.
    pub(super) fn holds(&self, path: &CStr) -> bool {
        let rest = path.to_bytes().strip_prefix(self.prefix.as_slice());
        rest.is_some_and(|rest| rest.first().is_some_and(|byte| *byte != b'/'))
    }

    /// What it [`Tree::holds`], from there.
    pub(super) fn dir_path<'a>(&'a self, path: &'a CStr) -> DirPath<'a> {
        let path = CStr::from_bytes_with_nul(&path.to_bytes_with_nul()[self.prefix.len()..]);
        DirPath {
            base: Base::Borrowed(self.directory.as_fd()),
            path: path.unwrap_or(c""),
            magic: false,
        }
    }
}

/// A place.
pub(super) struct DirPath<'a> {
    base: Base<'a>,
    /// From there.
    pub(super) path: &'a CStr,
    /// The path is a magic link that stands for the file itself: to be followed, whatever the flags say.
    pub(super) magic: bool,
}

enum Base<'a> {
    Borrowed(BorrowedFd<'a>),
    Opened(OwnedFd),
}

impl AsFd for DirPath<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.base {
            Base::Borrowed(fd) => *fd,
            Base::Opened(fd) => fd.as_fd(),
        }
    }
}

impl DirPath<'_> {
    /// `AT_*` for a call here.
    pub(super) fn flags(&self, flags: u32) -> AtFlags {
        let mut without = AT_EMPTY_PATH;
        if self.magic {
            without |= AT_SYMLINK_NOFOLLOW;
        }
        AtFlags::from_bits_retain(flags & !without)
    }
}

/// What the guest calls `AT_FDCWD`, descriptors that are none, absolute paths that start nowhere.
pub(super) fn start(dir: Dir, path: &CStr) -> Result<Dir> {
    match dir {
        _ if path.to_bytes().first() == Some(&b'/') => Ok(Dir::Root),
        Dir::Guest(AT_FDCWD) => Ok(Dir::Cwd),
        Dir::Guest(fd) if fd < 0 => Err(Errno::EBADF),
        dir => Ok(dir),
    }
}

/// Writes `/proc/…` of a start, and the path beneath it.
pub(super) fn compose<'a>(
    name: &'a mut Vec<u8>,
    thread: u32,
    dir: Dir,
    path: &CStr,
) -> Result<&'a CStr> {
    name.clear();
    // Writing to memory does not fail.
    let _ = match dir {
        Dir::Root => Ok(()),
        Dir::Held(fd) => write!(name, "/proc/self/fd/{}", fd.0),
        Dir::Guest(fd) => write!(name, "/proc/{thread}/fd/{fd}"),
        Dir::Cwd => write!(name, "/proc/{thread}/cwd"),
    };
    if !path.is_empty() && dir != Dir::Root {
        name.push(b'/');
    }
    name.extend_from_slice(path.to_bytes_with_nul());
    CStr::from_bytes_with_nul(name).map_err(|_| Errno::EINVAL)
}

/// Opens what a start is, only as a place.
pub(super) fn open_start(name: &mut Vec<u8>, thread: u32, dir: Dir) -> Result<OwnedFd> {
    let link = compose(name, thread, dir, c"")?;
    rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Errno(errno.raw_os_error() as u16))
}

/// The place for calls that take a directory and a path. `name` is room for a composed one.
pub(super) fn dir_path<'a>(
    held: &'a Held,
    name: &'a mut Vec<u8>,
    thread: u32,
    dir: Dir,
    path: &'a CStr,
) -> Result<DirPath<'a>> {
    let borrowed = |fd, path, magic| Ok(DirPath { base: Base::Borrowed(fd), path, magic });
    match start(dir, path)? {
        Dir::Root => borrowed(CWD, path, false),
        Dir::Held(fd) if !path.is_empty() => borrowed(held.get(fd)?, path, false),
        dir => {
            if let Dir::Held(fd) = dir {
                held.get(fd)?;
            }
            // `/proc/` and two numbers of ten digits at most.
            if path.count_bytes() + 40 < PATH_MAX {
                return borrowed(CWD, compose(name, thread, dir, path)?, path.is_empty());
            }
            Ok(DirPath { base: Base::Opened(open_start(name, thread, dir)?), path, magic: false })
        }
    }
}
