//! Translates paths between guest and host: finds the host file that a guest's path means, and the
//! guest path of a host file.
//!
//! [`resolve`] does what `path_resolution(7)` describes, inside the guest's root and bindings. Its
//! result is a host path without symbolic links, so a system call with that path reaches the right
//! file. [`reverse`] translates in the other direction. [`listing`] adds bindings without a mount
//! point to directory listings. [`moves`] tells whether a name may have lost its directory while it
//! was looked for.
//!
//! The end of the name stays as the guest wrote it: `d/`, `d/.`, `d/..` become a host path with the
//! same end. So the kernel itself gives the errors of a bad end (`rmdir d/.` is `EINVAL`,
//! `mkdir ..` is `EEXIST`, `unlink f/` is `ENOTDIR`).
//!
//! One resolution goes through these files, in this order, and stops at the first that gives the
//! place:
//!
//! 1. `resolve.rs` has the entry points and tries one step after the other.
//!    `by_index.rs` comes first: it answers without the kernel, as far as the path leads only
//!    through directories of an image with an index.
//! 2. `dir_cache.rs` answers if the directory is known to be free of links; for the status of a
//!    file it first tries `fast_path.rs`, where the kernel resolves the guest's own text.
//!    `learn.rs` fills that cache after the other steps.
//! 3. `relative.rs` answers if a relative path may be used as the guest wrote it.
//! 4. `origin.rs` goes to the directory where the path starts, and later to those that `..` and
//!    links lead to.
//! 5. `resolve.rs` takes the path in stretches and has the kernel check each with one call
//!    (`probe.rs`).
//! 6. `by_component.rs` goes through a stretch again that has a link in it, and follows the link.
//! 7. `ends.rs` checks the last component and makes the [`Place`] that the caller gets.
//!
//! Two types have methods in these files. `Resolver` (declared in `resolve.rs`) decides which step
//! comes next. Its `Walker` (declared in `walker.rs`) holds the position that has been reached and
//! moves it; it never decides. `place.rs` declares what callers ask for and get, `bindings.rs`
//! looks up the table of bindings.

mod bindings;
mod by_component;
mod by_index;
mod dir_cache;
mod ends;
mod entries;
mod fast_path;
mod learn;
pub(crate) mod listing;
pub mod merged;
pub(crate) mod moves;
mod origin;
mod place;
mod probe;
mod relative;
mod resolve;
mod reverse;
mod walker;

#[cfg(test)]
mod tests;

pub(crate) use bindings::{behind, may_have_layers};
pub use bindings::{find, is_mount_point, mounts_beneath};
pub(crate) use by_index::{FoundRecord, record as record_of};
pub(crate) use dir_cache::in_tree;
pub use dir_cache::is_in_root;
pub use fast_path::{Start, fast_path};
pub use origin::entered;
pub use place::{End, Intent, Last, Look, Place};
pub use resolve::{resolve, resolve_cached};
pub use reverse::{Origin, reverse, reverse_by, seen_from};
