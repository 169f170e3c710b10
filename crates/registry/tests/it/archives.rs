//! Tests of archives and layouts, with skopeo, umoci and podman as the other side.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read, Write};
use std::path::Path;
use std::process::Command;

use oci::{Digest, Reference};
use registry::archive::{self, Export, Image as Found};
use registry::{BlobSink, BlobSource, Error, layout};
use testkit::image::{self, Built, Flavour, Image, Pack};
use testkit::layer::Layer;

use crate::help::{amd64, digest, have};

/// Blobs in memory.
#[derive(Debug, Default)]
struct Memory {
    blobs: BTreeMap<Digest, Vec<u8>>,
    /// Number of blobs that were put.
    puts: usize,
}

impl BlobSink for Memory {
    fn has(&self, digest: &Digest) -> bool {
        self.blobs.contains_key(digest)
    }

    fn put(
        &mut self,
        expected: Option<&Digest>,
        reader: &mut dyn Read,
    ) -> io::Result<(Digest, u64)> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        let found = Digest::of(&bytes);
        if expected.is_some_and(|expected| *expected != found) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "wrong digest"));
        }
        let size = bytes.len() as u64;
        self.blobs.insert(found.clone(), bytes);
        self.puts += 1;
        Ok((found, size))
    }
}

impl BlobSource for Memory {
    fn size(&self, digest: &Digest) -> io::Result<u64> {
        self.blobs.get(digest).map(|bytes| bytes.len() as u64).ok_or(io::ErrorKind::NotFound.into())
    }

    fn open(&self, digest: &Digest) -> io::Result<Box<dyn Read + Send>> {
        let bytes =
            self.blobs.get(digest).cloned().ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Box::new(Cursor::new(bytes)))
    }
}

fn tree(name: &str) -> Vec<u8> {
    Layer::new().dir("etc").file(&format!("etc/{name}"), 0o644, name.repeat(3000)).finish()
}

/// An image of two layers, one of which several images share.
fn built(top: &str, pack: Pack) -> Built {
    Image::new()
        .packed(tree("base"), pack)
        .packed(tree(top), pack)
        .cmd(&["/bin/sh"])
        .env("TOP", top)
        .build()
}

fn source(images: &[&Built]) -> Memory {
    let mut memory = Memory::default();
    for image in images {
        for blob in image.blobs().chain([&image.manifest]) {
            memory.blobs.insert(digest(&blob.digest), blob.bytes.clone());
        }
    }
    memory
}

fn export(image: &Built, names: &[&str]) -> Export {
    let bytes = image.manifest.bytes.clone();
    let manifest = oci::Manifest::parse(bytes, &image.manifest.media_type).unwrap();
    let references = names.iter().map(|name| Reference::parse(name).unwrap()).collect();
    Export { references, manifest }
}

fn names(image: &Found) -> Vec<String> {
    image.references.iter().map(Reference::familiar).collect()
}

fn read(archive: &[u8]) -> Result<(Vec<Found>, Memory), Error> {
    let mut memory = Memory::default();
    let found = archive::read(&mut &*archive, &mut memory, Some(&amd64()))?;
    Ok((found, memory))
}

/// Checks that every blob of an image is there, and that its plain layers match the configuration.
fn whole(image: &Found, memory: &Memory) {
    assert!(memory.has(&image.descriptor.digest));
    assert_eq!(memory.blobs[&image.manifest.config.digest], image.config.raw());
    assert_eq!(image.manifest.layers.len(), image.config.diff_ids().len());
    for layer in &image.manifest.layers {
        assert_eq!(memory.size(&layer.digest).unwrap(), layer.size);
    }
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn reads_its_own_output() {
    let (one, two) = (built("one", Pack::Gzip), built("two", Pack::Zstd));
    let memory = source(&[&one, &two]);
    let exports =
        [export(&one, &["a/one:1", "one"]), export(&two, &["q.io/two:2"]), export(&two, &[])];
    let mut docker = Vec::new();
    archive::write_docker(&exports, &memory, &mut docker).unwrap();
    let (found, taken) = read(&docker).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(names(&found[0]), ["a/one:1", "one:latest"]);
    assert!(names(&found[2]).is_empty());
    for (image, built) in found.iter().zip([&one, &two, &two]) {
        whole(image, &taken);
        assert_eq!(image.config.raw(), built.config.bytes);
        let layers: Vec<String> =
            image.manifest.layers.iter().map(|l| l.digest.to_string()).collect();
        assert_eq!(layers, built.diff_ids, "layers are plain");
    }
    let mut layout = Vec::new();
    archive::write_oci(&exports, &memory, &mut layout).unwrap();
    let (found, taken) = read(&layout).unwrap();
    assert_eq!(found.len(), 2, "one image under several names");
    assert_eq!(names(&found[0]), ["a/one:1", "one:latest"]);
    for (image, built) in found.iter().zip([&one, &two]) {
        whole(image, &taken);
        assert_eq!(image.manifest.raw(), built.manifest.bytes);
    }
    let mut again = Vec::new();
    archive::write_oci(&exports, &memory, &mut again).unwrap();
    assert_eq!(layout, again, "equal images give equal bytes");
}

#[test]
fn the_stream_around_may_be_compressed() {
    let one = built("one", Pack::Gzip);
    let mut plain = Vec::new();
    archive::write_docker(&[export(&one, &["one"])], &source(&[&one]), &mut plain).unwrap();
    for pack in [Pack::Gzip, Pack::GzipMembers, Pack::Zstd] {
        let (found, taken) = read(&image::compress(&plain, pack)).unwrap();
        whole(&found[0], &taken);
    }
    let error = read(b"\xfd7zXZ\0 and so on").unwrap_err();
    assert!(error.to_string().contains("xz"), "{error}");
}

#[test]
fn docker_archive_formats() {
    // Before 25: layers by path, here one of them a link to another, as Docker 1.10 wrote it.
    let one = Image::new().packed(tree("base"), Pack::Plain).build();
    let config = format!("{}.json", one.config.hex());
    let list = format!(
        r#"[{{"Config":"{config}","RepoTags":null,"Layers":["a/layer.tar"]}},
            {{"Config":"{config}","RepoTags":["x:1"],"Layers":["b/layer.tar"]}}]"#
    );
    let archive = Layer::new()
        .dir("a")
        .file("a/VERSION", 0o644, "1.0")
        .file("a/json", 0o644, "{}")
        .file("a/layer.tar", 0o644, tree("base"))
        .symlink("b/layer.tar", "../a/layer.tar")
        .file(&config, 0o644, one.config.bytes.clone())
        .file("manifest.json", 0o644, list)
        .file("repositories", 0o644, "{}")
        .finish();
    let (found, taken) = read(&archive).unwrap();
    assert_eq!(found.len(), 2);
    whole(&found[1], &taken);
    assert_eq!(names(&found[1]), ["x:1"]);
    // From 25 on: a layout, and beside it a manifest.json whose paths are the layout's blobs.
    let image = built("one", Pack::Plain);
    let mut archive = Layer::new();
    for blob in image.blobs().chain([&image.manifest]) {
        archive = archive.file(&format!("blobs/sha256/{}", blob.hex()), 0o644, blob.bytes.clone());
    }
    let blob = |digest: &str| format!("\"blobs/sha256/{}\"", digest.trim_start_matches("sha256:"));
    let layers: Vec<String> = image.diff_ids.iter().map(|id| blob(id)).collect();
    let mut descriptor = image.manifest.descriptor();
    descriptor["annotations"] = serde_json::json!({
        "io.containerd.image.name": "docker.io/library/one:latest",
        "org.opencontainers.image.ref.name": "latest",
    });
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [descriptor] });
    let list = format!(
        r#"[{{"Config":{},"RepoTags":["one:latest","other:2"],"Layers":[{}]}}]"#,
        blob(&image.config.digest),
        layers.join(",")
    );
    let archive = archive
        .file("index.json", 0o644, index.to_string())
        .file("manifest.json", 0o644, list)
        .file("oci-layout", 0o644, r#"{"imageLayoutVersion":"1.0.0"}"#)
        .finish();
    let (found, taken) = read(&archive).unwrap();
    assert_eq!(names(&found[0]), ["one:latest", "other:2"]);
    whole(&found[0], &taken);
    // Existing blobs are not stored again.
    let mut known = source(&[&image]);
    archive::read(&mut archive.as_slice(), &mut known, None).unwrap();
    assert!(known.puts <= 2, "{} blobs put", known.puts);
}

#[test]
fn several_platforms() {
    let amd = Image::new().packed(tree("amd"), Pack::Gzip).build();
    let arm = Image::new().packed(tree("arm"), Pack::Gzip).platform("arm64", None).build();
    let index = image::index(Flavour::Oci, &[&arm, &amd]);
    let dir = tempfile::tempdir().unwrap();
    amd.write_layout(dir.path(), "x:1").unwrap();
    let blobs = dir.path().join("blobs/sha256");
    let write = |blob: &image::Blob| std::fs::write(blobs.join(blob.hex()), &blob.bytes).unwrap();
    write(&index);
    let mut entry = index.descriptor();
    entry["annotations"] = serde_json::json!({ "org.opencontainers.image.ref.name": "x:1" });
    let top = serde_json::json!({ "schemaVersion": 2, "manifests": [entry] });
    std::fs::write(dir.path().join("index.json"), top.to_string()).unwrap();
    // Only the manifest for amd64 is there: other platforms are refused with a list of the
    // available ones.
    let mut memory = Memory::default();
    let found = layout::read(dir.path(), Some("x:1"), &mut memory, Some(&amd64())).unwrap();
    assert_eq!(found[0].descriptor.digest, digest(&amd.manifest.digest));
    assert!(memory.has(&digest(&index.digest)));
    let wish = "linux/arm64".parse().unwrap();
    let error = layout::read(dir.path(), None, &mut memory, Some(&wish)).unwrap_err();
    assert!(error.to_string().contains("linux/amd64"), "{error}");
    assert!(layout::read(dir.path(), Some("y"), &mut memory, None).is_err());
}

#[test]
fn broken_archives() {
    let one = built("one", Pack::Gzip);
    let memory = source(&[&one]);
    let mut good = Vec::new();
    archive::write_oci(&[export(&one, &["one"])], &memory, &mut good).unwrap();
    for length in [0, 1, 600, good.len() / 2, good.len() - 2048] {
        assert!(read(&good[..length]).is_err(), "{length}");
    }
    // Any flipped byte is an error, unless it was in padding and changed nothing.
    for at in (0..good.len()).step_by(97) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        if let Ok((found, taken)) = read(&bad) {
            whole(&found[0], &taken);
            assert_eq!(found[0].manifest.raw(), one.manifest.bytes);
        }
    }
    let root = Layer::new().dir("usr").file("usr/x", 0o644, "x").finish();
    let error = read(&root).unwrap_err();
    assert!(error.hint().unwrap().contains("coracle import"));
    let config = format!("{}.json", one.config.hex());
    let list = |layers: &str| {
        let list = format!(r#"[{{"Config":"{config}","RepoTags":[],"Layers":[{layers}]}}]"#);
        Layer::new()
            .file(&config, 0o644, one.config.bytes.clone())
            .file("l/layer.tar", 0o644, tree("base"))
            .file("m/layer.tar", 0o644, tree("else"))
            .symlink("loop", "loop")
            .file("manifest.json", 0o644, list)
            .finish()
    };
    let error = |layers| read(&list(layers)).unwrap_err().to_string();
    assert!(error(r#""l/layer.tar""#).contains("1 layers"));
    assert!(error(r#""l/layer.tar","loop""#).contains("missing"));
    assert!(error(r#""l/layer.tar","../../etc/passwd""#).contains("missing"));
    assert!(error(r#""l/layer.tar","m/layer.tar""#).contains("damaged"));
    // A layer whose uncompressed digest differs from the configuration's is not written to an
    // archive.
    let mut wrong = source(&[&one]);
    let layer = digest(&one.layers[0].digest);
    wrong.blobs.insert(layer, image::compress(&tree("else"), Pack::Gzip));
    let result = archive::write_docker(&[export(&one, &[])], &wrong, &mut io::sink());
    assert!(matches!(result, Err(Error::WrongDigest { .. })), "{result:?}");
    let missing = archive::write_oci(&[export(&one, &[])], &Memory::default(), &mut io::sink());
    assert!(matches!(missing, Err(Error::Blob { .. })));
}

#[test]
fn skopeo_reads_and_writes() {
    if !have("skopeo", "skopeo_reads_and_writes") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&dir.path().join(name)).to_owned();
    for image in [
        built("one", Pack::Gzip),
        Image::new()
            .docker()
            .packed(tree("base"), Pack::Gzip)
            .packed(tree("base"), Pack::Gzip)
            .build(),
    ] {
        let memory = source(&[&image]);
        let exports = [export(&image, &["a.io/x:1"])];
        let mut file = std::fs::File::create(at("docker.tar")).unwrap();
        archive::write_docker(&exports, &memory, &mut file).unwrap();
        let mut file = std::fs::File::create(at("oci.tar")).unwrap();
        archive::write_oci(&exports, &memory, &mut file).unwrap();
        let _ = std::fs::remove_dir_all(at("layout"));
        layout::write(Path::new(&at("layout")), &exports, &memory).unwrap();
        layout::write(Path::new(&at("layout")), &exports, &memory).unwrap();
        for (n, from) in [
            format!("docker-archive:{}", at("docker.tar")),
            format!("docker-archive:{}:a.io/x:1", at("docker.tar")),
            format!("oci-archive:{}:a.io/x:1", at("oci.tar")),
            format!("oci:{}:a.io/x:1", at("layout")),
        ]
        .iter()
        .enumerate()
        {
            let config = run("skopeo", &["inspect", "--config", "--raw", from]);
            assert_eq!(config.as_bytes(), image.config.bytes, "{from}");
            // Through skopeo into each format and back.
            for (kind, suffix) in [("docker-archive", ":b.io/y:2"), ("oci-archive", ":b.io/y:2")] {
                let to = at(&format!("{n}-{kind}.tar"));
                let _ = std::fs::remove_file(&to);
                run("skopeo", &["copy", "-q", from, &format!("{kind}:{to}{suffix}")]);
                let (found, taken) = read(&std::fs::read(&to).unwrap()).unwrap();
                whole(&found[0], &taken);
                assert_eq!(names(&found[0]), ["b.io/y:2"]);
                assert_eq!(found[0].config.diff_ids().len(), 2);
            }
        }
    }
    let to = at("skopeo-layout");
    run(
        "skopeo",
        &["copy", "-q", &format!("oci:{}:a.io/x:1", at("layout")), &format!("oci:{to}:tag")],
    );
    let mut memory = Memory::default();
    let found = layout::read(Path::new(&to), Some("tag"), &mut memory, Some(&amd64())).unwrap();
    whole(&found[0], &memory);
    assert_eq!((found[0].names[0].as_str(), found[0].references.len()), ("tag", 0));
}

#[test]
fn umoci_unpacks_our_layout() {
    if !have("umoci", "umoci_unpacks_our_layout") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = built("one", Pack::Gzip);
    let layout = dir.path().join("layout");
    layout::write(&layout, &[export(&image, &["x:1"])], &source(&[&image])).unwrap();
    let bundle = dir.path().join("bundle");
    // umoci accepts no slashes in tags, so it gets the name under which umoci itself would list it.
    let tag = run("umoci", &["list", "--layout", text(&layout)]);
    assert_eq!(tag.trim(), "docker.io/library/x:1");
    let image_at = format!("{}:{}", text(&layout), tag.trim());
    run("umoci", &["unpack", "--rootless", "--image", &image_at, text(&bundle)]);
    assert!(bundle.join("rootfs/etc/one").exists());
}

#[test]
fn podman_loads_and_saves() {
    const TEST: &str = "podman_loads_and_saves";
    if !have("podman", TEST) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| text(&dir.path().join(name)).to_owned();
    let (root, runroot) = (at("root"), at("run"));
    let podman = |args: &[&str]| {
        Command::new("podman")
            .args(["--root", &root, "--runroot", &runroot, "--storage-driver", "vfs"])
            .args(args)
            .output()
            .unwrap()
    };
    if !podman(&["images"]).status.success() {
        testkit::skip::note(TEST, "podman does not work on this host");
        return;
    }
    let (one, two) = (built("one", Pack::Gzip), built("two", Pack::Zstd));
    let memory = source(&[&one, &two]);
    let exports = [export(&one, &["a.io/one:1"]), export(&two, &["a.io/two:2"])];
    let mut file = std::fs::File::create(at("docker.tar")).unwrap();
    archive::write_docker(&exports, &memory, &mut file).unwrap();
    let output = podman(&["load", "-q", "-i", &at("docker.tar")]);
    assert!(output.status.success(), "{output:?}");
    let mut file = std::fs::File::create(at("oci.tar")).unwrap();
    archive::write_oci(&[export(&one, &["b.io/three:3"])], &memory, &mut file).unwrap();
    let output = podman(&["load", "-q", "-i", &at("oci.tar")]);
    assert!(output.status.success(), "{output:?}");
    let listed = podman(&["images", "--format", "{{.Repository}}:{{.Tag}}"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    for name in ["a.io/one:1", "a.io/two:2", "b.io/three:3"] {
        assert!(listed.contains(name), "{listed}");
    }
    for format in ["docker-archive", "oci-archive"] {
        let to = at(format);
        let output = podman(&["save", "-q", "--format", format, "-o", &to, "a.io/two:2"]);
        assert!(output.status.success(), "{output:?}");
        let (found, taken) = read(&std::fs::read(&to).unwrap()).unwrap();
        whole(&found[0], &taken);
        assert_eq!(names(&found[0]), ["a.io/two:2"]);
        assert_eq!(found[0].config.env(), ["TOP=two"]);
    }
}

#[test]
fn pipes_are_enough() {
    let one = built("one", Pack::Gzip);
    let mut bytes = Vec::new();
    archive::write_docker(&[export(&one, &["one"])], &source(&[&one]), &mut bytes).unwrap();
    let (mut reader, mut writer) = io::pipe().unwrap();
    let writing = std::thread::spawn(move || {
        // Small pieces, and padding after the end as tar's record size gives it.
        bytes.chunks(1000).try_for_each(|part| writer.write_all(part))?;
        writer.write_all(&[0; 10_000])
    });
    let mut memory = Memory::default();
    let found = archive::read(&mut reader, &mut memory, None).unwrap();
    whole(&found[0], &memory);
    writing.join().unwrap().unwrap();
}

#[test]
fn names_do_not_fill_the_memory() {
    // A few kilobytes, compressed: links with names of half a megabyte.
    let long = "x".repeat(500_000);
    let mut layer = Layer::new();
    for at in 0..300 {
        layer = layer.symlink(&format!("{at}{long}"), &long);
    }
    let error = read(&layer.finish()).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

/// One image in a directory, its blobs beside the manifest, as `skopeo copy dir:DIR` writes it.
#[test]
fn plain_directories_are_read() {
    let image = built("top", Pack::Gzip);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("version"), "Directory Transport Version: 1.1\n").unwrap();
    std::fs::write(dir.path().join("manifest.json"), &image.manifest.bytes).unwrap();
    for blob in image.blobs() {
        std::fs::write(dir.path().join(blob.hex()), &blob.bytes).unwrap();
    }
    let mut memory = Memory::default();
    let found = layout::read(dir.path(), None, &mut memory, Some(&amd64())).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].references.is_empty());
    assert_eq!(found[0].descriptor.digest.to_string(), image.manifest.digest);
    whole(&found[0], &memory);
    std::fs::write(dir.path().join(image.layers[0].hex()), "other").unwrap();
    let error = layout::read(dir.path(), None, &mut Memory::default(), None).unwrap_err();
    assert!(matches!(error, Error::WrongDigest { .. } | Error::Blob { .. }), "{error}");
}

#[test]
fn what_cannot_be_decompressed_is_named() {
    let error = read(b"\xfd7zXZ\0rest of it").unwrap_err();
    assert_eq!(error.to_string(), "the archive is compressed by xz, which is not supported");
    assert!(error.hint().unwrap().contains("xz -dc"));
}
