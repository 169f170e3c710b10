//! Changes the limits and the restart policy of a container that exists.
//!
//! The record is changed, so they hold from the next start. The limits of a running container are
//! those of its control group, which is changed too where it has one of its own.

use engine::plan::changed_settings;
use engine::spec::{Limits, RestartPolicy};

use super::{record, running, told};
use crate::error::{Error, Result};
use crate::session::Session;

/// What is to be changed. The inner `None` removes the limit.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    /// `--cpus`.
    pub cpus: Option<Option<f64>>,
    /// `--cpu-shares`.
    pub cpu_shares: Option<Option<u64>>,
    /// `--cpuset-cpus`.
    pub cpuset_cpus: Option<Option<String>>,
    /// `--memory`, bytes.
    pub memory: Option<Option<u64>>,
    /// `--memory-swap`.
    pub memory_swap: Option<Option<i64>>,
    /// `--memory-reservation`, bytes.
    pub memory_reservation: Option<Option<u64>>,
    /// `--pids-limit`.
    pub pids: Option<Option<u64>>,
    /// `--restart`.
    pub restart: Option<RestartPolicy>,
}

impl Changes {
    fn limits(&self, old: &Limits) -> Limits {
        fn or<T: Clone>(new: Option<&T>, old: &T) -> T {
            new.unwrap_or(old).clone()
        }
        Limits {
            cpus: or(self.cpus.as_ref(), &old.cpus),
            cpu_shares: or(self.cpu_shares.as_ref(), &old.cpu_shares),
            cpuset_cpus: or(self.cpuset_cpus.as_ref(), &old.cpuset_cpus),
            memory: or(self.memory.as_ref(), &old.memory),
            memory_swap: or(self.memory_swap.as_ref(), &old.memory_swap),
            memory_reservation: or(self.memory_reservation.as_ref(), &old.memory_reservation),
            pids: or(self.pids.as_ref(), &old.pids),
            ..old.clone()
        }
    }
}

/// Changes a container's limits and restart policy.
pub fn update(session: &Session, name: &str, changes: &Changes) -> Result<()> {
    if *changes == Changes::default() {
        return Err(Error::invalid("update needs an option that says what to change")
            .with_hint("for example --memory 512m; 'coracle update --help' lists them"));
    }
    let container = record::find(session, name)?;
    running::is_here(&container)?;
    let lock = container.lock_exclusive()?;
    let mut record = record::read(&container)?;
    let old = record.config.limits.clone();
    let new = changes.limits(&old);
    let settings = changed_settings(&old, &new)?;
    if let Some(policy) = changes.restart {
        if record.config.auto_remove && policy != RestartPolicy::No {
            return Err(Error::conflict(format!(
                "{name} was made with --rm, and --restart and --rm exclude each other"
            )));
        }
        record.config.restart = policy;
    }
    record.config.limits = new;
    container.write(&record)?;
    drop(lock);
    told::tell(session, "update", &container, &record);
    let Some(pid) = running::member(&container)? else { return Ok(()) };
    let later = |what: &str, why: &str| {
        session.warn(&format!("{name} runs: {what} holds from its next start: {why}"));
    };
    if changes.restart.is_some() {
        later("--restart", "the running program's supervisor keeps the policy it began with");
    }
    if record.config.limits.cpuset_cpus != old.cpuset_cpus {
        later("--cpuset-cpus", "it is given to programs when they are started");
    }
    match engine::launch::cgroup::of(pid) {
        Some(group) => {
            for (file, value) in settings {
                if let Err(error) = engine::launch::cgroup::set(&group, file, &value) {
                    later(file, &error.to_string());
                }
            }
        }
        None if settings.is_empty() => {}
        None => later("the limit", "it has no control group of its own"),
    }
    Ok(())
}
