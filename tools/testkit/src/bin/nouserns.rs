//! Runs a program as on a host that forbids user namespaces: `nouserns PROGRAM [ARGUMENT]...`, as
//! root.
//!
//! The number of user namespaces is limited per namespace (`/proc/sys/user/max_user_namespaces`),
//! so this program makes a private one in which the limit is zero. Ids are mapped to themselves, as
//! far as the caller has them: root stays root, and the started program may become any other user.
//!
//! A process cannot map all ids of its own namespace; a process outside with the caller's rights
//! has to do it. So this program starts itself a second time (`nouserns --map`; the process to map
//! is its parent), makes its namespace, sends a byte, waits for the maps and executes the program.

use std::ffi::OsString;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::parent_id;
use std::process::{Command, ExitCode, Stdio};

use nix::sched::CloneFlags;

/// Argument of the second process.
const MAP: &str = "--map";

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match words.first() {
        None => Err("what is to be run?".to_owned()),
        Some(word) if word == MAP => map(),
        Some(_) => forbid().map_err(|why| format!("cannot forbid user namespaces: {why}")),
    };
    let failure = match done {
        Ok(()) if words[0] == MAP => return ExitCode::SUCCESS,
        Ok(()) => {
            let error = Command::new(&words[0]).args(&words[1..]).exec();
            format!("{}: {error}", words[0].display())
        }
        Err(why) => why,
    };
    eprintln!("nouserns: {failure}");
    ExitCode::from(125)
}

/// Moves this process into a namespace in which no other one can be made.
fn forbid() -> Result<(), String> {
    let mut helper = Command::new("/proc/self/exe")
        .arg(MAP)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("/proc/self/exe: {error}"))?;
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| format!("unshare: {error}"))?;
    let mut input = helper.stdin.take().ok_or("no pipe")?;
    input.write_all(b"\n").map_err(|error| format!("the pipe: {error}"))?;
    let status = helper.wait().map_err(|error| format!("wait: {error}"))?;
    if !status.success() {
        return Err("ids cannot be mapped".to_owned());
    }
    write("/proc/sys/user/max_user_namespaces", "0")
}

/// Maps the ids of the parent process, once it is in its own namespace.
fn map() -> Result<(), String> {
    let mut word = [0];
    // At the end of the file the parent does not wait for maps any more.
    std::io::stdin().read_exact(&mut word).map_err(|error| format!("standard input: {error}"))?;
    for kind in ["uid_map", "gid_map"] {
        let own = format!("/proc/self/{kind}");
        let text = fs::read_to_string(&own).map_err(|error| format!("{own}: {error}"))?;
        write(&format!("/proc/{}/{kind}", parent_id()), &identity(&text))?;
    }
    Ok(())
}

/// The lines that map each id of a map (inside, outside, count) to itself.
fn identity(map: &str) -> String {
    let lines = map.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (inside, _, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some([inside, inside, count].join(" ") + "\n")
    });
    lines.collect()
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::identity;

    #[test]
    fn each_id_is_its_own() {
        assert_eq!(identity("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(identity("0 100000 65536\n70000 1 5\n"), "0 0 65536\n70000 70000 5\n");
    }
}
