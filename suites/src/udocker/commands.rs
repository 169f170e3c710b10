//! Tests of each command's options that `run` does not have: their effect, or their refusal.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use testkit::command::{Finished, Input, run_with};
use testkit::person::LIMIT;
use testkit::skip::Outcome;

use crate::udocker::world::{Case, IMAGE, World, image};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("listings", listings),
    ("imports", imports),
    ("exports", exports),
    ("loads_and_saves", loads_and_saves),
    ("removals", removals),
    ("images_in_use", images_in_use),
    ("clones", clones),
    ("every_mode", every_mode),
    ("protection_on_every_road", protection_on_every_road),
    ("logins", logins),
];

/// Runs `udocker` with this input.
fn reading(w: &World, variables: &[(&str, &str)], words: &[&str], input: &[u8]) -> Finished {
    run_with(&mut w.command(variables, words), Input::Bytes(input.to_vec()), LIMIT)
}

/// Each column of `ps` and `images` alone and all at once; headings are notes, which `-q` leaves
/// out.
fn listings(w: &World) -> Outcome {
    let name = w.unique("columns");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    w.udocker(&["setup", "--execmode=P1", &name]).ok();
    let text = w.udocker(&["ps", "-m", "-s", "-p"]).ok().out();
    let line = text.lines().find(|line| line.contains(&name)).expect("its line");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..4], [".", "W", "P1"], "{line}");
    assert!(words[4].parse::<u64>().is_ok() && words[5] == "linux/amd64", "{line}");
    for (flag, heading) in
        [("-m", "P M MOD NAMES"), ("-s", "P M SIZE  NAMES"), ("-p", "P M PLATFORM     NAMES")]
    {
        let text = w.udocker(&["ps", flag]).ok().out();
        assert!(text.lines().next().is_some_and(|line| line.contains(heading)), "{text}");
    }
    let quiet = w.udocker(&["-q", "ps"]).ok().out();
    assert!(!quiet.contains("CONTAINER ID") && quiet.contains(&name), "{quiet}");
    let quiet = w.udocker(&["--quiet", "images"]).ok().out();
    assert!(!quiet.contains("REPOSITORY") && quiet.contains(&format!("{IMAGE}    .\n")), "{quiet}");
    let long = w.udocker(&["images", "-l", "-p", "--all", "--no-trunc"]).ok().out();
    assert!(long.contains(&format!("linux/amd64        . {IMAGE}\n  /")), "{long}");
    // The keys are sorted.
    for what in [name.as_str(), IMAGE] {
        let text = w.udocker(&["inspect", what]).ok().out();
        let tops = text.lines().filter_map(|line| line.strip_prefix("    \""));
        let keys: Vec<&str> = tops.filter_map(|line| line.split('"').next()).collect();
        assert!(keys.is_sorted() && keys.contains(&"config"), "{what}: {text}");
    }
    w.udocker(&["inspect", "-p", IMAGE]).expect(1);
    w.udocker(&["rm", &name]).ok();
    Ok(())
}

/// From a file or a pipe, for this platform or another, to an image or to a container; prints only
/// the id.
fn imports(w: &World) -> Outcome {
    let dir = w.dir("imports");
    let tree = w.file(&dir.join("tree.tar"), &w.layer);
    let stem = format!("sci/{}", w.unique("imported"));
    let named = |tag: &str| format!("{stem}:{tag}");
    w.udocker(&["import", &tree, &named("file")]).ok();
    reading(w, &[], &["import", "-", &named("pipe")], &w.layer).ok();
    for name in [named("file"), named("pipe")] {
        let done = w.udocker(&["run", "--rm", "--pull=never", &name, "cat", "/opt/app/dev/x"]);
        assert_eq!(done.ok().out(), "kept\n", "{name}");
    }
    w.udocker(&["import", "--platform=linux/arm64", &tree, &named("arm")]).ok();
    let shown = w.udocker(&["images", "-p"]).ok().out();
    assert!(shown.contains(&format!("linux/arm64        . {}\n", named("arm"))), "{shown}");
    let container = w.unique("of-a-tree");
    let flag = format!("--name={container}");
    let words = ["import", "--tocontainer", &flag, &tree, &named("container")];
    let ids = [
        w.udocker(&words).ok().line(),
        w.udocker(&["import", "--tocontainer", &tree]).ok().line(),
        reading(w, &[], &["import", "--tocontainer", "-"], &w.layer).ok().line(),
    ];
    for id in &ids {
        assert_eq!(id.len(), 36, "{ids:?}");
        let done = w.udocker(&["run", id, "cat", "/opt/app/dev/x"]);
        assert_eq!(done.ok().out(), "kept\n");
    }
    let shown = w.udocker(&["ps"]).ok().out();
    let line = shown.lines().find(|line| line.contains(&container)).expect("its line");
    assert!(line.ends_with(&format!(" {}", named("container"))), "{line}");
    w.udocker(&["rm", &ids[0], &ids[1], &ids[2]]).ok();
    // A file is removed once its content is stored, and only then.
    let wrong = w.file(&dir.join("wrong.tar"), "no archive\n");
    w.udocker(&["import", "--mv", &wrong, &named("wrong")]).expect(1);
    assert!(dir.join("wrong.tar").exists());
    w.udocker(&["import", "--mv", &tree, &named("moved")]).ok();
    assert!(!dir.join("tree.tar").exists());
    w.udocker(&["import", "/no/such/file", &named("none")]).expect(1);
    for tag in ["file", "pipe", "arm", "container", "moved"] {
        w.udocker(&["rmi", &named(tag)]).ok();
    }
    Ok(())
}

/// The same output to a file and to a pipe; a whole container goes through a pipe too.
fn exports(w: &World) -> Outcome {
    let dir = w.dir("exports");
    let (name, copy) = (w.unique("sent"), w.unique("received"));
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    w.udocker(&["run", &name, "sh", "-c", "echo changed >/opt/new"]).ok();
    let file = dir.join("tree.tar");
    w.udocker(&["export", "-o", &file.display().to_string(), &name]).ok();
    let streamed = w.udocker(&["export", "-", &name]);
    assert!(streamed.ok().stdout == fs::read(&file).expect("the archive"), "two archives");
    let whole = w.udocker(&["export", "--clone", "-", &name]);
    let words = ["import", "--clone", &format!("--name={copy}"), "-"];
    let place = dir.display().to_string();
    reading(w, &[("UDOCKER_TMP", &place)], &words, &whole.ok().stdout).ok();
    assert_eq!(w.udocker(&["run", &copy, "cat", "/opt/new"]).ok().out(), "changed\n");
    w.udocker(&["export", "-o", "/no/such/directory/tree.tar", &name]).expect(1);
    w.udocker(&["export", "-", "no-such-container"]).expect(1);
    w.udocker(&["rm", &name, &copy]).ok();
    Ok(())
}

/// Several images in one archive; from a pipe, under another name, and without any.
fn loads_and_saves(w: &World) -> Outcome {
    let dir = w.dir("saves");
    let home = w.dir("other-home").display().to_string();
    let apart = [("HOME", home.as_str())];
    let second = format!("localhost/sci/{}:2", w.unique("second"));
    w.udocker(&["tag", IMAGE, &second]).ok();
    let both = dir.join("both.tar");
    w.udocker(&["save", "-o", &both.display().to_string(), IMAGE, &second]).ok();
    let bytes = fs::read(&both).expect("the archive");
    let from_file = w.udocker_with(&apart, &["load", "-i", &both.display().to_string()]);
    let from_pipe = reading(w, &apart, &["load", "-i", "-"], &bytes);
    let unasked = reading(w, &apart, &["load"], &bytes);
    for done in [from_file, from_pipe, unasked] {
        let out = done.ok().out();
        let mut names: Vec<&str> = out.lines().collect();
        names.sort_unstable();
        assert_eq!(names, [second.as_str(), IMAGE], "{done:?}");
    }
    let archive = w.archive.display().to_string();
    let renamed = "localhost/sci/renamed:3";
    let done = w.udocker_with(&apart, &["load", "-i", &archive, renamed]);
    assert_eq!(done.ok().out(), format!("{renamed}\n"));
    let layout = dir.join("layout");
    image(&w.layer).write_layout(&layout, "4").expect("a layout");
    let done = w.udocker_with(&apart, &["load", "-i", &layout.display().to_string()]);
    let unnamed = done.ok().line();
    assert!(unnamed.ends_with(":4"), "{done:?}");
    for name in [second.as_str(), renamed, &unnamed] {
        let done = w.udocker_with(&apart, &["run", "--rm", "--pull=never", name]);
        assert_eq!(done.ok().out(), "from the image\n", "{name}");
    }
    w.udocker(&["save", "-o", &dir.join("none.tar").display().to_string(), "no/such:1"]).expect(1);
    assert!(!dir.join("none.tar").exists());
    w.udocker_with(&apart, &["load", "-i", "/no/such/file"]).expect(1);
    w.udocker(&["rmi", &second]).ok();
    Ok(())
}

/// Each named one is tried; content that another image needs stays.
fn removals(w: &World) -> Outcome {
    let (first, second) = (w.unique("gone"), w.unique("gone"));
    for name in [&first, &second] {
        w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    }
    w.udocker(&["rm", &first, "no-such-container", &second]).expect(1);
    let shown = w.udocker(&["ps"]).ok().out();
    assert!(!shown.contains(&first) && !shown.contains(&second), "{shown}");
    let names = ["1", "2"].map(|tag| format!("localhost/sci/{first}:{tag}"));
    w.udocker(&["load", "-i", &w.archive.display().to_string(), &names[0]]).ok();
    w.udocker(&["tag", &names[0], &names[1]]).ok();
    w.udocker(&["rmi", "-f", &names[0]]).ok();
    let shown = w.udocker(&["images"]).ok().out();
    assert!(!shown.contains(&names[0]) && shown.contains(&names[1]), "{shown}");
    let done = w.udocker(&["run", "--rm", "--pull=never", &names[1]]);
    assert_eq!(done.ok().out(), "from the image\n");
    w.udocker(&["rmi", &names[1]]).ok();
    w.udocker(&["rmi", &names[1]]).expect(1);
    Ok(())
}

/// An image that a container was made of can be removed; the container goes on, in any form.
fn images_in_use(w: &World) -> Outcome {
    let (name, image) = (w.unique("using"), format!("localhost/sci/{}:1", w.unique("used")));
    let tree = w.file(&w.dir("used").join("tree.tar"), &w.layer);
    w.udocker(&["import", &tree, &image]).ok();
    let id = w.udocker(&["create", &format!("--name={name}"), &image]).ok().line();
    w.coracle(&["rmi", &image]).expect(1);
    w.udocker(&["rmi", &image]).ok();
    assert!(!w.udocker(&["images"]).ok().out().contains(&image));
    let words = ["run", &name, "/bin/cat", "/opt/app/dev/x"];
    assert_eq!(w.udocker(&words).ok().out(), "kept\n");
    w.coracle(&["image", "prune", "-f"]).ok();
    for mode in ["P1", "F1"] {
        w.udocker(&["setup", &format!("--execmode={mode}"), &name]).ok();
        assert_eq!(w.udocker(&words).ok().out(), "kept\n", "{mode}");
    }
    // Its UUID means the container under Coracle's own name too, and no other text does.
    w.coracle(&["inspect", &id]).ok();
    w.coracle(&["inspect", &id.replace('-', "_")]).expect(1);
    w.udocker(&["rm", &id]).ok();
    Ok(())
}

/// A copy keeps its original's mode, and the changes made there.
fn clones(w: &World) -> Outcome {
    let (name, named) = (w.unique("original"), w.unique("copy"));
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    w.udocker(&["setup", "--execmode=F1", &name]).ok();
    w.udocker(&["run", &name, "sh", "-c", "echo changed >/opt/new"]).ok();
    let copy = w.udocker(&["clone", &name]).ok().line();
    w.udocker(&["clone", &format!("--name={named}"), &name]).ok();
    w.udocker(&["clone", &format!("--name={named}"), &name]).expect(1);
    w.udocker(&["rm", &name]).ok();
    for copy in [&copy, &named] {
        assert_eq!(w.udocker(&["run", copy, "cat", "/opt/new"]).ok().out(), "changed\n");
        assert!(w.udocker(&["setup", copy]).ok().out().starts_with("execmode: F1\n"));
    }
    w.udocker(&["rm", &copy, &named]).ok();
    w.udocker(&["clone", "no-such-container"]).expect(1);
    Ok(())
}

/// Every mode of udocker is stored. It works, with the changes of the one before, or what it lacks
/// is told when it is set and when it is used.
fn every_mode(w: &World) -> Outcome {
    let name = w.unique("modes");
    w.udocker(&["create", &format!("--name={name}"), IMAGE]).ok();
    let mut used = 0;
    for mode in ["P1", "P2", "F1", "F2", "F3", "F4", "R1", "R2", "R3", "S1", "p1"] {
        let flag = format!("--execmode={mode}");
        let done = w.udocker(&["setup", "--force", &flag, &name]);
        if done.code() != 0 {
            done.expect(1);
            assert!(done.err().contains(mode) && done.err().contains("hint: "), "{done:?}");
            continue;
        }
        let mode = mode.to_ascii_uppercase();
        let shown = w.udocker(&["setup", &name]).ok().out();
        assert!(shown.starts_with(&format!("execmode: {mode}\n")), "{shown}");
        if done.err().contains("it is set anyway") {
            let run = w.udocker(&["run", &name, "true"]);
            assert!(run.expect(1).err().contains("hint: "), "{run:?}");
            continue;
        }
        used += 1;
        // Two modes are aliases of one.
        let engine = if matches!(&mode[..], "F3" | "F4") { "F2" } else { &mode };
        let script = "echo >>/count; echo $container_execmode; cat /opt/app/dev/x";
        let done = w.udocker(&["run", &name, "sh", "-c", script]);
        assert_eq!(done.ok().out(), format!("{engine}\nkept\n"), "{mode}");
    }
    assert!(used > 0, "no mode can be used here");
    let count = w.udocker(&["run", &name, "sh", "-c", "wc -l </count"]).ok().line();
    assert_eq!(count.trim(), used.to_string());
    w.udocker(&["rm", &name]).ok();
    Ok(())
}

/// A protected object stays, whatever command is to remove it.
fn protection_on_every_road(w: &World) -> Outcome {
    let home = w.dir("protected-home").display().to_string();
    let run = |words: &[&str]| w.udocker_with(&[("HOME", &home)], words);
    run(&["load", "-i", &w.archive.display().to_string()]).ok();
    run(&["create", "--name=safe", IMAGE]).ok();
    run(&["protect", "safe"]).ok();
    run(&["protect", IMAGE]).ok();
    run(&["run", "--rm", "safe", "touch", "/written"]).ok();
    for words in [
        &["rm", "-f", "safe"][..],
        &["create", "--force", "--name=safe", IMAGE],
        &["rmi", "-f", IMAGE],
        &["tag", IMAGE, "localhost/sci/other:1"],
    ] {
        let done = run(words);
        assert!(done.expect(1).err().contains("protected"), "{done:?}");
    }
    // A further name of the image, which comes once more, is not protected by that.
    let further = "localhost/sci/further:1";
    run(&["load", "-i", &w.archive.display().to_string(), further]).ok();
    run(&["rmi", further]).ok();
    run(&["load", "-i", &w.archive.display().to_string()]).ok();
    assert!(run(&["rmi", IMAGE]).expect(1).err().contains("protected"));
    run(&["prune", "-a", "-f"]).ok();
    run(&["run", "safe", "test", "-e", "/written"]).ok();
    // With the protection ends what it prevented.
    run(&["unprotect", "safe"]).ok();
    run(&["run", "--rm", "safe", "true"]).ok();
    assert!(!run(&["ps"]).ok().out().contains("safe"));
    run(&["prune", "-a", "-f"]).ok();
    assert!(run(&["images"]).ok().out().contains(&format!("{IMAGE}    P\n")));
    run(&["unprotect", IMAGE]).ok();
    run(&["prune", "-a", "-f"]).ok();
    assert_eq!(run(&["images"]).ok().out(), "REPOSITORY\n");
    for word in ["protect", "unprotect"] {
        run(&[word, "no-such-thing"]).expect(1);
    }
    Ok(())
}

/// Stored without a request to a registry, readable for the owner only.
fn logins(w: &World) -> Outcome {
    let home = w.dir("logins");
    let apart = [("HOME", home.to_str().expect("a path"))];
    let one = "--registry=https://one.example.org";
    let words = ["login", "--username=me", "--password-stdin"];
    for flags in [&[one][..], &[]] {
        reading(w, &apart, &[&words[..], flags].concat(), b"hush-hush\n").ok();
    }
    let two = "--registry=two.example.org:5000";
    let words = ["login", "--username=me", "--password=hush-hush", two];
    w.udocker_with(&apart, &words).ok();
    let file = home.join(".config/coracle/auth.json");
    let mode = fs::metadata(&file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept = || fs::read_to_string(&file).expect("the file");
    for name in ["one.example.org", "two.example.org:5000", "index.docker.io"] {
        assert!(kept().contains(name) && !kept().contains("hush-hush"), "{name}");
    }
    w.udocker_with(&apart, &["logout", one]).ok();
    w.udocker_with(&apart, &["logout", one]).expect(1);
    assert!(!kept().contains("one.example.org") && kept().contains("two.example.org:5000"));
    w.udocker_with(&apart, &["logout", "-a"]).ok();
    assert!(!kept().contains("two.example.org") && !kept().contains("docker.io"), "{}", kept());
    w.udocker_with(&apart, &["logout"]).expect(1);
    Ok(())
}
