//! The hands that the stage lends the view: the guest's memory, and calls made for it.
//!
//! The guest's memory, its descriptors and its working directory are this process's own, so most of the view's wishes are one call of the
//! kernel's. What is held for the view (`HostFd`) is a descriptor among the guest's: only while one call is decided.
//!
//! - [`host`]: the view's methods. [`calls`]: the kernel's calls. [`at`]: where a call starts.
//! - [`copy_up`]: a copy in the place of a file that belongs to the image. [`inode_log`]: records of inodes without attributes.
//! - [`links`]: short names of directories. [`processes`]: other processes of the container.

mod at;
pub(crate) mod calls;
mod copy_up;
mod host;
mod inode_log;
mod links;
pub(crate) mod processes;

use crate::slots::SLOT_SIZE;
use crate::{memory, system};
use abi::boot;
pub(crate) use at::Link;
use at::Name;
use view::errno::Result;
use view::guest::{Dir, Guest, Host};
use view::text::PATH_MAX;
use view::{Errno, HostFd, Text};

/// Most that one call may put into scratch memory ([`Guest::scratch`]), but for vectors of arguments, which may be longer.
const SCRATCH_MAX: usize = 128 * 1024;
/// How many descriptors are lent to the kernel's own call.
const LENT_MAX: usize = 4;

/// How many mappings for what is large.
const LARGE_MAX: usize = 3;

/// The hands, for one call.
pub(crate) struct Backend<'a> {
    /// The slot's.
    scratch: &'a mut [u8],
    used: usize,
    /// More of it, mapped; 0 before it is needed.
    more: u64,
    more_used: usize,
    /// A mapping for what is larger than all of it (address, length): a vector of arguments, one of an environment, and a string.
    large: [(u64, u64); LARGE_MAX],
    /// Descriptors that a path in scratch memory names; -1 where there is none.
    lent: [i32; LENT_MAX],
    /// There is something to give back at the end: a mapping or a descriptor.
    owes: bool,
}

impl<'a> Backend<'a> {
    /// With the scratch memory of a slot.
    pub(crate) fn new(scratch: &'a mut [u8]) -> Self {
        Self {
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
            // Each slot has its own place for it, which somebody may have left mapped who never came back from a call.
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
    let mut name = Name::new();
    let path = inode_log::host_path(&mut name, path, b"").ok()?;
    let mut facts = view::identity::NO_FACTS;
    host::look(calls::CWD, path, 0, &mut facts).ok()?;
    Some((facts.stx_dev_major, facts.stx_dev_minor))
}

/// Length of the label of a host path (`security.selinux`).
#[cold]
#[inline(never)]
pub(crate) fn label_of(path: &[u8]) -> Result<usize> {
    let mut name = Name::new();
    let path = inode_log::host_path(&mut name, path, b"")?;
    calls::getxattr(path, true, c"security.selinux", &mut [])
}

impl Backend<'_> {
    /// [`Host::alias`]: a link with a short path, which lasts as long as the container runs. What has no path that a link could name, or no room for the
    /// link's, is lent for this call.
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

    /// [`Host::lend`]. The call may block: what is lent has no number that the guest gets meanwhile.
    fn lend_to_call(&mut self, file: i32, into: &mut Text) -> Result<()> {
        let file = calls::lifted(file);
        self.keep(file)?;
        at::is_without_thread_self();
        let mut name = Link::new();
        into.set(name.compose(Dir::Held(HostFd(file)), c"")?.to_bytes())
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
