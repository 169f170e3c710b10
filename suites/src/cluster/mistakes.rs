//! Files and names that are wrong, on the command line.

use testkit::command::Finished;
use testkit::registry::Registry;

use crate::cluster::Case;
use crate::cluster::world::{BOX, Lab, unbuilt};

pub(crate) const CASES: &[Case] = &[
    ("bad_files", bad_files),
    ("not_carried_out_yet", not_carried_out_yet),
    ("no_room", no_room),
    ("explain_needs_nothing", explain_needs_nothing),
    ("names_are_no_paths", names_are_no_paths),
    ("image_of_another_platform", image_of_another_platform),
    ("a_tag_that_moves", a_tag_that_moves),
];

/// The text, what is said of it, the line, and the hint.
const BAD: &[(&str, &str, u32, &str)] = &[
    ("name = ", "", 1, "TOML"),
    ("name = \"a\"\nname = \"b\"\nnodes = 1\n", "duplicate key", 2, "each name stands once"),
    ("name = \"Lab\"\nimage = \"a\"\nnodes = 1\n", "no host name", 1, "letters a-z"),
    ("name = \"a/b\"\nimage = \"a\"\nnodes = 1\n", "no host name", 1, "letters a-z"),
    ("name = \"lab\"\nimage = \"a\"\nnode = 1\n", "unknown key \"node\"", 3, "did you mean nodes?"),
    ("name = \"lab\"\nimage = \"a\"\nnodes = 0\n", "from 1 to 1000", 3, "without quotes"),
    ("name = \"lab\"\nimage = \"a\"\nnodes = \"2\"\n", "whole number", 3, "without quotes"),
    ("name = \"lab\"\nnodes = 1\n", "the nodes have no image", 1, "image = "),
    ("name = \"lab\"\n[service.a]\n", "it has no image", 2, "image = "),
    (
        "name = \"lab\"\nimage = \"a\"\n[service.a]\nafter = [\"b\"]\n[service.b]\nafter = [\"a\"]\n",
        "services wait for each other: a -> b -> a",
        4,
        "take one of them out",
    ),
    (
        "name = \"lab\"\nimage = \"a\"\n[service.db]\n[service.web]\nafter = [\"bd\"]\n",
        "there is no service \"bd\"",
        5,
        "did you mean \"db\"?",
    ),
    (
        "name = \"lab\"\nimage = \"a\"\n[service.db]\n[service.db-1]\n",
        "a container of service \"db\" has this name",
        4,
        "rename",
    ),
    (
        "name = \"lab\"\nimage = \"a\"\n[service.db]\nready = { tcp = 1, within = \"5\" }\n",
        "this is not a time",
        4,
        "10s",
    ),
    (
        "name = \"lab\"\nimage = \"a\"\nnodes = 2\n[run]\non = \"node3\"\ncommand = [\"a\"]\n",
        "there is no node \"node3\"",
        5,
        "node1 to node2",
    ),
];

fn bad_files(lab: &Lab<'_>) {
    for (text, fact, line, hint) in BAD {
        lab.file(text);
        for (word, status) in [("explain", 1), ("up", 125), ("status", 1), ("down", 1)] {
            let done = lab.cluster(word, &[]);
            let said = done.expect(status).err();
            let place = format!("lab.toml:{line}:");
            assert!(said.contains(fact) && said.contains(&place), "{text}: {said}");
            assert!(said.contains("hint: ") && said.contains(hint), "{text}: {said}");
            assert_eq!(done.out(), "");
        }
    }
    let gone = lab.run(&["cluster", "up", "-f", "/no/such.toml"]);
    assert!(gone.expect(125).err().contains("/no/such.toml"), "{gone:?}");
    let binary = lab.dir.join("lab.toml");
    lab.world.person.file(&binary, b"name = \"\xff\"\n");
    assert!(lab.cluster("explain", &[]).expect(1).err().contains("is not UTF-8"));
}

/// What a file may say and this version does not do: `explain` shows it, `up` says where it is.
fn not_carried_out_yet(lab: &Lab<'_>) {
    let begin = format!("name = \"lab\"\nimage = \"{BOX}\"\nnodes = 1\n");
    for (more, key) in [
        ("backend = { kind = \"qemu\" }\n", "qemu"),
        ("backend = { kind = \"aws\" }\n", "aws"),
        ("[service.web]\nbuild = \"./web\"\n", "build"),
        (
            "[service.web]\npublish = [\"80\"]\nbalance = { by = \"haproxy\", pair = true }\n",
            "a pair of balancers",
        ),
        ("[run]\ncommand = [\"a\"]\n[checkpoint]\n", "checkpoint"),
    ] {
        lab.file(&format!("{begin}{more}"));
        lab.cluster("explain", &[]).ok();
        let up = lab.cluster("up", &[]);
        let said = up.expect(125).err();
        assert!(said.contains(key) && said.contains("is not carried out yet"), "{said}");
        assert!(said.contains("lab.toml:") && said.contains("hint: "), "{said}");
    }
}

/// More containers than the network has addresses: nothing is started.
fn no_room(lab: &Lab<'_>) {
    let text = format!("name = \"big\"\nimage = \"{BOX}\"\n");
    lab.file(&format!("{text}nodes = 300\n"));
    let up = lab.cluster("up", &["-d"]);
    let said = up.expect(125).err();
    assert!(said.contains("may have 300 containers on this machine"), "{said}");
    assert!(said.contains("hint: ") && said.contains("subnet = "), "{said}");
    lab.is_clean();
    lab.file(&format!("{text}[service.web]\ncommand = \"exec sleep 600\"\n"));
    lab.cluster("up", &["-d"]).ok();
    let scale = lab.cluster("scale", &["web=1000"]);
    let said = scale.expect(1).err();
    assert!(said.contains("may have 1000 containers") && said.contains("hint: "), "{said}");
    assert_eq!(lab.containers(), ["big-web-1"]);
    lab.cluster("down", &[]).ok();
}

/// No image, no store, and no home that can be written.
fn explain_needs_nothing(lab: &Lab<'_>) {
    let file = lab.file("name = \"lab\"\nimage = \"127.0.0.1:1/none:1\"\nnodes = 2\n");
    let mut command = lab.command(&["cluster", "explain", "-f", &file]);
    command.env("HOME", "/proc/nowhere");
    let done = testkit::command::run(&mut command);
    let plan = done.ok().out();
    assert!(plan.starts_with("cluster lab\nbackend local: this machine\n"), "{plan}");
    assert!(plan.contains("coracle pull 127.0.0.1:1/none:1"), "{plan}");
    assert!(plan.contains("--name lab-node2"), "{plan}");
}

fn names_are_no_paths(lab: &Lab<'_>) {
    let canary = lab.world.person.store().join("canary");
    lab.world.person.file(&canary, "here\n");
    for name in ["..", "../..", ".", "", "/", "a/../b", "A", "x y", "-x", "é", "x\ny", "a-"] {
        for word in ["down", "status", "logs", "attach"] {
            let done = lab.run(&["cluster", word, "--", name]);
            let said = done.expect(1).err();
            assert!(said.contains("no host name") && said.contains("hint: "), "{name:?}: {said}");
        }
    }
    assert!(canary.exists());
    std::fs::remove_file(canary).expect("it was there");
    let long = "a".repeat(41);
    assert!(lab.run(&["cluster", "down", &long]).expect(1).err().contains("longer than 40"));
    let unknown = lab.run(&["cluster", "status", "unknown"]);
    assert_eq!(unknown.ok().out().lines().count(), 1);
    lab.run(&["cluster", "down", "unknown"]).ok();
}

/// A cluster whose image comes from a registry by plain HTTP.
fn from_registry(lab: &Lab<'_>, image: &str, nodes: u32, word: &str, words: &[&str]) -> Finished {
    let file = lab.file(&format!("name = \"moved\"\nimage = {image:?}\nnodes = {nodes}\n"));
    lab.run(&[&["--insecure", "cluster", word, "-f", &file], words].concat())
}

fn image_of_another_platform(lab: &Lab<'_>) {
    let registry = Registry::start().expect("a registry");
    let arm = unbuilt().expect("an image").platform("arm64", Some("v8")).build();
    registry.image("lab/arm", "1", &arm);
    let image = format!("{}/lab/arm:1", registry.host());
    let done = from_registry(lab, &image, 3, "up", &["-d"]);
    let said = done.expect(125).err();
    assert!(said.contains(&format!("image {image} is for arm64, and hosts are amd64")), "{said}");
    assert!(said.contains("hint: ") && said.matches("error: ").count() == 1, "{said}");
    lab.run(&["cluster", "down", "moved"]).ok();
}

/// All nodes have one image, whatever its name means meanwhile; also when the registry is gone.
fn a_tag_that_moves(lab: &Lab<'_>) {
    let registry = Registry::start().expect("a registry");
    let which = |text: &str| unbuilt().expect("an image").env("WHICH", text).build();
    registry.image("lab/moved", "1", &which("first"));
    let image = format!("{}/lab/moved:1", registry.host());
    from_registry(lab, &image, 1, "up", &["-d"]).ok();
    let asked = registry.log().len();
    registry.image("lab/moved", "1", &which("second"));
    from_registry(lab, &image, 2, "up", &["-d"]).ok();
    assert_eq!(registry.log().len(), asked, "an image that is there was asked for again");
    drop(registry);
    from_registry(lab, &image, 3, "up", &["-d"]).ok();
    let said = |node: &str| lab.run(&["cluster", "exec", "moved", node, "sh", "-c", "echo $WHICH"]);
    let all = ["node1", "node2", "node3"].map(|node| said(node).ok().out());
    assert_eq!(all, ["first\n"; 3]);
    lab.run(&["cluster", "down", "moved"]).ok();
    // One that is not there, and whose registry is gone.
    lab.run(&["rmi", "-f", &image]).ok();
    let done = from_registry(lab, &image, 2, "up", &["-d"]);
    let said = done.expect(125).err();
    assert!(said.contains(&format!("image {image}")) && said.contains("hint: "), "{said}");
    lab.run(&["cluster", "down", "moved"]).ok();
}
