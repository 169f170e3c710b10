//! OCI layouts in directories.
