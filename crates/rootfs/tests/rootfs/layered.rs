//! Upper directories as engines without mounts leave them: directories of the image under other
//! names, and files that are the image's; and their forms for the kernel.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rootfs::frame::{Buffered, Reader};
use rootfs::union::IdMap;
use rootfs::{Driver, ImageTrees, Layer, Limits, Root, diff, pack, settle, unshare};
use testkit::layer::{Entry, Layer as Archive};

use crate::common::{Place, is_whiteout, marks_on_disk};

const REDIRECT: &str = "user.overlay.redirect";
const ORIGIN: &str = "user.coracle.origin";

/// An image in the form of such engines, and a container above it.
struct Made {
    image: ImageTrees,
    lower: PathBuf,
    container: PathBuf,
    root: Root,
}

impl Made {
    fn new(place: &Place) -> Self {
        let mut archive = Archive::new().dir("a").dir("a/b").dir("other");
        for (path, text) in [("a/f", "f"), ("a/gone", "gone"), ("a/b/g", "g"), ("other/h", "h")] {
            archive = archive.file(path, 0o644, text);
        }
        archive.push(&Entry::new(b'2', "a/l").link("nowhere").mode(0o777).owner(5, 6));
        archive.push(&Entry::new(b'0', "a/owned").mode(0o4755).owner(7, 8).data("owned"));
        let (layer, _) = place.apply(&archive.finish());
        let directory = place.fresh();
        let staging = File::open(&directory).unwrap();
        let meta = rootfs::flatten::flatten_with_owner_xattrs(&[layer], &staging).unwrap();
        let image = ImageTrees::flat(Layer::new(directory.clone(), meta));
        let container = place.fresh();
        let root = rootfs::prepare(&container, &image, Driver::Layered).unwrap();
        Self { image, lower: directory.join("tree"), container, root }
    }

    fn upper(&self, path: &str) -> PathBuf {
        self.container.join("upper").join(path)
    }

    /// Renames `a` to `own/x`, moves `a/b` on to `y`, removes `own/x/gone`, adds `own/x/new`; gives
    /// files of the image further names, and a link another one.
    fn change(&self) {
        for (path, target) in [("own", ""), ("own/x", "/a"), ("y", "/a/b")] {
            fs::create_dir(self.upper(path)).unwrap();
            if !target.is_empty() {
                set(&self.upper(path), REDIRECT, target);
            }
        }
        for path in ["a", "own/x/b", "own/x/gone", "own/x/l"] {
            let (path, kind) = (self.upper(path), rustix::fs::FileType::CharacterDevice);
            let mode = rustix::fs::Mode::empty();
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        }
        fs::write(self.upper("own/x/new"), "new").unwrap();
        fs::hard_link(self.lower.join("a/f"), self.upper("again")).unwrap();
        fs::hard_link(self.lower.join("a/owned"), self.upper("owned")).unwrap();
        fs::hard_link(self.lower.join("a/l"), self.upper("link")).unwrap();
        // Names that were given up tell nothing.
        fs::write(self.container.join("moved"), b"1 own/x\x002 own/x/b\x002 y\x001 gone\0")
            .unwrap();
    }

    fn export(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let options = pack::Options::default();
        let (image, root) = (Some(&self.image), Some(&self.root));
        pack::export(image, root, &IdMap::default(), options, &mut bytes).unwrap();
        bytes
    }

    fn changes(&self) -> Vec<String> {
        let changes = diff::diff(&self.image, &self.root, &IdMap::default()).unwrap();
        let line = |change: diff::Change| {
            format!("{} {}", change.kind.letter(), String::from_utf8_lossy(&change.path))
        };
        changes.into_iter().map(line).collect()
    }
}

fn set(path: &Path, name: &str, value: &str) {
    sys::fs::xattr::set(File::open(path).unwrap(), name.as_bytes(), value.as_bytes()).unwrap();
}

fn has(path: &Path, name: &str) -> bool {
    sys::fs::xattr::get(File::open(path).unwrap(), name.as_bytes()).unwrap().is_some()
}

/// The inodes below a directory that are none.
fn inodes(top: &Path) -> HashSet<u64> {
    let (mut found, mut stack) = (HashSet::new(), vec![top.to_owned()]);
    while let Some(path) = stack.pop() {
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            stack.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            found.insert(meta.ino());
        }
    }
    found
}

/// Name, owner, link and contents of each entry.
fn entries(bytes: &[u8]) -> Vec<(String, u32, u32, String)> {
    let limits = Limits::default();
    let mut reader = Reader::new(Buffered::new(bytes), &limits);
    let mut all = Vec::new();
    while let Some(entry) = reader.next_entry().unwrap() {
        let mut text = entry.link.clone();
        while !reader.data().unwrap().is_empty() {
            text.extend_from_slice(reader.data().unwrap());
            let length = reader.data().unwrap().len();
            reader.advance(length);
        }
        let string = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        all.push((string(&entry.path), entry.uid, entry.gid, string(&text)));
    }
    all
}

#[test]
fn renamed_directories_are_read() {
    let place = Place::new();
    if !marks_on_disk(&place) {
        return;
    }
    let made = Made::new(&place);
    made.change();
    let all = entries(&made.export());
    let find = |name: &str| all.iter().find(|(path, ..)| path == name);
    for (name, user, group) in
        [("own/x/f", 0, 0), ("own/x/owned", 7, 8), ("link", 5, 6), ("y/g", 0, 0)]
    {
        let found = find(name).map(|(_, user, group, _)| (*user, *group));
        assert_eq!(found, Some((user, group)), "{name}");
    }
    for name in ["a/", "a/f", "own/x/l", "own/x/b/", "own/x/gone", "own/x/b/g"] {
        assert_eq!(find(name), None);
    }
    let changes = made.changes();
    for line in ["D a", "A own/x/f", "A own/x/new", "A y/g", "A again", "A link"] {
        assert!(changes.contains(&line.to_owned()), "{line}: {changes:?}");
    }
    assert!(!changes.iter().any(|line| line.contains("gone") || line.contains("other")));
}

#[test]
fn the_kernel_gets_what_it_knows() {
    let place = Place::new();
    if !marks_on_disk(&place) {
        return;
    }
    let made = Made::new(&place);
    made.change();
    let (before, changes) = (made.export(), made.changes());
    assert!(unshare::is_shared(&made.container));
    unshare::unshare(&made.container, &made.image).unwrap();
    assert!(!unshare::is_shared(&made.container));
    assert!(inodes(&made.upper("")).is_disjoint(&inodes(&made.lower)), "files of the image");
    for path in ["own/x", "y"] {
        let path = made.upper(path);
        assert!(!has(&path, REDIRECT) && has(&path, "user.overlay.opaque"));
    }
    for path in ["own/x/gone", "own/x/b"] {
        assert!(made.upper(path).symlink_metadata().is_err(), "nothing is hidden by {path}");
    }
    assert!(is_whiteout(&made.upper("a")));
    assert_eq!(entries(&made.export()), entries(&before));
    assert_eq!(made.changes(), changes);
    // Nothing is left to be done.
    unshare::unshare(&made.container, &made.image).unwrap();
    assert_eq!(entries(&made.export()), entries(&before));
}

#[test]
fn an_interrupted_conversion_goes_on() {
    let place = Place::new();
    if !marks_on_disk(&place) {
        return;
    }
    let made = Made::new(&place);
    made.change();
    let before = entries(&made.export());
    // One directory is half full, another has both marks.
    fs::hard_link(made.lower.join("a/f"), made.upper("own/x/f")).unwrap();
    set(&made.upper("y"), "user.overlay.opaque", "y");
    fs::hard_link(made.lower.join("a/b/g"), made.upper("y/g")).unwrap();
    fs::create_dir(made.container.join("unshare.new")).unwrap();
    unshare::unshare(&made.container, &made.image).unwrap();
    assert_eq!(entries(&made.export()), before);
    assert!(inodes(&made.upper("")).is_disjoint(&inodes(&made.lower)));
}

#[test]
fn what_the_kernel_wrote_gets_records() {
    let place = Place::new();
    if !marks_on_disk(&place) {
        return;
    }
    let made = Made::new(&place);
    let root = made.upper("");
    fs::create_dir_all(root.join("other/new")).unwrap();
    fs::write(root.join("other/new/file"), "").unwrap();
    fs::create_dir(root.join("a")).unwrap();
    set(&root.join("a"), "user.overlay.opaque", "y");
    let before = made.export();
    for _ in 0..2 {
        let left = settle::settle(&made.container, &made.image, &IdMap::default()).unwrap();
        assert!(left.is_empty());
        // Directories that are merged with the image's have its number, and others do not.
        assert!(has(&root, ORIGIN) && has(&root.join("other"), ORIGIN));
        assert!(!has(&root.join("other/new"), ORIGIN) && !has(&root.join("a"), ORIGIN));
        assert_eq!(root.join("other").metadata().unwrap().mode() & 0o1000, 0o1000, "its mark");
        assert!(made.export() == before);
    }
}
