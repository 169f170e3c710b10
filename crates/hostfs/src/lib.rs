//! Makes the file system calls that `view` asks for, over any implementation of [`Kernel`].
//!
//! `view` decides what a guest's system call becomes; its trait [`view::Host`] names the calls on
//! the host's files that carry the decision out. Two programs make those calls: the tracer, with
//! the standard library, and the stage, which runs inside the guest's process without it. The
//! protocols by which both change a container's files must agree to the byte, so they are written
//! once, here.
//!
//! ```text
//!   view ──Host──► Files, copy_up, inode_log ──Kernel──► engine (rustix) or stage (raw calls)
//! ```
//!
//! - [`kernel`]: the system calls that an implementation provides, one method each.
//! - [`at`]: how a [`view::Dir`] and a path become arguments of one system call.
//! - [`files`]: the methods of [`view::Host`] on files; [`delegate_files`] forwards to them.
//! - [`mod@copy_up`]: replaces a file that is shared with the image by a copy.
//! - [`layers`], [`overlay`]: a tree of two layers: the image, and what the container has changed.
//! - [`inode_log`]: records of inodes that cannot have extended attributes.
//! - [`host_name`]: the host name that a process has set.
//! - [`lock`]: the exclusive lock that these protocols use. [`io`]: complete reads and writes.
//! - [`layout`]: the names of all of this in a container's directory.
//!
//! Nothing is allocated, and every loop is bounded. Long paths are put together in memory that the
//! implementation lends ([`Kernel::with_path`]), because the stage has small stacks.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod at;
pub mod copy_up;
mod delegate;
pub mod file_contents;
pub mod files;
pub mod host_name;
pub mod inode_log;
pub mod io;
pub mod kernel;
pub mod layers;
pub mod layout;
pub mod lock;
mod look;
pub mod overlay;
#[cfg(test)]
mod tests;

pub use copy_up::copy_up;
pub use files::Files;
pub use inode_log::InodeLog;
pub use kernel::{CWD, Feature, Kernel, OpenFile, Target};
