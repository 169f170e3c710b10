use oci::Digest;
use store::{BeginBlob, BeginTree, Error, Options, Store};

use crate::fixture::{Fixture, fixture, image, layer_tar, options, reference};

fn stacked(below: &Fixture) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { below: vec![below.store.path().to_owned()], ..options() };
    let store = Store::open(&dir.path().join("mine"), options).unwrap();
    (dir, store)
}

#[test]
fn stores_beneath_are_read_and_never_changed() {
    let below = fixture();
    let layer = layer_tar("a", b"1");
    let manifest = image(&below.store, "shared", std::slice::from_ref(&layer));
    let (_dir, store) = stacked(&below);
    let found = store.images().find("shared").unwrap();
    assert!(!found.is_own());
    assert_eq!(found.config().unwrap().diff_ids(), [Digest::of(&layer)]);
    assert!(matches!(store.blobs().begin(&manifest).unwrap(), BeginBlob::Have(_)));
    let BeginTree::Have(cached) = store.layers().begin(&Digest::of(&layer)).unwrap() else {
        panic!("it is beneath")
    };
    assert!(cached.path().starts_with(below.store.path()));
    assert!(matches!(store.images().remove("shared", true), Err(Error::ReadOnly { .. })));

    // A name here hides the one beneath; another name for the image beneath copies nothing.
    let own = image(&store, "shared", &[layer_tar("a", b"2")]);
    assert_eq!(store.images().find("shared").unwrap().digest(), &own.digest);
    store.images().tag(&reference("mine"), &manifest).unwrap();
    assert_eq!(store.images().list().unwrap().len(), 2);
    assert_eq!(store.blobs().list().unwrap().len(), 3);
    store.images().remove("shared", false).unwrap();
    assert_eq!(store.images().find("shared").unwrap().digest(), &manifest.digest);
    assert_eq!(store.images().find("mine").unwrap().digest(), &manifest.digest);
    assert!(below.store.verify(&store::VerifyOptions::default()).unwrap().is_empty());
    assert_eq!(below.store.blobs().list().unwrap().len(), 3);
}

#[test]
fn containers_belong_to_the_upper_store() {
    let below = fixture();
    let manifest = image(&below.store, "shared", &[layer_tar("a", b"1")]);
    crate::fixture::container(&below.store, Some("theirs"), &manifest);
    let (_dir, store) = stacked(&below);
    assert!(store.containers().list().unwrap().is_empty());
    let mine = crate::fixture::container(&store, Some("theirs"), &manifest);
    assert!(mine.path().starts_with(store.path()));
    assert_eq!(store.containers().using(&store.images().find("shared").unwrap()).unwrap().len(), 1);
}

#[test]
fn a_missing_store_beneath_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { below: vec![dir.path().join("none")], ..options() };
    assert!(matches!(Store::open(&dir.path().join("mine"), options), Err(Error::NoStore { .. })));
}
