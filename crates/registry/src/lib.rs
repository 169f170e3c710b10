//! Fetches images from registries, OCI layouts and archives.
//!
//! ```text
//! Client::resolve ──► endpoints (registries.conf, mirrors) ──► session (tokens, retries,
//!        │                                                       redirects) ──► http (ureq)
//! Client::blob ─────► BlobReader: resumes by Range, checks the size                 │
//!                                                        tls, proxy, resolver ◄─────┘
//! archive::read ────► docker-archive, oci-archive from a pipe ──► BlobSink
//! layout ───────────► a directory                             ◄── BlobSource
//! ```
//!
//! All calls block; the caller uses threads to fetch layers in parallel. A [`Client`] is cheap to
//! clone and shares tokens, connections and resolved names. The crate knows no store: blobs go into
//! a [`BlobSink`] and come out of a [`BlobSource`]. It reads no environment and no home directory;
//! [`Settings`] has everything. It never calls the C library's name service (see [`Settings`] and
//! `resolver`): a static glibc program would load the host's libraries for that.
//!
//! The code that stores blobs checks their digests (it hashes anyway); manifests and configurations
//! are checked here.

pub mod archive;
pub mod auth;
mod client;
mod date;
mod error;
mod host_state;
mod http;
pub mod layout;
pub mod limits;
mod proxy;
pub mod registries_conf;
mod resolver;
mod secret;
mod settings;
mod sink;
mod tls;
mod url;

pub use client::{BlobReader, Client, Fetched, Login, Resolved, SearchResult};
pub use error::Error;
pub use secret::Secret;
pub use settings::{ProxySettings, ResolverSettings, Retries, Roots, Settings, Timeouts};
pub use sink::{BlobSink, BlobSource};
