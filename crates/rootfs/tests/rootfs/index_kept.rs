//! The index of a tree in a store: whatever is found in its place, the result is a right index or
//! none.

use crate::common::{Place, names};
use oci::Digest;
use rootfs::index::{INDEX, STAMP, build, checked, is_there, remake, verify};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use store::{BeginTree, Cached, Durability, Options, Store};
use testkit::layer::{Entry, Layer};

/// The directory with the store in which [`play_along`] takes part.
const DIRECTORY: &str = "CORACLE_TEST_INDEX";

struct Kept {
    place: Place,
    store: Store,
    tree: Cached,
    /// What its index must be.
    right: Vec<u8>,
}

fn options() -> Options {
    Options { create: true, durability: Durability::Relaxed, ..Options::default() }
}

fn key(name: &str) -> Digest {
    Digest::of(name.as_bytes())
}

fn archive(files: u32) -> Vec<u8> {
    let mut layer = Layer::new().dir("bin").symlink("lib", "usr/lib");
    for number in 0..files {
        let entry = Entry::new(b'0', format!("bin/{number}")).mode(0o4755).owner(7, number.into());
        layer.push(&entry);
    }
    layer.finish()
}

/// Adds a tree without an index, as an older build did.
fn add(place: &Place, store: &Store, name: &str, files: u32) -> Cached {
    let (layer, _) = place.apply(&archive(files));
    let BeginTree::Build(staging) = store.trees().begin(&key(name)).unwrap() else {
        panic!("{name} is there");
    };
    fs::remove_dir(staging.tree()).unwrap();
    let directory = File::open(staging.dir()).unwrap();
    let meta = rootfs::flatten::flatten_with_owner_xattrs(&[layer], &directory).unwrap();
    staging.commit(&meta).unwrap()
}

impl Kept {
    fn new() -> Self {
        let place = Place::new();
        let store = Store::open(&place.path().join("store"), options()).unwrap();
        let tree = add(&place, &store, "one", 20);
        let right = build(File::open(tree.path()).unwrap()).unwrap();
        Self { place, store, tree, right }
    }

    fn index(&self) -> PathBuf {
        self.tree.path().join(INDEX)
    }

    fn stamp(&self) -> PathBuf {
        self.tree.path().join(STAMP)
    }

    /// Asks for the index, which must be there and right.
    fn expect_right(&self, why: &str) {
        let path = checked(&self.store, &self.tree).expect(why);
        assert_eq!(path, self.index());
        self.is_right(why);
        let fast = checked(&self.store, &self.tree).expect(why);
        assert_eq!(fast, path);
        self.is_right(why);
    }

    fn is_right(&self, why: &str) {
        let meta = self.index().symlink_metadata().expect(why);
        assert!(meta.is_file(), "{why}");
        assert_eq!(meta.permissions().mode() & 0o7777, 0o400, "{why}");
        assert!(fs::read(self.index()).expect(why) == self.right, "{why}");
        assert!(nothing_half_made(&self.store), "{why}");
    }

    /// Puts other bytes into its place.
    fn put(&self, bytes: &[u8]) {
        clear(&self.index());
        fs::write(self.index(), bytes).unwrap();
        fs::set_permissions(self.index(), fs::Permissions::from_mode(0o400)).unwrap();
    }

    /// What the index is, by a look past all notes: its inode changes if it is made anew.
    fn inode(&self) -> u64 {
        self.index().symlink_metadata().unwrap().ino()
    }
}

/// Removes whatever has this name.
fn clear(path: &Path) {
    if path.is_dir() && !path.is_symlink() {
        fs::remove_dir_all(path).unwrap();
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(path).unwrap();
    }
}

fn nothing_half_made(store: &Store) -> bool {
    names(&store.path().join("tmp")).iter().all(|name| !name.contains("index"))
}

/// Numbers that are spread and the same in each run.
fn numbers(count: usize) -> impl Iterator<Item = usize> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 20) as usize
    })
    .take(count)
}

#[test]
fn a_missing_index_is_made_and_then_kept() {
    let kept = Kept::new();
    assert!(!is_there(&kept.tree));
    assert!(verify(&kept.tree).is_err());
    kept.expect_right("missing");
    let made = kept.inode();
    assert!(is_there(&kept.tree) && kept.stamp().exists());
    assert!(verify(&kept.tree).unwrap() == kept.right);
    kept.expect_right("noted");
    assert_eq!(kept.inode(), made, "it is made once");
    fs::remove_file(kept.stamp()).unwrap();
    kept.expect_right("the note is missing");
    assert!(kept.stamp().exists());
    assert_eq!(kept.inode(), made, "a missing note is no damage");
    remake(&kept.store, &kept.tree).unwrap();
    kept.expect_right("made anew");
}

#[test]
fn an_index_that_was_cut_is_made_anew() {
    let kept = Kept::new();
    let all = kept.right.len();
    let ends = (0..=128).chain(numbers(1000).map(|number| number % all));
    for end in ends {
        kept.put(&kept.right[..end]);
        kept.expect_right(&format!("cut at {end}"));
    }
    kept.put(&[&kept.right[..], b"x"].concat());
    kept.expect_right("longer by a byte");
    // A hole of a gigabyte is not read.
    clear(&kept.index());
    File::create(kept.index()).unwrap().set_len((1 << 30) + 1).unwrap();
    kept.expect_right("far too long");
}

#[test]
fn an_index_with_a_wrong_bit_is_made_anew() {
    let kept = Kept::new();
    let all = kept.right.len() * 8;
    for bit in numbers(1000).map(|number| number % all) {
        let mut bytes = kept.right.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        kept.put(&bytes);
        kept.expect_right(&format!("bit {bit}"));
    }
}

#[test]
fn a_note_about_another_file_does_not_count() {
    let kept = Kept::new();
    kept.expect_right("made");
    let mut bytes = kept.right.clone();
    bytes[200] ^= 1;
    let stale = fs::read_to_string(kept.stamp()).unwrap();
    kept.put(&bytes);
    fs::write(kept.stamp(), &stale).unwrap();
    kept.expect_right("a stale note");
    // The note of the right file, on another machine or before a restart.
    let note = fs::read_to_string(kept.stamp()).unwrap();
    let mut lines: Vec<&str> = note.lines().collect();
    assert_eq!(lines.len(), 3, "{note}");
    lines[2] = "00000000-0000-0000-0000-000000000000";
    fs::write(kept.stamp(), lines.join("\n")).unwrap();
    kept.expect_right("another machine");
    let both = fs::read_to_string(kept.stamp()).unwrap();
    assert!(both.contains(lines[2]) && both.contains(note.lines().nth(2).unwrap()), "{both}");
    // No other user may write the note.
    fs::set_permissions(kept.stamp(), fs::Permissions::from_mode(0o666)).unwrap();
    kept.expect_right("a note for all");
    assert_eq!(kept.stamp().metadata().unwrap().permissions().mode() & 0o7777, 0o644);
    for nonsense in [&b""[..], b"coracle-checked CorIdx02", b"\xff\n\n\n", &[b'\n'; 9000]] {
        fs::write(kept.stamp(), nonsense).unwrap();
        kept.expect_right("a damaged note");
    }
    for is_directory in [true, false] {
        clear(&kept.stamp());
        if is_directory {
            fs::create_dir(kept.stamp()).unwrap();
        } else {
            symlink("x", kept.stamp()).unwrap();
        }
        kept.expect_right("something else has the note's name");
        assert!(kept.stamp().symlink_metadata().unwrap().is_file());
    }
}

#[test]
fn an_index_of_another_format_is_made_anew() {
    let kept = Kept::new();
    kept.expect_right("made");
    let mut bytes = kept.right.clone();
    bytes[..8].copy_from_slice(b"CorIdx00");
    kept.put(&bytes);
    // What the program that made it has noted of it.
    let note = fs::read_to_string(kept.stamp()).unwrap();
    let boot = note.lines().nth(2).unwrap();
    let stat = fs::metadata(kept.tree.path().join(INDEX)).unwrap();
    let nanoseconds =
        |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let (mtime, ctime) = (
        nanoseconds(stat.mtime(), stat.mtime_nsec()),
        nanoseconds(stat.ctime(), stat.ctime_nsec()),
    );
    let facts = format!("{} {} {mtime} {ctime}", stat.ino(), stat.size());
    fs::write(kept.stamp(), format!("coracle-checked CorIdx00\n{facts}\n{boot}\n")).unwrap();
    kept.expect_right("of another format");
    assert_eq!(fs::read_to_string(kept.stamp()).unwrap().lines().next(), note.lines().next());
}

#[test]
fn the_index_of_another_tree_is_made_anew() {
    let kept = Kept::new();
    let other = add(&kept.place, &kept.store, "other", 20);
    let theirs = build(File::open(other.path()).unwrap()).unwrap();
    assert!(theirs != kept.right);
    kept.put(&theirs);
    kept.expect_right("of another tree");
    // A copied store: the same names, other inodes.
    checked(&kept.store, &other).unwrap();
    for name in [INDEX, STAMP] {
        clear(&kept.tree.path().join(name));
        fs::copy(other.path().join(name), kept.tree.path().join(name)).unwrap();
    }
    kept.expect_right("copied with its note");
}

#[test]
fn a_changed_tree_gets_another_index() {
    let mut kept = Kept::new();
    kept.expect_right("made");
    fs::create_dir(kept.tree.tree().join("new")).unwrap();
    kept.right = build(File::open(kept.tree.path()).unwrap()).unwrap();
    fs::remove_file(kept.stamp()).unwrap();
    kept.expect_right("the tree's root was changed");
}

#[test]
fn only_a_file_of_the_caller_counts() {
    let kept = Kept::new();
    let elsewhere = kept.place.path().join("elsewhere");
    fs::write(&elsewhere, &kept.right).unwrap();
    symlink(&elsewhere, kept.index()).unwrap();
    kept.expect_right("a link to a right one");
    symlink("nowhere", kept.tree.path().join("l")).unwrap();
    clear(&kept.index());
    fs::rename(kept.tree.path().join("l"), kept.index()).unwrap();
    kept.expect_right("a link to nothing");
    clear(&kept.index());
    rustix::fs::mknodat(rustix::fs::CWD, kept.index(), rustix::fs::FileType::Fifo, 0o400.into(), 0)
        .unwrap();
    kept.expect_right("a pipe");
    clear(&kept.index());
    fs::create_dir_all(kept.index().join("full")).unwrap();
    kept.expect_right("a directory");
    kept.put(&kept.right);
    fs::set_permissions(kept.index(), fs::Permissions::from_mode(0o666)).unwrap();
    kept.expect_right("everybody may write it");
    // The fast way notices it too.
    fs::set_permissions(kept.index(), fs::Permissions::from_mode(0o420)).unwrap();
    kept.expect_right("its group may write it");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(kept.index(), Some(1000), None).unwrap();
        kept.expect_right("it belongs to another user");
    }
}

#[test]
fn a_store_that_cannot_be_written_has_the_index_that_it_has() {
    let kept = Kept::new();
    let open = || {
        let store = Store::open(kept.store.path(), Options { read_only: true, ..options() });
        let store = store.unwrap();
        let tree = store.trees().get(&key("one")).unwrap().unwrap();
        (store, tree)
    };
    let (store, tree) = open();
    let error = checked(&store, &tree).unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    assert!(!kept.index().exists());
    kept.put(&kept.right);
    assert_eq!(checked(&store, &tree).unwrap(), kept.index());
    assert!(!kept.stamp().exists());
    let mut bytes = kept.right.clone();
    bytes[300] ^= 1;
    kept.put(&bytes);
    assert!(checked(&store, &tree).is_err(), "a damaged one is not used");
    assert!(fs::read(kept.index()).unwrap() == bytes);
}

#[test]
fn a_directory_that_cannot_be_written_is_left_alone() {
    if rustix::process::geteuid().is_root() {
        return eprintln!("SKIP read-only directory: root may write everywhere");
    }
    let kept = Kept::new();
    let mode = |mode| {
        fs::set_permissions(kept.tree.path(), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o555);
    assert!(checked(&kept.store, &kept.tree).is_err());
    mode(0o755);
    kept.put(&kept.right);
    mode(0o555);
    assert_eq!(checked(&kept.store, &kept.tree).unwrap(), kept.index());
    assert!(!kept.stamp().exists());
    mode(0o755);
    kept.expect_right("it can be written again");
}

#[test]
fn stores_beneath_are_not_written() {
    let kept = Kept::new();
    let above = kept.place.path().join("above");
    let below = vec![kept.store.path().to_owned()];
    let store = Store::open(&above, Options { below, ..options() }).unwrap();
    let tree = store.trees().get(&key("one")).unwrap().unwrap();
    assert!(!tree.is_own() && kept.tree.is_own());
    let error = checked(&store, &tree).unwrap_err();
    assert!(error.to_string().contains("beneath"), "{error}");
    assert!(!kept.index().exists());
    kept.expect_right("its own store makes it");
    let note = fs::read(kept.stamp()).unwrap();
    assert_eq!(checked(&store, &tree).unwrap(), kept.index());
    fs::remove_file(kept.stamp()).unwrap();
    assert_eq!(checked(&store, &tree).unwrap(), kept.index());
    assert!(!kept.stamp().exists(), "{}", String::from_utf8_lossy(&note));
}

/// One of several processes that use one tree while its index and its note vanish again and again.
#[test]
#[ignore = "the other half of a test"]
fn play_along() {
    let Some(path) = std::env::var_os(DIRECTORY) else { return };
    let store = Store::open(Path::new(&path), options()).unwrap();
    let tree = store.trees().get(&key("one")).unwrap().unwrap();
    let right = build(File::open(tree.path()).unwrap()).unwrap();
    let seed = std::process::id() as usize;
    let (mut right_ones, mut refused) = (0, 0);
    for number in numbers(seed % 1000 + 300).skip(seed % 1000) {
        let victim = tree.path().join(if number % 2 == 0 { INDEX } else { STAMP });
        if number % 5 < 2 {
            let _ = fs::remove_file(victim);
        }
        let Ok(path) = checked(&store, &tree) else {
            refused += 1;
            continue;
        };
        // Another process may have removed it again.
        if let Ok(bytes) = fs::read(path) {
            assert!(bytes == right);
            right_ones += 1;
        }
    }
    assert!(right_ones > 100 && refused < 50, "{right_ones} right, {refused} refused");
}

#[test]
fn several_processes_at_once_end_with_one_right_index() {
    let kept = Kept::new();
    let start = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "index_kept::play_along", "--ignored", "--nocapture"])
            .env(DIRECTORY, kept.store.path())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..4).map(|_| start()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    kept.expect_right("after all of them");
}

/// The next test runs this on a small file system.
#[test]
#[ignore = "the other half of a test"]
fn without_room() {
    let kept = Kept::new();
    let rest = kept.place.path().join("rest");
    let fill = |chunk: usize| {
        let file = File::options().append(true).create(true).open(&rest).unwrap();
        while std::io::Write::write_all(&mut &file, &vec![1; chunk]).is_ok() {}
    };
    fill(1 << 16);
    fill(1 << 12);
    let error = checked(&kept.store, &kept.tree).unwrap_err();
    assert_eq!(error.errno(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{error}");
    assert!(error.to_string().contains("index"), "{error}");
    assert!(!kept.index().exists());
    assert!(nothing_half_made(&kept.store));
    fs::remove_file(rest).unwrap();
    kept.expect_right("there is room again");
}

#[test]
fn a_full_disk_gives_no_index() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIP full disk: only root can mount a file system here");
    }
    let scratch = testkit::scratch::Scratch::new("rootfs-full").unwrap();
    let script = "mount -t tmpfs -o size=2m none $1 && chmod 1777 $1 && TMPDIR=$1 exec $2 \
                  --nocapture --exact index_kept::without_room --ignored";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-ec", script, "sh"])
        .arg(scratch.path())
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("unshare:") || errors.contains("mount:") {
        return eprintln!("SKIP full disk: {errors}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}{errors}");
}
