//! Names of files in a container's `run/` that more than one module knows.

pub(crate) use hostfs::layout::{RUN, SHARED};

/// How the names of stages begin that serve as the backend inside processes.
pub(crate) const STAGE: &str = "stage-";
/// How the names of stages begin that load programs for a tracer.
pub(crate) const LOADER: &str = "loader-";
