//! Computes how limits are enforced, and tells what this host cannot enforce.
//!
//! What cannot be enforced is a warning, as in Docker without root; with `--strict` it is an error.

use super::{Cgroup, Namespaces, Rlimit, Source, security};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::spec::{ContainerConfig, Limits};
use std::path::Path;

/// A delegated control group, or a systemd scope around this program, or (processors only)
/// affinity.
#[derive(Debug, Default)]
pub(super) struct Enforced {
    pub(super) cgroup: Option<Cgroup>,
    pub(super) affinity: Vec<usize>,
    pub(super) wrapper: Option<Vec<String>>,
}

pub(super) fn enforced(
    config: &ContainerConfig,
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Result<Enforced> {
    let limits = &config.limits;
    let affinity = match &limits.cpuset_cpus {
        Some(text) => cpu_list(text)?,
        None => Vec::new(),
    };
    let settings = cgroup_settings(limits)?;
    let only_affinity = Enforced { affinity, ..Enforced::default() };
    if settings.is_empty() {
        return Ok(only_affinity);
    }
    let delegated = facts.cgroup.as_ref();
    let has = |setting: &Setting| {
        let controllers = delegated.map_or(&[][..], |group| &group.controllers);
        controllers.iter().any(|known| known == setting.controller())
    };
    if !settings.iter().all(has)
        && let Some(program) = &facts.systemd_run
    {
        return Ok(Enforced { wrapper: Some(scope(program, limits)), ..only_affinity });
    }
    let (there, missing): (Vec<Setting>, Vec<Setting>) = settings.into_iter().partition(has);
    if !missing.is_empty() {
        let flags: Vec<&str> = missing.iter().map(|setting| setting.flag).collect();
        let flags = flags.join(", ");
        if config.strict {
            return Err(no_group(&flags));
        }
        warnings.push(format!(
            "without effect: {flags}: no control group is delegated to the caller for that \
             ('coracle doctor' shows what is there; --strict makes this an error)"
        ));
    }
    let cgroup = delegated.filter(|_| !there.is_empty()).map(|delegated| {
        let id = config.id.get(..12).unwrap_or("run");
        let name = format!("{}{id}", super::CGROUP_PREFIX);
        let settings = there.into_iter().map(|setting| (setting.file.to_owned(), setting.value));
        Cgroup { parent: delegated.path.clone(), name, settings: settings.collect() }
    });
    Ok(Enforced { cgroup, ..only_affinity })
}

fn no_group(flag: &str) -> Error {
    Error::Missing {
        what: flag.into(),
        needs: "a delegated cgroup v2 directory, or systemd-run --user with a running user manager"
            .into(),
        hint: Some(
            "log in so that a user manager of systemd runs (loginctl enable-linger), or start this inside \
             'systemd-run --user --scope -p Delegate=yes'; a batch system can set limits too; `coracle doctor` shows what is there; \
             without --strict it is a warning"
                .into(),
        ),
    }
}

/// One value of a control group, and the flag that asks for it.
struct Setting {
    flag: &'static str,
    /// `CONTROLLER.NAME`; see the kernel's admin-guide/cgroup-v2.
    file: &'static str,
    value: String,
}

impl Setting {
    fn controller(&self) -> &'static str {
        self.file.split('.').next().unwrap_or_default()
    }
}

/// What changes in a container's control group where its limits do: files and values.
///
/// # Errors
/// The new limits contradict each other.
pub fn changed_settings(old: &Limits, new: &Limits) -> Result<Vec<(&'static str, String)>> {
    let pairs = |settings: Vec<Setting>| settings.into_iter().map(|one| (one.file, one.value));
    // Recorded limits are those of a container that was made with them.
    let old: Vec<_> = pairs(cgroup_settings(old).unwrap_or_default()).collect();
    let new: Vec<_> = pairs(cgroup_settings(new)?).collect();
    let gone = old.iter().filter(|(file, _)| !new.iter().any(|(other, _)| other == file));
    let mut changed: Vec<_> = gone.map(|(file, _)| (*file, unlimited(file).to_owned())).collect();
    changed.extend(new.iter().filter(|setting| !old.contains(setting)).cloned());
    Ok(changed)
}

/// The content of a control group's file without a limit.
fn unlimited(file: &str) -> &'static str {
    match file {
        "cpu.weight" => "100",
        "memory.low" => "0",
        _ => "max",
    }
}

fn cgroup_settings(limits: &Limits) -> Result<Vec<Setting>> {
    let mut settings = Vec::new();
    let mut set = |flag, file, value| settings.push(Setting { flag, file, value });
    if let Some(cpus) = limits.cpus {
        if !(cpus.is_finite() && cpus >= 0.01) {
            return Err(Error::Invalid {
                what: "--cpus".into(),
                value: cpus.to_string(),
                why: "at least 0.01 is needed".into(),
            });
        }
        set("--cpus", "cpu.max", format!("{} 100000", (cpus * 100_000.0) as u64));
    }
    if let Some(shares) = limits.cpu_shares {
        set("--cpu-shares", "cpu.weight", weight(shares).to_string());
    }
    if let Some(memory) = limits.memory {
        set("--memory", "memory.max", memory.to_string());
    }
    if let Some(memory) = limits.memory_reservation {
        set("--memory-reservation", "memory.low", memory.to_string());
    }
    if let Some(swap) = swap(limits)? {
        set("--memory-swap", "memory.swap.max", swap);
    }
    if let Some(pids) = limits.pids {
        set("--pids-limit", "pids.max", pids.to_string());
    }
    Ok(settings)
}

/// Docker's shares (2 to 262144) as a weight of version 2 (1 to 10000), as runtimes compute it.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// What `--memory-swap` leaves for swap: Docker's number counts memory as well.
fn swap(limits: &Limits) -> Result<Option<String>> {
    let invalid = |value: i64, why: &str| Error::Invalid {
        what: "--memory-swap".into(),
        value: value.to_string(),
        why: why.into(),
    };
    match (limits.memory_swap, limits.memory) {
        (None, _) => Ok(None),
        (Some(-1), _) => Ok(Some("max".into())),
        (Some(both), Some(memory)) => u64::try_from(both)
            .ok()
            .and_then(|both| both.checked_sub(memory))
            .map(|swap| Some(swap.to_string()))
            .ok_or_else(|| invalid(both, "it counts memory too, so it cannot be below --memory")),
        (Some(both), None) => Err(invalid(both, "it needs --memory")),
    }
}

/// The command that starts this program inside a scope of the user's systemd.
fn scope(program: &Path, limits: &Limits) -> Vec<String> {
    let mut words: Vec<String> = vec![program.display().to_string()];
    words.extend(["--user", "--scope", "--quiet", "--collect"].map(String::from));
    let mut property = |text: String| words.extend(["-p".to_owned(), text]);
    if let Some(cpus) = limits.cpus {
        property(format!("CPUQuota={}%", (cpus * 100.0).round() as u64));
    }
    if let Some(shares) = limits.cpu_shares {
        property(format!("CPUWeight={}", weight(shares)));
    }
    if let Some(memory) = limits.memory {
        property(format!("MemoryMax={memory}"));
    }
    if let Some(memory) = limits.memory_reservation {
        property(format!("MemoryLow={memory}"));
    }
    if let Ok(Some(swap)) = swap(limits) {
        let swap = if swap == "max" { "infinity" } else { &swap };
        property(format!("MemorySwapMax={swap}"));
    }
    if let Some(pids) = limits.pids {
        property(format!("TasksMax={pids}"));
    }
    words.push("--".into());
    words
}

/// Parses `0-3,8`.
pub(super) fn cpu_list(text: &str) -> Result<Vec<usize>> {
    let invalid = || Error::Invalid {
        what: "--cpuset-cpus".into(),
        value: text.into(),
        why: "a list such as 0-3,8 is needed".into(),
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| invalid())?;
        let last: usize = last.trim().parse().map_err(|_| invalid())?;
        if first > last || last >= 1024 {
            return Err(invalid());
        }
        all.extend(first..=last);
    }
    Ok(all)
}

/// `--ulimit`. The kernel lets a caller without privilege lower a hard limit only.
pub(super) fn rlimits(
    config: &ContainerConfig,
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Result<Vec<Rlimit>> {
    let asked = &config.limits.ulimits;
    let mut limits = security::rlimits(asked)?;
    for (limit, asked) in limits.iter_mut().zip(asked) {
        let most = facts.hard_limits.get(limit.resource as usize).copied();
        let most = most.unwrap_or(u64::MAX);
        if limit.hard.max(limit.soft) <= most {
            continue;
        }
        if config.strict {
            return Err(Error::Invalid {
                what: "--ulimit".into(),
                value: asked.name.clone(),
                why: format!("the caller's hard limit is {most}; without --strict that is taken"),
            });
        }
        warnings.push(format!(
            "--ulimit {}: the caller's hard limit is {most}, so that is set",
            asked.name
        ));
        (limit.soft, limit.hard) = (limit.soft.min(most), limit.hard.min(most));
    }
    Ok(limits)
}

/// `--oom-score-adj`. Without privilege it can be raised.
pub(super) fn oom_score(
    config: &ContainerConfig,
    facts: &Facts,
    warnings: &mut Vec<String>,
) -> Result<Option<i32>> {
    let Some(score) = config.limits.oom_score_adj else { return Ok(None) };
    let callers = facts.oom_score_adj.unwrap_or(0);
    if score >= callers {
        return Ok(Some(score));
    }
    if config.strict {
        return Err(Error::Invalid {
            what: "--oom-score-adj".into(),
            value: score.to_string(),
            why: format!("the caller's is {callers}, and lowering it needs privilege"),
        });
    }
    warnings.push(format!(
        "--oom-score-adj {score} has no effect: the caller's is {callers}, and lowering it needs \
         privilege"
    ));
    Ok(None)
}

/// `--sysctl`: what a namespace of the container's own has.
pub(super) fn sysctls(
    config: &ContainerConfig,
    namespaces: &Namespaces,
    warnings: &mut Vec<String>,
) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for (name, value) in &config.sysctls {
        let path = name.replace('.', "/");
        let ipc = ["kernel/shm", "kernel/msg", "kernel/sem", "fs/mqueue/"];
        let (own, needs) = if path.starts_with("net/") {
            (namespaces.net == Source::New, "a network of its own: --network private or none")
        } else if ipc.iter().any(|prefix| path.starts_with(prefix)) {
            (namespaces.ipc == Source::New, "--ipc private")
        } else {
            (false, "privilege: it is the whole host's")
        };
        if own {
            all.push((path, value.clone()));
            continue;
        }
        if config.strict {
            return Err(Error::Missing {
                what: format!("--sysctl {name}"),
                needs: needs.into(),
                hint: None,
            });
        }
        warnings.push(format!("--sysctl {name} has no effect: it needs {needs}"));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_is_written() {
        let old = Limits { cpus: Some(1.5), memory: Some(1 << 20), ..Limits::default() };
        let new = Limits { memory: Some(2 << 20), pids: Some(7), ..Limits::default() };
        let wanted = [("cpu.max", "max"), ("memory.max", "2097152"), ("pids.max", "7")];
        let wanted = wanted.map(|(file, value)| (file, value.to_owned()));
        assert_eq!(changed_settings(&old, &new).unwrap(), wanted);
        assert_eq!(changed_settings(&new, &new).unwrap(), []);
        let wrong = Limits { memory_swap: Some(1), ..new.clone() };
        assert!(changed_settings(&new, &wrong).is_err());
    }
}
