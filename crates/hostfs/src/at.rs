//! Turns where a path starts ([`Dir`]) into arguments of one system call.
//!
//! | start | path | the kernel gets |
//! |---|---|---|
//! | root | absolute | the path, or what follows the container's tree, from the tree's descriptor |
//! | a descriptor that the caller has | relative | the descriptor and the path |
//! | one that it does not have | relative | `/proc/…/fd/N/PATH` |
//! | any descriptor | empty | `/proc/…/fd/N`, followed; the descriptor itself where that is allowed |
//! | working directory | likewise | the same with `/proc/…/cwd` |
//!
//! A descriptor that was opened with `O_PATH` serves as a directory but not in the place of the
//! file itself; its magic link does. Nothing is opened, unless the path would become too long.

use crate::kernel::{CWD, Kernel, OpenFile};
use crate::layers::Layers;
use crate::layout::Decimal;
use core::ffi::CStr;
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_PATH};
use view::errno::Result;
use view::text::PATH_MAX;
use view::{Dir, Errno, HostFd, Text};

/// Longest magic link: `/proc/`, `thread-self` or a number, `/fd/`, and a number; with its NUL.
const LINK_MAX: usize = 48;

/// What a missing magic link means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The descriptor is not open.
    Closed,
    /// The kernel has no links of this form; from now on others are used.
    TryAgain,
    /// The descriptor is open: what is behind it is not there.
    Behind,
}

/// The process whose descriptors and working directory a [`Dir`] names, reached by a [`Kernel`].
pub trait Process: Kernel {
    /// A descriptor by which this process has what a start is; `None` where it has none. A file
    /// that is held but is not open is `EBADF`. Not called for [`Dir::Root`].
    fn descriptor(&self, dir: Dir) -> Result<Option<HostFd>>;
    /// The beginning of a start's magic link, with the slash: `/proc/…/`.
    fn proc_directory(&self, dir: Dir, into: &mut MagicLink);
    /// What it means that a start's magic link was not found.
    fn missing(&self, dir: Dir) -> Missing;
    /// The descriptor of the container's tree, and what of an absolute path follows behind it.
    fn in_tree<'p>(&self, path: &'p CStr) -> Option<(HostFd, &'p CStr)>;
    /// Whether a call failed because the descriptor of the tree is no longer that.
    fn is_tree_lost(&self, errno: Errno) -> bool {
        let _ = errno;
        false
    }
    /// The layers of the container's tree, if it has two.
    fn layers(&self) -> Option<Layers<'_>> {
        None
    }
    /// Whether a start is the descriptor of the upper one of two layers, which this process holds.
    fn is_upper(&self, dir: Dir) -> bool {
        let _ = dir;
        false
    }
    /// The name of the working directory, where that is quicker than its link; whether it is
    /// known.
    fn cwd_name(&self, into: &mut Text) -> bool {
        let _ = into;
        false
    }
}

/// The path of a magic link in `/proc`.
#[derive(Debug, Clone, Copy)]
pub struct MagicLink {
    bytes: [u8; LINK_MAX],
    length: usize,
}

impl MagicLink {
    /// The link of a start; empty for [`Dir::Root`].
    #[inline(never)]
    pub fn of(process: &impl Process, dir: Dir) -> Self {
        let mut link = Self { bytes: [0; LINK_MAX], length: 0 };
        match dir {
            Dir::Root => {}
            Dir::Held(HostFd(fd)) | Dir::Guest(fd) => {
                process.proc_directory(dir, &mut link);
                link.push(b"fd/");
                link.push_number(fd as u32);
            }
            Dir::Cwd => {
                process.proc_directory(dir, &mut link);
                link.push(b"cwd");
            }
        }
        link
    }

    /// Adds text. There is room for the longest link and its NUL.
    pub fn push(&mut self, text: &[u8]) {
        let end = self.length + text.len();
        if end < LINK_MAX
            && let Some(room) = self.bytes.get_mut(self.length..end)
        {
            room.copy_from_slice(text);
            self.length = end;
        }
    }

    /// Adds a decimal number.
    pub fn push_number(&mut self, number: u32) {
        self.push(Decimal::new(number.into()).as_bytes());
    }

    /// The path.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// The path for a call.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// A directory and a path from it.
#[derive(Debug, Clone, Copy)]
pub struct DirPath<'a> {
    /// A directory, or [`CWD`].
    pub dir: HostFd,
    /// From there.
    pub path: &'a CStr,
    /// The path is a magic link that stands for the file itself: it is followed, whatever the
    /// flags say.
    pub magic: bool,
}

impl DirPath<'_> {
    /// `AT_*` flags for a call with this.
    pub const fn flags(&self, flags: u32) -> u32 {
        let without = if self.magic { AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW } else { AT_EMPTY_PATH };
        flags & !without
    }
}

/// Where a path really starts: the guest's `AT_FDCWD` is its working directory, a negative number
/// is no descriptor, and an absolute path starts at the root.
pub fn start(dir: Dir, path: &CStr) -> Result<Dir> {
    match dir {
        _ if path.to_bytes().first() == Some(&b'/') => Ok(Dir::Root),
        Dir::Guest(AT_FDCWD) => Ok(Dir::Cwd),
        Dir::Guest(fd) if fd < 0 => Err(Errno::EBADF),
        dir => Ok(dir),
    }
}

/// Makes a call on an absolute path, from the container's tree where the path leads into it.
#[inline]
pub fn from_root<P: Process, T>(
    process: &P,
    path: &CStr,
    mut call: impl FnMut(HostFd, &CStr) -> Result<T>,
) -> Result<T> {
    let mut in_tree = process.in_tree(path);
    loop {
        let (dir, rest) = in_tree.unwrap_or((CWD, path));
        match call(dir, rest) {
            Err(errno) if in_tree.is_some() && process.is_tree_lost(errno) => in_tree = None,
            result => return result,
        }
    }
}

/// Makes a call that takes a directory and a path. Where the path is empty, it is made on the
/// magic link of the file, except that the root with an empty path is `ENOENT`, as for the kernel.
///
/// The call has one place here, since each method has a copy of this function.
#[inline]
pub(crate) fn at<P: Process, T>(
    process: &P,
    dir: Dir,
    path: &CStr,
    mut call: impl FnMut(&DirPath<'_>) -> Result<T>,
) -> Result<T> {
    let start = start(dir, path)?;
    let mut in_tree = if start == Dir::Root { process.in_tree(path) } else { None };
    let mut is_second = false;
    loop {
        let link;
        let at = match start {
            Dir::Root => {
                let (dir, path) = in_tree.unwrap_or((CWD, path));
                DirPath { dir, path, magic: false }
            }
            start => match process.descriptor(start)? {
                _ if path.is_empty() => {
                    link = MagicLink::of(process, start);
                    DirPath { dir: CWD, path: link.as_c_str(), magic: true }
                }
                Some(dir) => DirPath { dir, path, magic: false },
                None => return beneath_link(process, start, path, call),
            },
        };
        match call(&at) {
            Err(Errno::ENOENT) if at.magic && !is_second => explain(process, start)?,
            Err(errno) if in_tree.is_some() && process.is_tree_lost(errno) => in_tree = None,
            result => return result,
        }
        is_second = true;
    }
}

/// Makes a call on a path from a start of which this process has no descriptor.
#[inline(never)]
fn beneath_link<P: Process, T>(
    process: &P,
    dir: Dir,
    path: &CStr,
    mut call: impl FnMut(&DirPath<'_>) -> Result<T>,
) -> Result<T> {
    let mut is_second = false;
    loop {
        let link = MagicLink::of(process, dir);
        let result = if path.count_bytes() + LINK_MAX < PATH_MAX {
            let parts = [link.as_bytes(), b"/", path.to_bytes()];
            process.with_path(&parts, |path| call(&DirPath { dir: CWD, path, magic: false }))
        } else {
            OpenFile::open(process, link.as_c_str(), O_PATH | O_CLOEXEC, 0)
                .and_then(|opened| call(&DirPath { dir: opened.fd(), path, magic: false }))
        };
        match result {
            Err(Errno::ENOENT) if !is_second => explain(process, dir)?,
            result => return result,
        }
        is_second = true;
    }
}

/// Makes a call that takes a path alone, which gets whether it is a magic link.
#[inline]
pub(crate) fn by_path<P: Process, T>(
    process: &P,
    dir: Dir,
    path: &CStr,
    mut call: impl FnMut(&CStr, bool) -> Result<T>,
) -> Result<T> {
    let dir = start(dir, path)?;
    let is_whole = match dir {
        Dir::Root => true,
        dir => process.descriptor(dir)? == Some(CWD) && !path.is_empty(),
    };
    let mut is_second = false;
    loop {
        let link;
        let whole = match is_whole {
            true => Some((path, false)),
            false if path.is_empty() => {
                link = MagicLink::of(process, dir);
                Some((link.as_c_str(), true))
            }
            false => None,
        };
        let result = match whole {
            Some((path, magic)) => call(path, magic),
            None => behind_link(process, dir, path, &mut call),
        };
        match result {
            Err(Errno::ENOENT) if !is_whole && !is_second => explain(process, dir)?,
            result => return result,
        }
        is_second = true;
    }
}

/// The same with a path behind the start's magic link. It is a function of its own, because it
/// needs more stack.
#[inline(never)]
fn behind_link<P: Process, T>(
    process: &P,
    dir: Dir,
    path: &CStr,
    call: &mut impl FnMut(&CStr, bool) -> Result<T>,
) -> Result<T> {
    let link = MagicLink::of(process, dir);
    let parts = [link.as_bytes(), b"/", path.to_bytes()];
    process.with_path(&parts, |path| call(path, false))
}

/// A path with a magic link was not found: the link itself may be missing. `Ok` is to try again.
#[cold]
#[inline(never)]
fn explain<P: Process>(process: &P, dir: Dir) -> Result<()> {
    match process.missing(dir) {
        Missing::Closed => Err(Errno::EBADF),
        Missing::TryAgain => Ok(()),
        Missing::Behind => Err(Errno::ENOENT),
    }
}

/// Opens what a start is as a place only, where this process has no descriptor of it.
pub(crate) fn open_start<P: Process>(process: &P, dir: Dir) -> Result<OpenFile<'_, P>> {
    at(process, dir, c"", |at| OpenFile::open(process, at.path, O_PATH | O_CLOEXEC, 0))
}

/// The kernel's name of a start.
pub(crate) fn path_of<P: Process>(process: &P, dir: Dir, into: &mut Text) -> Result<()> {
    match start(dir, c"")? {
        Dir::Root => into.set(b"/"),
        Dir::Cwd if process.cwd_name(into) => Ok(()),
        dir => into.fill(|bytes| {
            by_path(process, dir, c"", |link, _| process.readlinkat(CWD, link, bytes))
        }),
    }
}
