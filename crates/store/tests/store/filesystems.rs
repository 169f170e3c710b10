//! Stores on unusual file systems. Tests that need a mount run as root in a child with its own
//! mount namespace.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use store::{Abilities, Error, LockMethod, Options, Store};

use crate::fixture::{fixture, image, layer_tar, names, options, unpack};

const PLACE: &str = "CORACLE_STORE_PLACE";

#[test]
fn a_missing_directory_is_created_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("home/me/.local/share/coracle");
    assert!(matches!(Store::open(&path, Options::default()), Err(Error::NoStore { .. })));
    let store = Store::open(&path, options()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(dir.path().join("home")).unwrap().mode() & 0o777, 0o700);
    assert!(store.read_only().is_none());
    image(&store, "debian", &[layer_tar("a", b"1")]);
    assert_eq!(Store::open(&path, Options::default()).unwrap().images().list().unwrap().len(), 1);
}

#[test]
fn a_directory_with_other_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        Store::open(Path::new("relative"), options()),
        Err(Error::NotAbsolute { .. })
    ));
    let used = dir.path().join("used");
    std::fs::create_dir(&used).unwrap();
    assert!(matches!(Store::open(&used, Options::default()), Err(Error::NoStore { .. })));
    std::fs::write(used.join("thesis.tex"), "").unwrap();
    let error = Store::open(&used, options()).unwrap_err();
    assert!(matches!(&error, Error::NotAStore { found, .. } if found == "thesis.tex"), "{error}");
    assert_eq!(names(&used), ["thesis.tex"]);
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(Store::open(&file, options()), Err(Error::Io { .. })));
}

#[test]
fn a_half_made_store_is_completed() {
    for keep in [0, 2, 5] {
        let fixture = fixture();
        let path = fixture.store.path();
        std::fs::remove_file(path.join("store.json")).unwrap();
        for name in
            ["volumes", "trees", "locks", "oci/index.json", "oci/oci-layout"].iter().skip(keep)
        {
            let target = path.join(name);
            if target.is_dir() {
                std::fs::remove_dir(target).unwrap();
            } else {
                std::fs::remove_file(target).unwrap();
            }
        }
        let store = fixture.again();
        image(&store, "debian", &[layer_tar("a", b"1")]);
        assert!(path.join("store.json").exists());
    }
}

#[test]
fn a_newer_format_is_refused() {
    let fixture = fixture();
    std::fs::write(fixture.store.path().join("store.json"), r#"{"version": 99}"#).unwrap();
    let error = Store::open(fixture.store.path(), options()).unwrap_err();
    assert!(matches!(error, Error::TooNew { found: 99, .. }));
}

#[test]
fn a_store_that_everybody_can_write_to_is_refused() {
    let fixture = fixture();
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(fixture.store.path(), mode).unwrap();
    let error = Store::open(fixture.store.path(), options()).unwrap_err();
    assert!(matches!(error, Error::Untrusted { .. }), "{error}");
    let open = fixture.dir.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = Store::open(&open.join("store"), options()).unwrap_err();
    assert!(matches!(error, Error::Untrusted { .. }), "{error}");
}

/// The given abilities are used; each missing one is named.
#[test]
fn a_file_system_that_cannot_hold_trees_is_refused_with_the_reason() {
    let fixture = fixture();
    let good = fixture.store.abilities().clone();
    let cases = [
        (Abilities { symlinks: false, ..good.clone() }, "symbolic links"),
        (Abilities { modes: false, ..good.clone() }, "permission bits"),
        (Abilities { case_sensitive: false, ..good.clone() }, "case"),
    ];
    for (abilities, reason) in cases {
        let path = fixture.dir.path().join("other");
        let error =
            Store::open(&path, Options { abilities: Some(abilities), ..options() }).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        assert!(error.hint().is_some());
    }
}

/// Without hard links, reflinks, user xattrs, whiteouts and kernel locks this crate still works.
#[test]
fn a_file_system_with_few_features_works() {
    let fixture = fixture();
    let abilities = Abilities {
        locks: LockMethod::Symlink,
        user_xattr: false,
        hard_links: false,
        reflink: false,
        whiteout: false,
        ..fixture.store.abilities().clone()
    };
    let store =
        Store::open(fixture.store.path(), Options { abilities: Some(abilities), ..options() })
            .unwrap();
    let manifest = image(&store, "debian", &[layer_tar("a", b"1")]);
    crate::fixture::container(&store, Some("web"), &manifest).remove().unwrap();
    store.images().remove("debian", false).unwrap();
    assert!(names(&store.path().join("locks")).is_empty(), "no link is left");
}

/// Runs a test again in its own mount namespace after a shell script has prepared `$PLACE`. Returns
/// `false` in the parent, `true` in the child, `None` if this is impossible here.
fn in_place(test: &str, prepare: &str) -> Option<bool> {
    if std::env::var_os(PLACE).is_some() {
        return Some(true);
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP {test}: mounting needs root");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "set -e; mount --make-rprivate /; cd '{}'; {{ {prepare}\n}} || exit 77; exec \"$0\" \"$@\"",
        dir.path().display()
    );
    let status = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("filesystems::{test}"), "--nocapture"])
        .env(PLACE, dir.path().join("place"))
        .status()
        .unwrap();
    if status.code() == Some(77) {
        eprintln!("SKIP {test}: cannot prepare the file system here");
        return None;
    }
    assert!(status.success());
    Some(false)
}

fn place() -> std::path::PathBuf {
    std::env::var_os(PLACE).unwrap().into()
}

#[test]
fn tmpfs() {
    if in_place("tmpfs", "mkdir place && mount -t tmpfs -o mode=755 none place") == Some(true) {
        let store = Store::open(&place().join("store"), options()).unwrap();
        assert_eq!(store.abilities().file_system, "tmpfs");
        image(&store, "debian", &[layer_tar("a", b"1")]);
        assert!(store.verify(&store::VerifyOptions::default()).unwrap().is_empty());
    }
}

#[test]
fn without_user_attributes() {
    let prepare = "mkdir place && mount -t ramfs -o mode=755 none place";
    if in_place("without_user_attributes", prepare) == Some(true) {
        let store = Store::open(&place().join("store"), options()).unwrap();
        assert!(!store.abilities().user_xattr);
        image(&store, "debian", &[layer_tar("a", b"1")]);
        assert!(store.verify(&store::VerifyOptions::default()).unwrap().is_empty());
    }
}

#[test]
fn on_a_fuse_file_system() {
    let prepare = "mkdir place lower upper work \
        && fuse-overlayfs -o lowerdir=lower,upperdir=upper,workdir=work place";
    if in_place("on_a_fuse_file_system", prepare) == Some(true) {
        let store = Store::open(&place().join("store"), options()).unwrap();
        assert_eq!(store.abilities().file_system, "fuse");
        image(&store, "debian", &[layer_tar("a", b"1")]);
        assert!(store.verify(&store::VerifyOptions::default()).unwrap().is_empty());
        store.images().remove("debian", false).unwrap();
    }
}

#[test]
fn vfat_is_refused() {
    let prepare = "mkdir place && truncate -s 20M image && mkfs.vfat image >/dev/null && mount -o loop,umask=077 image place";
    if in_place("vfat_is_refused", prepare) == Some(true) {
        let error = Store::open(&place().join("store"), options()).unwrap_err();
        assert!(
            matches!(&error, Error::Unfit { file_system, .. } if file_system == "vfat"),
            "{error}"
        );
    }
}

#[test]
fn a_full_disk_is_reported_and_loses_nothing() {
    let prepare = "mkdir place && mount -t tmpfs -o mode=755,size=600k none place";
    if in_place("a_full_disk_is_reported_and_loses_nothing", prepare) != Some(true) {
        return;
    }
    let store = Store::open(&place().join("store"), options()).unwrap();
    image(&store, "small", &[layer_tar("a", b"1")]);
    let big: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 251) as u8).collect();
    let descriptor = oci::Descriptor::of("x", &big);
    let store::BeginBlob::Ingest(mut ingest) = store.blobs().begin(&descriptor).unwrap() else {
        panic!("it cannot be here")
    };
    let error = std::io::Write::write_all(&mut ingest, &big).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    drop(ingest);
    let error = store.containers().create(Some("web"), |_, _| "x".repeat(100_000)).unwrap_err();
    assert!(error.is_full() && error.hint().unwrap().contains("full"), "{error}");
    assert!(store.containers().list().unwrap().is_empty());
    let options = store::CollectOptions {
        partials_older_than: std::time::Duration::ZERO,
        ..Default::default()
    };
    assert!(store.collect(&options, &store::remove_owned).unwrap().bytes > 0);
    store.containers().create(Some("web"), |_, _| 1).unwrap();
    assert!(store.verify(&store::VerifyOptions::default()).unwrap().is_empty());
}

#[test]
fn a_read_only_store_can_be_read() {
    let prepare = "mkdir -m 755 place && mkdir place/store && mount --bind place place";
    if in_place("a_read_only_store_can_be_read", prepare) != Some(true) {
        return;
    }
    let path = place().join("store");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let manifest =
        image(&Store::open(&path, options()).unwrap(), "debian", &[layer_tar("a", b"1")]);
    assert!(
        Command::new("mount")
            .args(["-o", "remount,ro,bind"])
            .arg(place())
            .status()
            .unwrap()
            .success()
    );
    let store = Store::open(&path, options()).unwrap();
    assert_eq!(store.read_only(), Some("the file system is mounted read-only"));
    let found = store.images().find("debian").unwrap();
    assert_eq!(found.digest(), &manifest.digest);
    let layer = oci::Digest::of(&layer_tar("a", b"1"));
    assert!(store.layers().get(&layer).unwrap().is_some());
    assert!(store.containers().list().unwrap().is_empty());
    assert!(store.verify(&store::VerifyOptions::default()).unwrap().is_empty());
    let refusals = [
        store.images().remove("debian", false).map(|_| ()),
        store.images().tag(&crate::fixture::reference("x"), &manifest),
        store.containers().create(None, |_, _| 1).map(|_| ()),
        store.blobs().put_bytes(b"new").map(|_| ()),
        store.collect(&store::CollectOptions::default(), &store::remove_owned).map(|_| ()),
        store.volumes().create("vv", &store::VolumeInfo::default()).map(|_| ()),
    ];
    for refusal in refusals {
        let error = refusal.unwrap_err();
        assert!(
            matches!(error, Error::ReadOnly { .. }) && error.to_string().contains("read-only"),
            "{error}"
        );
    }
    // A store on top of it can be written.
    let top = std::env::temp_dir().join(format!("coracle-top-{}", std::process::id()));
    let top_store = Store::open(&top, Options { below: vec![path], ..options() }).unwrap();
    crate::fixture::container(&top_store, Some("web"), &manifest);
    unpack(&top_store, &oci::Digest::of(b"other"), &[]);
    std::fs::remove_dir_all(&top).unwrap();
}

/// Another user's store is read-only, also for the superuser.
#[test]
fn a_store_of_another_user_is_read_only() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP a_store_of_another_user_is_read_only: changing owners needs root");
        return;
    }
    let fixture = fixture();
    image(&fixture.store, "debian", &[layer_tar("a", b"1")]);
    std::os::unix::fs::chown(fixture.store.path(), Some(1000), Some(1000)).unwrap();
    let store = fixture.again();
    assert!(store.read_only().unwrap().contains("belongs to user id 1000"));
    assert!(store.images().find("debian").is_ok());
}
