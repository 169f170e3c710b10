//! Names: which host file a guest's path means, and which guest path a host file has.
//!
//! [`resolve`] does what `path_resolution(7)` says, inside the guest's root and bindings, and leaves a host path that has no symbolic link
//! left in it, so that the caller's own call on it means the right file. [`reverse`] goes the other way. [`listing`] puts bindings into
//! directories where they have no mount point.
//!
//! What is left of the name's *end* is kept as the guest spelt it: `d/`, `d/.`, `d/..` become a host path with the same end. The kernel
//! then gives the errors of a bad end itself (`rmdir d/.` is `EINVAL`, `mkdir ..` is `EEXIST`, `unlink f/` is `ENOTDIR`).

mod bindings;
mod creep;
mod ground;
mod known;
pub(crate) mod listing;
mod place;
mod probe;
mod resolve;
mod reverse;
mod straight;
mod walker;

#[cfg(test)]
mod tests;

pub(crate) use bindings::behind;
pub use bindings::{find, is_mount_point, mounts_beneath};
pub(crate) use known::in_tree;
pub use known::is_in_root;
pub use place::{End, Intent, Last, Look, Place};
pub use resolve::{resolve, resolve_known};
pub use reverse::{Origin, reverse, seen_from};
pub use straight::{Start, straight};
