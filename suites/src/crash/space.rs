//! Tests of commands on file systems that are full, read-only, or lack features.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::command::{Input, run_with};
use testkit::person::LIMIT;
use testkit::skip::{Outcome, need_program};

use crate::crash::mounted::{Mounted, decent};
use crate::crash::place::{Case, Place, pull};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("full_while_pulling", full_while_pulling),
    ("full_while_running", full_while_running),
    ("read_only_store", read_only_store),
    ("no_user_attributes", no_user_attributes),
    ("no_links", no_links),
];

fn full_while_pulling(place: &Place<'_>) -> Outcome {
    let image = &place.images.names[0];
    // From much too small to nearly enough, so that it fills up in every phase.
    for megabytes in [1, 3, 5, 7, 9, 12] {
        let options = format!("size={megabytes}m,mode=755");
        let disk = Mounted::new(place, &format!("full{megabytes}"), "tmpfs", &options)?;
        let done = disk.run(place.person, &pull(image));
        decent(&done);
        if done.code() != 0 {
            done.expect(1);
            assert!(done.err().to_lowercase().contains("space"), "the reason: {done:?}");
        }
        decent(&disk.run(place.person, &["images"]));
        disk.run(place.person, &["images"]).ok();
        disk.root(&["mount", "-o", "remount,size=200m", &disk.dir.display().to_string()]);
        let verify = disk.run(place.person, &["verify"]);
        assert_eq!(verify.code(), 0, "with {megabytes} MB: {verify:?}");
        disk.run(place.person, &pull(image)).ok();
        let done = disk.run(place.person, &["run", "--rm", image, "/bin/guest", "list", "/one/6"]);
        assert_eq!(done.ok().out().matches(',').count(), 99, "with {megabytes} MB: {done:?}");
        disk.run(place.person, &["verify"]).ok();
    }
    Ok(())
}

fn full_while_running(place: &Place<'_>) -> Outcome {
    let image = &place.images.names[0];
    let disk = Mounted::new(place, "fullrun", "tmpfs", "size=100m,mode=755")?;
    disk.run(place.person, &pull(image)).ok();
    let fill = ["run", "--name=filler", image, "/bin/guest", "fill", "/big", "200"];
    let done = disk.run(place.person, &fill);
    assert!(done.ok().out().contains("ENOSPC"), "{done:?}");
    // The file system is full, and listing and freeing space must still work.
    for words in [["images"].as_slice(), &["ps", "-a"]] {
        disk.run(place.person, words).ok();
    }
    let run = disk.run(place.person, &["run", "--rm", image, "/bin/guest", "exit", "7"]);
    decent(&run);
    let detached = disk.run(place.person, &["run", "-d", image, "/bin/guest", "exit", "7"]);
    decent(&detached);
    disk.run(place.person, &["rm", "-f", "-a"]).ok();
    disk.run(place.person, &["run", "--rm", image, "/bin/guest", "exit", "7"]).expect(7);
    disk.run(place.person, &["verify"]).ok();
    Ok(())
}

fn read_only_store(place: &Place<'_>) -> Outcome {
    let image = &place.images.names[0];
    let disk = Mounted::new(place, "readonly", "tmpfs", "size=200m,mode=755")?;
    disk.run(place.person, &pull(image)).ok();
    disk.root(&["mount", "-o", "remount,ro", &disk.dir.display().to_string()]);
    let images = disk.run(place.person, &["images", "--format={{.Repository}}"]);
    assert!(images.ok().out().contains("crash/one"), "{images:?}");
    disk.run(place.person, &["inspect", "--type=image", image]).ok();
    let refused = disk.run(place.person, &pull(&place.images.names[1]));
    refused.expect(1);
    assert!(refused.err().to_lowercase().contains("read-only"), "the reason: {refused:?}");
    let run = disk.run(place.person, &["run", "--rm", image, "/bin/guest", "exit", "7"]);
    decent(&run);
    assert!(run.code() == 7 || run.err().to_lowercase().contains("read-only"), "{run:?}");
    // Beneath a private store it serves its images.
    let above = place.fresh("above");
    let flag = format!("--store-ro={}", disk.home().join(".local/share/coracle").display());
    let words = [flag.as_str(), "run", "--rm", "--pull=never", image, "/bin/guest", "exit", "7"];
    let inner = above.command(&words);
    let mut command = disk.enter();
    command.arg(inner.get_program()).args(inner.get_args()).current_dir("/").env_clear();
    command.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
    run_with(&mut command, Input::Null, LIMIT).expect(7);
    Ok(())
}

/// ramfs keeps no `user.*` attributes, which overlay needs.
fn no_user_attributes(place: &Place<'_>) -> Outcome {
    works_or_says_why(place, "ramfs", "ramfs", "mode=755", "attribute")
}

/// vfat has neither links nor owners nor modes.
fn no_links(place: &Place<'_>) -> Outcome {
    need_program("mkfs.vfat")?;
    let file = place.person.home.join("vfat.img");
    fs::write(&file, b"")
        .and_then(|()| fs::OpenOptions::new().write(true).open(&file)?.set_len(64 << 20))
        .expect("an image file");
    let made = Command::new("mkfs.vfat").arg(&file).stdout(Stdio::null()).status();
    if !made.is_ok_and(|status| status.success()) {
        testkit::skip!("mkfs.vfat does not work here");
    }
    let _ = Path::new("/dev/loop0");
    let disk = Mounted::new(place, "vfat", "tmpfs", "size=1m,mode=755")?;
    let user = &place.person.user;
    let options = format!("loop,uid={},gid={}", user.uid, user.gid);
    let target = disk.dir.display().to_string();
    let status =
        disk.enter().args(["mount", "-o", &options, &file.display().to_string(), &target]).status();
    if !status.is_ok_and(|status| status.success()) {
        testkit::skip!("vfat cannot be mounted here");
    }
    let done = disk.run(place.person, &pull(&place.images.names[0]));
    decent(&done);
    assert!(done.code() == 0 || !done.err().trim().is_empty(), "refused without a word: {done:?}");
    decent(&disk.run(place.person, &["images"]));
    Ok(())
}

fn works_or_says_why(
    place: &Place<'_>,
    name: &str,
    kind: &str,
    options: &str,
    word: &str,
) -> Outcome {
    let image = &place.images.names[0];
    let disk = Mounted::new(place, name, kind, options)?;
    let done = disk.run(place.person, &pull(image));
    decent(&done);
    if done.code() != 0 {
        assert!(done.err().contains(word), "the reason: {done:?}");
        return Ok(());
    }
    let run = disk.run(
        place.person,
        &["run", "--rm", image, "/bin/guest", "write", "/data/one", "x", ";", "exit", "7"],
    );
    decent(&run);
    assert!(run.code() == 7 || run.err().contains(word), "{run:?}");
    Ok(())
}
