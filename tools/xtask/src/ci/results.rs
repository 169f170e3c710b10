//! Reads what test binaries printed and adds up their results.
//!
//! The standard harness hides what passing tests print, and with it the `SKIP` lines. So it is told
//! to show that output (`--show-output`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::shell::Outcome;

/// The results of all test binaries together.
#[derive(Debug, Default)]
pub(super) struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Skipped tests by the reason that they tell.
    pub(super) reasons: BTreeMap<String, Vec<String>>,
    /// Tests that passed only when run again, each with what it said at first.
    pub(super) unstable: Vec<String>,
    /// The tests that failed, with their binaries.
    pub(super) failures: Vec<String>,
    /// What failed tests printed, by test.
    said: BTreeMap<String, Vec<String>>,
    /// The test binaries that ended with an error although no test in them failed.
    pub(super) broken: Vec<String>,
    binaries: usize,
}

impl Counts {
    /// What the log of a part tells.
    pub(super) fn of_log(log: &Path) -> Outcome<Self> {
        let bytes = fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let (mut counts, mut reader) = (Self::default(), Reader::default());
        for line in String::from_utf8_lossy(&bytes).lines() {
            reader.line(line, &mut counts);
        }
        reader.rest(&mut counts);
        Ok(counts)
    }

    /// Whether no test binary came to its end.
    pub(super) fn are_empty(&self) -> bool {
        self.binaries == 0
    }

    /// Adds the results of another part.
    pub(super) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.binaries += other.binaries;
        for (reason, tests) in &other.reasons {
            self.reasons.entry(reason.clone()).or_default().extend(tests.iter().cloned());
        }
        self.unstable.extend(other.unstable.iter().cloned());
        self.failures.extend(other.failures.iter().cloned());
        self.said.extend(other.said.clone());
        self.broken.extend(other.broken.iter().cloned());
    }

    /// The first lines that a failed test printed.
    pub(super) fn said_by(&self, failure: &str) -> impl Iterator<Item = &str> {
        self.said.get(test_of(failure)).into_iter().flatten().map(String::as_str)
    }

    /// The sums in words; empty without tests.
    pub(super) fn sums(&self) -> String {
        if self.binaries == 0 {
            return String::new();
        }
        let again = match self.unstable.len() {
            0 => String::new(),
            count => format!(", {count} at the second try"),
        };
        format!(": {} passed{again}, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }

    /// Prints the skipped tests by reason, and those that failed at least once.
    pub(super) fn print_details(&self) {
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
    }

    /// Prints the sums as other tools read them.
    pub(super) fn print_sums(&self, ok: bool) {
        let Self { passed, failed, skipped, .. } = self;
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        println!(
            "test result: {}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; 0 \
             filtered out",
            if ok { "ok" } else { "FAILED" },
        );
    }
}

/// How cargo begins the line that says how a test binary ended.
const STATUS: &str = "process didn't exit successfully: ";

/// What both harnesses print behind the name of a test that failed.
const FAILED: &str = " ... FAILED";

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

/// The place and the reason in a line such as `SKIPPED [2] tests/a/test_b.py:7: not built`.
fn skipped_by_pytest(line: &str) -> Option<(String, String)> {
    let (_, rest) = line.strip_prefix("SKIPPED [")?.split_once("] ")?;
    let (place, reason) = rest.split_once(": ")?;
    Some((format!("lab::{place}"), reason.to_owned()))
}

/// The name of a failed test without its binary.
fn test_of(failure: &str) -> &str {
    failure.split_once(" (").map_or(failure, |(test, _)| test)
}

fn shorten(tests: &[String]) -> String {
    let shown: Vec<&str> = tests.iter().take(4).map(String::as_str).collect();
    let more = tests.len().saturating_sub(4);
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{tail}", shown.join(", "))
}

/// Interprets the output of one test binary after the other.
#[derive(Debug, Default)]
struct Reader {
    skips: Vec<(String, String)>,
    /// The binary whose output is read.
    running: Option<String>,
    /// Tests that failed in this binary.
    failed: usize,
    /// The failed test whose output is read.
    telling: Option<String>,
}

/// So many lines of what a failed test printed are shown, of so many characters at most.
const SHOWN: (usize, usize) = (12, 300);

impl Reader {
    /// Interprets a line.
    fn line(&mut self, line: &str, counts: &mut Counts) {
        if let Some((test, reason)) =
            line.strip_prefix("SKIP ").and_then(|rest| rest.split_once(": "))
        {
            self.skips.push((test.to_owned(), reason.to_owned()));
            return;
        }
        if let Some((place, reason)) = skipped_by_pytest(line) {
            self.skips.push((place, reason));
            return;
        }
        if let Some(name) = started(line) {
            self.running = Some(name);
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
            let binary = self.running.as_ref().map(|name| format!(" ({name})"));
            counts.failures.push(format!("{test}{}", binary.unwrap_or_default()));
        }
        self.output(line, counts);
        if let Some(case) = line.strip_prefix("UNSTABLE ") {
            counts.unstable.push(case.to_owned());
        }
        if let Some(rest) = line.strip_prefix("test result: ") {
            self.result(rest, counts);
        }
    }

    /// Keeps what failed tests printed, which both harnesses show behind `---- NAME`.
    fn output(&mut self, line: &str, counts: &mut Counts) {
        if let Some(rest) = line.strip_prefix("---- ") {
            let name = rest.trim_end_matches(" ----").trim_end_matches(" stdout");
            let has_failed = counts.failures.iter().any(|failure| test_of(failure) == name);
            self.telling = has_failed.then(|| name.to_owned());
        } else if line.starts_with("failures:") || line.starts_with("test result: ") {
            self.telling = None;
        } else if let Some(name) = &self.telling
            && !line.trim().is_empty()
        {
            let said = counts.said.entry(name.clone()).or_default();
            if said.len() < SHOWN.0 {
                said.push(line.chars().take(SHOWN.1).collect());
            }
        }
    }

    /// Keeps skips behind which no result stands, such as those of the lab.
    fn rest(&mut self, counts: &mut Counts) {
        counts.skipped += self.skips.len();
        for (test, reason) in self.skips.drain(..) {
            counts.reasons.entry(reason).or_default().push(test);
        }
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
    fn skips_of_the_lab_are_seen() {
        let line = "SKIPPED [2] tests/a/test_b.py:7: hpcc is not built";
        let found = skipped_by_pytest(line).expect("a skip");
        assert_eq!(found, ("lab::tests/a/test_b.py:7".to_owned(), "hpcc is not built".to_owned()));
        let (mut counts, mut reader) = (Counts::default(), Reader::default());
        reader.line(line, &mut counts);
        reader.rest(&mut counts);
        assert_eq!((counts.skipped, counts.reasons.len()), (1, 1));
    }

    #[test]
    fn adds_up_both_harnesses() {
        let text = "running 3 tests\ntest a ... ok\n\nsuccesses:\n\n---- a stdout ----\nnoise\n\
            SKIP a: no fuse\n\nsuccesses:\n    a\n\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test x ... ignored, no fuse\ntest y ... FAILED (12.0 s)\nSKIP x: no fuse\nfailures:\n\n\
            ---- y ----\npanicked at a.rs:1:2:\nfirst\n\nfailures:\n    y\n\n\
            test result: FAILED. 5 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s";
        let (mut counts, mut reader) = (Counts::default(), Reader::default());
        text.lines().for_each(|line| reader.line(line, &mut counts));
        assert_eq!((counts.passed, counts.failed, counts.skipped), (7, 1, 2));
        assert_eq!(counts.reasons["no fuse"], ["a", "x"]);
        assert_eq!(counts.failures, ["y"]);
        assert_eq!(counts.said_by("y").collect::<Vec<_>>(), ["panicked at a.rs:1:2:", "first"]);
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
