//! Names of files in a container's `run/` that more than one module knows.

/// The directory in the container's.
pub(crate) const RUN: &str = "run";
/// What processes with the backend inside have in common.
pub(crate) const SHARED: &str = "shared";
/// How the names of stages begin that serve as the backend inside processes.
pub(crate) const STAGE: &str = "stage-";
/// How the names of stages begin that load programs for a tracer.
pub(crate) const LOADER: &str = "loader-";
