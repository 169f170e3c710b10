//! Makes the files of a distribution package: the binary, man pages and shell completions.
//!
//! The binary prints man pages and completions itself, from the declarations of its options.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::release;
use crate::shell::{Outcome, check, read};

fn directory(words: &[String]) -> Outcome<&Path> {
    let dir = words.first().map(Path::new).ok_or("a directory is needed")?;
    fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    Ok(dir)
}

/// Writes man pages.
pub(crate) fn man(words: &[String]) -> Outcome {
    let dir = directory(words)?;
    let binary = release::build()?;
    check(Command::new(binary).arg("__man").arg(dir))
}

/// Writes completions for bash, zsh and fish.
pub(crate) fn completions(words: &[String]) -> Outcome {
    let dir = directory(words)?;
    let binary = release::build()?;
    for (shell, file) in [("bash", "coracle.bash"), ("zsh", "_coracle"), ("fish", "coracle.fish")] {
        let text = read(Command::new(&binary).args(["completion", shell]))?;
        fs::write(dir.join(file), text).map_err(|error| format!("{file}: {error}"))?;
    }
    Ok(())
}

/// Puts the release binary, the man pages and the completions into a directory.
pub(crate) fn dist(words: &[String]) -> Outcome {
    let dir = directory(words)?;
    let binary = release::build()?;
    fs::copy(binary, dir.join("coracle")).map_err(|error| error.to_string())?;
    let below = |name: &str| vec![dir.join(name).display().to_string()];
    man(&below("man"))?;
    completions(&below("completions"))
}
