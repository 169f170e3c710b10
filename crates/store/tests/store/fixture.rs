//! Stores in temporary directories, and small images in them.

use std::io::Write as _;
use std::path::Path;

use oci::{Descriptor, Digest, Reference, media};
use store::{BeginBlob, BeginTree, Options, Store};

pub(crate) struct Fixture {
    pub(crate) store: Store,
    pub(crate) dir: tempfile::TempDir,
}

pub(crate) fn options() -> Options {
    Options { create: true, ..Options::default() }
}

pub(crate) fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store"), options()).unwrap();
    Fixture { store, dir }
}

impl Fixture {
    /// Opens the same store as another process would.
    pub(crate) fn again(&self) -> Store {
        Store::open(self.store.path(), options()).unwrap()
    }
}

pub(crate) fn reference(name: &str) -> Reference {
    Reference::parse(name).unwrap()
}

/// Returns true on a network file system, where all that the store makes is synced at once: says
/// that a test of what is not synced is skipped there.
pub(crate) fn syncs_at_once(fixture: &Fixture, test: &str) -> bool {
    let network = fixture.store.abilities().network;
    if network {
        println!("SKIP {test}: a network file system");
    }
    network
}

/// Adds a blob as a pull does.
pub(crate) fn ingest(store: &Store, media_type: &str, bytes: &[u8]) -> Descriptor {
    let descriptor = Descriptor::of(media_type, bytes);
    if let BeginBlob::Ingest(mut ingest) = store.blobs().begin(&descriptor).unwrap() {
        let offset = ingest.offset() as usize;
        ingest.write_all(&bytes[offset..]).unwrap();
        ingest.commit().unwrap();
    }
    descriptor
}

/// A tar stream with one file.
pub(crate) fn layer_tar(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[148..156].copy_from_slice(b"        ");
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut tar = header.to_vec();
    tar.extend_from_slice(content);
    tar.resize(tar.len().next_multiple_of(512) + 1024, 0);
    tar
}

/// An image whose layers are these tar streams.
pub(crate) fn image(store: &Store, name: &str, layers: &[Vec<u8>]) -> Descriptor {
    let descriptors: Vec<Descriptor> =
        layers.iter().map(|layer| ingest(store, media::OCI_LAYER, layer)).collect();
    let diff_ids: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
    let config = serde_json::json!({
        "created": "2026-01-02T03:04:05Z", "architecture": "amd64", "os": "linux",
        "config": {"Labels": {"from": name}, "Cmd": ["/bin/sh"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [],
    });
    let config = ingest(store, media::OCI_CONFIG, &serde_json::to_vec(&config).unwrap());
    let manifest = serde_json::json!({
        "schemaVersion": 2, "mediaType": media::OCI_MANIFEST, "config": config, "layers": descriptors,
    });
    let manifest = ingest(store, media::OCI_MANIFEST, &serde_json::to_vec(&manifest).unwrap());
    store.images().tag(&reference(name), &manifest).unwrap();
    for diff_id in &diff_ids {
        unpack(store, diff_id, &[("file", b"content")]);
    }
    manifest
}

/// Unpacks a layer, or imitates it.
pub(crate) fn unpack(store: &Store, diff_id: &Digest, files: &[(&str, &[u8])]) {
    if let BeginTree::Build(staging) = store.layers().begin(diff_id).unwrap() {
        for (name, content) in files {
            std::fs::write(staging.tree().join(name), content).unwrap();
        }
        staging.commit(&serde_json::json!({"files": files.len()})).unwrap();
    }
}

/// Writes those parts of the engine's record that the store reads.
pub(crate) fn container(
    store: &Store,
    name: Option<&str>,
    manifest: &Descriptor,
) -> store::ContainerDir {
    let image = store.images().find(&manifest.digest.to_string()).unwrap();
    let layers = image.config().unwrap().diff_ids().to_vec();
    store
        .containers()
        .create(name, |id, _| {
            serde_json::json!({
                "id": id,
                "image": {"manifest_digest": manifest.digest, "layers": layers},
            })
        })
        .unwrap()
}

pub(crate) fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        // A client of NFS gives a file that is open another name instead of removing it.
        .filter(|name| !name.starts_with(".nfs"))
        .collect();
    names.sort();
    names
}
