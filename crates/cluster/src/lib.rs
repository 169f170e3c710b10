//! One file, many hosts: the nodes of a cluster, what runs on them, and who starts it.
//!
//! | module | what is there |
//! |---|---|
//! | [`spec`] | the cluster file |
//! | [`plan`] | phases of steps, as data, and in words |
//! | [`error`] | the error of this crate |

pub mod error;
pub mod plan;
pub mod spec;

pub use error::{Error, Result};
