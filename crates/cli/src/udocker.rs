//! udocker's command line and its answers, for when the program is called `udocker`.
//!
//! Commands are the same under both names. Here is only how udocker's words are read ([`adapt`])
//! and how its answers look ([`listing`]). What operations do differently is decided in
//! `containers::dialect`. Under this name 1 stands for every failure of Coracle's own; the
//! program's own status, 126, 127 and 128+n are as everywhere.

pub(crate) mod listing;

use std::path::Path;

use crate::args::run::ContainerFlags;
use crate::report::Exit;

/// The version of udocker whose habits these are.
pub(crate) const LIKE: &str = "1.3.17";

/// What the kernel makes in every container: udocker mounts it from the host.
const OWN: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What `--version` and `version` print.
pub(crate) fn version() -> String {
    format!(
        "version: {LIKE} (coracle {})\ntarball: none, nothing has to be installed\ntarball_release: none\n",
        env!("CARGO_PKG_VERSION")
    )
}

/// The status for a failure of Coracle's own, where udocker's users look for 1.
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
/// `on_terminal`: standard input and output are terminals.
pub(crate) fn adapt(on_terminal: bool, flags: &mut ContainerFlags) {
    let process = &mut flags.process;
    process.interactive = true;
    // udocker's program has the caller's terminal, if there is one, whatever -t says.
    process.tty &= on_terminal;
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
}
