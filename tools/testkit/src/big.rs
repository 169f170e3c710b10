//! Makes a big image by code, to measure pulls: a given number of layers, files and bytes.
//!
//! Deterministic for a [`Shape`], so two machines measure the same. The contents are words from a
//! random vocabulary with some noise, which gzip packs about 3:1, as it does real software. Sizes
//! of files are spread as in a distribution: most are small, some hold most of the bytes. Layers
//! are made in parallel and written to disk as they are made, never held whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::image::Blob;
use crate::layer::{Entry, Layer};

/// Size of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of layers; files and bytes are spread evenly over them.
    pub layers: u64,
    /// Number of regular files.
    pub files: u64,
    /// Bytes in all files, before compression.
    pub bytes: u64,
}

impl Shape {
    /// The image of the benchmarks: 5 layers, 43,000 files, 1.4 GB.
    pub const BENCHMARK: Self = Self { layers: 5, files: 43_000, bytes: 1_400_000_000 };
    /// A tenth of it, for trying the benchmark itself.
    pub const SMALL: Self = Self { layers: 5, files: 4_300, bytes: 140_000_000 };
}

/// A finished layer on disk.
#[derive(Clone, Debug)]
pub struct LayerFile {
    /// The gzip file, named by its digest in the layout's blob directory.
    pub path: PathBuf,
    /// Digest of the gzip file.
    pub digest: String,
    /// Digest of the tar stream.
    pub diff_id: String,
    /// Bytes of the gzip file.
    pub size: u64,
}

/// Writes the image as an OCI layout named `reference`, unless a finished one exists; returns its
/// layers.
pub fn write_layout(shape: Shape, dir: &Path, reference: &str) -> io::Result<Vec<LayerFile>> {
    let blobs = dir.join("blobs/sha256");
    let record = dir.join("layers.json");
    if let Some(layers) = fs::read(&record).ok().and_then(|text| parse(&text, &blobs)) {
        return Ok(layers);
    }
    fs::create_dir_all(&blobs)?;
    let made: Vec<io::Result<LayerFile>> = thread::scope(|scope| {
        let running: Vec<_> = (0..shape.layers)
            .map(|n| (n, &blobs))
            .map(|(n, blobs)| scope.spawn(move || layer(shape, n, blobs)))
            .collect();
        running
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a layer thread died")))
            })
            .collect()
    });
    let layers = made.into_iter().collect::<io::Result<Vec<_>>>()?;
    describe(dir, reference, &layers)?;
    let list: Vec<_> = layers.iter().map(|l| json!([l.digest, l.diff_id, l.size])).collect();
    fs::write(record, json!(list).to_string())?;
    Ok(layers)
}

/// Every blob of a layout, largest last, for pushing.
pub fn blobs(dir: &Path) -> io::Result<(Blob, Vec<Blob>)> {
    let read = |hex: &str| fs::read(dir.join("blobs/sha256").join(hex));
    let index: serde_json::Value = serde_json::from_slice(&fs::read(dir.join("index.json"))?)?;
    let wrong = || io::Error::other("not a layout that this module wrote");
    let hex = |value: &serde_json::Value| {
        value["digest"].as_str().and_then(|d| d.strip_prefix("sha256:")).map(str::to_owned)
    };
    let bytes = read(&hex(&index["manifests"][0]).ok_or_else(wrong)?)?;
    let manifest: serde_json::Value = serde_json::from_slice(&bytes)?;
    let kind = manifest["mediaType"].as_str().ok_or_else(wrong)?.to_owned();
    let mut parts = vec![manifest["config"].clone()];
    parts.extend(manifest["layers"].as_array().ok_or_else(wrong)?.iter().cloned());
    let parts = parts
        .iter()
        .map(|part| {
            let kind = part["mediaType"].as_str().ok_or_else(wrong)?;
            Ok(Blob::new(kind, read(&hex(part).ok_or_else(wrong)?)?))
        })
        .collect::<io::Result<Vec<_>>>()?;
    Ok((Blob::new(&kind, bytes), parts))
}

fn parse(text: &[u8], blobs: &Path) -> Option<Vec<LayerFile>> {
    let list: Vec<(String, String, u64)> = serde_json::from_slice(text).ok()?;
    list.into_iter()
        .map(|(digest, diff_id, size)| {
            let path = blobs.join(digest.strip_prefix("sha256:")?);
            path.exists().then_some(LayerFile { path, digest, diff_id, size })
        })
        .collect()
}

fn describe(dir: &Path, reference: &str, layers: &[LayerFile]) -> io::Result<()> {
    let diff_ids: Vec<&str> = layers.iter().map(|layer| layer.diff_id.as_str()).collect();
    let config = Blob::new(
        "application/vnd.oci.image.config.v1+json",
        json!({
            "architecture": "amd64",
            "os": "linux",
            "config": { "Cmd": ["/bin/guest", "exit", "0"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        })
        .to_string()
        .into_bytes(),
    );
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let parts: Vec<_> = layers
        .iter()
        .map(|layer| json!({ "mediaType": kind, "digest": layer.digest, "size": layer.size }))
        .collect();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor(),
        "layers": parts,
    });
    let manifest =
        Blob::new("application/vnd.oci.image.manifest.v1+json", manifest.to_string().into_bytes());
    for blob in [&config, &manifest] {
        fs::write(dir.join("blobs/sha256").join(blob.hex()), &blob.bytes)?;
    }
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let mut descriptor = manifest.descriptor();
    descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": reference });
    let index = json!({ "schemaVersion": 2, "manifests": [descriptor] });
    fs::write(dir.join("index.json"), index.to_string())
}

/// A writer that counts and hashes its data.
struct Tee<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Tee<W> {
    fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), size: 0 }
    }
}

impl<W: Write> Write for Tee<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn hex(hash: Sha256) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("sha256:");
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn layer(shape: Shape, number: u64, blobs: &Path) -> io::Result<LayerFile> {
    let part = blobs.join(format!("part-{number}"));
    let packed = Tee::new(BufWriter::with_capacity(1 << 20, File::create(&part)?));
    let mut tar = Tee::new(GzEncoder::new(packed, Compression::new(6)));
    let mut random = Random(number * 0x9e37_79b9 + 12_345);
    let words = vocabulary(&mut random);
    let files = shape.files / shape.layers;
    let mut left = shape.bytes / shape.layers;
    let top = format!("usr/layer{number}");
    let mut entries = Layer::new().dir("usr").dir(&top);
    if number == 0 {
        // A program, so that the image can be run.
        let guest = fs::read(crate::guest::program())?;
        entries = entries.dir("bin").file("bin/guest", 0o755, guest);
    }
    for n in 0..files {
        if n % 40 == 0 {
            entries = entries.dir(&format!("{top}/d{:04}", n / 40));
        }
        let mean = left / (files - n);
        // Three of four are a tenth of the mean, the fourth has the rest.
        let size = if n + 1 == files {
            left
        } else if n % 4 == 3 {
            (mean * 37 / 10).min(left)
        } else {
            mean / 10
        };
        left -= size;
        let path = format!("{top}/d{:04}/file-{n:05}.dat", n / 40);
        entries.push(&Entry::new(b'0', path).data(text(&mut random, &words, size as usize)));
        if n % 16 == 0 {
            tar.write_all(&std::mem::take(&mut entries).unfinished())?;
        }
    }
    tar.write_all(&entries.finish())?;
    let diff_id = hex(tar.hash);
    let mut packed = tar.inner.finish()?;
    packed.flush()?;
    let (digest, size) = (hex(packed.hash), packed.size);
    let path = blobs.join(digest.trim_start_matches("sha256:"));
    fs::rename(&part, &path)?;
    Ok(LayerFile { path, digest, diff_id, size })
}

/// Marsaglia's xorshift64*: random enough for contents, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

fn vocabulary(random: &mut Random) -> Vec<Vec<u8>> {
    (0..1024)
        .map(|_| {
            let length = 4 + random.next() % 11;
            (0..length).map(|_| (random.next() >> 32) as u8).collect()
        })
        .collect()
}

fn text(random: &mut Random, words: &[Vec<u8>], size: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(size + 16);
    while text.len() < size {
        let draw = random.next() >> 16;
        if draw.is_multiple_of(13) {
            text.extend_from_slice(&draw.to_le_bytes()[..5]);
        } else {
            // Low numbers are more frequent, as words in a language.
            let (a, b) = ((draw >> 8) % 1024, (draw >> 24) % 1024);
            text.extend_from_slice(&words[(a * b / 1024) as usize]);
        }
    }
    text.truncate(size);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::digest;

    #[test]
    fn the_shape_is_kept_and_repeats() {
        let shape = Shape { layers: 2, files: 40, bytes: 900_000 };
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let one = write_layout(shape, first.path(), "big:1").unwrap();
        let two = write_layout(shape, second.path(), "big:1").unwrap();
        assert_eq!(one[1].digest, two[1].digest);
        let packed = fs::read(&one[1].path).unwrap();
        assert_eq!(digest(&packed), one[1].digest);
        let percent = packed.len() * 100 / 450_000;
        assert!((25..45).contains(&percent), "compressed to {percent} %");
        let mut files = 0;
        let mut bytes = 0;
        for entry in
            tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice())).entries().unwrap()
        {
            let entry = entry.unwrap();
            if entry.header().entry_type().is_file() {
                files += 1;
                bytes += entry.size();
            }
        }
        assert_eq!((files, bytes), (20, 450_000));
        let (manifest, parts) = blobs(first.path()).unwrap();
        assert_eq!(parts.len(), 3);
        assert!(manifest.media_type.ends_with("manifest.v1+json"));
    }
}
