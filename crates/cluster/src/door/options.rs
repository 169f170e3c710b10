//! The words of `rsh`, which are those of `ssh`: `[OPTION...] [USER@]HOST [OPTION...] COMMAND...`.

use super::Request;
use crate::error::{Error, Result};

/// Options that say nothing here: about terminals, keys, and how the way is encrypted.
const PLAIN: &str = "46aCkqTtvx";
/// The same with a value, which is the rest of the word or the next one.
const VALUED: &str = "bcEeFImop";

/// Reads the words after the program's name. The words of the command are joined by spaces, for the
/// shell of the other side.
///
/// # Errors
/// If an option is not known, or the host or the command is missing.
pub fn parse(words: &[String]) -> Result<Request> {
    let mut words = words.iter().map(String::as_str).peekable();
    let mut request =
        Request { node: String::new(), user: None, command: String::new(), input: true };
    options(&mut words, &mut request)?;
    let host = words.next().ok_or_else(|| wrong("a host and a command are missing"))?;
    // As in ssh, the user before the host counts less than an option.
    let (user, node) = match host.rsplit_once('@') {
        Some((user, node)) => (Some(user.to_owned()), node),
        None => (None, host),
    };
    node.clone_into(&mut request.node);
    options(&mut words, &mut request)?;
    request.user = request.user.or(user);
    let command: Vec<&str> = words.collect();
    request.command = command.join(" ");
    if command.is_empty() {
        return Err(wrong("a command is missing: there are no shells for a terminal"));
    }
    if [&request.node, request.user.as_ref().unwrap_or(&request.node)]
        .iter()
        .any(|name| name.is_empty() || name.starts_with('-'))
    {
        return Err(wrong(&format!("{host:?} is not a host")));
    }
    Ok(request)
}

fn options<'w>(
    words: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>,
    request: &mut Request,
) -> Result<()> {
    while let Some(word) = words.next_if(|word| word.len() > 1 && word.starts_with('-')) {
        if word == "--" {
            return Ok(());
        }
        let mut letters = word[1..].chars();
        while let Some(letter) = letters.next() {
            match letter {
                'n' => request.input = false,
                letter if PLAIN.contains(letter) => {}
                letter if letter == 'i' || letter == 'l' || VALUED.contains(letter) => {
                    let rest = letters.as_str();
                    let value = if rest.is_empty() { words.next() } else { Some(rest) };
                    let value =
                        value.ok_or_else(|| wrong(&format!("-{letter} without a value")))?;
                    if letter == 'l' {
                        request.user = Some(value.to_owned());
                    }
                    break;
                }
                letter => return Err(wrong(&format!("-{letter} is not supported"))),
            }
        }
    }
    Ok(())
}

fn wrong(what: &str) -> Error {
    Error::new(format!("{what}; usage: rsh [-n] [-l USER] [OPTIONS OF SSH] HOST COMMAND..."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, Option<String>, String, bool)> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        parse(&words).map(|it| (it.node, it.user, it.command, it.input))
    }

    #[test]
    fn words_are_those_of_ssh() {
        let is = |text: &str, node: &str, user: Option<&str>, command: &str, input: bool| {
            let wanted = (node.to_owned(), user.map(str::to_owned), command.to_owned(), input);
            assert_eq!(read(text), Ok(wanted), "{text}");
        };
        is("node2 true", "node2", None, "true", true);
        // Open MPI, and Hydra.
        is("-x node2 orted -mca ess \"env\"", "node2", None, "orted -mca ess \"env\"", true);
        is("-x -q -n node2 a -x -- b", "node2", None, "a -x -- b", false);
        is("-qnx -o A=b -oC=d -p 22 -p22 -i key -tt h c", "h", None, "c", false);
        is("-l root h c", "h", Some("root"), "c", true);
        is("-lroot h c", "h", Some("root"), "c", true);
        is("other@h c", "h", Some("other"), "c", true);
        is("-l root other@h c", "h", Some("root"), "c", true);
        // After the host, as rsh had it; then the command's own.
        is("h -l root -n c -n", "h", Some("root"), "c -n", false);
        is("-- h -- -c", "h", None, "-c", true);
    }

    #[test]
    fn wrong_words_are_told() {
        for (text, what) in [
            ("node2", "a command is missing"),
            ("-x", "a host and a command are missing"),
            ("-o", "-o without a value"),
            ("-L 1:a:2 node2 true", "-L is not supported"),
            ("-xN node2", "-N is not supported"),
            ("@ true", "is not a host"),
            ("-l -x node2 true", "is not a host"),
        ] {
            let Err(error) = read(text) else { panic!("{text} was taken") };
            assert!(error.to_string().contains(what), "{text}: {error}");
        }
    }
}
