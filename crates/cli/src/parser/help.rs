//! Help: the overview, groups, one command, and the whole tree for completions and man pages.

use std::ffi::OsString;
use std::fmt::Write;

use clap::{Arg, ArgAction, Args};

use super::explain;
use super::table::{self, COMMANDS, Command, GROUPS, Section};
use crate::args::global::Global;
use crate::report::Report;

const ABOUT: &str = "A container engine for one person: no root, no daemon, nothing to install";

const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}\n\n{all-args}{after-help}";

/// The words before a command.
pub(super) fn root() -> clap::Command {
    Global::augment_args(clap::Command::new("coracle"))
        .bin_name("coracle")
        .no_binary_name(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .arg(
            Arg::new("version")
                .long("version")
                .short('V')
                .visible_short_alias('v')
                .action(ArgAction::SetTrue)
                .help("Print the version"),
        )
        .about(ABOUT)
        .long_about(None)
}

/// One command with all that help, parsing and completions want to know. `path` is how the user
/// wrote it.
pub(super) fn finished(command: &'static Command, path: &str) -> clap::Command {
    let name: &'static str = command.path.rsplit(' ').next().unwrap_or(command.path);
    let built = (command.flags)(clap::Command::new(name))
        .bin_name(format!("coracle {path}"))
        .about(command.about)
        .long_about(None)
        .no_binary_name(true)
        .disable_version_flag(true)
        .disable_help_flag(true)
        .args_override_self(true)
        .max_term_width(110)
        .help_template(TEMPLATE);
    let taken = built.get_arguments().any(|arg| arg.get_short() == Some('h'));
    let help = Arg::new("help")
        .long("help")
        .action(ArgAction::Help)
        .help("Print this help")
        .help_heading("Help");
    let built = built.arg(if taken { help } else { help.short('h') });
    if command.examples.is_empty() {
        return built;
    }
    let lines: Vec<&str> = command.examples.lines().collect();
    built.after_help(format!(
        "Examples:
  {}",
        lines.join(
            "
  "
        )
    ))
}

/// The commands that `coracle` alone names.
const FIRST: [&str; 9] =
    ["doctor", "run", "ps", "exec", "logs", "stop", "images", "pull", "cluster"];

/// `coracle` alone: what a beginner needs.
pub(super) fn beginning() -> String {
    let mut out = format!("{ABOUT}\n\nUsage: coracle [OPTIONS] COMMAND [ARG...]\n\n");
    for name in FIRST {
        let command = COMMANDS.iter().find(|command| command.path == name).map(|one| one.about);
        let group = GROUPS.iter().find(|(group, _)| *group == name).map(|(_, about)| *about);
        let _ = writeln!(out, "  {name:<8} {}", command.or(group).unwrap_or_default());
    }
    out.push_str(
        "\n'coracle help' lists all commands, 'coracle COMMAND --help' says more about one.\n",
    );
    out
}

/// `coracle --help`.
pub(super) fn overview() -> String {
    let mut out = format!("{ABOUT}\n\nUsage: coracle [OPTIONS] COMMAND [ARG...]\n");
    for (section, heading) in Section::SHOWN {
        let _ = write!(out, "\n{heading}:\n");
        for command in COMMANDS.iter().filter(|command| command.section == section) {
            let _ = writeln!(out, "  {:<19} {}", command.path, command.about);
        }
    }
    out.push_str("\nGroups:\n");
    for (name, about) in GROUPS {
        let _ = writeln!(out, "  {name:<19} {about}");
    }
    let mut root = root().help_template("{options}");
    let _ = write!(out, "\nOptions:\n{}\n", root.render_help().to_string().trim_end());
    out.push_str("\n'coracle COMMAND --help' says more about a command; 'coracle help formats' about --format.\n");
    out
}

/// `coracle image --help`.
pub(super) fn group(name: &str) -> String {
    let about = GROUPS.iter().find(|(known, _)| *known == name).map_or("", |(_, about)| *about);
    let mut out = format!("{about}\n\nUsage: coracle {name} COMMAND [ARG...]\n\nCommands:\n");
    let shown =
        || table::group_commands(name).filter(|(_, command)| command.section != Section::Internal);
    let longest = shown().map(|(word, _)| word.len()).max().unwrap_or(0);
    let width = (longest + 1).max(10);
    for (word, command) in shown() {
        let _ = writeln!(out, "  {word:<width$} {}", command.about);
    }
    out
}

/// `coracle help WORDS`.
pub(super) fn topic(words: &[OsString]) -> Result<String, Report> {
    let Some(first) = words.first() else { return Ok(overview()) };
    let first = first.to_string_lossy();
    let second = words.get(1).map(|word| word.to_string_lossy());
    if first == "formats" {
        return Ok(FORMATS.to_owned());
    }
    match table::find(&first, second.as_deref()) {
        Some((command, path, _)) => Ok(finished(command, &path).render_long_help().to_string()),
        None if table::is_group(&first) => Ok(group(&first)),
        None => Err(explain::unknown_command(&first)),
    }
}

/// All commands as one `clap` tree.
pub(crate) fn tree() -> clap::Command {
    let mut tree = root().no_binary_name(false).subcommand_required(true);
    for command in COMMANDS.iter().filter(|command| !command.path.contains(' ')) {
        let hidden = command.section == Section::Hidden;
        tree = tree.subcommand(finished(command, command.path).no_binary_name(false).hide(hidden));
    }
    for (group, about) in GROUPS {
        let mut parent = clap::Command::new(*group).about(*about).subcommand_required(true);
        for (word, command) in table::group_commands(group) {
            let hidden = command.section == Section::Internal;
            let path = format!("{group} {word}");
            parent = parent
                .subcommand(finished(command, &path).no_binary_name(false).name(word).hide(hidden));
        }
        tree = tree.subcommand(parent);
    }
    tree
}

const FORMATS: &str = "\
--format of ps, images, inspect and other listings takes 'table', 'json' or a Go template, as Docker's.

  {{.ID}}                       a field; {{.State.Pid}} one within another
  {{json .}}                    all of it, as JSON
  table {{.ID}}\\t{{.Names}}     a table with these columns
  {{range .Mounts}}...{{end}}   for each; {{range $i, $m := .Mounts}} with index
  {{if .X}}...{{else}}...{{end}}, {{with .X}}...{{end}}
  {{index .Config.Labels \"a\"}}  an entry of a list or map
  {{join .Config.Env \" \"}}, {{upper .X}}, {{lower .X}}, {{title .X}}, {{split .X \",\"}},
  {{truncate .X 5}}, {{pad .X 1 1}}, {{len .X}}, {{printf \"%-10s\" .X}}, {{println .X}}, {{slice .X 0 5}}
  eq ne lt le gt ge and or not  comparisons: {{if eq .State.Status \"running\"}}
  .X | json                     pipes; {{- and -}} trim the space around
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_sound() {
        tree().debug_assert();
        for command in COMMANDS {
            let built = finished(command, command.path);
            for arg in built.get_arguments().filter(|arg| !arg.is_positional()) {
                assert!(arg.get_long().is_some(), "{}: {}", command.path, arg.get_id());
                let told = arg.is_hide_set() || arg.get_help().is_some();
                assert!(told, "{}: {}", command.path, arg.get_id());
            }
        }
    }
}
