//! Tests of directories that the caller has in common with colleagues: their files belong to the
//! host, so what the caller could do to them without a container is really done to them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use testkit::command::{Input, run_with};
use testkit::skip::Outcome;
use testkit::users::Setting;

use super::world::{Case, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("modes_and_groups_are_real", modes_and_groups_are_real),
    ("groups_of_the_caller_are_given", groups_of_the_caller_are_given),
    ("the_callers_groups_open_files", the_callers_groups_open_files),
    ("other_owners_close_nothing", other_owners_close_nothing),
];

/// A group that no file of the machine has.
const PROJECT: u32 = 48_777;

/// What a program does in a project's directory, which stands for `P`: what a kernel does to names,
/// modes and groups, in each way there is.
const WORK: &[&str] = &[
    "mkdir P/made",
    "mkdir P/made/below",
    "write P/made/below/file text",
    "append P/made/below/file more",
    "fifo P/made/pipe",
    "symlink file P/made/link",
    "mkdir P/open",
    "chmod P/open 2777",
    "mkdir P/left",
    "chmod P/left 755",
    "write P/left/file text",
    "mkdir P/shared",
    "chmod P/shared 3770",
    "mkdir P/plain",
    "chmod P/plain 750",
    "write P/key text",
    "chmod P/key 400",
    "write P/program text",
    "chmod P/program 750",
    "mkdir P/closed",
    "write P/closed/file text",
    "chmod P/closed 2550",
    "write P/again text",
    "chmod P/again 0",
    "chmod P/again 660",
];

/// The user as a member of the project, and a directory of the project's.
fn project(w: &World, stem: &str) -> Result<(World, PathBuf), testkit::skip::Skip> {
    if !rustix::process::getuid().is_root() {
        return Err(testkit::skip::Skip("only root can give a user another group".to_owned()));
    }
    let directory = w.dir(stem);
    give_to_project(&directory);
    Ok((w.also_in_group(PROJECT), directory))
}

fn give_to_project(directory: &Path) {
    std::os::unix::fs::chown(directory, None, Some(PROJECT)).expect("a group");
    fs::set_permissions(directory, fs::Permissions::from_mode(0o2770)).expect("a mode");
}

/// The guest's words for a list of verbs, with the directory's name in them.
fn words(verbs: &[&str], directory: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, verb) in verbs.iter().enumerate() {
        all.extend((at > 0).then(|| ";".to_owned()));
        all.extend(verb.split(' ').map(|word| match word.strip_prefix('P') {
            Some(rest) => format!("{directory}{rest}"),
            None => word.to_owned(),
        }));
    }
    all
}

/// Mode, user and group of each file below a directory, by its relative name.
fn seen(directory: &Path) -> BTreeMap<PathBuf, (String, u32, u32)> {
    let mut all = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let facts = path.symlink_metadata().expect("a file");
        if facts.is_dir() {
            left.extend(fs::read_dir(&path).expect("a list").map(|entry| entry.unwrap().path()));
        }
        let name = path.strip_prefix(directory).expect("it is below").to_owned();
        all.insert(name, (format!("{:o}", facts.mode()), facts.uid(), facts.gid()));
    }
    all
}

/// Runs verbs by the guest's program without a container.
#[track_caller]
fn natively(w: &World, verbs: &[&str], directory: &Path) {
    let program = w.home.join("guest-of-the-host");
    if !program.exists() {
        fs::copy(testkit::guest::program(), &program).expect("a copy of the program");
    }
    let setting = Setting { umask: Some(0o022), ..Setting::default() };
    let mut command = w.user.command_in(&program, &w.home, &setting);
    command.args(words(verbs, &directory.display().to_string()));
    run_with(&mut command, Input::Null, LIMIT).ok();
}

/// Runs verbs in a container in which the directory is `/p`.
#[track_caller]
fn inside(w: &World, flags: &[&str], verbs: &[&str], directory: &Path) {
    let volume = format!("{}:/p", directory.display());
    let flags = [&["-v", &volume, "--group-add=keep-groups"], flags].concat();
    let words = words(verbs, "/p");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    w.guest(&flags, &words).ok();
}

/// New files have the directory's group, directories pass the bit on, and modes are those that were
/// asked for: as without a container, for root and for the caller.
fn modes_and_groups_are_real(w: &World) -> Outcome {
    let (w, host) = project(w, "host")?;
    natively(&w, WORK, &host);
    let expected = seen(&host);
    assert!(expected.values().filter(|file| file.2 == PROJECT).count() > 10, "{expected:?}");
    let caller = format!("{}:{}", w.user.uid, w.user.gid);
    for flags in [&[][..], &["-u", &caller]] {
        if !w.has_ids() && !flags.is_empty() {
            // The kernel alone judges there, and this is no root.
            continue;
        }
        let directory = w.dir("project");
        give_to_project(&directory);
        inside(&w, flags, WORK, &directory);
        assert_eq!(seen(&directory), expected, "{flags:?}");
    }
    Ok(())
}

/// `chgrp` to a group of the caller's changes the host's file, as far as the kernel lets the engine
/// say its number.
fn groups_of_the_caller_are_given(w: &World) -> Outcome {
    if w.has_overlay() || w.engine.starts_with('R') {
        testkit::skip!("the kernel does not know the caller's other groups in a user namespace");
    }
    let (w, _) = project(w, "none")?;
    let directory = w.dir("given");
    let verbs = [
        "mkdir P/d",
        "write P/d/f text",
        "fifo P/d/p",
        "symlink f P/d/l",
        "chown P/d 4294967295 48777",
        "chmod P/d 2770",
        "chown P/d/f 4294967295 48777",
        "chown P/d/p 4294967295 48777",
        "chown P/d/l 4294967295 48777",
        "write P/d/new text",
    ];
    inside(&w, &[], &verbs, &directory);
    let files = seen(&directory);
    for name in ["d", "d/f", "d/p", "d/l", "d/new"] {
        assert_eq!(files[Path::new(name)].2, PROJECT, "{name}: {files:?}");
    }
    assert_eq!(files[Path::new("d")].0, "42770");
    // Back to the group of one's own, and to one that only the view can show.
    let volume = format!("{}:/p", directory.display());
    let back = ["chown", "/p/d/f", "4294967295", "0", ";", "chown", "/p/d/p", "4294967295", "7"];
    let done = w.json(&["-v", &volume], &[&back[..], &[";", "stat", "/p/d/p"]].concat());
    assert_eq!(done["gid"], 7);
    let files = seen(&directory);
    assert_eq!(files[Path::new("d/f")].2, w.user.gid, "{files:?}");
    Ok(())
}

/// Who is the caller inside, with the caller's groups, may do what these may, and no more.
fn the_callers_groups_open_files(w: &World) -> Outcome {
    /// A group that every host has, and that has no members.
    const KNOWN: u32 = 100;
    let (w, _) = project(w, "none")?;
    let known = w.also_in_group(KNOWN);
    let caller = format!("{}:{}", w.user.uid, w.user.gid);
    let as_caller = format!("--user={}", w.user.name);
    let ways: [(&World, u32, &[&str]); 3] = [
        (&w, PROJECT, &["--userns=keep-id", "--group-add=keep-groups"]),
        (&w, PROJECT, &["-u", &caller, "--group-add=keep-groups"]),
        (&known, KNOWN, &["--hostauth", &as_caller]),
    ];
    for (w, group, flags) in ways {
        let directory = w.dir("open");
        let file = |name: &str, owner: Option<u32>, group: u32, mode: u32| {
            let path = w.file(&directory, name, "data");
            std::os::unix::fs::chown(&path, owner, Some(group)).expect("an owner");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        };
        file("readable", Some(0), group, 0o640);
        file("writable", Some(0), group, 0o660);
        file("roots", Some(0), 0, 0o640);
        std::os::unix::fs::chown(&directory, Some(0), Some(group)).expect("an owner");
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o2770)).expect("a mode");
        let volume = format!("{}:/p", directory.display());
        let flags = [&["-v", &volume], flags].concat();
        let work = ["read", "/p/readable", ";", "append", "/p/writable", "x", ";", "mkdir", "/p/d"];
        let done = w.guest(&flags, &work);
        assert_eq!(done.ok().out(), "data", "{flags:?}");
        for denied in [["append", "/p/readable", "x"], ["read", "/p/roots", ""]] {
            w.guest(&flags, &denied).expect(9);
        }
        assert_eq!(seen(&directory)[Path::new("d")], ("42755".to_owned(), w.user.uid, group));
        if !w.has_ids() {
            // The kernel does not let any user give the groups up.
            continue;
        }
        let others = ["-v", &volume, "-u", "33:33"];
        w.guest(&others, &["read", "/p/readable"]).expect(9);
    }
    Ok(())
}

/// A directory that got another owner in a container does not keep the host's other users from the
/// names in it.
fn other_owners_close_nothing(w: &World) -> Outcome {
    if !w.has_ids() {
        testkit::skip!("one mapped id of the kernel's: other owners cannot be had");
    }
    let directory = w.dir("owned");
    inside(w, &[], &["mkdir P/d", "chmod P/d 2775", "chown P/d 33 33"], &directory);
    let files = seen(&directory);
    let mode = u32::from_str_radix(&files[Path::new("d")].0, 8).expect("a mode");
    assert_eq!(mode & 0o1777, 0o775, "{files:?}");
    let volume = format!("{}:/p", directory.display());
    let stat = w.json(&["-v", &volume], &["stat", "/p/d"]);
    assert_eq!((&stat["uid"], &stat["gid"]), (&33.into(), &33.into()));
    assert_eq!(stat["mode"], "2775");
    Ok(())
}
