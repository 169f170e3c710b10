//! Tests of invalid manifests, configurations and archives.

use std::fs;

use serde_json::json;
use testkit::image::{Blob, Image};
use testkit::layer::{Entry, Layer};
use testkit::skip::Outcome;

use crate::hostile::{Answer, Case, Place};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("broken_documents", broken_documents),
    ("schema_one", schema_one),
    ("wrong_sizes", wrong_sizes),
    ("archive_with_dot_dot", archive_with_dot_dot),
    ("archive_with_links", archive_with_links),
    ("links_without_target", links_without_target),
    ("archive_of_garbage", archive_of_garbage),
    ("layout_with_wrong_content", layout_with_wrong_content),
    ("names_that_are_paths", names_that_are_paths),
    ("odd_configurations", odd_configurations),
];

fn good() -> testkit::image::Built {
    Image::new().layer(Layer::new().file("x", 0o644, "x")).build()
}

/// Loads an OCI layout whose manifest is `manifest`.
#[track_caller]
fn load_manifest(place: &Place, name: &str, manifest: &Blob, answer: Answer) {
    let dir = place.person.dir(&format!("layout-{name}"));
    let mut image = good();
    image.manifest = manifest.clone();
    image.write_layout(&dir, "localhost/hostile:1").expect("a layout");
    let done = place.person.run(&["load", "-i", &dir.display().to_string()]);
    place.judge(name, &done, answer);
}

fn broken_documents(place: &Place) -> Outcome {
    let kind = "application/vnd.oci.image.manifest.v1+json";
    for (n, text) in [
        "", "{", "[]", "null", "\u{0}\u{1}", "{\"schemaVersion\":2}",
        "{\"schemaVersion\":2,\"config\":{},\"layers\":[]}",
        "{\"schemaVersion\":2,\"config\":{\"mediaType\":\"x\",\"digest\":\"sha256:zz\",\"size\":1},\"layers\":[]}",
        "{\"schemaVersion\":2,\"config\":{\"mediaType\":\"x\",\"digest\":\"../../../etc/passwd\",\"size\":1},\"layers\":[]}",
        "{\"schemaVersion\":2,\"config\":{\"mediaType\":\"x\",\"digest\":\"sha256:../../../../../../etc/passwd\",\"size\":-1},\"layers\":[]}",
    ]
    .iter()
    .enumerate()
    {
        let manifest = Blob::new(kind, text.as_bytes().to_vec());
        load_manifest(place, &format!("broken{n}"), &manifest, Answer::Refused);
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    load_manifest(place, "deep", &Blob::new(kind, deep.into_bytes()), Answer::Refused);
    place.store_works();
    Ok(())
}

/// Docker's retired format: refused, by name.
fn schema_one(place: &Place) -> Outcome {
    let kind = "application/vnd.docker.distribution.manifest.v1+prettyjws";
    let text =
        json!({ "schemaVersion": 1, "name": "x", "tag": "1", "fsLayers": [], "history": [] });
    load_manifest(
        place,
        "schema1",
        &Blob::new(kind, text.to_string().into_bytes()),
        Answer::Refused,
    );
    Ok(())
}

fn wrong_sizes(place: &Place) -> Outcome {
    let image = good();
    let layer = &image.layers[0];
    let right = format!("\"size\":{}", layer.bytes.len());
    for (n, size) in
        [0, layer.bytes.len() - 1, layer.bytes.len() + 1, usize::MAX >> 1].into_iter().enumerate()
    {
        let text = String::from_utf8_lossy(&image.manifest.bytes)
            .replace(&right, &format!("\"size\":{size}"));
        let manifest = Blob::new(&image.manifest.media_type, text.into_bytes());
        load_manifest(place, &format!("size{n}"), &manifest, Answer::Refused);
    }
    Ok(())
}

#[track_caller]
fn load_bytes(place: &Place, name: &str, bytes: &[u8], answer: Answer) {
    let file = place.person.home.join(format!("{name}.tar"));
    fs::write(&file, bytes).expect("an archive");
    place.person.give(&file);
    let done = place.person.run(&["load", "-i", &file.display().to_string()]);
    place.judge(name, &done, answer);
    let import = place.person.run(&["import", &file.display().to_string(), "localhost/imported:1"]);
    place.judge(name, &import, Answer::Either);
}

fn archive_with_dot_dot(place: &Place) -> Outcome {
    let manifest = json!([{
        "Config": "../../../../../../etc/passwd",
        "RepoTags": ["hostile:1"],
        "Layers": ["../../../../../../etc/passwd", "/etc/passwd"],
    }]);
    let tar = Layer::new()
        .file("manifest.json", 0o644, manifest.to_string())
        .entry(&Entry::new(b'0', "../../../../../../../../tmp/coracle-canary").data("x"))
        .finish();
    load_bytes(place, "dotdot", &tar, Answer::Refused);
    Ok(())
}

fn archive_with_links(place: &Place) -> Outcome {
    let bird = place.canary.join("bird").display().to_string();
    let manifest =
        json!([{ "Config": "config.json", "RepoTags": ["hostile:2"], "Layers": ["layer.tar"] }]);
    let tar = Layer::new()
        .symlink("config.json", &bird)
        .symlink("layer.tar", "/etc/passwd")
        .symlink("manifest-link", "manifest.json")
        .file("manifest.json", 0o644, manifest.to_string())
        .finish();
    load_bytes(place, "links", &tar, Answer::Refused);
    let tar = Layer::new()
        .symlink("a", "b")
        .symlink("b", "a")
        .file(
            "manifest.json",
            0o644,
            json!([{ "Config": "a", "RepoTags": ["hostile:3"], "Layers": ["b"] }]).to_string(),
        )
        .finish();
    load_bytes(place, "loop", &tar, Answer::Refused);
    Ok(())
}

/// A hard link to a file that no layer has: refused when the image comes, and not kept.
fn links_without_target(place: &Place) -> Outcome {
    let layer = Layer::new().file("x", 0o644, "x").hardlink("link", "no/such/file");
    let root = place.person.home.join("no-target-root.tar");
    fs::write(&root, layer.clone().finish()).expect("an archive");
    let image = Image::new().layer(layer).build();
    let layout = place.person.dir("layout-no-target");
    image.write_layout(&layout, "localhost/no-target:1").expect("a layout");
    place.person.give(&root);
    let (root, layout) = (root.display().to_string(), layout.display().to_string());
    for words in [["import", "--", &root, "localhost/no-target:2"], ["load", "-q", "-i", &layout]] {
        let done = place.person.run(&words);
        place.judge("no-target", &done, Answer::Refused);
        assert!(done.err().contains("is a hard link to \"no/such/file\""), "{done:?}");
    }
    place.pull("no-target", &image, Answer::Refused);
    let images = place.person.run(&["images", "-q", "--filter", "reference=*/no-target*"]);
    assert_eq!(images.ok().out(), "");
    place.store_works();
    Ok(())
}

fn archive_of_garbage(place: &Place) -> Outcome {
    let noise: Vec<u8> =
        (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 16) as u8).collect();
    load_bytes(place, "noise", &noise, Answer::Refused);
    load_bytes(place, "empty", b"", Answer::Refused);
    load_bytes(place, "zeros", &[0; 10_240], Answer::Refused);
    let mut gzip = testkit::image::compress(&noise, testkit::image::Pack::Gzip);
    gzip.truncate(gzip.len() / 2);
    load_bytes(place, "half", &gzip, Answer::Refused);
    Ok(())
}

fn layout_with_wrong_content(place: &Place) -> Outcome {
    // Unique content: a layer that is already unpacked would not be read again.
    let layer = Layer::new().file("lying", 0o644, place.person.user.name.as_str());
    let image = Image::new().layer(layer).build();
    for (n, damage) in ["layer", "config", "manifest", "missing", "link"].into_iter().enumerate() {
        let dir = place.person.dir(&format!("lying{n}"));
        image.write_layout(&dir, "localhost/lying:1").expect("a layout");
        let blob = match damage {
            "config" => &image.config,
            "manifest" => &image.manifest,
            _ => &image.layers[0],
        };
        let file = dir.join("blobs/sha256").join(blob.hex());
        match damage {
            "missing" => fs::remove_file(&file).expect("removing"),
            "link" => {
                fs::remove_file(&file).expect("removing");
                std::os::unix::fs::symlink("/etc/passwd", &file).expect("a link");
            }
            _ => {
                let mut bytes = fs::read(&file).expect("the blob");
                bytes[0] ^= 0x20;
                fs::write(&file, bytes).expect("the blob");
            }
        }
        let done = place.person.run(&["load", "-i", &dir.display().to_string()]);
        place.judge(damage, &done, Answer::Refused);
    }
    place.store_works();
    place.person.run(&["verify"]).ok();
    Ok(())
}

fn names_that_are_paths(place: &Place) -> Outcome {
    for name in [
        "../../../tmp/coracle-canary:1",
        "/etc/coracle-canary",
        "a/../b:1",
        "UPPER:1",
        "x:..",
        "x@sha256:../../x",
        "",
    ] {
        let dir = place.person.dir("named");
        good().write_layout(&dir, name).expect("a layout");
        let done = place.person.run(&["load", "-i", &dir.display().to_string()]);
        place.judge(name, &done, Answer::Either);
        let done = place.person.run(&["pull", "--tls-verify=false", name]);
        place.judge(name, &done, Answer::Refused);
        let done = place.person.run(&["tag", "hello", name]);
        place.judge(name, &done, Answer::Either);
    }
    Ok(())
}

/// Fields of the wrong type or with impossible values.
fn odd_configurations(place: &Place) -> Outcome {
    for (n, (key, value)) in [
        ("Env", json!(["NO_EQUALS", "=x", "A=\u{0}b"])),
        ("Cmd", json!("a string")),
        ("Entrypoint", json!([""])),
        ("User", json!("../../etc/passwd")),
        ("User", json!("alice:nogroup:more")),
        ("WorkingDir", json!("../../../../../../tmp/coracle-canary")),
        ("WorkingDir", json!("relative")),
        ("Volumes", json!({ "../../../../../../../../tmp/coracle-canary": {} })),
        ("Volumes", json!({ "/proc": {}, "/": {} })),
        ("StopSignal", json!("SIGNOTHING")),
        ("Labels", json!({ "a": 1 })),
        ("ExposedPorts", json!({ "not-a-port": {} })),
    ]
    .into_iter()
    .enumerate()
    {
        let image = testkit::guest::image().config(key, value).build();
        let (done, name) = place.pull(&format!("config{n}"), &image, Answer::Either);
        if done.code() == 0 {
            let run = place.person.run(&["run", "--rm", &name]);
            place.judge(&format!("config {key} {n}"), &run, Answer::Either);
        }
    }
    Ok(())
}
