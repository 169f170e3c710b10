//! Makes images by code: layers, configuration, manifest and index, in OCI's or Docker's format.
//!
//! An [`Image`] is described with builder methods and [`built`](Image::build) into plain blobs; a
//! [`Built`] can be written as an OCI layout directory, as a docker-archive, or pushed to a
//! registry. Everything is deterministic: the same description gives the same digests.
//!
//! Does not use the crate `oci`, because the tested code must not make its own test data.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::layer::{Entry, Layer};

/// The family of media types in a manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// `application/vnd.oci.image.*`
    #[default]
    Oci,
    /// `application/vnd.docker.*`, schema 2
    Docker,
}

/// Compression of a layer's tar stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pack {
    /// gzip, one member
    #[default]
    Gzip,
    /// gzip in several members, as parallel compressors write it
    GzipMembers,
    /// zstd
    Zstd,
    /// not compressed
    Plain,
}

/// Bytes with their media type and digest.
#[derive(Clone, Debug)]
pub struct Blob {
    /// The media type in its descriptor.
    pub media_type: String,
    /// `sha256:<hex>`
    pub digest: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Blob {
    /// Hashes `bytes`.
    pub fn new(media_type: &str, bytes: Vec<u8>) -> Self {
        Self { media_type: media_type.to_owned(), digest: digest(&bytes), bytes }
    }

    /// The descriptor of these bytes.
    pub fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": self.digest, "size": self.bytes.len() })
    }

    /// The hexadecimal part of the digest.
    pub fn hex(&self) -> &str {
        self.digest.split_once(':').map_or("", |(_, hex)| hex)
    }
}

/// `sha256:<hex>` of some bytes.
pub fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// An image under construction.
#[derive(Clone, Debug)]
pub struct Image {
    flavour: Flavour,
    layers: Vec<(Vec<u8>, Pack)>,
    architecture: String,
    variant: Option<String>,
    config: Map<String, Value>,
}

impl Default for Image {
    fn default() -> Self {
        Self::new()
    }
}

impl Image {
    /// An image for linux/amd64 with no layer and an empty configuration.
    pub fn new() -> Self {
        Self {
            flavour: Flavour::Oci,
            layers: Vec::new(),
            architecture: "amd64".to_owned(),
            variant: None,
            config: Map::new(),
        }
    }

    /// Uses Docker's media types.
    #[must_use]
    pub fn docker(mut self) -> Self {
        self.flavour = Flavour::Docker;
        self
    }

    /// Adds a layer on top, compressed by gzip.
    #[must_use]
    pub fn layer(self, layer: Layer) -> Self {
        self.packed(layer.finish(), Pack::Gzip)
    }

    /// Adds a layer on top with this compression.
    #[must_use]
    pub fn packed(mut self, tar: Vec<u8>, pack: Pack) -> Self {
        self.layers.push((tar, pack));
        self
    }

    /// Sets another architecture.
    #[must_use]
    pub fn platform(mut self, architecture: &str, variant: Option<&str>) -> Self {
        architecture.clone_into(&mut self.architecture);
        self.variant = variant.map(str::to_owned);
        self
    }

    /// Sets a field of the `config` object (`Env`, `Cmd`, `User`, `Healthcheck`...).
    #[must_use]
    pub fn config(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.config.insert(key.to_owned(), value.into());
        self
    }

    /// Sets the command.
    #[must_use]
    pub fn cmd(self, words: &[&str]) -> Self {
        self.config("Cmd", json!(words))
    }

    /// Sets the entry point.
    #[must_use]
    pub fn entrypoint(self, words: &[&str]) -> Self {
        self.config("Entrypoint", json!(words))
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        let list = self.config.entry("Env").or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(json!(format!("{name}={value}")));
        }
        self
    }

    /// Packs the layers and builds configuration and manifest.
    pub fn build(&self) -> Built {
        let (manifest_type, config_type, layer_type) = match self.flavour {
            Flavour::Oci => (
                "application/vnd.oci.image.manifest.v1+json",
                "application/vnd.oci.image.config.v1+json",
                "application/vnd.oci.image.layer.v1.tar",
            ),
            Flavour::Docker => (
                "application/vnd.docker.distribution.manifest.v2+json",
                "application/vnd.docker.container.image.v1+json",
                "application/vnd.docker.image.rootfs.diff.tar",
            ),
        };
        let separator = if self.flavour == Flavour::Oci { "+" } else { "." };
        let diff_ids: Vec<String> = self.layers.iter().map(|(tar, _)| digest(tar)).collect();
        let layers: Vec<Blob> = self
            .layers
            .iter()
            .map(|(tar, pack)| {
                let suffix = match pack {
                    Pack::Gzip | Pack::GzipMembers => format!("{separator}gzip"),
                    Pack::Zstd => format!("{separator}zstd"),
                    Pack::Plain => String::new(),
                };
                Blob::new(&format!("{layer_type}{suffix}"), compress(tar, *pack))
            })
            .collect();
        let mut config = json!({
            "created": "2024-01-02T03:04:05Z",
            "architecture": self.architecture,
            "os": "linux",
            "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
            "history": diff_ids
                .iter()
                .enumerate()
                .map(|(n, _)| json!({ "created": "2024-01-02T03:04:05Z", "created_by": format!("step {n}") }))
                .collect::<Vec<_>>(),
        });
        if let Some(variant) = &self.variant {
            config["variant"] = json!(variant);
        }
        let config = Blob::new(config_type, config.to_string().into_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": manifest_type,
            "config": config.descriptor(),
            "layers": layers.iter().map(Blob::descriptor).collect::<Vec<_>>(),
        });
        let manifest = Blob::new(manifest_type, manifest.to_string().into_bytes());
        let platform = match &self.variant {
            Some(variant) => {
                json!({ "os": "linux", "architecture": self.architecture, "variant": variant })
            }
            None => json!({ "os": "linux", "architecture": self.architecture }),
        };
        Built { manifest, config, layers, diff_ids, platform }
    }
}

/// The blobs of one finished image.
#[derive(Clone, Debug)]
pub struct Built {
    /// The manifest.
    pub manifest: Blob,
    /// The configuration.
    pub config: Blob,
    /// The packed layers, bottom first.
    pub layers: Vec<Blob>,
    /// The digests of the layers' tar streams.
    pub diff_ids: Vec<String>,
    /// The platform, as an index writes it.
    pub platform: Value,
}

impl Built {
    /// Every blob of the manifest.
    pub fn blobs(&self) -> impl Iterator<Item = &Blob> {
        std::iter::once(&self.config).chain(&self.layers)
    }

    /// Writes an OCI layout whose only image has the name `reference`.
    pub fn write_layout(&self, dir: &Path, reference: &str) -> io::Result<()> {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs)?;
        for blob in self.blobs().chain([&self.manifest]) {
            fs::write(blobs.join(blob.hex()), &blob.bytes)?;
        }
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let mut descriptor = self.manifest.descriptor();
        descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": reference });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [descriptor],
        });
        fs::write(dir.join("index.json"), index.to_string())
    }

    /// A `docker save` archive in Docker's format before version 25: `manifest.json`, the
    /// configuration and each layer as plain tar.
    pub fn docker_archive(&self, plain_layers: &[Vec<u8>], tags: &[&str]) -> Vec<u8> {
        let config = format!("{}.json", self.config.hex());
        let mut archive = Layer::new().file(&config, 0o644, self.config.bytes.clone());
        let mut names = Vec::new();
        for (tar, diff_id) in plain_layers.iter().zip(&self.diff_ids) {
            let name = format!("{}/layer.tar", diff_id.trim_start_matches("sha256:"));
            archive.push(&Entry::new(b'0', &name).data(tar.clone()));
            names.push(name);
        }
        let manifest = json!([{ "Config": config, "RepoTags": tags, "Layers": names }]);
        archive.file("manifest.json", 0o644, manifest.to_string()).finish()
    }
}

/// An index over images for several platforms.
pub fn index(flavour: Flavour, images: &[&Built]) -> Blob {
    let media_type = match flavour {
        Flavour::Oci => "application/vnd.oci.image.index.v1+json",
        Flavour::Docker => "application/vnd.docker.distribution.manifest.list.v2+json",
    };
    let manifests: Vec<Value> = images
        .iter()
        .map(|image| {
            let mut descriptor = image.manifest.descriptor();
            descriptor["platform"] = image.platform.clone();
            descriptor
        })
        .collect();
    let document = json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": manifests });
    Blob::new(media_type, document.to_string().into_bytes())
}

/// Packs a tar stream.
///
/// # Panics
/// Never in practice: writing to memory does not fail.
pub fn compress(tar: &[u8], pack: Pack) -> Vec<u8> {
    let gzip = |part: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(part).expect("memory");
        encoder.finish().expect("memory")
    };
    match pack {
        Pack::Gzip => gzip(tar),
        Pack::GzipMembers => tar.chunks(64 << 10).flat_map(gzip).collect(),
        Pack::Zstd => zstd::encode_all(tar, 3).expect("memory"),
        Pack::Plain => tar.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_description_gives_the_same_digest() {
        let image = || Image::new().layer(Layer::new().file("a", 0o644, "x")).env("A", "1").build();
        assert_eq!(image().manifest.digest, image().manifest.digest);
        assert_ne!(image().manifest.digest, Image::new().build().manifest.digest);
    }

    #[test]
    fn a_layout_has_every_blob() {
        let dir = tempfile::tempdir().unwrap();
        let built = Image::new().layer(Layer::new().dir("d")).build();
        built.write_layout(dir.path(), "x:1").unwrap();
        for blob in built.blobs() {
            let bytes = fs::read(dir.path().join("blobs/sha256").join(blob.hex())).unwrap();
            assert_eq!(digest(&bytes), blob.digest);
        }
    }
}
