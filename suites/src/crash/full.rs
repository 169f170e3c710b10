//! Tests of containers whose file system has no blocks or inodes left: programs see `ENOSPC`, what
//! they wanted to change is as it was, and the same succeeds when there is space again.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;
use testkit::image::{Image, Pack};
use testkit::layer::Layer;
use testkit::running::Running;
use testkit::skip;
use testkit::skip::Outcome;

use crate::crash::mounted::{Mounted, decent};
use crate::crash::place::{Case, Place};
use crate::crash::rounds::is_ready;

pub(crate) const CASES: &[(&str, Case)] = &[
    // Where memory is the disk, a program without blocks ends by SIGBUS: no space is reserved for
    // the file that processes share (`sys::shared`).
    ("memory", |place| changes(place, &memory(place, "memory")?, &["inodes"])),
    ("disk", |place| changes(place, &disk(place, "disk")?, &["inodes", "blocks"])),
    ("index_in_memory", |place| index(place, &memory(place, "index-memory")?)),
    ("index_on_disk", |place| index(place, &disk(place, "index-disk")?)),
];

const IMAGE: &str = "localhost/crash/full:1";

/// What a program does with a directory `D` of the image.
const CHANGES: [&str; 9] = [
    "mkdir D/a/b/new",
    "append D/a/b/one more",
    "rename D/a/b/one D/a/moved",
    "rename D/a/b D/other",
    "remove D/a/b/two",
    "remove D/a/b/empty",
    "chmod D/a/b/one 600",
    "chmod D/a/b 700",
    "symlink x D/a/b/new",
];

/// Free inodes or blocks.
const LEFT: [u64; 6] = [0, 1, 2, 3, 4, 6];

fn memory(place: &Place<'_>, name: &str) -> Result<Mounted, testkit::skip::Skip> {
    Mounted::new(place, name, "tmpfs", "size=64m,nr_inodes=6000,mode=755")
}

fn disk(place: &Place<'_>, name: &str) -> Result<Mounted, testkit::skip::Skip> {
    let arguments = ["-q", "-F", "-m", "0", "-N", "6000"];
    Mounted::made(place, name, ("ext4", &arguments), 64 << 20)
}

/// What fills a file system.
struct Ballast {
    dir: PathBuf,
    files: u64,
}

impl Ballast {
    fn new(disk: &Mounted) -> Self {
        let dir = disk.outside().join("ballast");
        fs::create_dir(&dir).expect("a directory");
        Self { dir, files: 0 }
    }

    /// Free blocks, their size, and free inodes.
    fn free(&self) -> (u64, u64, u64) {
        let free = rustix::fs::statvfs(&self.dir).expect("a file system");
        (free.f_bfree, free.f_frsize, free.f_ffree)
    }

    fn file(&self, number: u64) -> PathBuf {
        self.dir.join(number.to_string())
    }

    /// Leaves this many inodes.
    fn leave_inodes(&mut self, count: u64) {
        while self.free().2 > count {
            fs::File::create(self.file(self.files)).expect("an inode");
            self.files += 1;
        }
        while self.free().2 < count {
            self.files -= 1;
            fs::remove_file(self.file(self.files)).expect("an inode");
        }
    }

    /// Leaves this many blocks, or a few less.
    fn leave_blocks(&mut self, count: u64) {
        let (free, size, _) = self.free();
        let file = fs::File::create(self.dir.join("large")).expect("a file");
        let mut wanted = free.saturating_sub(count);
        let none = FallocateFlags::empty();
        // The file system needs some for its own lists.
        while wanted > 0 && rustix::fs::fallocate(&file, none, 0, wanted * size).is_err() {
            wanted -= 1;
        }
        while self.free().0 > count {
            let end = rustix::fs::fstat(&file).expect("a status").st_size.cast_unsigned();
            if rustix::fs::fallocate(&file, none, end, size).is_err() {
                break;
            }
        }
    }

    /// Makes space. Blocks that were freed can be taken when the journal says so, too, and that is
    /// a moment after it was written.
    fn clear(&mut self) {
        let _ = fs::remove_file(self.dir.join("large"));
        let files = self.free().2 + 64;
        if self.files > 64 {
            self.leave_inodes(files);
        }
        let dir = fs::File::open(&self.dir).expect("a directory");
        rustix::fs::syncfs(&dir).expect("a file system that is synced");
        let (free, size, _) = self.free();
        let few = (free / 2).min(2048);
        let probe = self.dir.join("probe");
        let file = fs::File::create(&probe).expect("a file");
        let taken = testkit::command::until(std::time::Duration::from_secs(20), || {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, few * size).ok()
        });
        assert!(taken.is_some(), "{free} blocks that are free cannot be taken");
        fs::remove_file(&probe).expect("a file");
    }
}

/// A program in a container that does what it is told.
struct Served {
    running: Running,
    read: usize,
}

impl Served {
    fn ask(&mut self, line: &str) -> (String, String) {
        self.running.feed(format!("{line}\n").as_bytes());
        self.answer(line)
    }

    /// All that is known of a directory and what is below. The number of subdirectories may be too
    /// small after a removal that failed.
    fn walk(&mut self, dir: &str) -> Vec<String> {
        let (text, ended) = self.ask(&format!("walk {dir}"));
        assert_eq!(ended, "0", "{dir}");
        let without_links = |line: &str| {
            let is_directory = line.split(' ').nth(1) == Some("dir");
            let words = line.split(' ').enumerate();
            let words = words.filter(|(at, _)| !is_directory || !(4..6).contains(at));
            words.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
        };
        text.lines().map(without_links).collect()
    }

    /// What it printed, and how it ended.
    fn answer(&mut self, line: &str) -> (String, String) {
        let answered = testkit::command::until(std::time::Duration::from_secs(20), || {
            let text = self.running.text();
            let new = &text[self.read..];
            let at = if new.starts_with("= ") { 0 } else { new.find("\n= ")? + 1 };
            let end = at + new[at..].find('\n')?;
            let answer = (new[..at].to_owned(), new[at + 2..end].to_owned());
            self.read += end + 1;
            Some(answer)
        });
        answered.unwrap_or_else(|| {
            let last = self.running.text().split_off(self.read);
            panic!("no answer to {line}: {last:?}, alive: {}", self.running.alive())
        })
    }
}

fn load(place: &Place<'_>, disk: &Mounted) {
    let mut layer = Layer::new().dir("full");
    let kinds = ["inodes", "blocks", "free"];
    for dir in kinds.iter().flat_map(|kind| {
        let lefts = LEFT.iter().flat_map(move |left| {
            (0..CHANGES.len()).map(move |change| format!("full/{kind}-{left}-{change}"))
        });
        lefts.collect::<Vec<_>>()
    }) {
        layer = layer
            .dir(&dir)
            .dir(&format!("{dir}/a"))
            .dir(&format!("{dir}/a/b"))
            .file(&format!("{dir}/a/b/one"), 0o644, vec![b'1'; 10_000])
            .file(&format!("{dir}/a/b/two"), 0o644, "2\n")
            .dir(&format!("{dir}/a/b/empty"))
            .dir(&format!("{dir}/a/b/sub"))
            .file(&format!("{dir}/a/b/sub/leaf"), 0o644, "leaf\n");
    }
    let layers = [testkit::guest::layer().finish(), layer.finish()];
    let [guest, full] = layers.clone();
    let built = Image::new().packed(guest, Pack::Plain).packed(full, Pack::Plain).build();
    let archive = disk.dir.with_extension("tar");
    place.person.file(&archive, built.docker_archive(&layers, &[IMAGE]));
    disk.run(place.person, &["load", "-q", "-i", &archive.display().to_string()]).ok();
}

fn only_plain(place: &Place<'_>) -> Outcome {
    if place.person.user.range {
        skip!("as for the other user");
    }
    if !is_ready(place.person, "I1") {
        skip!("`coracle doctor` does not call I1 ready");
    }
    Ok(())
}

/// The names of unfinished work.
fn left_over(disk: &Mounted) -> Vec<String> {
    let containers = disk.outside().join(".local/share/coracle/containers");
    let runs = fs::read_dir(containers).into_iter().flatten().flatten();
    let names = runs.flat_map(|entry| fs::read_dir(entry.path().join("run")).into_iter().flatten());
    let names = names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(".copy-of-")).collect()
}

fn changes(place: &Place<'_>, disk: &Mounted, kinds: &[&str]) -> Outcome {
    only_plain(place)?;
    load(place, disk);
    let words = ["run", "-i", "--name=full", "--execmode=I1", IMAGE, "/bin/guest", "serve"];
    let running = Running::start(&mut disk.command(place.person, &words));
    let mut served = Served { running, read: 0 };
    assert_eq!(served.answer("its start").1, "ready");
    let mut ballast = Ballast::new(disk);
    let mut refused = 0;
    for kind in kinds.iter().copied() {
        for left in LEFT {
            for (number, change) in CHANGES.iter().enumerate() {
                let dir = format!("/full/{kind}-{left}-{number}");
                let free = format!("/full/free-{left}-{number}");
                let change = |dir: &str| change.replace('D', dir);
                let before = served.walk(&dir);
                match kind {
                    "inodes" => ballast.leave_inodes(left),
                    _ => ballast.leave_blocks(left),
                }
                let (_, result) = served.ask(&change(&dir));
                let what = format!("{} with {left} {kind}", change(&dir));
                let seen = served.walk(&dir);
                ballast.clear();
                match result.as_str() {
                    "0" => {}
                    "ENOSPC" => {
                        refused += 1;
                        assert_eq!(seen, before, "{what}");
                        assert_eq!(served.walk(&dir), before, "{what}, with space");
                        assert_eq!(left_over(disk), Vec::<String>::new(), "{what}");
                        assert_eq!(served.ask(&change(&dir)).1, "0", "{what}, with space");
                    }
                    other => panic!("{what}: {other}"),
                }
                // As where there was space all the time.
                if kind == "inodes" {
                    assert_eq!(served.ask(&change(&free)).1, "0", "{what}");
                }
                let tree = |served: &mut Served, dir: &str| {
                    served.ask(&format!("tree {dir}")).0.replace(dir, "")
                };
                assert_eq!(tree(&mut served, &dir), tree(&mut served, &free), "{what}");
            }
        }
    }
    assert!(refused > 10, "nothing was full: {refused}");
    served.running.end_of_input();
    assert_eq!(served.running.end(testkit::person::LIMIT), 0);
    Ok(())
}

/// Makes the index of an image where there is no space for it.
fn index(place: &Place<'_>, disk: &Mounted) -> Outcome {
    only_plain(place)?;
    load(place, disk);
    let run = || {
        let words = ["run", "--rm", "--execmode=I1", IMAGE, "/bin/guest", "exit", "7"];
        disk.run(place.person, &words)
    };
    run().expect(7);
    let trees = disk.outside().join(".local/share/coracle/trees");
    let mut ballast = Ballast::new(disk);
    for kind in ["inodes", "blocks"] {
        for left in LEFT.into_iter().chain([12, 24, 48]) {
            for tree in fs::read_dir(&trees).expect("trees").flatten() {
                remove_index(&tree.path());
            }
            match kind {
                "inodes" => ballast.leave_inodes(left),
                _ => ballast.leave_blocks(left),
            }
            let done = run();
            decent(&done);
            let said = done.err().to_lowercase();
            let is_clear = said.contains("space") || said.contains("enospc");
            assert!(done.code() == 7 || is_clear, "{left} {kind}: {done:?}");
            ballast.clear();
            disk.run(place.person, &["verify"]).ok();
            run().expect(7);
            let shown = disk.run(place.person, &["image", "inspect", "--index", IMAGE]);
            assert!(shown.ok().out().contains("Names"), "{left} {kind}: {shown:?}");
            disk.run(place.person, &["verify"]).ok();
        }
    }
    Ok(())
}

fn remove_index(tree: &Path) {
    for name in ["index", "index.checked"] {
        let file = tree.join(name);
        if file.exists() {
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
            fs::remove_file(&file).expect("removing an index");
        }
    }
}
