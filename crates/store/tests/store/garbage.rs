use std::io::Write as _;
use std::time::Duration;

use oci::{Descriptor, Digest};
use store::{
    BeginBlob, BeginTree, CollectOptions, Error, Kind, Problem, VerifyOptions, remove_owned,
};

use crate::fixture::{Fixture, container, fixture, image, ingest, layer_tar, names, unpack};

fn eager() -> CollectOptions {
    CollectOptions { partials_older_than: Duration::ZERO, grace: Duration::ZERO }
}

/// The path of a file in the store, for damaging it.
fn path(fixture: &Fixture, digest: &Digest) -> std::path::PathBuf {
    fixture.store.blobs().open_digest(digest).unwrap().path
}

#[test]
fn only_unreferenced_content_is_deleted() {
    let fixture = fixture();
    let store = &fixture.store;
    image(store, "kept", &[layer_tar("a", b"1")]);
    // Another tool, which does not know this store's locks, is at work.
    let orphan = Descriptor::of("x", b"nobody's");
    let theirs = store.path().join("oci/blobs/sha256").join(orphan.digest.hex());
    std::fs::write(theirs, "nobody's").unwrap();
    let ours = ingest(store, "x", b"ours");
    unpack(store, &Digest::of(b"nobody's"), &[("a", b"1")]);
    std::fs::create_dir(store.path().join("tmp/new-dead")).unwrap();
    std::fs::create_dir_all(store.path().join("tmp/build/layer-dead/tree")).unwrap();
    std::fs::write(store.path().join("oci/.index.json.0123456789abcdef"), "x").unwrap();
    std::fs::write(store.path().join("oci/oci-put-blob123"), "theirs").unwrap();
    let BeginBlob::Ingest(mut part) = store.blobs().begin(&Descriptor::of("x", b"12345")).unwrap()
    else {
        panic!("it cannot be here")
    };
    part.write_all(b"123").unwrap();
    drop(part);

    let freed = store.collect(&CollectOptions::default(), &remove_owned).unwrap();
    assert!(store.blobs().contains(&orphan.digest, None).unwrap(), "young blobs have their grace");
    assert!(!store.blobs().contains(&ours.digest, None).unwrap(), "ours have a lease, or none");
    assert!(freed.items.iter().any(|item| item.starts_with("layer")), "{freed:?}");
    assert_eq!(names(&store.path().join("tmp/ingest")).len(), 1, "young parts too");
    let freed = store.collect(&eager(), &remove_owned).unwrap();
    assert!(!store.blobs().contains(&orphan.digest, None).unwrap());
    assert_eq!(freed.items.len(), 2, "{freed:?}");
    assert_eq!(names(&store.path().join("tmp")), ["build", "ingest"]);
    assert!(names(&store.path().join("tmp/ingest")).is_empty());
    assert!(names(&store.path().join("tmp/build")).is_empty());
    assert_eq!(
        names(&store.path().join("oci")),
        ["blobs", "index.json", "oci-layout", "oci-put-blob123"]
    );
    assert!(store.verify(&VerifyOptions::default()).unwrap().is_empty());
    assert_eq!(store.collect(&eager(), &remove_owned).unwrap(), store::Freed::default());
}

#[test]
fn a_manifest_that_another_lists_as_a_layer_is_still_followed() {
    let fixture = fixture();
    let store = &fixture.store;
    let victim = image(store, "victim", &[layer_tar("a", b"1")]);
    store.images().untag(&crate::fixture::reference("victim")).unwrap();
    // Comes first in the index, and lists the victim's manifest and configuration as its layers.
    let config = store.images().find(&victim.digest.to_string()).unwrap();
    let config = config.manifest().unwrap().config.clone();
    let layer = |blob: &Descriptor| Descriptor::new("x/layer", blob.digest.clone(), blob.size);
    let hostile = serde_json::json!({
        "schemaVersion": 2, "mediaType": oci::media::OCI_MANIFEST, "config": config,
        "layers": [layer(&victim), layer(&config)],
    });
    let hostile = serde_json::to_vec(&hostile).unwrap();
    let hostile = ingest(store, oci::media::OCI_MANIFEST, &hostile);
    store.images().tag(&crate::fixture::reference("hostile"), &hostile).unwrap();
    store.images().tag(&crate::fixture::reference("victim"), &victim).unwrap();
    store.collect(&eager(), &remove_owned).unwrap();
    assert!(store.verify(&VerifyOptions::default()).unwrap().is_empty());
}

#[test]
fn nothing_is_deleted_while_a_lease_is_held() {
    let fixture = fixture();
    let mut wait = store::WaitPolicy { limit: Duration::from_millis(50), ..Default::default() };
    let options = store::Options { wait: wait.clone(), ..crate::fixture::options() };
    let other = store::Store::open(fixture.store.path(), options).unwrap();
    let digest = Digest::of(b"layer");
    let BeginTree::Build(staging) = fixture.store.layers().begin(&digest).unwrap() else {
        panic!("it cannot be here")
    };
    assert!(matches!(other.collect(&eager(), &remove_owned), Err(Error::Busy { .. })));
    assert!(other.sweep(&remove_owned).unwrap().deferred);
    assert!(staging.tree().is_dir());
    let cached = staging.commit(&1).unwrap();
    assert!(matches!(other.collect(&eager(), &remove_owned), Err(Error::Busy { .. })), "a lease");
    drop(cached);
    other.collect(&eager(), &remove_owned).unwrap();
    assert!(!fixture.store.layers().contains(&digest).unwrap());
    // A process that would wait for itself gets an error.
    wait.limit = Duration::from_millis(10);
    let lease = other.lease().unwrap();
    assert!(matches!(
        other.collect(&eager(), &remove_owned),
        Err(Error::OwnLease { count: 1, .. })
    ));
    drop(lease);
}

#[test]
fn pruning() {
    let fixture = fixture();
    let store = &fixture.store;
    let used = image(store, "used", &[layer_tar("a", b"1")]);
    image(store, "old", &[layer_tar("a", b"2")]);
    image(store, "old", &[layer_tar("a", b"3")]);
    let dead = container(store, Some("dead"), &used);
    let alive = container(store, Some("alive"), &used);
    let locked = container(store, Some("locked"), &used);
    let lock = locked.lock_shared().unwrap();
    store.volumes().create("v1", &store::VolumeInfo::default()).unwrap();
    store.volumes().create("v2", &store::VolumeInfo::default()).unwrap();

    let freed =
        store.prune_images(&|image| image.reference().is_none(), &eager(), &remove_owned).unwrap();
    assert!(freed.bytes > 0);
    assert_eq!(store.images().list().unwrap().len(), 2, "the dangling one went");
    store.prune_images(&|_| true, &eager(), &remove_owned).unwrap();
    assert_eq!(store.images().list().unwrap().len(), 1, "the used one stayed");

    let freed =
        store.prune_containers(&|container| container.id() != alive.id(), &remove_owned).unwrap();
    assert_eq!(freed.items, [dead.id()]);
    drop(lock);
    assert_eq!(store.containers().list().unwrap().len(), 2);

    let freed = store.prune_volumes(&|volume| volume.name() == "v1", &remove_owned).unwrap();
    assert_eq!(freed.items, ["v1"]);
    assert_eq!(store.volumes().list().unwrap().len(), 1);
}

#[test]
fn usage_adds_up() {
    let fixture = fixture();
    let store = &fixture.store;
    let used = image(store, "used", &[layer_tar("a", b"1")]);
    image(store, "unused", &[layer_tar("a", &[7; 10_000])]);
    ingest(store, "x", b"nobody's");
    let web = container(store, Some("web"), &used);
    std::fs::write(web.join("big"), vec![1; 50_000]).unwrap();
    std::fs::hard_link(web.join("big"), web.join("same")).unwrap();
    let usage = store.usage().unwrap();
    assert_eq!((usage.images.count, usage.images.unused_count), (2, 1));
    assert!(usage.images.reclaimable > 10_000 && usage.images.reclaimable < usage.images.bytes);
    assert_eq!((usage.blobs.count, usage.blobs.unused_count), (7, 1));
    assert_eq!((usage.layers.count, usage.layers.unused_count), (2, 0));
    assert_eq!(usage.containers.count, 1);
    assert!((50_000..100_000).contains(&usage.containers.bytes), "{usage:?}");
    assert_eq!(usage.temporary.count, 0);
}

#[test]
fn every_flipped_bit_is_found() {
    let fixture = fixture();
    let store = &fixture.store;
    let manifest = image(store, "debian", &[layer_tar("a", b"1")]);
    let all = store.blobs().list().unwrap();
    assert!(store.verify(&VerifyOptions::default()).unwrap().is_empty());
    for (digest, size) in &all {
        let path = path(&fixture, digest);
        let good = std::fs::read(&path).unwrap();
        let positions = [0, size / 3, size - 1];
        for position in positions {
            let mut bad = good.clone();
            bad[position as usize] ^= 1 << (position % 8);
            std::fs::write(&path, &bad).unwrap();
            let problems = store.verify(&VerifyOptions::default()).unwrap();
            let found = problems.iter().any(
                |problem| matches!(problem, Problem::BadContent { digest: bad, .. } if bad == digest),
            );
            assert!(found, "{digest} at {position}: {problems:?}");
        }
        std::fs::write(&path, &good[1..]).unwrap();
        assert!(!store.verify(&VerifyOptions::default()).unwrap().is_empty());
        std::fs::write(&path, &good).unwrap();
    }
    assert!(store.verify(&VerifyOptions::default()).unwrap().is_empty());
    // A repair drops damaged content and keeps the name; a second pull completes the image.
    let layer = Digest::of(&layer_tar("a", b"1"));
    std::fs::write(path(&fixture, &layer), b"cut").unwrap();
    std::fs::remove_file(path(&fixture, &manifest.digest)).unwrap();
    let tree = store.layers().get(&layer).unwrap().unwrap().path().to_owned();
    std::fs::remove_dir_all(tree.join("tree")).unwrap();
    let problems = store.verify(&VerifyOptions { repair: true, ..Default::default() }).unwrap();
    let kinds =
        |test: fn(&Problem) -> bool| problems.iter().filter(|problem| test(problem)).count();
    assert_eq!(kinds(|problem| matches!(problem, Problem::BadContent { .. })), 1, "{problems:?}");
    assert_eq!(kinds(|problem| matches!(problem, Problem::MissingBlob { .. })), 1, "{problems:?}");
    assert_eq!(kinds(|problem| matches!(problem, Problem::BadTree { kind: Kind::Layer, .. })), 1);
    assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
    assert!(!store.layers().contains(&layer).unwrap());
    assert!(store.images().find("debian").is_ok());
    image(store, "debian", &[layer_tar("a", b"1")]);
    assert!(store.verify(&VerifyOptions::default()).unwrap().is_empty());
}

#[test]
fn unpacked_trees_are_checked_by_the_caller() {
    let fixture = fixture();
    let store = &fixture.store;
    let manifest = image(store, "debian", &[layer_tar("a", b"1")]);
    image(store, "other", &[layer_tar("a", b"2")]);
    let web = container(store, Some("web"), &manifest);
    let asked = std::sync::Mutex::new(Vec::new());
    let check = |kind: Kind, cached: &store::Cached| {
        asked.lock().unwrap().push((kind, cached.digest().clone()));
        Err("a file is missing".to_owned())
    };
    let only = vec![store.images().find("debian").unwrap()];
    let options = VerifyOptions { check_tree: Some(&check), only, ..Default::default() };
    let problems = store.verify(&options).unwrap();
    let layer = Digest::of(&layer_tar("a", b"1"));
    assert_eq!(*asked.lock().unwrap(), [(Kind::Layer, layer.clone())]);
    assert_eq!(problems.len(), 1);
    let options = VerifyOptions { check_tree: Some(&check), repair: true, ..Default::default() };
    store.verify(&options).unwrap();
    let problems = store.verify(&VerifyOptions::default()).unwrap();
    let missing = Problem::MissingTree { container: web.id().to_owned(), digest: layer };
    assert_eq!(problems, [missing]);
    std::fs::write(web.join("container.json"), "{").unwrap();
    let problems = store.verify(&VerifyOptions::default()).unwrap();
    assert!(matches!(problems.as_slice(), [Problem::BadFile { .. }]), "{problems:?}");
    // It is unknown what the container used, so nothing is removed.
    let error = store.collect(&eager(), &remove_owned).unwrap_err();
    let hint = format!("'coracle rm {}' removes the container", web.short_id());
    assert_eq!(error.hint(), Some(hint));
}
