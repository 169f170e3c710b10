//! Containers above their image: every command sees what programs see, and what it sees with a
//! whole tree of links.

use std::collections::BTreeSet;
use std::fs;

use serde_json::json;
use testkit::image::Image;
use testkit::layer::Layer;
use testkit::skip::Outcome;

use super::files::tar_list;
use super::same::with_image;
use super::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("index_is_decided_at_creation", index_is_decided_at_creation),
    ("commands_see_renamed_directories", commands_see_renamed_directories),
    ("copies_reach_changed_directories", copies_reach_changed_directories),
    ("through_other_modes", through_other_modes),
    ("marks_of_directories_are_hidden", marks_of_directories_are_hidden),
    ("listed_twice", listed_twice),
];

/// An image may list one layer more than once, for example the empty one of two `WORKDIR`s.
fn listed_twice(w: &World) -> Outcome {
    let holds = || Layer::new().dir("d").file("d/f", 0o644, "f");
    let deletes = || Layer::new().dir("d").whiteout("d/f");
    let other = || Layer::new().dir("d").file("d/other", 0o644, "o");
    let base = || Image::new().layer(testkit::guest::layer().dir("d"));
    let empty = Layer::new;
    let cases = [
        (base().layer(empty()).layer(other()).layer(empty()), json!(["other"])),
        (base().layer(holds()).layer(deletes()).layer(holds()), json!(["f"])),
        (
            base().layer(holds()).layer(deletes()).layer(other()).layer(holds()).layer(deletes()),
            json!(["other"]),
        ),
    ];
    for (image, expected) in cases {
        let (w, image) = with_image(w, &image, "twice");
        let done = w.coracle(&["run", "--rm", &w.mode(), &image, "/bin/guest", "list", "/d"]);
        assert_eq!(super::world::json(&done), expected);
    }
    Ok(())
}

/// Directories of the image that get other names, in one of the container's own too, and are then
/// changed; one with a directory that moves on; files that only get other names; a name that is
/// used again; an opaque directory.
const CHANGES: &str = "\
    mkdir /own ; rename /data /own/data ; rename /own/data/sub /sub ; write /own/data/new x ; \
    remove /own/data/remove-me ; append /own/data/one more ; mkdir /data ; write /data/again y ; \
    rename /bin/setuid /own/setuid ; rename /etc/alices /own/alices ; chmod /own/setuid 4711 ; \
    symlink nowhere /own/link ; chown /own/link 5 6 ; fifo /own/pipe ; chown /own/pipe 7 8 ; \
    mkdir /own/deep ; rename /sub /own/deep/sub ; rename /own /moved ; write /moved/deep/sub/in z";

fn changes() -> Vec<&'static str> {
    let mut words: Vec<&str> = CHANGES.split_whitespace().collect();
    words.push(";");
    words
}

/// Makes a container that lies above its image, or skips.
fn layered<'w>(w: &'w World, stem: &str, flag: &str) -> Result<Container<'w>, testkit::skip::Skip> {
    let name = w.name(stem);
    let container = Container::named(w, &name);
    w.coracle(&["create", &w.mode(), flag, "--name", &name, &w.image]).ok();
    let driver = container.inspect("{{.Driver}}");
    if flag == "--index=on" && driver.trim() != "layered" {
        testkit::skip!("a new container's root is made by {}", driver.trim());
    }
    Ok(container)
}

/// What an archive of the whole tree lists.
fn exported(w: &World, name: &str) -> BTreeSet<(String, String, String)> {
    tar_list(&w.coracle(&["export", name]).ok().stdout).into_iter().collect()
}

fn index_is_decided_at_creation(w: &World) -> Outcome {
    let on = layered(w, "on", "--index=on")?;
    let off = layered(w, "off", "--index=off")?;
    assert_eq!(off.inspect("{{.Driver}}").trim(), "hard link");
    for (container, same, other) in [(&on, "on", "off"), (&off, "off", "on")] {
        let run = |index: &str| {
            let flag = format!("--index={index}");
            w.coracle(&["run", &flag, &container.name, "/bin/guest", "exit", "7"])
        };
        run(same).expect(7);
        let refused = run(other);
        let text = refused.err();
        assert!(text.contains("--index is decided when a container is made"), "{refused:?}");
    }
    let upper = on.inspect("{{.GraphDriver.Data.UpperDir}}");
    let lower = on.inspect("{{.GraphDriver.Data.LowerDir}}");
    assert!(fs::metadata(upper.trim()).is_ok() && fs::metadata(lower.trim()).is_ok());
    let wrong = w.coracle(&["create", "--index=perhaps", &w.image]);
    assert!(wrong.err().contains("neither on nor off"), "{wrong:?}");
    Ok(())
}

fn commands_see_renamed_directories(w: &World) -> Outcome {
    let on = layered(w, "on", "--index=on")?;
    let off = layered(w, "off", "--index=off")?;
    let mut seen = Vec::new();
    for container in [&on, &off] {
        let name = &container.name;
        w.coracle(&[&["run", name, "/bin/guest"][..], &changes()].concat()).ok();
        let diff: BTreeSet<String> =
            w.coracle(&["diff", name]).ok().out().lines().map(str::to_owned).collect();
        let copied = w.coracle(&["cp", &format!("{name}:/moved"), "-"]);
        let copied: BTreeSet<_> = tar_list(&copied.ok().stdout).into_iter().collect();
        let copy = w.name("copy");
        let _copy = Container::named(w, &copy);
        w.coracle(&["clone", "--name", &copy, name]).ok();
        assert_eq!(exported(w, &copy), exported(w, name), "a clone is the same");
        let read = ["run", &copy, "/bin/guest", "read", "/moved/deep/sub/two"];
        assert_eq!(w.coracle(&read).ok().out(), "2\n");
        seen.push((exported(w, name), diff, copied));
    }
    assert!(seen[0] == seen[1], "with the index: {:?}\nwithout: {:?}", seen[0], seen[1]);
    let entry = |path: &str| seen[0].0.iter().find(|(name, ..)| name == path);
    assert_eq!(entry("moved/alices").map(|(.., owner)| owner.as_str()), Some("1234/1235"));
    assert_eq!(entry("moved/link").map(|(.., owner)| owner.as_str()), Some("5/6"));
    Ok(())
}

fn copies_reach_changed_directories(w: &World) -> Outcome {
    let container = layered(w, "cp", "--index=on")?;
    let name = &container.name;
    let dir = w.dir("cplayers");
    fs::create_dir_all(dir.join("sub")).expect("a directory");
    w.file(&dir.join("sub"), "file", "copied\n");
    let file = w.file(&dir, "one", "other\n").display().to_string();
    let sub = dir.join("sub").display().to_string();
    w.coracle(&["run", name, "/bin/guest", "rename", "/data", "/new", ";", "mkdir", "/data"]).ok();
    let copy = |from: &str, to: &str| w.coracle(&["cp", from, &format!("{name}:{to}")]).ok().out();
    // While nothing runs: into a renamed directory, over a file of it, into a new one of its name.
    copy(&sub, "/new/fresh");
    copy(&file, "/new/one");
    copy(&sub, "/data/sub");
    let read = |path: &str| w.coracle(&["run", name, "/bin/guest", "read", path]).ok().out();
    assert_eq!(read("/new/fresh/file"), "copied\n");
    assert_eq!(read("/new/one"), "other\n");
    assert_eq!(read("/data/sub/file"), "copied\n");
    assert_eq!(read("/new/sub/two"), "2\n");
    let refused = w.coracle(&["cp", &sub, &format!("{name}:/new/one")]);
    assert!(refused.err().contains("is a file"), "{refused:?}");
    // A program that runs sees what is copied, and a whiteout goes.
    let running = w.detached(&[], &["sleep", "300"]);
    running.exec(&[], &["remove", "/data"]).ok();
    let to = |path: &str| format!("{}:{path}", running.name);
    w.coracle(&["cp", &sub, &to("/data")]).ok();
    w.coracle(&["cp", &file, &to("/etc/image-file")]).ok();
    assert_eq!(running.exec(&[], &["read", "/data/file"]).ok().out(), "copied\n");
    assert_eq!(running.exec(&[], &["list", "/data"]).ok().out().lines().count(), 1);
    assert_eq!(running.exec(&[], &["read", "/etc/image-file"]).ok().out(), "other\n");
    Ok(())
}

/// A container goes to a mode with mounts, if there is one, and back; nothing changes on the way.
fn through_other_modes(w: &World) -> Outcome {
    let container = layered(w, "modes", "--index=on")?;
    let name = &container.name;
    w.coracle(&[&["run", name, "/bin/guest"][..], &changes()].concat()).ok();
    let before = exported(w, name);
    let there = ["run", "--execmode=N1", name, "/bin/guest"];
    let first = w.coracle(&[&there[..], &["read", "/moved/deep/sub/two"]].concat());
    if first.code() != 0 {
        testkit::skip!("N1 does not work here");
    }
    assert_eq!(first.out(), "2\n");
    assert_eq!(exported(w, name), before, "for an engine with mounts");
    w.coracle(&[&there[..], &["write", "/moved/deep/sub/two", "written"]].concat()).ok();
    w.coracle(&[&there[..], &["chown", "/moved/data/new", "21", "22"]].concat()).ok();
    let read = ["run", name, "/bin/guest", "read", "/moved/deep/sub/two"];
    assert_eq!(w.coracle(&read).ok().out(), "written");
    let owner = |(path, mode, owner): &(String, String, String)| {
        let owner = if path == "moved/data/new" { "21/22" } else { owner };
        (path.clone(), mode.clone(), owner.to_owned())
    };
    assert_eq!(exported(w, name), before.iter().map(owner).collect(), "and back");
    // The image is as it was.
    let image = w.guest(&[], &["read", "/data/sub/two"]);
    assert_eq!(image.ok().out(), "2\n");
    Ok(())
}

/// What marks directories of the upper one is neither seen nor set by programs, so `cp -a` makes no
/// copy that shows the image's files again.
fn marks_of_directories_are_hidden(w: &World) -> Outcome {
    let container = layered(w, "marks", "--index=on")?;
    let words = "rename /data /new ; remove /new/one ; attributes /new ; mkdir /copy ; \
         set-attribute /copy user.overlay.redirect /data ; list /copy ; attributes /copy ; \
         set-attribute /etc user.overlay.opaque y ; read /etc/image-file ; remove /home ; \
         mkdir /home ; attributes /home";
    let words: Vec<&str> = words.split_whitespace().collect();
    let done = w.coracle(&[&["run", &container.name, "/bin/guest"][..], &words].concat());
    let expected = "{}\n[]\n{\"user.overlay.redirect\":\"/data\"}\nfrom the image\n{}\n";
    assert_eq!(done.ok().out(), expected);
    let again = ["list", "/copy", ";", "list", "/new", ";", "read", "/etc/image-file"];
    let done = w.coracle(&[&["run", &container.name, "/bin/guest"][..], &again].concat());
    assert_eq!(done.ok().out(), "[]\n[\"remove-me\",\"sub\"]\nfrom the image\n");
    Ok(())
}
