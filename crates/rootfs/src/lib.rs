//! Converts layers to trees, and trees to layers.
//!
//! A layer comes as a tar stream ([`decode`] decompresses it), and [`apply()`] puts it on disk in
//! overlay's own form, so that a container's root is a mount and needs no unpacking. Facts that an
//! unprivileged user cannot put on disk (owners, devices, capabilities) go to an ownership table
//! ([`owners`]) beside the tree, and [`pack`] reads them from there.
//!
//! ```text
//! blob ─ decode ─ frame ─ apply ─► layers/<diff id>/{tree/,owners,layer.json}      Layer
//!                                        │ image::plan: overlay as they are, or flatten
//!                                        ▼
//!                                  trees/<chain id>/{tree/,owners,tree.json}       (when needed)
//!                                        │ drivers::prepare
//!                                        ▼
//!                     container: Root::Overlay{lowers, upper, work} | Root::Directory
//!                                        │ diff, pack, copy
//!                                        ▼
//!                                  changes, tar streams         (and verify: tree against archive)
//! ```
//!
//! This crate mounts nothing (the engine does), knows no registry and prints nothing. Every path
//! inside a tree is a byte string relative to a directory descriptor; it is never joined to a host
//! path and opened.

pub mod apply;
pub mod cloned;
pub mod copy;
pub mod decode;
pub mod diff;
pub mod drivers;
mod error;
pub mod flatten;
pub mod frame;
pub mod image;
pub mod import;
pub mod index;
pub mod layer;
mod limits;
pub mod linked;
pub mod merge;
mod names;
pub mod owner_layer;
pub mod owner_xattrs;
pub mod owners;
pub mod pack;
mod points;
mod redirects;
pub mod settle;
pub mod union;
mod unlock;
pub mod unsettle;
pub mod unshare;
pub mod usage;
pub mod verify;

pub use apply::{Applied, apply};
pub use drivers::{Driver, Root, prepare};
pub use error::Error;
pub use image::{ImageTrees, Plan};
pub use layer::{Layer, LayerMeta};
pub use limits::Limits;
pub use owners::{FileKind, Owners, Record};
