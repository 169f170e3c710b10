//! The allocation that this process runs in, from the variables of its batch system.
//!
//! Slurm: `SLURM_JOB_ID` and `SLURM_JOB_NODELIST` (sbatch(1), "output environment variables"); the
//! list is expanded by `scontrol`. PBS: `PBS_JOBID`, and the file `PBS_NODEFILE` with a line for
//! each processor. LSF: `LSB_JOBID`, and the file `LSB_DJOB_HOSTFILE` or the list `LSB_HOSTS`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tool::ask;
use crate::error::{Error, Result};

/// The batch system of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// Slurm: `srun` starts a step on a host.
    Slurm,
    /// `OpenPBS`, Torque: hosts are reached by `ssh`.
    Pbs,
    /// IBM Spectrum LSF: hosts are reached by `ssh`.
    Lsf,
}

impl System {
    /// The word of the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Slurm => "slurm",
            Self::Pbs => "pbs",
            Self::Lsf => "lsf",
        }
    }
}

/// What a batch system has given this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// Who gave it.
    pub system: System,
    /// The job's id.
    pub id: String,
    /// The hosts, each once, in the batch system's order.
    pub hosts: Vec<String>,
    /// How long it lasts; `None` if it has no end, or the end is not known.
    pub time_left: Option<Duration>,
}

/// The allocation that this process runs in; `None` outside of one. `variable` gives the variables
/// of its environment.
///
/// # Errors
/// If the hosts of an allocation cannot be told.
pub fn allocation(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Allocation>> {
    let variable = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let (system, id) = if let Some(id) = variable("SLURM_JOB_ID") {
        (System::Slurm, id)
    } else if let Some(id) = variable("PBS_JOBID") {
        (System::Pbs, id)
    } else if let Some(id) = variable("LSB_JOBID") {
        (System::Lsf, id)
    } else {
        return Ok(None);
    };
    let (hosts, time_left) = match system {
        System::Slurm => {
            let list = variable("SLURM_JOB_NODELIST").ok_or_else(|| {
                Error::new(format!("SLURM_JOB_NODELIST is not set in job {id}"))
                    .with_hint("unset SLURM_JOB_ID to leave the allocation")
            })?;
            (host_names(&list)?, time_left(&id))
        }
        System::Pbs => (listed(variable("PBS_NODEFILE"), "PBS_NODEFILE")?, None),
        System::Lsf => match (variable("LSB_DJOB_HOSTFILE"), variable("LSB_HOSTS")) {
            (None, Some(list)) => (each_once(&list), None),
            (file, _) => (listed(file, "LSB_DJOB_HOSTFILE")?, None),
        },
    };
    if hosts.is_empty() {
        return Err(Error::new(format!("job {id} has no hosts")));
    }
    Ok(Some(Allocation { system, id, hosts, time_left }))
}

/// The hosts of a list in Slurm's short form, such as `n[1-3,7]`.
///
/// # Errors
/// If `scontrol` does not expand it.
pub(super) fn host_names(list: &str) -> Result<Vec<String>> {
    let answer = ask(&["scontrol", "show", "hostnames", list])?;
    if !answer.good {
        return Err(Error::new(format!("scontrol does not know hosts {list}: {}", answer.words())));
    }
    Ok(each_once(&answer.out))
}

/// The time that Slurm leaves to a running job.
fn time_left(id: &str) -> Option<Duration> {
    let answer = ask(&["squeue", "-h", "-j", id, "-o", "%L"]).ok()?;
    slurm_time(answer.out.lines().next()?)
}

/// Reads a time as Slurm prints it: `SS`, `MM:SS`, `HH:MM:SS` or `D-HH:MM:SS`. `None` for words
/// such as `UNLIMITED`.
pub(super) fn slurm_time(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let fields: Vec<u64> =
        clock.split(':').map(|field| field.parse().ok()).collect::<Option<_>>()?;
    if fields.len() > 3 {
        return None;
    }
    let seconds =
        fields.iter().try_fold(0_u64, |sum, field| sum.checked_mul(60)?.checked_add(*field));
    Some(Duration::from_secs(days.checked_mul(86_400)?.checked_add(seconds?)?))
}

/// The hosts of a file that a variable names.
fn listed(file: Option<String>, name: &str) -> Result<Vec<String>> {
    let file = file.ok_or_else(|| {
        let hint = "ask for hosts when the job is submitted, or for the site's own variable";
        Error::new(format!("the hosts of this job are not known: {name} is not set"))
            .with_hint(hint)
    })?;
    let text = std::fs::read_to_string(&file).map_err(|error| {
        Error::new(format!("cannot read the hosts of this job, {file}: {error}"))
    })?;
    Ok(each_once(&text))
}

/// The words of a text, each once, in its order.
pub(super) fn each_once(text: &str) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        if !seen.iter().any(|other| other == word) {
            seen.push(word.to_owned());
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_and_without_hosts() {
        assert_eq!(allocation(|_| None).unwrap(), None);
        // As a shell leaves them.
        assert_eq!(allocation(|_| Some(String::new())).unwrap(), None);
        for (id, name) in [
            ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"),
            ("PBS_JOBID", "PBS_NODEFILE"),
            ("LSB_JOBID", "LSB_DJOB_HOSTFILE"),
        ] {
            let error = allocation(|other| (other == id).then(|| "7".to_owned())).unwrap_err();
            assert!(error.to_string().contains(name) && error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn hosts_of_pbs_and_lsf() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("hosts").display().to_string();
        std::fs::write(&file, "a\na\nb\na\n").unwrap();
        let of = |given: &[(&str, &str)]| {
            let found = |name: &str| given.iter().find(|(other, _)| *other == name);
            allocation(|name| found(name).map(|(_, value)| (*value).to_owned())).unwrap().unwrap()
        };
        let job = of(&[("PBS_JOBID", "12.server"), ("PBS_NODEFILE", &file)]);
        assert_eq!((job.system, &*job.id), (System::Pbs, "12.server"));
        assert_eq!(job.hosts, ["a", "b"]);
        let job = of(&[("LSB_JOBID", "9"), ("LSB_HOSTS", "x x y x")]);
        assert_eq!((job.system, job.hosts), (System::Lsf, vec!["x".into(), "y".into()]));
        let both = [("LSB_JOBID", "9"), ("LSB_HOSTS", "x"), ("LSB_DJOB_HOSTFILE", &*file)];
        assert_eq!(of(&both).hosts, ["a", "b"]);
    }

    #[test]
    fn times_of_slurm() {
        for (text, seconds) in
            [("59", 59), ("1:02", 62), ("01:00:00", 3600), ("2-00:00:05", 172_805), ("0:00", 0)]
        {
            assert_eq!(slurm_time(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["UNLIMITED", "NOT_SET", "INVALID", "", "1:2:3:4", "99999999999999999-00:00:00"]
        {
            assert_eq!(slurm_time(text), None, "{text}");
        }
    }
}
