//! The view's backend in a tracer: the memory of a stopped thread, and the tracer's own calls on
//! the host's files.

use super::processes::Processes;
use super::scratch::{Chunks, Room, Scratch, Spot};
use super::tracee::{Program, Tracee};
use crate::engines::interpose::delegate::delegate_to_host;
use crate::engines::interpose::host::HostCalls;
use rustix::fd::OwnedFd;
use rustix::io::Errno as Raw;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::{BTreeSet, HashMap};
use std::ffi::CStr;
use sys::ptrace::{Id, Memory};
use view::guest::{Guest, Host};
use view::{Dir, Errno, Task, Text};

/// Calls on the host's files for a thread whose descriptors and working directory are reached
/// through `/proc`.
pub trait TracerHost: Host {
    /// From now on the calls are for this thread.
    fn serve(&mut self, thread: u32);
    /// Somebody else is about to put a copy in the place of this file.
    fn will_copy(&mut self, path: &CStr);
}

impl TracerHost for HostCalls {
    fn serve(&mut self, thread: u32) {
        HostCalls::serve(self, thread);
    }

    fn will_copy(&mut self, path: &CStr) {
        HostCalls::will_copy(self, path);
    }
}

const PAGE: usize = 4096;
/// Most paths are shorter than this.
const SHORT: usize = 256;

/// One thread, stopped at a call.
pub(super) struct Backend<'a, H> {
    pub(super) host: &'a mut H,
    pub(super) memory: Memory,
    pub(super) thread: Id,
    pub(super) process: Id,
    /// Scratch memory of the call.
    pub(super) scratch: Scratch,
    /// The process's room for it.
    pub(super) room: Room,
    /// Parts of that room that no other call uses.
    pub(super) free: Chunks,
    pub(super) processes: Processes<'a>,
    pub(super) programs: &'a HashMap<Id, Program>,
    pub(super) tracees: &'a HashMap<Id, Tracee>,
    /// Copies of the guest's sockets, and sockets of the tracer's own.
    pub(super) sockets: Vec<Option<OwnedFd>>,
}

/// What the kernel refused, in the view's words.
pub(super) fn errno(errno: Raw) -> Errno {
    Errno(errno.raw_os_error() as u16)
}

impl<H> Guest for Backend<'_, H> {
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.memory.read(at, into).map_err(errno)
    }

    fn read_some(&mut self, at: u64, into: &mut [u8]) -> Result<usize, Errno> {
        self.memory.read_some(at, into).map_err(errno)
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Errno> {
        self.memory.write(at, from).map_err(errno)
    }

    fn scratch(&mut self, bytes: &[u8], align: usize) -> Result<u64, Errno> {
        let (length, align) = (bytes.len() as u64, align as u64);
        match self.scratch.take(self.room, self.free, length, align).ok_or(Errno::E2BIG)? {
            Spot::Room(at) => self.memory.write(at, bytes).map(|()| at),
            Spot::Stack(at) => self.memory.write_stack(at, bytes).map(|()| at),
        }
        .map_err(errno)
    }

    fn scratch_room(&mut self, length: usize, align: usize) -> Result<u64, Errno> {
        let (length, align) = (length as u64, align as u64);
        match self.scratch.take(self.room, self.free, length, align).ok_or(Errno::E2BIG)? {
            Spot::Room(at) => Ok(at),
            // Its lowest byte makes the stack grow.
            Spot::Stack(at) => self.memory.write_stack(at, &[0]).map(|()| at).map_err(errno),
        }
    }

    fn read_text(&mut self, at: u64, into: &mut Text) -> Result<(), Errno> {
        into.clear();
        let mut short = [0; SHORT];
        let length = (PAGE - at as usize % PAGE).min(SHORT);
        let length = self.read_some(at, &mut short[..length])?;
        if take(&short[..length], into)? {
            return Ok(());
        }
        let mut page = [0; PAGE];
        let mut at = at.wrapping_add(length as u64);
        loop {
            // Not past the end of a page: the next one may not be there, and the string may end
            // before it.
            let length = PAGE - at as usize % PAGE;
            let length = self.read_some(at, &mut page[..length])?;
            if take(&page[..length], into)? {
                return Ok(());
            }
            at = at.wrapping_add(length as u64);
        }
    }
}

/// Adds bytes up to a NUL; whether there was one.
fn take(bytes: &[u8], into: &mut Text) -> Result<bool, Errno> {
    let end = bytes.iter().position(|&byte| byte == 0);
    into.push(&bytes[..end.unwrap_or(bytes.len())])?;
    Ok(end.is_some())
}

impl<H> Backend<'_, H> {
    /// A copy of a descriptor of the guest's process (Linux 5.6).
    pub(super) fn descriptor(&self, number: i32) -> Option<OwnedFd> {
        if number < 0 {
            return None;
        }
        let process = Pid::from_raw(self.process as i32)?;
        let process = pidfd_open(process, PidfdFlags::empty()).ok()?;
        pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()
    }
}

impl<H: Host> Host for Backend<'_, H> {
    delegate_to_host!();

    fn pid(&self) -> u32 {
        self.process
    }

    fn tid(&self) -> u32 {
        self.thread
    }

    fn program_of(&mut self, pid: u32, into: &mut Text) -> bool {
        match self.programs.get(&pid) {
            Some(program) if !program.path.is_empty() => {
                *into = program.path;
                true
            }
            _ => self.processes.program(pid, into),
        }
    }

    fn with_task(&mut self, tid: u32, look: &mut dyn FnMut(&Task)) -> bool {
        match self.tracees.get(&tid).and_then(|tracee| tracee.task.as_deref()) {
            Some(task) => {
                look(task);
                true
            }
            None => false,
        }
    }

    fn entered(&mut self, descriptor: i32) -> Option<usize> {
        let file = self.descriptor(descriptor)?;
        let mark = sys::process::signal_of(&file).ok()?;
        usize::try_from(mark).ok()?.checked_sub(1)
    }

    fn set_entered(&mut self, descriptor: i32, binding: usize) {
        if let (Some(file), Ok(mark)) = (self.descriptor(descriptor), i32::try_from(binding + 1)) {
            let _ = sys::process::set_signal_of(&file, mark);
        }
    }

    fn seek(&mut self, dir: Dir, offset: u64, whence: u32) -> Result<u64, Errno> {
        let Dir::Guest(number) = dir else { return self.host.seek(dir, offset, whence) };
        let file = self.descriptor(number).ok_or(Errno::EBADF)?;
        sys::fs::calls::lseek(&file, offset, whence).map_err(errno)
    }

    fn getdents(&mut self, dir: Dir, into: &mut [u8]) -> Result<usize, Errno> {
        let Dir::Guest(number) = dir else { return self.host.getdents(dir, into) };
        let file = self.descriptor(number).ok_or(Errno::EBADF)?;
        sys::fs::calls::getdents(&file, into).map_err(errno)
    }

    fn is_executed(&mut self, (major, minor): (u32, u32), inode: u64) -> bool {
        let file = (major, minor, inode);
        // The kernel lets the parent of a vfork go on when its child has executed something, which
        // we may hear of later.
        self.programs.values().any(|program| program.inode == file)
            || self.tracees.values().any(|tracee| tracee.phase.executes() == Some(file))
    }

    fn signal_all(&mut self, signal: u32) -> Result<(), Errno> {
        let mut result = Err(Errno::ESRCH);
        let all = self.processes.all().into_iter().chain(self.programs.keys().copied());
        let all: BTreeSet<Id> = all.filter(|&process| process != self.process).collect();
        for process in all {
            let Some(pid) = rustix::process::Pid::from_raw(process as i32) else { continue };
            if sys::event::send_signal(pid, signal as i32).is_ok() {
                result = Ok(());
            }
        }
        result
    }
}
