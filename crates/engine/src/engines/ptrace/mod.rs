//! The ptrace engine: a tracer stops the guest at its system calls, and the view decides about them.
//!
//! Two modes of one mechanism. In P1 a seccomp filter ([`abi::calls::filter`]) lets most calls pass at full speed and stops those that name
//! files, change ids, or show something of the host. In P2 every call stops twice; it is for kernels without filters (before 3.5, or
//! where a sandbox around us forbids them).
//!
//! ```text
//!   guest ──call──► filter ──stop──► tracer: registers ──► view ──► verdict ──► registers ──► guest goes on
//!                     │ pass                                  │
//!                     ▼                                       ▼
//!                   kernel                        calls for the guest, made by the tracer
//! ```
//!
//! - [`attach`]: the tracer's process and how its parent becomes a guest.
//! - [`tracer`]: its loop. [`call`]: one call. [`exec`]: `execve`. [`tracee`]: what is known of a thread.
//! - [`nerves`]: the guest's memory and the calls made for it, as the view wants them. [`kin`]: processes of other tracers.
//! - [`scratch`]: memory in the guest for paths. [`mapping`]: where that does not do. [`placement`]: on which processor.
//!
//! One thread traces, and deals with one event at a time. There is one lock, of [`placement`], which a second thread shares that only lets idle
//! guests go to other processors. What takes long (copying a large file of the image)
//! is done by a process of its own while the guest waits.
//!
//! It is no security boundary: a guest that wants to get at the caller's files finds a way.

mod attach;
mod call;
mod exec;
mod kin;
mod mapping;
mod nerves;
mod placement;
mod scratch;
mod start;
mod tracee;
mod tracer;

pub use nerves::Hands;
pub use tracer::{Settings, Tracer};

use super::interpose;
use crate::choose::{Caps, Child, Ended, Engine, Fit, Streams};
use crate::error::Result;
use crate::facts::Facts;
use crate::plan::Plan;

/// Which calls stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Those that a filter picks.
    Filtered,
    /// All.
    EveryCall,
}

/// Mode P1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filtered;

/// Mode P2.
#[derive(Debug, Clone, Copy, Default)]
pub struct EveryCall;

macro_rules! engine {
    ($type:ident, $name:literal, $about:literal) => {
        impl Engine for $type {
            fn name(&self) -> &'static str {
                $name
            }

            fn about(&self) -> &'static str {
                $about
            }

            fn caps(&self) -> Caps {
                interpose::CAPS
            }

            fn probe(&self, facts: &Facts) -> Fit {
                interpose::fit_of_tracing(facts, Mode::$type == Mode::Filtered)
            }

            fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
                start::spawn(Mode::$type, plan, streams)
            }

            fn enter(&self, _resident: u32, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
                // There are no namespaces to enter: a second tracer over the same tree.
                start::spawn(Mode::$type, plan, streams)
            }

            fn become_guest(&self, plan: &Plan) -> Result<Ended> {
                start::here(Mode::$type, plan)
            }

            fn become_resident(&self, _resident: u32, plan: &Plan) -> Result<Ended> {
                start::here(Mode::$type, plan)
            }
        }
    };
}

engine!(
    Filtered,
    "P1",
    "ptrace at the calls that a seccomp filter picks; emulated root, no namespaces"
);
engine!(EveryCall, "P2", "ptrace at every call; slow, for kernels without seccomp filters");
