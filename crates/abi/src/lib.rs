//! Numbers and layouts that the programs on both sides of a boundary share.
//!
//! - [`boot`]: what the loader of programs is told.
//! - [`boot32`]: likewise for 32-bit programs.
//! - [`bpf`]: the language of system call filters.
//! - [`calls`]: every system call and what its arguments mean.
//! - [`code`]: machine code, and the rewriting of call sites.
//! - [`elf`]: programs, as the kernel reads them.
//! - [`layout`]: structures in a guest's memory.
//! - [`notes`]: records of inodes in a container's log.
//! - [`processes`]: what the kernel tells of a process.
//! - [`shared`]: the file that all processes of a container map.
//! - [`syscalls`]: numbers of system calls by name.
//!
//! No input, no output, no `unsafe`, no standard library.

#![no_std]

#[cfg(test)]
extern crate std;

pub mod boot;
pub mod boot32;
pub mod bpf;
pub mod calls;
pub mod code;
pub mod elf;
pub mod layout;
pub mod notes;
pub mod processes;
pub mod shared;
pub mod syscalls;
