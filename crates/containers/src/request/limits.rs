//! `--memory`, `--cpus`, `--pids-limit`, `--cpuset-cpus`, `--shm-size`, `--ulimit`.

use engine::spec::{Limits, Ulimit};

use crate::args::run::{FileFlags, ResourceFlags};
use crate::output::size;
use crate::report::Report;

/// Reads all limits.
pub(crate) fn parse(flags: &ResourceFlags, files: &FileFlags) -> Result<Limits, Report> {
    Ok(Limits {
        cpus: flags.cpus.as_deref().map(cpus).transpose()?.flatten(),
        memory: bytes("--memory", flags.memory.as_deref())?,
        pids: flags
            .pids_limit
            .and_then(|limit| u64::try_from(limit).ok())
            .filter(|limit| *limit > 0),
        cpuset_cpus: flags.cpuset_cpus.clone().filter(|list| !list.is_empty()),
        ulimits: flags.ulimit.iter().map(|text| ulimit(text)).collect::<Result<_, _>>()?,
        shm_size: bytes("--shm-size", files.shm_size.as_deref())?,
    })
}

fn bytes(flag: &str, text: Option<&str>) -> Result<Option<u64>, Report> {
    match text {
        None | Some("0" | "-1") => Ok(None),
        Some(text) => size::parse(text).map(Some).ok_or_else(|| {
            Report::usage(format!("{flag} '{text}' is no size"))
                .hint("write a number with b, k, m or g, as 512m")
        }),
    }
}

fn cpus(text: &str) -> Result<Option<f64>, Report> {
    match text.parse::<f64>() {
        Ok(0.0) => Ok(None),
        Ok(number) if number.is_finite() && number > 0.0 => Ok(Some(number)),
        _ => Err(Report::usage(format!("--cpus '{text}' is no number of processors"))
            .hint("write 2 or 1.5")),
    }
}

fn ulimit(text: &str) -> Result<Ulimit, Report> {
    let wrong = || {
        Report::usage(format!("--ulimit '{text}' is no limit"))
            .hint("write TYPE=SOFT[:HARD], as nofile=1024:4096 or core=unlimited")
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
    fn flags_to_numbers() {
        let flags = ResourceFlags {
            cpus: Some("1.5".into()),
            memory: Some("512m".into()),
            pids_limit: Some(-1),
            ulimit: vec!["nofile=1024:4096".into(), "core=-1".into()],
            cpuset_cpus: Some("0-1".into()),
        };
        let files = FileFlags { shm_size: Some("64m".into()), ..FileFlags::default() };
        let limits = parse(&flags, &files).unwrap();
        assert_eq!(limits.memory, Some(512 << 20));
        assert_eq!(limits.cpus, Some(1.5));
        assert_eq!(limits.pids, None);
        assert_eq!(limits.shm_size, Some(64 << 20));
        assert_eq!(
            limits.ulimits[0],
            Ulimit { name: "nofile".into(), soft: Some(1024), hard: Some(4096) }
        );
        assert_eq!(limits.ulimits[1], Ulimit { name: "core".into(), soft: None, hard: None });
        for wrong in ["nofile", "nofile=x", "=1", "nofile=2:1", "nofile=-1:5"] {
            assert!(ulimit(wrong).is_err(), "{wrong}");
        }
        assert!(bytes("--memory", Some("lots")).is_err());
        assert!(cpus("-1").is_err());
    }
}
