//! Reads times: those of records (RFC 3339), and those that Docker's `--since` and `until=` take.

use jiff::{SignedDuration, Timestamp};

/// The present.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// Reads an RFC 3339 time.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// A point in time as `--since` takes it: RFC 3339, a date, Unix seconds, or a span before the
/// present (`42m`).
pub fn point(text: &str) -> Option<Timestamp> {
    if let Some(time) = parse(text) {
        return Some(time);
    }
    if let Ok(seconds) = text.parse::<f64>() {
        let nanos = (seconds * 1e9) as i128;
        return Timestamp::from_nanosecond(nanos).ok();
    }
    if let Ok(local) = text.parse::<jiff::civil::DateTime>() {
        return local.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    }
    let span = span(text)?;
    now().checked_sub(span).ok()
}

/// Go's durations: `1h30m`, `42m`, `1.5s`, `300ms`, and `d` for days.
pub fn span(text: &str) -> Option<SignedDuration> {
    let mut rest = text;
    let mut total = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit_end = rest[end..]
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .map_or(rest.len(), |found| end + found);
        total += number
            * match &rest[end..unit_end] {
                "ms" => 0.001,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86400.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then(|| SignedDuration::try_from_secs_f64(total).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points() {
        assert_eq!(span("1h30m"), Some(SignedDuration::from_secs(5400)));
        assert_eq!(span("42"), None);
        assert_eq!(span(""), None);
        assert_eq!(point("1700000000").map(Timestamp::as_second), Some(1_700_000_000));
        assert!(point("2026-01-02").is_some());
        assert!(point("2026-01-02T13:23:37Z").is_some());
        assert!(point("42m").is_some_and(|time| time < now()));
        assert!(point("soon").is_none());
    }
}
