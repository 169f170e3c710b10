//! Traces other processes, with the states of a tracee as types.
//!
//! A tracee is [`Running`] until [`wait`] says that it [`Stopped`]. Only a stopped one has
//! registers and can be continued, and continuing consumes it. So the type checker enforces rules
//! that ptrace(2) leaves to the programmer: no request is made to a running tracee, and every
//! stopped one is held by a value.
//!
//! ```text
//!            seize                     wait
//!   process ───────► Running ─────────────────────► Stopped (and why: Stop)
//!                      ▲                               │
//!                      └────── go, listen ─────────────┘
//! ```
//!
//! A stopped tracee can vanish at any moment (SIGKILL, an `execve` of another of its threads):
//! every request can fail with `ESRCH`, which means that a later [`wait`] reports its end, or
//! nothing at all.
//!
//! Tracees are always seized (Linux 3.4), never attached: group stops are told apart from signals,
//! and children start with a stop of their own kind instead of a `SIGSTOP` that could be mistaken
//! for a real one. A tracer is one thread: these calls work only in the thread that seized.
//!
//! See [ptrace(2)](https://man7.org/linux/man-pages/man2/ptrace.2.html).
//!
//! # Safety
//! `ptrace` and `wait4` write to this process only through the pointers given to them, which are to
//! locals of the right size.

mod entry;
mod registers;
mod tracee_memory;

pub use entry::Entry;
pub use registers::{Gate, Registers};
pub use tracee_memory::Memory;

use crate::raw;
use linux_raw_sys::general as numbers;
use linux_raw_sys::ptrace as requests;
use rustix::io::Errno;
use std::ffi::c_int;

/// Id of a process or thread in this pid namespace. Never 0.
pub type Id = u32;

/// Options that [`seize`] sets: tracees die with their tracer, system call stops are marked,
/// children are traced from their first instruction.
const OPTIONS: u32 = requests::PTRACE_O_EXITKILL
    | requests::PTRACE_O_TRACESYSGOOD
    | requests::PTRACE_O_TRACEFORK
    | requests::PTRACE_O_TRACEVFORK
    | requests::PTRACE_O_TRACECLONE
    | requests::PTRACE_O_TRACEEXEC;

/// Mark of a system call stop, added to `SIGTRAP`.
const SYSCALL_MARK: c_int = 0x80;
const SIGTRAP: c_int = 5;
const SIGSTOP: c_int = 19;
const SIGTSTP: c_int = 20;
const SIGTTIN: c_int = 21;
const SIGTTOU: c_int = 22;

/// `ptrace`, for requests whose `data` is an integer or a pointer to memory that the request reads
/// or writes.
///
/// # Safety
/// `data` must be what the request expects.
unsafe fn request(request: u32, id: Id, address: usize, data: usize) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees that `data` fits the request, the only argument that can be a
    // pointer.
    unsafe { raw::call(numbers::__NR_ptrace, [request as usize, id as usize, address, data, 0]) }
}

/// Starts tracing a process of one thread. It continues to run.
///
/// `EPERM`: it is traced already, belongs to another user, is not dumpable, or a policy (Yama, an
/// outer filter) forbids it; `ESRCH`: there is no such process. With `seccomp`, filters can stop it
/// ([`Stop::Seccomp`], Linux 3.5; `EINVAL` before).
pub fn seize(id: Id, seccomp: bool) -> Result<Running, Errno> {
    let mut options = OPTIONS;
    if seccomp {
        options |= requests::PTRACE_O_TRACESECCOMP;
    }
    let go = |options: u32| {
        // SAFETY: PTRACE_SEIZE takes the options as an integer, no pointer.
        unsafe { request(requests::PTRACE_SEIZE, id, 0, options as usize) }
    };
    match go(options) {
        // Before 3.8 tracees survive their tracer.
        Err(Errno::INVAL | Errno::IO) => go(options & !requests::PTRACE_O_EXITKILL)?,
        result => result?,
    };
    Ok(Running { id })
}

/// A tracee that is not stopped, as far as this process knows.
#[derive(Debug)]
pub struct Running {
    id: Id,
}

impl Running {
    /// Its id.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Requests a stop soon, with [`Stop::Trap`]; a blocking system call is restarted as after a
    /// signal without handler.
    pub fn interrupt(&self) -> Result<(), Errno> {
        // SAFETY: PTRACE_INTERRUPT uses neither address nor data.
        unsafe { request(requests::PTRACE_INTERRUPT, self.id, 0, 0) }.map(drop)
    }
}

/// Reason of a tracee's stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A filter requests the tracer's decision about a call that has not begun.
    Seccomp,
    /// It enters or leaves a system call, because it was continued with [`Go::ToSyscall`].
    Syscall,
    /// It made a child: a process, or a thread.
    Child,
    /// It has executed a program. All its other threads are gone, and it has the process's id,
    /// whatever its own was before.
    Exec,
    /// A stop that only tracees have: a new tracee before its first instruction, after
    /// [`Running::interrupt`], or a group stop that has ended.
    Trap,
    /// Its process is stopped by this signal, as `SIGSTOP` does. [`Stopped::listen`] leaves it
    /// stopped.
    Group(u32),
    /// This signal is about to be delivered: only if it is passed to [`Stopped::go`].
    Signal(u32),
    /// Another event of the options.
    Other,
}

/// Event that [`wait`] reports.
#[derive(Debug)]
pub enum Event {
    /// A tracee stopped.
    Stopped(Stopped, Stop),
    /// A tracee or a child ended with this exit code.
    Exited(Id, u32),
    /// A tracee or a child was killed by this signal.
    Killed(Id, u32),
}

impl Event {
    /// The process or thread of the event.
    #[must_use]
    pub fn id(&self) -> Id {
        match self {
            Self::Stopped(stopped, _) => stopped.id,
            Self::Exited(id, _) | Self::Killed(id, _) => *id,
        }
    }
}

/// The tracees and children that [`wait`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// All.
    Any,
    /// This one.
    One(Id),
}

/// Waits for an event. `ECHILD`: there is no tracee or child left. `None` only with `poll`: nothing
/// has happened.
pub fn wait(whom: Whom, poll: bool) -> Result<Option<Event>, Errno> {
    let target = match whom {
        Whom::Any => usize::MAX,
        Whom::One(id) => id as usize,
    };
    let mut options = numbers::__WALL;
    if poll {
        options |= numbers::WNOHANG;
    }
    let mut status: c_int = 0;
    let id = loop {
        // SAFETY: the kernel writes to `status`, which lives during the call; the usage pointer is
        // null.
        let id = unsafe {
            raw::call(
                numbers::__NR_wait4,
                [target, &raw mut status as usize, options as usize, 0, 0],
            )
        };
        match id {
            Err(Errno::INTR) => {}
            result => break result? as Id,
        }
    };
    if id == 0 {
        return Ok(None);
    }
    Ok(Some(decode(id, status)))
}

fn decode(id: Id, status: c_int) -> Event {
    match status & 0x7f {
        0 => return Event::Exited(id, (status >> 8 & 0xff) as u32),
        0x7f => {}
        signal => return Event::Killed(id, signal as u32),
    }
    let signal = status >> 8 & 0xff;
    let stop = match (status >> 16) as u32 {
        0 if signal == SIGTRAP | SYSCALL_MARK => Stop::Syscall,
        0 => Stop::Signal(signal as u32),
        requests::PTRACE_EVENT_SECCOMP => Stop::Seccomp,
        requests::PTRACE_EVENT_FORK
        | requests::PTRACE_EVENT_VFORK
        | requests::PTRACE_EVENT_CLONE => Stop::Child,
        requests::PTRACE_EVENT_EXEC => Stop::Exec,
        requests::PTRACE_EVENT_STOP => match signal {
            SIGSTOP | SIGTSTP | SIGTTIN | SIGTTOU => Stop::Group(signal as u32),
            _ => Stop::Trap,
        },
        _ => Stop::Other,
    };
    Event::Stopped(Stopped { id }, stop)
}

/// How to continue a stopped tracee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// Until the next event.
    On,
    /// Until it enters or leaves a system call, or another event.
    ToSyscall,
}

/// A tracee in a stop. Dropping it leaves the tracee stopped.
#[derive(Debug)]
#[must_use = "a tracee that is not resumed stays stopped"]
pub struct Stopped {
    id: Id,
}

impl Stopped {
    /// Its id.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Continues it, with a signal to deliver (0: none; only after [`Stop::Signal`]).
    pub fn go(self, how: Go, signal: u32) -> Result<Running, Errno> {
        let number = match how {
            Go::On => requests::PTRACE_CONT,
            Go::ToSyscall => requests::PTRACE_SYSCALL,
        };
        // SAFETY: these requests take the signal as an integer, no pointer.
        unsafe { request(number, self.id, 0, signal as usize) }?;
        Ok(Running { id: self.id })
    }

    /// Leaves it in its group stop until `SIGCONT` arrives, which is reported as [`Stop::Trap`].
    pub fn listen(self) -> Result<Running, Errno> {
        // SAFETY: PTRACE_LISTEN uses neither address nor data.
        unsafe { request(requests::PTRACE_LISTEN, self.id, 0, 0) }?;
        Ok(Running { id: self.id })
    }

    /// The value that belongs to the stop: the new child of [`Stop::Child`], the former thread of
    /// [`Stop::Exec`] (Linux 3.0), the data of the filter of [`Stop::Seccomp`].
    pub fn message(&self) -> Result<u32, Errno> {
        let mut message = 0_u64;
        // SAFETY: the request writes one `unsigned long` to `message`, which lives during the call.
        unsafe { request(requests::PTRACE_GETEVENTMSG, self.id, 0, &raw mut message as usize) }?;
        Ok(message as u32)
    }

    /// Reads the general registers.
    pub fn registers(&self) -> Result<Registers, Errno> {
        registers::read(self.id)
    }

    /// Replaces all general registers.
    pub fn set_registers(&self, registers: &Registers) -> Result<(), Errno> {
        registers::write(self.id, registers)
    }

    /// Its memory.
    pub fn memory(&self) -> Memory {
        Memory::of(self.id)
    }
}

#[cfg(test)]
mod tests;
