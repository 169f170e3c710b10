//! Media types, and the compression of layers.

use serde::{Deserialize, Serialize};

/// OCI image index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// OCI image manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// OCI image configuration.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// OCI layer, uncompressed.
pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// OCI layer, gzip.
pub const OCI_LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// OCI layer, zstd.
pub const OCI_LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
/// Docker's manifest list.
pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's manifest, schema 2.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's image configuration.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
/// Docker's layer, gzip (in practice sometimes not compressed at all).
pub const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
/// Docker's layer, uncompressed.
pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
/// Docker's layer that is fetched from elsewhere (Windows base images).
pub const DOCKER_FOREIGN_LAYER: &str = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
/// Docker's schema 1.
pub const DOCKER_SCHEMA1: &str = "application/vnd.docker.distribution.manifest.v1+json";
/// Docker's schema 1, signed.
pub const DOCKER_SCHEMA1_SIGNED: &str = "application/vnd.docker.distribution.manifest.v1+prettyjws";

/// Every document type that a client accepts, best first. Schema 1 is included, so that a registry
/// that has nothing else sends it and the error can name the reason.
pub const ACCEPTED: [&str; 6] =
    [OCI_INDEX, DOCKER_INDEX, OCI_MANIFEST, DOCKER_MANIFEST, DOCKER_SCHEMA1_SIGNED, DOCKER_SCHEMA1];

/// Returns true for an index or manifest list.
pub fn is_index(media_type: &str) -> bool {
    matches!(essence(media_type), OCI_INDEX | DOCKER_INDEX)
}

/// Returns true for a single image's manifest.
pub fn is_manifest(media_type: &str) -> bool {
    matches!(essence(media_type), OCI_MANIFEST | DOCKER_MANIFEST)
}

/// Returns true for Docker's schema 1.
pub fn is_schema1(media_type: &str) -> bool {
    matches!(essence(media_type), DOCKER_SCHEMA1 | DOCKER_SCHEMA1_SIGNED)
}

/// Returns true for an image's configuration.
pub fn is_config(media_type: &str) -> bool {
    matches!(essence(media_type), OCI_CONFIG | DOCKER_CONFIG)
}

/// Returns true if a layer of this type may be kept outside the registry (its descriptor has URLs).
pub fn is_foreign_layer(media_type: &str) -> bool {
    let name = essence(media_type);
    name == DOCKER_FOREIGN_LAYER || name.contains(".nondistributable.")
}

/// OCI's type for one of Docker's; other types unchanged.
pub fn to_oci(media_type: &str) -> &str {
    match essence(media_type) {
        DOCKER_INDEX => OCI_INDEX,
        DOCKER_MANIFEST => OCI_MANIFEST,
        DOCKER_CONFIG => OCI_CONFIG,
        DOCKER_LAYER => OCI_LAYER,
        DOCKER_LAYER_GZIP => OCI_LAYER_GZIP,
        "application/vnd.docker.image.rootfs.diff.tar.zstd" => OCI_LAYER_ZSTD,
        DOCKER_FOREIGN_LAYER => "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        _ => media_type,
    }
}

/// The media type without parameters (`; charset=utf-8`) and spaces.
pub fn essence(media_type: &str) -> &str {
    media_type.split(';').next().unwrap_or_default().trim()
}

/// Compression of a layer's tar stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// A plain tar stream.
    None,
    /// One or more gzip members.
    Gzip,
    /// One or more zstd frames.
    Zstd,
    /// Bzip2, which old tools wrote.
    Bzip2,
    /// XZ, which old tools wrote.
    Xz,
}

impl Compression {
    /// Number of bytes that [`Compression::from_magic`] needs.
    pub const MAGIC_LEN: usize = 6;

    /// The compression according to a media type; `None` if it is not a layer type. Registries hold
    /// layers with a wrong type, so the stream's own magic number decides.
    pub fn from_media_type(media_type: &str) -> Option<Self> {
        let name = essence(media_type);
        if !name.contains("layer") && !name.contains("rootfs") {
            return None;
        }
        match name.rsplit(['+', '.']).next() {
            Some("zstd") => Some(Compression::Zstd),
            Some("gzip") => Some(Compression::Gzip),
            Some("tar") => Some(Compression::None),
            _ => None,
        }
    }

    /// The compression according to the first bytes of a stream; fewer than
    /// [`Compression::MAGIC_LEN`] are allowed.
    pub fn from_magic(head: &[u8]) -> Self {
        // A zstd stream may begin with a skippable frame, 0x184D2A50 to 0x184D2A5F.
        let skippable = head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == *b"\x2a\x4d\x18";
        if head.starts_with(b"\x1f\x8b") {
            Compression::Gzip
        } else if head.starts_with(b"\x28\xb5\x2f\xfd") || skippable {
            Compression::Zstd
        } else if head.starts_with(b"BZh") {
            Compression::Bzip2
        } else if head.starts_with(b"\xfd7zXZ\0") {
            Compression::Xz
        } else {
            Compression::None
        }
    }

    /// The OCI media type of a layer with this compression; bzip2 and xz have none.
    pub fn oci_layer_type(self) -> Option<&'static str> {
        match self {
            Compression::None => Some(OCI_LAYER),
            Compression::Gzip => Some(OCI_LAYER_GZIP),
            Compression::Zstd => Some(OCI_LAYER_ZSTD),
            Compression::Bzip2 | Compression::Xz => None,
        }
    }
}

impl std::fmt::Display for Compression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Bzip2 => "bzip2",
            Compression::Xz => "xz",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_types() {
        assert_eq!(Compression::from_media_type(OCI_LAYER), Some(Compression::None));
        assert_eq!(Compression::from_media_type(OCI_LAYER_ZSTD), Some(Compression::Zstd));
        assert_eq!(Compression::from_media_type(DOCKER_LAYER_GZIP), Some(Compression::Gzip));
        assert_eq!(Compression::from_media_type(DOCKER_LAYER), Some(Compression::None));
        assert_eq!(Compression::from_media_type(OCI_CONFIG), None);
        assert!(is_foreign_layer("application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"));
        assert!(is_manifest("application/vnd.oci.image.manifest.v1+json; charset=utf-8"));
    }

    #[test]
    fn from_bytes() {
        assert_eq!(Compression::from_magic(b"\x1f\x8b\x08"), Compression::Gzip);
        assert_eq!(Compression::from_magic(b"\x28\xb5\x2f\xfd"), Compression::Zstd);
        assert_eq!(Compression::from_magic(b"\x5e\x2a\x4d\x18"), Compression::Zstd);
        assert_eq!(Compression::from_magic(b"\xfd7zXZ\0"), Compression::Xz);
        assert_eq!(Compression::from_magic(b"BZh9"), Compression::Bzip2);
        assert_eq!(Compression::from_magic(b""), Compression::None);
        assert_eq!(Compression::from_magic(b"usr/bin"), Compression::None);
    }
}
