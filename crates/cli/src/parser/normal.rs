//! Puts the words of a command line into the one form in which `clap` and Docker's parser (`pflag`)
//! agree.
//!
//! - options with a value become `--name=value`, so that values may begin with `-` or be empty;
//! - combined short options are taken apart; `--flag=true` and `--flag=false` are Docker's
//!   booleans;
//! - where options end at the first operand (`run`, `exec`, ...), `--` is put before it, so that
//!   everything that follows belongs to the command in the container, `--` included.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{Arg, ArgAction, Command};

enum Kind {
    /// `--rm`
    Switch,
    /// `--name VALUE`
    Value,
    /// `--sig-proxy[=BOOL]`
    Optional,
}

fn kind(arg: &Arg) -> Kind {
    match arg.get_action() {
        ArgAction::Set | ArgAction::Append => match arg.get_num_args() {
            Some(range) if range.min_values() == 0 => Kind::Optional,
            _ => Kind::Value,
        },
        _ => Kind::Switch,
    }
}

fn find_long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        arg.get_long() == Some(name)
            || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
    })
}

fn find_short(command: &Command, name: char) -> Option<&Arg> {
    command.get_arguments().find(|arg| arg.get_short() == Some(name))
}

/// Go's `strconv.ParseBool`.
fn truth(text: &OsStr) -> Option<bool> {
    match text.to_str()? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn long(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(format!("--{name}="));
    word.push(value);
    word
}

/// Normalises `words`. Where `interspersed` is false the first operand ends the options.
pub(super) fn normalise(
    command: &Command,
    words: Vec<OsString>,
    interspersed: bool,
) -> Vec<OsString> {
    let mut out = Vec::with_capacity(words.len() + 1);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            out.push(word);
            break;
        }
        if let Some(rest) = bytes.strip_prefix(b"--") {
            let (name, value) = match rest.iter().position(|byte| *byte == b'=') {
                Some(at) => (&rest[..at], Some(OsStr::from_bytes(&rest[at + 1..]))),
                None => (rest, None),
            };
            let arg = std::str::from_utf8(name).ok().and_then(|name| find_long(command, name));
            match arg.map(|arg| (arg, kind(arg))) {
                Some((arg, Kind::Switch)) => switch(&mut out, &word, arg, value),
                Some((arg, Kind::Value)) if value.is_none() => match words.next() {
                    Some(value) => out.push(long(arg.get_long().unwrap_or_default(), &value)),
                    None => out.push(word),
                },
                Some((arg, Kind::Optional)) => optional(&mut out, &word, arg, value),
                _ => out.push(word),
            }
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            cluster(command, &word, &mut words, &mut out);
        } else if interspersed {
            out.push(word);
        } else {
            out.push("--".into());
            out.push(word);
            break;
        }
    }
    out.extend(words);
    out
}

fn switch(out: &mut Vec<OsString>, word: &OsStr, arg: &Arg, value: Option<&OsStr>) {
    let name = format!("--{}", arg.get_long().unwrap_or_default());
    match value.map(truth) {
        None | Some(Some(true)) => out.push(name.into()),
        // The last one wins: `--rm --rm=false` is no `--rm`.
        Some(Some(false)) => out.retain(|earlier| earlier.as_os_str() != name.as_str()),
        Some(None) => out.push(word.to_owned()),
    }
}

fn optional(out: &mut Vec<OsString>, word: &OsStr, arg: &Arg, value: Option<&OsStr>) {
    match value.and_then(truth) {
        Some(yes) => out.push(format!("--{}={yes}", arg.get_long().unwrap_or_default()).into()),
        None => out.push(word.to_owned()),
    }
}

/// `-itd`, `-eNAME=x`, `-e NAME=x`.
fn cluster(
    command: &Command,
    word: &OsStr,
    words: &mut impl Iterator<Item = OsString>,
    out: &mut Vec<OsString>,
) {
    let bytes = word.as_bytes();
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        let Some(arg) = find_short(command, char::from(byte)) else {
            // Left for the error message, as far as it was not understood.
            out.push(OsString::from_vec([b"-", &bytes[at..]].concat()));
            return;
        };
        at += 1;
        let rest = OsStr::from_bytes(&bytes[at..]);
        let name = arg.get_long().unwrap_or_default();
        match kind(arg) {
            Kind::Value => {
                let value = rest.as_bytes().strip_prefix(b"=").map_or(rest, OsStr::from_bytes);
                match (rest.is_empty(), rest.is_empty().then(|| words.next()).flatten()) {
                    (true, Some(next)) => out.push(long(name, &next)),
                    (true, None) => out.push(format!("--{name}").into()),
                    (false, _) => out.push(long(name, value)),
                }
                return;
            }
            Kind::Switch | Kind::Optional => match rest.as_bytes().strip_prefix(b"=") {
                Some(value) => {
                    switch(out, word, arg, Some(OsStr::from_bytes(value)));
                    return;
                }
                None => out.push(format!("--{name}").into()),
            },
        }
    }
}
