//! Tests of what every container has besides its image: its files in `/etc`, and the places of the
//! mounts that all containers get.

use std::path::Path;
use std::process::Command;

use testkit::command::{Input, run_with};
use testkit::layer::Layer;
use testkit::skip::Outcome;

use crate::contract::world::{Case, Container, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("root_changes_the_files_in_etc", root_changes_the_files_in_etc),
    ("the_files_in_etc_are_mounted", the_files_in_etc_are_mounted),
    ("a_start_writes_the_files_in_etc_anew", a_start_writes_the_files_in_etc_anew),
    ("the_files_in_etc_are_read_only_with_the_root", the_files_in_etc_are_read_only_with_the_root),
    ("the_name_stays_when_etc_hostname_changes", the_name_stays_when_etc_hostname_changes),
    ("root_sets_the_name", root_sets_the_name),
    ("root_writes_the_name", root_writes_the_name),
    ("nothing_stays_of_a_run", nothing_stays_of_a_run),
    ("what_a_run_made_stays", what_a_run_made_stays),
];

/// Those of the files that every host has.
fn files() -> Vec<&'static str> {
    let all = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];
    all.into_iter().filter(|file| Path::new(file).exists()).collect()
}

fn root_changes_the_files_in_etc(w: &World) -> Outcome {
    for file in files() {
        let seen = w.json(&[], &["stat", file]);
        let fields = ["uid", "gid", "mode"].map(|key| seen[key].to_string());
        assert_eq!(fields, ["0", "0", "\"644\""], "{file}: {seen}");
        let host = std::fs::read(file).unwrap_or_default();
        let text = w.guest(&[], &["append", file, "# added\n", ";", "read", file]).ok().out();
        assert!(text.ends_with("# added\n"), "{file}: {text}");
        assert!(text.as_bytes().starts_with(&host), "{file}: {text}");
        let guest = ["write", file, "whole\n", ";", "chmod", file, "600", ";", "read", file];
        assert_eq!(w.guest(&[], &guest).ok().out(), "whole\n", "{file}");
        assert_eq!(std::fs::read(file).unwrap_or_default(), host, "{file} of the host");
    }
    if w.has_ids() {
        let done = w.guest(&["-u", "1234:1235"], &["append", "/etc/hosts", "x"]);
        assert_eq!(done.expect(9).out(), "error: EACCES\n");
    }
    Ok(())
}

/// Docker's answer too: each is a mount of its own.
fn the_files_in_etc_are_mounted(w: &World) -> Outcome {
    for file in files() {
        let aside = format!("{file}.old");
        for guest in [&["rename", file, &aside][..], &["remove", file]] {
            assert_eq!(w.guest(&[], guest).expect(9).out(), "error: EBUSY\n", "{guest:?}");
        }
        let guest = ["write", &aside, "new", ";", "rename", &aside, file];
        assert_eq!(w.guest(&[], &guest).expect(9).out(), "error: EBUSY\n", "{file}");
    }
    Ok(())
}

fn a_start_writes_the_files_in_etc_anew(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("etc"));
    let changes = ["append", "/etc/hosts", "# added\n", ";", "chmod", "/etc/hosts", "600"];
    let flags = ["--name", &c.name, "--add-host", "db:10.1.2.3"];
    w.coracle(&w.words_for(&["run"], &flags, &changes)).ok();
    let again = ["run", &c.name, "/bin/guest", "read", "/etc/hosts", ";", "stat", "/etc/hosts"];
    let text = w.coracle(&again).ok().out();
    assert!(text.contains("10.1.2.3\tdb") && !text.contains("# added"), "{text}");
    assert!(text.contains("\"mode\":\"644\""), "{text}");
    let path = c.inspect("{{.HostsPath}}");
    assert!(std::fs::read_to_string(&path).expect(&path).contains("10.1.2.3\tdb"), "{path}");
    // A program that joins sees what those that run have written.
    let d = w.detached(&[], &["append", "/etc/hosts", "# kept\n", ";", "await", "USR1"]);
    d.said("ready");
    assert!(d.exec(&[], &["read", "/etc/hosts"]).ok().out().ends_with("# kept\n"));
    Ok(())
}

fn the_files_in_etc_are_read_only_with_the_root(w: &World) -> Outcome {
    let done = w.guest(&["--read-only"], &["append", "/etc/hosts", "x"]);
    assert_eq!(done.expect(9).out(), "error: EROFS\n");
    Ok(())
}

fn the_name_stays_when_etc_hostname_changes(w: &World) -> Outcome {
    let guest = ["write", "/etc/hostname", "other\n", ";", "hostname"];
    let text = w.guest(&["--hostname=inside"], &guest).ok().out();
    assert_eq!(text, "inside\n");
    let guest = ["write", "/etc/hostname", "o\n", ";", "read", "/proc/sys/kernel/hostname"];
    assert_eq!(w.guest(&["--hostname=inside"], &guest).ok().out(), "inside\n");
    Ok(())
}

/// The modes whose rules are Coracle's own. A runtime of the host's decides itself.
fn is_by_runtime(w: &World) -> bool {
    w.engine.starts_with('R')
}

/// A program that tells its host name whenever it gets a signal.
const TELLS: [&str; 12] =
    ["hostname", ";", "await", "USR1", ";", "hostname", ";", "await", "USR1", ";", "hostname", ";"];

fn root_sets_the_name(w: &World) -> Outcome {
    if is_by_runtime(w) {
        testkit::skip!("the runtime decides who sets the name");
    }
    let before = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    // Without a name of its own, a container has the host's.
    let refused = w.guest(&[], &["sethostname", "x"]).expect(9).out();
    assert_eq!(refused, "error: EPERM\n");
    let flags = ["--hostname=first"];
    let guest = [&TELLS[..], &["sleep", "300"]].concat();
    let c = w.detached(&flags, &guest);
    let other = w.detached(&flags, &["await", "USR1", ";", "hostname"]);
    c.said("ready");
    other.said("ready");
    let longest = "x".repeat(64);
    for name in ["second", &longest] {
        assert_eq!(c.exec(&[], &["sethostname", name]).ok().line(), name);
        for guest in [&["hostname"][..], &["read", "/proc/sys/kernel/hostname"]] {
            assert_eq!(c.exec(&[], guest).ok().line(), name, "{guest:?}");
        }
        // The one that runs already.
        w.coracle(&["kill", "-s", "USR1", &c.name]).ok();
        c.said(name);
    }
    let long = c.exec(&[], &["sethostname", &"x".repeat(65)]).expect(9).out();
    assert_eq!(long, "error: EINVAL\n");
    assert_eq!(c.exec(&[], &["sethostname", ""]).ok().out(), "\n");
    assert_eq!(c.exec(&[], &["read", "/proc/sys/kernel/hostname"]).ok().out(), "\n");
    // In a user namespace with one id, that id has the privileges.
    if w.user.range || w.engine != "N1" {
        assert_eq!(
            c.exec(&["-u", "1234"], &["sethostname", "x"]).expect(9).out(),
            "error: EPERM\n"
        );
    }
    w.coracle(&["kill", "-s", "USR1", &other.name]).ok();
    other.said("first");
    let after = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    assert_eq!(before, after, "the host's");
    // It ends with the run.
    let d = Container::named(w, &w.name("again"));
    let words = ["sethostname", "other", ";", "hostname"];
    let made = w.coracle(&w.words_for(&["run"], &["--name", &d.name, flags[0]], &words));
    assert_eq!(made.ok().out(), "other\nother\n");
    for guest in [&["hostname"][..], &["read", "/proc/sys/kernel/hostname"]] {
        let again = [&["run", &d.name, "/bin/guest"], guest].concat();
        assert_eq!(w.coracle(&again).ok().line(), "first", "{guest:?}");
    }
    Ok(())
}

/// Linux lets nobody write to the file in a user namespace of his own.
fn root_writes_the_name(w: &World) -> Outcome {
    const NAME: &str = "/proc/sys/kernel/hostname";
    if w.engine == "N1" || is_by_runtime(w) {
        testkit::skip!("the file is the kernel's");
    }
    let c = w.detached(&["--hostname=first"], &[&TELLS[..], &["sleep", "300"]].concat());
    c.said("ready");
    let tells = |wanted: &str| {
        assert_eq!(c.exec(&[], &["hostname"]).ok().out(), format!("{wanted}\n"));
        assert_eq!(c.exec(&[], &["read", NAME]).ok().out(), format!("{wanted}\n"));
    };
    for (text, wanted) in [("second\n", "second"), ("th", "th"), ("one\ntwo\n", "one")] {
        c.exec(&[], &["write", NAME, text]).ok();
        tells(wanted);
    }
    w.coracle(&["kill", "-s", "USR1", &c.name]).ok();
    c.said("one");
    c.exec(&[], &["append", NAME, "last"]).ok();
    tells("last");
    c.exec(&[], &["sethostname", "called"]).ok();
    tells("called");
    // Nothing is written.
    c.exec(&[], &["write", NAME, ""]).ok();
    tells("called");
    if w.has_ids() {
        let refused = c.exec(&["-u", "1234"], &["write", NAME, "x"]).expect(9).out();
        assert_eq!(refused, "error: EACCES\n");
        tells("called");
    }
    let refused = w.guest(&[], &["write", NAME, "x"]).expect(9).out();
    assert!(
        ["error: EACCES\n", "error: EPERM\n", "error: EROFS\n"].contains(&&*refused),
        "{refused}"
    );
    Ok(())
}

/// An archive of a container, as GNU tar shows it: with modes, owners, sizes and times.
fn exported(w: &World, container: &str) -> String {
    let archive = w.coracle(&["export", container]);
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "--full-time", "-tvf", "-"]).env("TZ", "UTC");
    run_with(&mut tar, Input::Bytes(archive.ok().stdout.clone()), LIMIT).ok().out()
}

fn nothing_stays_of_a_run(w: &World) -> Outcome {
    let bare = without_places(w);
    for image in [&w.image, &bare] {
        nothing_stays(&World { image: image.clone(), ..w.at(&w.home) });
    }
    w.coracle(&["rmi", "-f", &bare]).ok();
    Ok(())
}

/// An image that has nothing but the guest.
fn without_places(w: &World) -> String {
    let guest = std::fs::read(testkit::guest::program()).expect("the guest program");
    let archive = Layer::new().file("bin/guest", 0o755, guest).finish();
    let dir = w.dir("bare");
    let file = dir.join("bare.tar");
    std::fs::write(&file, archive).expect("a file");
    let image = format!("localhost/test/{}:1", w.name("bare"));
    w.coracle(&["import", &file.display().to_string(), &image]).ok();
    image
}

fn nothing_stays(w: &World) {
    let fresh = Container::named(w, &w.name("fresh"));
    w.coracle(&["create", &w.mode(), "--name", &fresh.name, &w.image]).ok();
    let before = exported(w, &fresh.name);
    let mut flags = vec![&[][..], &["--hostname=inside", "--add-host=db:10.1.2.3"]];
    if w.has_overlay() {
        flags.push(&["--isolate"]);
    }
    for flags in flags {
        let c = Container::named(w, &w.name("idle"));
        let flags = [flags, &["--name", &c.name]].concat();
        w.coracle(&w.words_for(&["run"], &flags, &["exit", "0"])).ok();
        assert_eq!(w.coracle(&["diff", &c.name]).ok().out(), "", "{flags:?}");
        assert_eq!(exported(w, &c.name), before, "{flags:?}");
    }
}

/// What a program makes where others have only a place of a mount is a change.
fn what_a_run_made_stays(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("made"));
    let guest = ["write", "/etc/mine", "x", ";", "mkdir", "/proc2"];
    w.coracle(&w.words_for(&["run"], &["--name", &c.name], &guest)).ok();
    let text = w.coracle(&["diff", &c.name]).ok().out();
    assert_eq!(text, "C /etc\nA /etc/mine\nA /proc2\n");
    let export = exported(w, &c.name);
    assert!(export.contains(" etc/mine\n") && !export.contains(" etc/hosts\n"), "{export}");
    Ok(())
}
