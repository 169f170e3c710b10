//! Tests of containers above their images where the store is on other file systems, or programs
//! have unusual limits.
//!
//! A file system without whiteouts, attributes or stable positions in directories gets a tree of
//! links instead; which one that is, is tried and not listed here.

use std::collections::BTreeSet;

use testkit::command::{Finished, Input, run_with};
use testkit::person::LIMIT;
use testkit::skip;
use testkit::skip::Outcome;
use testkit::users::Setting;

use crate::crash::mounted::Mounted;
use crate::crash::place::{Case, Place, pull};
use crate::crash::rounds::is_ready;

pub(crate) const CASES: &[(&str, Case)] = &[
    ("tmpfs", |place| {
        works(place, &Mounted::new(place, "fs-tmpfs", "tmpfs", "size=200m,mode=755")?)
    }),
    ("ramfs", |place| works(place, &Mounted::new(place, "fs-ramfs", "ramfs", "mode=755")?)),
    ("ext4", |place| {
        works(place, &Mounted::made(place, "fs-ext4", ("ext4", &["-q", "-F"]), 128 << 20)?)
    }),
    ("ext4_without_sorting", |place| {
        let plain = ["-q", "-F", "-O", "^dir_index"];
        works(place, &Mounted::made(place, "fs-plain", ("ext4", &plain), 128 << 20)?)
    }),
    ("xfs", |place| {
        works(place, &Mounted::made(place, "fs-xfs", ("xfs", &["-q", "-f"]), 400 << 20)?)
    }),
    ("btrfs", |place| {
        works(place, &Mounted::made(place, "fs-btrfs", ("btrfs", &["-q", "-f"]), 400 << 20)?)
    }),
    ("limits", limits),
];

/// Changes of each kind; what is then there is listed.
const WORK: &str = "append /shared/3/310 x ; rename /shared/4 /moved ; remove /shared/5/511 ; \
    mkdir /shared/6/new ; write /moved/in y ; rename /shared/7/711 /moved/other ; \
    chmod /shared/8/811 600 ; remove /shared/9 ; mkdir /shared/9 ; write /shared/9/again z ; \
    append /moved/410 x ; tree /shared ; tree /moved ; list /shared/5 ; list /moved";

fn words<'w>(mode: &'w str, name: &'w str, image: &'w str) -> Vec<&'w str> {
    let mut words = vec!["run", "--name", name, mode, image, "/bin/guest"];
    words.extend(WORK.split_whitespace());
    words
}

fn only_plain(place: &Place<'_>) -> Outcome {
    if place.person.user.range {
        skip!("as for the other user");
    }
    Ok(())
}

/// What the work prints where nothing is unusual.
fn expected(place: &Place<'_>, name: &str) -> BTreeSet<String> {
    let person = place.fresh(name);
    person.run(&pull(&place.images.names[0])).ok();
    let done = person.run(&words("--execmode=I1", "plain", &place.images.names[0]));
    lines(&done)
}

#[track_caller]
fn lines(done: &Finished) -> BTreeSet<String> {
    done.ok().out().lines().map(str::to_owned).collect()
}

fn works(place: &Place<'_>, disk: &Mounted) -> Outcome {
    only_plain(place)?;
    let image = &place.images.names[0];
    let name = disk.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let expected = expected(place, &format!("{name}-plain"));
    disk.run(place.person, &pull(image)).ok();
    for mode in ["I1", "F2", "P1"] {
        if !is_ready(place.person, mode) {
            continue;
        }
        let flag = format!("--execmode={mode}");
        let done = disk.run(place.person, &words(&flag, mode, image));
        let seen = lines(&done);
        let wrong: Vec<_> = seen.symmetric_difference(&expected).take(5).collect();
        assert!(wrong.is_empty(), "{name}, {mode}: {wrong:?}");
        // In the next start too, and for commands.
        let read = ["read", "/moved/410", ";", "list", "/shared/9"];
        let again = disk.run(place.person, &[&["run", mode, "/bin/guest"][..], &read].concat());
        assert!(again.ok().out().ends_with("x[\"again\"]\n"), "{name}, {mode}: {again:?}");
        let diff = disk.run(place.person, &["diff", mode]);
        assert!(diff.ok().out().contains("D /shared/4"), "{name}, {mode}: {diff:?}");
        let driver = ["inspect", "--type=container", "--format={{.Driver}}", mode];
        let driver = disk.run(place.person, &driver).ok().line();
        println!("{name}, {mode}: {driver}");
    }
    disk.run(place.person, &["verify"]).ok();
    Ok(())
}

/// A container is made, changed and started again with a strict umask and under small limits.
fn limits(place: &Place<'_>) -> Outcome {
    only_plain(place)?;
    let image = &place.images.names[0];
    let expected = expected(place, "limits-plain");
    let person = place.fresh("limits");
    person.run(&pull(image)).ok();
    let settings = [
        ("umask", Setting { umask: Some(0o077), ..Setting::default() }),
        ("files", Setting { before: "ulimit -n 24; ".to_owned(), ..Setting::default() }),
        // In blocks of 512 bytes: a megabyte.
        ("size", Setting { before: "ulimit -f 2048; ".to_owned(), ..Setting::default() }),
        // In kilobytes: a gigabyte.
        ("memory", Setting { before: "ulimit -v 1048576; ".to_owned(), ..Setting::default() }),
    ];
    for mode in ["I1", "F2", "P1"] {
        if !is_ready(&person, mode) {
            continue;
        }
        for (what, setting) in &settings {
            let (flag, name) = (format!("--execmode={mode}"), format!("{mode}-{what}"));
            let run = |words: &[&str]| {
                let mut command = person.user.command_in(&person.program, &person.home, setting);
                run_with(command.args(words), Input::Null, LIMIT)
            };
            let done = run(&words(&flag, &name, image));
            let said = done.err();
            // A limit may be too small for the engine, which then says so.
            if done.code() != 0 {
                assert!(said.contains("limit") || said.contains("ulimit"), "{name}: {done:?}");
                println!("{name}: {}", said.lines().next().unwrap_or_default());
                continue;
            }
            let wrong = lines(&done);
            let wrong: Vec<_> = wrong.symmetric_difference(&expected).take(5).collect();
            // A file that is made has the caller's umask.
            let is_fresh = |line: &&String| ["/new", "/in", "/9"].iter().any(|n| line.contains(n));
            let fits = wrong.iter().all(|line| *what == "umask" && is_fresh(line));
            assert!(fits, "{name}: {wrong:?}");
            let again = run(&["run", &name, "/bin/guest", "list", "/shared/9"]);
            assert_eq!(again.ok().out(), "[\"again\"]\n", "{name}");
        }
    }
    Ok(())
}
