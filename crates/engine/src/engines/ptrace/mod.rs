//! The ptrace engine (P1, P2): a tracer stops the guest at its system calls, and the view decides
//! about them.
//!
//! Two modes of one mechanism. In P1 a seccomp filter ([`abi::calls::filter`]) lets most calls pass
//! at full speed and stops those that name files, change ids, or show something of the host. In P2
//! every call stops twice; it is for kernels without filters (before 3.5, or where an enclosing
//! sandbox forbids them).
//!
//! ```text
//!   guest ──call──► filter ──stop──► tracer: registers ──► view ──► verdict ──► registers ─► guest
//!                     │ pass                                  │
//!                     ▼                                       ▼
//!                   kernel                        calls for the guest, made by the tracer
//! ```
//!
//! - [`attach`]: the tracer's process and how its parent becomes a guest.
//! - [`tracer`]: its loop. [`call`]: one call. [`exec`]: `execve`. [`tracee`]: what is known of a
//!   thread.
//! - [`backend`]: the guest's memory and the calls made for it, as the view wants them.
//!   [`processes`]: processes of other tracers.
//! - [`scratch`]: memory in the guest for paths. [`mapping`]: where that does not do.
//!   [`placement`]: on which processor. [`signal`]: what the kernel does otherwise to a tracee.
//!
//! One thread traces, and deals with one event at a time. There is one lock, of [`placement`],
//! which a second thread shares that only lets idle guests go to other processors. What takes long
//! (copying a large file of the image) is done by a process of its own while the guest waits.
//!
//! It is no security boundary: a guest that wants to get at the caller's files finds a way.

mod attach;
mod backend;
mod become_guest;
mod call;
mod exec;
mod mapping;
mod placement;
mod processes;
mod scratch;
mod signal;
mod sockets;
mod tracee;
mod tracer;

pub use backend::TracerHost;
pub use tracer::{Settings, Tracer};

use super::contract::{
    Asked, Begun, CallsBy, Engine, Fit, IdsFrom, MadeFiles, Properties, RootKind,
};
use super::interpose;
use crate::error::Result;
use crate::exit::Ended;
use crate::facts::Facts;
use crate::launch::streams::{Child, Streams};
use crate::plan::Plan;

/// Which calls stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Those that a filter picks: P1.
    Filtered,
    /// All: P2.
    EveryCall,
}

const P1: Properties = Properties {
    name: "P1",
    aliases: &[],
    about: "ptrace with seccomp",
    asked: Asked::Unasked,
    root: RootKind::LinkedTree,
    ids: IdsFrom::Engine,
    calls: CallsBy::Tracer,
    made: MadeFiles::None,
    helper: None,
    caps: interpose::CAPS,
};
const P2: Properties = Properties { name: "P2", about: "ptrace", ..P1 };

impl Engine for Mode {
    fn properties(&self) -> &'static Properties {
        match self {
            Self::Filtered => &P1,
            Self::EveryCall => &P2,
        }
    }

    fn probe(&self, facts: &Facts) -> Fit {
        interpose::fit_of_tracing(facts, *self == Self::Filtered)
    }

    fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        become_guest::spawn(*self, plan, streams)
    }

    fn become_guest(&self, plan: &Plan, begun: Begun<'_>) -> Result<Ended> {
        become_guest::here(*self, plan, begun)
    }
}
