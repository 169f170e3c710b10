//! The data types of container images: references, digests, platforms, descriptors, manifests,
//! configurations.
//!
//! This crate does no I/O. Documents are parsed from bytes, and those bytes are kept unchanged,
//! because a digest covers the bytes: serialising a parsed manifest again would lose unknown fields
//! and change its digest.
//!
//! | module | what | source |
//! |---|---|---|
//! | [`digest`] | content digests and streaming hashers | OCI image spec, descriptor.md |
//! | [`mod@reference`] | `registry/repository:tag@digest` | `distribution/reference` |
//! | [`platform`] | `os/architecture/variant`, which image runs where | containerd `platforms` |
//! | [`media`] | media types and layer compressions | media-types.md |
//! | [`descriptor`] | a typed pointer to a blob | descriptor.md |
//! | [`manifest`] | manifests and indexes, OCI and Docker schema 2 | manifest.md, image-index.md |
//! | [`config`] | the settings of a container of the image | config.md |

pub mod config;
pub mod descriptor;
pub mod digest;
mod error;
pub mod manifest;
pub mod media;
pub mod platform;
pub mod reference;

pub use config::{ConfigEditor, Healthcheck, History, ImageConfig};
pub use descriptor::Descriptor;
pub use digest::{Algorithm, Digest, Digester, chain_ids};
pub use error::Error;
pub use manifest::{Document, Index, Manifest};
pub use media::Compression;
pub use platform::Platform;
pub use reference::Reference;
