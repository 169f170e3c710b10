//! One file, many hosts: the nodes of a cluster, what runs on them, and who starts it.
//!
//! | module | what is there |
//! |---|---|
//! | [`spec`] | the cluster file |
//! | [`inside`] | what this program does in containers of a cluster |
//! | [`plan`] | phases of steps, as data, and in words |
//! | [`driver`] | carries a plan out |
//! | [`error`] | the error of this crate |

pub mod driver;
pub mod error;
pub mod inside;
pub mod plan;
pub mod spec;

pub use error::{Error, Result};
