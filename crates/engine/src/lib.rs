//! Engines: from what a container is to a running process.
//!
//! One run: [`spec::ContainerConfig`] (data from `container.json`) and [`facts::Facts`] (data about
//! the host) become a [`plan::Plan`] (data, printed by `--explain`). [`choose::choose`] picks an
//! [`engines::Engine`]. The engine executes the plan: it turns the calling process into the
//! program, or starts the program as a child of the supervisor in [`supervise`].
//!
//! The modules form floors. Each floor uses only those beneath it:
//!
//! | floor | modules |
//! |---|---|
//! | 6 supervising | [`supervise`] |
//! | 5 the choice among engines | [`choose`] |
//! | 4 engines | [`engines`]: one module for each, above three that they share |
//! | 3 launching | [`launch`], `sharing`, [`records`], [`processes`] |
//! | 2 plan | [`plan`], [`accounts`] |
//! | 1 data | [`spec`], [`facts`], [`error`], `exit`, `signal` |
//!
//! This crate knows no registry and no command line. It never prints and reads no environment
//! variable. Only processes that it has forked itself are ended by it.

pub mod accounts;
pub mod choose;
pub mod engines;
pub mod error;
pub mod exit;
pub mod facts;
pub mod launch;
pub mod plan;
pub mod processes;
pub mod records;
mod sharing;
mod signal;
pub mod spec;
pub mod supervise;

pub use error::{Errno, Error, Result};
pub use spec::mount_options;
