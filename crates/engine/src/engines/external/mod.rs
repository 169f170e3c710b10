//! Containers that another program makes: an OCI runtime, Apptainer.
//!
//! The other program does not start the container's program itself, but Coracle, through a
//! descriptor. So streams, environment, arguments, limits and descriptors reach the program as they
//! are, and what cannot be executed is reported as in the other engines.
//!
//! - [`handed`]: the descriptors and instructions for Coracle in the container.
//! - [`helper`]: the other program, from its start to its end.
//! - [`first_process`]: Coracle as the first process of the container.

pub mod first_process;
pub(super) mod handed;
pub(super) mod helper;
