//! Tests of layers that try to leave their tree, and of unusual layers.

use testkit::image::{Image, Pack, compress};
use testkit::layer::{Entry, Layer};
use testkit::skip::Outcome;

use crate::hostile::{Answer, Case, Place};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("dot_dot", dot_dot),
    ("absolute_names", absolute_names),
    ("through_a_symlink", through_a_symlink),
    ("through_a_symlink_of_a_lower_layer", through_a_symlink_of_a_lower_layer),
    ("symlink_swapped_under_a_directory", symlink_swapped_under_a_directory),
    ("hard_links_out", hard_links_out),
    ("whiteouts_out", whiteouts_out),
    ("the_root_itself", the_root_itself),
    ("mount_points_as_links", mount_points_as_links),
    ("mount_points_through_relative_links", mount_points_through_relative_links),
    ("devices_are_not_the_hosts", devices_are_not_the_hosts),
    ("long_names", long_names),
    ("strange_names", strange_names),
    ("false_sizes", false_sizes),
    ("a_sparse_file_of_ten_terabytes", a_sparse_file_of_ten_terabytes),
    ("wrong_checksums", wrong_checksums),
    ("locked_directories", locked_directories),
    ("deep_tree", deep_tree),
    ("accounts_as_links", accounts_as_links),
];

fn image(layers: Vec<Layer>) -> testkit::image::Built {
    let mut image = testkit::guest::image();
    for layer in layers {
        image = image.layer(layer);
    }
    image.build()
}

/// Runs the guest in the image, to check that it is usable.
#[track_caller]
fn runs(place: &Place, name: &str) {
    let done = place.person.run(&["run", "--rm", name, "/bin/guest", "exit", "7"]);
    done.expect(7);
    place.walls(name);
}

fn outside(place: &Place) -> String {
    place.canary.display().to_string()
}

fn dot_dot(place: &Place) -> Outcome {
    for (n, name) in [
        "../../../../../../../../tmp/coracle-canary".to_owned(),
        "usr/../../../../../../etc/coracle-canary".to_owned(),
        "..".to_owned(),
        "a/../../coracle-canary".to_owned(),
        format!("../../../../../../../../..{}/written", outside(place)),
    ]
    .into_iter()
    .enumerate()
    {
        let layer = Layer::new().entry(&Entry::new(b'0', &name).data("x"));
        place.pull(&format!("dotdot{n}"), &image(vec![layer]), Answer::Either);
        place.store_works();
    }
    Ok(())
}

fn absolute_names(place: &Place) -> Outcome {
    let inside = format!("{}/written", outside(place));
    let layer = Layer::new().file(&inside, 0o644, "x").file("/etc/coracle-canary", 0o644, "x");
    let (_, name) = place.pull("absolute", &image(vec![layer]), Answer::Contained);
    let done =
        place.person.run(&["run", "--rm", &name, "/bin/guest", "read", "/etc/coracle-canary"]);
    assert_eq!(done.ok().out(), "x");
    Ok(())
}

fn through_a_symlink(place: &Place) -> Outcome {
    let canary = outside(place);
    let layer = Layer::new()
        .symlink("out", &canary)
        .file("out/written", 0o644, "x")
        .symlink("up", "../../../../../../../../../../tmp")
        .file("up/coracle-canary", 0o644, "x")
        .symlink("one", "two")
        .symlink("two", &canary)
        .dir("one/dir")
        .file("one/dir/written", 0o644, "x")
        .symlink("file", &format!("{canary}/bird"))
        .file("file", 0o644, "dead");
    let (done, name) = place.pull("symlink", &image(vec![layer]), Answer::Either);
    if done.code() == 0 {
        runs(place, &name);
    }
    Ok(())
}

fn through_a_symlink_of_a_lower_layer(place: &Place) -> Outcome {
    let canary = outside(place);
    let lower = Layer::new().symlink("out", &canary).symlink("etc2", "/etc");
    let upper = Layer::new()
        .file("out/written", 0o644, "x")
        .file("etc2/coracle-canary", 0o644, "x")
        .whiteout("out/bird")
        .opaque("out");
    let (done, name) = place.pull("lower", &image(vec![lower, upper]), Answer::Either);
    if done.code() == 0 {
        runs(place, &name);
    }
    Ok(())
}

fn symlink_swapped_under_a_directory(place: &Place) -> Outcome {
    let canary = outside(place);
    let layer = Layer::new()
        .dir("d")
        .dir("d/e")
        .file("d/e/first", 0o644, "x")
        .symlink("d/e", &canary)
        .file("d/e/written", 0o644, "x")
        .symlink("d", &canary)
        .file("d/written", 0o644, "x")
        .dir("d")
        .file("d/inside", 0o644, "x");
    let (done, name) = place.pull("swap", &image(vec![layer]), Answer::Either);
    if done.code() == 0 {
        runs(place, &name);
    }
    Ok(())
}

fn hard_links_out(place: &Place) -> Outcome {
    let canary = outside(place);
    for (n, target) in [
        format!("{canary}/bird"),
        "/etc/passwd".to_owned(),
        "../../../../../../../../etc/passwd".to_owned(),
        "link/bird".to_owned(),
        "no/such/file".to_owned(),
        ".".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let layer = Layer::new()
            .symlink("link", &canary)
            .hardlink("stolen", &target)
            // Writing through the hard link would change the file outside.
            .file("stolen", 0o644, "dead");
        let (done, name) = place.pull(&format!("hard{n}"), &image(vec![layer]), Answer::Either);
        if done.code() == 0 {
            let read = place.person.run(&["run", "--rm", &name, "/bin/guest", "read", "/stolen"]);
            assert!(!read.out().contains("alive") && !read.out().contains("daemon:"), "{read:?}");
        }
    }
    Ok(())
}

fn whiteouts_out(place: &Place) -> Outcome {
    let canary = outside(place);
    for (n, name) in [
        ".wh...".to_owned(),
        ".wh..".to_owned(),
        "etc/.wh...".to_owned(),
        ".wh.".to_owned(),
        format!("../../../../../../../..{canary}/.wh.bird"),
        "link/.wh.bird".to_owned(),
        ".wh..wh..opq".to_owned(),
        "link/.wh..wh..opq".to_owned(),
        ".wh.a/b".to_owned(),
    ]
    .into_iter()
    .enumerate()
    {
        let lower = Layer::new().symlink("link", &canary);
        let upper = Layer::new().entry(&Entry::new(b'0', &name));
        place.pull(&format!("whiteout{n}"), &image(vec![lower, upper]), Answer::Either);
        place.store_works();
    }
    Ok(())
}

fn the_root_itself(place: &Place) -> Outcome {
    let canary = outside(place);
    for (n, entry) in [
        Entry::new(b'2', ".").link(&canary),
        Entry::new(b'2', "./").link(&canary),
        Entry::new(b'0', "").data("x"),
        Entry::new(b'0', "/").data("x"),
        Entry::new(b'5', ".").mode(0o000),
        Entry::new(b'5', "./").mode(0o1777).owner(5, 5),
    ]
    .into_iter()
    .enumerate()
    {
        let layer = Layer::new().entry(&entry).file("after", 0o644, "x");
        place.pull(&format!("root{n}"), &image(vec![layer]), Answer::Either);
        place.store_works();
    }
    Ok(())
}

/// `/proc`, `/dev`, `/etc/hosts` as links to paths outside: mounting must not follow them.
fn mount_points_as_links(place: &Place) -> Outcome {
    let canary = outside(place);
    let bird = format!("{canary}/bird");
    for (n, layer) in [
        Layer::new().symlink("etc/hosts", &bird).symlink("etc/resolv.conf", &bird),
        Layer::new().symlink("etc/hostname", "../../../../../../../../etc/hostname"),
        Layer::new().whiteout("proc").symlink("proc", &canary),
        Layer::new().whiteout("dev").symlink("dev", &canary),
        Layer::new().whiteout("sys").symlink("sys", "../../../.."),
        Layer::new().whiteout("tmp").symlink("tmp", &canary),
        Layer::new().whiteout("etc").symlink("etc", &canary),
        Layer::new().whiteout("proc").file("proc", 0o644, "a file"),
    ]
    .into_iter()
    .enumerate()
    {
        let (done, name) = place.pull(&format!("mount{n}"), &image(vec![layer]), Answer::Either);
        if done.code() == 0 {
            let run = place.person.run(&[
                "run",
                "--rm",
                "--hostname=x",
                &name,
                "/bin/guest",
                "exit",
                "0",
            ]);
            place.judge(&format!("mount{n}"), &run, Answer::Either);
            assert!([0, 125].contains(&run.code()), "{run:?}");
            let volume = format!("{}:/etc/more", place.person.home.display());
            let run =
                place.person.run(&["run", "--rm", "-v", &volume, &name, "/bin/guest", "exit", "0"]);
            place.judge(&format!("mount{n} with a volume"), &run, Answer::Either);
        }
    }
    Ok(())
}

/// Links with many `..`: during a container's setup the host's root is near, and one step too far
/// must not lead there.
fn mount_points_through_relative_links(place: &Place) -> Outcome {
    let canary = outside(place);
    let up = format!("../../../../../..{canary}");
    let home = place.person.home.display().to_string();
    let layer = Layer::new()
        .symlink("var/climb", &up)
        .symlink("climb", &format!("..{canary}"))
        .symlink("var/written", &format!("{up}/written"))
        .whiteout("proc")
        .symlink("proc", &format!("..{canary}/proc"))
        .symlink("etc/hosts", &format!("../..{canary}/hosts"))
        .symlink("etc/resolv.conf", &format!("../..{canary}/bird"));
    let (done, name) = place.pull("relative", &image(vec![layer]), Answer::Either);
    if done.code() == 0 {
        for target in ["/var/climb/made", "/climb/made", "/var/written", "/climb", "/climb/../made"]
        {
            let volume = format!("{home}:{target}");
            let words =
                ["run", "--rm", "-w", target, "-v", &volume, &name, "/bin/guest", "list", target];
            let run = place.person.run(&words);
            place.judge(target, &run, Answer::Either);
            let words = [
                "run",
                "--rm",
                "--tmpfs",
                target,
                "-w",
                "/var/climb/cwd",
                &name,
                "/bin/guest",
                "exit",
                "0",
            ];
            let run = place.person.run(&words);
            place.judge(target, &run, Answer::Either);
        }
    }
    Ok(())
}

fn devices_are_not_the_hosts(place: &Place) -> Outcome {
    let layer = Layer::new()
        .entry(&Entry::new(b'3', "dev/mem").mode(0o666).device(1, 1))
        .entry(&Entry::new(b'4', "disk").mode(0o666).device(254, 0))
        .entry(&Entry::new(b'3', "zero").mode(0o666).device(1, 5))
        .entry(&Entry::new(b'6', "fifo").mode(0o666));
    let (_, name) = place.pull("devices", &image(vec![layer]), Answer::Contained);
    for path in ["/disk", "/dev/mem", "/zero"] {
        let done = place.person.run(&["run", "--rm", &name, "/bin/guest", "append", path, "x"]);
        assert!(!done.out().contains("EIO"), "{path}: a host device answered: {done:?}");
    }
    let done = place.person.run(&["run", "--rm", &name, "/bin/guest", "stat", "/fifo"]);
    assert!(done.ok().out().contains("\"fifo\""));
    Ok(())
}

fn long_names(place: &Place) -> Outcome {
    let long = "n".repeat(255);
    let fine = Layer::new().file(&format!("{long}/{long}/{long}"), 0o644, "x");
    place.pull("long-fine", &image(vec![fine]), Answer::Contained);
    for (n, length) in [256, 4096, 100_000].into_iter().enumerate() {
        let layer = Layer::new().entry(&Entry::new(b'0', "x".repeat(length)));
        place.pull(&format!("long{n}"), &image(vec![layer]), Answer::Refused);
        let many = "d/".repeat(length / 2);
        let layer = Layer::new().entry(&Entry::new(b'0', format!("{many}f")).gnu_names());
        place.pull(&format!("deep{n}"), &image(vec![layer]), Answer::Either);
    }
    place.store_works();
    Ok(())
}

fn strange_names(place: &Place) -> Outcome {
    let layer = Layer::new()
        .entry(&Entry::new(b'0', b"not\xff\xfeutf8").data("x"))
        .entry(&Entry::new(b'0', "new\nline").data("x"))
        .entry(&Entry::new(b'0', "a//b///c").data("x"))
        .entry(&Entry::new(b'0', "./././dots").data("x"))
        .entry(&Entry::new(b'0', " ").data("x"))
        .entry(&Entry::new(b'0', "-rf").data("x"))
        .entry(&Entry::new(b'0', "\x1b[31mred").data("x"));
    let (_, name) = place.pull("strange", &image(vec![layer]), Answer::Contained);
    let done = place.person.run(&["run", "--rm", &name, "/bin/guest", "list", "/"]);
    for wanted in ["not\u{ff}\u{fe}utf8", "new\\nline", "\"-rf\"", "dots"] {
        assert!(done.ok().out().contains(wanted), "{wanted}: {done:?}");
    }
    let nul = Layer::new().entry(&Entry::new(b'0', "x").pax("path", b"with\0nul"));
    place.pull("nul", &image(vec![nul]), Answer::Either);
    Ok(())
}

fn false_sizes(place: &Place) -> Outcome {
    let huge = Layer::new().entry(&Entry::new(b'0', "huge").claimed_size(10 << 40).data("x"));
    place.pull("claims", &image(vec![huge]), Answer::Refused);
    let negative = Layer::new().entry(&Entry::new(b'0', "neg").pax("size", "-5").data("x"));
    place.pull("negative", &image(vec![negative]), Answer::Refused);
    let tar = Layer::new().file("cut", 0o644, vec![b'x'; 5000]).unfinished();
    let cut = Image::new().packed(tar[..2000].to_vec(), Pack::Gzip).build();
    place.pull("cut", &cut, Answer::Refused);
    place.store_works();
    Ok(())
}

/// A sparse file of ten terabytes that takes a kilobyte in the archive.
fn a_sparse_file_of_ten_terabytes(place: &Place) -> Outcome {
    let real = (10u64 << 40).to_string();
    let sparse = Entry::new(b'0', "GNUSparseFile.0/huge")
        .pax("GNU.sparse.major", "1")
        .pax("GNU.sparse.minor", "0")
        .pax("GNU.sparse.name", "huge")
        .pax("GNU.sparse.realsize", &real)
        .data({
            let mut map = format!("1\n{real}\n0\n").into_bytes();
            map.resize(512, 0);
            map
        });
    place.pull("sparse", &image(vec![Layer::new().entry(&sparse)]), Answer::Refused);
    place.store_works();
    Ok(())
}

fn wrong_checksums(place: &Place) -> Outcome {
    let good = image(vec![Layer::new().file("data-of-it", 0o644, "x".repeat(10_000))]);
    // One bit of the registry's copy is flipped after the push.
    let repository = "hostile/damaged";
    place.registry.target().image(repository, "1", &good).expect("pushing");
    let last = good.layers.last().expect("a layer");
    let file = place.registry.blob_file(&last.digest);
    let mut bytes = std::fs::read(&file).expect("the blob");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).expect("the blob");
    let full = format!("{}/{repository}:1", place.registry.host());
    let done = place.person.run(&["pull", "-q", "--tls-verify=false", &full]);
    place.judge("damaged", &done, Answer::Refused);
    let stored = place.person.store().join("oci/blobs/sha256").join(last.hex());
    assert!(!stored.exists(), "a blob with a wrong digest entered the store");
    // A configuration with another diff ID than the layer's.
    let mut lying = image(vec![Layer::new().file("other", 0o644, "y")]);
    let text = String::from_utf8_lossy(&lying.config.bytes)
        .replace(&lying.diff_ids[1], &testkit::image::digest(b"another"));
    let config = testkit::image::Blob::new(&lying.config.media_type, text.into_bytes());
    let manifest = String::from_utf8_lossy(&lying.manifest.bytes)
        .replace(&lying.config.digest, &config.digest);
    let size = format!("\"size\":{}", lying.config.bytes.len());
    let manifest = manifest.replacen(&size, &format!("\"size\":{}", config.bytes.len()), 1);
    lying.manifest = testkit::image::Blob::new(&lying.manifest.media_type, manifest.into_bytes());
    lying.config = config;
    place.pull("diff-id", &lying, Answer::Refused);
    place.store_works();
    place.person.run(&["verify"]).ok();
    Ok(())
}

fn locked_directories(place: &Place) -> Outcome {
    let layer = Layer::new()
        .entry(&Entry::new(b'5', "locked").mode(0o000))
        .file("locked/inside", 0o000, "x")
        .entry(&Entry::new(b'5', "locked/deeper").mode(0o111))
        .file("locked/deeper/file", 0o400, "y")
        .entry(&Entry::new(b'5', "readable").mode(0o555))
        .file("readable/file", 0o444, "z");
    let upper = Layer::new().whiteout("locked/inside").file("readable/more", 0o644, "w");
    let (_, name) = place.pull("locked", &image(vec![layer, upper]), Answer::Contained);
    let done = place.person.run(&[
        "run",
        "--rm",
        &name,
        "/bin/guest",
        "list",
        "/locked",
        ";",
        "read",
        "/locked/deeper/file",
        ";",
        "list",
        "/readable",
    ]);
    assert_eq!(done.ok().out(), "[\"deeper\"]\ny[\"file\",\"more\"]\n");
    let c = "locked-container";
    place
        .person
        .run(&[
            "run",
            "--name",
            c,
            &name,
            "/bin/guest",
            "mkdir",
            "/locked/new",
            ";",
            "chmod",
            "/locked/new",
            "0",
        ])
        .ok();
    place.person.run(&["rm", c]).ok();
    place.person.run(&["rmi", "-f", &name]).ok();
    Ok(())
}

fn deep_tree(place: &Place) -> Outcome {
    let mut layer = Layer::new();
    let mut path = String::new();
    for n in 0..300 {
        path.push_str(if n == 0 { "d" } else { "/d" });
        layer = layer.dir(&path);
    }
    let (_, name) = place.pull("deeptree", &image(vec![layer]), Answer::Contained);
    runs(place, &name);
    place.person.run(&["rmi", "-f", &name]).ok();
    Ok(())
}

/// Coracle reads `/etc/passwd` of the image: it must be the image's file, whatever its kind.
fn accounts_as_links(place: &Place) -> Outcome {
    let bird = format!("{}/bird", outside(place));
    for (n, layer) in [
        Layer::new().symlink("etc/passwd", &bird),
        Layer::new().symlink("etc/passwd", "../../../../../../../../etc/passwd"),
        Layer::new().whiteout("etc/passwd").entry(&Entry::new(b'6', "etc/passwd")),
        Layer::new().symlink("etc/passwd", "/dev/zero"),
        Layer::new().file(
            "etc/passwd",
            0o644,
            "alice:x:4294967295:-1:::\n:::\n\n\0\0\n".repeat(1000),
        ),
        Layer::new().symlink("etc/passwd", "passwd"),
    ]
    .into_iter()
    .enumerate()
    {
        let (done, name) = place.pull(&format!("accounts{n}"), &image(vec![layer]), Answer::Either);
        if done.code() == 0 {
            for user in ["alice", "root", "coracle-range", "1234"] {
                let run =
                    place.person.run(&["run", "--rm", "-u", user, &name, "/bin/guest", "ids"]);
                place.judge(&format!("accounts{n} as {user}"), &run, Answer::Either);
                assert!(
                    !(user == "coracle-range" && run.code() == 0),
                    "the host's accounts were used: {run:?}"
                );
            }
        }
    }
    let _ = compress(b"", Pack::Plain);
    Ok(())
}
