//! Runs programs for the tasks: shows the command, checks its status, works in the workspace's
//! root.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The result of a task; an error is a text for the user.
pub type Outcome<T = ()> = Result<T, String>;

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// The directory that cargo builds into.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A file that cargo built for the target of `.cargo/config.toml`.
pub fn built(profile: &str, name: &str) -> PathBuf {
    target().join("x86_64-unknown-linux-gnu").join(profile).join(name)
}

/// Prints a headline between steps.
pub fn step(text: &str) {
    println!("\n== {text}");
}

/// A cargo command in the workspace, without the variables that describe this package.
///
/// `cargo run` sets them for this program. The build script of `ring` depends on them, so a cargo
/// that inherits them compiles half of the program again after one that was started by hand.
pub fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root()).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// A command by way of another program, such as `nice -n 10`, in the same environment.
pub fn by_way_of(words: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(words[0]);
    outer.args(&words[1..]).arg(command.get_program()).args(command.get_args());
    outer.current_dir(root()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Shows the command, runs it with inherited output, and insists on success.
pub fn check(command: &mut Command) -> Outcome {
    println!("$ {}", describe(command));
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", describe(command))),
        Err(error) => Err(format!("{}: {error}", describe(command))),
    }
}

/// Runs the program of another package.
pub fn package(name: &str, words: &[String]) -> Outcome {
    let mut command = cargo(&["run", "--quiet", "--locked", "--package", name, "--"]);
    check(command.args(words))
}

/// The command that compiles the suites, and runs what these filters select.
pub fn suites(filters: &[&str]) -> Command {
    let mut command = cargo(&["suites"]);
    command.args(filters);
    command
}

/// Runs and returns standard output; insists on success.
pub fn read(command: &mut Command) -> Outcome<String> {
    let words = describe(command);
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("{words}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{words}: {}: {}", output.status, text.trim()))
}

/// Runs cargo with `--message-format json`: its messages, and whether it has ended well.
pub fn messages(cargo: &mut Command) -> Outcome<(Vec<Value>, Outcome)> {
    let words = describe(cargo.args(["--message-format", "json"]));
    let output = cargo.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{words}: {error}"))?;
    let (messages, status) = (parsed(&String::from_utf8_lossy(&output.stdout)), output.status);
    Ok((messages, if status.success() { Ok(()) } else { Err(format!("{words}: {status}")) }))
}

/// The messages in what cargo has written; other lines are left out.
pub fn parsed(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Whether a program is in `PATH`.
pub fn has(name: &str) -> bool {
    testkit::command::find_program(name).is_some()
}

/// The words of a command, for messages.
pub fn describe(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(name)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
