//! When a host asks another one, because the one before it is slow. A pure function of what was
//! received.
//!
//! That the next one has more is not enough: the link to this host may be the slow one, or that of
//! the source. So it is tried, and what is not better by a third is taken back, once for each.

use std::collections::HashSet;
use std::time::Duration;

/// How often is looked.
pub(super) const WINDOW: Duration = Duration::from_secs(2);
/// A host is taken for slow when the next one is ahead by what comes in so many windows,
const BEHIND: u64 = 2;
/// and by so many bytes.
const LEAST: u64 = 2 << 20;

/// What is known of the hosts that are asked.
#[derive(Debug, Default)]
pub(super) struct Route {
    asked: usize,
    /// A window in which the host was changed says nothing.
    is_new: bool,
    /// The host before the one that is tried, and what came from it in a window.
    before: Option<(usize, u64)>,
    /// Those that are no slower than others.
    good: HashSet<usize>,
}

impl Route {
    /// A window is over in which so many bytes came from the host `asked`; the one `next` to it has
    /// so many more than this host. Returns whom to ask from now on, if that changes.
    pub(super) fn turn(
        &mut self,
        asked: usize,
        received: u64,
        next: usize,
        ahead: u64,
    ) -> Option<usize> {
        if asked != self.asked {
            // That one was lost.
            *self =
                Self { asked, is_new: true, before: None, good: std::mem::take(&mut self.good) };
            return None;
        }
        if std::mem::take(&mut self.is_new) {
            return None;
        }
        let to = match self.before.take() {
            Some((before, rate)) if received < rate + rate / 3 => {
                self.good.insert(before);
                before
            }
            None if ahead > LEAST.max(BEHIND * received) && !self.good.contains(&asked) => {
                self.before = Some((asked, received));
                next
            }
            _ => return None,
        };
        self.asked = to;
        self.is_new = true;
        Some(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn one_that_keeps_up_is_kept() {
        let mut route = Route::default();
        for _ in 0..10 {
            assert_eq!(route.turn(0, 40 * MIB, 1, 10 * MIB), None);
        }
        assert_eq!(route.turn(0, 0, 1, MIB), None);
    }

    #[test]
    fn a_slow_one_is_left() {
        let mut route = Route::default();
        assert_eq!(route.turn(0, MIB, 1, 30 * MIB), Some(1));
        assert_eq!(route.turn(1, 9, 2, 30 * MIB), None);
        assert_eq!(route.turn(1, 40 * MIB, 2, 30 * MIB), None);
        assert_eq!(route.turn(1, 40 * MIB, 2, 30 * MIB), None);
    }

    #[test]
    fn what_is_not_better_is_taken_back_once() {
        let mut route = Route::default();
        assert_eq!(route.turn(0, 40 * MIB, 1, 300 * MIB), Some(1));
        assert_eq!(route.turn(1, 20 * MIB, 2, 300 * MIB), None);
        assert_eq!(route.turn(1, 20 * MIB, 2, 300 * MIB), Some(0));
        for _ in 0..10 {
            assert_eq!(route.turn(0, 40 * MIB, 1, 300 * MIB), None);
        }
        // The next one is another matter.
        assert_eq!(route.turn(1, 40 * MIB, 2, 300 * MIB), None);
        assert_eq!(route.turn(1, 40 * MIB, 2, 300 * MIB), None);
        assert_eq!(route.turn(1, 40 * MIB, 2, 300 * MIB), Some(2));
    }
}
