use oci::Digest;
use store::{BeginTree, Durability, Options, Store};

use crate::fixture::{fixture, image, layer_tar, names, options, syncs_at_once, unpack};

#[test]
fn is_built_once() {
    let fixture = fixture();
    let digest = Digest::of(b"layer");
    assert!(fixture.store.layers().get(&digest).unwrap().is_none());
    unpack(&fixture.store, &digest, &[("a", b"1")]);
    let cached = fixture.store.layers().get(&digest).unwrap().unwrap();
    assert_eq!(std::fs::read(cached.tree().join("a")).unwrap(), b"1");
    assert_eq!(cached.meta::<serde_json::Value>().unwrap()["files"], 1);
    assert!(matches!(fixture.store.layers().begin(&digest).unwrap(), BeginTree::Have(_)));
    assert!(fixture.store.trees().get(&digest).unwrap().is_none(), "the caches are apart");
    assert!(names(&fixture.store.path().join("tmp/build")).is_empty());
}

#[test]
fn an_uncommitted_tree_is_removed() {
    let fixture = fixture();
    let digest = Digest::of(b"layer");
    for abort in [true, false] {
        let BeginTree::Build(staging) = fixture.store.layers().begin(&digest).unwrap() else {
            panic!("it cannot be here")
        };
        std::fs::create_dir(staging.tree().join("d")).unwrap();
        let dir = staging.dir();
        if abort {
            staging.abort().unwrap();
        } else {
            drop(staging);
        }
        assert!(!dir.exists());
        assert!(!fixture.store.layers().contains(&digest).unwrap());
    }
}

/// The metadata of an unsynced entry names the boot in which it was written.
#[test]
fn another_boot_s_entry_counts_only_when_synced() {
    let fixture = fixture();
    if syncs_at_once(&fixture, "another_boot_s_entry_counts_only_when_synced") {
        return;
    }
    let digest = Digest::of(b"layer");
    unpack(&fixture.store, &digest, &[("a", b"1")]);
    let path = fixture.store.layers().get(&digest).unwrap().unwrap().path().join("layer.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut meta: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(meta["boot"].is_string());
    meta["boot"] = "an earlier one".into();
    std::fs::write(&path, meta.to_string()).unwrap();
    assert!(fixture.store.layers().get(&digest).unwrap().is_none());
    unpack(&fixture.store, &digest, &[("a", b"2")]);
    let cached = fixture.store.layers().get(&digest).unwrap().unwrap();
    assert_eq!(std::fs::read(cached.tree().join("a")).unwrap(), b"2", "it was built again");
    fixture.store.sync_added().unwrap();
    assert!(!std::fs::read_to_string(&path).unwrap().contains("boot"));
    std::fs::write(&path, "").unwrap();
    assert!(
        fixture.store.layers().get(&digest).unwrap().is_none(),
        "metadata lost to a power failure"
    );
}

#[test]
fn naming_an_image_syncs_its_layers() {
    let fixture = fixture();
    if syncs_at_once(&fixture, "naming_an_image_syncs_its_layers") {
        return;
    }
    let layers = [layer_tar("a", b"1")];
    for (durability, settled) in
        [(Durability::Full, true), (Durability::Deferred, true), (Durability::Relaxed, false)]
    {
        let path = fixture.dir.path().join(format!("{durability:?}"));
        let store = Store::open(&path, Options { durability, ..options() }).unwrap();
        let manifest = image(&store, "debian", &layers);
        // The layers of this image come in after its name; a second name syncs them.
        store.images().tag(&crate::fixture::reference("again"), &manifest).unwrap();
        let cached = store.layers().get(&Digest::of(&layers[0])).unwrap().unwrap();
        let text = std::fs::read_to_string(cached.path().join("layer.json")).unwrap();
        assert_eq!(!text.contains("boot"), settled, "{durability:?}");
    }
}

/// A killed process leaves entries that it has made without waiting for the disk.
#[test]
fn entries_of_another_process_are_synced_with_their_user() {
    let fixture = fixture();
    if syncs_at_once(&fixture, "entries_of_another_process_are_synced_with_their_user") {
        return;
    }
    let digest = Digest::of(b"layer");
    unpack(&fixture.store, &digest, &[("a", b"1")]);
    let other = fixture.again();
    let boot = || {
        let path = other.layers().get(&digest).unwrap().unwrap().path().join("layer.json");
        std::fs::read_to_string(path).unwrap().contains("boot")
    };
    let container = other.containers().create(None, |id, _| id.to_owned()).unwrap();
    assert!(boot(), "making a container waits for what its own process has made alone");
    container.sync().unwrap();
    assert!(!boot());
    assert!(container.join("synced").exists());
}

/// A power failure during a pull damages nothing that counts.
#[test]
fn a_pull_that_a_power_failure_ended_is_not_reported_as_damage() {
    let fixture = fixture();
    if syncs_at_once(&fixture, "a_pull_that_a_power_failure_ended_is_not_reported_as_damage") {
        return;
    }
    let digest = Digest::of(b"layer");
    unpack(&fixture.store, &digest, &[("a", b"1")]);
    let place = fixture.store.layers().get(&digest).unwrap().unwrap().path().to_owned();
    let meta = std::fs::read_to_string(place.join("layer.json")).unwrap();
    let boot: serde_json::Value = serde_json::from_str(&meta).unwrap();
    let boot = boot["boot"].as_str().unwrap();
    std::fs::write(place.join("layer.json"), meta.replace(boot, "an earlier one")).unwrap();
    let blob = fixture.store.blobs().put_bytes(b"content").unwrap().0;
    assert!(fixture.store.blobs().is_whole(&blob).unwrap());
    let path = fixture.store.path().join("oci/blobs/sha256").join(blob.hex());
    std::fs::write(path, "").unwrap();
    assert!(!fixture.store.blobs().is_whole(&blob).unwrap());
    let mut options = store::VerifyOptions::default();
    assert!(fixture.store.verify(&options).unwrap().is_empty());
    options.repair = true;
    fixture.store.verify(&options).unwrap();
    assert!(!place.exists() && !fixture.store.blobs().contains(&blob, None).unwrap());
}
