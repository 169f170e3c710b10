//! Where a call of the view's starts, in words of the kernel.
//!
//! | start | path | the kernel gets |
//! |---|---|---|
//! | nowhere | absolute | the path |
//! | held, guest's | relative | the descriptor and the path |
//! | held, guest's | empty | `/proc/thread-self/fd/N`, followed: what only names a file does not serve everywhere as a descriptor |
//! | working directory | relative | the path |
//! | working directory | empty | `/proc/thread-self/cwd`, followed |
//!
//! Calls that take a path alone get the magic link and the path behind it.

use super::calls::CWD;
use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use view::errno::Result;
use view::text::PATH_MAX;
use view::{Dir, Errno, HostFd};

/// A composed path: magic link and path.
const LONG: usize = PATH_MAX + 64;

/// Room for a path that is put together, which is not cleared before.
pub(crate) struct Room<const ROOM: usize> {
    bytes: [MaybeUninit<u8>; ROOM],
    length: usize,
}

/// For any path.
pub(super) type Name = Room<LONG>;
/// For a magic link alone. (What lies on the stack is memory that every process has to be given anew.)
pub(crate) type Link = Room<64>;

/// Kernels before 3.17 have no `/proc/thread-self`.
static NO_THREAD_SELF: AtomicBool = AtomicBool::new(false);

/// Notes that the kernel has no `/proc/thread-self`, if that is so; whether it is news.
#[cold]
pub(super) fn is_without_thread_self() -> bool {
    let known = NO_THREAD_SELF.load(Ordering::Relaxed);
    let look = || super::calls::newfstatat(CWD, c"/proc/thread-self", 0);
    let is = !known && matches!(look(), Err(Errno::ENOENT));
    if is {
        NO_THREAD_SELF.store(true, Ordering::Relaxed);
    }
    is
}

impl<const ROOM: usize> Room<ROOM> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [const { MaybeUninit::uninit() }; ROOM], length: 0 }
    }

    pub(crate) fn push(&mut self, text: &[u8]) -> Result<()> {
        let room = self.bytes.get_mut(self.length..self.length + text.len());
        let room = room.ok_or(Errno::ENAMETOOLONG)?;
        for (place, byte) in room.iter_mut().zip(text) {
            place.write(*byte);
        }
        self.length += text.len();
        Ok(())
    }

    pub(crate) fn push_number(&mut self, number: u32) -> Result<()> {
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut left = number;
        loop {
            at -= 1;
            // One decimal digit.
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                return self.push(&digits[at..]);
            }
        }
    }

    /// What was pushed, which has to end with a NUL.
    pub(crate) fn as_c_str(&self) -> Result<&CStr> {
        // SAFETY: so many bytes were written.
        let bytes =
            unsafe { core::slice::from_raw_parts(self.bytes.as_ptr().cast::<u8>(), self.length) };
        CStr::from_bytes_with_nul(bytes).map_err(|_| Errno::EINVAL)
    }

    /// `/proc/…` of a start, and the path beneath it.
    pub(super) fn compose(&mut self, dir: Dir, path: &CStr) -> Result<&CStr> {
        self.length = 0;
        let here: &[u8] = if NO_THREAD_SELF.load(Ordering::Relaxed) {
            b"/proc/self/"
        } else {
            b"/proc/thread-self/"
        };
        match dir {
            Dir::Root => {}
            Dir::Held(HostFd(fd)) | Dir::Guest(fd) => {
                self.push(here)?;
                self.push(b"fd/")?;
                self.push_number(fd as u32)?;
            }
            Dir::Cwd => {
                self.push(here)?;
                self.push(b"cwd")?;
            }
        }
        if !path.is_empty() && dir != Dir::Root {
            self.push(b"/")?;
        }
        self.push(path.to_bytes_with_nul())?;
        self.as_c_str()
    }
}

/// A place.
#[derive(Clone, Copy)]
pub(super) struct DirPath<'a> {
    /// A directory, or [`CWD`].
    pub(super) dir: i32,
    /// From there.
    pub(super) path: &'a CStr,
    /// The path is a magic link that stands for the file itself: to be followed, whatever the flags say.
    pub(super) magic: bool,
}

/// What the guest calls `AT_FDCWD`, descriptors that are none, absolute paths that start nowhere.
pub(super) fn start(dir: Dir, path: &CStr) -> Result<Dir> {
    match dir {
        _ if path.to_bytes().first() == Some(&b'/') => Ok(Dir::Root),
        Dir::Guest(CWD) => Ok(Dir::Cwd),
        Dir::Guest(fd) if fd < 0 => Err(Errno::EBADF),
        dir => Ok(dir),
    }
}

/// The descriptor of a start that has one.
pub(super) fn descriptor(dir: Dir) -> i32 {
    match dir {
        Dir::Held(HostFd(fd)) | Dir::Guest(fd) => fd,
        Dir::Root | Dir::Cwd => CWD,
    }
}

/// The place for calls that take a directory and a path. `name` is room for a magic link.
pub(super) fn dir_path<'a>(name: &'a mut Link, dir: Dir, path: &'a CStr) -> Result<DirPath<'a>> {
    let dir = start(dir, path)?;
    if path.is_empty() && dir != Dir::Root {
        return Ok(DirPath { dir: CWD, path: name.compose(dir, path)?, magic: true });
    }
    Ok(DirPath { dir: descriptor(dir), path, magic: false })
}
