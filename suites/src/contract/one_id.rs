//! Tests of namespaces with one id: the view shows ids and owners there, and what it cannot serve
//! runs by the kernel alone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::command::{Finished, find_program, until};
use testkit::image::Image;
use testkit::layer::Entry;
use testkit::skip::{Outcome, Skip};

use crate::contract::modes::{behind, fence_of};
use crate::contract::packages::{debian, sh};
use crate::contract::patched_code::patched_files;
use crate::contract::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("where_the_stage_cannot_work", where_the_stage_cannot_work),
    ("another_user_without_the_stage", another_user_without_the_stage),
    ("where_the_stage_is_not_made_ready", where_the_stage_is_not_made_ready),
    ("narrow_programs", narrow_programs),
    ("rings_and_rulesets", rings_and_rulesets),
    ("children_of_namespaces", children_of_namespaces),
    ("mounts_in_another_root", mounts_in_another_root),
    ("records_without_marks", records_without_marks),
    ("the_caller_sees_no_marks", the_caller_sees_no_marks),
    ("what_processes_share_goes", what_processes_share_goes),
    ("changed_text_goes", changed_text_goes),
    ("unfinished_text_of_others", unfinished_text_of_others),
];

/// For all engines.
pub(crate) const OWNERS: &[(&str, Case)] = &[
    ("of_links_stay", of_links_stay),
    ("of_the_root", of_the_root),
    ("in_a_given_tree", in_a_given_tree),
];

/// Skips an engine in which files have no owners but those on disk.
fn emulates(w: &World) -> Outcome {
    if !w.has_ids() {
        testkit::skip!("one mapped id of the kernel's: other owners cannot be had");
    }
    Ok(())
}

/// Whether this is about a world: namespaces in which the kernel knows one id.
pub(crate) fn is_theirs(w: &World) -> bool {
    w.engine == "N1" && !w.user.range
}

#[track_caller]
fn owner(stat: &Value) -> (u64, u64) {
    let id = |name: &str| stat[name].as_u64().expect("an id");
    (id("uid"), id("gid"))
}

/// Where no code can be mapped, which the stage does for each program, a program runs all the same,
/// and the user is told once. What was found there counts nowhere else.
fn where_the_stage_cannot_work(w: &World) -> Outcome {
    let fence = fence_of(w)?;
    let guest =
        ["write", "/tmp/x", "y", ";", "chmod", "/tmp/x", "600", ";", "ids", ";", "exit", "7"];
    let words = w.words(&[], &guest);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let told = "ids and owners are the kernel's";
    for _ in 0..2 {
        let done = behind(w, &fence, &["code"], &words);
        assert_eq!(done.expect(7).err().matches(told).count(), 1, "{done:?}");
        assert!(done.out().contains("\"uid\":[0,0,0]"), "{done:?}");
    }
    let user = w.words(&["-u", "alice"], &["ids"]);
    let user: Vec<&str> = user.iter().map(String::as_str).collect();
    let ids = crate::contract::world::json(&behind(w, &fence, &["code"], &user));
    assert_eq!(ids["uid"], json!([1234, 1234, 1234]));
    let done = w.guest(&[], &["write", "/tmp/x", "y", ";", "chown", "/tmp/x", "5", "6"]);
    assert!(!done.ok().err().contains(told), "{done:?}");
    Ok(())
}

/// In a container that was started without the stage there is one user, also for `exec` where the
/// stage would work.
fn another_user_without_the_stage(w: &World) -> Outcome {
    let fence = fence_of(w)?;
    let c = Container::named(w, &w.name("alone"));
    let words = w.words_for(&["run", "-d"], &["--name", &c.name], &["sleep", "300"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    behind(w, &fence, &["code"], &words).ok();
    let ids = |done: Finished| crate::contract::world::json(&done)["uid"].clone();
    assert_eq!(ids(c.exec(&[], &["ids"])), json!([0, 0, 0]));
    for (user, kind, id) in [("alice", "user", 1234), ("0:77", "group", 77)] {
        let exec = ["exec", "--user", user, &c.name, "/bin/guest", "ids"];
        for done in [w.coracle(&exec), behind(w, &fence, &["code"], &exec)] {
            let error = format!("error: {kind} id {id} is outside the ids mapped");
            let text = done.expect(125).err();
            let told = text.starts_with(&error) && text.contains("--execmode");
            assert!(told && text.lines().count() == 2, "{done:?}");
        }
    }
    Ok(())
}

/// Neither does a start fail where the stage cannot be made ready for one: here because a directory
/// is in the place of the file that a container's processes share.
fn where_the_stage_is_not_made_ready(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("unready"));
    w.coracle(&w.words_for(&["run"], &["--name", &c.name], &["ids", ";", "exit", "7"])).expect(7);
    let file = w.store().join("containers").join(&c.name).join("run/view/shared");
    fs::create_dir(&file).expect("a directory");
    std::os::unix::fs::chown(&file, Some(w.user.uid), Some(w.user.gid)).expect("an owner");
    let done = w.coracle(&["start", "-a", &c.name]);
    let told = "ids and owners are the kernel's";
    assert_eq!(done.expect(7).err().matches(told).count(), 1, "{done:?}");
    assert!(done.out().contains("\"uid\":[0,0,0]"), "{done:?}");
    Ok(())
}

/// Prints `narrow` and ends with 3, by calls of i386.
const NARROW: &str = "
    .globl _start
_start:
    mov $4, %eax
    mov $1, %ebx
    mov $text, %ecx
    mov $7, %edx
    int $0x80
    mov $1, %eax
    mov $3, %ebx
    int $0x80
text: .ascii \"narrow\\n\"
";

/// A static program of this source in a directory of the user's.
fn assembled(w: &World, name: &str, source: &str, flags: &[&str]) -> Result<PathBuf, Skip> {
    let Some(gcc) = find_program("gcc") else { testkit::skip!("gcc is not installed") };
    let dir = w.dir(name);
    let (file, program) = (w.file(&dir, "source.s", source), dir.join(name));
    let mut compile = Command::new(gcc);
    compile.args(["-nostdlib", "-static", "-Wl,--build-id=none"]).args(flags);
    let done = compile.arg("-o").arg(&program).arg(file).status();
    assert!(done.is_ok_and(|done| done.success()), "{name} is not compiled");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("rights");
    Ok(dir)
}

/// 32-bit programs run, as the first program and as a child.
fn narrow_programs(w: &World) -> Outcome {
    let dir = assembled(w, "narrow", NARROW, &["-m32"])?;
    let bind = format!("{}:/n", dir.display());
    let mode = w.mode();
    let words = ["run", "--rm", &mode, "-v", &bind, &w.image, "/n/narrow"];
    assert_eq!(w.coracle(&words).expect(3).out(), "narrow\n");
    let done = w.guest(&["-v", &bind], &["spawn", "/n/narrow", ";", "ids"]);
    assert!(done.ok().out().starts_with("narrow\nchild: exit status: 3\n"), "{done:?}");
    Ok(())
}

/// Runs a script of Perl's in Debian.
fn perl(w: &World, script: &str) -> Result<Finished, Skip> {
    let image = debian(w)?;
    Ok(sh(w, &image, &[], &format!("echo x >/f; chown 7:8 /f; perl -e '{script}' 2>&1")))
}

/// Interfaces of the kernel that an engine inside the process refuses elsewhere.
fn rings_and_rulesets(w: &World) -> Outcome {
    let script = r#"
        my $room = "\0" x 120;
        my $ring = syscall(425, 8, $room);
        print $ring >= 0 || $!{EPERM} ? "ring\n" : "no ring: $!\n";
        # No file may be written below /etc; what runs next does not know the owner.
        my $kinds = pack("Q", 2);
        my $rules = syscall(444, $kinds, 8, 0);
        if ($rules < 0) { print "no rulesets\n"; exit; }
        syscall(157, 38, 1, 0, 0, 0);
        print syscall(446, $rules, 0), "\n";
        open(my $file, ">", "/etc/x") and print "written\n";
        exec "cat", "/f";
    "#;
    let text = perl(w, script)?.ok().out();
    assert!(["ring\n0\nx\n", "ring\nno rulesets\n"].contains(&text.as_str()), "{text}");
    let strict = r#"
        syscall(157, 22, 1);
        my $text = "strict\n";
        syscall(1, 1, $text, 7);
        syscall(60, 4);
        syscall(231, 5);
    "#;
    let done = perl(w, strict)?;
    assert_eq!(done.expect(4).out(), "strict\n");
    Ok(())
}

/// A child in a user namespace of its own leaves the view; its parent and other children do not.
fn children_of_namespaces(w: &World) -> Outcome {
    let script = r#"
        $| = 1;
        my $child = syscall(56, 0x10000011, 0, 0, 0, 0);
        if ($child == 0) { exec "stat", "-c", "inside %u", "/f"; }
        waitpid($child, 0);
        system("stat", "-c", "beside %u", "/f");
        exec "stat", "-c", "after %u", "/f";
    "#;
    let text = perl(w, script)?.ok().out();
    assert_eq!(text, "inside 65534\nbeside 7\nafter 7\n");
    Ok(())
}

/// The owner of a link of the image is there at the next start, and comes out of `export`.
fn of_links_stay(w: &World) -> Outcome {
    emulates(w)?;
    let image = debian(w)?;
    let c = Container::named(w, &w.name("links"));
    let mode = w.mode();
    let script = "test -e /n || { stat -c %Y /usr/bin/awk >/t; stat -c %Y /usr/bin >/d
            ln -s x /n; chown -h 8:9 /n; chown -h 5:6 /usr/bin/awk /bin; }
        stat -c '%u:%g' /n /usr/bin/awk /bin; readlink /usr/bin/awk /bin
        stat -c %Y /usr/bin/awk | cmp /t && stat -c %Y /usr/bin | cmp /d
        ls -A /usr/bin | grep -c coracle";
    let words = ["run", "--name", &c.name, &mode, &image, "sh", "-c", script];
    let first = w.coracle(&words).expect(1).out();
    assert_eq!(first, "8:9\n5:6\n5:6\n/etc/alternatives/awk\nusr/bin\n0\n");
    assert_eq!(w.coracle(&["start", "-a", &c.name]).expect(1).out(), first);
    let file = w.dir("links").join("tree.tar").display().to_string();
    w.coracle(&["export", "-o", &file, &c.name]).ok();
    let list = Command::new("tar").args(["--numeric-owner", "-tvf", &file]).output();
    let list = String::from_utf8_lossy(&list.expect("tar").stdout).into_owned();
    for (owner, link) in [("8/9", "n -> x"), ("5/6", "usr/bin/awk -> "), ("5/6", "bin -> ")] {
        let found = list
            .lines()
            .any(|line| line.contains(&format!(" {owner} ")) && line.contains(&format!(" {link}")));
        assert!(found, "{owner} {link}");
    }
    Ok(())
}

/// The image's own `/` has an owner and a mode.
fn of_the_root(w: &World) -> Outcome {
    emulates(w)?;
    let layer = testkit::guest::layer().entry(&Entry::new(b'5', "./").owner(7, 8).mode(0o2711));
    let dir = w.dir("root-owner");
    let name = "localhost/test/root:1";
    Image::new().layer(layer).build().write_layout(&dir, name).expect("a layout");
    w.coracle(&["load", "-q", "-i", &dir.display().to_string()]).ok();
    let mode = w.mode();
    let stat = ["run", "--rm", &mode, name, "/bin/guest", "stat", "/"];
    let stat = crate::contract::world::json(&w.coracle(&stat));
    assert_eq!((owner(&stat), &stat["mode"]), ((7, 8), &json!("2711")));
    Ok(())
}

/// `mount` finds its places below a root that the program has changed.
fn mounts_in_another_root(w: &World) -> Outcome {
    let image = debian(w)?;
    let script = "set -e; mkdir /r; mount --bind / /r; mkdir /srv/a
        chroot /r sh -c 'mount -t tmpfs none /mnt; touch /mnt/x; ls /mnt
            mount --bind /mnt /srv/a; ls /srv/a'
        ls /r/mnt /r/srv/a /mnt
        chroot /r umount /mnt; ls /r/mnt
        chroot /r setpriv --reuid 5 --regid 5 --clear-groups mount -t tmpfs none /mnt 2>&1 | wc -l";
    let done = sh(w, &image, &[], script);
    let text = done.ok().out();
    assert!(text.starts_with("x\nx\n/mnt:\n\n/r/mnt:\nx\n\n/r/srv/a:\nx\n"), "{done:?}");
    assert!(!text.ends_with("\n0\n"), "a user has mounted: {done:?}");
    Ok(())
}

/// What an earlier version has recorded of a file has no mark, and is shown.
fn records_without_marks(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("unmarked"));
    let make = ["write", "/f", "x", ";", "chown", "/f", "5", "6", ";", "mkdir", "/d", ";"];
    let make = [&make[..], &["chown", "/d", "7", "8"]].concat();
    w.coracle(&w.words_for(&["run"], &["--name", &c.name], &make)).ok();
    let place = w.store().join("containers").join(&c.name);
    for (name, mode) in [("f", 0o644), ("d", 0o755)] {
        let path = place.join("upper").join(name);
        let marked = fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(marked & 0o1000, 0o1000, "{name}");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
    }
    fs::remove_file(place.join("notes")).expect("the log");
    for (name, wanted) in [("/f", (5, 6)), ("/d", (7, 8))] {
        let stat = w.coracle(&["run", &w.mode(), &c.name, "/bin/guest", "stat", name]);
        assert_eq!(owner(&crate::contract::world::json(&stat)), wanted, "{name}");
    }
    Ok(())
}

/// A program that runs as the caller sees the modes of the image too.
fn the_caller_sees_no_marks(w: &World) -> Outcome {
    let me = format!("{}:{}", w.user.uid, w.user.gid);
    for (path, mode) in [("/etc/alices", "640"), ("/home/alice", "700"), ("/tmp", "1777")] {
        assert_eq!(w.json(&["-u", &me], &["stat", path])["mode"], json!(mode), "{path}");
    }
    Ok(())
}

/// The file that the processes of a container share is large; it goes with the last of them.
fn what_processes_share_goes(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("share"));
    let shared = w.store().join("containers").join(&c.name).join("run/view/shared");
    assert_eq!(w.coracle(&w.words_for(&["run"], &["--name", &c.name], &["ids"])).code(), 0);
    assert!(!shared.exists());
    let d = w.detached(&[], &["sleep", "300"]);
    let shared = w.store().join("containers").join(&d.name).join("run/view/shared");
    assert!(shared.exists());
    w.coracle(&["exec", &d.name, "/bin/guest", "ids"]).ok();
    assert!(shared.exists());
    w.coracle(&["kill", &d.name]).ok();
    w.coracle(&["wait", &d.name]).ok();
    let gone = until(Duration::from_secs(5), || (!shared.exists()).then_some(()));
    assert!(gone.is_some());
    Ok(())
}

/// Text that was changed for a program stays in bounds.
fn changed_text_goes(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("texts"));
    let flags = ["--isolate", "--network=none", "--name", &c.name];
    w.coracle(&w.words_for(&["run"], &flags, &["ids"])).ok();
    let seen = w.store().join("containers").join(&c.name).join("run/view");
    for number in 0..600 {
        fs::write(seen.join(format!("text-{number}b")), "").expect("a file");
    }
    fs::write(seen.join("text-1b.77"), "").expect("a file");
    w.coracle(&["start", "-a", &c.name]).ok();
    let texts = fs::read_dir(&seen).expect("a directory").flatten();
    let count =
        texts.filter(|entry| entry.file_name().to_string_lossy().starts_with("text-")).count();
    assert!(count < 100, "{count}");
    Ok(())
}

/// Containers of an image change the same text at once, each in processes of the same numbers: what
/// another one has begun to write is left alone.
fn unfinished_text_of_others(w: &World) -> Outcome {
    emulates(w)?;
    let home = w.dir("unfinished");
    let world = w.at(&home);
    world.fetch(Path::new("/nonexistent")).expect("the image in a store of its own");
    let trees = world.store().join("trees");
    let run = || world.guest(&["--pid=private"], &["exit", "0"]);
    run().ok();
    let finished = patched_files(&trees);
    assert!(!finished.is_empty(), "nothing is kept in {}", trees.display());
    for file in &finished {
        for thread in 1..100 {
            let begun = format!("{}.{thread:016x}", file.display());
            fs::write(&begun, "half").expect("a file");
            std::os::unix::fs::chown(&begun, Some(w.user.uid), Some(w.user.gid)).expect("an owner");
        }
        fs::remove_file(file).expect("a file");
    }
    let others = patched_files(&trees);
    run().ok();
    assert!(finished.iter().all(|file| file.exists()));
    let is_half = |file: &PathBuf| fs::read(file).is_ok_and(|bytes| bytes == b"half");
    assert!(others.iter().all(is_half), "another one's file was changed");
    Ok(())
}

/// Owners that were given in a directory of the user's are there again, and come out of `export`.
fn in_a_given_tree(w: &World) -> Outcome {
    emulates(w)?;
    let dir = w.dir("tree");
    fs::create_dir(dir.join("bin")).expect("a directory");
    fs::copy(testkit::guest::program(), dir.join("bin/guest")).expect("a copy");
    let user = format!("{}:{}", w.user.uid, w.user.gid);
    let done = Command::new("chown").args(["-R", &user]).arg(&dir).status();
    assert!(done.is_ok_and(|done| done.success()), "{} is not given away", dir.display());
    let c = Container::named(w, &w.name("given"));
    let (mode, tree) = (w.mode(), dir.display().to_string());
    let make = ["write", "/f", "x", ";", "chown", "/f", "5", "6", ";", "fifo", "/p", ";"];
    let make = [&make[..], &["chown", "/p", "7", "8"]].concat();
    let words = ["run", &mode, "--name", &c.name, "--rootfs", &tree, "/bin/guest"];
    w.coracle(&[&words[..], &make].concat()).ok();
    for (path, wanted) in [("/f", (5, 6)), ("/p", (7, 8))] {
        let stat = w.coracle(&["run", &c.name, "/bin/guest", "stat", path]);
        assert_eq!(owner(&crate::contract::world::json(&stat)), wanted, "{path}");
    }
    let file = w.dir("given").join("tree.tar").display().to_string();
    w.coracle(&["export", "-o", &file, &c.name]).ok();
    let list = Command::new("tar").args(["--numeric-owner", "-tvf", &file]).output();
    let list = String::from_utf8_lossy(&list.expect("tar").stdout).into_owned();
    for (owner, name) in [(" 5/6 ", " f"), (" 7/8 ", " p")] {
        assert!(list.lines().any(|line| line.contains(owner) && line.ends_with(name)), "{list}");
    }
    Ok(())
}
