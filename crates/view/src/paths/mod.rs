//! Names: which host file a guest's path means, and which guest path a host file has.
//!
//! [`resolve`] does what `path_resolution(7)` says, inside the guest's root and bindings, and leaves a host path that has no symbolic link
//! left in it, so that the caller's own call on it means the right file. [`reverse`] goes the other way. [`listing`] puts bindings into
//! directories where they have no mount point.
//!
//! What is left of the name's *end* is kept as the guest spelt it: `d/`, `d/.`, `d/..` become a host path with the same end. The kernel
//! then gives the errors of a bad end itself (`rmdir d/.` is `EINVAL`, `mkdir ..` is `EEXIST`, `unlink f/` is `ENOTDIR`).

mod bindings;
mod by_component;
mod dir_cache;
mod fast_path;
pub(crate) mod listing;
mod origin;
mod place;
mod probe;
mod resolve;
mod reverse;
mod walker;

#[cfg(test)]
mod tests;

pub(crate) use bindings::behind;
pub use bindings::{find, is_mount_point, mounts_beneath};
pub(crate) use dir_cache::in_tree;
pub use dir_cache::is_in_root;
pub use fast_path::{Start, fast_path};
pub use place::{End, Intent, Last, Look, Place};
pub use resolve::{resolve, resolve_known};
pub use reverse::{Origin, reverse, seen_from};
