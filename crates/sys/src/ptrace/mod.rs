//! Tracing other processes, with the states of a tracee as types.
//!
//! A tracee is [`Running`] until [`wait`] says that it [`Stopped`]. Only a stopped one has registers and can be told to go on, and going on
//! consumes it. So what ptrace(2) leaves to discipline cannot be got wrong: no request is made to a running tracee, and none is forgotten in
//! its stop without a value that somebody holds.
//!
//! ```text
//!            seize                     wait
//!   process ───────► Running ─────────────────────► Stopped (and why: Stop)
//!                      ▲                               │
//!                      └────── go, listen ─────────────┘
//! ```
//!
//! A stopped tracee can vanish at any moment (SIGKILL, an `execve` of another of its threads): every request can fail with `ESRCH`, which means
//! that its end is reported by a later [`wait`], or nothing at all.
//!
//! Tracees are always seized (Linux 3.4), never attached: group stops are told apart from signals, and children start with a stop of their own
//! kind instead of a `SIGSTOP` that could be mistaken for a real one. A tracer is one thread: these calls work only in the thread that seized.
//!
//! See [ptrace(2)](https://man7.org/linux/man-pages/man2/ptrace.2.html).
//!
//! # Safety
//! `ptrace` and `wait4` write to this process only through the pointers given to them, which are to locals of the right size.

mod entry;
mod memory;
mod registers;

pub use entry::Entry;
pub use memory::Memory;
pub use registers::{Gate, Registers};

use crate::raw;
use linux_raw_sys::general as numbers;
use linux_raw_sys::ptrace as requests;
use rustix::io::Errno;
use std::ffi::c_int;

/// A process or thread, by its number in our pid namespace. Never 0.
pub type Id = u32;

/// What [`seize`] sets: tracees die with their tracer, system call stops are marked, children are traced from their first instruction.
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

/// `ptrace`, for requests whose `data` is a number or a pointer to what the request reads or writes.
///
/// # Safety
/// `data` must be what the request expects.
unsafe fn request(request: u32, id: Id, address: usize, data: usize) -> Result<usize, Errno> {
    // SAFETY: passed on to the caller.
    unsafe { raw::call(numbers::__NR_ptrace, [request as usize, id as usize, address, data, 0]) }
}

/// Starts tracing a process of one thread. It goes on running.
///
/// `EPERM`: it is traced already, it is not ours, it is not dumpable, or a policy (Yama, a filter around us) forbids it; `ESRCH`: there is none.
/// With `seccomp`, filters can stop it ([`Stop::Seccomp`], Linux 3.5; `EINVAL` before).
pub fn seize(id: Id, seccomp: bool) -> Result<Running, Errno> {
    let mut options = OPTIONS;
    if seccomp {
        options |= requests::PTRACE_O_TRACESECCOMP;
    }
    let go = |options: u32| {
        // SAFETY: the data is a number.
        unsafe { request(requests::PTRACE_SEIZE, id, 0, options as usize) }
    };
    match go(options) {
        // Before 3.8 tracees survive their tracer.
        Err(Errno::INVAL | Errno::IO) => go(options & !requests::PTRACE_O_EXITKILL)?,
        result => result?,
    };
    Ok(Running { id })
}

/// A tracee that is not stopped, as far as we know.
#[derive(Debug)]
pub struct Running {
    id: Id,
}

impl Running {
    /// Which.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Makes it stop soon, with [`Stop::Trap`]; a system call that it is blocked in is restarted as after a signal without handler.
    pub fn interrupt(&self) -> Result<(), Errno> {
        // SAFETY: no data.
        unsafe { request(requests::PTRACE_INTERRUPT, self.id, 0, 0) }.map(drop)
    }
}

/// Why a tracee stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A filter wants the tracer to look at a call that has not begun.
    Seccomp,
    /// It enters or leaves a system call, because it went on with [`Go::ToSyscall`].
    Syscall,
    /// It made a child: a process, or a thread.
    Child,
    /// It has executed a program. All its other threads are gone, and it has the process's number, whichever it was before.
    Exec,
    /// A stop of its own kind: a new tracee before its first instruction, after [`Running::interrupt`], or a group stop that has ended.
    Trap,
    /// Its process is stopped by this signal, as `SIGSTOP` does. [`Stopped::listen`] leaves it so.
    Group(u32),
    /// This signal is about to be delivered: only if it is given to [`Stopped::go`] it will.
    Signal(u32),
    /// Something else that the options ask for.
    Other,
}

/// What [`wait`] reports.
#[derive(Debug)]
pub enum Event {
    /// A tracee stopped.
    Stopped(Stopped, Stop),
    /// A tracee or a child of ours ended with this exit code.
    Exited(Id, u32),
    /// It was killed by this signal.
    Killed(Id, u32),
}

impl Event {
    /// Whom it happened to.
    #[must_use]
    pub fn id(&self) -> Id {
        match self {
            Self::Stopped(stopped, _) => stopped.id,
            Self::Exited(id, _) | Self::Killed(id, _) => *id,
        }
    }
}

/// Which tracees and children [`wait`] waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// All.
    Any,
    /// This one.
    One(Id),
}

/// Waits for something to happen. `ECHILD`: there is nobody left. `None` only with `poll`: nothing has happened.
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
        // SAFETY: `status` is an integer of ours; no usage is asked for.
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

/// How a stopped tracee goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// Until something happens.
    On,
    /// Until it enters or leaves a system call, or something happens.
    ToSyscall,
}

/// A tracee in a stop. Dropping it leaves it there for good.
#[derive(Debug)]
#[must_use = "a tracee that nobody resumes stays stopped"]
pub struct Stopped {
    id: Id,
}

impl Stopped {
    /// Which.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Goes on, with a signal to deliver (0: none; only after [`Stop::Signal`]).
    pub fn go(self, how: Go, signal: u32) -> Result<Running, Errno> {
        let number = match how {
            Go::On => requests::PTRACE_CONT,
            Go::ToSyscall => requests::PTRACE_SYSCALL,
        };
        // SAFETY: the data is a number.
        unsafe { request(number, self.id, 0, signal as usize) }?;
        Ok(Running { id: self.id })
    }

    /// Leaves it in its group stop until `SIGCONT` comes, which is reported as [`Stop::Trap`].
    pub fn listen(self) -> Result<Running, Errno> {
        // SAFETY: no data.
        unsafe { request(requests::PTRACE_LISTEN, self.id, 0, 0) }?;
        Ok(Running { id: self.id })
    }

    /// The number that belongs to the stop: the new child of [`Stop::Child`], the former thread of [`Stop::Exec`] (Linux 3.0), the data of the
    /// filter of [`Stop::Seccomp`].
    pub fn message(&self) -> Result<u32, Errno> {
        let mut message = 0_u64;
        // SAFETY: the request writes one `unsigned long`.
        unsafe { request(requests::PTRACE_GETEVENTMSG, self.id, 0, &raw mut message as usize) }?;
        Ok(message as u32)
    }

    /// General registers.
    pub fn registers(&self) -> Result<Registers, Errno> {
        registers::read(self.id)
    }

    /// Replaces all of them.
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
