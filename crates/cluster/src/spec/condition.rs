//! Conditions of a rule that changes how many containers a service has:
//! `MEASURE < NUMBER[UNIT] [and ...] for TIME`.

use std::fmt;
use std::time::Duration;

use super::units;

/// All of its terms have held for some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The terms, at least one.
    pub terms: Vec<Term>,
    /// How long all of them have held.
    pub lasting: Duration,
}

/// A comparison of what is measured with a limit. A measurement that equals the limit fails it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// What is measured.
    pub measure: Measure,
    /// On which side of the limit it has to be.
    pub sign: Sign,
    /// The limit: microseconds for a percentile, requests a second for a rate.
    pub limit: u64,
}

/// What a term compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// `p95`: so many of a hundred requests were answered within that time. 1 to 99.
    Percentile(u8),
    /// `rate`: requests a second.
    Rate,
    /// `rate/replica`: requests a second for each container that takes requests.
    RateOfReplica,
}

/// The side of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// `<`
    Below,
    /// `>`
    Above,
}

impl Condition {
    /// Reads a condition. `None` for another form.
    pub fn parse(text: &str) -> Option<Self> {
        let (terms, lasting) = text.rsplit_once(" for ")?;
        let terms = terms.split(" and ").map(Term::parse).collect::<Option<_>>()?;
        Some(Self { terms, lasting: units::time(lasting.trim())? })
    }

    /// Whether there is a measurement for which it holds.
    pub fn is_possible(&self) -> bool {
        can_all_hold(&self.terms)
    }

    /// Whether both speak of the same measure, and there is a measurement for which both hold.
    pub fn collides_with(&self, other: &Self) -> bool {
        let same = |term: &Term| other.terms.iter().any(|one| one.measure == term.measure);
        let all: Vec<Term> = self.terms.iter().chain(&other.terms).copied().collect();
        self.terms.iter().any(same) && can_all_hold(&all)
    }
}

/// Whether there is a measurement for which all terms hold.
fn can_all_hold(terms: &[Term]) -> bool {
    let above = terms.iter().filter(|term| term.sign == Sign::Above);
    let below = || terms.iter().filter(|term| term.sign == Sign::Below);
    below().all(|term| term.limit > 0)
        && above.into_iter().all(|low| {
            below().all(|high| !low.measure.is_at_most(high.measure) || low.limit < high.limit)
        })
}

impl Term {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [measure, sign, limit] = words[..] else { return None };
        let measure = Measure::parse(measure)?;
        let limit = match measure {
            Measure::Percentile(_) => u64::try_from(units::time(limit)?.as_micros()).ok()?,
            Measure::Rate | Measure::RateOfReplica => limit.parse::<u32>().ok()?.into(),
        };
        let sign = match sign {
            "<" => Sign::Below,
            ">" => Sign::Above,
            _ => return None,
        };
        Some(Self { measure, sign, limit })
    }
}

impl Measure {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "rate" => Some(Self::Rate),
            "rate/replica" => Some(Self::RateOfReplica),
            _ => {
                let digits = text.strip_prefix('p')?;
                let of = digits.parse().ok().filter(|of| (1..=99).contains(of))?;
                digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(Self::Percentile(of))
            }
        }
    }

    /// Whether in each measurement this one is at most as large as the other one.
    fn is_at_most(self, other: Self) -> bool {
        match (self, other) {
            (Self::Percentile(one), Self::Percentile(other)) => one <= other,
            (Self::RateOfReplica, Self::Rate) => true,
            _ => self == other,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, term) in self.terms.iter().enumerate() {
            write!(f, "{}{term}", if number == 0 { "" } else { " and " })?;
        }
        write!(f, " for {}", units::spell(self.lasting))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.sign {
            Sign::Below => '<',
            Sign::Above => '>',
        };
        let limit = match self.measure {
            Measure::Percentile(_) => units::spell(Duration::from_micros(self.limit)),
            Measure::Rate | Measure::RateOfReplica => self.limit.to_string(),
        };
        write!(f, "{} {sign} {limit}", self.measure)
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percentile(of) => write!(f, "p{of}"),
            Self::Rate => f.write_str("rate"),
            Self::RateOfReplica => f.write_str("rate/replica"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Condition {
        Condition::parse(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn forms() {
        for text in
            ["p95 > 40ms for 3s", "p9 < 1s and rate/replica < 200 for 30s", "rate > 0 for 1m"]
        {
            assert_eq!(read(text).to_string(), text);
        }
        for text in [
            "",
            "p95 > 40ms",
            "p95 > 40 for 3s",
            "p0 > 1s for 3s",
            "p100 > 1s for 3s",
            "p+5 > 1s for 3s",
            "rate > 5ms for 3s",
            "rate >= 5 for 3s",
            "rate > -1 for 3s",
            "rate > 5 for 3",
            "rate > 5 or p95 > 1s for 3s",
            "rate > 5 and for 3s",
            "rate for 3s",
        ] {
            assert_eq!(Condition::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_can_never_hold() {
        for text in
            ["p95 < 0ms for 3s", "rate > 9 and rate < 9 for 3s", "p50 > 9ms and p95 < 8ms for 3s"]
        {
            assert!(!read(text).is_possible(), "{text}");
        }
        for text in ["p95 > 9ms and p50 < 8ms for 3s", "rate > 8 and rate < 9 for 3s"] {
            assert!(read(text).is_possible(), "{text}");
        }
    }

    #[test]
    fn what_collides() {
        let both = |one: &str, other: &str| read(one).collides_with(&read(other));
        assert!(both("p95 > 10ms for 3s", "p95 < 40ms for 3s"));
        assert!(!both("p95 > 40ms for 3s", "p95 < 40ms for 3s"));
        assert!(!both("p95 > 40ms for 3s", "rate/replica < 200 for 3s"));
        assert!(both("rate/replica > 40 for 3s", "rate/replica < 50 and rate < 60 for 3s"));
        assert!(!both("rate/replica > 40 for 3s", "rate/replica < 50 and rate < 40 for 3s"));
    }
}
