//! Numbers and layouts that the programs on both sides of a boundary share.
//!
//! - [`bpf`]: the language of system call filters.
//! - [`syscalls`]: numbers of system calls by name.
//!
//! No input, no output, no `unsafe`, no standard library.

#![no_std]

pub mod bpf;
pub mod syscalls;
