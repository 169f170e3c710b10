//! One module per engine.

pub mod apptainer;
mod etc;
pub mod inprocess;
pub mod interpose;
mod launch;
pub mod native;
pub mod oci;
pub mod ptrace;

pub(crate) use etc::write_file;
pub use launch::files::lift as lift_file_limit;
