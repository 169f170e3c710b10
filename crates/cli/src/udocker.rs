//! In udocker's place: what differs when the program is called `udocker` or `udocker.py`.
//!
//! There is one code for each command. Here is only what udocker's users and scripts see differently: what its words mean
//! ([`adapt`]), how its answers look ([`listing`]), where its settings come from ([`settings`]), and the images and containers that udocker
//! itself has made ([`legacy`]). Its exit status 1 stands for every failure of ours; the program's own status, 126, 127 and 128+n are as
//! everywhere.

pub(crate) mod legacy;
pub(crate) mod listing;
pub(crate) mod settings;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use engine::facts::Facts;
use engine::plan::{Accounts, Overrides, Root};
use engine::spec::ContainerConfig;
use store::ContainerDir;

use crate::args::run::ContainerFlags;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

/// The version of udocker whose habits these are.
pub(crate) const LIKE: &str = "1.3.17";

/// The place of our store in udocker's directory, where that was named.
pub(crate) const STORE: &str = "coracle";

/// A variable that keeps the name where this program starts itself by another.
pub(crate) const CALLED: &str = "CORACLE_CALLED_UDOCKER";

/// What the kernel makes in every container: udocker mounts it from the host.
const OWN: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What is run where nobody says what.
const SHELL: [&str; 2] = ["bash", "-i"];

/// Whether this program was started as udocker, by whoever it was or by itself.
pub(crate) fn is_called() -> bool {
    std::env::args_os().next().is_some_and(|program| is_name(&program))
        || std::env::var_os(CALLED).is_some()
}

/// Whether a program of this name is udocker.
fn is_name(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "udocker" || name == "udocker.py")
}

/// What `--version` and `version` print.
pub(crate) fn version() -> String {
    format!(
        "version: {LIKE} (coracle {})\ntarball: none, nothing has to be installed\ntarball_release: none\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// The status for a failure of ours, where udocker's users look for 1.
pub(crate) fn status(exit: Exit) -> Exit {
    if exit == Exit::FAILED { Exit(1) } else { exit }
}

/// Gives an option of `run` the form that it has for udocker: `-a` takes no word after it.
pub(crate) fn options(run: clap::Command) -> clap::Command {
    let flag =
        |arg: clap::Arg| arg.num_args(0..=1).require_equals(true).default_missing_value("all");
    run.mut_arg("attach", flag)
}

/// Gives the flags the meaning that they have for udocker.
pub(crate) fn adapt(context: &Context, flags: &mut ContainerFlags) {
    let process = &mut flags.process;
    process.interactive = true;
    // udocker's program has the caller's terminal, if there is one, whatever -t says.
    process.tty &= context.input_is_terminal() && context.output_is_terminal();
    if let Some(text) = &process.entrypoint {
        let words: Vec<&str> = text.split_whitespace().collect();
        if words.len() > 1 {
            process.entrypoint = Some(serde_json::json!(words).to_string());
        }
    }
    let volumes = std::mem::take(&mut flags.files.volume);
    flags.files.volume = volumes.iter().filter_map(|text| volume(text)).collect();
    // Where there is no graphics device, udocker goes on without.
    flags.files.dri &= Path::new("/dev/dri").is_dir();
}

/// What of the flags counts for a container that is there: `--name` gives it a further name, and what udocker passes over for every container
/// (or minds only while it pulls) changes nothing.
pub(crate) fn adapt_existing(
    flags: &mut ContainerFlags,
    container: &mut ContainerDir,
) -> Result<(), Report> {
    if let Some(name) = flags.record.name.take() {
        container.add_name(&name)?;
    }
    flags.image.platform = None;
    flags.network.dns.clear();
    flags.network.dns_search.clear();
    Ok(())
}

/// What is run where neither the image nor the user says what: the key `cmd`, else a shell.
pub(crate) fn command(context: &Context) -> Result<Vec<String>, Report> {
    Ok(context.udocker()?.list("cmd").unwrap_or_else(|| SHELL.map(str::to_owned).to_vec()))
}

/// Where a program starts if neither the image nor the user says: at home, where the container has that; else nowhere else than usual.
pub(crate) fn home(
    config: &ContainerConfig,
    overrides: &Overrides,
    (facts, accounts): (&Facts, &dyn Accounts),
    root: &Root,
) -> Result<Option<String>, Report> {
    if !config.cwd.is_empty() || overrides.cwd.is_some() || overrides.exec {
        return Ok(None);
    }
    let user = overrides.user.as_ref().unwrap_or(&config.user);
    let home = engine::plan::home(user, config.namespaces.user, facts, accounts)?;
    let Ok(inside) = home.strip_prefix("/") else { return Ok(None) };
    let has = |tree: &PathBuf| tree.join(inside).symlink_metadata().is_ok();
    let is_there = match root {
        Root::Overlay { lowers, upper, .. } => has(upper) || lowers.iter().any(has),
        Root::Directory { path } => has(path),
    };
    let mut mounts = config.mounts.iter().chain(&overrides.mounts);
    let known = is_there || mounts.any(|mount| mount.target == home);
    known.then(|| crate::context::text(&home)).transpose()
}

/// `-v HOST` mounts at the same place; what every container has by itself is not mounted once more.
fn volume(text: &str) -> Option<String> {
    let place = |text: &str| text.trim_end_matches('/').to_owned();
    let (host, inside) = match text.split_once(':') {
        None if text.starts_with('/') => (place(text), place(text)),
        None => return Some(text.to_owned()),
        Some((host, inside)) => (place(host), place(inside)),
    };
    if host == inside && OWN.contains(&host.as_str()) {
        return None;
    }
    Some(if text.contains(':') { text.to_owned() } else { format!("{text}:{text}") })
}

/// Variables that say who somebody is, as udocker sets them: the user inside, and the one who started it.
pub(crate) fn name_user(context: &Context, config: &mut ContainerConfig) {
    let name = config.user.split(':').next().unwrap_or_default();
    let inside = if matches!(name, "" | "0") { "root" } else { name };
    let outside = context.variable("USER").or_else(|| context.variable("LOGNAME"));
    // A bare number has no name, and the image may have one for it.
    let inside = Some(inside).filter(|name| !name.bytes().all(|byte| byte.is_ascii_digit()));
    for (variable, value) in
        [("USER", inside), ("LOGNAME", inside), ("USERNAME", inside), ("container_ruser", outside)]
    {
        let known = |text: &String| text.split('=').next() == Some(variable);
        if let Some(value) = value.filter(|_| !config.env.iter().any(known)) {
            config.env.push(format!("{variable}={value}"));
        }
    }
}

/// Variables of the host that a container gets, and those that `--hostenv` leaves out. Unless told otherwise, programs know the terminal.
pub(crate) fn host_variables(context: &Context) -> Result<(Vec<String>, Vec<String>), Report> {
    if !context.is_udocker() {
        return Ok((Vec::new(), Vec::new()));
    }
    let settings = context.udocker()?;
    let valid = settings.list("valid_host_env").unwrap_or_else(|| vec!["TERM".to_owned()]);
    Ok((valid, settings.list("invalid_host_env").unwrap_or_default()))
}

/// Variables that say which container this is, as udocker sets them.
pub(crate) fn name_container(
    config: &mut ContainerConfig,
    container: &store::ContainerDir,
    user: Option<&str>,
    mode: &str,
) -> Result<(), Report> {
    let id = container.id();
    let names = container.names()?.join(",");
    let tree = config.rootfs.clone().unwrap_or_else(|| container.path().join("ROOT"));
    let user = user.unwrap_or(&config.user).split(':').next().unwrap_or_default();
    let sign = if matches!(user, "" | "0" | "root") { "#" } else { "\\$" };
    let prompt = format!("{}{sign} ", &id[..id.len().min(8)]);
    for (variable, value) in [
        ("PS1", prompt.as_str()),
        ("SHLVL", "0"),
        ("container_root", &tree.to_string_lossy()),
        ("container_uuid", id),
        ("container_execmode", mode),
        ("container_names", &names),
    ] {
        let known = |text: &String| text.split('=').next() == Some(variable);
        if !config.env.iter().any(known) {
            config.env.push(format!("{variable}={value}"));
        }
    }
    Ok(())
}

/// Says on a terminal that a container starts. Where output goes to a file or a program it is the program's alone: there udocker's banner
/// came after it, or among it.
pub(crate) fn banner(context: &Context, flags: &ContainerFlags, id: &str, command: &[String]) {
    let quiet = context.is_quiet() || flags.record.nobanner;
    if quiet || !context.is_udocker() || !context.output_is_terminal() {
        return;
    }
    let line = "*".repeat(78);
    let starting = format!("STARTING {}", id.chars().take(36).collect::<String>());
    let program = command.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
    let text = format!(
        "\n {line}\n *{0:76}*\n *{starting:^76}*\n *{0:76}*\n {line}\n executing: {program}\n",
        ""
    );
    // A terminal that is gone is the program's to notice.
    let _ = output::print(&text);
}

/// Refuses what is protected.
pub(crate) fn protected(what: &str, name: &str) -> Report {
    Report::new(format!("{what} {name} is protected"))
        .hint(format!("coracle unprotect {name}"))
        .exit(Exit(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes() {
        assert_eq!(volume("/data").as_deref(), Some("/data:/data"));
        assert_eq!(volume("/a b/c:/d:ro").as_deref(), Some("/a b/c:/d:ro"));
        assert_eq!(volume("/etc/hosts").as_deref(), Some("/etc/hosts:/etc/hosts"));
        assert_eq!(volume("/dev").or_else(|| volume("/proc:/proc/")), None);
        assert_eq!(volume("/dev/shm:/dev/shm").as_deref(), Some("/dev/shm:/dev/shm"));
    }

    #[test]
    fn names() {
        for (program, is) in
            [("/usr/bin/udocker", true), ("udocker.py", true), ("coracle", false), ("", false)]
        {
            assert_eq!(is_name(OsStr::new(program)), is, "{program}");
        }
    }
}
