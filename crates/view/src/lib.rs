//! The guest's world: what a program in a container sees, as pure logic.
//!
//! A program in a container without kernel namespaces makes system calls that name files of *its* root, ids of *its* users. Some
//! backend (the ptrace tracer, the in-process stage, the preload library) catches such a call and hands it to [`calls::enter`], which
//! decides: let it pass, answer it, or have the kernel do another call instead. One brain, several backends: nothing here knows how
//! a call was caught.
//!
//! ```text
//!   backend ──Call──► calls::enter ──► paths, identity, proc, sockets, exec ──► Verdict ──► backend
//!                              │    ▲
//!                  Guest (its memory) and Host (calls made for it), implemented by the backend
//! ```
//!
//! - [`world`]: what is fixed for a container: bindings and options. [`task`]: what belongs to one thread: credentials, umask, root.
//! - [`guest`]: the two traits by which a backend lends its hands.
//! - [`verdict`]: what is to be done with a call.
//!
//! Rules: `no_std`, no `unsafe`, no allocation, no recursion, bounded loops; buffers of a path's length come from the caller's
//! [`buffers::CallBuffers`], because the stage runs on a small stack. No input or output except through [`guest::Host`].

#![no_std]

#[cfg(test)]
extern crate std;

pub mod buffers;
pub mod calls;
pub mod errno;
pub mod exec;
pub mod guest;
pub mod handover;
pub mod identity;
pub mod paths;
pub mod proc;
pub mod sockets;
pub mod stored;
pub mod task;
#[cfg(test)]
pub mod testing;
pub mod text;
pub mod verdict;
pub mod world;

pub use buffers::CallBuffers;
pub use errno::Errno;
pub use guest::{Backend, Dir, Guest, Host, HostFd};
pub use task::Task;
pub use text::Text;
pub use verdict::{After, Call, Verdict};
pub use world::{Binding, World};

/// One call being decided: everything that a rule may look at or change.
pub struct CallContext<'a, N: Backend> {
    /// The backend: the guest's memory, and calls made for the guest.
    pub backend: &'a mut N,
    /// The container.
    pub world: &'a World<'a>,
    /// The calling thread.
    pub task: &'a mut Task,
    /// Buffers.
    pub buffers: &'a mut CallBuffers,
}
