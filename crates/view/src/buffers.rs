//! Working memory for one call. The backend provides it, because the stage's stacks are small and
//! this crate does not allocate.

use crate::exec::ExecPlan;
use crate::guest::Dir;
use crate::text::Text;
use abi::layout::stat::EMPTY_STATX;
use linux_raw_sys::general::statx;

/// Working memory of one call. Its contents are undefined between calls. While a call is decided,
/// each member belongs to one module.
///
/// The order of the members in memory matters: small members that are read often lie together,
/// because a process pays a page fault for each page that it touches first.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct CallBuffers {
    /// The call is decided a second time, because an assumption of the first time may be wrong
    /// ([`crate::calls::again`]).
    pub careful: bool,
    /// `paths`: a directory of this call's that was found not to be seen in two layers
    /// ([`crate::image::Image::may_be_layered`]).
    pub one_layer: Option<Dir>,
    /// `paths`: status of the file that each of `named` means, if [`crate::paths::Place::seen`] is
    /// set.
    pub seen: [statx; 2],
    /// The path as the guest gave it, and the second path of calls that take two.
    pub named: [Text; 2],
    /// `paths`: the guest's path while it is resolved.
    pub walk: Text,
    /// `paths`: a link's target, a host path that the kernel gave.
    pub link: Text,
    /// `paths`: a host path while it is put together.
    pub host: Text,
    /// `paths`: the host path of each of `named`, after it has been resolved.
    pub found: [Text; 2],
    /// `paths`: the guest's canonical name of the place that was resolved last; empty if the guest
    /// has no name for it.
    pub position: Text,
    /// `proc`, `sockets`, `exec`: temporary paths.
    pub spare: [Text; 2],
    /// `proc`, `sockets`: binary data that was read.
    pub input: [u8; 8192],
    /// `proc`, `sockets`: binary data to be written.
    pub output: [u8; 4096],
    /// `exec`: the program of a [`crate::Verdict::Exec`].
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
        one_layer: None,
        spare: [Text::EMPTY; 2],
        input: [0; 8192],
        output: [0; 4096],
        exec: ExecPlan::EMPTY,
    };
}
