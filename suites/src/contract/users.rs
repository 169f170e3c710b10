//! Tests of the program's ids, and of its rights as emulated root.

use serde_json::{Value, json};
use testkit::skip::Outcome;

use crate::contract::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("root_inside", root_inside),
    ("caller_outside", caller_outside),
    ("another_primary_group", another_primary_group),
    ("named_user", named_user),
    ("numbers", numbers),
    ("unknown_names_are_refused", unknown_names_are_refused),
    ("supplementary_groups", supplementary_groups),
    ("groups_of_the_image", groups_of_the_image),
    ("caller_by_number", caller_by_number),
    ("caller_inside", caller_inside),
    ("owners_of_the_image", owners_of_the_image),
    ("chown_succeeds", chown_succeeds),
    ("owners_come_out_of_export", owners_come_out_of_export),
    ("mknod_and_fifo", mknod_and_fifo),
    ("access_lists", access_lists),
    ("access_lists_on_volumes", access_lists_on_volumes),
    ("access_lists_of_images", access_lists_of_images),
    ("made_at_once", made_at_once),
    ("dropping_privileges", dropping_privileges),
    ("set_groups", set_groups),
    ("host_files_stay_protected", host_files_stay_protected),
];

fn ids(w: &World, flags: &[&str]) -> Value {
    w.json(flags, &["ids"])
}

fn root_inside(w: &World) -> Outcome {
    let ids = ids(w, &[]);
    assert_eq!((&ids["uid"], &ids["gid"]), (&json!([0, 0, 0]), &json!([0, 0, 0])));
    Ok(())
}

/// A file that root inside makes on a host directory belongs to the caller.
fn caller_outside(w: &World) -> Outcome {
    written_outside(w)
}

/// The store was filled by a caller with another group, as before `newgrp`: what the image has can
/// be changed all the same, in a new container and in one that was made before.
fn another_primary_group(w: &World) -> Outcome {
    if !rustix::process::getuid().is_root() {
        testkit::skip!("root alone can take a group that it is no member of");
    }
    let one = Container::named(w, &w.name("group"));
    let change = ["mkdir", "/data/made", ";", "write", "/data/made/x", "y", ";", "remove"];
    let change = [&change[..], &["/data/one", ";", "read", "/data/made/x"]].concat();
    w.coracle(&["create", &w.mode(), "--name", &one.name, &w.image]).ok();
    let other = w.in_group(w.user.gid + 70_000);
    assert_eq!(other.guest(&[], &change).ok().out(), "y");
    // Another store, which was filled under the new group.
    let home = w.dir("group");
    std::os::unix::fs::chown(&home, None, Some(other.user.gid)).expect("its group");
    let new = other.at(&home);
    let layout = home.join("layout");
    testkit::guest::image().build().write_layout(&layout, "localhost/new:1").expect("a layout");
    new.coracle(&["load", "-q", "-i", &layout.display().to_string()]).ok();
    let words = [&["run", "--rm", &new.mode(), "localhost/new:1", "/bin/guest"], &change[..]];
    assert_eq!(new.coracle(&words.concat()).ok().out(), "y");
    if w.engine == "R1" {
        testkit::skip!("a runtime of the host's mounts what the container was made with");
    }
    let words = [&["run", &one.name, "/bin/guest"], &change[..]].concat();
    assert_eq!(other.coracle(&words).ok().out(), "y");
    written_outside(&other)
}

fn written_outside(w: &World) -> Outcome {
    use std::os::unix::fs::MetadataExt as _;
    let dir = w.dir("owner");
    let bind = format!("{}:/m", dir.display());
    w.guest(&["-v", &bind], &["write", "/m/made", "x"]).ok();
    let meta = std::fs::metadata(dir.join("made")).expect("the file that was made");
    assert_eq!((meta.uid(), meta.gid()), (w.user.uid, w.user.gid));
    Ok(())
}

fn named_user(w: &World) -> Outcome {
    for name in ["alice", "1234"] {
        let ids = ids(w, &["-u", name]);
        assert_eq!(ids["uid"], json!([1234, 1234, 1234]), "-u {name}");
        assert_eq!(ids["gid"], json!([1235, 1235, 1235]), "-u {name}");
    }
    let home = w.json(&["-u", "alice"], &["getenv", "HOME"]);
    assert_eq!(home, json!("/home/alice"));
    Ok(())
}

fn numbers(w: &World) -> Outcome {
    for (user, uid, gid) in [
        ("5000", 5000, 0),
        ("5000:77", 5000, 77),
        ("alice:wheel", 1234, 77),
        ("0:0", 0, 0),
        ("0:50", 0, 50),
    ] {
        let ids = ids(w, &["-u", user]);
        assert_eq!((&ids["uid"][0], &ids["gid"][0]), (&json!(uid), &json!(gid)), "-u {user}");
    }
    Ok(())
}

fn unknown_names_are_refused(w: &World) -> Outcome {
    for user in ["nobody-here", "alice:no-such-group", "-5", "alice:"] {
        let done = w.guest(&[&format!("--user={user}")], &["ids"]);
        if user != "alice:" {
            done.expect(125);
            assert!(!done.err().is_empty(), "{done:?}");
        }
    }
    // In a system call this number means that an id stays.
    for flag in ["--user=4294967295", "--user=0:4294967295", "--group-add=4294967295"] {
        let done = w.guest(&[flag], &["ids"]);
        done.expect(125);
        let err = done.err();
        assert!(err.contains("id 4294967295 cannot be used"), "{done:?}");
        assert!(err.contains("hint: ") && err.lines().count() == 2, "{done:?}");
    }
    Ok(())
}

fn supplementary_groups(w: &World) -> Outcome {
    if !w.has_ids() {
        testkit::skip!("one mapped id: the kernel forbids setgroups, so no groups can be given");
    }
    let list = |flags: &[&str]| {
        let ids = ids(w, flags);
        let mut groups: Vec<u64> =
            ids["groups"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
        groups.retain(|group| Some(*group) != ids["gid"][0].as_u64());
        groups
    };
    assert_eq!(list(&["-u", "alice"]), [50, 77]);
    assert_eq!(
        list(&["-u", "alice", "--group-add", "300", "--group-add=daemon"]),
        [2, 50, 77, 300]
    );
    // For numeric ids Docker sets no further groups, podman those of the name; either is accepted.
    let by_number = list(&["-u", "1234:1235"]);
    assert!(by_number.is_empty() || by_number == [50, 77], "{by_number:?}");
    Ok(())
}

/// Groups of which the image's `/etc/group` says that its user is a member, root's too.
fn groups_of_the_image(w: &World) -> Outcome {
    if !w.has_ids() && w.engine == "R1" {
        testkit::skip!("one mapped id: the kernel forbids setgroups, and root is not emulated");
    }
    let container = Container::named(w, &w.name("groups"));
    let line = "audio:x:29:root\nvideo:x:44:alice,root\n";
    let change = ["append", "/etc/group", line];
    w.coracle(&w.words_for(&["run"], &["--name", &container.name], &change)).ok();
    let groups = |flags: &[&str]| {
        let mut words = vec!["run"];
        words.extend(flags);
        let mode = w.mode();
        words.extend([mode.as_str(), &container.name, "/bin/guest", "ids"]);
        crate::contract::world::json(&w.coracle(&words))["groups"].clone()
    };
    assert_eq!(groups(&[]), json!([0, 29, 44]));
    // Who names a group gets no others, as in Docker.
    assert_eq!(groups(&["-u", "0:0"]), json!([0]));
    if w.has_ids() {
        assert_eq!(groups(&["-u", "alice"]), json!([44, 50, 77, 1235]));
        assert_eq!(groups(&["--group-add=50"]), json!([0, 29, 44, 50]));
    }
    Ok(())
}

/// `-u $(id -u):$(id -g)` writes the caller's files as the caller.
fn caller_by_number(w: &World) -> Outcome {
    use std::os::unix::fs::MetadataExt as _;
    let dir = w.dir("mine");
    let bind = format!("{}:/m", dir.display());
    let me = format!("{}:{}", w.user.uid, w.user.gid);
    for (user, name) in [(me.as_str(), "both"), (&w.user.uid.to_string(), "user")] {
        let inside = format!("/m/{name}");
        let flags = ["-v", &bind, "-u", user];
        let stat = w.json(&flags, &["write", &inside, "x", ";", "stat", &inside]);
        assert_eq!(stat["uid"], json!(w.user.uid), "-u {user}");
        let meta = std::fs::metadata(dir.join(name)).expect("the file that was made");
        assert_eq!((meta.uid(), meta.gid()), (w.user.uid, w.user.gid), "-u {user}");
    }
    // Other owners in the image are who they were.
    if w.user.range {
        let stat = w.json(&["-u", &me], &["stat", "/etc/alices"]);
        assert_eq!((&stat["uid"], &stat["gid"]), (&json!(1234), &json!(1235)));
        let stat = w.json(&["--userns=keep-id"], &["stat", "/etc/alices"]);
        assert_eq!((&stat["uid"], &stat["gid"]), (&json!(1234), &json!(1235)));
    }
    Ok(())
}

fn caller_inside(w: &World) -> Outcome {
    for mode in ["keep-id", "host"] {
        let ids = ids(w, &[&format!("--userns={mode}")]);
        assert_eq!(ids["uid"][0], json!(w.user.uid), "{mode}");
        assert_eq!(ids["gid"][0], json!(w.user.gid), "{mode}");
    }
    Ok(())
}

fn owners_of_the_image(w: &World) -> Outcome {
    if !w.has_ids() {
        testkit::skip!("one mapped id: another owner than root cannot be on disk");
    }
    let stat = w.json(&[], &["stat", "/etc/alices"]);
    assert_eq!(
        (&stat["uid"], &stat["gid"], &stat["mode"]),
        (&json!(1234), &json!(1235), &json!("640"))
    );
    let stat = w.json(&[], &["stat", "/bin/setuid"]);
    assert_eq!((&stat["uid"], &stat["mode"]), (&json!(0), &json!("4755")));
    w.guest(&["-u", "alice"], &["read", "/etc/alices"]).ok();
    w.guest(&["-u", "daemon"], &["read", "/etc/alices"]).expect(9);
    Ok(())
}

fn chown_succeeds(w: &World) -> Outcome {
    let done = w.guest(
        &[],
        &[
            "write", "/tmp/x", "text", ";", "chown", "/tmp/x", "5", "6", ";", "stat", "/tmp/x",
            ";", "chown", "/tmp/x", "60000", "60000", ";", "stat", "/tmp/x",
        ],
    );
    done.ok();
    if w.has_ids() {
        let lines: Vec<Value> =
            done.out().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert_eq!((&lines[0]["uid"], &lines[0]["gid"]), (&json!(5), &json!(6)));
        assert_eq!(lines[1]["uid"], json!(60_000));
    }
    Ok(())
}

/// A file that root gave away belongs to the new owner in an archive, whether the kernel knows the
/// id or not.
fn owners_come_out_of_export(w: &World) -> Outcome {
    let container = Container::named(w, &w.name("owners"));
    let words = w.words_for(
        &["run"],
        &["--name", &container.name],
        &[
            "write",
            "/tmp/file",
            "x",
            ";",
            "chown",
            "/tmp/file",
            "33",
            "34",
            ";",
            "fifo",
            "/tmp/pipe",
            ";",
            "chown",
            "/tmp/pipe",
            "35",
            "36",
        ],
    );
    w.coracle(&words).ok();
    let archive = w.dir("export").join("tree.tar");
    let file = archive.display().to_string();
    w.coracle(&["export", "-o", &file, &container.name]).ok();
    let mut list = std::process::Command::new("tar");
    list.args(["tvf", &file, "--numeric-owner"]);
    let text = testkit::command::run(&mut list).ok().out();
    for (owner, path) in [("33/34", "tmp/file"), ("35/36", "tmp/pipe")] {
        let found = text.lines().any(|line| line.contains(owner) && line.contains(path));
        assert!(found, "{path} of {owner} in {text}");
    }
    Ok(())
}

/// What `access_lists.c` prints where root runs it on ext4.
const ACCESS_LISTS: &str = include_str!("access_lists.txt");

/// Access lists grant, deny and are inherited as by the kernel.
fn access_lists(w: &World) -> Outcome {
    let bound = lists_program(w)?;
    for mode in lists_modes(w) {
        let done = w.coracle(&["run", "--rm", &mode, "-v", &bound, &w.image, "/program"]);
        assert_eq!(done.ok().out(), ACCESS_LISTS, "{mode}: {done:?}");
    }
    Ok(())
}

fn access_lists_on_volumes(w: &World) -> Outcome {
    let bound = lists_program(w)?;
    let volume = format!("{}:/m", w.dir("volume").display());
    for mode in lists_modes(w) {
        let flags = ["run", "--rm", &mode, "-v", &bound, "-v", &volume, &w.image];
        let done = w.coracle(&[&flags[..], &["/program", "/m"]].concat());
        assert_eq!(done.ok().out(), ACCESS_LISTS, "{mode}: {done:?}");
    }
    Ok(())
}

/// A list goes into an archive and an image, with the mask of the file's mode.
fn access_lists_of_images(w: &World) -> Outcome {
    if w.user.range && w.has_overlay() {
        testkit::skip!("the lists are the host file system's, and no part of an image");
    }
    let bound = lists_program(w)?;
    let container = Container::named(w, &w.name("lists"));
    let image = w.name("with-lists");
    let mode = w.mode();
    let flags = ["run", &mode, "-v", &bound, "--name", &container.name, &w.image];
    w.coracle(&[&flags[..], &["/program", "keep"]].concat()).ok();
    let archive = w.dir("export").join("tree.tar").display().to_string();
    w.coracle(&["export", "-o", &archive, &container.name]).ok();
    w.coracle(&["import", &archive, &image]).ok();
    let done = w.coracle(&["run", "--rm", &mode, "-v", &bound, &image, "/program", "kept"]);
    let removed = w.coracle(&["rmi", &image]);
    assert_eq!(
        done.ok().out(),
        "/kept: 100640 0:0 u::6,u:33:6,g::0,m::4,o::0 ENODATA (1)\n  \
         33: opens(\"/kept\", O_RDONLY): ok\n  33: opens(\"/kept\", O_WRONLY): EACCES\n"
    );
    removed.ok();
    Ok(())
}

fn lists_modes(w: &World) -> impl Iterator<Item = String> {
    let also = (w.engine == "F2").then_some("F1");
    let mode = |name: &str| format!("--execmode={name}");
    [mode(&w.engine)].into_iter().chain(also.map(mode))
}

/// Compiles the program; returns the volume that it is.
fn lists_program(w: &World) -> Result<String, testkit::skip::Skip> {
    if !w.has_ids() && w.engine == "R1" {
        testkit::skip!("one mapped id: there are no other users, and root is not emulated");
    }
    let dir = w.dir("lists");
    let source = w.file(&dir, "access_lists.c", include_str!("access_lists.c"));
    let program = crate::contract::patched_code::compiled(&source, &["-static"])?;
    Ok(format!("{}:/program", program.display()))
}

/// What two processes of one user make at the same time belongs to that user, and both use it.
fn made_at_once(w: &World) -> Outcome {
    let source = w.file(&w.dir("at-once"), "at_once.c", include_str!("at_once.c"));
    let program = crate::contract::patched_code::compiled(&source, &["-static"])?;
    let bound = format!("{}:/program", program.display());
    for mode in lists_modes(w) {
        let flags = ["run", "--rm", &mode, "-u", "1234:1235", "-v", &bound, &w.image, "/program"];
        let done = w.coracle(&flags);
        assert_eq!(done.ok().out(), "500 500 500 500\n".repeat(2), "{mode}: {done:?}");
    }
    Ok(())
}

fn mknod_and_fifo(w: &World) -> Outcome {
    w.guest(&[], &["fifo", "/tmp/pipe"]).ok();
    assert_eq!(w.json(&[], &["fifo", "/tmp/p", ";", "stat", "/tmp/p"])["kind"], json!("fifo"));
    if w.user.range && w.has_overlay() {
        testkit::skip!("with a range the kernel judges mknod of a device itself, and refuses it");
    }
    let made = w.json(&[], &["mknod", "/tmp/null", "c", "1", "3", ";", "stat", "/tmp/null"]);
    assert_eq!(made["kind"], json!("char"), "{made}");
    Ok(())
}

/// Package managers and daemons change to another user permanently.
fn dropping_privileges(w: &World) -> Outcome {
    let done = w.guest(&[], &["setuid", "1234", "1235"]);
    done.ok();
    if w.has_ids() {
        assert_eq!(crate::contract::world::json(&done)["uid"], json!([1234, 1234, 1234]));
    }
    Ok(())
}

fn set_groups(w: &World) -> Outcome {
    let done = w.guest(&[], &["setgroups", "50", "77"]);
    done.ok();
    if w.has_ids() {
        assert_eq!(crate::contract::world::json(&done)["groups"], json!([50, 77]));
    }
    Ok(())
}

/// Root inside has no special rights outside.
fn host_files_stay_protected(w: &World) -> Outcome {
    w.guest(&["-v", "/etc:/hostetc"], &["append", "/hostetc/passwd", "x"]).expect(9);
    w.guest(&["-v", "/etc:/hostetc"], &["read", "/hostetc/shadow"]).expect(9);
    w.guest(&["-v", "/:/host"], &["write", "/host/coracle-was-here", "x"]).expect(9);
    Ok(())
}
