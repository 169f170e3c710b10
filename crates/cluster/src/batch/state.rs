//! The state of a job in a queue, in words, and what its end means.

use std::fmt::Write as _;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::spec::units;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// In the queue.
    Queued,
    /// On its nodes, also while they are cleaned up.
    Running,
    /// Gone.
    Ended,
}

/// A job, or a task of an array, as its batch system shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The id, with the task for an array.
    pub id: String,
    /// Where it is.
    pub phase: Phase,
    /// The batch system's own word; empty if that has forgotten the job.
    pub word: String,
    /// Why it waits, or how it has ended.
    pub reason: Option<String>,
    /// When it is expected to start, in the local time of the batch system.
    pub start: Option<String>,
    /// How long it may still run; `None` if that has no limit, or is not known.
    pub time_left: Option<Duration>,
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Its exit status after its end, 128+n for signal n, if that is known.
    pub status: Option<u8>,
}

impl Row {
    /// A job that its batch system does not know any more.
    pub(super) fn forgotten(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            phase: Phase::Ended,
            word: String::new(),
            reason: None,
            start: None,
            time_left: None,
            hosts: Vec::new(),
            status: None,
        }
    }

    /// `queued`, `running` or `ended`.
    pub const fn state(&self) -> &'static str {
        match self.phase {
            Phase::Queued => "queued",
            Phase::Running => "running",
            Phase::Ended => "ended",
        }
    }

    /// The state in words, without what changes by the second.
    pub fn words(&self) -> String {
        let mut text = self.state().to_owned();
        if self.phase == Phase::Ended && !self.word.is_empty() {
            let _ = write!(text, " ({})", self.word);
        } else if self.phase == Phase::Running && self.word == "COMPLETING" {
            text.push_str(" (its nodes are being released)");
        }
        if self.phase == Phase::Running && !self.hosts.is_empty() {
            let _ = write!(text, " on {}", self.hosts.join(", "));
        }
        if let Some(reason) = &self.reason {
            let _ = write!(text, ": {reason}");
        }
        if let Some(start) = &self.start {
            let _ = write!(text, "; starts about {start}");
        }
        if self.phase == Phase::Ended
            && fault(self).is_none()
            && let Some(status) = self.status
        {
            let _ = write!(text, ", exit status {status}");
        }
        text
    }

    /// The state in words, with the time that is left.
    pub fn words_with_time(&self) -> String {
        let left = self.time_left.map(|left| format!(", {} left", units::spell(left)));
        format!("{}{}", self.words(), left.unwrap_or_default())
    }
}

/// What the end of all these means: the exit status of the job, the worst of an array's; `None`
/// while one has not ended.
///
/// # Errors
/// If it was ended from outside, or nothing tells how it has ended: that is never status 0.
pub fn verdict(rows: &[Row]) -> Result<Option<u8>> {
    if rows.iter().any(|row| row.phase != Phase::Ended) {
        return Ok(None);
    }
    let mut worst = 0;
    for row in rows {
        if let Some(error) = fault(row) {
            return Err(error);
        }
        worst = worst.max(row.status.unwrap_or(1));
    }
    Ok(Some(worst))
}

fn fault(row: &Row) -> Option<Error> {
    let job = format!("job {}", row.id);
    let again = "'coracle cluster up' submits it again";
    let (fact, hint) = match (&*row.word, row.status) {
        ("CANCELLED", _) if row.hosts.is_empty() => {
            (format!("{job} was cancelled before it started"), again)
        }
        ("CANCELLED", _) => (format!("{job} was cancelled"), again),
        ("REVOKED", _) => (format!("{job} was taken away"), again),
        ("PREEMPTED", _) => (format!("{job} had to make room for another job"), again),
        ("TIMEOUT" | "DEADLINE", _) => {
            (format!("the time of {job} was over"), "raise time in the file's backend")
        }
        ("NODE_FAIL" | "BOOT_FAIL", _) => (format!("a node of {job} has failed"), again),
        ("OUT_OF_MEMORY", _) => {
            let hint = "ask for more: options = [\"--mem=SIZE\"]";
            (format!("{job} had not enough memory"), hint)
        }
        (_, None) => (
            format!("{job} has ended, and it is not known how"),
            "it may have been cancelled: look at its output",
        ),
        _ => return None,
    };
    Some(Error::new(fact).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(word: &str, phase: Phase, status: Option<u8>) -> Row {
        Row { word: word.into(), phase, status, ..Row::forgotten("7") }
    }

    #[test]
    fn words() {
        let mut one = row("PENDING", Phase::Queued, None);
        one.reason = Some("other jobs come first (Priority)".into());
        one.start = Some("2026-11-26 08:34:56".into());
        assert_eq!(
            one.words(),
            "queued: other jobs come first (Priority); starts about 2026-11-26 08:34:56"
        );
        let mut one = row("RUNNING", Phase::Running, None);
        one.hosts = vec!["a".into(), "b".into()];
        one.time_left = Some(Duration::from_secs(3599));
        assert_eq!(one.words_with_time(), "running on a, b, 59m59s left");
        let one = row("FAILED", Phase::Ended, Some(3));
        assert_eq!(one.words_with_time(), "ended (FAILED), exit status 3");
        let one = row("TIMEOUT", Phase::Ended, Some(0));
        assert_eq!(one.words(), "ended (TIMEOUT)");
    }

    #[test]
    fn an_end_is_no_success_unless_it_is_one() {
        let of = |word: &str, status| verdict(&[row(word, Phase::Ended, status)]);
        assert_eq!(of("COMPLETED", Some(0)), Ok(Some(0)));
        assert_eq!(of("FAILED", Some(3)), Ok(Some(3)));
        for word in ["CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"] {
            assert!(of(word, Some(0)).unwrap_err().hint().is_some(), "{word}");
        }
        assert!(of("", None).is_err() && of("C", None).is_err());
        let array = [row("COMPLETED", Phase::Ended, Some(0)), row("FAILED", Phase::Ended, Some(4))];
        assert_eq!(verdict(&array), Ok(Some(4)));
        let waits = [row("COMPLETED", Phase::Ended, Some(0)), row("PENDING", Phase::Queued, None)];
        assert_eq!(verdict(&waits), Ok(None));
    }
}
