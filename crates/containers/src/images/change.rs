//! Applies instructions of a Containerfile to an image's configuration, as `import --change` does.

use oci::ConfigEditor;

use crate::error::{Error, Result};

const KNOWN: &str =
    "CMD, ENTRYPOINT, ENV, EXPOSE, LABEL, ONBUILD, SHELL, STOPSIGNAL, USER, VOLUME, WORKDIR";

/// Applies one instruction.
///
/// # Errors
/// If the instruction or its value cannot be read.
pub fn apply(editor: &mut ConfigEditor, instruction: &str) -> Result<()> {
    let (name, rest) =
        instruction.trim().split_once(char::is_whitespace).unwrap_or((instruction.trim(), ""));
    let rest = rest.trim();
    let wrong = |why: &str| Error::invalid(format!("--change '{instruction}': {why}"));
    let needed = || if rest.is_empty() { Err(wrong("the value is missing")) } else { Ok(rest) };
    match name.to_ascii_uppercase().as_str() {
        "CMD" => {
            editor.cmd(&words(rest));
        }
        "ENTRYPOINT" => {
            editor.entrypoint(&words(rest));
        }
        "SHELL" => match list(rest) {
            Some(words) => {
                editor.shell(&words);
            }
            None => return Err(wrong("SHELL wants a list in JSON form")),
        },
        "ENV" => pairs(needed()?).ok_or_else(|| wrong("write ENV NAME=VALUE"))?.iter().for_each(
            |(name, value)| {
                editor.env(name, value);
            },
        ),
        "LABEL" => pairs(needed()?).ok_or_else(|| wrong("write LABEL KEY=VALUE"))?.iter().for_each(
            |(name, value)| {
                editor.label(name, value);
            },
        ),
        "EXPOSE" => needed()?.split_whitespace().for_each(|port| {
            editor.expose(&if port.contains('/') {
                port.to_owned()
            } else {
                format!("{port}/tcp")
            });
        }),
        "VOLUME" => list(rest)
            .unwrap_or_else(|| rest.split_whitespace().map(str::to_owned).collect())
            .iter()
            .for_each(|path| {
                editor.volume(path);
            }),
        "USER" => {
            editor.user(needed()?);
        }
        "WORKDIR" => {
            editor.working_dir(needed()?);
        }
        "STOPSIGNAL" => {
            editor.stop_signal(needed()?);
        }
        "ONBUILD" => {
            editor.on_build(needed()?);
        }
        _ => {
            return Err(
                wrong("the instruction is not known").with_hint(format!("there are {KNOWN}"))
            );
        }
    }
    Ok(())
}

/// Words in JSON form: `["a", "b"]`.
fn list(text: &str) -> Option<Vec<String>> {
    serde_json::from_str(text).ok()
}

/// The words of a list in JSON form, else a command line for the shell.
fn words(text: &str) -> Vec<String> {
    match list(text) {
        Some(words) => words,
        None if text.is_empty() => Vec::new(),
        None => vec!["/bin/sh".to_owned(), "-c".to_owned(), text.to_owned()],
    }
}

/// `A=1 B="two words" C=three\ words`, or the old form `A one value`.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let first = text.split_whitespace().next()?;
    if !first.contains('=') {
        let (name, value) = text.split_once(char::is_whitespace)?;
        return Some(vec![(name.to_owned(), value.trim().to_owned())]);
    }
    let mut found = Vec::new();
    for word in split(text)? {
        let (name, value) = word.split_once('=')?;
        if name.is_empty() {
            return None;
        }
        found.push((name.to_owned(), value.to_owned()));
    }
    Some(found)
}

/// Words with quotes and backslashes; `None` if a quote is not closed.
fn split(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote, mut any) = (Vec::new(), String::new(), None, false);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => word.push(chars.next()?),
            (c, Some(open)) if c == open => quote = None,
            (c @ ('"' | '\''), None) => {
                quote = Some(c);
                any = true;
            }
            (c, None) if c.is_whitespace() => {
                if any || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            (c, _) => word.push(c),
        }
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci::Platform;

    #[test]
    fn instructions() {
        let mut editor = ConfigEditor::new(&Platform::host());
        for instruction in [
            "CMD [\"a\", \"b c\"]",
            "ENTRYPOINT run me",
            "ENV A=1 B=\"two words\" C=three\\ words",
            "env OLD one value",
            "LABEL k=v",
            "EXPOSE 80 53/udp",
            "VOLUME [\"/data\"]",
            "USER me:us",
            "WORKDIR /w",
            "STOPSIGNAL SIGINT",
        ] {
            apply(&mut editor, instruction).unwrap();
        }
        let config = editor.finish().unwrap();
        assert_eq!(config.cmd(), ["a", "b c"]);
        assert_eq!(config.entrypoint(), ["/bin/sh", "-c", "run me"]);
        let env = config.env();
        for variable in ["A=1", "B=two words", "C=three words", "OLD=one value"] {
            assert!(env.iter().any(|known| known == variable), "{env:?}");
        }
        assert_eq!(config.labels()["k"], "v");
        assert_eq!(config.exposed_ports(), ["53/udp", "80/tcp"]);
        assert_eq!(config.volumes(), ["/data"]);
        assert_eq!((config.user(), config.working_dir()), (Some("me:us"), Some("/w")));
        assert_eq!(config.stop_signal(), Some("SIGINT"));
        for wrong in ["FROM x", "ENV", "ENV =x", "USER", "SHELL sh", "ENV A=\"x"] {
            assert!(apply(&mut editor, wrong).is_err(), "{wrong}");
        }
    }
}
