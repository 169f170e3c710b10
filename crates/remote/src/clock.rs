//! Compares the clock of a host with this machine's. Nothing in Coracle depends on clocks, but the
//! times of logs, of files and in `status` are a host's own, and other programs may not start with
//! a wrong one.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds by which clocks may differ. An answer may be late by some of them.
const MANY: i64 = 30;

/// This machine's clock: seconds since 1970.
pub fn now() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs())
}

/// A warning about a host that has told this time at `now`; `None` if its clock is about right.
pub fn differs(host: &str, told: u64, now: u64) -> Option<String> {
    let ahead = told.cast_signed().saturating_sub(now.cast_signed());
    let way = if ahead > 0 { "ahead of" } else { "behind" };
    let seconds = ahead.unsigned_abs();
    (ahead.abs() > MANY).then(|| {
        format!(
            "the clock of {host} is {seconds} s {way} this machine's, and so are the times of its \
             logs and files; there, timedatectl or chronyc tracking tells more"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_told_with_its_host() {
        assert_eq!(differs("a", 1000, 1000 + MANY as u64), None);
        assert_eq!(differs("a", 1000 + MANY as u64, 1000), None);
        let behind = differs("b", 1000, 4600).unwrap();
        assert!(behind.starts_with("the clock of b is 3600 s behind this machine's"), "{behind}");
        let ahead = differs("b", 1_900_000_000, 1_800_000_000).unwrap();
        assert!(ahead.starts_with("the clock of b is 100000000 s ahead of"), "{ahead}");
    }
}
