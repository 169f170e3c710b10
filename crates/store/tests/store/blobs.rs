use std::io::{Read as _, Write as _};

use oci::{Descriptor, Digest};
use store::{BeginBlob, Error};

use crate::fixture::{Fixture, fixture, ingest, names};

const BYTES: &[u8] = b"what a registry sends, more or less";

fn begin(fixture: &Fixture) -> store::Ingest {
    match fixture.store.blobs().begin(&Descriptor::of("x", BYTES)).unwrap() {
        BeginBlob::Ingest(ingest) => ingest,
        BeginBlob::Have(_) => panic!("it cannot be here"),
    }
}

#[test]
fn is_stored_and_read() {
    let fixture = fixture();
    let descriptor = ingest(&fixture.store, "x", BYTES);
    let mut text = Vec::new();
    fixture.store.blobs().open(&descriptor).unwrap().read_to_end(&mut text).unwrap();
    assert_eq!(text, BYTES);
    assert_eq!(fixture.store.blobs().read(&descriptor.digest).unwrap(), BYTES);
    assert!(matches!(fixture.store.blobs().begin(&descriptor).unwrap(), BeginBlob::Have(_)));
    assert!(names(&fixture.store.path().join("tmp/ingest")).is_empty());
    assert!(
        !names(&fixture.store.path().join("locks")).iter().any(|name| name.starts_with("blob"))
    );
}

#[test]
fn resumes_where_it_stopped() {
    let fixture = fixture();
    let mut first = begin(&fixture);
    first.write_all(&BYTES[..10]).unwrap();
    drop(first);
    let mut second = begin(&fixture);
    assert_eq!(second.offset(), 10);
    let mut existing = Vec::new();
    second.existing().unwrap().read_to_end(&mut existing).unwrap();
    assert_eq!(existing, &BYTES[..10]);
    second.write_all(&BYTES[10..]).unwrap();
    assert!(second.is_complete());
    second.commit().unwrap();
    assert_eq!(fixture.store.blobs().read(&Digest::of(BYTES)).unwrap(), BYTES);
}

#[test]
fn a_part_that_cannot_be_the_beginning_is_dropped() {
    let fixture = fixture();
    let part = begin(&fixture).path();
    std::fs::write(&part, vec![b'x'; BYTES.len() + 1]).unwrap();
    assert_eq!(begin(&fixture).offset(), 0, "too long");
    std::fs::write(&part, vec![b'x'; BYTES.len()]).unwrap();
    assert_eq!(begin(&fixture).offset(), 0, "as long, but other content");
    std::fs::write(&part, BYTES).unwrap();
    let whole = begin(&fixture);
    assert!(whole.is_complete());
    whole.commit().unwrap();
}

#[test]
fn wrong_content_is_never_stored() {
    let fixture = fixture();
    let mut wrong = begin(&fixture);
    wrong.write_all(&vec![b'x'; BYTES.len()]).unwrap();
    assert!(matches!(wrong.commit(), Err(Error::WrongDigest { .. })));
    let mut short = begin(&fixture);
    assert_eq!(short.offset(), 0, "wrong content is not kept");
    short.write_all(&BYTES[..5]).unwrap();
    assert!(matches!(short.commit(), Err(Error::WrongSize { found: 5, .. })));
    let mut long = begin(&fixture);
    assert_eq!(long.offset(), 5, "too little may be the beginning");
    let error = long.write_all(BYTES).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert!(fixture.store.blobs().list().unwrap().is_empty());
}

#[test]
fn bytes_of_unknown_digest_are_stored() {
    let fixture = fixture();
    let (digest, size) = fixture.store.blobs().put_reader(&mut &BYTES[..]).unwrap();
    assert_eq!((digest, size), (Digest::of(BYTES), BYTES.len() as u64));
    assert!(!fixture.store.blobs().put_bytes(BYTES).unwrap().1, "it is here already");
    assert!(fixture.store.blobs().put_bytes(b"{}").unwrap().1);
    assert_eq!(fixture.store.blobs().list().unwrap().len(), 2);
}

#[test]
fn damage_is_detected() {
    let fixture = fixture();
    let descriptor = ingest(&fixture.store, "x", BYTES);
    let path = fixture.store.blobs().open(&descriptor).unwrap().path;
    std::fs::write(&path, &BYTES[1..]).unwrap();
    let error = fixture.store.blobs().open(&descriptor).unwrap_err();
    assert!(matches!(error, Error::BadBlob { .. }), "{error}");
    assert!(error.hint().unwrap().contains("verify"));
    let error = fixture.store.blobs().read(&descriptor.digest).unwrap_err();
    assert!(matches!(error, Error::BadBlob { .. }), "{error}");
    // A truncated blob does not count as present: it is fetched again and replaced.
    assert_eq!(ingest(&fixture.store, "x", BYTES), descriptor);
    assert_eq!(fixture.store.blobs().read(&descriptor.digest).unwrap(), BYTES);
}

#[test]
fn a_sha512_blob() {
    let fixture = fixture();
    let mut digester = oci::Digester::new(oci::Algorithm::Sha512);
    digester.update(BYTES);
    let descriptor = Descriptor::new("x", digester.finish(), BYTES.len() as u64);
    let BeginBlob::Ingest(mut ingest) = fixture.store.blobs().begin(&descriptor).unwrap() else {
        panic!("it cannot be here")
    };
    ingest.write_all(BYTES).unwrap();
    assert!(ingest.commit().unwrap().path.to_str().unwrap().contains("/sha512/"));
}

/// The same bytes, when they come again, are not on the disk yet; the blob that they would replace
/// is.
#[test]
fn an_existing_blob_is_not_replaced() {
    use std::os::unix::fs::MetadataExt as _;
    let fixture = fixture();
    let blobs = fixture.store.blobs();
    let (digest, _) = blobs.put_reader(&mut b"content".as_slice()).unwrap();
    let path = blobs.open_digest(&digest).unwrap().path;
    let inode = || std::fs::metadata(&path).unwrap().ino();
    let before = inode();
    blobs.put_reader(&mut b"content".as_slice()).unwrap();
    assert_eq!(inode(), before);
    assert!(names(&fixture.store.path().join("tmp")).is_empty());
    // A damaged blob is replaced.
    std::fs::write(&path, "c0ntent").unwrap();
    blobs.put_reader(&mut b"content".as_slice()).unwrap();
    assert!(blobs.is_whole(&digest).unwrap());
}
