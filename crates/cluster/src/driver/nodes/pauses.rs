//! How long no node of a kind is started after one has failed: an image without the daemon, for
//! example, fails each time. Others go on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The first pause. Each further one is twice as long, up to the longest; after so long without a
/// failure it begins anew.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_mins(5);

/// By kind: the end of the last pause, and how long it was.
#[derive(Default)]
pub(super) struct Pauses(BTreeMap<String, (Instant, Duration)>);

impl Pauses {
    /// Whether nodes of a kind are not to be started now.
    pub(super) fn holds(&self, kind: &str, now: Instant) -> bool {
        self.0.get(kind).is_some_and(|(end, _)| now < *end)
    }

    /// A node of a kind has failed. Several that fail at once are one failure.
    pub(super) fn begin(&mut self, kind: &str, now: Instant) {
        if self.holds(kind, now) {
            return;
        }
        let last = self.0.get(kind).filter(|(end, _)| now < *end + LONGEST);
        let pause = last.map_or(FIRST, |(_, pause)| (2 * *pause).min(LONGEST));
        self.0.insert(kind.to_owned(), (now + pause, pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_begin_anew() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        let mut lengths = Vec::new();
        for _ in 0..10 {
            pauses.begin("compute", now);
            pauses.begin("compute", now);
            let began = now;
            while pauses.holds("compute", now) {
                now += Duration::from_secs(1);
            }
            lengths.push((now - began).as_secs());
        }
        assert_eq!(lengths, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert!(!pauses.holds("large", now));
        now += LONGEST;
        pauses.begin("compute", now);
        assert!(pauses.holds("compute", now + Duration::from_secs(1)));
        assert!(!pauses.holds("compute", now + FIRST));
    }
}
