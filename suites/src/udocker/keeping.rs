//! Tests of lasting state: protection, containers in archives, keys of udocker.conf.

use std::path::PathBuf;

use testkit::command::{copy_program, find_program};
use testkit::docker_registry::DockerRegistry;
use testkit::skip::{Outcome, Skip};

use crate::udocker::world::{Case, IMAGE, World, image};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("protection_lasts", protection_lasts),
    ("clones_in_archives", clones_in_archives),
    ("udocker_conf_keys_take_effect", udocker_conf_keys_take_effect),
    ("the_caller_by_name", the_caller_by_name),
];

fn busybox() -> Result<PathBuf, Skip> {
    find_program("busybox").ok_or_else(|| Skip("busybox is not installed".to_owned()))
}

/// A name that is pulled again stays protected.
fn protection_lasts(w: &World) -> Outcome {
    let Ok(registry) = DockerRegistry::start() else { testkit::skip!("no docker-registry here") };
    registry.target().image("sci/kept", "1", &image(&w.layer)).expect("pushing");
    let name = format!("{}/sci/kept:1", registry.host());
    w.udocker(&["--insecure", "pull", &name]).ok();
    w.udocker(&["protect", &name]).ok();
    w.udocker(&["--insecure", "pull", &name]).ok();
    assert!(w.udocker(&["images"]).ok().out().contains(&format!("{name}    P\n")));
    w.udocker(&["rmi", &name]).expect(1);
    w.udocker(&["unprotect", &name]).ok();
    w.udocker(&["rmi", &name]).ok();
    Ok(())
}

/// A container in an archive keeps its settings, in udocker's form and with settings that udocker
/// lacks.
fn clones_in_archives(w: &World) -> Outcome {
    let dir = w.dir("clones");
    let archive = dir.join("clone.tar").display().to_string();
    // One character suffices for a name, and no name is used twice.
    let (first, second) = (w.unique("a"), w.unique("b"));
    let volume = format!("{}:/data:ro", dir.display());
    let words = [
        "create",
        &format!("--name={first}"),
        "-e",
        "KEPT=yes",
        "-w",
        "/opt",
        "-v",
        &volume,
        IMAGE,
    ];
    w.udocker(&words).ok();
    w.udocker(&["setup", "--execmode=P1", &first]).ok();
    w.udocker(&["run", &first, "sh", "-c", "echo changed >/opt/new"]).ok();
    w.udocker(&["export", "--clone", "-o", &archive, &first]).ok();
    let listed = w.shell(&[], &format!("tar -tf {archive}")).ok().out();
    for part in ["container.json", "imagerepo.name", "execmode", "ROOT/opt/new", "ROOT/bin/busybox"]
    {
        assert!(listed.lines().any(|line| line == part), "{part} in {listed}");
    }
    let id = w.udocker(&["import", "--clone", &format!("--name={second}"), &archive]).ok().line();
    let script = "echo $KEPT; pwd; cat new; ls -d /data";
    let done = w.udocker(&["run", &second, "sh", "-c", script]);
    assert_eq!(done.ok().out(), "yes\n/opt\nchanged\n/data\n", "{done:?}");
    assert!(w.udocker(&["setup", &id]).ok().out().starts_with("execmode: P1\n"));
    let shown = w.udocker(&["ps"]).ok().out();
    let line = shown.lines().find(|line| line.contains(&second)).expect("its line");
    assert!(line.ends_with(IMAGE), "{line}");
    // An archive by udocker itself: entries that begin with a dot, and no record of Coracle's.
    let old = w.below(&dir, "old/ROOT/bin");
    copy_program(&busybox()?, &old.join("busybox"));
    w.file(&dir.join("old/container.json"), r#"{"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/bin"], "Cmd": ["busybox", "echo", "from udocker"]}}"#);
    w.file(&dir.join("old/imagerepo.name"), "old/image:1");
    w.file(&dir.join("old/execmode"), "P2");
    w.shell(&[], &format!("tar -C {}/old -cf {archive} .", dir.display())).ok();
    let third = w.unique("c");
    w.udocker(&["import", "--clone", &format!("--name={third}"), &archive]).ok();
    assert!(w.udocker(&["setup", &third]).ok().out().starts_with("execmode: P2\n"));
    assert_eq!(w.udocker(&["run", "--execmode=P1", &third]).ok().out(), "from udocker\n");
    w.udocker(&["import", "--clone", &w.archive.display().to_string()]).expect(1);
    w.udocker(&["rm", &first, &second, &third]).ok();
    Ok(())
}

/// Keys of udocker.conf that change how a container is started.
fn udocker_conf_keys_take_effect(w: &World) -> Outcome {
    let dir = w.dir("keys");
    let of = |text: &str| format!("--config={}", w.file(&dir.join("udocker.conf"), text));
    let run = |config: &str, words: &[&str]| {
        let all = [&[config, "run", "--rm"][..], words].concat();
        w.udocker_with(&[("OF_HOST", "1"), ("SECRET", "2")], &all)
    };
    let script = ["sh", "-c", "echo ${OF_HOST-none} ${SECRET-none}"];
    let config = of("[DEFAULT]\nvalid_host_env = [\"TERM\", \"OF_HOST\"]\n");
    assert_eq!(run(&config, &[&[IMAGE][..], &script].concat()).ok().out(), "1 none\n");
    let config = of("invalid_host_env = SECRET\n");
    let words = [&["--hostenv", IMAGE][..], &script].concat();
    assert_eq!(run(&config, &words).ok().out(), "1 none\n");
    // An image without a command.
    let config = of("cmd = ['busybox', 'echo', 'of the key']\n");
    assert_eq!(run(&config, &["--nometa", "-e", "PATH=/bin", IMAGE]).ok().out(), "of the key\n");
    let tree = w.below(&dir, "tree");
    w.below(&tree, "bin");
    copy_program(&busybox()?, &tree.join("bin/busybox"));
    let config = of(&format!("location = {}\n", tree.display()));
    assert_eq!(run(&config, &["/bin/busybox", "echo", "there"]).ok().out(), "there\n");
    let config = of(&format!("tmpdir = {}\ntimeout = 5\n", dir.display()));
    let level = [("UDOCKER_LOGLEVEL", "2")];
    assert_eq!(w.udocker_with(&level, &["install"]).ok().out(), "");
    assert_eq!(run(&config, &[IMAGE, "echo", "ran"]).ok().out(), "ran\n");
    Ok(())
}

/// The caller's name is accepted, though the image knows only root; other names are not.
fn the_caller_by_name(w: &World) -> Outcome {
    let user = &w.person.user;
    let flag = format!("--user={}", user.name);
    for flags in [&[flag.as_str()][..], &[&flag, "--hostauth"]] {
        let done = w.sh(flags, "id -u; id -un; echo $USER; touch /tmp/own; stat -c %U /tmp/own");
        let expected = format!("{0}\n{1}\n{1}\n{1}\n", user.uid, user.name);
        assert_eq!(done.ok().out(), expected, "{flags:?}: {done:?}");
    }
    w.sh(&["--user=stranger"], "true").expect(1);
    assert_eq!(w.sh(&["--hostauth"], "id -u; id -un").ok().out(), "0\nroot\n");
    Ok(())
}
