//! Numbers, layouts and formats that the engine, the view, the stage and the kernel have to agree
//! on.
//!
//! - [`boot`]: the boot block for the loader of programs.
//! - [`boot32`]: the same for 32-bit programs.
//! - [`bpf`]: the language of system call filters.
//! - [`calls`]: every system call and the meaning of its arguments.
//! - [`code`]: machine code, and the rewriting of call sites.
//! - [`elf`]: headers of programs, as the kernel reads them.
//! - [`index`]: what every name in an image is.
//! - [`layout`]: structures in a guest's memory.
//! - [`network`]: the file in which the containers of a host keep their networks.
//! - [`notes`]: records of inodes in a container's log.
//! - [`processes`]: what the kernel reports about a process.
//! - [`shared`]: the file that all processes of a container map.
//! - [`syscalls`]: numbers of system calls by name.
//!
//! The crate makes no system calls, has no `unsafe` code, and needs no standard library.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod boot;
pub mod boot32;
pub mod bpf;
pub mod calls;
pub mod code;
pub mod elf;
pub mod index;
pub mod layout;
pub mod network;
pub mod notes;
pub mod processes;
pub mod shared;
pub mod syscalls;
