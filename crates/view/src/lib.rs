//! Decides what each system call of a container's program does, as pure logic without any I/O.
//!
//! A program in a container without kernel namespaces makes system calls that name files below
//! *its* root and ids of *its* users. A backend (the ptrace tracer, or the in-process stage)
//! catches such a call and hands it to [`calls::enter`], which decides: let it pass, answer it, or
//! have the kernel make another call instead. All backends share this crate, and nothing in it
//! depends on how a call was caught.
//!
//! ```text
//! backend ──Call──► calls::enter ──► paths, identity, proc, sockets, exec ──► Verdict ──► backend
//!                            │    ▲
//!                Guest (its memory) and Host (calls made for it), implemented by the backend
//! ```
//!
//! - [`world`]: what stays the same while a container runs: bindings and options. [`task`]: what
//!   belongs to one thread: credentials, umask, root.
//! - [`guest`]: the two traits that a backend implements.
//! - [`verdict`]: what the backend has to do with a call.
//!
//! Rules: `no_std`, no `unsafe`, no allocation, no recursion, bounded loops. Buffers as long as a
//! path come from the caller's [`buffers::CallBuffers`], because the stage runs on a small stack.
//! All input and output goes through [`guest::Host`].

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
pub mod image;
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

/// The context of one call that is being decided: everything that a rule may read or change.
pub struct CallContext<'a, N: Backend> {
    /// The backend: the guest's memory, and calls made for the guest.
    pub backend: &'a mut N,
    /// The container.
    pub world: &'a World<'a>,
    /// The calling thread.
    pub task: &'a mut Task,
    /// Working memory.
    pub buffers: &'a mut CallBuffers,
}
