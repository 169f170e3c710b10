//! A static program that prints facts from inside a container, and runs commands of a test.
//!
//! `guest VERB [ARGUMENT]...`; several verbs in one process are separated by an argument `;`. Facts
//! are printed as one JSON value per line. Strings that need not be UTF-8 are written with one
//! character per byte (as Latin-1), so nothing is lost. A failed system call prints `error: NAME`
//! (`EPERM`...) and the exit status is 9 unless the verb expects that error.
//!
//! Its image is otherwise empty, so it needs only itself and `/proc`.

#![expect(clippy::unnecessary_wraps, reason = "every verb has the type of the table below")]

mod files;
mod ids;
mod network;
mod process;
mod spoil;
mod storm;
mod terminal;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

/// Result of a verb.
type Answer = Result<u8, String>;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let rest = &arguments[1..];
    if rest.first().is_some_and(|verb| verb == "args") {
        return finish(process::arguments(&arguments));
    }
    if rest.first().is_some_and(|verb| verb == "serve") {
        return finish(serve());
    }
    let mut last = 0;
    for words in rest.split(|word| word == ";") {
        match verb(words) {
            Ok(code) => last = code,
            failed => return finish(failed),
        }
    }
    ExitCode::from(last)
}

/// Does what each line of standard input says, and prints how that ended behind a `=`.
fn serve() -> Answer {
    println!("= ready");
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| name_of(&error))?;
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        match verb(&words) {
            Ok(code) => println!("= {code}"),
            Err(error) => println!("= {error}"),
        }
    }
    Ok(0)
}

fn finish(answer: Answer) -> ExitCode {
    match answer {
        Ok(code) => ExitCode::from(code),
        Err(text) => {
            println!("error: {text}");
            ExitCode::from(9)
        }
    }
}

fn verb(words: &[OsString]) -> Answer {
    let Some((name, rest)) = words.split_first() else { return Ok(0) };
    let name = name.to_string_lossy();
    let text = |n: usize| rest.get(n).map(|word| word.to_string_lossy().into_owned());
    let need = |n: usize| text(n).ok_or_else(|| format!("{name} needs argument {n}"));
    let number = |n: usize| {
        need(n)?.parse::<u64>().map_err(|_| format!("{name}: argument {n} is not a number"))
    };
    let path = |n: usize| {
        rest.get(n).map(std::path::PathBuf::from).ok_or_else(|| format!("{name} needs a path"))
    };
    match &*name {
        "exit" => Ok(number(0)? as u8),
        "say" => process::say(&rest.iter().map(|word| word.as_bytes()).collect::<Vec<_>>()),
        "complain" => process::complain(&need(0)?),
        "signal" => process::signal_self(number(0)?),
        "sleep" => process::sleep(number(0)?),
        "ready" => process::ready(),
        "await" => {
            process::await_signal(&rest.iter().filter_map(|w| w.to_str()).collect::<Vec<_>>())
        }
        "block" => process::block(&rest.iter().filter_map(|w| w.to_str()).collect::<Vec<_>>()),
        "facts" => process::facts(),
        "env" => process::environment(),
        "getenv" => process::variable(&need(0)?),
        "limits" => process::limits(),
        "fds" => process::descriptors(),
        "read-fd" => process::read_descriptor(number(0)?),
        "status" => process::status(&need(0)?),
        "cat" => process::cat(),
        "count" => process::count(),
        "flood" => process::flood(number(0)?, number(1).unwrap_or(1)),
        "spawn" => process::spawn(rest),
        "orphan" => process::orphan(rest),
        "exec" => process::exec(rest),
        "children" => process::children(),
        "kin" => process::kin(),
        "tty" => terminal::facts(),
        "winch" => terminal::winch(),
        "keys" => terminal::keys(),
        "stat" => files::stat(&path(0)?),
        "statfs" => files::statfs(&path(0)?),
        "list" => files::list(&path(0)?),
        "read" => files::read(&path(0)?),
        "link" => files::read_link(&path(0)?),
        "cd" => files::change_directory(&path(0)?),
        "cd-fd" => files::change_directory_by_descriptor(&path(0)?),
        "cwd" => files::working_directory(),
        "write" => files::write(&path(0)?, &need(1)?),
        "append" => files::append(&path(0)?, &need(1)?),
        "remove" => files::remove(&path(0)?),
        "mkdir" => files::make_dir(&path(0)?),
        "rename" => files::rename(&path(0)?, &path(1)?),
        "symlink" => files::symlink(&need(0)?, &path(1)?),
        "chmod" => files::chmod(&path(0)?, &need(1)?),
        "chown" => files::chown(&path(0)?, number(1)? as u32, number(2)? as u32),
        "mknod" => files::mknod(&path(0)?, &need(1)?, number(2)?, number(3)?),
        "fifo" => files::fifo(&path(0)?),
        "set-attribute" => files::set_attribute(&path(0)?, &need(1)?, &need(2)?),
        "attributes" => files::attributes(&path(0)?),
        "mounts" => files::mounts(),
        "mutate" => files::mutate(&path(0)?),
        "storm" => storm::storm(number(0)?, number(1)?, number(2)?, &need(3)?),
        "storm-worker" => storm::worker(number(0)?, number(1)?, &need(2)?),
        "storm-check" => storm::check(number(0)?),
        "overwrite" => spoil::overwrite(),
        "spoil" => spoil::spoil(&path(0)?),
        "ways" => spoil::ways(),
        "spoil-directories" => spoil::directories::spoil(&path(0)?),
        "ways-of-directories" => spoil::directories::ways(),
        "tree" => files::tree(&path(0)?),
        "walk" => files::walk(&path(0)?),
        "fill" => files::fill(&path(0)?, number(1)?),
        "ids" => ids::facts(),
        "setuid" => ids::set_user(number(0)? as u32, number(1)? as u32),
        "setgroups" => ids::set_groups(&rest.iter().filter_map(|w| w.to_str()).collect::<Vec<_>>()),
        "mount" => ids::mount(&path(0)?),
        "unshare" => ids::unshare(),
        "chroot" => ids::chroot(&path(0)?),
        "hostname" => ids::hostname(),
        "sethostname" => ids::set_hostname(&need(0)?),
        "connect" => network::connect(&need(0)?),
        "listen" => network::listen(&need(0)?, number(1).unwrap_or(1)),
        "interfaces" => network::interfaces(),
        other => Err(format!("unknown verb {other}")),
    }
}

/// Converts each byte to one character.
pub(crate) fn latin(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

/// The `ENAME` of an error, or its text.
pub(crate) fn name_of(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(
        || error.to_string(),
        |code| format!("{:?}", nix::errno::Errno::from_raw(code)),
    )
}
