//! Mistakes on the command line, told in one line with a hint.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::{table, unsupported};
use crate::report::Report;

fn context(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(" ")),
        _ => None,
    }
}

/// `--name <NAME>` as `clap` writes it: the option and its value.
fn option_and_value(text: &str) -> (&str, String) {
    let (name, value) = text.split_once([' ', '=']).unwrap_or((text, ""));
    (name.trim_end_matches('['), value.replace(['<', '>', '[', ']'], "").replace("...", ""))
}

/// Turns an error of `clap` into ours. `name` is the command as the user would type it.
pub(super) fn report(name: &str, error: &Error) -> Report {
    let argument = context(error, ContextKind::InvalidArg).unwrap_or_default();
    let (option, value_name) = option_and_value(&argument);
    let help = format!("see '{name} --help'");
    match error.kind() {
        ErrorKind::UnknownArgument if !argument.starts_with('-') => {
            Report::wrong_words(format!("{name}: unexpected argument '{argument}'")).hint(help)
        }
        ErrorKind::UnknownArgument => {
            if let Some(advice) = unsupported::advice(option) {
                Report::usage(format!("{name} has no option '{option}'")).hint(advice)
            } else {
                let report = Report::usage(format!("{name}: unknown option '{option}'"));
                // `clap` takes options for similar that have little in common.
                let similar = context(error, ContextKind::SuggestedArg);
                match similar.filter(|similar| suggest(option, [&**similar].into_iter()).is_some())
                {
                    Some(similar) => report.hint(format!("did you mean '{similar}'? {help}")),
                    None => report.hint(help),
                }
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = argument.replace(['<', '>'], "").replace("...", "");
            let fact = format!("{name}: missing {missing}");
            let is_option = missing.starts_with('-');
            let report = if is_option { Report::usage(fact) } else { Report::wrong_words(fact) };
            report.hint(help)
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::NoEquals => {
            let given = context(error, ContextKind::InvalidValue).unwrap_or_default();
            if given.is_empty() {
                let wants =
                    if value_name.is_empty() { String::new() } else { format!(" ({value_name})") };
                return Report::usage(format!("{name}: option '{option}' wants a value{wants}"))
                    .hint(help);
            }
            let is_option = option.starts_with('-');
            let what = if is_option { "option " } else { "" };
            let why =
                std::error::Error::source(error).map(|why| format!(" ({why})")).unwrap_or_default();
            let fact = format!("{name}: {what}'{option}' cannot be '{given}'{why}");
            let report = if is_option { Report::usage(fact) } else { Report::wrong_words(fact) };
            match context(error, ContextKind::ValidValue) {
                Some(values) => report.hint(format!("it is one of: {values}")),
                None => report.hint(help),
            }
        }
        ErrorKind::TooManyValues => {
            let given = context(error, ContextKind::InvalidValue).unwrap_or_default();
            Report::usage(format!("{name}: '{option}' takes no value '{given}'")).hint(help)
        }
        ErrorKind::ArgumentConflict => {
            let other = context(error, ContextKind::PriorArg).unwrap_or_default();
            Report::usage(format!("{name}: '{option}' cannot be used with '{other}'")).hint(help)
        }
        ErrorKind::InvalidUtf8 => Report::usage(format!("{name}: an argument is not UTF-8"))
            .hint("names and commands must be UTF-8 text"),
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Report::usage(format!("{name}: {line}")).hint(help)
        }
    }
}

fn suggest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    containers::config::nearest::nearest(word, names, 3).map(str::to_owned)
}

/// No command has this name.
pub(super) fn unknown_command(word: &str) -> Report {
    let fact = format!("unknown command {word:?}");
    if let Some(advice) = unsupported::command(word) {
        return Report::wrong_words(fact).hint(advice);
    }
    let meant = suggest(word, table::top_names());
    Report::wrong_words(with_meant(fact, meant.as_deref())).hint("see 'coracle --help'")
}

/// The group has no such command.
pub(super) fn unknown_in_group(group: &str, word: &str) -> Report {
    let fact = format!("unknown command \"{group} {word}\"");
    // `container stats` is `stats`.
    let advice = unsupported::command(&format!("{group} {word}"));
    if let Some(advice) = advice.or_else(|| unsupported::command(word)) {
        return Report::wrong_words(fact).hint(advice);
    }
    let meant = suggest(word, table::group_names(group)).map(|name| format!("{group} {name}"));
    Report::wrong_words(with_meant(fact, meant.as_deref()))
        .hint(format!("see 'coracle {group} --help'"))
}

/// A fact about an unknown name, with the name that was probably meant.
fn with_meant(fact: String, meant: Option<&str>) -> String {
    match meant {
        Some(name) => format!("{fact}; did you mean {name:?}?"),
        None => fact,
    }
}
