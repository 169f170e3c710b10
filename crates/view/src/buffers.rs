//! Buffers for one call, lent by the backend: the stage has small stacks, and nothing here allocates.

use crate::exec::ExecPlan;
use crate::text::Text;
use abi::layout::stat::EMPTY_STATX;
use linux_raw_sys::general::statx;

/// Working memory of one call. Its contents mean nothing between calls. Each member belongs to one module while a call is decided.
///
/// In this order in memory: what small things are often looked at lie together, because each page costs a process that touches it first.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct CallBuffers {
    /// The call is decided a second time, because something was taken for granted ([`crate::calls::again`]).
    pub careful: bool,
    /// `paths`: what each of `named` is, where [`crate::paths::Place::seen`] says so.
    pub seen: [statx; 2],
    /// The path as the guest gave it (and, for calls with two, the second).
    pub named: [Text; 2],
    /// `paths`: the guest's path while it is resolved.
    pub walk: Text,
    /// `paths`: a link's target, a host path that the kernel gave.
    pub link: Text,
    /// `paths`: a host path under construction.
    pub host: Text,
    /// `paths`: the host path of each of `named`, once it is resolved.
    pub found: [Text; 2],
    /// `paths`: the guest's canonical name of the last place that was resolved; empty where it has none.
    pub position: Text,
    /// `proc`, `sockets`, `exec`: whatever they need.
    pub spare: [Text; 2],
    /// `proc`, `sockets`: bytes that are no text, read.
    pub input: [u8; 8192],
    /// `proc`, `sockets`: bytes that are no text, to be written.
    pub output: [u8; 4096],
    /// `exec`: the program that [`crate::Verdict::Exec`] speaks of.
    pub exec: ExecPlan,
}

impl Default for CallBuffers {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl CallBuffers {
    /// Empty buffers.
    pub const EMPTY: Self = Self {
        named: [Text::EMPTY; 2],
        walk: Text::EMPTY,
        link: Text::EMPTY,
        host: Text::EMPTY,
        found: [Text::EMPTY; 2],
        position: Text::EMPTY,
        seen: [EMPTY_STATX; 2],
        careful: false,
        spare: [Text::EMPTY; 2],
        input: [0; 8192],
        output: [0; 4096],
        exec: ExecPlan::EMPTY,
    };
}
