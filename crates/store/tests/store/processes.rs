//! Several processes at once. The children are this test program, started again with a task in the
//! environment.

use std::io::Write as _;
use std::process::{Child, Command};
use std::time::Duration;

use oci::{Descriptor, Digest};
use store::{BeginBlob, BeginTree, Error, LockMethod, Options, Store};

use crate::fixture::{fixture, image, layer_tar, options};

const TASK: &str = "CORACLE_STORE_TASK";
const STORE: &str = "CORACLE_STORE_PATH";
const METHOD: &str = "CORACLE_STORE_LOCKS";
const SIZE: usize = 300_000;

fn content() -> Vec<u8> {
    (0..SIZE).map(|n| (n * 7 % 251) as u8).collect()
}

fn start(store: &Store, task: &str) -> Child {
    let locks = serde_json::to_string(&store.abilities().locks).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::child", "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .env(STORE, store.path())
        .env(METHOD, locks)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test: the work of the children.
#[test]
fn child() {
    let (Ok(task), Ok(path)) = (std::env::var(TASK), std::env::var(STORE)) else { return };
    let locks: LockMethod = serde_json::from_str(&std::env::var(METHOD).unwrap()).unwrap();
    let plain = Store::open(path.as_ref(), options()).unwrap();
    let abilities = store::Abilities { locks, ..plain.abilities().clone() };
    let options = Options { abilities: Some(abilities), ..options() };
    let store = Store::open(path.as_ref(), options).unwrap();
    match task.split_once(' ').unwrap_or((&task, "")) {
        ("fetch", pause) => fetch(&store, pause.parse().unwrap()),
        ("name", name) => match store.containers().create(Some(name), |id, _| id.to_owned()) {
            Ok(_) | Err(Error::NameInUse { .. }) => {}
            Err(error) => panic!("{error}"),
        },
        ("tag", name) => {
            image(&store, name, &[layer_tar("a", b"1")]);
        }
        ("pull-and-remove", name) => {
            for _ in 0..5 {
                image(
                    &store,
                    name,
                    &[layer_tar("shared", b"1"), layer_tar("own", name.as_bytes())],
                );
                let found = store.images().find(name).unwrap();
                let _ = found.config().unwrap();
                store.images().remove(name, false).unwrap();
            }
        }
        (other, _) => panic!("unknown task {other}"),
    }
}

/// Fetches a blob and unpacks it, slowly.
fn fetch(store: &Store, pause_micros: u64) {
    let bytes = content();
    match store.blobs().begin(&Descriptor::of("x", &bytes)).unwrap() {
        BeginBlob::Have(_) => {}
        BeginBlob::Ingest(mut ingest) => {
            let offset = ingest.offset() as usize;
            for chunk in bytes[offset..].chunks(1000) {
                ingest.write_all(chunk).unwrap();
                std::thread::sleep(Duration::from_micros(pause_micros));
            }
            let log = store.path().join("containers/fetched");
            let mut log = std::fs::File::options().create(true).append(true).open(log).unwrap();
            writeln!(log, "{offset}").unwrap();
            ingest.commit().unwrap();
        }
    }
    if let BeginTree::Build(staging) = store.layers().begin(&Digest::of(&bytes)).unwrap() {
        std::fs::write(staging.tree().join("file"), &bytes).unwrap();
        staging.commit(&1).unwrap();
    }
}

fn all_succeed(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

/// A store with this kind of lock.
fn store_with(fixture: &crate::fixture::Fixture, locks: LockMethod) -> Store {
    let abilities = store::Abilities { locks, ..fixture.store.abilities().clone() };
    Store::open(fixture.store.path(), Options { abilities: Some(abilities), ..options() }).unwrap()
}

const METHODS: [LockMethod; 3] = [LockMethod::Flock, LockMethod::Ofd, LockMethod::Symlink];

#[test]
fn two_processes_fetch_a_blob_once() {
    for method in METHODS {
        let fixture = fixture();
        let store = store_with(&fixture, method);
        all_succeed((0..3).map(|_| start(&store, "fetch 500")).collect());
        let log = std::fs::read_to_string(store.path().join("containers/fetched")).unwrap();
        assert_eq!(log, "0\n", "{method:?}");
        assert_eq!(store.blobs().read(&Digest::of(&content())).unwrap(), content());
    }
}

#[test]
fn work_of_a_killed_process_is_continued() {
    for method in METHODS {
        let fixture = fixture();
        let store = store_with(&fixture, method);
        let part = store.path().join("tmp/ingest");
        let mut first = start(&store, "fetch 3000");
        let size = || {
            let name = std::fs::read_dir(&part).ok()?.next()?.ok()?;
            name.metadata().ok().map(|meta| meta.len())
        };
        while size().unwrap_or(0) < 50_000 {
            std::thread::sleep(Duration::from_millis(5));
            assert!(first.try_wait().unwrap().is_none(), "it should still be fetching");
        }
        let second = start(&store, "fetch 0");
        std::thread::sleep(Duration::from_millis(100));
        first.kill().unwrap();
        first.wait().unwrap();
        all_succeed(vec![second]);
        let log = std::fs::read_to_string(store.path().join("containers/fetched")).unwrap();
        let offset: usize = log.trim().parse().unwrap();
        assert!((50_000..SIZE).contains(&offset), "{method:?} resumed at {offset}");
        assert_eq!(store.blobs().read(&Digest::of(&content())).unwrap(), content());
        assert!(store.layers().contains(&Digest::of(&content())).unwrap());
    }
}

#[test]
fn one_of_many_processes_gets_the_name() {
    for method in METHODS {
        let fixture = fixture();
        let store = store_with(&fixture, method);
        all_succeed((0..6).map(|_| start(&store, "name web")).collect());
        assert_eq!(store.containers().list().unwrap().len(), 1, "{method:?}");
        assert!(store.containers().find("web").is_ok());
    }
}

#[test]
fn no_name_gets_lost() {
    for method in METHODS {
        let fixture = fixture();
        let store = store_with(&fixture, method);
        all_succeed((0..6).map(|n| start(&store, &format!("tag image{n}"))).collect());
        assert_eq!(store.images().list().unwrap().len(), 6, "{method:?}");
    }
}

#[test]
fn pulling_and_removing_at_once() {
    let fixture = fixture();
    image(&fixture.store, "kept", &[layer_tar("shared", b"1")]);
    all_succeed(
        (0..4).map(|n| start(&fixture.store, &format!("pull-and-remove image{n}"))).collect(),
    );
    let problems = fixture.store.verify(&store::VerifyOptions::default()).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(fixture.store.images().list().unwrap().len(), 1);
    let options = store::CollectOptions { grace: Duration::ZERO, ..Default::default() };
    fixture.store.collect(&options, &store::remove_owned).unwrap();
    assert_eq!(fixture.store.blobs().list().unwrap().len(), 3);
    assert_eq!(fixture.store.layers().list().unwrap().len(), 1);
}
