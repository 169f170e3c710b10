//! Measures `ps` with 10,000 containers and `images` with 1,000 images.

use std::fs;
use std::path::Path;

use serde_json::json;
use testkit::image::{Blob, Image};
use testkit::layer::Layer;

use super::{Bench, Line, milliseconds};
use xtask::shell::Outcome;

const CONTAINERS: usize = 10_000;
const IMAGES: usize = 1_000;

pub(crate) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    images(bench)?;
    containers(bench)?;
    let coracle = bench.coracle.display().to_string();
    // Lists look at several containers at once.
    let before = super::start::unpinned();
    let words = |list: &[&str]| -> Vec<String> {
        let all = before.iter().map(String::as_str).chain([coracle.as_str()]);
        all.chain(list.iter().copied()).map(str::to_owned).collect()
    };
    let times = bench.medians(20, &[words(&["ps", "-a"]), words(&["ps"]), words(&["images"])])?;
    let names = ["`ps -a`, 10,000 containers", "`ps`, 10,000 containers", "`images`, 1,000 images"];
    let lines = names.iter().zip(times).map(|(name, time)| Line {
        what: (*name).to_owned(),
        against: String::new(),
        ours: milliseconds(time),
        theirs: String::new(),
        value: time * 1000.0,
        aim: 100.0,
        unit: "ms",
    });
    Ok(lines.collect())
}

/// Loads a layout of a thousand images that share a layer.
fn images(bench: &Bench) -> Outcome {
    let dir = bench.scratch.path().join("thousand");
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(|error| error.to_string())?;
    let put = |blob: &Blob| {
        fs::write(blobs.join(blob.hex()), &blob.bytes).map_err(|error| error.to_string())
    };
    let mut manifests = Vec::new();
    for n in 0..IMAGES {
        let layer = Layer::new().file("shared", 0o644, "x");
        let built = Image::new().layer(layer).env("NUMBER", &n.to_string()).build();
        for blob in built.blobs().chain([&built.manifest]) {
            put(blob)?;
        }
        let mut descriptor = built.manifest.descriptor();
        let name = format!("localhost/many/image-{n}:latest");
        descriptor["annotations"] =
            json!({ "org.opencontainers.image.ref.name": name, "io.containerd.image.name": name });
        manifests.push(descriptor);
    }
    let index = json!({ "schemaVersion": 2, "manifests": manifests });
    fs::write(dir.join("index.json"), index.to_string()).map_err(|error| error.to_string())?;
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
        .map_err(|e| e.to_string())?;
    bench.coracle(&["load", "-q", "-i", &dir.display().to_string()]).map(drop)
}

/// Makes one container and copies its directory under other ids, which gives the same files as
/// making them one by one.
fn containers(bench: &Bench) -> Outcome {
    let id = bench.coracle(&["create", "localhost/many/image-0:latest", "/x"])?.trim().to_owned();
    let all = bench.home.join(".local/share/coracle/containers");
    let first = all.join(&id);
    for n in 0..CONTAINERS - 1 {
        let other = format!("{n:08x}{}", &id[8..]);
        copy(&first, &all.join(&other), &id, &other, bench)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, id: &str, other: &str, bench: &Bench) -> Outcome {
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    let own = |path: &Path| {
        std::os::unix::fs::chown(path, Some(bench.user.uid), Some(bench.user.gid)).map_err(failed)
    };
    fs::create_dir(to).map_err(failed)?;
    own(to)?;
    for entry in fs::read_dir(from).map_err(failed)?.flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fs::create_dir(&target).map_err(failed)?;
        } else {
            let text = fs::read(&path).map_err(failed)?;
            let text = String::from_utf8_lossy(&text).replace(id, other);
            fs::write(&target, text).map_err(failed)?;
        }
        own(&target)?;
    }
    Ok(())
}
