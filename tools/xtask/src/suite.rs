//! Runs `cargo test`, passes its output on and adds up the results of all test binaries.
//!
//! The standard harness hides what passing tests print, and with it the `SKIP` lines. So it is told
//! to show that output, and all of it but the `SKIP` lines is removed again here.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::shell::{Outcome, by_way_of, cargo, describe};

/// The results of all test binaries together.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    reasons: BTreeMap<String, Vec<String>>,
    unstable: Vec<String>,
    /// The tests that failed, with their binaries.
    failures: Vec<String>,
    /// The test binaries that ended with an error although no test in them failed.
    broken: Vec<String>,
    /// Each test binary with the time from its start to the start of the next one.
    times: Vec<(String, Duration)>,
    binaries: usize,
    finished: bool,
}

impl Counts {
    /// Whether everything passed.
    pub(crate) fn verdict(&self) -> Outcome {
        if self.finished && self.failed == 0 {
            return Ok(());
        }
        // With their names: of a log that is cut short this line may be all that is left.
        Err(format!(
            "{} tests failed, {} binaries broke: {}",
            self.failed,
            self.broken.len(),
            [&*self.failures, &*self.broken].concat().join(", ")
        ))
    }

    /// Prints the skipped tests by reason, the times and the sums.
    pub(crate) fn print(&self) {
        if !self.reasons.is_empty() {
            println!("skipped:");
        }
        for (reason, tests) in &self.reasons {
            println!("  {} x {reason}: {}", tests.len(), shorten(tests));
        }
        if !self.unstable.is_empty() {
            println!("passed only when run again:\n  {}", self.unstable.join("\n  "));
        }
        if !self.failures.is_empty() {
            println!("failed:\n  {}", self.failures.join("\n  "));
        }
        if !self.broken.is_empty() {
            println!("ended with an error after their tests:\n  {}", self.broken.join("\n  "));
        }
        self.print_times();
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        println!(
            "test result: {}. {} passed; {} failed; {} ignored; 0 measured; 0 filtered out",
            if self.verdict().is_ok() { "ok" } else { "FAILED" },
            self.passed,
            self.failed,
            self.skipped
        );
    }
}

impl Counts {
    /// Prints how long each test binary took, the longest first.
    fn print_times(&self) {
        let mut times: Vec<_> = self.times.iter().collect();
        times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        let is_long = |time: &Duration| *time >= LONG;
        let short: Vec<_> = times.iter().filter(|(_, time)| !is_long(time)).collect();
        println!("minutes:");
        for (name, time) in times.iter().filter(|(_, time)| is_long(time)) {
            println!("  {:6.1} {name}", time.as_secs_f64() / 60.0);
        }
        let rest: Duration = short.iter().map(|(_, time)| *time).sum();
        println!("  {:6.1} {} others", rest.as_secs_f64() / 60.0, short.len());
    }
}

/// How cargo begins the line that says how a test binary ended.
const STATUS: &str = "process didn't exit successfully: ";

/// What both harnesses print behind the name of a test that failed.
const FAILED: &str = " ... FAILED";

/// Binaries that took less are not listed.
const LONG: Duration = Duration::from_secs(6);

/// The name and main file of the test binary that cargo announces in `line`.
fn started(line: &str) -> Option<String> {
    if let Some(name) = line.trim_start().strip_prefix("Doc-tests ") {
        return Some(format!("{name}, documentation"));
    }
    let rest = line.trim_start().strip_prefix("Running ")?;
    let (source, path) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    let (name, _) = path.rsplit_once('/')?.1.rsplit_once('-')?;
    Some(format!("{name}, {}", source.trim_start_matches("unittests ")))
}

fn shorten(tests: &[String]) -> String {
    let shown: Vec<&str> = tests.iter().take(4).map(String::as_str).collect();
    let more = tests.len().saturating_sub(4);
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{tail}", shown.join(", "))
}

/// Runs the tests of the whole workspace, or what `words` say.
pub(crate) fn run(words: &[String]) -> Outcome<Counts> {
    let mut all = vec!["test", "--no-fail-fast", "--locked"];
    if words.is_empty() {
        all.push("--workspace");
    }
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    all.extend(words[..end].iter().map(String::as_str));
    all.extend(["--", "--show-output"]);
    all.extend(words[end..].iter().skip(1).map(String::as_str));
    let cargo = cargo(&all);
    println!("$ {}", describe(&cargo));
    // Tests send these signals to programs. An ignored signal is inherited, and `nohup` or a shell
    // that starts a background job ignores some.
    let mut command = by_way_of(&["env", "--default-signal=HUP,INT,QUIT"], &cargo);
    // Cargo announces test binaries on standard error, so both streams go into one pipe, which
    // keeps their order.
    let failed = |error: std::io::Error| format!("{}: {error}", describe(&cargo));
    let (output, input) = std::io::pipe().map_err(failed)?;
    let errors = input.try_clone().map_err(failed)?;
    command.stdout(input).stderr(errors);
    let mut child = command.spawn().map_err(failed)?;
    // It holds the writing end of the pipe, which must be closed for the output to end.
    drop(command);
    let mut counts = Counts::default();
    let mut reader = Reader::default();
    let (teller, lines) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
        lines.map_while(|line| teller.send(line).ok()).for_each(drop);
    });
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                let line = String::from_utf8_lossy(&line);
                if reader.line(&line, &mut counts) {
                    println!("{line}");
                }
            }
            // A process that a test left behind may hold the pipe open.
            Err(RecvTimeoutError::Timeout) if !matches!(child.try_wait(), Ok(Some(_))) => {}
            Err(_) => break,
        }
    }
    reader.ended(&mut counts);
    let status = child.wait().map_err(|error| error.to_string())?;
    counts.finished = status.success() || counts.failed > 0;
    if counts.binaries == 0 {
        return Err("no test binary ran".to_owned());
    }
    Ok(counts)
}

/// Interprets the output of one test binary after the other.
#[derive(Debug, Default)]
struct Reader {
    in_output_of_passing: bool,
    skips: Vec<(String, String)>,
    running: Option<(String, Instant)>,
    /// Tests that failed in this binary.
    failed: usize,
}

impl Reader {
    /// Keeps the time of the binary that has just ended.
    fn ended(&mut self, counts: &mut Counts) {
        counts.times.extend(self.running.take().map(|(name, began)| (name, began.elapsed())));
    }

    /// Interprets a line; returns whether to show it.
    fn line(&mut self, line: &str, counts: &mut Counts) -> bool {
        if let Some((test, reason)) =
            line.strip_prefix("SKIP ").and_then(|rest| rest.split_once(": "))
        {
            self.skips.push((test.to_owned(), reason.to_owned()));
            return true;
        }
        if let Some(name) = started(line) {
            self.ended(counts);
            self.running = Some((name, Instant::now()));
            self.failed = 0;
        }
        if self.failed == 0 {
            if let Some(how) = line.strip_prefix("error: test failed, to rerun pass ") {
                counts.broken.push(how.to_owned());
            } else if let Some(how) = line.trim_start().strip_prefix(STATUS)
                && let Some(binary) = counts.broken.last_mut()
            {
                *binary = format!("{binary}: {how}");
            }
        }
        if let Some((test, _)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(FAILED))
        {
            let binary = self.running.as_ref().map_or("", |(name, _)| name);
            counts.failures.push(format!("{test} ({binary})"));
        }
        if let Some(case) = line.strip_prefix("UNSTABLE ") {
            counts.unstable.push(case.to_owned());
        }
        if line == "successes:" {
            self.in_output_of_passing = true;
        } else if line == "failures:" {
            self.in_output_of_passing = false;
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            self.in_output_of_passing = false;
            self.result(rest, counts);
            return true;
        }
        !self.in_output_of_passing
    }

    fn result(&mut self, rest: &str, counts: &mut Counts) {
        let number = |name: &str| {
            let words: Vec<&str> =
                rest.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
            let at = words.iter().position(|word| *word == name);
            at.and_then(|at| words.get(at.checked_sub(1)?)?.parse::<usize>().ok())
                .unwrap_or_default()
        };
        let (passed, failed, ignored) = (number("passed"), number("failed"), number("ignored"));
        // The harness of `testkit` counts skips as ignored; under the standard one a skip is a test
        // that passed without testing anything.
        let noted = self.skips.len();
        let silent = noted.saturating_sub(ignored);
        counts.passed += passed.saturating_sub(silent);
        counts.failed += failed;
        self.failed += failed;
        counts.skipped += ignored.max(noted);
        counts.binaries += 1;
        for (test, reason) in self.skips.drain(..) {
            counts.reasons.entry(reason).or_default().push(test);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_have_names() {
        let named = |line| started(line).unwrap_or_default();
        let path = "target/x86_64-unknown-linux-gnu/debug/deps";
        let line = format!("     Running unittests src/lib.rs ({path}/abi-1a2b)");
        assert_eq!(named(&line), "abi, src/lib.rs");
        let line = format!("     Running tests/contract/main.rs ({path}/contract-db4c)");
        assert_eq!(named(&line), "contract, tests/contract/main.rs");
        assert_eq!(named("   Doc-tests abi"), "abi, documentation");
        assert_eq!(started("running 3 tests"), None);
    }

    #[test]
    fn adds_up_both_harnesses() {
        let text = "running 3 tests\ntest a ... ok\n\nsuccesses:\n\n---- a stdout ----\nnoise\n\
            SKIP a: no fuse\n\nsuccesses:\n    a\n\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test x ... ignored, no fuse\ntest y ... FAILED (12.0 s)\nSKIP x: no fuse\nfailures:\n---- y ----\n\
            test result: FAILED. 5 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s";
        let (mut counts, mut reader) = (Counts::default(), Reader::default());
        let shown: Vec<&str> = text.lines().filter(|line| reader.line(line, &mut counts)).collect();
        assert_eq!((counts.passed, counts.failed, counts.skipped), (7, 1, 2));
        assert_eq!(counts.reasons["no fuse"], ["a", "x"]);
        assert_eq!(counts.failures, ["y ()"]);
        assert!(!shown.contains(&"noise") && shown.contains(&"---- y ----"));
    }

    #[test]
    fn a_binary_that_breaks_after_its_tests_is_named() {
        let text = "     Running tests/a/main.rs (target/deps/a-1)\n\
            test result: FAILED. 5 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n\
            error: test failed, to rerun pass `-p cli --test a`\n     \
            Running tests/b/main.rs (target/deps/b-1)\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
            error: test failed, to rerun pass `-p cli --test b`\n\nCaused by:\n  \
            process didn't exit successfully: `target/deps/b-1` (signal: 9, SIGKILL: kill)";
        let (mut counts, mut reader) = (Counts::default(), Reader::default());
        for line in text.lines() {
            reader.line(line, &mut counts);
        }
        let end = "`-p cli --test b`: `target/deps/b-1` (signal: 9, SIGKILL: kill)";
        assert_eq!(counts.broken, [end]);
    }
}
