//! `input` and `output` of a file, and `time` of its run.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use rustix::process::Signal;
use testkit::command::{Finished, until};
use testkit::person::LIMIT;
use testkit::running::Running;

use crate::cluster::Case;
use crate::cluster::world::{BOX, Lab};

pub(crate) const CASES: &[Case] = &[
    ("input_and_output", input_and_output),
    ("input_is_made_whole", input_is_made_whole),
    ("input_that_is_wrong", input_that_is_wrong),
    ("output_of_a_failed_run", output_of_a_failed_run),
    ("output_that_is_lost", output_that_is_lost),
    ("time_of_a_run", time_of_a_run),
    ("all_of_a_run_is_interrupted", all_of_a_run_is_interrupted),
];

/// SHA-256 of the large file.
const LARGE: &str = "e2925fdd17c83c77e9a4f957fd170b2a72b48ac55968943dcf962f2b853c88a9";

fn file(lab: &Lab<'_>, keys: &str, script: &str) -> String {
    lab.file(&format!(
        "name = \"deck\"\nimage = \"{BOX}\"\nnodes = 3\n{keys}\n\
         [run]\non = \"node2\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n"
    ))
}

/// Files of the user, beside the cluster file.
fn deck(lab: &Lab<'_>) -> PathBuf {
    let deck = lab.dir.join("deck");
    for directory in [deck.clone(), deck.join("a")] {
        let _ = fs::create_dir(&directory);
        lab.world.person.give(&directory);
    }
    lab.world.person.file(&deck.join("a/b"), "words\n");
    lab.world.person.file(&deck.join("run"), "#!/bin/sh\necho ran $(hostname)\n");
    fs::set_permissions(deck.join("run"), fs::Permissions::from_mode(0o755)).expect("rights");
    lab.world.person.file(&deck.join("large"), vec![7; 5 << 20]);
    let _ = std::os::unix::fs::symlink("a/b", deck.join("link"));
    lab.world.person.file(&lab.dir.join("one"), "1\n");
    deck
}

fn read(lab: &Lab<'_>, name: &str) -> String {
    fs::read_to_string(lab.dir.join(name)).unwrap_or_else(|error| format!("{name}: {error}"))
}

/// Nothing of a copy that is not whole is left beside its place.
fn no_parts(lab: &Lab<'_>) {
    let names = fs::read_dir(&lab.dir).expect("the directory").flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert!(!names.iter().any(|name| name.as_encoded_bytes().starts_with(b".")), "{names:?}");
}

/// Every node gets the input; the output is that of the run's node, or of all where its place says
/// which it is.
fn input_and_output(lab: &Lab<'_>) {
    deck(lab);
    let keys = "input = [\"./deck:/job/in\", \"one:/job/\", \"./one:/job/{node}\"]\n\
                output = [\"/job/out:./result\", \"/job/rank:./ranks/{node}\", \"/job/rank:./\"]";
    let script = "for node in node1 node2 node3; do
            /run/coracle/rsh $node \"/job/in/run; cat /job/in/link /job/one /job/{node}; \
                             hostname > /job/rank\"
        done
        mkdir -p /job/out/sub; echo $1 new > /job/out/sub/x; chmod 700 /job/out/sub/x
        busybox ln -s sub/x /job/out/link; head -c 3000000 /dev/zero > /job/out/large
        mkdir /job/out/shut; echo y > /job/out/shut/y; busybox chmod 0 /job/out/shut/y /job/out/shut";
    file(lab, keys, &script.replace("chmod 700", "busybox chmod 700"));
    let said = "ran node1\nwords\n1\n1\nran node2\nwords\n1\n1\nran node3\nwords\n1\n1\n";
    assert_eq!(lab.cluster("up", &[]).ok().out(), said);
    let check = || {
        assert_eq!(read(lab, "result/sub/x").trim(), "new");
        assert_eq!(
            fs::metadata(lab.dir.join("result/sub/x")).expect("x").permissions().mode() & 0o777,
            0o700
        );
        assert_eq!(
            fs::read_link(lab.dir.join("result/link")).expect("a link"),
            PathBuf::from("sub/x")
        );
        assert_eq!(fs::metadata(lab.dir.join("result/large")).expect("a file").len(), 3_000_000);
        assert_eq!(read(lab, "result/shut/y"), "y\n");
        for node in ["node1", "node2", "node3"] {
            assert_eq!(read(lab, &format!("ranks/{node}")), format!("{node}\n"));
        }
        assert_eq!(read(lab, "rank"), "node2\n");
        no_parts(lab);
    };
    check();
    // What is there stays, and what comes again is replaced.
    lab.world.person.file(&lab.dir.join("result/own"), "mine\n");
    lab.world.person.file(&lab.dir.join("result/sub/x"), "a longer old text\n");
    lab.world.person.file(&lab.dir.join("rank"), "old\n");
    lab.cluster("up", &[]).ok();
    check();
    assert_eq!(read(lab, "result/own"), "mine\n");
    // `run` copies the output of the file's run, and not that of another command.
    lab.cluster("up", &["-d"]).ok();
    fs::remove_file(lab.dir.join("rank")).expect("a file");
    lab.cluster("run", &["true"]).ok();
    assert!(!lab.dir.join("rank").exists());
    lab.cluster("run", &[]).ok();
    check();
    lab.cluster("down", &[]).ok();
    let plan = lab.cluster("explain", &[]).ok().out();
    let dir = lab.dir.display();
    assert!(plan.contains(&format!("copy {dir}/deck to node3:/job/in")), "{plan}");
    assert!(plan.contains(&format!("copy node2:/job/out to {dir}/result\n")), "{plan}");
    assert!(plan.contains(&format!("copy node3:/job/rank to {dir}/ranks/node3\n")), "{plan}");
}

fn exec(lab: &Lab<'_>, node: &str, script: &str) -> Finished {
    lab.run(&["cluster", "exec", "deck", node, "sh", "-c", script])
}

/// After a driver that was killed, and after files were lost, the next `up` copies what is missing.
fn input_is_made_whole(lab: &Lab<'_>) {
    deck(lab);
    let path = file(lab, "input = \"./deck:/job/in\"", "cat /job/in/a/b");
    let mut up = Running::start(&mut lab.command(&["cluster", "up", "-d", "-f", &path]));
    up.expect("input\n");
    up.signal(Signal::KILL);
    up.end(LIMIT);
    let whole = |node: &str| {
        let script = "cd /job/in; cat a/b link; ls -l run; busybox sha256sum < large";
        let done = exec(lab, node, script).ok().out();
        assert!(done.starts_with("words\nwords\n-rwxr-xr-x"), "{done}");
        assert!(done.ends_with(&format!("{LARGE}  -\n")), "{done}");
    };
    let up = lab.cluster("up", &["-d"]);
    assert!(!up.ok().err().contains("was up already"), "{up:?}");
    for node in ["node1", "node2", "node3"] {
        whole(node);
    }
    let again = lab.cluster("up", &["-d"]);
    assert!(again.ok().err().contains("was up already"), "{again:?}");
    exec(lab, "node1", "rm -r /job/in/a || busybox rm -r /job/in/a").ok();
    exec(lab, "node3", "echo x >> /job/in/large; echo own > /job/in/own").ok();
    let up = lab.cluster("up", &["-d"]);
    assert!(!up.ok().err().contains("was up already"), "{up:?}");
    for node in ["node1", "node2", "node3"] {
        whole(node);
    }
    assert_eq!(
        exec(lab, "node3", "cat /job/in/own; busybox wc -c < /job/in/large").ok().out(),
        "own\n5242880\n"
    );
    lab.cluster("down", &[]).ok();
}

fn input_that_is_wrong(lab: &Lab<'_>) {
    deck(lab);
    for (input, fact) in [
        ("./none:/job/in", "none: no file or directory is there"),
        ("./deck:/bin/busybox", "/bin/busybox on node"),
        ("./one:/bin/busybox/one", "/bin/busybox/one on node"),
    ] {
        file(lab, &format!("input = \"{input}\""), "true");
        let done = lab.cluster("up", &[]);
        let said = done.expect(125).err();
        assert!(said.contains(fact) && said.matches("error: ").count() == 1, "{input}: {said}");
        lab.is_clean();
    }
}

fn output_of_a_failed_run(lab: &Lab<'_>) {
    let output = "output = [\"/tmp/out:./out\", \"/tmp/none:./none\"]";
    file(lab, output, "echo part > /tmp/out; exit 7");
    let done = lab.cluster("up", &[]);
    let said = done.expect(7).err();
    assert_eq!(read(lab, "out"), "part\n");
    let place = lab.dir.join("out");
    assert!(
        said.contains(&format!("the run has failed; its output is in {}", place.display())),
        "{said}"
    );
    assert!(
        said.contains("output: node2 has no /tmp/none") && !lab.dir.join("none").exists(),
        "{said}"
    );
}

/// A cluster whose output is not safe stays.
fn output_that_is_lost(lab: &Lab<'_>) {
    for (output, fact) in
        [("/tmp/none:./none", "node2 has no /tmp/none"), ("/tmp/out:./one/out", "/one/out: ")]
    {
        deck(lab);
        file(lab, &format!("output = \"{output}\""), "echo all > /tmp/out");
        let done = lab.cluster("up", &[]);
        let said = done.expect(125).err();
        assert!(said.contains("error: output") && said.contains(fact), "{said}");
        assert!(said.contains("cluster deck stays, with its output"), "{said}");
        let target = lab.dir.join("saved").display().to_string();
        lab.run(&["cluster", "cp", "deck", "node2:/tmp/out", &target]).ok();
        assert_eq!(read(lab, "saved"), "all\n");
        lab.cluster("down", &[]).ok();
        lab.is_clean();
        no_parts(lab);
    }
}

fn time_of_a_run(lab: &Lab<'_>) {
    let with_time = |seconds: u32, script: &str| {
        lab.file(&format!(
            "name = \"late\"\nimage = \"{BOX}\"\noutput = \"/tmp/out:./out\"\n\
             [run]\ntime = \"{seconds}s\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n"
        ))
    };
    // All of it is ended, and not the shell alone. On a busy machine it may have to begin first.
    let waits = "trap 'echo asked; exit 0' TERM; echo 1 > /tmp/out; sh -c 'sleep 600; true'";
    let ended = [1, 5, 30].iter().find_map(|&seconds| {
        with_time(seconds, waits);
        let up = lab.cluster("up", &[]);
        let text = format!("the run was ended: its time of {seconds}s was over");
        assert!(up.expect(124).err().contains(&text), "{up:?}");
        (up.out() == "asked\n").then_some(())
    });
    assert!(ended.is_some(), "it was not asked to end");
    assert_eq!(read(lab, "out"), "1\n");
    lab.cluster("up", &["-d"]).ok();
    lab.cluster("run", &[]).expect(124);
    lab.cluster("down", &[]).ok();
    with_time(600, "echo 1 > /tmp/out; exit 3");
    let done = lab.cluster("up", &[]);
    assert!(!done.expect(3).err().contains("its time"), "{done:?}");
}

/// What ctrl-C ends is all that a terminal's foreground has, once.
fn all_of_a_run_is_interrupted(lab: &Lab<'_>) {
    let inner = "trap \"echo inner; exit\" INT; echo go; while :; do sleep 0.1; done";
    let path = lab.file(&format!(
        "name = \"keys\"\nimage = \"{BOX}\"\n[run]\n\
         command = [\"sh\", \"-c\", '''trap \"echo outer\" INT; sh -c '{inner}'; exit 4''']\n"
    ));
    let mut up = Running::start(&mut lab.command(&["cluster", "up", "-f", &path]));
    up.expect("go\n");
    up.signal(Signal::INT);
    assert_eq!(up.end(LIMIT), 4, "{}", up.text());
    let text = up.text();
    for word in ["inner\n", "outer\n"] {
        assert_eq!(text.matches(word).count(), 1, "{text}");
    }
    lab.is_clean();
    // A program that does not know of it.
    let seconds = format!("{}{}", std::process::id(), lab.world.label.len());
    let path = lab.file(&format!(
        "name = \"keys\"\nimage = \"{BOX}\"\n[run]\ncommand = \"echo go; sleep {seconds}; true\"\n"
    ));
    let mut up = Running::start(&mut lab.command(&["cluster", "up", "-f", &path]));
    up.expect("go\n");
    up.signal(Signal::INT);
    assert_eq!(up.end(LIMIT), 130, "{}", up.text());
    let gone = until(LIMIT, || (!sleeps(&seconds)).then_some(()));
    assert!(gone.is_some(), "it still sleeps");
}

fn sleeps(seconds: &str) -> bool {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| line.ends_with(format!("sleep\0{seconds}\0").as_bytes()))
}
