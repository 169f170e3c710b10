//! podman's `registries.conf`, version 2.

/// Mirrors, rewrites and blocks.
#[derive(Debug, Clone, Default)]
pub struct RegistriesConf {}
