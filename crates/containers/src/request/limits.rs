//! Reads the text forms of limits: sizes, processors, processes, `--ulimit`.

use engine::spec::Ulimit;

use crate::error::{Error, Result};
use crate::size;

/// The highest number of processes; anything but a positive number means no limit.
pub fn pids(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|limit| *limit > 0)
}

/// A size in bytes; `0` and `-1` mean no limit. `flag` is where it was written.
pub fn bytes(flag: &str, text: &str) -> Result<Option<u64>> {
    match text {
        "0" | "-1" => Ok(None),
        text => size::parse(text).map(Some).ok_or_else(|| {
            Error::invalid(format!("{flag} '{text}' is not a size"))
                .with_hint("write a number with b, k, m or g, as 512m")
        }),
    }
}

/// A number of processors, which may be a fraction; 0 means no limit.
pub fn cpus(text: &str) -> Result<Option<f64>> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(None),
        Ok(number) if number.is_finite() && number > 0.0 => Ok(Some(number)),
        _ => Err(Error::invalid(format!("--cpus '{text}' is not a number of processors"))
            .with_hint("write 2 or 1.5")),
    }
}

/// `--cpu-quota` in microseconds of each `--cpu-period`, as a number of processors.
pub fn quota(quota: Option<i64>, period: Option<i64>, cpus: Option<f64>) -> Result<Option<f64>> {
    if cpus.is_some() && (quota.is_some() || period.is_some()) {
        return Err(Error::invalid("--cpus and --cpu-quota or --cpu-period exclude each other"));
    }
    let period = period.filter(|period| *period != 0).unwrap_or(100_000);
    if !(1_000..=1_000_000).contains(&period) {
        return Err(Error::invalid(format!(
            "--cpu-period {period} is not between 1000 and 1000000"
        )));
    }
    let number = |value: i64| f64::from(i32::try_from(value).unwrap_or(i32::MAX));
    match quota {
        None | Some(..=0) => Ok(cpus),
        Some(quota) => Ok(Some(number(quota) / number(period))),
    }
}

/// `--memory-swap`: a size that counts memory too; -1 for no limit, 0 for none given.
pub fn swap(text: &str) -> Result<Option<i64>> {
    if text == "-1" {
        return Ok(Some(-1));
    }
    Ok(bytes("--memory-swap", text)?.and_then(|bytes| i64::try_from(bytes).ok()))
}

/// `--oom-score-adj`.
pub fn oom_score(number: i32) -> Result<i32> {
    if (-1000..=1000).contains(&number) {
        return Ok(number);
    }
    Err(Error::invalid(format!("--oom-score-adj {number} is not between -1000 and 1000")))
}

/// `--umask`, an octal number.
pub fn umask(text: &str) -> Result<u32> {
    u32::from_str_radix(text, 8).ok().filter(|mask| *mask <= 0o777).ok_or_else(|| {
        Error::invalid(format!("--umask '{text}' is not a mask of permissions"))
            .with_hint("write an octal number, as 022")
    })
}

/// `--ulimit TYPE=SOFT[:HARD]`.
pub fn ulimit(text: &str) -> Result<Ulimit> {
    let wrong = || {
        Error::invalid(format!("--ulimit '{text}' is not a limit"))
            .with_hint("write TYPE=SOFT[:HARD], as nofile=1024:4096 or core=unlimited")
    };
    let (name, values) = text.split_once('=').ok_or_else(wrong)?;
    let (soft, hard) = values.split_once(':').unwrap_or((values, values));
    let number = |text: &str| match text {
        "-1" | "unlimited" => Ok(None),
        text => text.parse().map(Some).map_err(|_| wrong()),
    };
    let (soft, hard) = (number(soft)?, number(hard)?);
    let above = match (soft, hard) {
        (None, Some(_)) => true,
        (Some(soft), Some(hard)) => soft > hard,
        _ => false,
    };
    if name.is_empty() || above {
        return Err(wrong());
    }
    Ok(Ulimit { name: name.to_owned(), soft, hard })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_to_numbers() {
        assert_eq!(bytes("--memory", "512m").unwrap(), Some(512 << 20));
        assert_eq!(bytes("--memory", "-1").unwrap(), None);
        assert_eq!((cpus("1.5").unwrap(), cpus("0").unwrap()), (Some(1.5), None));
        assert_eq!((pids(-1), pids(7)), (None, Some(7)));
        let limit = |name: &str, soft, hard| Ulimit { name: name.into(), soft, hard };
        assert_eq!(ulimit("nofile=1024:4096").unwrap(), limit("nofile", Some(1024), Some(4096)));
        assert_eq!(ulimit("core=-1").unwrap(), limit("core", None, None));
        for wrong in ["nofile", "nofile=x", "=1", "nofile=2:1", "nofile=-1:5"] {
            assert!(ulimit(wrong).is_err(), "{wrong}");
        }
        assert_eq!(quota(Some(50_000), None, None).unwrap(), Some(0.5));
        assert_eq!(quota(Some(50_000), Some(10_000), None).unwrap(), Some(5.0));
        assert_eq!(quota(Some(-1), None, None).unwrap(), None);
        assert!(quota(Some(1), None, Some(1.0)).is_err());
        assert!(quota(None, Some(1), None).is_err());
        assert_eq!((swap("-1").unwrap(), swap("1k").unwrap()), (Some(-1), Some(1024)));
        assert_eq!(umask("0027").unwrap(), 0o27);
        assert!(umask("8").is_err() && umask("1777").is_err() && umask("u=rwx").is_err());
        assert!(oom_score(1001).is_err());
        assert!(bytes("--memory", "lots").is_err());
        assert!(cpus("-1").is_err());
    }
}
