//! Prepares servers' texts for messages: limits their length, and removes control characters that
//! would affect the user's terminal.

use std::io::{self, Read};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Deserialize;

use crate::http::Response;
use crate::{Error, limits};

const MESSAGE_MAX: usize = 300;

/// Removes control characters and truncates.
pub(crate) fn clean(text: &str, most: usize) -> String {
    let plain: String =
        text.chars().map(|c| if c.is_control() || c == '\u{202e}' { ' ' } else { c }).collect();
    let words: Vec<&str> = plain.split_whitespace().collect();
    let mut line = words.join(" ");
    if let Some((end, _)) = line.char_indices().nth(most) {
        line.truncate(end);
        line.push_str("...");
    }
    line
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names of the protocols")]
struct Errors {
    #[serde(default)]
    errors: Vec<One>,
    message: Option<String>,
    error_description: Option<String>,
    details: Option<String>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct One {
    code: Option<String>,
    message: Option<String>,
}

/// The messages in an error's body: the distribution specification's `errors`, a token server's
/// `details`, OAuth's `error_description`, or nothing.
pub(crate) fn error_words(body: &[u8]) -> String {
    let Ok(errors) = serde_json::from_slice::<Errors>(body) else {
        // A proxy's HTML page does not fit into one line; a short plain text does.
        let text = String::from_utf8_lossy(body);
        let plain = text.len() <= 200 && !text.contains('<') && !text.trim_start().starts_with('{');
        return if plain { clean(&text, MESSAGE_MAX) } else { String::new() };
    };
    let first = errors.errors.first().map(|one| {
        let code = one.code.as_deref().unwrap_or_default().to_lowercase().replace('_', " ");
        match one.message.as_deref() {
            Some(message) if !message.is_empty() => message.to_owned(),
            _ => code,
        }
    });
    let words = first
        .or(errors.error_description)
        .or(errors.details)
        .or(errors.message)
        .or_else(|| Some(errors.error?.as_str()?.to_owned()));
    clean(&words.unwrap_or_default(), MESSAGE_MAX)
}

/// Reads a body that must not be longer than `limit`.
pub(crate) fn read_limited(
    body: impl Read,
    limit: u64,
    what: impl Fn() -> String,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    body.take(limit + 1).read_to_end(&mut bytes).map_err(|e| {
        Error::from_io(e).unwrap_or_else(|e| Error::Broken { host: what(), reason: e.to_string() })
    })?;
    if bytes.len() as u64 > limit {
        return Err(Error::TooLarge { what: what(), limit });
    }
    Ok(bytes)
}

/// The slowest a document or a layer may come on average, in bytes per second. A modem is faster; a
/// server that sends a byte now and then would otherwise be waited for without end.
const SLOWEST: u64 = 256;

/// Reads a body, and fails if it comes slower than [`SLOWEST`] after a time of grace.
pub(crate) struct InTime<R> {
    body: R,
    begun: Instant,
    grace: Duration,
    received: u64,
    what: String,
}

impl<R> InTime<R> {
    pub(crate) fn new(body: R, grace: Duration, what: String) -> Self {
        Self { body, begun: Instant::now(), grace, received: 0, what }
    }
}

impl<R: Read> Read for InTime<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.body.read(buffer)?;
        self.received += count as u64;
        let taken = self.begun.elapsed();
        if count > 0 && taken > self.grace + Duration::from_secs(self.received / SLOWEST) {
            let (what, bytes) = (std::mem::take(&mut self.what), self.received);
            return Err(Error::TooSlow { what, bytes, seconds: taken.as_secs() }.into_io());
        }
        Ok(count)
    }
}

/// Reads a body of any length, and fails where one window of waiting brings less than [`SLOWEST`].
/// What its reader does between two reads, such as unpacking to a slow disk, does not count.
pub(crate) struct Paced<R> {
    body: R,
    window: Duration,
    waited: Duration,
    received: u64,
    what: String,
}

impl<R> Paced<R> {
    pub(crate) fn new(body: R, window: Duration, what: String) -> Self {
        Self { body, window, waited: Duration::ZERO, received: 0, what }
    }
}

impl<R: Read> Read for Paced<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        let count = self.body.read(buffer)?;
        self.waited += begun.elapsed();
        self.received += count as u64;
        if self.waited < self.window {
            return Ok(count);
        }
        let (bytes, waited) = (self.received, self.waited);
        (self.received, self.waited) = (0, Duration::ZERO);
        if count > 0 && u128::from(bytes) * 1000 < waited.as_millis() * u128::from(SLOWEST) {
            let (what, seconds) = (self.what.clone(), waited.as_secs());
            return Err(Error::TooSlow { what, bytes, seconds }.into_io());
        }
        Ok(count)
    }
}

/// The messages of an unsuccessful response; errors while reading them are ignored.
pub(crate) fn messages_of(response: Response) -> String {
    let mut body = Vec::new();
    let _ = response.body.take(limits::ERROR_BODY).read_to_end(&mut body);
    error_words(&body)
}

/// `Retry-After`: seconds or a date (RFC 9110, section 10.2.3).
pub(crate) fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = parse_date(value)?;
    let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some(Duration::from_secs(at.saturating_sub(now)))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` in seconds since 1970.
fn parse_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let [_, day, month, year, time, "GMT"] = *words.as_slice() else {
        return None;
    };
    let day: u64 = day.parse().ok()?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let year: u64 = year.parse().ok()?;
    let mut clock = time.splitn(3, ':').map(|part| part.parse::<u64>().ok().filter(|n| *n < 61));
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let days = crate::date::days(year, month, day)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let body = br#"{"errors":[{"code":"DENIED","message":"no \u001b[31m way\n"}]}"#;
        assert_eq!(error_words(body), "no [31m way");
        assert_eq!(error_words(br#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#), "name unknown");
        assert_eq!(
            error_words(br#"{"details":"incorrect username or password"}"#),
            "incorrect username or password"
        );
        assert_eq!(error_words(b"<html>x</html>"), "");
        assert_eq!(error_words(b"Client sent an HTTP request"), "Client sent an HTTP request");
        assert_eq!(error_words(b""), "");
        assert_eq!(clean(&"x".repeat(400), 10), format!("{}...", "x".repeat(10)));
    }

    #[test]
    fn waits() {
        let now = UNIX_EPOCH + Duration::from_secs(784_111_770);
        let wait = |text| retry_after(text, now).map(|d| d.as_secs());
        assert_eq!(wait("12"), Some(12));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(7));
        assert_eq!(wait("Sun, 06 Nov 1993 08:49:37 GMT"), Some(0));
        assert_eq!(parse_date("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        assert_eq!(parse_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        for bad in ["", "-1", "soon", "Sun, 06 Nov 1994", "Sun, 99 Nov 1994 08:49:37 GMT"] {
            assert_eq!(wait(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_byte_now_and_then_is_too_slow() {
        struct Drops;
        impl Read for Drops {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                std::thread::sleep(Duration::from_millis(5));
                buffer[0] = b'x';
                Ok(1)
            }
        }
        let slow = InTime::new(Drops, Duration::from_millis(50), "a manifest".to_owned());
        let error = read_limited(slow, 100_000, String::new).unwrap_err();
        assert!(matches!(error, Error::TooSlow { bytes: 1..=11, .. }), "{error}");
        let slow = Paced::new(Drops, Duration::from_millis(50), "a layer".to_owned());
        let error = read_limited(slow, 100_000, String::new).unwrap_err();
        assert!(matches!(error, Error::TooSlow { bytes: 1..=11, .. }), "{error}");
        let early = InTime::new(Drops.take(20), Duration::from_mins(1), String::new());
        assert_eq!(read_limited(early, 100, String::new).unwrap().len(), 20);
    }

    #[test]
    fn limits_hold() {
        assert_eq!(read_limited(&b"abc"[..], 3, String::new).unwrap(), b"abc");
        assert!(matches!(
            read_limited(&b"abcd"[..], 3, String::new),
            Err(Error::TooLarge { limit: 3, .. })
        ));
    }
}
