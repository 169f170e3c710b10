//! Reads the command line, by one table of commands: each has a name, its flags as a `clap` type
//! (in [`crate::args`]), and the function that runs it (in [`crate::commands`]).
//!
//! Only the command that was named is built. A `clap` tree of all commands costs more than a
//! container's start, so [`parse`] reads the options before the command, finds the command in
//! [`table::COMMANDS`], and builds that one. The whole tree ([`tree`]) exists for help,
//! completions, man pages and suggestions.
//!
//! The words are first put into one form ([`normal`]): Docker's own parser takes `-e -x`, `-itd`,
//! `--rm=false` and stops at the image's name, and `clap` alone differs in each of these.

mod completion;
mod explain;
mod help;
mod normal;
mod table;
mod unsupported;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use clap::{ArgMatches, FromArgMatches};

use self::table::Command;
use crate::args::global::Global;
use crate::report::Report;

/// What the words on the command line came to.
pub(crate) enum Parsed {
    /// A command with its options.
    Command(Global, &'static Command, ArgMatches),
    /// Help or another text that was asked for.
    Text(String),
}

/// Reads the words after the program's name, which may be udocker's.
pub(crate) fn parse(words: Vec<OsString>, as_udocker: bool) -> Result<Parsed, Report> {
    let root = help::root();
    let words = normal::normalise(&root, words, false);
    let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (options, rest) = words.split_at(at);
    let rest = rest.get(1..).unwrap_or_default();
    let matches = match root.clone().try_get_matches_from(options) {
        Ok(matches) => matches,
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            return Ok(Parsed::Text(help::overview()));
        }
        Err(error) => return Err(explain::report("coracle", &error)),
    };
    let global =
        Global::from_arg_matches(&matches).map_err(|error| explain::report("coracle", &error))?;
    if matches.get_flag("version") {
        return Ok(Parsed::Text(crate::version_text()));
    }
    command(global, rest, as_udocker)
}

/// Tells the values of options that only the user may see, each with the number of its first bytes
/// that all may.
pub(crate) fn secrets(matches: &ArgMatches, mut tell: impl FnMut(&OsStr, usize)) {
    for option in SECRET {
        // Most commands have none of them.
        for value in matches.try_get_raw(option).ok().flatten().into_iter().flatten() {
            tell(value, if option == VARIABLE { behind_name(value.as_bytes()) } else { 0 });
        }
    }
}

/// The options with such values, by their names among the arguments.
const SECRET: [&str; 4] = [VARIABLE, "password", "creds", "proxy"];
/// The one whose values begin with a name.
const VARIABLE: &str = "env";

/// `NAME=` of a variable; the whole of one without a value.
fn behind_name(variable: &[u8]) -> usize {
    variable.iter().position(|byte| *byte == b'=').map_or(variable.len(), |at| at + 1)
}

fn command(global: Global, words: &[OsString], as_udocker: bool) -> Result<Parsed, Report> {
    let moved = file_before(words);
    let words = moved.as_deref().unwrap_or(words);
    let Some(first) = words.first() else { return Ok(Parsed::Text(help::beginning())) };
    let first = first.to_string_lossy();
    if first == "help" {
        return help::topic(&words[1..]).map(Parsed::Text);
    }
    let second = words.get(1).map(|word| word.to_string_lossy());
    let Some((command, path, used)) = table::find(&first, second.as_deref()) else {
        if table::is_group(&first) {
            return match second.as_deref() {
                None | Some("--help" | "-h" | "help") => Ok(Parsed::Text(help::group(&first))),
                Some(other) => Err(explain::unknown_in_group(&first, other)),
            };
        }
        return Err(explain::unknown_command(&first));
    };
    let name = format!("coracle {path}");
    let mut clap = help::finished(command, &path);
    if as_udocker && command.path == "run" {
        clap = crate::udocker::options(clap);
    }
    let words = normal::normalise(&clap, words[used..].to_vec(), command.interspersed);
    match clap.try_get_matches_from(words) {
        Ok(matches) => Ok(Parsed::Command(global, command, matches)),
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => {
            Ok(Parsed::Text(error.render().to_string()))
        }
        Err(error) => Err(explain::report(&name, &error)),
    }
}

/// `cluster -f FILE logs -f` is `cluster logs --file=FILE -f`, as in Docker's compose.
fn file_before(words: &[OsString]) -> Option<Vec<OsString>> {
    let [group, option, rest @ ..] = words else { return None };
    if group != "cluster" {
        return None;
    }
    let bytes = option.as_bytes();
    let joined = bytes
        .strip_prefix(b"--file=")
        .or_else(|| bytes.strip_prefix(b"-f").filter(|rest| !rest.is_empty()))
        .map(|value| OsStr::from_bytes(value.strip_prefix(b"=").unwrap_or(value)));
    let (file, rest) = match (joined, rest) {
        (Some(file), rest) => (file, rest),
        (None, [file, rest @ ..]) if option == "-f" || option == "--file" => (&**file, rest),
        _ => return None,
    };
    let (name, rest) = rest.split_first()?;
    let mut word = OsString::from("--file=");
    word.push(file);
    Some([&[group.clone(), name.clone(), word], rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(line: &[&str]) -> ArgMatches {
        match parse(line.iter().map(OsString::from).collect(), false) {
            Ok(Parsed::Command(_, _, matches)) => matches,
            Ok(Parsed::Text(text)) => panic!("text: {text}"),
            Err(report) => panic!("{report}"),
        }
    }

    fn failure(line: &[&str]) -> String {
        match parse(line.iter().map(OsString::from).collect(), false) {
            Err(report) => report.to_string(),
            Ok(_) => panic!("no error: {line:?}"),
        }
    }

    fn run(line: &[&str]) -> crate::args::run::RunArgs {
        crate::args::run::RunArgs::from_arg_matches(&matches(line)).unwrap()
    }

    #[test]
    fn everything_after_the_image_is_the_commands() {
        let args =
            run(&["run", "-it", "--rm", "debian", "ls", "-la", "--rm=false", "--", "", "-x"]);
        assert!(args.flags.process.interactive && args.flags.process.tty && args.flags.record.rm);
        assert_eq!(args.image.as_deref(), Some("debian"));
        assert_eq!(args.command, ["ls", "-la", "--rm=false", "--", "", "-x"]);
        let args = run(&["run", "debian", "--", "--help"]);
        assert_eq!(args.command, ["--", "--help"]);
        let args = run(&["run", "--", "debian", "--", "x"]);
        assert_eq!(args.command, ["--", "x"]);
    }

    #[test]
    fn values_in_all_spellings() {
        let args = run(&[
            "run",
            "-itde",
            "A=1",
            "-eB=2",
            "--env=C=3",
            "--env",
            "-D",
            "--entrypoint=",
            "-p8080:80",
            "--pids-limit",
            "-1",
            "--rm=true",
            "--init=false",
            "-w",
            "/a",
            "-w",
            "/b",
            "--sig-proxy=false",
            "img",
        ]);
        assert!(args.detach && args.flags.record.rm && !args.flags.process.init && !args.sig_proxy);
        assert_eq!(args.flags.process.env, ["A=1", "B=2", "C=3", "-D"]);
        assert_eq!(args.flags.process.entrypoint.as_deref(), Some(""));
        assert_eq!(args.flags.network.publish, ["8080:80"]);
        assert_eq!(args.flags.resources.limits.pids_limit, Some(-1));
        assert_eq!(args.flags.process.workdir.as_deref(), Some("/b"));
        assert!(args.command.is_empty());
    }

    #[test]
    fn values_that_only_the_user_may_see() {
        let of = |line: &[&str]| {
            let mut all = Vec::new();
            secrets(&matches(line), |value, shown| {
                all.push((value.to_str().unwrap().to_owned(), shown));
            });
            all
        };
        let secret = |value: &str, shown: usize| (value.to_owned(), shown);
        let variables = [secret("A=b=c", 2), secret("HOME", 4), secret("B=", 2)];
        let words = ["-eA=b=c", "--env", "HOME", "-e", "B=", "a", "-e", "C=d"];
        assert_eq!(of(&[&["run"], &words[..]].concat()), variables);
        assert_eq!(of(&[&["exec"], &words[..]].concat()), variables);
        assert_eq!(of(&[&["cluster", "exec"], &words[..]].concat()), variables);
        let run = [&["cluster", "run", "-f", "a.toml"], &words[..5], &["--"], &words[5..]];
        assert_eq!(of(&run.concat()), variables);
        let login = ["login", "-u", "me", "-p", "word", "--proxy", "http://a:b@c", "d"];
        assert_eq!(of(&login), [secret("word", 0), secret("http://a:b@c", 0)]);
        assert_eq!(of(&["pull", "--creds=a:b", "c"]), [secret("a:b", 0)]);
        assert_eq!(of(&["ps"]), []);
    }

    #[test]
    fn a_cluster_file_may_stand_before_the_command() {
        for before in
            [&["-f", "a.toml"][..], &["--file", "a.toml"], &["--file=a.toml"], &["-fa.toml"]]
        {
            let line = [&["cluster"], before, &["logs", "-f", "db"]].concat();
            let args = crate::args::cluster::ClusterLogsArgs::from_arg_matches(&matches(&line));
            let args = args.unwrap();
            assert_eq!(args.file.as_deref(), Some(std::path::Path::new("a.toml")), "{before:?}");
            assert!(args.follow && args.words == ["db"]);
        }
        let line = ["cluster", "-f", "a.toml", "exec", "db", "ls", "-f"];
        let args = crate::args::cluster::ClusterExecArgs::from_arg_matches(&matches(&line));
        assert_eq!(args.unwrap().words, ["db", "ls", "-f"]);
        assert_eq!(
            failure(&["cluster", "-f", "a.toml", "ups"]),
            r#"unknown command "cluster ups"; did you mean "cluster up"?"#
        );
        assert_eq!(failure(&["cluster", "-f"]), "unknown command \"cluster -f\"");
    }

    #[test]
    fn groups_and_global_options() {
        let line = ["--store", "/s", "-q", "container", "ls", "-a", "-q"];
        match parse(line.iter().map(OsString::from).collect(), false)
            .unwrap_or_else(|report| panic!("{report}"))
        {
            Parsed::Command(global, command, matches) => {
                assert_eq!(global.store.as_deref(), Some(std::path::Path::new("/s")));
                assert!(global.quiet);
                assert_eq!(command.path, "ps");
                assert!(matches.get_flag("all") && matches.get_flag("quiet"));
            }
            Parsed::Text(_) => panic!("text"),
        }
    }

    #[test]
    fn mistakes_are_one_clear_line() {
        assert_eq!(failure(&["run", "--nmae", "x", "img"]), "coracle run: unknown option '--nmae'");
        assert_eq!(failure(&["run", "--link", "x", "img"]), "coracle run has no option '--link'");
        assert_eq!(failure(&["pulll", "x"]), r#"unknown command "pulll"; did you mean "pull"?"#);
        assert_eq!(failure(&["run"]), "coracle run: missing CONTAINER|IMAGE");
        assert_eq!(
            failure(&["run", "--name"]),
            "coracle run: option '--name' wants a value (NAME)"
        );
        assert_eq!(
            failure(&["volume", "lss"]),
            r#"unknown command "volume lss"; did you mean "volume ls"?"#
        );
        assert_eq!(failure(&["--stroe", "/x", "ps"]), "coracle: unknown option '--stroe'");
        assert_eq!(
            failure(&["ps", "-n", "x"]),
            "coracle ps: option '--last' cannot be 'x' (invalid digit found in string)"
        );
        assert_eq!(failure(&["tag", "a", "b", "c"]), "coracle tag: unexpected argument 'c'");
    }
}
