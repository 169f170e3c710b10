//! Hosts that are threads of one process: each with a store, a key and a port of its own.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4};

use net::peers::PublicKey;
use oci::{Descriptor, Digest};
use store::Ingest;

use super::serve::{ASK, OVER};
use super::shelf::PIECE;
use super::words::Place;
use super::*;

struct Member {
    directory: tempfile::TempDir,
    shelf: Arc<Shelf>,
    secure: Arc<Secure>,
    server: Arc<Server>,
    place: Place,
}

fn place(key: PublicKey, listener: &TcpListener) -> Place {
    let port = listener.local_addr().unwrap().port();
    Place { key, at: vec![SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)] }
}

impl Member {
    fn new(blobs: &[Descriptor]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = store::Options { create: true, ..store::Options::default() };
        let store = store::Store::open(directory.path(), options).unwrap();
        let key = Key::generate().unwrap();
        let secure = Arc::new(Secure::new(&key).unwrap());
        let shelf = Arc::new(Shelf::new(store));
        shelf.expect(blobs.to_vec());
        let server = Arc::new(Server::new(Arc::clone(&secure), Arc::clone(&shelf)));
        let (listener, _) = listen(Some(Ipv4Addr::LOCALHOST)).unwrap();
        let place = place(key.public(), &listener);
        Arc::clone(&server).listen(listener);
        Self { directory, shelf, secure, server, place }
    }

    fn fetch(&self, hosts: &[&Place]) -> Result<()> {
        let hosts = hosts.iter().map(|&place| place.clone()).collect();
        Fetch::new(&self.shelf, &self.secure, Upstream::Hosts(hosts), &Cancel::default()).all()
    }

    fn begin(&self, number: usize) -> Ingest {
        let blob = self.shelf.blob(number).unwrap();
        self.shelf.begin(number, &blob).unwrap().unwrap()
    }

    /// Writes some bytes of the first blob.
    fn write(&self, ingest: &mut Ingest, bytes: &[u8]) {
        ingest.write_all(bytes).unwrap();
        self.shelf.grown(0, ingest.offset());
    }

    fn has(&self, bytes: &[u8]) -> bool {
        let digest = Digest::of(bytes);
        self.shelf.store.blobs().open_digest(&digest).is_ok_and(|mut blob| {
            let mut found = Vec::new();
            blob.read_to_end(&mut found).unwrap();
            found == bytes
        })
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * at / 7) as u8).collect()
}

fn blob(bytes: &[u8]) -> Descriptor {
    Descriptor::of("application/octet-stream", bytes)
}

/// Puts a blob into a member's store.
fn put(member: &Member, number: usize, bytes: &[u8]) {
    let mut ingest = member.begin(number);
    ingest.write_all(bytes).unwrap();
    ingest.commit().unwrap();
}

#[test]
fn blobs_are_passed_on_while_they_arrive() {
    let (large, small) = (bytes(10 * PIECE + 17), bytes(5));
    let blobs = [blob(&large), blob(&small)];
    let [first, second, third] = [(); 3].map(|()| Member::new(&blobs));
    put(&first, 1, &small);
    first.shelf.begin(1, &blobs[1]).unwrap();
    first.server.let_in(vec![second.place.key]);
    second.server.let_in(vec![third.place.key]);
    let half = large.len() / 2;
    std::thread::scope(|scope| {
        let mut ingest = first.begin(0);
        first.write(&mut ingest, &large[..half]);
        let threads = [
            scope.spawn(|| second.fetch(&[&first.place])),
            scope.spawn(|| third.fetch(&[&second.place, &first.place])),
        ];
        let soon = std::time::Duration::from_mins(1);
        let part = third.shelf.wait(0, half as u64 - 1, false, soon).unwrap();
        assert!((part.length, part.is_whole) == (half as u64, false));
        first.write(&mut ingest, &large[half..]);
        ingest.commit().unwrap();
        first.shelf.whole(0);
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
    for member in [&second, &third] {
        assert!(member.has(&large) && member.has(&small));
    }
}

#[test]
fn a_host_that_passes_on_what_is_wrong_is_not_asked_again() {
    let right = bytes(3 * PIECE);
    let blobs = [blob(&right)];
    let [good, bad, child, grandchild] = [(); 4].map(|()| Member::new(&blobs));
    put(&good, 0, &right);
    // A blob of the right length is taken for whole.
    let path = bad.directory.path().join("oci/blobs/sha256").join(blobs[0].digest.hex());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, vec![7; right.len()]).unwrap();
    for member in [&good, &bad] {
        member.shelf.all_are_there().unwrap();
        member.server.let_in(vec![child.place.key, grandchild.place.key]);
    }
    child.server.let_in(vec![grandchild.place.key]);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| child.fetch(&[&bad.place, &good.place]));
        // It may have got the wrong bytes from the child, which is innocent.
        grandchild.fetch(&[&child.place, &bad.place, &good.place]).unwrap();
        first.join().unwrap().unwrap();
    });
    assert!(child.has(&right) && grandchild.has(&right));
    let alone = Member::new(&blobs);
    bad.server.let_in(vec![alone.place.key]);
    let error = alone.fetch(&[&bad.place]).unwrap_err().to_string();
    assert!(error.contains("digest") && !alone.has(&right), "{error}");
}

/// The host that is lost in the middle of a blob is one that speaks the protocol and then ends.
#[test]
fn half_a_blob_is_resumed_elsewhere() {
    let all = bytes(4 * PIECE);
    let blobs = [blob(&all)];
    let [good, child] = [(); 2].map(|()| Member::new(&blobs));
    put(&good, 0, &all);
    good.shelf.all_are_there().unwrap();
    let key = Key::generate().unwrap();
    let secure = Secure::new(&key).unwrap();
    secure.let_in([child.place.key]);
    let (listener, _) = listen(Some(Ipv4Addr::LOCALHOST)).unwrap();
    let lost = place(key.public(), &listener);
    let soon = std::time::Duration::from_secs(20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = secure.accept(listener.accept().unwrap().0, soon).unwrap();
            drop(listener);
            stream.read_exact(&mut [0; ASK]).unwrap();
            stream.write_all(&(PIECE as u32).to_le_bytes()).unwrap();
            stream.write_all(&all[..PIECE]).unwrap();
            child.shelf.wait(0, PIECE as u64 - 1, false, soon).unwrap();
            // From here on it is good that the first piece is not sent again: the good host has
            // another one.
            good.server.let_in(vec![child.place.key]);
        });
        child.fetch(&[&lost, &good.place]).unwrap();
    });
    assert!(child.has(&all));
}

#[test]
fn strangers_get_nothing() {
    let all = bytes(9);
    let blobs = [blob(&all)];
    let [good, stranger] = [(); 2].map(|()| Member::new(&blobs));
    put(&good, 0, &all);
    good.shelf.all_are_there().unwrap();
    good.server.let_in(vec![PublicKey::of([7; 32])]);
    let error = stranger.fetch(&[&good.place]).unwrap_err().to_string();
    assert!(error.contains("does not know this host's key"), "{error}");
    assert!(!stranger.has(&all));
    // Nor does one with a key who is taken for another host.
    let other = Place { key: PublicKey::of([7; 32]), ..good.place.clone() };
    good.server.let_in(vec![stranger.place.key]);
    let error = stranger.fetch(&[&other]).unwrap_err().to_string();
    assert!(error.contains("it has another key than in the list"), "{error}");
    stranger.fetch(&[&good.place]).unwrap();
}

/// A host that begins a blob anew does not go on with other bytes.
#[test]
fn a_blob_that_is_begun_anew() {
    let all = bytes(2 * PIECE);
    let blobs = [blob(&all)];
    let [first, second] = [(); 2].map(|()| Member::new(&blobs));
    first.server.let_in(vec![second.place.key]);
    let soon = std::time::Duration::from_secs(20);
    let mut stream = second.secure.dial(first.place.key, first.place.at[0], soon, soon).unwrap();
    let mut ingest = first.begin(0);
    first.write(&mut ingest, &vec![7; PIECE]);
    let ask = serve::Ask { number: 0, offset: 0, whole: false };
    stream.write_all(&ask.bytes()).unwrap();
    let mut frame = vec![0; 4 + PIECE];
    stream.read_exact(&mut frame).unwrap();
    assert!(frame[4..] == vec![7; PIECE]);
    ingest.discard().unwrap();
    let mut ingest = first.begin(0);
    first.write(&mut ingest, &all);
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    while length == [0; 4] {
        stream.read_exact(&mut length).unwrap();
    }
    assert_eq!(u32::from_le_bytes(length), OVER);
}
