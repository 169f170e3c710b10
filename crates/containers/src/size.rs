//! Prints sizes as Docker does (decimal units, three digits) and reads them as Docker does (binary
//! units).

/// `77.8MB`, `0B`, `1.24GB`: three significant digits, as Docker's
/// `HumanSizeWithPrecision(size, 3)`.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1000.0 && unit + 1 < UNITS.len() {
        size /= 1000.0;
        unit += 1;
    }
    format!("{}{}", significant(size), UNITS[unit])
}

/// `1.172MiB`, `512B`: four significant digits of binary units, as Docker's `BytesSize`.
pub fn binary(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    #[expect(clippy::cast_precision_loss, reason = "four digits are shown")]
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let places = match size {
        n if n >= 999.95 => 0,
        n if n >= 99.995 => 1,
        n if n >= 9.9995 => 2,
        _ => 3,
    };
    let text = format!("{size:.places$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text.as_str()
    };
    format!("{text}{}", UNITS[unit])
}

/// Go's `%.3g` for numbers below 1000.
fn significant(number: f64) -> String {
    let places = match number {
        n if n >= 99.95 => 0,
        n if n >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{number:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Reads `512m`, `2g`, `64MiB`, `1.5G`, `4096`: powers of 1024 as in Docker's memory flags.
pub fn parse(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let end = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(end);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim();
    let power = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" if unit.is_empty() || unit == "b" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let bytes = number * 1024f64.powi(power);
    #[expect(clippy::cast_precision_loss, reason = "only the order of magnitude matters")]
    let limit = u64::MAX as f64;
    (bytes.is_finite() && bytes < limit).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed() {
        for (bytes, text) in [
            (0, "0B"),
            (999, "999B"),
            (1000, "1kB"),
            (1024, "1.02kB"),
            (77_812_345, "77.8MB"),
            (124_000_000, "124MB"),
            (1_239_999_999, "1.24GB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }

    #[test]
    fn binary_units() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1KiB"),
            (1536, "1.5KiB"),
            (1_228_931, "1.172MiB"),
            (25_276_502_016, "23.54GiB"),
            (131_072_000, "125MiB"),
        ] {
            assert_eq!(binary(bytes), text);
        }
    }

    #[test]
    fn read() {
        for (text, bytes) in [
            ("4096", Some(4096)),
            ("512m", Some(512 << 20)),
            ("2G", Some(2 << 30)),
            ("64MiB", Some(64 << 20)),
            ("64mb", Some(64 << 20)),
            ("1.5k", Some(1536)),
            ("7b", Some(7)),
            ("", None),
            ("x", None),
            ("5q", None),
            ("-1", None),
        ] {
            assert_eq!(parse(text), bytes, "{text}");
        }
    }
}
