//! Tests that a container's changes are seen by `diff`, `export` and `cp`, and never change its
//! image.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use testkit::command::{Input, run_with};
use testkit::image::Image;
use testkit::layer::Entry;
use testkit::skip::Outcome;

use crate::world::{Case, Container, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("image_never_changes", image_never_changes),
    ("no_way_of_writing_changes_the_image", no_way_of_writing_changes_the_image),
    ("changes_stay_in_the_container", changes_stay_in_the_container),
    ("diff", diff),
    ("copy_in_and_out", copy_in_and_out),
    ("copy_through_links_stays_inside", copy_through_links_stays_inside),
    ("copy_streams", copy_streams),
    ("export_is_the_tree", export_is_the_tree),
    ("export_then_import", export_then_import),
];

/// A store for this case alone: in the shared one, other cases remove blobs of their images.
fn alone(w: &World) -> World {
    w.at(&w.dir("alone"))
}

/// The parts of a store that containers share.
fn of_images(w: &World) -> BTreeMap<String, String> {
    let parts = ["layers", "trees", "oci/blobs"];
    parts.iter().flat_map(|part| fingerprint(&w.store().join(part))).collect()
}

/// Checks that all earlier files are still there and unchanged.
#[track_caller]
fn assert_unchanged(w: &World, before: &BTreeMap<String, String>) {
    let after = of_images(w);
    for (path, facts) in before {
        assert_eq!(after.get(path), Some(facts), "{path} changed");
    }
}

fn fingerprint(root: &Path) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let mut stack = vec![root.to_owned()];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            // Any later process may mark a tree as synced there.
            if path.ends_with("tree.json") || path.ends_with("layer.json") {
                continue;
            }
            let contents = match () {
                () if meta.is_file() => {
                    fs::read(&path).map(|b| testkit::image::digest(&b)).unwrap_or_default()
                }
                () if meta.is_symlink() => {
                    fs::read_link(&path).map(|l| l.display().to_string()).unwrap_or_default()
                }
                () => String::new(),
            };
            let (mode, uid, gid, time) = (meta.mode(), meta.uid(), meta.gid(), meta.mtime());
            let facts = format!("{mode:o} {uid}:{gid} {time} {contents}");
            seen.insert(path.display().to_string(), facts);
            if meta.is_dir() {
                stack.push(path);
            }
        }
    }
    seen
}

/// Operations of every kind: change, remove, move, create. (Renaming a directory of the image is
/// EXDEV on every overlay; `mv` copies it then.)
fn changes() -> Vec<&'static str> {
    "write /etc/image-file changed ; remove /data/remove-me ; chmod /data/one 600 ; \
     mkdir /data/moved ; rename /data/sub/two /data/moved/two ; remove /data/sub ; \
     mkdir /new ; write /new/file x ; symlink x /new/link ; append /data/one more ;"
        .split_whitespace()
        .collect()
}

fn image_never_changes(w: &World) -> Outcome {
    let file = w.dir("image").join("saved").display().to_string();
    w.coracle(&["save", "--format", "oci-archive", "-o", &file, &w.image]).ok();
    let w = &alone(w);
    w.coracle(&["load", "-q", "-i", &file]).ok();
    // Run once before, so that the image is unpacked.
    w.guest(&[], &["exit", "0"]).ok();
    let before = of_images(w);
    assert!(before.len() > 30, "the store's trees were found");
    let mut guest = changes();
    guest.extend([
        "chown",
        "/etc/alices",
        "0",
        "0",
        ";",
        "chmod",
        "/",
        "700",
        ";",
        "remove",
        "/home",
    ]);
    w.guest(&[], &guest).ok();
    w.guest(&["--userns=keep-id"], &["write", "/tmp/x", "y"]);
    assert_unchanged(w, &before);
    w.coracle(&["verify", &w.image]).ok();
    Ok(())
}

/// Each way to write to a file, on a file of the image (and on one with two names there).
fn no_way_of_writing_changes_the_image(w: &World) -> Outcome {
    let ways = w.json(&[], &["ways"]);
    let ways: Vec<&str> = ways.as_array().unwrap().iter().filter_map(|way| way.as_str()).collect();
    let mut layer = testkit::guest::layer();
    for dir in ["spoil", "spoil/one", "spoil/two", "spoil/theirs"] {
        layer.push(&Entry::new(b'5', dir).mode(0o755));
    }
    for way in ways {
        layer = layer
            .file(&format!("spoil/one/{way}"), 0o644, "of the image\n")
            .file(&format!("spoil/two/{way}"), 0o755, "of the image\n")
            .hardlink(&format!("spoil/two/{way}.second"), &format!("spoil/two/{way}"));
        let theirs = Entry::new(b'0', format!("spoil/theirs/{way}")).owner(7, 7).mode(0o444);
        layer = layer.entry(&theirs.data("of the image\n"));
    }
    let image = format!("localhost/{}:1", w.name("spoil"));
    let layout = w.dir("spoil").join("layout");
    Image::new().layer(layer).build().write_layout(&layout, &image).expect("a layout");
    let w = &alone(w);
    w.coracle(&["load", "-q", "-i", &layout.display().to_string()]).ok();
    let mode = w.mode();
    // Run once before, so that the image is unpacked in every form.
    w.coracle(&["run", "--rm", &mode, &image, "/bin/guest", "list", "/spoil"]).ok();
    let before = of_images(w);
    assert!(before.keys().any(|path| path.ends_with("spoil/one/fchmod")));
    let name = w.name("spoil");
    let _container = Container::named(w, &name);
    let mut words = vec!["run", "--name", &name];
    words.extend([&mode[..], &image, "/bin/guest"]);
    words.extend("spoil /spoil/one ; spoil /spoil/two ; spoil /spoil/theirs".split(' '));
    let done = w.coracle(&words).ok().out();
    // An overlay copies up a deleted file to a name that another file has now.
    let overlay = w.has_overlay();
    let done =
        done.replace("[[\"unlink-then-create\",\"EEXIST\"]]", if overlay { "[]" } else { "?" });
    assert_eq!(done, "[]\n[]\n[]\n");
    assert_unchanged(w, &before);
    // The changes are there, by both names.
    let read =
        |path: &str| w.coracle(&["run", &mode, &name, "/bin/guest", "read", path]).ok().out();
    assert_eq!(read("/spoil/two/write"), "spoilt by a container\n");
    assert_eq!(read("/spoil/theirs/rename-over"), "spoilt by a container\n");
    w.coracle(&["verify", &image]).ok();
    Ok(())
}

fn changes_stay_in_the_container(w: &World) -> Outcome {
    w.guest(&[], &changes()).ok();
    assert_eq!(w.guest(&[], &["read", "/etc/image-file"]).ok().out(), "from the image\n");
    assert_eq!(w.guest(&[], &["read", "/data/sub/two"]).ok().out(), "2\n");
    Ok(())
}

fn diff(w: &World) -> Outcome {
    let name = w.name("diff");
    let _container = Container::named(w, &name);
    w.coracle(&w.words_for(&["run"], &["--name", &name], &changes())).ok();
    let text = w.coracle(&["diff", &name]).ok().out();
    let lines: Vec<&str> = text.lines().collect();
    for wanted in [
        "C /etc/image-file",
        "D /data/remove-me",
        "C /data/one",
        "D /data/sub",
        "A /data/moved",
        "A /data/moved/two",
        "A /new",
        "A /new/file",
        "A /new/link",
        "C /data",
    ] {
        assert!(lines.contains(&wanted), "{wanted} in {text}");
    }
    assert!(!text.contains("/proc") && !text.contains("/dev/"), "mounts are no changes: {text}");
    Ok(())
}

fn copy_in_and_out(w: &World) -> Outcome {
    let dir = w.dir("cp");
    w.file(&dir, "file", "contents\n");
    let name = w.name("cp");
    let _container = Container::named(w, &name);
    w.coracle(&["create", &w.mode(), "--name", &name, &w.image]).ok();
    let at = |path: &str| format!("{name}:{path}");
    let host = |path: &str| dir.join(path).display().to_string();
    w.coracle(&["cp", &host("file"), &at("/etc/copied")]).ok();
    w.coracle(&["cp", &host("file"), &at("/data/")]).ok();
    let read =
        w.coracle(&["run", &name, "/bin/guest", "read", "/etc/copied", ";", "read", "/data/file"]);
    assert_eq!(read.ok().out(), "contents\ncontents\n");
    w.coracle(&["cp", &at("/data"), &host("out")]).ok();
    assert_eq!(fs::read_to_string(dir.join("out/sub/two")).ok().as_deref(), Some("2\n"));
    w.coracle(&["cp", &at("/etc/image-file"), &host("back")]).ok();
    assert_eq!(fs::read_to_string(dir.join("back")).ok().as_deref(), Some("from the image\n"));
    // Copies a directory into a running container.
    let c = w.detached(&[], &["sleep", "300"]);
    w.coracle(&["cp", &host("out"), &format!("{}:/tmp/dir", c.name)]).ok();
    assert_eq!(c.exec(&[], &["read", "/tmp/dir/sub/two"]).ok().out(), "2\n");
    assert_ne!(w.coracle(&["cp", &at("/no/such"), &host("x")]).code(), 0);
    Ok(())
}

fn copy_through_links_stays_inside(w: &World) -> Outcome {
    let dir = w.dir("cplink");
    let file = w.file(&dir, "file", "x");
    let name = w.name("cplink");
    let _container = Container::named(w, &name);
    w.coracle(&["create", &w.mode(), "--name", &name, &w.image]).ok();
    let target = format!("{name}:/var/link-out/coracle-contract-test");
    w.coracle(&["cp", &file.display().to_string(), &target]).ok();
    assert!(!Path::new("/etc/coracle-contract-test").exists(), "written to the host");
    let read = w.coracle(&["run", &name, "/bin/guest", "read", "/etc/coracle-contract-test"]);
    assert_eq!(read.ok().out(), "x");
    let out = dir.join("passwd").display().to_string();
    w.coracle(&["cp", &format!("{name}:/var/link-out/passwd"), &out]).ok();
    assert!(
        fs::read_to_string(&out).unwrap_or_default().contains("Alice"),
        "the image's, not the host's"
    );
    Ok(())
}

fn copy_streams(w: &World) -> Outcome {
    let name = w.name("cptar");
    let _container = Container::named(w, &name);
    w.coracle(&["create", &w.mode(), "--name", &name, &w.image]).ok();
    let done = w.coracle(&["cp", &format!("{name}:/data"), "-"]);
    let names = tar_names(&done.ok().stdout);
    assert!(names.iter().any(|name| name == "data/sub/two"), "{names:?}");
    let tar = testkit::layer::Layer::new().file("put/file", 0o600, "by tar").finish();
    let mut command = w.command(&["cp", "-", &format!("{name}:/tmp")]);
    run_with(&mut command, Input::Bytes(tar), LIMIT).ok();
    assert_eq!(
        w.coracle(&["run", &name, "/bin/guest", "read", "/tmp/put/file"]).ok().out(),
        "by tar"
    );
    Ok(())
}

fn tar_names(bytes: &[u8]) -> Vec<String> {
    tar_list(bytes).into_iter().map(|(name, ..)| name).collect()
}

/// Name, mode, uid and gid of each entry, by GNU tar, which shares no code with Coracle.
pub(crate) fn tar_list(bytes: &[u8]) -> Vec<(String, String, String)> {
    let mut command = std::process::Command::new("tar");
    command.args(["--numeric-owner", "-tvf", "-"]).env("TZ", "UTC");
    let done = run_with(&mut command, Input::Bytes(bytes.to_vec()), LIMIT);
    let mut list = Vec::new();
    for line in done.ok().out().lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let name = fields.get(5).copied().unwrap_or_default();
        let name = name.trim_start_matches("./").trim_end_matches('/');
        list.push((name.to_owned(), fields[0].to_owned(), fields[1].to_owned()));
    }
    list
}

fn export_is_the_tree(w: &World) -> Outcome {
    let name = w.name("export");
    let _container = Container::named(w, &name);
    w.coracle(&w.words_for(&["run"], &["--name", &name], &changes())).ok();
    let done = w.coracle(&["export", &name]);
    let list = tar_list(&done.ok().stdout);
    let entry = |path: &str| list.iter().find(|(name, ..)| name == path);
    for path in ["bin/guest", "new/file", "data/moved/two", "etc/image-file"] {
        assert!(entry(path).is_some(), "{path} in the export");
    }
    for path in ["data/remove-me", "data/sub"] {
        assert!(entry(path).is_none(), "{path} was removed");
    }
    // Owners and modes that an unprivileged user cannot set on disk are in the archive.
    assert_eq!(
        entry("etc/alices").map(|(_, mode, owner)| (mode.as_str(), owner.as_str())),
        Some(("-rw-r-----", "1234/1235"))
    );
    assert_eq!(entry("bin/setuid").map(|(_, mode, _)| mode.as_str()), Some("-rwsr-xr-x"));
    let second = w.coracle(&["export", &name]);
    assert!(second.ok().stdout == done.stdout, "two exports are the same bytes");
    Ok(())
}

fn export_then_import(w: &World) -> Outcome {
    let name = w.name("imported");
    let _container = Container::named(w, &name);
    w.coracle(&["create", &w.mode(), "--name", &name, &w.image]).ok();
    let dir = w.dir("export");
    let file = dir.join("tree.tar").display().to_string();
    w.coracle(&["export", "-o", &file, &name]).ok();
    let image = format!("localhost/test/{name}:1");
    w.coracle(&[
        "import",
        "--change",
        "CMD [\"/bin/guest\",\"say\",\"imported\"]",
        "-c",
        "ENV A=b",
        &file,
        &image,
    ])
    .ok();
    assert_eq!(w.coracle(&["run", "--rm", &image]).ok().out(), "imported\n");
    assert_eq!(
        w.coracle(&["run", "--rm", &image, "/bin/guest", "getenv", "A"]).ok().out(),
        "\"b\"\n"
    );
    w.coracle(&["rmi", &image]).ok();
    Ok(())
}
