//! Limits on all external input.
//!
//! A registry, a token server, a DNS server or an archive may be broken or hostile; none of their
//! data is read into memory without one of these limits. Blobs are streamed and bounded by the size
//! in their descriptor.

/// Bytes of a manifest or index (`oci` has the same limit).
pub const MANIFEST: u64 = oci::manifest::DOCUMENT_MAX;
/// Bytes of an image configuration.
pub const CONFIG: u64 = oci::config::CONFIG_MAX;
/// Bytes of a token server's response.
pub const TOKEN: u64 = 1 << 20;
/// Bytes of an error body that are read for its message.
pub const ERROR_BODY: u64 = 64 << 10;
/// Bytes of one page of tags, catalog or search results.
pub const PAGE: u64 = 16 << 20;
/// Pages followed through `Link` headers.
pub const PAGES: usize = 10_000;
/// Bytes of all pages of one list together.
pub const LIST: u64 = 256 << 20;
/// Redirects followed for one request.
pub const REDIRECTS: usize = 10;
/// Indexes inside indexes.
pub const INDEX_DEPTH: usize = 4;
/// Bytes of an auth file or `registries.conf`.
pub const CONFIG_FILE: u64 = 4 << 20;
/// Bytes of a credential helper's or `getent`'s output.
pub const HELPER_OUTPUT: u64 = 256 << 10;
/// Bytes of `/etc/hosts` (block lists of several MB are common) and `/etc/resolv.conf`.
pub const HOSTS_FILE: u64 = 32 << 20;
/// Entries in an archive.
pub const ARCHIVE_ENTRIES: usize = 1_000_000;
/// Bytes of a long name or PAX header in an archive.
pub const ARCHIVE_HEADER: u64 = 1 << 20;
/// Bytes of JSON documents, paths and links of an archive in memory, together.
pub const ARCHIVE_DOCUMENTS: u64 = 256 << 20;
/// Longest wait in seconds that a registry may ask for with `Retry-After`; a longer one is an
/// error.
pub const RETRY_AFTER_SECONDS: u64 = 120;
