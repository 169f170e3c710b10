//! Tests that a container's changes are seen by `diff`, `export` and `cp`, and never change its
//! image.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use testkit::command::{Input, run_with};
use testkit::fingerprint;
use testkit::image::Image;
use testkit::layer::Entry;
use testkit::skip::Outcome;

use crate::contract::patched_code::compiled;
use crate::contract::world::{Case, Container, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("image_never_changes", image_never_changes),
    ("no_way_of_writing_changes_the_image", no_way_of_writing_changes_the_image),
    ("mappings_and_handles_change_no_image", mappings_and_handles_change_no_image),
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
    let all = parts.iter().flat_map(|part| fingerprint::of(&w.store().join(part)));
    // Any later process may mark a tree as synced, and engines keep what they make beside it.
    let marks = ["/tree.json", "/layer.json"];
    let is_mark = |path: &str| marks.iter().any(|mark| path.ends_with(mark));
    all.filter(|(path, _)| !is_mark(path) && !path.contains("/made/")).collect()
}

/// Checks that all earlier files are still there and unchanged.
#[track_caller]
fn assert_unchanged(w: &World, before: &BTreeMap<String, String>) {
    let after = of_images(w);
    for (path, facts) in before {
        assert_eq!(after.get(path), Some(facts), "{path} changed");
    }
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

/// The names that a verb of the guest prints.
fn ways(w: &World, verb: &str) -> Vec<String> {
    let ways = w.json(&[], &[verb]);
    let ways = ways.as_array().into_iter().flatten();
    ways.filter_map(|way| way.as_str()).map(str::to_owned).collect()
}

/// An image with a file (in one directory with two names, in one of another owner) and a directory
/// for each way of writing.
fn spoilt(w: &World) -> Image {
    let mut layer = testkit::guest::layer();
    for dir in ["spoil", "spoil/one", "spoil/two", "spoil/theirs", "spoil/directories"] {
        layer.push(&Entry::new(b'5', dir).mode(0o755));
    }
    for way in ways(w, "ways") {
        layer = layer
            .file(&format!("spoil/one/{way}"), 0o644, "of the image\n")
            .file(&format!("spoil/two/{way}"), 0o755, "of the image\n")
            .hardlink(&format!("spoil/two/{way}.second"), &format!("spoil/two/{way}"));
        let theirs = Entry::new(b'0', format!("spoil/theirs/{way}")).owner(7, 7).mode(0o444);
        layer = layer.entry(&theirs.data("of the image\n"));
    }
    for way in ways(w, "ways-of-directories") {
        let dir = format!("spoil/directories/{way}");
        layer.push(&Entry::new(b'5', &dir).mode(0o755));
        layer = layer
            .file(&format!("{dir}/file"), 0o644, "of the image\n")
            .dir(&format!("{dir}/empty"))
            .dir(&format!("{dir}/sub"))
            .file(&format!("{dir}/sub/two"), 0o644, "of the image\n")
            .symlink(&format!("{dir}/link"), "file");
    }
    Image::new().layer(layer)
}

/// A store of its own with an image that is unpacked in every form.
fn with_image(w: &World, image: &Image, stem: &str) -> (World, String) {
    let name = format!("localhost/{}:1", w.name(stem));
    let layout = w.dir(stem).join("layout");
    image.build().write_layout(&layout, &name).expect("a layout");
    let w = alone(w);
    w.coracle(&["load", "-q", "-i", &layout.display().to_string()]).ok();
    w.coracle(&["run", "--rm", &w.mode(), &name, "/bin/guest", "list", "/"]).ok();
    (w, name)
}

/// Each way to write to a file, on a file of the image, on one with two names there, and on one of
/// another owner; then each way to change a directory.
fn no_way_of_writing_changes_the_image(w: &World) -> Outcome {
    let (w, image) = with_image(w, &spoilt(w), "spoil");
    no_way_of_writing(&w, &image, &w.mode());
    if w.engine == "F2" {
        no_way_of_writing(&w, &image, "--execmode=F1");
    }
    Ok(())
}

fn no_way_of_writing(w: &World, image: &str, mode: &str) {
    let before = of_images(w);
    assert!(before.keys().any(|path| path.ends_with("spoil/one/fchmod")));
    let name = w.name("spoil");
    let _container = Container::named(w, &name);
    let mut words = vec!["run", "--name", &name, mode, image, "/bin/guest"];
    words.extend("spoil /spoil/one ; spoil /spoil/two ; spoil /spoil/theirs ;".split(' '));
    words.extend(["spoil-directories", "/spoil/directories"]);
    let done = w.coracle(&words).ok().out();
    let mut allowed = Vec::new();
    if w.has_overlay() {
        // An overlay copies up a deleted file to a name that another file has now.
        allowed.push(("unlink-then-create", "EEXIST"));
        // And without `redirect_dir` it renames no directory of the image.
        let renames =
            ["rename", "rename-inside", "rename-by-descriptor", "rename-over-empty", "exchange"];
        allowed.extend(renames.map(|name| (name, "EXDEV")));
    }
    let failed = done.lines().flat_map(|line| {
        let line: Vec<(String, String)> = serde_json::from_str(line).expect("JSON");
        line
    });
    let failed: Vec<_> =
        failed.filter(|(way, why)| !allowed.contains(&(way.as_str(), why.as_str()))).collect();
    assert!(failed.is_empty() && done.lines().count() == 4, "{mode}: {failed:?}");
    assert_unchanged(w, &before);
    // The changes are there, by both names.
    let read = |path: &str| w.coracle(&["run", mode, &name, "/bin/guest", "read", path]).ok().out();
    assert_eq!(read("/spoil/two/write"), "spoilt by a container\n");
    assert_eq!(read("/spoil/theirs/rename-over"), "spoilt by a container\n");
    if !w.has_overlay() {
        assert_eq!(read("/spoil/directories/rename.moved/sub/two"), "of the image\n");
    }
    w.coracle(&["verify", image]).ok();
    assert_unchanged(w, &before);
}

/// The ways that need unsafe code: shared mappings, file handles, a program that is executed.
fn mappings_and_handles_change_no_image(w: &World) -> Outcome {
    let dir = w.dir("mapped");
    let source = w.file(&dir, "mapped.c", include_str!("mapped.c"));
    let program = compiled(&source, &["-static"])?;
    let bytes = fs::read(&program).expect("a program");
    let mut layer = testkit::guest::layer().file("bin/mapped", 0o755, bytes);
    for name in ["early", "private", "read", "handle", "late"] {
        layer = layer.file(&format!("data/{name}"), 0o644, "of the image\n");
    }
    let (w, image) = with_image(w, &Image::new().layer(layer), "mapped");
    let before = of_images(&w);
    let also = (w.engine == "F2").then_some("F1");
    for mode in [w.engine.as_str()].into_iter().chain(also) {
        let mode = format!("--execmode={mode}");
        let done = w.coracle(&["run", "--rm", &mode, &image, "/bin/mapped"]);
        let expected = "written: O\nread only: Permission denied\nprivate: o\nlate: O o\n\
                        running: Text file busy\nhandle: no\n";
        assert_eq!(done.ok().out(), expected, "{mode}: {done:?}");
        assert_unchanged(&w, &before);
    }
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
