//! oci
