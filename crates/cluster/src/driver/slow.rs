//! Tells hosts that are much slower than the others, which all of an application may then wait for.

use std::time::Duration;

use crate::spec::units;

/// What takes less is not slow.
const LONG: Duration = Duration::from_secs(2);
/// A slow host takes so many times what the others take.
const TIMES: u32 = 3;

/// What is to be said of the slowest of hosts that have done the same; `None` if it is about as
/// fast as the others, of which the median counts.
pub(super) fn told(what: &str, times: &[(&str, Duration)]) -> Option<String> {
    let (host, longest) = times.iter().max_by_key(|(_, time)| time)?;
    let mut others: Vec<Duration> =
        times.iter().filter(|(other, _)| other != host).map(|(_, time)| *time).collect();
    others.sort_unstable();
    let usual = *others.get(others.len() / 2)?;
    (*longest >= LONG && *longest >= usual * TIMES).then(|| {
        let (long, usual) = (units::spell(*longest), units::spell(usual));
        format!("{host} is slow: {what} has taken {long} there, and {usual} on other hosts")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(milliseconds: &[u64]) -> Option<String> {
        let names = ["a", "b", "c", "d"];
        let times = names.into_iter().zip(milliseconds.iter().copied().map(Duration::from_millis));
        told("the start", &times.collect::<Vec<_>>())
    }

    #[test]
    fn the_slowest_host_is_told_with_both_times() {
        let said = "c is slow: the start has taken 12s500ms there, and 800ms on other hosts";
        assert_eq!(of(&[700, 800, 12_500]).as_deref(), Some(said));
        assert!(of(&[600, 2000]).is_some());
    }

    #[test]
    fn hosts_are_not_slow_without_others_or_for_small_things() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[60_000]), None);
        assert_eq!(of(&[1, 1, 1999]), None);
        assert_eq!(of(&[1000, 1000, 2999]), None);
        // Most are as slow.
        assert_eq!(of(&[100, 9000, 9000, 10_000]), None);
    }
}
