//! Runs the tests again as a user without any privilege.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn all_other_tests_pass_for_an_unprivileged_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP unprivileged: the tests run as an unprivileged user already");
        return;
    }
    run_as("1000", &["--clear-groups"], &["--skip", "unprivileged"]);
}

/// User 1001 has subordinate ids on the machines that CI uses.
#[test]
fn kernel_tests_pass_for_an_unprivileged_user_with_subordinate_ids() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP unprivileged: the tests run as an unprivileged user already");
        return;
    }
    run_as("1001", &["--clear-groups"], &["kernel::"]);
}

/// The next test runs this in a process of its own.
#[test]
#[ignore = "the other half of a test"]
fn with_the_walk_of_old_kernels() {
    sys::fs::resolve::avoid_openat2();
    crate::hostile::all();
    crate::layers::all();
}

#[test]
fn the_path_walk_of_old_kernels_gives_the_same_results() {
    let name = "unprivileged::with_the_walk_of_old_kernels";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// ramfs has no extended attributes: marks and owners go to tables.
#[test]
fn a_file_system_without_attributes_works() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP unprivileged: only root can mount a ramfs here");
        return;
    }
    let scratch = testkit::scratch::Scratch::new("rootfs-ramfs").unwrap();
    let script = "mount -t ramfs none $1 && chmod 1777 $1 && TMPDIR=$1 exec $2 --nocapture \
                  layers:: hostile:: changes:: formats::";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-ec", script, "sh"])
        .arg(scratch.path())
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("unshare:") || errors.contains("mount:") {
        return eprintln!("SKIP ramfs: {errors}");
    }
    for line in errors.lines().filter(|line| line.starts_with("SKIP")) {
        eprintln!("on ramfs: {line}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{errors}");
}

fn run_as(user: &str, groups: &[&str], tests: &[&str]) {
    let scratch = testkit::scratch::Scratch::new("rootfs-user").unwrap();
    let program = scratch.path().join("tests");
    testkit::command::copy_program(&std::env::current_exe().unwrap(), &program);
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let temporary = scratch.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", user, "--regid", user]).args(groups).arg("--inh-caps=-all");
    command.arg(&program).args(tests).arg("--nocapture");
    command.env("TMPDIR", &temporary).env("HOME", &temporary).current_dir(&temporary);
    match command.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            for line in errors.lines().filter(|line| line.starts_with("SKIP")) {
                eprintln!("as user {user}: {line}");
            }
            assert!(output.status.success(), "{text}\n{errors}");
        }
        Err(error) => eprintln!("SKIP unprivileged: setpriv: {error}"),
    }
}
