//! Tests of the rule, on services whose times follow from rate and number.

use proptest::prelude::*;

use super::*;

const STEP: Duration = Duration::from_millis(500);

fn rule(min: u32, max: u32) -> Scaling {
    let read = |text| Condition::parse(text).unwrap();
    Scaling {
        min,
        max,
        up: read("p95 > 40ms for 3s"),
        down: read("p95 < 15ms and rate/replica < 200 for 10s"),
        cool: Duration::from_secs(5),
    }
}

fn measured(rate: f64, ready: u32, time: Duration) -> Measured {
    let mut times = Histogram::default();
    // All times are equal, so a few tell the percentiles of all.
    (0..(rate.ceil() as u64).min(20)).for_each(|_| times.add(time));
    Measured { rate, times, ready }
}

/// A service of which each container answers `capacity` requests a second, and is the slower the
/// nearer it is to that.
fn answer(rate: f64, count: u32, capacity: f64) -> Duration {
    let busy = rate / (f64::from(count.max(1)) * capacity);
    let millis = if busy < 0.99 { 5.0 / (1.0 - busy) } else { 500.0 };
    Duration::from_micros((millis * 1000.0) as u64)
}

/// The numbers that a service has at constant load, from `count` on.
fn followed(rule: &Scaling, mut count: u32, rate: f64, capacity: f64, steps: u32) -> Vec<u32> {
    let mut state = State::default();
    let mut counts = vec![count];
    for step in 0..steps {
        let found = measured(rate, count, answer(rate, count, capacity));
        count = decide(rule, &mut state, count, STEP * step, Some(&found)).count;
        counts.push(count);
    }
    counts
}

fn changes(counts: &[u32]) -> usize {
    counts.windows(2).filter(|pair| pair[0] != pair[1]).count()
}

#[test]
fn it_grows_when_slow_and_shrinks_when_fast() {
    let rule = rule(1, 8);
    let counts = followed(&rule, 1, 1000.0, 300.0, 2000);
    // Of 3 containers each is full, 4 answer in 30 ms, within the limit of 40.
    assert_eq!(counts.last(), Some(&4));
    assert!(counts.windows(2).all(|pair| pair[1] >= pair[0]), "{counts:?}");
    let mut back = followed(&rule, 8, 100.0, 300.0, 2000);
    assert_eq!(back.pop(), Some(1));
}

#[test]
fn a_decision_says_why() {
    let (rule, mut state) = (rule(1, 8), State::default());
    let slow = measured(100.0, 1, Duration::from_millis(61));
    let mut last = None;
    for step in 0..=6 {
        last = Some(decide(&rule, &mut state, 1, STEP * step, Some(&slow)));
        assert!(step == 6 || last.as_ref().unwrap().why.is_none(), "{step}");
    }
    let Decision { count, why } = last.unwrap();
    assert_eq!((count, why.as_deref()), (2, Some("p95 > 40ms for 3s: p95 is 61.4ms")));
}

#[test]
fn what_is_not_known_changes_nothing() {
    let (rule, mut state) = (rule(1, 8), State::default());
    let slow = measured(100.0, 1, Duration::from_millis(61));
    for step in 0..100 {
        // One measurement of six is missing.
        let found = (step % 6 != 5).then_some(&slow);
        let decision = decide(&rule, &mut state, 1, STEP * step, found);
        assert_eq!(decision.why, None, "{step}");
    }
    // A clock that stood still, as that of a machine that was suspended.
    let mut state = State::default();
    decide(&rule, &mut state, 1, Duration::ZERO, Some(&slow));
    assert_eq!(decide(&rule, &mut state, 1, 100 * GAP, Some(&slow)).why, None);
}

#[test]
fn it_waits_until_what_it_has_asked_for_takes_requests() {
    let (rule, mut state) = (rule(1, 8), State::default());
    let slow = measured(100.0, 1, Duration::from_millis(61));
    for step in 0..100 {
        assert_eq!(decide(&rule, &mut state, 2, STEP * step, Some(&slow)).why, None, "{step}");
    }
}

#[test]
fn limits_are_kept_without_a_measurement() {
    let rule = rule(2, 4);
    for (count, kept) in [(0, 2), (9, 4), (3, 3)] {
        let decision = decide(&rule, &mut State::default(), count, STEP, None);
        assert_eq!(decision.count, kept);
    }
}

#[test]
fn a_number_that_was_too_small_is_tried_again_after_a_time() {
    // Two answer in 10.6 ms, and one, which has the same rate/replica as is allowed, in 50.
    let mut rule = rule(1, 8);
    rule.down = Condition::parse("p95 < 15ms for 10s").unwrap();
    let counts = followed(&rule, 1, 180.0, 200.0, 2 * 60 * 60);
    // Within an hour: to 2, and after 5, 10 and 20 minutes a trial of 1.
    assert_eq!(changes(&counts), 1 + 2 * 3, "{counts:?}");
}

proptest! {
    #[test]
    fn it_is_bounded(
        samples in proptest::collection::vec((0.0..5000.0_f64, 0_u32..9, 0_u64..200, any::<bool>()), 1..300),
        first in 0_u32..12,
    ) {
        let (rule, mut state, mut count) = (rule(1, 8), State::default(), first);
        let mut last_change: Option<u32> = None;
        for (step, (rate, ready, millis, missing)) in (0..).zip(samples) {
            let found = measured(rate, ready, Duration::from_millis(millis));
            let found = (!missing).then_some(&found);
            let Decision { count: next, why } = decide(&rule, &mut state, count, STEP * step, found);
            prop_assert!((1..=8).contains(&next));
            prop_assert_eq!(why.is_some(), next != count);
            if (1..=8).contains(&count) && next != count {
                prop_assert_eq!(next.abs_diff(count), 1);
                let pause = last_change.map(|last| STEP * (step - last));
                prop_assert!(pause.is_none_or(|pause| pause >= rule.cool));
            }
            if next != count {
                last_change = Some(step);
            }
            count = next;
        }
    }

    #[test]
    fn it_comes_to_rest_at_a_constant_load(rate in 0.0..3000.0_f64, capacity in 50.0..500.0_f64, first in 1_u32..=8) {
        let counts = followed(&rule(1, 8), first, rate, capacity, 1200);
        // To the number, then at most one trial of one that is too small within ten minutes.
        prop_assert!(changes(&counts) <= 8 + 4, "{:?}", counts);
        let tail = &counts[counts.len() - 300..];
        prop_assert!(changes(tail) <= 2, "{:?}", tail);
    }

    #[test]
    fn more_load_is_never_fewer_containers(rate in 0.0..3000.0_f64, more in 1.0..3.0_f64, capacity in 50.0..500.0_f64) {
        let last = |rate| followed(&rule(1, 8), 1, rate, capacity, 500).last().copied();
        prop_assert!(last(rate) <= last(rate * more));
    }
}
