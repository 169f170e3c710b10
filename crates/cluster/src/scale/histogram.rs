//! A histogram of times with buckets that are 1/16 of a power of two wide: a percentile is at most
//! 6.25 % too large, and memory does not depend on how many times there are.

use std::time::Duration;

/// Buckets of each power of two.
const PARTS: usize = 16;
/// Times are counted up to 2³⁶ µs, 19 hours; longer ones count as that.
const LONGEST: u64 = 1 << 36;
const BUCKETS: usize = bucket(LONGEST) + 1;

/// How often which time came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: Box<[u32]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into_boxed_slice(), total: 0 }
    }
}

/// The bucket of a time in microseconds.
const fn bucket(micros: u64) -> usize {
    if micros < PARTS as u64 {
        return micros as usize;
    }
    let shift = micros.ilog2() as usize - 4;
    (shift + 1) * PARTS + (micros >> shift) as usize - PARTS
}

/// The longest time of a bucket, in microseconds.
const fn end(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let (shift, part) = (bucket / PARTS - 1, (bucket % PARTS + PARTS) as u64);
    ((part + 1) << shift) - 1
}

impl Histogram {
    /// Counts a time.
    pub fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(LONGEST).min(LONGEST);
        let count = &mut self.counts[bucket(micros)];
        *count = count.saturating_add(1);
        self.total += 1;
    }

    /// Counts all times of another one.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.total += other.total;
    }

    /// How many times were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The shortest time that so many of a hundred do not exceed; `None` where there are none.
    pub fn percentile(&self, of: u8) -> Option<Duration> {
        let wanted = (self.total * u64::from(of)).div_ceil(100).max(1);
        let mut sum = 0;
        for (number, &count) in self.counts.iter().enumerate() {
            sum += u64::from(count);
            if sum >= wanted {
                return Some(Duration::from_micros(end(number)));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other() {
        for number in 1..BUCKETS {
            assert_eq!(bucket(end(number)), number);
            assert_eq!(bucket(end(number - 1) + 1), number);
        }
    }

    #[test]
    fn there_is_no_percentile_of_nothing() {
        assert_eq!(Histogram::default().percentile(95), None);
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_times(
            mut times in proptest::collection::vec(0_u64..100_000_000, 1..200), of in 1_u8..=99,
        ) {
            let mut histogram = Histogram::default();
            for &time in &times {
                histogram.add(Duration::from_micros(time));
            }
            times.sort_unstable();
            let exact = times[(times.len() * usize::from(of)).div_ceil(100).max(1) - 1];
            let found = histogram.percentile(of).unwrap().as_micros() as u64;
            prop_assert!(found >= exact && found <= exact + exact / 16, "{found} for {exact}");
        }
    }
}
