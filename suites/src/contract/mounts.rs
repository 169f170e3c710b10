//! Tests of host directories, files, volumes and memory file systems in the container's tree.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testkit::command::copy_program;
use testkit::skip::Outcome;

use crate::contract::world::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("directory", directory),
    ("single_file", single_file),
    ("read_only_refuses_eleven_ways", read_only_refuses_eleven_ways),
    ("nested_in_any_order", nested_in_any_order),
    ("targets_through_links_stay_inside", targets_through_links_stay_inside),
    ("missing_targets_are_made", missing_targets_are_made),
    ("missing_sources", missing_sources),
    ("odd_names", odd_names),
    ("long_form", long_form),
    ("refused_forms", refused_forms),
    ("two_on_one_target", two_on_one_target),
    ("what_the_host_mounts_later", what_the_host_mounts_later),
    ("memory", memory),
    ("volumes", volumes),
    ("volume_starts_with_the_images_files", volume_starts_with_the_images_files),
    ("read_only_root", read_only_root),
    ("read_only_root_and_a_missing_directory", read_only_root_and_a_missing_directory),
    ("the_hosts_root", the_hosts_root),
    ("hosts_and_resolver", hosts_and_resolver),
    ("image_below_is_untouched", image_below_is_untouched),
    ("plain_tree_as_root", plain_tree_as_root),
    ("one_directory_under_two_names", one_directory_under_two_names),
    ("directories_closed_to_their_owner", directories_closed_to_their_owner),
];

fn bind(source: &Path, target: &str) -> String {
    format!("{}:{target}", source.display())
}

fn directory(w: &World) -> Outcome {
    let dir = w.dir("bind");
    w.file(&dir, "in", "from the host\n");
    let volume = bind(&dir, "/m");
    let done = w.guest(&["-v", &volume], &["read", "/m/in", ";", "write", "/m/out", "back"]);
    assert_eq!(done.ok().out(), "from the host\n");
    assert_eq!(fs::read_to_string(dir.join("out")).ok().as_deref(), Some("back"));
    // Over a directory that the image has.
    let done = w.guest(&["-v", &bind(&dir, "/data")], &["list", "/data"]);
    assert_eq!(crate::contract::world::json(&done), json!(["in", "out"]));
    Ok(())
}

fn single_file(w: &World) -> Outcome {
    let dir = w.dir("file");
    let file = w.file(&dir, "f", "host\n");
    let done = w.guest(&["-v", &bind(&file, "/etc/image-file")], &["read", "/etc/image-file"]);
    assert_eq!(done.ok().out(), "host\n");
    w.guest(&["-v", &bind(&file, "/new/deep/file")], &["append", "/new/deep/file", "more"]).ok();
    assert_eq!(fs::read_to_string(&file).ok().as_deref(), Some("host\nmore"));
    w.guest(&["-v", &bind(&file, "/etc/passwd:ro")], &["append", "/etc/passwd", "x"]).expect(9);
    Ok(())
}

fn read_only_refuses_eleven_ways(w: &World) -> Outcome {
    let dir = w.dir("ro");
    w.file(&dir, "file", "kept");
    let answers = |flags: &[&str]| {
        let answers = w.json(flags, &["mutate", "/m"]);
        let pairs: Vec<(String, String)> = serde_json::from_value(answers).expect("pairs");
        pairs
    };
    for form in [format!("{}:/m:ro", dir.display()), format!("{}:/m:ro,z", dir.display())] {
        for (way, answer) in answers(&["-v", &form]) {
            assert_eq!(answer, "EROFS", "{way} with {form}");
        }
    }
    let long = format!("type=bind,src={},dst=/m,readonly", dir.display());
    for (way, answer) in answers(&["--mount", &long]) {
        assert_eq!(answer, "EROFS", "{way} with --mount");
    }
    assert_eq!(fs::read_to_string(dir.join("file")).ok().as_deref(), Some("kept"));
    // The same eleven operations work on a writable mount, so the test is meaningful.
    for (way, answer) in answers(&["-v", &bind(&dir, "/m")]) {
        assert!(answer == "done" || (way == "unlink" && answer == "ENOENT"), "{way}: {answer}");
    }
    // Another mount does not make it writable either.
    let dir = w.dir("ro2");
    w.file(&dir, "file", "kept");
    w.guest(&["-v", &format!("{}:/m:ro", dir.display())], &["chmod", "/m", "777"]).expect(9);
    Ok(())
}

fn nested_in_any_order(w: &World) -> Outcome {
    let (outer, inner) = (w.dir("outer"), w.dir("inner"));
    w.file(&outer, "o", "");
    w.file(&inner, "i", "");
    let (outer, inner) = (bind(&outer, "/m"), bind(&inner, "/m/sub"));
    for flags in [["-v", &outer, "-v", &inner], ["-v", &inner, "-v", &outer]] {
        let done = w.guest(&flags, &["list", "/m", ";", "list", "/m/sub"]);
        assert_eq!(done.ok().out(), "[\"o\",\"sub\"]\n[\"i\"]\n", "{flags:?}");
    }
    Ok(())
}

fn targets_through_links_stay_inside(w: &World) -> Outcome {
    let dir = w.dir("link");
    w.file(&dir, "seen", "");
    // `/var/link-to-etc` is a link to `/etc`: the image's, never the host's.
    let done = w.guest(&["-v", &bind(&dir, "/var/link-to-etc/sub")], &["list", "/etc/sub"]);
    assert_eq!(crate::contract::world::json(&done), json!(["seen"]));
    let done = w.guest(&["-v", &bind(&dir, "/var/link-out/sub")], &["list", "/etc/sub"]);
    assert_eq!(crate::contract::world::json(&done), json!(["seen"]));
    assert!(!Path::new("/etc/sub").exists(), "a mount point was made on the host");
    let done = w.guest(&["-v", &bind(&dir, "/../../up")], &["list", "/up"]);
    assert_eq!(crate::contract::world::json(&done), json!(["seen"]));
    Ok(())
}

fn missing_targets_are_made(w: &World) -> Outcome {
    let dir = w.dir("target");
    w.file(&dir, "x", "");
    let done = w.guest(&["-v", &bind(&dir, "/a/b/c/d")], &["list", "/a/b/c/d"]);
    assert_eq!(crate::contract::world::json(&done), json!(["x"]));
    Ok(())
}

fn missing_sources(w: &World) -> Outcome {
    let missing = w.dir("source").join("missing");
    let long = format!("type=bind,src={},dst=/m", missing.display());
    let done = w.guest(&["--mount", &long], &["list", "/m"]);
    done.expect(125);
    assert!(done.err().contains("missing"), "the error names the path: {done:?}");
    assert!(!missing.exists(), "--mount makes nothing");
    // As in Docker, `-v` makes it.
    let below = missing.join("below");
    let done = w.guest(&["-v", &bind(&below, "/m")], &["write", "/m/x", "text"]);
    assert!(done.ok().err().contains("note: "), "{done:?}");
    assert_eq!(fs::read_to_string(below.join("x")).ok().as_deref(), Some("text"));
    let quiet = w.guest(&["-v", &bind(&below, "/m")], &["list", "/m"]);
    assert_eq!(quiet.ok().err(), "");
    let refused = w.guest(&["-v", "/proc/none/here:/m"], &["list", "/m"]);
    refused.expect(125);
    assert!(refused.err().contains("/proc/none/here"), "{refused:?}");
    Ok(())
}

fn odd_names(w: &World) -> Outcome {
    let dir = w.dir("odd");
    for name in ["with space", "ünï", "back\\slash", "quote'", "new\nline"] {
        let inner = dir.join(name);
        fs::create_dir(&inner).expect("a directory");
        fs::write(inner.join("x"), "").expect("a file");
        let target = format!("/t {}", name.replace('\n', " "));
        let done = w.guest(&["-v", &format!("{}:{target}", inner.display())], &["list", &target]);
        assert_eq!(crate::contract::world::json(&done), json!(["x"]), "{name:?}");
    }
    Ok(())
}

fn long_form(w: &World) -> Outcome {
    let dir = w.dir("long");
    w.file(&dir, "x", "");
    let source = dir.display();
    for form in [
        format!("type=bind,source={source},target=/m"),
        format!("type=bind,src={source},dst=/m,ro"),
        format!("destination=/m,source={source},type=bind,readonly=true"),
    ] {
        let done = w.guest(&["--mount", &form], &["list", "/m"]);
        assert_eq!(crate::contract::world::json(&done), json!(["x"]), "{form}");
    }
    let done = w.guest(&["--mount", "type=tmpfs,dst=/t,tmpfs-size=1m"], &["statfs", "/t"]);
    assert_eq!(crate::contract::world::json(&done)["type"], json!("0x1021994"));
    Ok(())
}

fn refused_forms(w: &World) -> Outcome {
    for form in
        ["type=nothing,dst=/m", "type=bind,dst=/m", "type=bind,src=/tmp", "bogus=1,dst=/m,src=/tmp"]
    {
        w.guest(&["--mount", form], &["exit", "0"]).expect(125);
    }
    for form in ["/tmp:relative", "/tmp:/m:nonsense", ":/m", "/tmp:/m:ro:more"] {
        w.guest(&["-v", form], &["exit", "0"]).expect(125);
    }
    Ok(())
}

/// A mount on the host, removed when the case ends in any way.
pub(crate) struct HostMount<'p>(&'p Path);

impl<'p> HostMount<'p> {
    pub(crate) fn new(words: &[&str], place: &'p Path) -> Self {
        let done = Command::new("mount").args(words).arg(place).status().expect("mount runs");
        assert!(done.success(), "mount {words:?} {}", place.display());
        Self(place)
    }
}

impl Drop for HostMount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

fn what_the_host_mounts_later(w: &World) -> Outcome {
    if !rustix::process::getuid().is_root() {
        testkit::skip!("only root can mount something on the host");
    }
    let dir = w.dir("later");
    let point = dir.join("point");
    fs::create_dir(&point).expect("a mount point");
    let text = dir.display().to_string();
    let _peers = HostMount::new(&["--bind", &text], &dir);
    let done = Command::new("mount").arg("--make-shared").arg(&dir).status();
    assert!(done.is_ok_and(|status| status.success()));
    let sees = |volume: &str| {
        let c = w.detached(&["-v", volume], &["ready", ";", "sleep", "300"]);
        c.said("ready");
        let _later = HostMount::new(&["-t", "tmpfs", "-o", "mode=755", "none"], &point);
        fs::write(point.join("file"), "later").expect("a file in it");
        c.exec(&[], &["read", "/m/point/file"]).code() == 0
    };
    for option in ["", ":rslave", ":slave"] {
        assert!(sees(&format!("{text}:/m{option}")), "with '{option}'");
    }
    let cut_off = format!("{text}:/m:rprivate");
    if w.has_overlay() {
        assert!(!sees(&cut_off));
    } else {
        let said = w.guest(&["-v", &cut_off], &["exit", "0"]).expect(125).err();
        assert!(said.contains("private") && said.contains("--execmode"), "{said}");
    }
    w.guest(&["-v", &format!("{text}:/m:rshared")], &["exit", "0"]).expect(125);
    Ok(())
}

fn memory(w: &World) -> Outcome {
    let flags = ["--tmpfs", "/scratch:size=1m,mode=1777"];
    let done = w.guest(
        &flags,
        &["statfs", "/scratch", ";", "stat", "/scratch", ";", "fill", "/scratch/f", "3"],
    );
    let text = done.ok().out();
    let lines: Vec<&str> = text.lines().collect();
    let statfs: Value = serde_json::from_str(lines[0]).expect("statfs");
    assert_eq!((&statfs["type"], &statfs["size"]), (&json!("0x1021994"), &json!(1 << 20)));
    assert!(lines[1].contains("\"mode\":\"1777\""), "{text}");
    assert!(lines[2].contains("ENOSPC"), "{text}");
    // Over a directory with files: empty.
    assert_eq!(w.json(&["--tmpfs=/data"], &["list", "/data"]), json!([]));
    Ok(())
}

fn volumes(w: &World) -> Outcome {
    let name = w.name("vol");
    assert_eq!(w.coracle(&["volume", "create", &name]).ok().line(), name);
    let flag = format!("{name}:/v");
    w.guest(&["-v", &flag], &["write", "/v/kept", "yes"]).ok();
    assert_eq!(w.guest(&["-v", &flag], &["read", "/v/kept"]).ok().out(), "yes");
    w.guest(&["-v", &format!("{flag}:ro")], &["write", "/v/kept", "no"]).expect(9);
    let long = format!("type=volume,src={name},dst=/w");
    assert_eq!(w.guest(&["--mount", &long], &["read", "/w/kept"]).ok().out(), "yes");
    let listed = w.coracle(&["volume", "ls", "-q"]).ok().out();
    assert!(listed.lines().any(|line| line == name), "{listed}");
    let container = w.detached(&["-v", &flag], &["sleep", "60"]);
    let refused = w.coracle(&["volume", "rm", &name]);
    assert_ne!(refused.code(), 0, "a volume in use was removed: {refused:?}");
    drop(container);
    w.coracle(&["volume", "rm", &name]).ok();
    // One made without a name goes when none uses it, as in Docker; one with a name stays.
    let unnamed = w.coracle(&["volume", "create"]).ok().line();
    w.coracle(&["volume", "create", &name]).ok();
    w.guest(&["-v", &format!("{unnamed}:/v")], &["write", "/v/x", ""]).ok();
    let listed = w.coracle(&["volume", "ls", "-q"]).ok().out();
    assert!(listed.lines().any(|line| line == unnamed), "--rm took it: {listed}");
    let pruned = w.coracle(&["volume", "prune", "-f"]).ok().out();
    assert!(pruned.lines().any(|line| line == unnamed), "{pruned}");
    w.coracle(&["volume", "rm", &name]).ok();
    // Made at its first use.
    let fresh = w.name("fresh");
    w.guest(&["-v", &format!("{fresh}:/v")], &["write", "/v/x", ""]).ok();
    w.coracle(&["volume", "inspect", &fresh]).ok();
    w.coracle(&["volume", "rm", &fresh]).ok();
    Ok(())
}

fn volume_starts_with_the_images_files(w: &World) -> Outcome {
    let name = w.name("filled");
    let done = w.guest(&["-v", &format!("{name}:/data")], &["read", "/data/sub/two"]);
    w.coracle(&["volume", "rm", &name]);
    assert_eq!(done.ok().out(), "2\n");
    Ok(())
}

/// As in Docker, two mounts on one target are refused, but for a volume without a name.
fn two_on_one_target(w: &World) -> Outcome {
    let dir = w.dir("twice");
    w.file(&dir, "in", "");
    let (one, other) = (bind(&dir, "/x"), bind(Path::new("/tmp"), "/x/"));
    let long = format!("type=bind,src={},dst=/y/../x", dir.display());
    for flags in [
        &["-v", &one, "-v", &other][..],
        &["-v", &one, "--tmpfs", "/x"],
        &["-v", &other, "--mount", &long],
        &["--tmpfs", "/x", "-v", "named:/x"],
    ] {
        let done = w.guest(flags, &["exit", "0"]);
        assert!(done.expect(125).err().contains("Duplicate mount point: /x"), "{done:?}");
    }
    for flags in
        [&["-v", "/x", "-v", &one][..], &["-v", &one, "-v", "/x"], &["-v", &one, "-v", &one]]
    {
        assert_eq!(w.json(flags, &["list", "/x"]), json!(["in"]), "{flags:?}");
    }
    Ok(())
}

/// As in Docker, the working directory is made when the container is.
fn read_only_root_and_a_missing_directory(w: &World) -> Outcome {
    let flags = ["--read-only", "-w", "/missing/deep"];
    assert_eq!(w.json(&flags, &["facts"])["cwd"], json!("/missing/deep"));
    let done = w.guest(&flags, &["write", "/missing/deep/x", ""]);
    assert_eq!(done.expect(9).out(), "error: EROFS\n");
    let dir = w.dir("cwd");
    let volume = bind(&dir, "/m");
    let flags = ["--read-only", "-v", &volume, "-w", "/m/made"];
    assert_eq!(w.json(&flags, &["facts"])["cwd"], json!("/m/made"));
    assert!(dir.join("made").is_dir());
    let closed = format!("{volume}:ro");
    w.guest(&["--read-only", "-v", &closed, "-w", "/m/new"], &["facts"]).expect(125);
    Ok(())
}

fn read_only_root(w: &World) -> Outcome {
    for path in ["/new", "/etc/new", "/data/one"] {
        let done = w.guest(&["--read-only"], &["write", path, "x"]);
        assert_eq!(done.expect(9).out(), "error: EROFS\n", "{path}");
    }
    let dir = w.dir("rw");
    let volume = bind(&dir, "/m");
    let flags = ["--read-only", "--tmpfs", "/tmp", "-v", &volume];
    w.guest(
        &flags,
        &[
            "write",
            "/tmp/x",
            "1",
            ";",
            "write",
            "/m/x",
            "1",
            ";",
            "write",
            "/dev/shm/coracle-x",
            "",
            ";",
            "remove",
            "/dev/shm/coracle-x",
        ],
    )
    .ok();
    Ok(())
}

fn hosts_and_resolver(w: &World) -> Outcome {
    let name = "inside.example.org";
    let flags = ["--add-host", "db:10.1.2.3", "--hostname", name, "--dns=9.9.9.9"];
    let done =
        w.guest(&flags, &["read", "/etc/hosts", ";", "read", "/etc/resolv.conf", ";", "hostname"]);
    let text = done.ok().out();
    let own = "\tinside.example.org inside\n";
    for wanted in ["10.1.2.3", "db", "127.0.0.1", "localhost", "nameserver 9.9.9.9", own] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert_eq!(text.lines().last(), Some(name));
    // By default the host's resolver, since programs need the network.
    let host = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    if let Some(server) = host.lines().find(|line| line.starts_with("nameserver")) {
        let text = w.guest(&[], &["read", "/etc/resolv.conf"]).ok().out();
        assert!(text.contains(server), "{text}");
    }
    Ok(())
}

/// The host's own tree as the root.
fn the_hosts_root(w: &World) -> Outcome {
    let mode = w.mode();
    w.coracle(&["run", "--rm", &mode, "--rootfs", "/", "/bin/sh", "-c", "test -e /etc/passwd"])
        .ok();
    Ok(())
}

fn image_below_is_untouched(w: &World) -> Outcome {
    let dir = w.dir("below");
    w.guest(&["-v", &bind(&dir, "/fresh/mount/point")], &["exit", "0"]).ok();
    let seen = w.json(&[], &["list", "/"]);
    assert!(!seen.to_string().contains("fresh"), "a mount point stayed in the image: {seen}");
    Ok(())
}

fn plain_tree_as_root(w: &World) -> Outcome {
    let dir = w.dir("tree");
    let tree = dir.join("tree");
    for name in ["bin", "proc", "dev", "sys", "etc", "tmp"] {
        fs::create_dir_all(tree.join(name)).expect("a directory");
    }
    copy_program(testkit::guest::program(), &tree.join("bin/guest"));
    let give = |path: &Path| std::os::unix::fs::chown(path, Some(w.user.uid), Some(w.user.gid));
    for name in ["", "bin", "bin/guest", "proc", "dev", "sys", "etc", "tmp"] {
        give(&tree.join(name)).expect("giving the tree to the user");
    }
    let mode = w.mode();
    let path = tree.display().to_string();
    let words = ["run", "--rm", &mode, "--rootfs", &path, "/bin/guest", "write", "/tmp/made", "x"];
    w.coracle(&words).ok();
    assert!(tree.join("tmp/made").exists(), "a plain tree is used as it is");
    // Names that were asked for are there, though the tree has no such file.
    let flags = ["run", "--rm", &mode, "--add-host", "db:10.1.2.3", "--rootfs", &path];
    let done = w.coracle(&[&flags[..], &["/bin/guest", "read", "/etc/hosts"]].concat());
    assert!(done.ok().out().contains("10.1.2.3"), "{done:?}");
    Ok(())
}

/// Bindings of the same host directory: `..` and the working directory's name follow the path by
/// which the directory was entered, as with mounts.
fn one_directory_under_two_names(w: &World) -> Outcome {
    let dir = w.dir("twice");
    for name in ["data/sub", "beside"] {
        fs::create_dir_all(dir.join(name)).expect("a directory");
    }
    w.file(&dir.join("beside"), "file", "found\n");
    let same = |path: &str| format!("{path} {path}\n");
    let flags = |volumes: &[&str], cwd: &str| -> Vec<String> {
        let volumes = volumes.iter().flat_map(|volume| ["-v".to_owned(), (*volume).to_owned()]);
        volumes.chain(["-w".to_owned(), cwd.to_owned()]).collect()
    };
    let nested =
        flags(&[&bind(&dir, "/home/me"), &bind(&dir.join("data"), "/second")], "/home/me/data");
    let nested: Vec<&str> = nested.iter().map(String::as_str).collect();
    let steps = ["cwd", ";", "read", "../beside/file", ";", "cd", "sub", ";", "cwd", ";"];
    let more = [
        "cd",
        "../..",
        ";",
        "cwd",
        ";",
        "cd",
        "/second/sub",
        ";",
        "cwd",
        ";",
        "exec",
        "/bin/guest",
        "cwd",
    ];
    let done = w.guest(&nested, &[&steps[..], &more[..]].concat());
    let expected = [
        same("/home/me/data"),
        "found\n".to_owned(),
        same("/home/me/data/sub"),
        same("/home/me"),
        same("/second/sub"),
        same("/second/sub"),
    ];
    assert_eq!(done.ok().out(), expected.concat());
    // Descriptors have a name too.
    let twice = flags(&[&bind(&dir, "/a"), &bind(&dir, "/mnt/b")], "/mnt/b/data");
    let twice: Vec<&str> = twice.iter().map(String::as_str).collect();
    let steps = ["cd-fd", "sub", ";", "cwd", ";", "cd-fd", "..", ";", "cwd", ";"];
    let more = ["cd-fd", "/a/data", ";", "cwd", ";", "cd-fd", "/mnt/b", ";", "cwd"];
    let done = w.guest(&twice, &[&steps[..], &more[..]].concat());
    let expected = ["/mnt/b/data/sub", "/mnt/b/data", "/a/data", "/mnt/b"].map(same);
    assert_eq!(done.ok().out(), expected.concat());
    Ok(())
}

/// The container's root changes names in directories without write permission for their owner, as
/// images of some distributions have them, and sees their mode unchanged.
fn directories_closed_to_their_owner(w: &World) -> Outcome {
    let dir = w.dir("closed");
    let give = |path: &Path| std::os::unix::fs::chown(path, Some(w.user.uid), Some(w.user.gid));
    for name in ["one", "two", "one/moved"] {
        let path = dir.join(name);
        fs::create_dir(&path).expect("a directory");
        give(&path).expect("giving it to the user");
    }
    w.file(&dir.join("one"), "old", "");
    for name in ["one/moved", "one", "two"] {
        let closed = fs::Permissions::from_mode(0o555);
        fs::set_permissions(dir.join(name), closed).expect("a mode");
    }
    let volume = bind(&dir, "/v");
    let made = ["write", "/v/one/new", "x", ";", "mkdir", "/v/two/dir", ";", "fifo", "/v/two/pipe"];
    let more = [";", "remove", "/v/one/old", ";", "rename", "/v/one/moved", "/v/two/came"];
    w.guest(&["-v", &volume], &[&made[..], &more[..]].concat()).ok();
    let modes = ["/v/one", "/v/two", "/v/two/came"].map(|path| {
        let seen = w.json(&["-v", &volume], &["stat", path]);
        seen["mode"].as_str().unwrap_or_default().to_owned()
    });
    assert_eq!(modes, ["555"; 3]);
    let mut names = crate::contract::world::json(&w.guest(&["-v", &volume], &["list", "/v/two"]));
    names.as_array_mut().expect("a list").sort_by_key(ToString::to_string);
    assert_eq!(names, json!(["came", "dir", "pipe"]));
    // Other users, and a read-only volume, are refused as before.
    let flags = ["-v", &volume, "-u", "33:33"];
    w.guest(&flags, &["write", "/v/one/more", "x"]).expect(9);
    let read_only = format!("{volume}:ro");
    w.guest(&["-v", &read_only], &["write", "/v/one/more", "x"]).expect(9);
    Ok(())
}
