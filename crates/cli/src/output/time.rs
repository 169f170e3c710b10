//! Prints times as Docker prints them (`2 hours ago`, `Up 3 minutes`).

use containers::time::point;
pub(crate) use containers::time::{now, parse};
use jiff::{SignedDuration, Timestamp};

use crate::report::Report;

/// The value of a flag as `--since`.
///
/// # Errors
/// If it is not a time.
pub(crate) fn flag(flag: &str, text: Option<&str>) -> Result<Option<Timestamp>, Report> {
    let read = |text: &str| {
        point(text).ok_or_else(|| {
            Report::usage(format!("{flag} '{text}' is not a time"))
                .hint("write 2026-01-02T13:23:37Z, 2026-01-02, or a span back from now as 42m")
        })
    };
    text.map(read).transpose()
}

/// A span in Docker's words.
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

/// `2 hours ago`; empty if the text is not a time.
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
}
