//! Bounds on everything that comes from outside.
//!
//! A registry, a token server, a DNS server or an archive may be broken or hostile; nothing they
//! send is read into memory without one of these limits. Blobs are streamed and bounded by the
//! size in their descriptor.

/// A manifest or index (`oci` has the same limit).
pub const MANIFEST: u64 = oci::manifest::DOCUMENT_MAX;
/// An image configuration.
pub const CONFIG: u64 = oci::config::CONFIG_MAX;
/// A token server's answer.
pub const TOKEN: u64 = 1 << 20;
/// The part of an error body that is read for its message.
pub const ERROR_BODY: u64 = 64 << 10;
/// One page of tags, catalog or search results.
pub const PAGE: u64 = 16 << 20;
/// Pages followed through `Link` headers.
pub const PAGES: usize = 10_000;
/// All pages of one list together.
pub const LIST: u64 = 256 << 20;
/// Redirects followed for one request.
pub const REDIRECTS: usize = 10;
/// Indexes inside indexes.
pub const INDEX_DEPTH: usize = 4;
/// An auth file or `registries.conf`.
pub const CONFIG_FILE: u64 = 4 << 20;
/// A credential helper's or `getent`'s output.
pub const HELPER_OUTPUT: u64 = 256 << 10;
/// `/etc/hosts` (block lists of several MB are common) and `/etc/resolv.conf`.
pub const HOSTS_FILE: u64 = 32 << 20;
/// Entries in an archive.
pub const ARCHIVE_ENTRIES: usize = 1_000_000;
/// A long name or PAX header in an archive.
pub const ARCHIVE_HEADER: u64 = 1 << 20;
/// JSON documents, paths and links of an archive that are kept in memory, together.
pub const ARCHIVE_DOCUMENTS: u64 = 256 << 20;
/// Waiting that a registry may ask for with `Retry-After`, in seconds, before it is an error.
pub const RETRY_AFTER_SECONDS: u64 = 120;
