//! Analyses and rewrites machine code of guests (x86-64), so that a `syscall` which the filter
//! would catch, at the cost of a signal, jumps to the stage instead.
//!
//! These are pure functions over bytes; `stage::rewrite` reads and writes a guest's memory.
//!
//! - [`length`]: length and kind of an instruction.
//! - [`boundary`]: proofs that an instruction begins at an address, by decoding forward from all
//!   addresses before it.
//! - [`census`]: all call sites of a file.
//! - [`form`]: the ways to rewrite a site.
//! - [`stub`]: the instructions that a rewritten site jumps to.
//! - [`page`]: all sites of a page at once.
//!
//! **What must hold for a rewritten page.** Threads may be anywhere in a page while the new one
//! replaces it, and jumps may lead to any instruction. So at every address where an instruction
//! began, one begins now that has the same effect. Therefore one instruction is replaced at a time,
//! never two; only that instruction is moved, into a stub; and padding is used only if it is a
//! single instruction (its first bytes then jump over the rest) or a trap.

pub mod boundary;
pub mod census;
pub mod form;
pub mod length;
pub mod page;
pub mod stub;
