//! The stage's implementation of [`view::Backend`]: the guest's memory, and calls made for it.
//!
//! The guest's memory, its descriptors and its working directory are this process's own. What is
//! held for the view ([`HostFd`]) is a descriptor among the guest's, and only while one call is
//! decided.
//!
//! - [`linux`]: [`hostfs::Kernel`] by raw system calls. [`calls`]: calls that are not part of it.
//! - [`host`]: [`view::Host`]; its calls on files are `hostfs`'s.
//! - [`links`]: short names of directories. [`processes`]: other processes of the container.
//! - [`sockets`]: the guest's sockets.
//! - [`path_buffer`]: paths that are put together on the stack.

pub(crate) mod calls;
mod host;
mod links;
mod linux;
mod path_buffer;
pub(crate) mod processes;
mod sockets;

use crate::slots::SLOT_SIZE;
use crate::{memory, system};
use abi::boot;
use core::ffi::CStr;
use hostfs::at::MagicLink;
use hostfs::{Files, Kernel, Target};
pub(crate) use linux::LINUX;
use linux::Linux;
pub(crate) use path_buffer::Link;
use view::errno::Result;
use view::guest::{Dir, Guest, Host};
use view::text::PATH_MAX;
use view::{Errno, HostFd, Text};

/// Most bytes that one call may put into scratch memory ([`Guest::scratch`]), apart from vectors of
/// arguments, which may be longer.
const SCRATCH_MAX: usize = 128 * 1024;
/// How many descriptors are lent to the kernel's own call.
const LENT_MAX: usize = 4;
/// How many separate mappings there are for what is longer than the scratch memory.
const LARGE_MAX: usize = 3;

/// The backend of one call.
pub(crate) struct Backend<'a> {
    /// Calls on files.
    files: Files<Linux>,
    /// The slot's scratch memory.
    scratch: &'a mut [u8],
    used: usize,
    /// More of it, mapped; 0 before it is needed.
    more: u64,
    more_used: usize,
    /// Separate mappings (address, length): for a vector of arguments, one of an environment, and
    /// a string.
    large: [(u64, u64); LARGE_MAX],
    /// Descriptors that a path in scratch memory names; -1 where there is none.
    lent: [i32; LENT_MAX],
    /// Something is to be released at the end: a mapping or a descriptor.
    owes: bool,
}

impl<'a> Backend<'a> {
    /// With the scratch memory of a slot.
    pub(crate) fn new(scratch: &'a mut [u8]) -> Self {
        Self {
            files: Files { process: LINUX },
            scratch,
            used: 0,
            more: 0,
            more_used: 0,
            large: [(0, 0); LARGE_MAX],
            lent: [-1; LENT_MAX],
            owes: false,
        }
    }

    /// Room in the slot, else in memory that is mapped for it.
    fn room(&mut self, length: usize, align: usize) -> Result<u64> {
        let start = self.scratch.as_ptr() as u64;
        let at = (start + self.used as u64).next_multiple_of(align as u64);
        let end = (at - start) as usize + length;
        if end <= self.scratch.len() {
            self.used = end;
            return Ok(at);
        }
        if self.more == 0 {
            // Each slot has its own place for it. A call that never returned may have left it
            // mapped.
            let slot = start & !(SLOT_SIZE as u64 - 1);
            let place = system::Place::Over(slot - boot::SLOTS + boot::SPARE);
            let mapped = system::map(place, SCRATCH_MAX as u64, 3, None);
            self.more = mapped.map_err(|_| Errno::ENOMEM)?;
            self.owes = true;
        }
        let at = self.more_used.next_multiple_of(align);
        if length > SCRATCH_MAX - at.min(SCRATCH_MAX) {
            return self.large(length);
        }
        self.more_used = at + length;
        Ok(self.more + at as u64)
    }

    /// A mapping of its own.
    #[cold]
    fn large(&mut self, length: usize) -> Result<u64> {
        let free = self.large.iter_mut().find(|(_, length)| *length == 0).ok_or(Errno::E2BIG)?;
        let mapped = system::map(system::Place::Near(0), length as u64, 3, None);
        *free = (mapped.map_err(|_| Errno::E2BIG)?, length as u64);
        self.owes = true;
        Ok(free.0)
    }

    /// Keeps a descriptor until the call is over; closes it where there is no room.
    fn keep(&mut self, descriptor: i32) -> Result<()> {
        self.owes = true;
        let free = self.lent.iter_mut().find(|lent| **lent < 0);
        let Some(free) = free else {
            calls::close(descriptor);
            return Err(Errno::EMFILE);
        };
        *free = descriptor;
        Ok(())
    }
}

/// Device (major, minor) of a host path.
#[cold]
#[inline(never)]
pub(crate) fn device_of(path: &[u8]) -> Option<(u32, u32)> {
    let mut status = view::identity::NO_FACTS;
    let look = |path: &CStr| hostfs::files::look(&LINUX, hostfs::CWD, path, 0, &mut status);
    LINUX.with_path(&[path], look).ok()?;
    Some((status.stx_dev_major, status.stx_dev_minor))
}

/// Length of the label of a host path (`security.selinux`).
#[cold]
#[inline(never)]
pub(crate) fn label_of(path: &[u8]) -> Result<usize> {
    let get = |path: &CStr| LINUX.getxattr(Target::Link(path), c"security.selinux", &mut []);
    LINUX.with_path(&[path], get)
}

/// Opens a host path for reading, or for reading and writing.
#[cold]
#[inline(never)]
pub(crate) fn open(path: &[u8], write: bool) -> Result<i32> {
    use linux_raw_sys::general::{O_CLOEXEC, O_RDONLY, O_RDWR};
    let flags = if write { O_RDWR } else { O_RDONLY } | O_CLOEXEC;
    LINUX.with_path(&[path], |path| calls::openat(calls::CWD, path, flags, 0))
}

/// Whether a host path can be opened with these flags.
#[cold]
#[inline(never)]
pub(crate) fn opens(path: &[u8], flags: u32) -> bool {
    LINUX
        .with_path(&[path], |path| calls::openat(calls::CWD, path, flags, 0))
        .map(calls::close)
        .is_ok()
}

impl Backend<'_> {
    /// [`Host::alias`]: a link with a short path, which lasts as long as the container runs. A
    /// directory without a path that a link could name, or a caller without room for the link's
    /// path, gets a magic link for this call.
    fn alias_of(&mut self, directory: i32, most: usize, into: &mut Text) -> Result<()> {
        let named = self.path_of(Dir::Held(HostFd(directory)), into);
        let is_named = named.is_ok() && into.as_bytes().first() == Some(&b'/');
        if is_named && most >= links::LENGTH && links::link(directory, into).is_ok() {
            calls::close(directory);
            return Ok(());
        }
        self.keep(directory)?;
        into.set(b"/proc/self/fd/")?;
        into.push_number(directory as u32)
    }

    /// [`Host::lend`]. The call may block: the descriptor gets a number that the guest is not given
    /// meanwhile.
    fn lend_to_call(&mut self, file: i32, into: &mut Text) -> Result<()> {
        let file = calls::lifted(file);
        self.keep(file)?;
        linux::is_without_thread_self();
        into.set(MagicLink::of(&LINUX, Dir::Held(HostFd(file))).as_bytes())
    }
}

impl Drop for Backend<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.owes {
            self.give_back();
        }
    }
}

impl Backend<'_> {
    #[cold]
    fn give_back(&mut self) {
        if self.more != 0 {
            system::unmap(self.more, SCRATCH_MAX as u64);
        }
        for (at, length) in self.large {
            system::unmap(at, length);
        }
        for lent in self.lent {
            if lent >= 0 {
                calls::close(lent);
            }
        }
    }
}

impl Guest for Backend<'_> {
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        memory::read(at, into)
    }

    fn read_some(&mut self, at: u64, into: &mut [u8]) -> Result<usize> {
        memory::read_some(at, into)
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<()> {
        memory::write(at, from)
    }

    fn scratch(&mut self, bytes: &[u8], align: usize) -> Result<u64> {
        let at = self.room(bytes.len(), align)?;
        memory::write(at, bytes).map(|()| at)
    }

    fn scratch_room(&mut self, length: usize, align: usize) -> Result<u64> {
        self.room(length, align)
    }

    fn read_text(&mut self, at: u64, into: &mut Text) -> Result<()> {
        into.fill_to_nul(|bytes: &mut [u8; PATH_MAX]| memory::read_text(at, bytes))
    }
}
