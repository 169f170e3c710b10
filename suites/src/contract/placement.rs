//! Tests of the store's place and the caller's environment: memory, long and odd paths, strict
//! umasks, missing or read-only homes, forbidden user namespaces.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use testkit::command::{Input, run_with};
use testkit::scratch::Scratch;
use testkit::skip::Outcome;
use testkit::users::{Setting, no_namespaces};

use crate::contract::mounts::HostMount;
use crate::contract::world::{Case, Container, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("home_in_memory", home_in_memory),
    ("strict_umask", strict_umask),
    ("spaces_and_letters", spaces_and_letters),
    ("a_long_path", a_long_path),
    ("store_by_variable", store_by_variable),
    ("home_is_missing", home_is_missing),
    ("home_cannot_be_written", home_cannot_be_written),
    ("programs_cannot_be_run_there", programs_cannot_be_run_there),
    ("namespaces_forbidden", namespaces_forbidden),
    ("many_layers", many_layers),
];

/// Pulls, runs and removes in another store.
fn road(w: &World) {
    let pulled = if w.registry.is_some() {
        w.coracle(&["pull", "-q", "--tls-verify=false", &w.image])
    } else {
        return;
    };
    pulled.ok();
    w.guest(&[], &["write", "/tmp/x", "y", ";", "exit", "42"]).expect(42);
    let name = w.name("place");
    let c = Container::named(w, &name);
    w.coracle(&w.words_for(
        &["run", "-d"],
        &["--name", &name],
        &["say", "here", ";", "sleep", "300"],
    ))
    .ok();
    c.said("here");
    c.exec(&[], &["exit", "3"]).expect(3);
    w.coracle(&["stop", "-t", "1", &name]).ok();
    w.coracle(&["rm", &name]).ok();
    w.coracle(&["verify"]).ok();
    w.coracle(&["rmi", "-f", &w.image]).ok();
}

fn owner(w: &World) -> Option<(u32, u32)> {
    Some((w.user.uid, w.user.gid))
}

fn home_in_memory(w: &World) -> Outcome {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        testkit::skip!("no /dev/shm");
    }
    let scratch = Scratch::below(shm, "home").expect("a directory in memory");
    road(&w.at(&scratch.dir("home", owner(w), 0o755).expect("a home")));
    Ok(())
}

/// On a file system that is mounted noexec an overlay's programs run; for the others there is one
/// clear line, and `doctor` knows before.
fn programs_cannot_be_run_there(w: &World) -> Outcome {
    if w.registry.is_none() || !rustix::process::getuid().is_root() {
        testkit::skip!("a registry is needed, and root to mount something on the host");
    }
    let home = w.dir("noexec");
    let _mount = HostMount::new(&["-t", "tmpfs", "-o", "noexec,mode=777,size=256m", "none"], &home);
    let there = w.at(&home);
    there.coracle(&["pull", "-q", "--tls-verify=false", &there.image]).ok();
    let doctor = there.coracle(&["doctor", "--format=json"]).ok().out();
    let doctor: serde_json::Value = serde_json::from_str(&doctor).expect("JSON");
    let engines = doctor["engines"].as_array().cloned().unwrap_or_default();
    let line = engines.into_iter().find(|line| line["mode"] == there.engine.as_str());
    let line = line.expect("the engine's line");
    let done = there.guest(&[], &["say", "runs"]);
    if w.has_overlay() {
        assert_eq!((done.ok().line(), line["state"].as_str()), ("runs".into(), Some("ready")));
        return Ok(());
    }
    let said = done.expect(126).err();
    assert!(said.contains("mounted noexec") && said.contains("CORACLE_DIR"), "{said}");
    let why = line["why"].as_str().unwrap_or_default();
    assert!(why.contains("noexec") && line["state"] != "ready", "{line}");
    Ok(())
}

fn strict_umask(w: &World) -> Outcome {
    if w.registry.is_none() {
        testkit::skip!("no docker-registry here");
    }
    let fresh = w.at(&w.dir("umask-home"));
    let setting = Setting { umask: Some(0o077), ..Setting::default() };
    let run =
        |words: &[String]| run_with(&mut fresh.command_in(&setting, words), Input::Null, LIMIT);
    let words = ["pull", "-q", "--tls-verify=false", &w.image].map(str::to_owned);
    run(&words).ok();
    // The image's own modes do not depend on the umask of the pull.
    let stat = run(&fresh.words(&[], &["stat", "/bin/guest"]));
    assert!(stat.ok().out().contains("\"mode\":\"755\""), "{stat:?}");
    let stat = run(&fresh.words(&[], &["stat", "/"]));
    assert!(stat.ok().out().contains("\"mode\":\"755\""), "{stat:?}");
    let stat = run(&fresh.words(&[], &["stat", "/tmp"]));
    assert!(stat.ok().out().contains("\"mode\":\"1777\""), "{stat:?}");
    // New volumes get the modes of the directories that they cover, or of a new directory.
    for (path, mode) in [("/tmp", "1777"), ("/nowhere/else", "755")] {
        let flags = ["-v", &format!("{}:{path}", w.name("umask"))];
        let stat = run(&fresh.words(&flags, &["stat", path]));
        assert!(stat.ok().out().contains(&format!("\"mode\":\"{mode}\"")), "{stat:?}");
    }
    // And so do the directories above a mount, which the image does not have.
    let stat = run(&fresh.words(&["-v", "/etc/hostname:/made/here/name"], &["stat", "/made/here"]));
    assert!(stat.ok().out().contains("\"mode\":\"755\""), "{stat:?}");
    if w.has_ids() {
        run(&fresh.words(&["-u", "alice"], &["read", "/etc/image-file"])).ok();
        run(&fresh.words(&["-u", "alice"], &["read", "/etc/hosts"])).ok();
        run(&fresh.words(&["-u", "alice"], &["read", "/etc/resolv.conf"])).ok();
    }
    Ok(())
}

fn spaces_and_letters(w: &World) -> Outcome {
    let home = w.dir("h").join("a b, c:d \"e\" \\ ü=1");
    make(w, &home);
    road(&w.at(&home));
    Ok(())
}

/// Longer than a socket's name may be, and with many layers longer than mount's page of options.
fn a_long_path(w: &World) -> Outcome {
    let mut home = w.dir("long");
    for _ in 0..4 {
        home.push("d".repeat(200));
        make(w, &home);
    }
    road(&w.at(&home));
    Ok(())
}

fn make(w: &World, dir: &Path) {
    fs::create_dir(dir).expect("a directory");
    std::os::unix::fs::chown(dir, Some(w.user.uid), Some(w.user.gid)).expect("giving it away");
}

fn store_by_variable(w: &World) -> Outcome {
    if w.registry.is_none() {
        testkit::skip!("no docker-registry here");
    }
    let dir = w.dir("variable").join("store");
    for (name, store) in [("CORACLE_DIR", dir.clone()), ("XDG_DATA_HOME", dir.join("xdg"))] {
        let mut command = w.command(&["pull", "-q", "--tls-verify=false", &w.image]);
        command.env(name, &store);
        run_with(&mut command, Input::Null, LIMIT).ok();
        let at = if name == "CORACLE_DIR" { store } else { store.join("coracle") };
        assert!(at.join("oci/index.json").exists(), "{name} places the store");
    }
    Ok(())
}

fn home_is_missing(w: &World) -> Outcome {
    let missing = w.at(Path::new("/nonexistent/home"));
    let done = missing.coracle(&["pull", "--tls-verify=false", &w.image]);
    assert!(
        done.code() == 0 || (done.code() == 1 && done.err().contains("/nonexistent")),
        "{done:?}"
    );
    let mut command = w.command(&["images"]);
    command.env_remove("HOME");
    let done = run_with(&mut command, Input::Null, LIMIT);
    assert!([0, 1].contains(&done.code()) && !done.err().contains("panicked"), "{done:?}");
    w.coracle(&["--version"]).ok();
    Ok(())
}

fn home_cannot_be_written(w: &World) -> Outcome {
    if w.user.uid == 0 {
        testkit::skip!("root can write everywhere");
    }
    let home = w.dir("ro-home");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o555)).expect("a mode");
    let refused = w.at(&home);
    let done = refused.coracle(&["pull", "--tls-verify=false", &w.image]);
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).expect("a mode");
    done.expect(1);
    assert!(done.err().contains(&*home.to_string_lossy()), "the reason names the place: {done:?}");
    Ok(())
}

/// Images work without namespaces; an engine that needs them reports the reason and a remedy.
fn namespaces_forbidden(w: &World) -> Outcome {
    if let Err(why) = no_namespaces() {
        testkit::skip!("{why}");
    }
    let setting = Setting { no_namespaces: true, ..Setting::default() };
    let run = |words: &[&str]| run_with(&mut w.command_in(&setting, words), Input::Null, LIMIT);
    run(&["images"]).ok();
    run(&["inspect", "--type=image", &w.image]).ok();
    let doctor = run(&["doctor"]);
    assert!([0, 1].contains(&doctor.code()) && doctor.out().contains("N1"), "{doctor:?}");
    if w.registry.is_some() {
        run(&["pull", "-q", "--tls-verify=false", &w.image]).ok();
    }
    if w.has_overlay() {
        let done = run(&["run", "--rm", "--execmode=N1", &w.image, "/bin/guest", "exit", "0"]);
        done.expect(125);
        assert!(done.err().contains("namespace"), "{done:?}");
        assert!(done.err().contains("hint:"), "{done:?}");
    }
    Ok(())
}

fn many_layers(w: &World) -> Outcome {
    let Some(host) = &w.registry else { testkit::skip!("no docker-registry here") };
    let mut image = testkit::guest::image();
    for n in 0..120 {
        image = image.layer(testkit::layer::Layer::new().file(
            &format!("many/{n}"),
            0o644,
            n.to_string(),
        ));
    }
    let name = w.name("many");
    let target = testkit::push::Target { address: host.parse().expect("an address"), basic: None };
    target.image(&name, "1", &image.build()).expect("pushing");
    let full = format!("{host}/{name}:1");
    w.coracle(&["pull", "-q", "--tls-verify=false", &full]).ok();
    let done = w.coracle(&[
        "run",
        "--rm",
        &full,
        "/bin/guest",
        "read",
        "/many/0",
        ";",
        "read",
        "/many/119",
    ]);
    assert_eq!(done.ok().out(), "0119");
    w.coracle(&["rmi", &full]).ok();
    Ok(())
}
