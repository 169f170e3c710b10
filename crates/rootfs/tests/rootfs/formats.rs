//! Tests of archive formats that few programs write today, and of other programs that read this
//! crate's archives.

use crate::common::{Place, names};
use std::process::Command;
use testkit::layer::{Entry, Layer};

#[test]
fn global_headers_and_labels_are_skipped() {
    let place = Place::new();
    let tar = Layer::new()
        .entry(&Entry::new(b'g', "pax_global_header").data("20 comment=deadbeef\n"))
        .entry(&Entry::new(b'V', "volume label"))
        .file("f", 0o644, "x")
        .finish();
    let (layer, applied) = place.apply(&tar);
    assert_eq!(names(&layer.tree()), ["f"]);
    assert_eq!(applied.meta.entries, 1);
}

#[test]
fn directories_of_v7_have_a_slash() {
    let place = Place::new();
    let tar =
        Layer::new().entry(&Entry::new(b'0', "d/").mode(0o750)).file("d/f", 0o644, "").finish();
    let (layer, applied) = place.apply(&tar);
    assert!(layer.tree().join("d").is_dir());
    assert!(applied.meta.implicit.is_empty());
}

#[test]
fn pax_records_win_over_headers() {
    let place = Place::new();
    let entry = Entry::new(b'0', "short")
        .data(vec![b'x'; 700])
        .claimed_size(0)
        .owner(1, 2)
        .pax("path", "long/name")
        .pax("size", "700")
        .pax("uid", "3000000000")
        .pax("gid", "4")
        .pax("LIBARCHIVE.xattr.user.a%3db", "aGVsbG8=")
        .pax("SCHILY.acl.access", "user::rw-");
    let (layer, applied) = place.apply(&Layer::new().entry(&entry).file("g", 0o644, "").finish());
    assert_eq!(std::fs::metadata(layer.tree().join("long/name")).unwrap().len(), 700);
    let record = applied.owners.get(b"long/name").unwrap();
    assert_eq!((record.uid, record.gid), (3_000_000_000, 4));
    assert_eq!(record.xattrs.get(&b"pax:SCHILY.acl.access"[..]).unwrap(), b"user::rw-");
}

#[test]
fn the_tar_crate_and_python_read_what_we_write() {
    let place = Place::new();
    let long = "d/".repeat(80) + "file";
    let tar = Layer::new()
        .file(&long, 0o644, "content")
        .symlink("link", &"t/".repeat(80))
        .entry(
            &Entry::new(b'0', "attr").owner(9_999_999, 5).xattr("user.x", "y").pax("mtime", "5.25"),
        )
        .entry(&Entry::new(b'3', "null").device(1, 3))
        .finish();
    let (layer, _) = place.apply(&tar);
    let image = rootfs::ImageTrees { layers: vec![layer], owner_layer: None };
    let mut bytes = Vec::new();
    let options = rootfs::pack::Options::default();
    let ids = rootfs::union::IdMap::default();
    rootfs::pack::export(Some(&image), None, &ids, options, &mut bytes).unwrap();
    let mut archive = tar::Archive::new(&bytes[..]);
    let mut seen = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        if path == long {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
            assert_eq!(text, "content");
        }
        seen.push((path, entry.header().entry_type()));
    }
    assert!(seen.contains(&(long, tar::EntryType::Regular)));
    assert!(seen.contains(&("null".to_owned(), tar::EntryType::Char)));
    let file = place.path().join("ours.tar");
    std::fs::write(&file, &bytes).unwrap();
    let script = "import tarfile,sys\nfor m in tarfile.open(sys.argv[1]): print(m.name[:20], m.uid, m.mtime)";
    match Command::new("python3").args(["-c", script]).arg(&file).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("attr 9999999 5.25"), "{text}");
        }
        Err(error) => eprintln!("SKIP python: {error}"),
    }
}
