//! Batch systems: the allocation that this process runs in.

mod allocation;
mod tool;

pub use allocation::{Allocation, System, allocation};
