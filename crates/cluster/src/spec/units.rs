//! Times and sizes, as the file has them.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Reads a time: `10s`, `500ms`, `2h`, `1h30m`, or Slurm's `HH:MM:SS` and `D-HH:MM:SS`
/// (sbatch(1), `--time`). `None` for another form, or for nothing at all.
pub fn time(text: &str) -> Option<Duration> {
    if text.contains(':') { clock(text) } else { parts(text) }
}

fn clock(text: &str) -> Option<Duration> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (digits(days)?, clock),
        None => (0, text),
    };
    let fields: Vec<u64> = clock.split(':').map(digits).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = fields[..] else { return None };
    if minutes > 59 || seconds > 59 {
        return None;
    }
    let hours = days.checked_mul(24)?.checked_add(hours)?;
    hours.checked_mul(3600)?.checked_add(minutes * 60 + seconds).map(Duration::from_secs)
}

fn parts(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u64); 5] =
        [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let (mut rest, mut sum) = (text, 0_u64);
    if rest.is_empty() {
        return None;
    }
    // A smaller unit follows a greater one, and none comes twice.
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let number = digits(&rest[..end])?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = UNITS.iter().find(|(unit, _)| *unit == &rest[..end])?.1;
        if unit >= last {
            return None;
        }
        (last, rest) = (unit, &rest[end..]);
        sum = sum.checked_add(number.checked_mul(unit)?)?;
    }
    Some(Duration::from_millis(sum))
}

fn digits(text: &str) -> Option<u64> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if all { text.parse().ok() } else { None }
}

/// Reads a size in bytes: a number, and `K`, `M`, `G` or `T`, powers of 1024 as Docker has them,
/// with or without `B` or `iB` behind. `None` for another form.
pub fn size(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = digits(&text[..end])?;
    let unit = text[end..].to_ascii_uppercase();
    let unit = unit.strip_suffix("IB").or_else(|| unit.strip_suffix('B')).unwrap_or(&unit);
    let shift = ["", "K", "M", "G", "T"].iter().position(|one| *one == unit)?;
    number.checked_mul(1 << (10 * shift))
}

/// A time in the form that [`time`] reads.
pub fn spell(time: Duration) -> String {
    let mut rest = time.as_millis() as u64;
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)]
    {
        if rest >= size {
            let _ = write!(text, "{}{unit}", rest / size);
            rest %= size;
        }
    }
    text
}

/// The time since a moment, in the same form.
pub(crate) fn spell_since(moment: Instant) -> String {
    spell(moment.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, millis) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("00:30:00", 1_800_000),
            ("1-00:00:01", 86_401_000),
        ] {
            assert_eq!(time(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "10 s", "1.5h", "-1s", "1m1h", "1s1s", "30:00", "1:60:00"] {
            assert_eq!(time(text), None, "{text}");
        }
        assert_eq!(spell(Duration::from_millis(5_400_250)), "1h30m250ms");
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("512", 512), ("2G", 2 << 30), ("1kb", 1024), ("3MiB", 3 << 20)] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "2X", "-1M", "1.5G", "99999999999999T"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
