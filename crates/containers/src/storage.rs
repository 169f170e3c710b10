//! The store as a whole: what it takes, what nothing uses, what is damaged.

pub mod prune;
pub mod usage;
pub mod verify;
