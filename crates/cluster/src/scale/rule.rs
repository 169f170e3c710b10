//! Decides how many containers a service has, as a pure function: what was measured, what was
//! known before, and the rule give a decision with its reason.
//!
//! - A condition has to hold in each measurement of its time. A measurement that is missing, or
//!   that comes later than [`GAP`] after the one before it, ends that time: what is not known
//!   changes nothing.
//! - The number changes by one, and not again before `cool` is over and all containers that were
//!   asked for take requests.
//! - Where both conditions hold, the number grows.
//! - A number that has once proved too small for a rate is not taken again at that rate
//!   ([`TooFew`]). Without that, a load between two numbers would make it grow and shrink for ever.
//! - Without requests every percentile is 0, so a service at rest shrinks. Percentiles come from
//!   the answers since the last measurement, never from the balancer's own averages, which keep
//!   their last value at rest.

use std::fmt::{self, Write as _};
use std::time::Duration;

use super::histogram::Histogram;
use crate::spec::{Condition, Measure, Scaling, Sign, Term};

/// The longest time between two measurements that follow each other.
pub const GAP: Duration = Duration::from_secs(3);
/// After so long a number that was too small is tried again at the same rate; after twice as long
/// when it was too small then, too.
const FORGIVEN: Duration = Duration::from_mins(5);
const FORGIVEN_AT_MOST: Duration = Duration::from_hours(24);
/// A rate counts as the same above so many hundredths of it.
const SAME_RATE: f64 = 0.9;

/// What was measured since the last time.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Requests a second.
    pub rate: f64,
    /// The times in which they were answered.
    pub times: Histogram,
    /// Containers that take requests.
    pub ready: u32,
}

/// What is known from before.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// When the last measurement was made.
    last: Option<Duration>,
    /// Since when it should grow.
    up: Option<Duration>,
    /// Since when it should shrink.
    down: Option<Duration>,
    /// When the number was changed.
    changed: Option<Duration>,
    too_few: Option<TooFew>,
}

/// A number that was too small.
#[derive(Debug, Clone, Copy, PartialEq)]
struct TooFew {
    count: u32,
    /// The rate, in requests a second.
    rate: f64,
    /// It is tried again at that time.
    until: Duration,
    /// For how long it was not to be tried.
    held: Duration,
}

/// How many containers there are to be, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// How many.
    pub count: u32,
    /// Why, in words, if that is another number than before.
    pub why: Option<String>,
}

/// Decides what follows from a measurement; `None` if nothing could be measured. `now` comes from a
/// clock that never goes back; `count` containers are asked for at present.
pub fn decide(
    rule: &Scaling,
    state: &mut State,
    count: u32,
    now: Duration,
    measured: Option<&Measured>,
) -> Decision {
    if count < rule.min || count > rule.max {
        let kept = count.clamp(rule.min, rule.max);
        let why = format!("there are to be {} to {}", rule.min, rule.max);
        return state.change(kept, now, why);
    }
    let keep = Decision { count, why: None };
    let Some(measured) = measured else {
        (state.up, state.down, state.last) = (None, None, None);
        return keep;
    };
    if state.last.is_none_or(|last| now.saturating_sub(last) > GAP) {
        (state.up, state.down) = (None, None);
    }
    state.last = Some(now);
    state.up = since(state.up, now, rule.up.holds(measured));
    state.down = since(state.down, now, rule.down.holds(measured));
    let is_cool = state.changed.is_none_or(|changed| now.saturating_sub(changed) >= rule.cool);
    if !is_cool {
        return keep;
    }
    let has_lasted = |since: Option<Duration>, condition: &Condition| {
        since.is_some_and(|since| now.saturating_sub(since) >= condition.lasting)
    };
    if has_lasted(state.up, &rule.up) {
        if count == rule.max || measured.ready < count {
            return keep;
        }
        state.remember(count, measured.rate, now);
        return state.change(count + 1, now, rule.up.told(measured));
    }
    let too_few = state.too_few.is_some_and(|too_few| too_few.holds(count - 1, measured, now));
    if has_lasted(state.down, &rule.down) && count > rule.min && !too_few {
        return state.change(count - 1, now, rule.down.told(measured));
    }
    keep
}

/// Since when something holds.
fn since(before: Option<Duration>, now: Duration, holds: bool) -> Option<Duration> {
    if holds { before.or(Some(now)) } else { None }
}

impl State {
    fn change(&mut self, count: u32, now: Duration, why: String) -> Decision {
        (self.up, self.down, self.changed) = (None, None, Some(now));
        Decision { count, why: Some(why) }
    }

    /// Remembers that so many containers are too few for a rate.
    fn remember(&mut self, count: u32, rate: f64, now: Duration) {
        let before = self.too_few.filter(|before| before.count == count);
        let again = before.filter(|before| rate >= before.rate * SAME_RATE);
        let held = again.map_or(FORGIVEN, |before| (2 * before.held).min(FORGIVEN_AT_MOST));
        self.too_few = Some(TooFew { count, rate, until: now + held, held });
    }
}

impl TooFew {
    fn holds(&self, count: u32, measured: &Measured, now: Duration) -> bool {
        count <= self.count && measured.rate >= self.rate * SAME_RATE && now < self.until
    }
}

impl Condition {
    fn holds(&self, measured: &Measured) -> bool {
        self.terms.iter().all(|term| term.holds(measured))
    }

    /// The condition with what was measured.
    fn told(&self, measured: &Measured) -> String {
        let mut text = format!("{self}:");
        let mut told: Vec<Measure> = Vec::new();
        for term in &self.terms {
            if !told.contains(&term.measure) {
                let comma = if told.is_empty() { "" } else { "," };
                let _ = write!(text, "{comma} {} is {}", term.measure, Value(*term, measured));
                told.push(term.measure);
            }
        }
        text
    }
}

impl Term {
    /// The limit, in the unit of [`Measure::of`].
    fn limit(&self) -> f64 {
        match self.measure {
            Measure::Percentile(_) => Duration::from_micros(self.limit).as_secs_f64(),
            Measure::Rate | Measure::RateOfReplica => {
                f64::from(u32::try_from(self.limit).unwrap_or(u32::MAX))
            }
        }
    }

    fn holds(&self, measured: &Measured) -> bool {
        let (value, limit) = (self.measure.of(measured), self.limit());
        match self.sign {
            Sign::Below => value < limit,
            Sign::Above => value > limit,
        }
    }
}

impl Measure {
    /// Its value: seconds, or requests a second.
    fn of(self, measured: &Measured) -> f64 {
        match self {
            Self::Percentile(of) => {
                let time = measured.times.percentile(of).unwrap_or_default();
                time.as_secs_f64()
            }
            Self::Rate => measured.rate,
            Self::RateOfReplica => measured.rate / f64::from(measured.ready.max(1)),
        }
    }
}

/// The value of a term's measure with its unit.
struct Value<'m>(Term, &'m Measured);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0.measure.of(self.1);
        match self.0.measure {
            Measure::Percentile(_) => write!(f, "{:.1}ms", value * 1000.0),
            Measure::Rate | Measure::RateOfReplica => write!(f, "{value:.0}"),
        }
    }
}

#[cfg(test)]
mod tests;
