//! The same tests once more as a user without any privilege.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

#[test]
fn all_other_tests_pass_for_an_unprivileged_user() {
    if !rustix_is_root() {
        eprintln!("SKIP unprivileged: the tests run as an unprivileged user already");
        return;
    }
    let scratch = testkit::scratch::Scratch::new("rootfs-user").unwrap();
    let program = scratch.path().join("tests");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let temporary = scratch.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--inh-caps=-all"]);
    command.arg(&program).args(["--skip", "unprivileged"]);
    command.env("TMPDIR", &temporary).env("HOME", &temporary).current_dir(&temporary);
    match command.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            for line in errors.lines().filter(|line| line.starts_with("SKIP")) {
                eprintln!("as user: {line}");
            }
            assert!(output.status.success(), "{text}\n{errors}");
        }
        Err(error) => eprintln!("SKIP unprivileged: setpriv: {error}"),
    }
}

fn rustix_is_root() -> bool {
    rustix::process::geteuid().is_root()
}
