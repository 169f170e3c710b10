//! Checks with `strace` that a program does not load the host's libraries.
//!
//! A static glibc program that looks up a host or a user by NSS loads `libnss_*.so` and a second
//! libc with it, or connects to `nscd`. Neither may happen, whatever the machine's `nsswitch.conf`
//! says. Programs that it starts (`getent`, which may use NSS) do not count.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use crate::command::{Input, run_with};
use crate::skip::{Skip, need_program};
use crate::users::User;

/// Runs a command to its end and lists the shared libraries and name-service sockets that it
/// opened. Its exit status does not matter.
pub fn libraries(
    user: &User,
    home: &Path,
    program: &Path,
    words: &[&str],
) -> Result<Vec<String>, Skip> {
    let strace = need_program("strace")?;
    let mut command = user.command(strace, home);
    command.args([
        "-f",
        "-qq",
        "-s",
        "300",
        "-e",
        "trace=open,openat,openat2,connect,execve",
        "-o",
    ]);
    let log = home.join(format!("strace-{}", words.join("-").replace('/', "_")));
    command.arg(&log).arg(program).args(words);
    let done = run_with(&mut command, Input::Null, Duration::from_mins(1));
    let text = std::fs::read_to_string(&log)
        .map_err(|error| Skip(format!("strace wrote nothing ({error}): {done:?}")))?;
    if !text.contains("execve(") {
        return Err(Skip(format!("strace cannot trace here: {}", done.err().trim())));
    }
    Ok(own(&text, &program.display().to_string())
        .filter(|line| suspicious(line))
        .map(str::to_owned)
        .collect())
}

/// The lines of processes that have not executed another program.
fn own<'t>(log: &'t str, program: &str) -> impl Iterator<Item = &'t str> {
    let ours = format!("execve(\"{program}\"");
    let (mut trying, mut others) = (HashSet::new(), HashSet::new());
    log.lines().filter(move |line| {
        let process = line.split(' ').next().unwrap_or_default();
        if line.contains("execve(") && !line.contains(&ours) {
            trying.insert(process);
        }
        // The end of the call may be on a later line, if another process came between.
        if line.contains("execve") && line.ends_with("= 0") && trying.remove(process) {
            others.insert(process);
        }
        !others.contains(process)
    })
}

/// Returns true for a successful open of a library, or any access to a name-service daemon.
fn suspicious(line: &str) -> bool {
    let named = line.split('"').nth(1).unwrap_or_default();
    let library = named.contains(".so") && !line.contains("execve(");
    let daemon =
        line.contains("/nscd/") || line.contains("systemd/userdb") || line.contains("sss/pipes");
    (library && !line.contains("= -1 ")) || daemon
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_do_not_count() {
        let log = "1 execve(\"/x/coracle\", [\"coracle\"], 0x1) = 0\n1 openat(3, \"a.so\") = 3\n\
            2 execve(\"/usr/bin/getent\", [\"getent\"], 0x1) = 0\n2 openat(3, \"b.so\") = 3";
        assert!(own(log, "/x/coracle").all(|line| line.starts_with('1')));
    }

    #[test]
    fn knows_a_library_from_a_file() {
        assert!(suspicious(
            r#"12 openat(AT_FDCWD, "/lib/x86_64-linux-gnu/libnss_files.so.2", O_RDONLY) = 3"#
        ));
        assert!(suspicious(
            r#"12 connect(3, {sa_family=AF_UNIX, sun_path="/var/run/nscd/socket"}, 110) = -1 ENOENT"#
        ));
        assert!(!suspicious(r#"12 openat(AT_FDCWD, "/etc/passwd", O_RDONLY) = 3"#));
        assert!(!suspicious(r#"12 openat(AT_FDCWD, "/lib/libc.so.6", O_RDONLY) = -1 ENOENT"#));
    }
}
