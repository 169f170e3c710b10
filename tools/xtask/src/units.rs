//! Runs the unit tests of the workspace as `cargo units` does, but several programs at a time:
//! cargo runs one after the other, and many of their tests wait.

use std::fs::{self, File};
use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use testkit::built;

use crate::shell::{Outcome, cargo, messages, target};

/// The programs that take longest, first. At the end nothing else would run beside them.
const FIRST: [&str; 5] = ["rootfs", "batch", "hostfs", "reach", "view"];

/// A program of tests.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// As cargo calls it: `unittests src/lib.rs`.
    source: String,
    file: PathBuf,
    /// The directory of its package, where cargo runs it.
    directory: PathBuf,
    name: String,
}

/// Compiles and runs them all. Examples in comments are left out: there are none, and rustdoc needs
/// seconds to see it in each crate.
pub(crate) fn run() -> Outcome {
    let mut build = cargo(&["test", "--workspace", "--lib", "--bins", "--tests", "--no-run"]);
    build.args(["--locked", "--quiet"]).args(built::LINTED);
    let (messages, ended) = messages(&mut build)?;
    ended?;
    let mut programs = programs(&messages);
    programs
        .sort_by_key(|one| FIRST.iter().position(|name| *name == one.name).unwrap_or(FIRST.len()));
    let logs = target().join("ci-logs/units");
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let left = Mutex::new(programs.into_iter());
    let failed = Mutex::new(Vec::new());
    let work = || {
        while let Some(program) = next(&left) {
            if let Err(error) = program.run(&logs) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(error);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(4);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n  ")) }
}

fn next(left: &Mutex<impl Iterator<Item = Program>>) -> Option<Program> {
    left.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// The programs in cargo's messages.
fn programs(messages: &[Value]) -> Vec<Program> {
    let tests = messages.iter().filter(|message| message["profile"]["test"] == true);
    tests.filter_map(Program::of).collect()
}

impl Program {
    fn of(message: &Value) -> Option<Self> {
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?;
        let source = Path::new(message["target"]["src_path"].as_str()?);
        let source = source.strip_prefix(directory).unwrap_or(source).display();
        let is_test = message["target"]["kind"][0] == "test";
        Some(Self {
            source: if is_test { source.to_string() } else { format!("unittests {source}") },
            file: message["executable"].as_str()?.into(),
            directory: directory.to_owned(),
            name: message["target"]["name"].as_str()?.to_owned(),
        })
    }

    /// Runs it, and then shows what it has said, as cargo does.
    fn run(&self, logs: &Path) -> Outcome {
        let text = |error: std::io::Error| format!("{}: {error}", self.file.display());
        let log = logs.join(self.file.file_name().unwrap_or_default());
        let output = File::create(&log).map_err(text)?;
        let status = Command::new(&self.file)
            .arg("--show-output")
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(text)?)
            .stderr(output)
            .status()
            .map_err(text)?;
        let said = fs::read(&log).map_err(text)?;
        let mut shown = std::io::stdout().lock();
        let end = self.end(status);
        writeln!(shown, "     Running {} ({})", self.source, self.file.display())
            .and_then(|()| shown.write_all(&said))
            .and_then(|()| end.as_ref().map_or(Ok(()), |end| writeln!(shown, "  {end}")))
            .map_err(text)?;
        end.map_or(Ok(()), Err)
    }

    /// What cargo says of one that failed.
    fn end(&self, status: ExitStatus) -> Option<String> {
        let file = self.file.display();
        let failed = !status.success();
        failed.then(|| format!("process didn't exit successfully: `{file}` ({status})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::parsed;

    #[test]
    fn programs_are_read_from_cargos_messages() {
        let artifact = |kind: &str, source: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/a/Cargo.toml","target":{{"kind":["{kind}"],"name":"a","src_path":"/w/crates/a/{source}"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let messages = [
            artifact("lib", "src/lib.rs", false, "null"),
            artifact("lib", "src/lib.rs", true, "\"/t/a-1\""),
            artifact("test", "tests/it.rs", true, "\"/t/it-2\""),
            "no message".to_owned(),
        ];
        let found = programs(&parsed(&messages.join("\n")));
        let shown: Vec<_> = found.iter().map(|one| (&*one.source, one.file.to_str())).collect();
        assert_eq!(
            shown,
            [("unittests src/lib.rs", Some("/t/a-1")), ("tests/it.rs", Some("/t/it-2"))]
        );
        assert!(found.iter().all(|one| one.directory == Path::new("/w/crates/a")));
    }
}
