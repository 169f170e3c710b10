//! What a container above its image shows is what a whole tree of links shows, and a file keeps its
//! inode number by every road, whatever becomes of it.

use std::fs;

use testkit::command::Finished;
use testkit::image::{Image, Pack};
use testkit::layer::{Entry, Layer};
use testkit::skip::Outcome;

use crate::contract::packages::debian;
use crate::contract::patched_code::compiled;
use crate::contract::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("numbers_by_every_road", numbers_by_every_road),
    ("tree_of_many_layers", tree_of_many_layers),
    ("tree_of_debian", tree_of_debian),
    ("trees_of_releases", trees_of_releases),
];

/// Skips a mode whose containers have the kernel's overlay.
fn without_mounts(w: &World) -> Outcome {
    if w.has_overlay() || w.engine.starts_with('R') {
        testkit::skip!("the kernel's overlay has no index");
    }
    Ok(())
}

/// A store of its own with an image.
pub(super) fn with_image(w: &World, image: &Image, stem: &str) -> (World, String) {
    let name = format!("localhost/{}:1", w.name(stem));
    let layout = w.dir(stem).join("layout");
    image.build().write_layout(&layout, &name).expect("a layout");
    let w = w.at(&w.dir("alone"));
    w.coracle(&["load", "-q", "-i", &layout.display().to_string()]).ok();
    fs::remove_dir_all(layout).expect("removing the layout");
    (w, name)
}

/// The symbolic link is not copied: a copy of one has its own number, because it can carry no
/// attribute that says of what it was made.
const PATHS: [&str; 8] = [
    "/n",
    "/n/dir",
    "/n/dir/file",
    "/n/dir/two",
    "/n/dir/sub",
    "/n/dir/sub/deep",
    "/n/dir/link",
    "/n/other",
];

/// What the program printed: for each path its kind and number.
#[track_caller]
fn numbers(done: &Finished) -> Vec<Vec<String>> {
    let text = done.ok().out();
    let lines = text.lines().filter(|line| !line.starts_with("child: "));
    let parts = lines.map(|line| line.split(' ').skip(1).map(str::to_owned).collect());
    let mut all: Vec<Vec<String>> = parts.collect();
    assert!(all.iter().all(|parts| parts.len() == 3), "{done:?}");
    assert_eq!(all.len() % PATHS.len(), 0, "{done:?}");
    let first = all[..PATHS.len()].to_vec();
    for (at, line) in all.drain(..).enumerate() {
        assert_eq!(line, first[at % PATHS.len()], "{}, {at}: {done:?}", PATHS[at % PATHS.len()]);
    }
    first
}

fn numbers_by_every_road(w: &World) -> Outcome {
    without_mounts(w)?;
    let program =
        compiled(&w.file(&w.dir("numbers"), "numbers.c", include_str!("numbers.c")), &["-static"])?;
    let bytes = fs::read(&program).expect("a program");
    let layer = testkit::guest::layer()
        .file("bin/numbers", 0o755, bytes)
        .dir("n")
        .dir("n/dir")
        .file("n/dir/file", 0o644, "of the image\n")
        .entry(&Entry::new(b'0', "n/dir/two").owner(7, 8).mode(0o600).data("of the image\n"))
        .dir("n/dir/sub")
        .file("n/dir/sub/deep", 0o755, "of the image\n")
        .symlink("n/dir/link", "file")
        .dir("n/other");
    let (w, image) = with_image(w, &Image::new().layer(layer), "numbers");
    let mode = w.mode();
    let name = w.name("numbers");
    let container = Container::named(&w, &name);
    w.coracle(&["create", &mode, "--name", &name, &image, "/bin/guest"]).ok();
    if container.inspect("{{.Driver}}").trim() != "layered" {
        testkit::skip!("a new container's root is made by {}", container.inspect("{{.Driver}}"));
    }
    let ask = |paths: &[String]| {
        let mut words: Vec<String> = vec!["spawn".into(), "/bin/numbers".into()];
        words.extend(paths.iter().cloned());
        words.push(";".into());
        words
    };
    let named = |from: &str, to: &str| PATHS.map(|path| path.replacen(from, to, 1)).to_vec();
    let text = |words: &str| words.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let moved = |path: &mut String| {
        *path = path.replace("/n/other/dir/two", "/n/other/second");
    };
    let mut last = named("/n/dir", "/n/other/dir");
    last.iter_mut().for_each(moved);
    let run = |words: &[String]| {
        let all = [&["run", &name, "/bin/guest"].map(str::to_owned)[..], words].concat();
        w.coracle(&all)
    };
    // Untouched; in a second start; settled; copied, in one start and in the next.
    let untouched = numbers(&run(&[ask(&named("", "")), ask(&named("", ""))].concat()));
    let steps = [
        ("write /n/dir/sub/new x ; remove /n/dir/sub/new ;", named("", "")),
        (
            "append /n/dir/file x ; chmod /n/dir/sub/deep 700 ; chown /n/dir/two 1 2 ; \
             chmod /n/dir/sub 711 ;",
            named("", ""),
        ),
        ("rename /n/dir /n/other/dir ;", named("/n/dir", "/n/other/dir")),
        ("rename /n/other/dir/two /n/other/second ; mkdir /n/dir ; write /n/dir/file y ;", last),
    ];
    for (change, paths) in steps {
        let words = [text(change), ask(&paths), ask(&paths)].concat();
        assert_eq!(numbers(&run(&words)), untouched, "after {change}");
        assert_eq!(numbers(&run(&ask(&paths))), untouched, "in the next start, after {change}");
    }
    // Moved before it is copied, and a directory that was never settled.
    let fresh = w.name("numbers");
    let _fresh = Container::named(&w, &fresh);
    w.coracle(&["create", &mode, "--name", &fresh, &image, "/bin/guest"]).ok();
    let paths = named("/n/dir", "/n/other/moved");
    let change = text(
        "rename /n/dir /n/other/moved ; append /n/other/moved/file x ; \
         append /n/other/moved/sub/deep x ;",
    );
    let words = [&["run", &fresh, "/bin/guest"].map(str::to_owned)[..], &change, &ask(&paths)];
    assert_eq!(numbers(&w.coracle(&words.concat())), untouched);
    Ok(())
}

/// Compares what one program sees in a container above the image and in a whole tree.
#[track_caller]
fn compare(w: &World, image: &str) {
    let mode = w.mode();
    // Debian has no such program.
    let program = w.dir("program").join("guest");
    testkit::command::copy_program(testkit::guest::program(), &program);
    let bound = format!("--volume={}:/guest:ro", program.display());
    // They are made with the container.
    let own = ["/etc/hosts ", "/etc/hostname ", "/etc/resolv.conf "];
    let walk = |index: &str| {
        let words = ["run", "--rm", &mode, index, &bound, image, "/guest", "walk", "/"];
        let text = w.coracle(&words).ok().out();
        let lines = text.lines().filter(|line| !own.iter().any(|own| line.starts_with(own)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (lazy, full) = (walk("--index=on"), walk("--index=off"));
    assert!(full.len() > 30, "{full:?}");
    let pairs = lazy.iter().zip(&full).filter(|(lazy, full)| lazy != full);
    let wrong: Vec<_> = pairs.take(3).collect();
    assert!(lazy == full, "{} and {} lines: {wrong:#?}", lazy.len(), full.len());
}

/// Whiteouts, opaque directories, links to files of lower layers, files that become directories,
/// and attributes, in 127 layers.
fn tree_of_many_layers(w: &World) -> Outcome {
    without_mounts(w)?;
    let mut image = Image::new().layer(testkit::guest::layer().dir("deep").dir("turns"));
    for number in 1..127_u64 {
        let mut layer = Layer::new()
            .dir("deep")
            .dir(&format!("deep/{}", number % 7))
            .file(&format!("deep/{}/{number}", number % 7), 0o600 + (number % 64) as u32, "x")
            .entry(&Entry::new(b'0', format!("turns/{number}")).owner(number, 7).mtime(number))
            .entry(&Entry::new(b'2', format!("deep/link{number}")).link(format!("{number}")))
            .entry(&Entry::new(b'6', format!("deep/pipe{number}")).owner(0, number));
        if number > 1 {
            let last = number - 1;
            layer = layer.hardlink(&format!("turns/same{number}"), &format!("turns/{last}"));
        }
        if number % 5 == 0 {
            let last = number - 3;
            layer = layer.file(&format!("deep/{}/.wh.{last}", last % 7), 0o644, "");
        }
        if number % 20 == 0 {
            let dir = format!("deep/{}", number % 7);
            layer = layer.file(&format!("{dir}/.wh..wh..opq"), 0o644, "");
        }
        if number % 30 == 0 {
            // A file becomes a directory.
            layer = layer.dir(&format!("turns/{}", number - 10));
        }
        let with_attribute = Entry::new(b'0', format!("deep/attribute{number}"))
            .pax("SCHILY.xattr.user.test", format!("{number}"));
        image = image.layer(layer.entry(&with_attribute));
    }
    let (w, image) = with_image(w, &image, "layers");
    compare(&w, &image);
    Ok(())
}

fn tree_of_debian(w: &World) -> Outcome {
    without_mounts(w)?;
    if w.engine != "I1" || w.user.range {
        skip_unless_all("one mode shows it")?;
    }
    compare(w, &debian(w)?);
    Ok(())
}

fn trees_of_releases(w: &World) -> Outcome {
    without_mounts(w)?;
    skip_unless_all("each takes minutes")?;
    for release in ["bullseye", "trixie", testkit::debian::NEWEST] {
        let tar = fs::read(testkit::debian::release(release)?).expect("a tree");
        let (w, image) = with_image(w, &Image::new().packed(tar, Pack::Plain), release);
        compare(&w, &image);
    }
    Ok(())
}

fn skip_unless_all(why: &str) -> Outcome {
    if !testkit::share::is_whole() {
        testkit::skip!("{why}: share 1/1 runs it");
    }
    Ok(())
}
