//! Engines: from what a container is to a running process.
//!
//! The road of one run: [`spec::ContainerConfig`] (data from `container.json`) and [`facts::Facts`] (data about the host) become a
//! [`plan::Plan`] (data, printed by `--explain`); [`choose::choose`] picks an [`choose::Engine`]; the engine executes the plan, either by
//! turning the calling process into the program, or as a child of the supervisor in [`supervise`].
//!
//! This crate knows no registry and no command line: it never prints, reads no environment variable, and never ends the process.

pub mod accounts;
pub mod choose;
pub mod engines;
pub mod error;
pub mod facts;
pub mod mount_options;
pub mod plan;
pub mod records;
mod sharing;
pub mod spec;
pub mod supervise;

pub use error::{Errno, Error, Result};
