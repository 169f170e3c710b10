//! Computes a plan from a request. Pure: it touches no file and no process.

use super::namespaces::{Neighbour, namespaces};
use super::{Capabilities, Cgroup, Ids, Plan, Process, Root, Source, identity, mounts, security};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::spec::{ContainerConfig, Limits, MountSpec, UserNamespace};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What differs from the container's own configuration for one `run` or `exec`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    /// Another command, whole.
    pub command: Option<Vec<String>>,
    /// `KEY=VALUE`, over the container's.
    pub env: Vec<String>,
    /// Another working directory.
    pub cwd: Option<String>,
    /// Another user.
    pub user: Option<String>,
    /// A terminal or not.
    pub tty: Option<bool>,
    /// Mounts besides the container's; they need a start of its own, so the run is `alone`.
    pub mounts: Vec<MountSpec>,
    /// `exec --privileged`: all capabilities of the namespace and no filter.
    pub privileged: bool,
    /// The process was already started inside limits (after [`Plan::wrapper`] was obeyed).
    pub limits_hold: bool,
    /// This is an `exec`: nothing is created in the container, and limits hold already.
    pub exec: bool,
}

/// Everything a plan is computed from.
pub struct Request<'a> {
    /// The container.
    pub config: &'a ContainerConfig,
    /// Its files.
    pub root: &'a Root,
    /// Its directory in the store.
    pub place: &'a Path,
    /// Caller and host.
    pub facts: &'a Facts,
    /// What differs this time.
    pub overrides: &'a Overrides,
    /// Ids are not the kernel's to map: no map restricts them.
    pub own_ids: bool,
    /// The engine answers root's own calls.
    pub fake_root: bool,
    /// The container's users.
    pub accounts: &'a dyn super::Accounts,
    /// A process in a running container, by name or id (`--join`, `--pid container:X`).
    pub running: &'a dyn Fn(&str) -> Option<Neighbour>,
}

/// Computes the plan.
pub fn plan(request: &Request<'_>) -> Result<Plan> {
    let config = request.config;
    let mut warnings = Vec::new();
    let person = identity::person(
        request.overrides.user.as_deref().unwrap_or(&config.user),
        config.namespaces.user,
        request.facts,
        request.accounts,
    )?;
    // An `exec --user` must fit the map that the container was started with.
    let first = match &request.overrides.user {
        Some(_) => {
            identity::person(&config.user, config.namespaces.user, request.facts, request.accounts)?
        }
        None => person.clone(),
    };
    let owner = if request.overrides.exec { &first } else { &person };
    let by_view = is_by_view(request, owner);
    let ids = if request.own_ids {
        identity::single(owner, request.facts)
    } else if by_view {
        identity::root_alone(request.facts)
    } else {
        identity::ids(owner, config.namespaces.user, request.facts)?
    };
    let hostname = config.hostname.clone().filter(|name| !name.is_empty());
    let (namespaces, network) = namespaces(request, hostname.as_deref(), &mut warnings)?;
    let hostname = match (namespaces.uts, hostname) {
        (Source::New, None) => Some(config.id.chars().take(12).collect()),
        (_, name) => name,
    };
    // On the host's terminals another user than root of a range has no right, and mostly cannot be
    // given it.
    let own_terminals = config.tty && first.uid != 0 && matches!(ids, Ids::Range { .. });
    let (list, files) =
        mounts::mounts(request, &namespaces, &network, hostname.as_deref(), own_terminals)?;
    let (cgroup, affinity, wrapper) = limits(request)?;
    let can = request.own_ids || by_view;
    let emulate_root = request.fake_root && can && config.namespaces.user != UserNamespace::Host;
    if !emulate_root && !request.own_ids {
        check_mapped(&person, &ids)?;
    }
    Ok(Plan {
        container: config.id.clone(),
        place: request.place.into(),
        root: request.root.clone(),
        read_only_root: config.read_only,
        process: process(request, &person, (&ids, by_view), hostname.as_deref(), affinity)?,
        user: (owner.uid, owner.gid),
        ids,
        added: request.overrides.mounts.clone(),
        namespaces,
        mounts: list,
        hostname: hostname.filter(|_| namespaces.uts == Source::New),
        network,
        cgroup,
        emulate_root,
        helpers: helpers(request.facts),
        switches: switches(request.facts, &mut warnings),
        beside_image: None,
        isolate: config.security.isolate,
        init: config.init && !request.overrides.exec,
        files,
        wrapper,
        warnings,
    })
}

/// Whether ids are emulated in a namespace with one id. Who runs as the caller needs none of that.
fn is_by_view(request: &Request<'_>, owner: &identity::Person) -> bool {
    let facts = request.facts;
    request.fake_root
        && !request.own_ids
        && cfg!(target_arch = "x86_64")
        && request.config.namespaces.user == UserNamespace::Auto
        && !facts.has_range()
        && facts.no_texts.is_none()
        && facts.uid != 0
        && owner.uid != facts.uid
}

/// The programs of the host that the engine may need.
fn helpers(facts: &Facts) -> BTreeMap<String, PathBuf> {
    facts.helpers.iter().map(|(key, found)| (key.clone(), found.path.clone())).collect()
}

/// Features that the backend inside processes does not use.
fn switches(facts: &Facts, warnings: &mut Vec<String>) -> u64 {
    match abi::shared::Switches::parse(&facts.switches) {
        Ok(switches) => switches.0,
        Err(unknown) => {
            let variable = crate::facts::SWITCHES;
            warnings.push(format!("{variable} has no switch '{unknown}', so it has no effect"));
            0
        }
    }
}

fn check_mapped(person: &identity::Person, ids: &Ids) -> Result<()> {
    let (uids, gids) = ids.lines();
    for (kind, id, lines) in [("user", person.uid, uids), ("group", person.gid, gids)] {
        if !lines.iter().any(|line| id.wrapping_sub(line.inside) < line.count) {
            return Err(Error::UnmappedId { kind: kind.into(), id });
        }
    }
    Ok(())
}

/// How limits are enforced: a delegated control group, or a systemd scope around this program, or
/// (processors only) affinity.
type Enforced = (Option<Cgroup>, Vec<usize>, Option<Vec<String>>);

fn limits(request: &Request<'_>) -> Result<Enforced> {
    let limits = &request.config.limits;
    if request.overrides.limits_hold || request.overrides.exec {
        return Ok((None, Vec::new(), None));
    }
    let affinity = match &limits.cpuset_cpus {
        Some(text) => cpu_list(text)?,
        None => Vec::new(),
    };
    let (settings, needed) = cgroup_settings(limits)?;
    if settings.is_empty() {
        return Ok((None, affinity, None));
    }
    let facts = request.facts;
    if let Some(delegated) = &facts.cgroup {
        let has = |name: &&str| delegated.controllers.iter().any(|known| known == name);
        if needed.iter().all(has) {
            let id = request.config.id.get(..12).unwrap_or("run");
            let name = format!("{}{id}", super::CGROUP_PREFIX);
            let cgroup = Cgroup { parent: delegated.path.clone(), name, settings };
            return Ok((Some(cgroup), affinity, None));
        }
    }
    if let Some(program) = &facts.systemd_run {
        return Ok((None, affinity, Some(scope(program, limits))));
    }
    Err(Error::Missing {
        what: format!("a limit on {}", needed.join(", ")),
        needs: "a delegated cgroup v2 directory, or systemd-run --user with a running user manager"
            .into(),
        hint: Some(
            "log in so that a user manager of systemd runs (loginctl enable-linger), or start this inside \
             'systemd-run --user --scope -p Delegate=yes'; a batch system can set limits too; `coracle doctor` shows what is there"
                .into(),
        ),
    })
}

/// Values by file, and the controllers needed.
type Settings = (Vec<(String, String)>, Vec<&'static str>);

/// Files of cgroup v2 and the controllers they belong to; see the kernel's admin-guide/cgroup-v2.
fn cgroup_settings(limits: &Limits) -> Result<Settings> {
    let (mut settings, mut needed) = (Vec::new(), Vec::new());
    if let Some(cpus) = limits.cpus {
        if !(cpus.is_finite() && cpus >= 0.01) {
            return Err(Error::Invalid {
                what: "--cpus".into(),
                value: cpus.to_string(),
                why: "at least 0.01 is needed".into(),
            });
        }
        settings.push(("cpu.max".into(), format!("{} 100000", (cpus * 100_000.0) as u64)));
        needed.push("cpu");
    }
    if let Some(memory) = limits.memory {
        settings.push(("memory.max".into(), memory.to_string()));
        needed.push("memory");
    }
    if let Some(pids) = limits.pids {
        settings.push(("pids.max".into(), pids.to_string()));
        needed.push("pids");
    }
    Ok((settings, needed))
}

/// The command that starts this program inside a scope of the user's systemd.
fn scope(program: &Path, limits: &Limits) -> Vec<String> {
    let mut words: Vec<String> = vec![program.display().to_string()];
    words.extend(["--user", "--scope", "--quiet", "--collect"].map(String::from));
    let mut property = |text: String| words.extend(["-p".to_owned(), text]);
    if let Some(cpus) = limits.cpus {
        property(format!("CPUQuota={}%", (cpus * 100.0).round() as u64));
    }
    if let Some(memory) = limits.memory {
        property(format!("MemoryMax={memory}"));
    }
    if let Some(pids) = limits.pids {
        property(format!("TasksMax={pids}"));
    }
    words.push("--".into());
    words
}

/// Parses `0-3,8`.
fn cpu_list(text: &str) -> Result<Vec<usize>> {
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

fn process(
    request: &Request<'_>,
    person: &identity::Person,
    (ids, by_view): (&Ids, bool),
    hostname: Option<&str>,
    affinity: Vec<usize>,
) -> Result<Process> {
    let (config, overrides) = (request.config, request.overrides);
    let isolate = config.security.isolate;
    let argv = overrides.command.clone().unwrap_or_else(|| config.command.clone());
    if argv.first().is_none_or(String::is_empty) {
        return Err(Error::Invalid {
            what: "command".into(),
            value: argv.join(" "),
            why: "the image names no program, so one must be given".into(),
        });
    }
    let tty = overrides.tty.unwrap_or(config.tty);
    let cwd = overrides.cwd.as_deref().unwrap_or(&config.cwd);
    let cwd = PathBuf::from(if cwd.is_empty() { "/" } else { cwd });
    if !cwd.is_absolute() {
        return Err(Error::Invalid {
            what: "--workdir".into(),
            value: cwd.display().to_string(),
            why: "an absolute path is needed".into(),
        });
    }
    let capabilities: Option<Capabilities> =
        if overrides.privileged { None } else { security::capabilities(config, person.uid)? };
    Ok(Process {
        argv,
        env: environment(request, person, tty, hostname),
        cwd,
        create_cwd: !overrides.exec,
        uid: person.uid,
        gid: person.gid,
        groups: if request.own_ids || by_view {
            identity::any_groups(person, &config.group_add, request.accounts)?
        } else {
            identity::groups(person, &config.group_add, isolate, ids, request.accounts)?
        },
        capabilities,
        rlimits: security::rlimits(&config.limits.ulimits)?,
        affinity,
        no_new_privileges: config.security.no_new_privileges.unwrap_or(isolate),
        seccomp: if overrides.privileged {
            super::Seccomp::None
        } else {
            security::seccomp(config)
        },
        tty,
    })
}

/// The container's variables, then Docker's own where they are missing. A later value for a name
/// replaces an earlier one in its place.
fn environment(
    request: &Request<'_>,
    person: &identity::Person,
    tty: bool,
    hostname: Option<&str>,
) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut set = |text: &str, replace: bool| {
        let name = text.split('=').next().unwrap_or_default();
        let same = |other: &String| other.split('=').next().unwrap_or_default() == name;
        match all.iter_mut().find(|other| same(other)) {
            Some(other) if replace => text.clone_into(other),
            Some(_) => {}
            None => all.push(text.into()),
        }
    };
    for text in request.config.env.iter().chain(&request.overrides.env) {
        set(text, true);
    }
    set("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", false);
    if let Some(name) = hostname {
        set(&format!("HOSTNAME={name}"), false);
    }
    set(&format!("HOME={}", person.home.display()), false);
    if tty {
        set("TERM=xterm", false);
    }
    all
}

#[cfg(test)]
mod tests;
