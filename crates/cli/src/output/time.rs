//! Times: kept as RFC 3339, printed as Docker prints them (`2 hours ago`, `Up 3 minutes`).

use jiff::{SignedDuration, Timestamp};

/// The present, to the nanosecond.
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// Reads an RFC 3339 time.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// A span for people, in Docker's words.
pub(crate) fn human(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    let (minutes, hours) = (seconds / 60, (seconds + 1800) / 3600);
    match seconds {
        s if s < 1 => "Less than a second".to_owned(),
        1 => "1 second".to_owned(),
        s if s < 60 => format!("{s} seconds"),
        _ if minutes == 1 => "About a minute".to_owned(),
        _ if minutes < 60 => format!("{minutes} minutes"),
        _ if hours == 1 => "About an hour".to_owned(),
        _ if hours < 48 => format!("{hours} hours"),
        _ if hours < 24 * 7 * 2 => format!("{} days", hours / 24),
        _ if hours < 24 * 30 * 2 => format!("{} weeks", hours / 24 / 7),
        _ if hours < 24 * 365 * 2 => format!("{} months", hours / 24 / 30),
        _ => format!("{} years", hours / 24 / 365),
    }
}

/// `2 hours ago`; empty where the text is no time.
pub(crate) fn ago(text: &str) -> String {
    parse(text)
        .map_or_else(String::new, |then| format!("{} ago", human(now().duration_since(then))))
}

/// When an image was built, in words.
pub(crate) fn age(created: Option<&str>) -> String {
    match created.filter(|time| !time.starts_with("0001-")) {
        Some(time) => ago(time),
        None => "N/A".to_owned(),
    }
}

/// `2026-01-02 13:23:37 +0000 UTC`, as Docker's `CreatedAt`.
pub(crate) fn full(text: &str) -> String {
    parse(text).map_or_else(
        || text.to_owned(),
        |then| then.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string(),
    )
}

/// A point in time as `--since` takes it: RFC 3339, a date, Unix seconds, or a span back from now
/// (`42m`).
pub(crate) fn point(text: &str) -> Option<Timestamp> {
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
pub(crate) fn span(text: &str) -> Option<SignedDuration> {
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
    fn words_are_dockers() {
        for (seconds, text) in [
            (0, "Less than a second"),
            (1, "1 second"),
            (59, "59 seconds"),
            (61, "About a minute"),
            (125, "2 minutes"),
            (3600, "About an hour"),
            (7300, "2 hours"),
            (3 * 86400, "3 days"),
            (21 * 86400, "3 weeks"),
            (90 * 86400, "3 months"),
            (3 * 365 * 86400, "3 years"),
        ] {
            assert_eq!(human(SignedDuration::from_secs(seconds)), text);
        }
    }

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
