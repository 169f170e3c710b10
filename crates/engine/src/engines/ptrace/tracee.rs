//! What the tracer knows of each thread that it traces.

use super::scratch::{Chunks, Room};
use sys::ptrace::{Id, Registers, Stopped};
use view::{After, Call, HostFd, Task, Text};

/// One thread.
#[derive(Debug)]
pub(super) struct Tracee {
    /// Its process: the number of the first thread.
    pub(super) process: Id,
    /// Threads with the same number here share root, working directory and umask (`CLONE_FS`).
    pub(super) fs: u64,
    /// What the view keeps about it. `None` while a call of it is being decided.
    pub(super) task: Option<Box<Task>>,
    /// Where it is between two stops.
    pub(super) phase: Phase,
}

/// Where a thread is.
#[derive(Debug)]
pub(super) enum Phase {
    /// In its own code, or in a call that the tracer does not stop: the next system call stop is an
    /// entry.
    Free,
    /// In a call at whose end something is to be done.
    InCall(Box<Pending>),
    /// In a call whose end means nothing; only where every call stops.
    Passing,
    /// In an `mmap` that the tracer has put in, after which it makes its own call again.
    Mapping(Mapping),
    /// Stopped at the entry of a call, until something else has been done.
    Held(Box<Held>),
}

impl Phase {
    /// Device and inode number of the program that the thread is executing: the kernel may have
    /// done so already.
    pub(super) fn executes(&self) -> Option<(u32, u32, u64)> {
        match self {
            Self::InCall(pending) => pending.exec.as_ref().map(|executing| executing.inode),
            _ => None,
        }
    }
}

/// A call that the kernel is doing.
#[derive(Debug)]
pub(super) struct Pending {
    /// As the guest made it.
    pub(super) call: Call,
    /// As the kernel does it.
    pub(super) made: Call,
    /// What the view wants to do then.
    pub(super) after: After,
    /// Scratch memory that the call uses.
    pub(super) chunks: Chunks,
    /// What is to be done when a program has been executed.
    pub(super) exec: Option<Box<Executing>>,
}

/// An `execve` of the loader.
#[derive(Debug)]
pub(super) struct Executing {
    /// What is written for the loader.
    pub(super) block: Vec<u8>,
    /// Where that is written.
    pub(super) block_at: u64,
    /// The thread after it.
    pub(super) task: Box<Task>,
    /// What the process runs then.
    pub(super) program: Text,
    /// Device and inode number of that.
    pub(super) inode: (u32, u32, u64),
    /// Files that stay open until the loader has opened them.
    pub(super) files: [Option<HostFd>; 2],
}

/// A call that is made again.
#[derive(Debug)]
pub(super) struct Mapping {
    /// What the thread goes on with: it stands before its call.
    pub(super) registers: Box<Registers>,
    /// What the memory is for.
    pub(super) want: Want,
}

/// What memory is mapped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// What 32-bit calls point to.
    Low,
    /// More than there is room for elsewhere.
    Many,
}

/// A call that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) stopped: Stopped,
    pub(super) call: Call,
    /// The thread's stack pointer.
    pub(super) stack: u64,
}

/// What the tracer knows of a process.
#[derive(Debug, Default)]
pub(super) struct Program {
    /// Guest path of what it runs; empty where that is not known.
    pub(super) path: Text,
    /// Device (major, minor) and inode number of that; nobody may write to it.
    pub(super) inode: (u32, u32, u64),
    /// Files that its loader may still be about to open.
    pub(super) files: [Option<HostFd>; 2],
    /// Memory in it that only the tracer uses.
    pub(super) room: Room,
    /// Likewise, within reach of 32-bit calls of a 64-bit program, once it has made one; see
    /// [`super::mapping`].
    pub(super) low: Option<Room>,
    /// A thread that has mapped room for a long call, and where; 0 where it could not.
    pub(super) many: Option<(Id, u64)>,
}

impl Program {
    /// The same program, of a new child.
    pub(super) fn of_child(&self) -> Self {
        Self {
            path: self.path,
            inode: self.inode,
            files: [None; 2],
            room: self.room,
            low: self.low,
            many: None,
        }
    }

    /// Room for a call, of those 32-bit calls can reach if it is one.
    pub(super) fn room_for(&self, narrow: bool) -> Room {
        if narrow { self.low.unwrap_or(self.room) } else { self.room }
    }
}
