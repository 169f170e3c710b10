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
    /// The counter of moved directories before the call was decided, where a call is decided again
    /// that was made by a name which has become a wrong one ([`crate::calls::again`]).
    pub moves: Option<u64>,
    /// `paths`: what was found of a directory of this call's.
    pub layer: Option<(Dir, Layer)>,
    /// `stat`: the directory in which a name was the container's own when one was last looked for;
    /// it may be another directory by now.
    pub own_directory: Option<Dir>,
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

/// Where a call finds a name in an open directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Any name there, or nowhere: the directory is not seen in two layers
    /// ([`crate::image::Image::may_be_layered`]).
    One,
    /// The single name that was looked up last there, or nowhere: what is open is the directory in
    /// the upper one, and the image does not have the name.
    Own,
    /// What the image had under that name is there as a copy or a whiteout, or is about to be.
    Covered,
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
        moves: None,
        layer: None,
        own_directory: None,
        spare: [Text::EMPTY; 2],
        input: [0; 8192],
        output: [0; 4096],
        exec: ExecPlan::EMPTY,
    };
}
