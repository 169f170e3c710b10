//! Other tools read this program's layout, and it reads what they write into it.

use std::path::Path;
use std::process::{Command, Output};

use crate::fixture::{fixture, image, layer_tar, reference};

/// Runs a tool; `None`, with a message, if it is not installed.
fn tool(test: &str, name: &str, arguments: &[&str]) -> Option<Output> {
    match Command::new(name).args(arguments).output() {
        Ok(output) => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name} {arguments:?}: {complaint}");
            Some(output)
        }
        Err(error) => {
            eprintln!("SKIP {test}: {name}: {error}");
            None
        }
    }
}

fn layout(store: &store::Store) -> String {
    store.path().join("oci").display().to_string()
}

#[test]
fn skopeo_reads_and_writes() {
    let test = "skopeo_reads_and_writes";
    let fixture = fixture();
    let manifest = image(&fixture.store, "debian:stable", &[layer_tar("a", b"1")]);
    let ours = format!("oci:{}:docker.io/library/debian:stable", layout(&fixture.store));
    let Some(output) = tool(test, "skopeo", &["inspect", &ours]) else { return };
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["Digest"], manifest.digest.to_string());
    assert_eq!(shown["Labels"]["from"], "debian:stable");
    let away = fixture.dir.path().join("copy");
    let copy = format!("oci:{}:x", away.display());
    tool(test, "skopeo", &["copy", "--insecure-policy", &ours, &copy]);
    let theirs = format!("oci:{}:alpine:3", layout(&fixture.store));
    tool(test, "skopeo", &["copy", "--insecure-policy", &copy, &theirs]);
    let images = fixture.store.images();
    assert_eq!(images.find("alpine:3").unwrap().reference(), Some(reference("alpine:3")));
    assert_eq!(
        images.find("debian:stable").unwrap().digest(),
        &manifest.digest,
        "ours is still there"
    );
    images.tag(&reference("third"), &manifest).unwrap();
    tool(test, "skopeo", &["inspect", &theirs]);
    images.remove("alpine:3", false).unwrap();
    tool(test, "skopeo", &["inspect", &ours]);
    assert!(fixture.store.verify(&store::VerifyOptions::default()).unwrap().is_empty());
}

#[test]
fn umoci_reads_and_writes() {
    let test = "umoci_reads_and_writes";
    let fixture = fixture();
    image(&fixture.store, "debian:stable", &[layer_tar("a", b"1")]);
    let name = "docker.io/library/debian:stable";
    let layout = layout(&fixture.store);
    let Some(output) = tool(test, "umoci", &["ls", "--layout", &layout]) else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), name);
    // umoci splits a layout and a tag at the first colon, and takes tags without slashes.
    let tag = fixture.store.images().find("debian:stable").unwrap();
    fixture.store.images().tag(&reference("plain"), tag.descriptor()).unwrap();
    let bundle = fixture.dir.path().join("bundle");
    let from = format!("{layout}:{name}");
    if let Ok(output) =
        Command::new("umoci").args(["unpack", "--rootless", "--image", &from]).arg(&bundle).output()
        && output.status.success()
    {
        assert_eq!(std::fs::read(bundle.join("rootfs/a")).unwrap(), b"1");
    } else {
        eprintln!("SKIP {test} (unpack): this umoci refuses such a name");
    }
    tool(test, "umoci", &["new", "--image", &format!("{layout}:made")]);
    let made = fixture.store.images().find("made").unwrap();
    assert!(made.manifest().unwrap().layers.is_empty());
    assert_eq!(fixture.store.images().list().unwrap().len(), 3);
    // umoci's own collection keeps everything that the index names.
    tool(test, "umoci", &["gc", "--layout", &layout]);
    assert!(fixture.store.verify(&store::VerifyOptions::default()).unwrap().is_empty());
}

#[test]
fn podman_reads() {
    let test = "podman_reads";
    // Podman derives a name from the layout's path, so the path must be in lower case.
    let fixture = fixture();
    let path = std::env::temp_dir().join(format!("coracle-podman-{}", std::process::id()));
    let store = store::Store::open(&path, crate::fixture::options()).unwrap();
    image(&store, "debian:stable", &[layer_tar("a", b"1")]);
    let ours = format!("oci:{}:docker.io/library/debian:stable", layout(&store));
    let state = |name: &str| fixture.dir.path().join(name).display().to_string();
    let (root, run) = (state("podman-root"), state("podman-run"));
    let common = [
        "--root",
        &root,
        "--runroot",
        &run,
        "--storage-driver",
        "vfs",
        "--cgroup-manager",
        "cgroupfs",
    ];
    let mut pull = common.to_vec();
    pull.extend(["pull", "-q", &ours]);
    if !Path::new("/usr/bin/podman").exists() {
        eprintln!("SKIP {test}: podman is not installed");
        return;
    }
    let output = Command::new("podman").args(&pull).output().unwrap();
    if !output.status.success() && !rustix::process::geteuid().is_root() {
        eprintln!("SKIP {test}: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let id = store.images().find("debian:stable").unwrap().id().unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), id.hex());
}
