//! Computes a plan from a request. Pure: it touches no file and no process.

use super::namespaces::{Neighbour, namespaces};
use super::{
    Capabilities, Ids, Network, NetworkPlace, Plan, Process, Root, Source, identity, limits,
    mounts, peers, security,
};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::spec::{ContainerConfig, MountSpec, UserNamespace};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The longest host name; see uname(2).
const HOSTNAME_MAX: usize = 64;
/// The longest part of one (RFC 1123).
const LABEL_MAX: usize = 63;

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

/// Docker's mask of permissions of new files.
const DOCKERS_UMASK: u32 = 0o022;

/// What a private network is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateBy {
    /// A network namespace.
    Namespace,
    /// Addresses that are translated in system calls.
    Translation,
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
    /// The caller's mask of permissions stays unless the container names one.
    pub keep_umask: bool,
    /// The container's users.
    pub accounts: &'a dyn super::Accounts,
    /// What the engine makes a private network of.
    pub private: PrivateBy,
    /// The container's place among those with which it has networks, once it has one.
    pub network: Option<&'a NetworkPlace>,
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
    let by_view = match (wants_view(request), &request.facts.no_texts) {
        (true, Some(why)) => {
            warnings
                .push(format!("ids and owners are the kernel's, which knows one user here: {why}"));
            false
        }
        (wanted, _) => wanted,
    };
    let ids = if request.own_ids {
        identity::single(owner, request.facts)
    } else if by_view {
        identity::root_alone(request.facts)
    } else {
        identity::ids(owner, config.namespaces.user, request.facts)?
    };
    let hostname = config.hostname.clone().filter(|name| !name.is_empty());
    hostname.as_deref().map_or(Ok(()), check_hostname)?;
    if request.own_ids {
        check_shared_memory(request, &mut warnings)?;
    }
    let (namespaces, network) = namespaces(request, hostname.as_deref(), &mut warnings)?;
    let hostname = match (namespaces.uts, hostname, network.place()) {
        (Source::New, None, Some(place)) => Some(place.name.clone()),
        (Source::New, None, _) => Some(config.id.chars().take(12).collect()),
        (_, name, _) => name,
    };
    // On the host's terminals another user than root of a range has no right, and mostly cannot be
    // given it.
    let own_terminals = config.tty && first.uid != 0 && matches!(ids, Ids::Range { .. });
    let (list, files) =
        mounts::mounts(request, &namespaces, &network, hostname.as_deref(), own_terminals)?;
    let (facts, overrides) = (request.facts, request.overrides);
    let limits::Enforced { cgroup, affinity, wrapper } = if overrides.limits_hold || overrides.exec
    {
        limits::Enforced::default()
    } else {
        limits::enforced(config, facts, &mut warnings)?
    };
    let sysctls = if overrides.exec {
        Vec::new()
    } else {
        limits::sysctls(config, &namespaces, &mut warnings)?
    };
    let can = request.own_ids || by_view;
    let emulate_root = request.fake_root && can && config.namespaces.user != UserNamespace::Host;
    let seen_name = seen_name(facts, namespaces.uts, hostname.as_deref());
    if !emulate_root && !request.own_ids {
        check_mapped(&person, &ids)?;
    }
    Ok(Plan {
        container: config.id.clone(),
        place: request.place.into(),
        root: request.root.clone(),
        read_only_root: config.read_only,
        process: process(
            request,
            &person,
            (&ids, by_view),
            (seen_name, &network),
            affinity,
            &mut warnings,
        )?,
        user: (owner.uid, owner.gid),
        ids,
        added: request.overrides.mounts.clone(),
        namespaces,
        mounts: list,
        hostname: hostname.filter(|_| namespaces.uts == Source::New),
        network,
        cgroup,
        sysctls,
        emulate_root,
        helpers: helpers(request.facts),
        switches: switches(request.facts, &mut warnings),
        beside_image: None,
        index: None,
        isolate: config.security.isolate,
        init: config.init && !request.overrides.exec,
        files,
        wrapper,
        warnings,
    })
}

/// Checks a host name: labels of letters, digits and hyphens with dots between them (RFC 1123), and
/// underscores, which Docker takes too. It stands in `/etc/hosts`.
///
/// # Errors
/// [`Error::Invalid`] with the rule that is broken.
pub fn check_hostname(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_long = |label: &str| label.len() > LABEL_MAX;
    let is_edged = |label: &str| label.starts_with('-') || label.ends_with('-');
    let why = if let Some(odd) = name.chars().find(|c| !plain(*c)) {
        format!("a host name has letters, digits, '-', '_' and '.', and not {odd:?}")
    } else if name.len() > HOSTNAME_MAX {
        format!("a host name has at most {HOSTNAME_MAX} characters, and this one {}", name.len())
    } else if name.split('.').any(str::is_empty) {
        "a host name has no dot at its beginning or end, and no two beside each other".into()
    } else if name.split('.').any(is_long) {
        format!("a part of a host name has at most {LABEL_MAX} characters between dots")
    } else if name.split('.').any(is_edged) {
        "a part of a host name neither begins nor ends with '-'".into()
    } else {
        return Ok(());
    };
    let value = name.escape_debug().to_string();
    Err(Error::Invalid { what: "--hostname".into(), value, why })
}

/// The host name that programs in the container see, as far as it is known.
fn seen_name<'a>(facts: &'a Facts, uts: Source, own: Option<&'a str>) -> Option<&'a str> {
    let other = match uts {
        Source::New => None,
        Source::Host => Some(facts.host_name.as_str()),
        Source::Of(_) => facts.shared_name.as_deref(),
    };
    own.or(other).filter(|name| !name.is_empty())
}

/// Without mounts of the container's own it has the host's `/dev/shm`, which may be large enough.
fn check_shared_memory(request: &Request<'_>, warnings: &mut Vec<String>) -> Result<()> {
    let Some(asked) = request.config.limits.shm_size else { return Ok(()) };
    let host = request.facts.shm_size.unwrap_or(0);
    if host >= asked {
        warnings.push(format!(
            "--shm-size has no effect in this mode: the host's /dev/shm of {host} bytes is used"
        ));
        return Ok(());
    }
    Err(Error::Missing {
        what: format!("--shm-size={asked}"),
        needs: format!(
            "a mode with mounts of its own: this one uses the host's /dev/shm, which has {host} bytes"
        ),
        hint: Some(
            "use --execmode=N1 where it works (`coracle doctor`), or ask for no more than the host has"
                .into(),
        ),
    })
}

/// Whether ids are to be emulated in a namespace with one id. Also for who runs as the caller
/// (`-u $(id -u)`, `--userns=keep-id`): the image's files are root's, and not the caller's to
/// write.
fn wants_view(request: &Request<'_>) -> bool {
    let (facts, user) = (request.facts, request.config.namespaces.user);
    request.fake_root && !request.own_ids && facts.has_one_id(user)
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

fn process(
    request: &Request<'_>,
    person: &identity::Person,
    (ids, by_view): (&Ids, bool),
    (hostname, network): (Option<&str>, &Network),
    affinity: Vec<usize>,
    warnings: &mut Vec<String>,
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
    let privileged = overrides.privileged || config.security.privileged;
    let capabilities: Option<Capabilities> =
        if privileged { None } else { security::capabilities(config, person.uid)? };
    let groups = if request.own_ids || by_view {
        identity::any_groups(person, &config.group_add, request.facts, request.accounts)?
    } else {
        identity::groups(person, config, ids, request.facts, request.accounts, warnings)?
    };
    Ok(Process {
        argv,
        env: environment(request, person, tty, (hostname, network)),
        cwd,
        create_cwd: !overrides.exec,
        uid: person.uid,
        gid: person.gid,
        keeps_groups: identity::has_callers(&groups, request.facts),
        groups,
        capabilities,
        rlimits: limits::rlimits(config, request.facts, warnings)?,
        affinity,
        umask: config.umask.or((!request.keep_umask).then_some(DOCKERS_UMASK)),
        oom_score_adj: limits::oom_score(config, request.facts, warnings)?,
        no_new_privileges: config.security.no_new_privileges.unwrap_or(isolate),
        seccomp: if privileged { super::Seccomp::None } else { security::seccomp(config) },
        tty,
    })
}

/// Up to so many variables are compared one by one.
const COMPARED: usize = 64;

/// The container's variables, then Docker's own where they are missing. A later value for a name
/// replaces an earlier one in its place.
fn environment(
    request: &Request<'_>,
    person: &identity::Person,
    tty: bool,
    (hostname, network): (Option<&str>, &Network),
) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    // Few are compared one by one, which is quicker than a map of them; many would take minutes.
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut set = |text: &str, replace: bool| {
        let name_of = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
        let name = text.split('=').next().unwrap_or_default();
        if all.len() == COMPARED && places.is_empty() {
            places.extend(all.iter().enumerate().map(|(at, other)| (name_of(other), at)));
        }
        let at = if all.len() < COMPARED {
            all.iter().position(|other| other.split('=').next().unwrap_or_default() == name)
        } else {
            places.get(name).copied()
        };
        match at {
            Some(at) if replace => text.clone_into(&mut all[at]),
            Some(_) => {}
            None => {
                if all.len() >= COMPARED {
                    places.insert(name.to_owned(), all.len());
                }
                all.push(text.into());
            }
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
    let given = || request.config.env.iter().chain(&request.overrides.env);
    let networks = request.config.network.networks.len();
    for (name, value) in peers::variables(network, request.facts, networks) {
        if !given().any(|text| peers::excludes(text, name)) {
            set(&format!("{name}={value}"), false);
        }
    }
    all
}

#[cfg(test)]
mod tests;
