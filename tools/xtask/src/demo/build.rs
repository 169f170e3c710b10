//! Compiles the release binary and says how far it is.
//!
//! Cargo shows its own progress on terminals only, and not how much is left of the time. Here a
//! line says how many of the crates are done; on a terminal it is rewritten, else it is printed
//! anew every [`PAUSE`].

use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::shell::{Outcome, built, cargo, read};

/// The time between two lines in a file or pipe.
const PAUSE: Duration = Duration::from_secs(20);

/// How many lines of cargo's output an error shows.
const SHOWN: usize = 30;

/// Compiles; gives the binary's path.
pub(super) fn release() -> Outcome<PathBuf> {
    println!("      The first time this takes 3 to 6 minutes on two cores, afterwards seconds.");
    let mut progress = Progress::new(crates());
    let words = ["build", "--release", "--locked", "--package", "cli", "--verbose"];
    let failed = |error: std::io::Error| format!("cargo build: {error}");
    let mut command = cargo(&words);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let errors = child.stderr.take().ok_or("cargo build: no output")?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(errors).lines().map_while(Result::ok);
        lines.map_while(|line| sender.send(line).ok()).for_each(drop);
    });
    let mut last = VecDeque::new();
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                progress.line(&line);
                // `--verbose` also shows every command line.
                if !line.trim_start().starts_with("Running ") {
                    last.push_back(line);
                }
                if last.len() > SHOWN {
                    last.pop_front();
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        progress.show();
    }
    progress.end();
    if child.wait().map_err(failed)?.success() {
        return Ok(built("release", "coracle"));
    }
    for line in last {
        eprintln!("{line}");
    }
    Err("cargo build failed (above is the end of its output)".to_owned())
}

/// How many crates the binary is made of, as far as cargo tells.
fn crates() -> Option<usize> {
    let words = ["tree", "--locked", "--package", "cli", "--edges", "normal,build"];
    let mut command: Command = cargo(&words);
    let text = read(command.args(["--prefix", "none", "--format", "{p}"])).ok()?;
    let names: BTreeSet<&str> = text.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    Some(names.len())
}

struct Progress {
    total: Option<usize>,
    /// Crates that were compiled or need not be.
    seen: BTreeSet<String>,
    began: Instant,
    shown: Instant,
    is_terminal: bool,
}

impl Progress {
    fn new(total: Option<usize>) -> Self {
        let now = Instant::now();
        let is_terminal = std::io::stdout().is_terminal();
        Self { total, seen: BTreeSet::new(), began: now, shown: now, is_terminal }
    }

    /// Takes in a line of cargo's.
    fn line(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        if let (Some("Compiling" | "Fresh"), Some(name), Some(version)) =
            (words.next(), words.next(), words.next())
        {
            self.seen.insert(format!("{name} {version}"));
        }
    }

    fn show(&mut self) {
        let now = Instant::now();
        if self.is_terminal {
            print!("\r\x1b[K      {}", self.text());
            let _ = std::io::stdout().flush();
        } else if now - self.shown >= PAUSE {
            self.shown = now;
            println!("      {}", self.text());
        }
    }

    fn text(&self) -> String {
        let seconds = self.began.elapsed().as_secs();
        let seen = self.seen.len();
        match self.total {
            Some(total) if seen >= total => {
                format!(
                    "{seconds} s: all {total} crates are begun; the last step optimises them as one"
                )
            }
            Some(total) => format!("{seconds} s: {seen} of {total} crates"),
            None => format!("{seconds} s: {seen} crates"),
        }
    }

    fn end(&self) {
        if self.is_terminal {
            print!("\r\x1b[K");
        }
        println!("      Compiled in {} s.", self.began.elapsed().as_secs());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_crates_once() {
        let mut progress = Progress::new(Some(3));
        for line in [
            "       Fresh memchr v2.8.3",
            "   Compiling serde v1.0.229",
            "     Running `rustc --crate-name serde`",
            "   Compiling serde v1.0.229",
        ] {
            progress.line(line);
        }
        assert_eq!(progress.text(), "0 s: 2 of 3 crates");
        progress.line("   Compiling cli v0.1.0 (/x)");
        assert!(progress.text().contains("all 3 crates"));
    }
}
