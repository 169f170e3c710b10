//! Date arithmetic.

/// Days from 1970-01-01 to a date in the Gregorian calendar (Howard Hinnant's `days_from_civil`,
/// years beginning in March); `None` before 1970 and for invalid dates.
pub(crate) fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted / 400;
    let of_era = shifted - era * 400;
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

#[cfg(test)]
mod tests {
    use super::days;

    #[test]
    fn known_days() {
        assert_eq!(days(1970, 1, 1), Some(0));
        assert_eq!(days(2000, 3, 1), Some(11_017));
        assert_eq!(days(2024, 2, 29), Some(19_782));
        assert_eq!(days(1969, 12, 31), None);
        assert_eq!(days(2024, 13, 1), None);
    }
}
