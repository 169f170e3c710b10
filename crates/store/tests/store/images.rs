use proptest::prelude::*;
use store::Error;

use crate::fixture::{container, fixture, image, layer_tar, names, reference};

fn blobs(store: &store::Store) -> usize {
    store.blobs().list().unwrap().len()
}

#[test]
fn is_found_in_every_way() {
    let fixture = fixture();
    let manifest = image(&fixture.store, "debian:stable", &[layer_tar("a", b"1")]);
    let images = fixture.store.images();
    let found = images.find("debian:stable").unwrap();
    let id = found.id().unwrap();
    assert_eq!(found.reference().unwrap().to_string(), "docker.io/library/debian:stable");
    let spellings = [
        "docker.io/library/debian:stable".to_owned(),
        "index.docker.io/library/debian:stable".to_owned(),
        id.to_string(),
        id.hex().to_owned(),
        id.hex()[..12].to_owned(),
        format!("sha256:{}", &id.hex()[..7]),
        manifest.digest.to_string(),
        manifest.digest.hex()[..12].to_owned(),
        format!("debian@{}", manifest.digest),
        format!("debian:whatever@{}", manifest.digest),
    ];
    for spelling in spellings {
        assert_eq!(images.find(&spelling).unwrap().digest(), &manifest.digest, "{spelling}");
    }
    for unknown in [
        "debian",
        "ubuntu:stable",
        "sha256:00",
        "",
        "Debian",
        &format!("ubuntu@{}", manifest.digest),
    ] {
        assert!(matches!(images.find(unknown), Err(Error::NoImage { .. })), "{unknown}");
    }
    let summary = found.summary().unwrap();
    assert_eq!(summary.created.as_deref(), Some("2026-01-02T03:04:05Z"));
    assert_eq!(summary.labels["from"], "debian:stable");
    assert_eq!(summary.platform.to_string(), "linux/amd64");
    assert_eq!(summary.diff_ids, found.config().unwrap().diff_ids());
}

#[test]
fn an_ambiguous_prefix_is_an_error() {
    let fixture = fixture();
    let ids: Vec<String> = (0..17)
        .map(|n| {
            let name = format!("i{n}");
            image(&fixture.store, &name, &[layer_tar("a", name.as_bytes())]);
            fixture.store.images().find(&name).unwrap().id().unwrap().hex()[..1].to_owned()
        })
        .collect();
    let twice =
        ids.iter().find(|digit| ids.iter().filter(|other| other == digit).count() > 1).unwrap();
    let error = fixture.store.images().find(twice).unwrap_err();
    assert!(
        matches!(&error, Error::AmbiguousImage { candidates, .. } if candidates.len() > 1),
        "{error}"
    );
}

#[test]
fn an_image_stays_after_its_name_moved() {
    let fixture = fixture();
    let old = image(&fixture.store, "debian", &[layer_tar("a", b"1")]);
    let new = image(&fixture.store, "debian", &[layer_tar("a", b"2")]);
    let images = fixture.store.images();
    assert_eq!(images.find("debian").unwrap().digest(), &new.digest);
    let dangling = images.find(old.digest.hex()).unwrap();
    assert_eq!(dangling.reference(), None);
    assert_eq!(images.list().unwrap().len(), 2);
    // Named again, it is one entry again.
    images.tag(&reference("bookworm"), &old).unwrap();
    assert_eq!(images.list().unwrap().len(), 2);
    images.tag(&reference("debian"), &new).unwrap();
    assert_eq!(images.list().unwrap().len(), 2, "naming it so again changes nothing");
}

#[test]
fn a_missing_manifest_cannot_be_named() {
    let fixture = fixture();
    let nothing = oci::Descriptor::of(oci::media::OCI_MANIFEST, b"{}");
    let error = fixture.store.images().tag(&reference("debian"), &nothing).unwrap_err();
    assert!(matches!(error, Error::NoBlob { .. }));
}

#[test]
fn is_removed_with_content_that_only_it_needs() {
    let fixture = fixture();
    let base = layer_tar("base", b"1");
    image(&fixture.store, "one", &[base.clone(), layer_tar("a", b"1")]);
    image(&fixture.store, "two", &[base.clone(), layer_tar("b", b"2")]);
    assert_eq!(blobs(&fixture.store), 3 + 2 * 2);
    let store = fixture.again();
    let removal = store.images().remove("one", false).unwrap();
    assert_eq!(removal.untagged, ["docker.io/library/one:latest"]);
    assert!(removal.deleted.is_some() && removal.freed > 0 && !removal.deferred);
    assert_eq!(blobs(&store), 4);
    assert_eq!(store.layers().list().unwrap().len(), 2);
    assert!(store.verify(&store::VerifyOptions::default()).unwrap().is_empty());
    store.images().remove("two", false).unwrap();
    assert_eq!(blobs(&store), 0);
    assert!(names(&store.path().join("layers")).is_empty());
}

#[test]
fn a_name_among_several_is_only_untagged() {
    let fixture = fixture();
    let manifest = image(&fixture.store, "one", &[layer_tar("a", b"1")]);
    let images = fixture.store.images();
    images.tag(&reference("two"), &manifest).unwrap();
    let id = images.find("one").unwrap().id().unwrap().to_string();
    let error = images.remove(&id, false).unwrap_err();
    assert!(
        matches!(&error, Error::ImageInUse { why, .. } if why.contains("one") && why.contains("two"))
    );
    let removal = images.remove("one", false).unwrap();
    assert_eq!((removal.untagged.len(), removal.deleted), (1, None));
    assert!(images.find("two").is_ok());
    images.tag(&reference("one"), &manifest).unwrap();
    let removal = images.remove(&id, true).unwrap();
    assert_eq!(removal.untagged.len(), 2);
    assert_eq!(blobs(&fixture.store), 0);
}

#[test]
fn an_image_with_containers_is_kept() {
    let fixture = fixture();
    let manifest = image(&fixture.store, "one", &[layer_tar("a", b"1")]);
    let container = container(&fixture.store, Some("web"), &manifest);
    let images = fixture.store.images();
    let users = fixture.store.containers().using(&images.find("one").unwrap()).unwrap();
    assert_eq!(users.len(), 1);
    let error = images.remove("one", false).unwrap_err();
    assert!(matches!(&error, Error::ImageInUse { why, .. } if why.contains(container.short_id())));
    assert!(error.hint().is_some_and(|hint| hint.contains("rmi -f")));
    let removal = images.remove("one", true).unwrap();
    assert_eq!(removal.freed, 0);
    assert_eq!(
        fixture.store.layers().list().unwrap().len(),
        1,
        "the container still has its layer"
    );
    container.remove().unwrap();
    let options = store::CollectOptions { grace: std::time::Duration::ZERO, ..Default::default() };
    let freed = fixture.store.collect(&options, &store::remove_owned).unwrap();
    assert!(freed.bytes > 0);
    assert_eq!(blobs(&fixture.store), 0);
    assert!(fixture.store.layers().list().unwrap().is_empty());
}

/// A pull holds the store; removing an image meanwhile removes only the name.
#[test]
fn content_is_deleted_later_while_others_work() {
    let fixture = fixture();
    image(&fixture.store, "one", &[layer_tar("a", b"1")]);
    let other = fixture.again();
    let lease = other.lease().unwrap();
    let removal = fixture.store.images().remove("one", false).unwrap();
    assert!(removal.deferred && fixture.store.images().find("one").is_err());
    assert_eq!(blobs(&fixture.store), 3);
    drop(lease);
    let options = store::CollectOptions { grace: std::time::Duration::ZERO, ..Default::default() };
    fixture.store.collect(&options, &store::remove_owned).unwrap();
    assert_eq!(blobs(&fixture.store), 0);
}

#[test]
fn foreign_entries_and_fields_survive() {
    let fixture = fixture();
    let manifest = image(&fixture.store, "one", &[layer_tar("a", b"1")]);
    let path = fixture.store.path().join("oci/index.json");
    let read =
        || serde_json::from_slice::<serde_json::Value>(&std::fs::read(&path).unwrap()).unwrap();
    let mut value = read();
    let mut foreign = serde_json::to_value(&manifest).unwrap();
    foreign["annotations"] =
        serde_json::json!({"org.opencontainers.image.ref.name": "theirs", "x": "y"});
    foreign["x-field"] = serde_json::json!([1, 2]);
    let manifests = value["manifests"].as_array_mut().unwrap();
    manifests.insert(0, foreign.clone());
    manifests.insert(1, serde_json::json!({"not": "a descriptor"}));
    value["annotations"] = serde_json::json!({"who": "else"});
    std::fs::write(&path, value.to_string()).unwrap();
    assert!(fixture.store.images().find("theirs").is_ok());
    fixture.store.images().tag(&reference("two"), &manifest).unwrap();
    fixture.store.images().untag(&reference("one")).unwrap();
    let value = read();
    assert_eq!(value["manifests"][0], foreign);
    assert_eq!(value["manifests"][1]["not"], "a descriptor");
    assert_eq!(value["annotations"]["who"], "else");
    assert_eq!(value["manifests"].as_array().unwrap().len(), 3);
    // Untagging a foreign name that is the last of its image keeps everything else of the entry.
    fixture.store.images().untag(&reference("two")).unwrap();
    fixture.store.images().untag(&reference("theirs")).unwrap();
    let left = &read()["manifests"][0];
    assert_eq!(left["x-field"], foreign["x-field"]);
    assert_eq!(left["annotations"], serde_json::json!({"x": "y"}));
}

#[test]
fn an_index_may_be_missing_or_empty_before_anything_is_stored() {
    for empty in [None, Some(""), Some("\n")] {
        let fixture = fixture();
        let path = fixture.store.path().join("oci/index.json");
        std::fs::remove_file(&path).unwrap();
        if let Some(text) = empty {
            std::fs::write(&path, text).unwrap();
        }
        assert!(fixture.store.images().list().unwrap().is_empty());
        assert!(fixture.store.verify(&store::VerifyOptions::default()).unwrap().is_empty());
        image(&fixture.store, "one", &[]);
        assert_eq!(fixture.store.images().list().unwrap().len(), 1);
    }
}

#[test]
fn a_damaged_index_is_never_taken_for_an_empty_store() {
    let fixture = fixture();
    let store = &fixture.store;
    let manifest = image(store, "one", &[layer_tar("a", b"1")]);
    let other = image(store, "two", &[layer_tar("a", b"2")]);
    let path = store.path().join("oci/index.json");
    let good = std::fs::read(&path).unwrap();
    let damaged: [Option<&[u8]>; 11] = [
        None,
        Some(b""),
        Some(b" \n"),
        Some(&good[..good.len() / 2]),
        Some(b"\0\0\0\0"),
        Some(b"[]"),
        Some(b"[2, []]"),
        Some(b"null"),
        Some(b"{}"),
        Some(b"{\"schemaVersion\": 2, \"manifests\": {}}"),
        Some(b"{\"schemaVersion\": 1, \"manifests\": []}"),
    ];
    let eager = store::CollectOptions {
        grace: std::time::Duration::ZERO,
        partials_older_than: std::time::Duration::ZERO,
    };
    for bad in damaged {
        let _ = std::fs::remove_file(&path);
        if let Some(bad) = bad {
            std::fs::write(&path, bad).unwrap();
        }
        let text = bad.map(String::from_utf8_lossy);
        let all = blobs(store);
        let tag = store.images().tag(&reference("three"), &manifest);
        for error in [
            store.images().list().unwrap_err(),
            store.images().find("one").unwrap_err(),
            store.images().remove("one", true).unwrap_err(),
            store.collect(&eager, &store::remove_owned).unwrap_err(),
            store.prune_images(&|_| true, &eager, &store::remove_owned).unwrap_err(),
            tag.unwrap_err(),
        ] {
            let Error::BadIndex { path: at, .. } = &error else { panic!("{text:?}: {error:?}") };
            assert!(*at == path && error.hint().unwrap().contains("verify --repair"), "{text:?}");
        }
        // The same if the store has to be completed.
        std::fs::remove_file(store.path().join("store.json")).unwrap();
        assert!(fixture.again().images().list().is_err(), "{text:?}");
        assert_eq!(blobs(store), all, "{text:?}");
        let problems = store.verify(&store::VerifyOptions::default()).unwrap();
        assert!(
            matches!(&problems[..], [store::Problem::BadFile { why }] if why.contains("index.json")),
            "{text:?}: {problems:?}"
        );
        assert_eq!(std::fs::read(&path).ok().as_deref(), bad, "nothing was written");
    }
    // A repair finds the images again, without their names.
    std::fs::write(&path, &good[..good.len() / 2]).unwrap();
    let repair = || store::VerifyOptions { repair: true, ..Default::default() };
    assert_eq!(store.verify(&repair()).unwrap().len(), 1);
    assert!(store.verify(&repair()).unwrap().is_empty());
    assert_eq!(
        std::fs::read(path.with_extension("json.damaged")).unwrap(),
        &good[..good.len() / 2]
    );
    let all = blobs(store);
    store.collect(&eager, &store::remove_owned).unwrap();
    assert_eq!(blobs(store), all);
    for wanted in [&manifest, &other] {
        let image = store.images().find(&wanted.digest.to_string()).unwrap();
        assert!(image.reference().is_none() && image.config().is_ok());
    }
    image(store, "one", &[layer_tar("a", b"1")]);
    assert_eq!(store.images().find("one").unwrap().digest(), &manifest.digest);
    assert_eq!(store.images().list().unwrap().len(), 2);
}

#[derive(Debug, Clone)]
enum Change {
    Tag(usize, usize),
    Untag(usize),
    Remove(usize),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Against a model: a map from names to images, and the set of images that are there.
    #[test]
    fn names_behave_like_a_map(changes in prop::collection::vec(prop_oneof![
        3 => (0..5_usize, 0..3_usize).prop_map(|(name, image)| Change::Tag(name, image)),
        1 => (0..5_usize).prop_map(Change::Untag),
        1 => (0..5_usize).prop_map(Change::Remove),
    ], 1..20)) {
        let fixture = fixture();
        let store = fixture.again();
        let build = |n: usize| {
            let manifest = image(&store, "temporary", &[layer_tar("a", n.to_string().as_bytes())]);
            store.images().untag(&reference("temporary")).unwrap();
            manifest
        };
        let name = |n: usize| format!("name{n}");
        let mut model = std::collections::BTreeMap::new();
        for change in changes {
            match change {
                Change::Tag(n, which) => {
                    let manifest = build(which);
                    store.images().tag(&reference(&name(n)), &manifest).unwrap();
                    model.insert(n, manifest.digest);
                }
                Change::Untag(n) => {
                    let had = store.images().untag(&reference(&name(n))).unwrap();
                    prop_assert_eq!(had, model.remove(&n).is_some());
                }
                Change::Remove(n) => {
                    let removed = store.images().remove(&name(n), false);
                    prop_assert_eq!(removed.is_ok(), model.remove(&n).is_some());
                }
            }
            let mut seen = std::collections::BTreeMap::new();
            for image in store.images().list().unwrap() {
                if let Some(name) = image.reference() {
                    prop_assert_eq!(seen.insert(name.to_string(), image.digest().clone()), None);
                }
                prop_assert!(image.config().is_ok(), "its content is there");
            }
            let wanted = model.iter().map(|(n, digest)| (reference(&name(*n)).to_string(), digest.clone()));
            prop_assert_eq!(seen, wanted.collect());
        }
    }
}
