//! Calls by which a process reaches another one, and what the kernel asks of its user for them.
//!
//! Where several emulated users are one user of the host, the kernel allows all of this: the
//! backend has to see the call, and the view has to decide by [`Right`].
//!
//! `tkill` and `tgkill` are not in the table: a process sends them to its own threads, and the
//! filter cannot tell these from others.

use super::Op;

/// What is asked of the caller's user. Each has its rule in the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// To send a signal: kill(2).
    Signal,
    /// To read or change memory and descriptors: ptrace(2), "Ptrace access mode checking".
    Inspect,
    /// To change when it runs: sched(7), setpriority(2).
    Schedule,
    /// To change the priority of its input and output: `ioprio_set(2)`.
    Disk,
    /// To read or change its limits: prlimit(2).
    Limit,
}

/// The arguments of a call that name other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A process or thread; 0 is the caller.
    Number(u8),
    /// Two of them.
    Numbers(u8, u8),
    /// The same if the first argument has this value, else a group of processes or a user.
    If(u32, u8),
    /// A descriptor of the process (`pidfd_open`).
    Descriptor(u8),
}

/// The processes that a call reaches, and the right that it needs. `ptrace` needs
/// [`Right::Inspect`] to attach, which its backends check.
pub const fn of(op: Op) -> Option<(Named, Right)> {
    Some(match op {
        Op::Kill | Op::RtSigqueueinfo => (Named::Number(0), Right::Signal),
        Op::PidfdSendSignal => (Named::Descriptor(0), Right::Signal),
        Op::ProcessVmReadv
        | Op::ProcessVmWritev
        | Op::GetRobustList
        | Op::MovePages
        | Op::MigratePages => (Named::Number(0), Right::Inspect),
        Op::Kcmp => (Named::Numbers(0, 1), Right::Inspect),
        Op::PidfdGetfd => (Named::Descriptor(0), Right::Inspect),
        Op::SchedSetscheduler | Op::SchedSetparam | Op::SchedSetattr | Op::SchedSetaffinity => {
            (Named::Number(0), Right::Schedule)
        }
        // PRIO_PROCESS
        Op::Setpriority => (Named::If(0, 1), Right::Schedule),
        // IOPRIO_WHO_PROCESS
        Op::IoprioSet => (Named::If(1, 1), Right::Disk),
        Op::Prlimit64 => (Named::Number(0), Right::Limit),
        _ => return None,
    })
}
