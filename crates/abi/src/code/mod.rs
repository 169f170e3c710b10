//! Machine code of guests (x86-64), as far as call sites are rewritten: so that a `syscall` which the filter would catch, at the price of a
//! signal, jumps to the stage by itself.
//!
//! Pure functions over bytes; who reads and writes a guest's memory is `stage::rewrite`.
//!
//! - [`length`]: where an instruction ends, and what kind it is.
//! - [`boundary`]: proofs that an instruction begins at an address, by decoding forward from everywhere.
//! - [`census`]: which bytes of a file are call sites, all of them.
//! - [`form`]: how a site can be rewritten, if it can.
//! - [`stub`]: the instructions that a rewritten site jumps to.
//! - [`page`]: all sites of a page at once.
//!
//! **What a rewritten page has to promise**, because threads may be anywhere in it while it takes the place of the old one, and because
//! nobody knows who jumps where: at every address where an instruction began, one begins now that does the same. So one instruction is
//! replaced at a time, never two; nothing is moved but that one, into a stub; and padding is used only where it is a single instruction
//! (its first bytes then jump over the rest) or a trap.

pub mod boundary;
pub mod census;
pub mod form;
pub mod length;
pub mod page;
pub mod stub;
