//! `--restart`: whether and after how long the program is started again.
//!
//! Docker's rule: 100 ms, doubled each time up to a minute, back to 100 ms after a run of ten
//! seconds. A container that a user stopped stays stopped.

use std::time::Duration;

use super::Outcome;
use crate::spec::RestartPolicy;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_mins(1);
const GOOD_RUN: Duration = Duration::from_secs(10);

/// Counts the restarts of one container.
#[derive(Debug)]
pub(crate) struct Restarts {
    policy: RestartPolicy,
    /// Restarts so far.
    pub(crate) count: u32,
    /// Pause before the next one.
    delay: Duration,
}

impl Restarts {
    pub(crate) fn new(policy: RestartPolicy) -> Self {
        Self { policy, count: 0, delay: FIRST }
    }

    /// How long to wait before the next start; `None` to leave it.
    pub(crate) fn after(&mut self, outcome: Outcome, ran: Duration) -> Option<Duration> {
        let limit = match self.policy {
            RestartPolicy::No => return None,
            RestartPolicy::OnFailure(_) if outcome.code == 0 => return None,
            RestartPolicy::OnFailure(limit) => limit,
            RestartPolicy::Always | RestartPolicy::UnlessStopped => None,
        };
        if ran >= GOOD_RUN {
            self.delay = FIRST;
        }
        if limit.is_some_and(|limit| self.count >= limit) {
            return None;
        }
        self.count += 1;
        let delay = self.delay;
        self.delay = (self.delay * 2).min(LONGEST);
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Outcome = Outcome { code: 3, signal: None };
    const FINE: Outcome = Outcome { code: 0, signal: None };

    #[test]
    fn failures_are_retried_with_growing_pauses_up_to_the_limit() {
        let short = Duration::from_secs(1);
        let mut restarts = Restarts::new(RestartPolicy::OnFailure(Some(3)));
        assert_eq!(restarts.after(FAILED, short), Some(Duration::from_millis(100)));
        assert_eq!(restarts.after(FAILED, short), Some(Duration::from_millis(200)));
        assert_eq!(restarts.after(FAILED, GOOD_RUN), Some(Duration::from_millis(100)));
        assert_eq!(restarts.after(FAILED, short), None);
        assert_eq!(restarts.count, 3);
        let mut endless = Restarts::new(RestartPolicy::OnFailure(None));
        let last = (0..100).map(|_| endless.after(FAILED, short)).last().flatten();
        assert_eq!(last, Some(LONGEST));
    }

    #[test]
    fn success_and_no_policy_end_it() {
        let mut restarts = Restarts::new(RestartPolicy::OnFailure(None));
        assert_eq!(restarts.after(FINE, Duration::ZERO), None);
        for policy in [RestartPolicy::Always, RestartPolicy::UnlessStopped] {
            assert_eq!(Restarts::new(policy).after(FINE, Duration::ZERO), Some(FIRST));
        }
        assert_eq!(Restarts::new(RestartPolicy::No).after(FAILED, Duration::ZERO), None);
    }
}
