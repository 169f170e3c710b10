//! Reads the output of a trial: which engine is chosen, and how the suite's cases ended in each.

use std::collections::BTreeMap;

/// In the order of the table's columns.
const ENGINES: [&str; 5] = ["I1", "I2", "P1", "P2", "N1"];

/// How an engine did.
#[derive(Debug, Default)]
struct Score {
    passed: usize,
    failed: Vec<String>,
    /// Why there is none.
    missing: Option<String>,
}

/// A trial.
#[derive(Debug, Default)]
pub(super) struct Report {
    scores: BTreeMap<String, Score>,
    /// The engine that is chosen by itself, without user namespaces.
    default: String,
    /// The error of `run`, if it failed.
    complaint: Option<String>,
    /// Failures, each with its words.
    details: String,
    suites: usize,
}

impl Report {
    /// Reads a log.
    pub(super) fn read(log: &str) -> Self {
        let mut report = Self::default();
        let mut part = "";
        let mut in_failures = false;
        let mut hello = String::new();
        for line in log.lines() {
            if let Some(next) = line.strip_prefix("## ") {
                if let Some(code) = next.strip_prefix("code ") {
                    report.complaint = (code != "0").then(|| hello.clone());
                }
                part = next;
                in_failures = false;
            } else if part == "hello" {
                hello.push_str(line);
                hello.push('\n');
            } else if part == "choice" {
                let word = line.trim().strip_prefix("\"engine\": \"");
                if let Some((engine, _)) = word.and_then(|word| word.split_once('"')) {
                    engine.clone_into(&mut report.default);
                }
            } else if line == "failures:" {
                in_failures = !in_failures;
            } else if line.starts_with("test result: ") {
                report.suites += 1;
                in_failures = false;
            } else if in_failures || line.starts_with("UNSTABLE ") {
                report.details.push_str(line);
                report.details.push('\n');
            } else {
                report.line(line);
            }
        }
        report
    }

    fn line(&mut self, line: &str) {
        if let Some((case, reason)) =
            line.strip_prefix("SKIP ").and_then(|rest| rest.split_once(": "))
        {
            let engine = case.split("::").next().unwrap_or(case);
            // The reason for the user without subordinate ids.
            let score = self.scores.entry(engine.to_owned()).or_default();
            score.missing.get_or_insert_with(|| reason.to_owned());
            return;
        }
        let Some((case, end)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        else {
            return;
        };
        let engine = case.split("::").next().unwrap_or(case);
        let score = self.scores.entry(engine.to_owned()).or_default();
        match end.split(' ').next() {
            Some("ok") => score.passed += 1,
            Some("FAILED") => score.failed.push(case.to_owned()),
            _ => {}
        }
    }

    /// The engine that is chosen.
    pub(super) fn default_engine(&self) -> &str {
        if self.default.is_empty() { "none" } else { &self.default }
    }

    /// One word or two for each engine.
    pub(super) fn cells(&self) -> Vec<String> {
        let cell = |engine: &&str| {
            let Some(score) = self.scores.get(*engine) else { return "not run".to_owned() };
            match (score.passed + score.failed.len(), &score.missing) {
                (0, Some(_)) => "not available".to_owned(),
                (0, None) => "not run".to_owned(),
                (all, _) if score.failed.is_empty() => format!("{all} passed"),
                (all, _) => format!("{} of {all} differ", score.failed.len()),
            }
        };
        ENGINES.iter().map(cell).collect()
    }

    /// Whether nothing differs, both runs of the suite ended, and a program runs without a chosen
    /// mode.
    pub(super) fn is_good(&self) -> bool {
        let failed = self.scores.values().any(|score| !score.failed.is_empty());
        !failed && self.suites == 2 && self.complaint.is_none() && !self.default.is_empty()
    }

    /// Prints what does not fit into the table.
    pub(super) fn print(&self) {
        if let Some(complaint) = &self.complaint {
            println!("`coracle run hello` failed:\n{complaint}");
        }
        for (engine, score) in &self.scores {
            if let Some(reason) = &score.missing {
                println!("SKIP {engine}: {reason}");
            }
        }
        print!("{}", self.details);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "## kernel 4.4\n## choice\n{\n    \"engine\": \"I1\",\n## hello\nHello\n## code 0\n\
        ## suite without\nrunning 3 tests\nSKIP P2::plain: broken: no ptrace\n\
        test I1::plain::paths::root ... ok (5.1 s)\ntest I1::plain::links::root ... FAILED\n\
        failures:\n\n---- I1::plain::links::root ----\n1 lines differ\nfailures:\n    I1::plain::links::root\n\
        test result: FAILED. 1 passed\n## suite with\ntest N1::plain::paths::user ... ok\n\
        test result: ok. 1 passed\n## end\n";

    #[test]
    fn counts_what_a_trial_told() {
        let report = Report::read(LOG);
        assert_eq!(report.default_engine(), "I1");
        assert_eq!(
            report.cells(),
            ["1 of 2 differ", "not run", "not run", "not available", "1 passed"]
        );
        assert!(report.details.contains("1 lines differ"));
        assert!(!report.is_good());
        let good = LOG.replace("FAILED\n", "ok\n");
        assert!(Report::read(&good).is_good());
        assert!(!Report::read(&good.replace("## code 0", "## code 125")).is_good());
        assert!(!Report::read(&good.replace("test result: ok", "")).is_good());
    }
}
