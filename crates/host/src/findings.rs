//! Presents the facts as text: one line per probe, in the order in which a run depends on them.
//!
//! The text is made here and not in `cli`, so that the JSON form and the text form agree. Programs
//! read the facts; nothing is decided on these lines.

mod equipment;

use serde::{Deserialize, Serialize};

use crate::subordinate::ANY_ID;
use crate::{Caller, CgroupLayout, Disk, Host, InsideKind, Limit, SeccompMode, Trial};

/// Effect of a finding on running containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Works.
    Good,
    /// A neutral fact.
    Note,
    /// Works with a limitation.
    Warn,
    /// Missing or refused.
    Bad,
}

/// One line of `doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The probed thing.
    pub name: String,
    /// Effect on running containers.
    pub level: Level,
    /// The result.
    pub value: String,
    /// The method.
    pub how: String,
    /// Advice for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    fn note(name: &str, value: impl Into<String>, how: impl Into<String>) -> Finding {
        let (value, how) = (value.into(), how.into());
        Finding { name: name.into(), level: Level::Note, value, how, advice: None }
    }

    /// Makes a line from a trial: good if it worked, else at the level `lack`.
    fn trial(name: &str, trial: &Trial, lack: Level, good: &str) -> Finding {
        let (level, value) = match trial {
            Trial::Works { .. } => (Level::Good, good.to_owned()),
            Trial::Fails { why, .. } => (lack, why.clone()),
            Trial::Untried => (Level::Note, "not tried".to_owned()),
        };
        Finding {
            name: name.into(),
            level,
            value,
            how: trial.how().unwrap_or_default().into(),
            advice: trial.advice().map(str::to_owned),
        }
    }

    fn at(mut self, level: Level) -> Finding {
        self.level = level;
        self
    }

    fn advise(mut self, advice: impl Into<String>) -> Finding {
        self.advice = Some(advice.into());
        self
    }
}

pub(crate) fn all(host: &Host) -> Vec<Finding> {
    let mut findings = basics(host);
    findings.extend(namespaces(host));
    findings.extend(storage(host));
    findings.extend(processes(host));
    findings.extend(cgroup(host));
    findings.extend(equipment::devices(host));
    findings.extend(equipment::programs(host));
    findings
}

fn basics(host: &Host) -> Vec<Finding> {
    let kernel = &host.kernel;
    let caller = &host.caller;
    let name = caller.name.as_deref().unwrap_or("without a name");
    let mut findings = vec![
        Finding::note("kernel", format!("{} {}", kernel.release, kernel.machine), "uname"),
        Finding::note(
            "user",
            format!("{name} (uid {}, gid {}{})", caller.uid, caller.gid, groups(caller)),
            "geteuid, /etc/passwd, getent",
        ),
    ];
    findings.extend(host.inside.as_ref().map(|inside| {
        let kind = match inside.kind {
            InsideKind::Docker => "Docker",
            InsideKind::Podman => "Podman",
            InsideKind::Kubernetes => "Kubernetes",
            InsideKind::Apptainer => "Apptainer",
            InsideKind::Lxc => "LXC",
            InsideKind::Nspawn => "systemd-nspawn",
            InsideKind::Coracle => "Coracle",
            InsideKind::Wsl => "Windows subsystem for Linux",
            InsideKind::Gvisor => "gVisor",
            InsideKind::Other => "unknown kind",
        };
        Finding::note("inside a container", kind, &inside.how)
    }));
    findings.push(security(host));
    findings
}

/// The supplementary groups, by name if they have one.
fn groups(caller: &Caller) -> String {
    let further = caller.groups.iter().filter(|gid| **gid != caller.gid);
    let names: Vec<String> = further
        .map(|gid| caller.group_names.get(gid).cloned().unwrap_or_else(|| gid.to_string()))
        .collect();
    if names.is_empty() { String::new() } else { format!(", groups {}", names.join(" ")) }
}

fn security(host: &Host) -> Finding {
    let security = &host.security;
    let mut parts = Vec::new();
    if !security.lsms.is_empty() {
        parts.push(security.lsms.join(","));
    }
    parts.extend(security.label.clone());
    if security.selinux_enforcing == Some(true) {
        parts.push("SELinux enforcing".into());
    }
    if security.no_new_privs {
        parts.push("no_new_privs".into());
    }
    let value = if parts.is_empty() { "none visible".into() } else { parts.join("; ") };
    let finding = Finding::note(
        "security modules",
        value,
        "/sys/kernel/security/lsm, /proc/self/attr/current",
    );
    if security.no_new_privs {
        let advice = "setuid helpers (newuidmap, fusermount3) do not work under no_new_privs";
        return finding.at(Level::Warn).advise(advice);
    }
    finding
}

fn namespaces(host: &Host) -> Vec<Finding> {
    let found = &host.namespaces;
    let mut findings = vec![Finding::trial(
        "user namespaces",
        &found.user,
        Level::Bad,
        "work, with mounts inside",
    )];
    let others = [
        ("pid", &found.pid),
        ("net", &found.net),
        ("ipc", &found.ipc),
        ("uts", &found.uts),
        ("cgroup", &found.cgroup),
    ];
    if found.user.is_works() {
        let names = |wanted: fn(&Trial) -> bool| -> Vec<&str> {
            others.iter().filter(|(_, trial)| wanted(trial)).map(|(name, _)| *name).collect()
        };
        let works = names(Trial::is_works).join(" ");
        let fails = names(Trial::is_fails).join(" ");
        let how = "unshare in a user namespace in a child";
        findings.push(if fails.is_empty() {
            Finding::note("other namespaces", works, how).at(Level::Good)
        } else {
            Finding::note("other namespaces", format!("{works}; not: {fails}"), how).at(Level::Warn)
        });
        findings.push(Finding::trial(
            "fresh /proc",
            &found.proc_mount,
            Level::Warn,
            "can be mounted",
        ));
    }
    let (uids, gids) = host.subordinate.counts();
    let good = match host.subordinate.mapping.how() {
        Some(ANY_ID) => ANY_ID.to_owned(),
        _ => format!("{uids} user ids, {gids} group ids, mapped by the helpers"),
    };
    let mut ids = Finding::trial("subordinate ids", &host.subordinate.mapping, Level::Warn, &good);
    if host.subordinate.mapping == Trial::Untried {
        ids.value = format!("{uids} user ids, {gids} group ids");
        ids.how.clone_from(&host.subordinate.source);
    }
    findings.push(ids);
    findings
}

fn storage(host: &Host) -> Vec<Finding> {
    let overlay = &host.overlay;
    let mut fuse = Finding::trial("fuse-overlayfs", &overlay.fuse, Level::Note, "works");
    // It is not needed if the kernel's own overlay works.
    if overlay.kernel.is_works() {
        fuse.advice = None;
    } else if fuse.level == Level::Note && overlay.fuse.is_fails() {
        fuse.level = Level::Warn;
    }
    let mut findings = vec![
        Finding::trial("overlay", &overlay.kernel, Level::Warn, "works unprivileged"),
        Finding::trial("overlay volatile", &overlay.volatile, Level::Note, "works"),
        Finding::trial("whiteouts", &overlay.whiteout, Level::Warn, "can be made"),
        fuse,
    ];
    if let Some(disk) = &host.store {
        findings.extend(store(disk));
    }
    findings
}

fn store(disk: &Disk) -> Vec<Finding> {
    let inodes = disk.free_inodes.map_or(String::new(), |count| format!(", {count} inodes"));
    let room = format!(
        "{} on {} ({}), {} of {} free{inodes}",
        disk.store,
        disk.name,
        disk.mount_point.display(),
        bytes(disk.free),
        bytes(disk.size),
    );
    let mut place = Finding::note("store", room, "statfs, /proc/self/mountinfo");
    if disk.read_only || disk.writable.is_fails() {
        place.level = Level::Bad;
        place.advice = disk.writable.advice().map(str::to_owned);
        if let Some(why) = disk.writable.why() {
            place.value = format!("{}; cannot be written: {why}", place.value);
        }
    } else if disk.kind.is_network() {
        place = place.at(Level::Warn).advise(
            "unpacking many small files is slow on a network file system; set CORACLE_DIR to a \
             local disk, and CORACLE_STORE_RO to a shared store",
        );
    } else if disk.free < 1 << 30 {
        place = place
            .at(Level::Warn)
            .advise("less than 1 GiB is free; 'coracle prune' removes unused content");
    }
    let abilities = [
        ("user xattrs", &disk.user_xattr, true),
        ("hard links", &disk.hard_links, true),
        ("symlinks", &disk.symlinks, true),
        ("flock", &disk.flock, false),
        ("OFD locks", &disk.ofd_locks, false),
        ("case sensitive", &disk.case_sensitive, true),
        ("exec", &disk.exec, true),
        ("reflink", &disk.reflink, false),
    ];
    let list = |wanted: fn(&Trial) -> bool| -> Vec<&str> {
        abilities.iter().filter(|(_, trial, _)| wanted(trial)).map(|(name, ..)| *name).collect()
    };
    let lacking = list(Trial::is_fails);
    let mut value = list(Trial::is_works).join(", ");
    if !lacking.is_empty() {
        let and = if value.is_empty() { "" } else { "; " };
        value = format!("{value}{and}not: {}", lacking.join(", "));
    }
    // One of the two kinds of lock suffices; reflinks are optional.
    let no_locks = disk.flock.is_fails() && disk.ofd_locks.is_fails();
    let missed = abilities.iter().find(|(_, trial, needed)| *needed && trial.is_fails());
    let mut can = Finding::note("store can", value, "tried in a hidden directory");
    can.level = if missed.is_some() || no_locks { Level::Warn } else { Level::Good };
    can.advice = missed.and_then(|(_, trial, _)| trial.advice()).map(str::to_owned);
    if can.advice.is_none() && no_locks {
        can.advice = Some(
            "symbolic links are used as locks here; do not use one store from many nodes at once"
                .into(),
        );
    }
    if disk.writable.is_works() { vec![place, can] } else { vec![place] }
}

fn processes(host: &Host) -> Vec<Finding> {
    let seccomp = &host.seccomp;
    let under = match (seccomp.mode, seccomp.filters) {
        (SeccompMode::Filter, Some(count)) => format!("work, under {count} outer filter(s)"),
        (SeccompMode::Filter, None) => "work, under outer filters".into(),
        _ => "work".into(),
    };
    let scope = host.ptrace.yama.map_or(String::new(), |scope| format!(" (Yama scope {scope})"));
    let limits = &host.limits;
    let memlock =
        Finding::note("locked memory", limit(limits.memlock, bytes), "getrlimit(RLIMIT_MEMLOCK)");
    let short = limits.memlock.soft.is_some_and(|soft| soft < crate::LOCKED);
    vec![
        Finding::trial("seccomp filters", &seccomp.filter, Level::Bad, &under),
        Finding::trial("seccomp traps", &seccomp.trap, Level::Warn, "work"),
        Finding::trial("seccomp listeners", &seccomp.notify_continue, Level::Warn, "work"),
        Finding::trial("ptrace", &host.ptrace.child, Level::Warn, &format!("works{scope}")),
        Finding::trial(
            "memory of siblings",
            &host.ptrace.read_sibling,
            Level::Note,
            &format!("can be read{scope}: MPI by CMA works"),
        ),
        if short && !host.infiniband.devices.is_empty() {
            memlock.at(Level::Warn).advise(
                "RDMA needs much locked memory; administrator: add '* - memlock unlimited' to \
                 /etc/security/limits.conf",
            )
        } else {
            memlock
        },
        Finding::note(
            "open files, processes",
            format!(
                "{}, {}",
                limit(limits.nofile, |count| count.to_string()),
                limit(limits.nproc, |count| count.to_string())
            ),
            "getrlimit",
        ),
    ]
}

fn cgroup(host: &Host) -> Vec<Finding> {
    let cgroup = &host.cgroup;
    let layout = match cgroup.layout {
        CgroupLayout::None => "not mounted",
        CgroupLayout::V1 => "version 1",
        CgroupLayout::V2 => "version 2",
        CgroupLayout::Hybrid => "versions 1 and 2 (hybrid)",
    };
    let own =
        cgroup.own.as_ref().map_or(String::new(), |own| format!(", own group {}", own.display()));
    let delegated = cgroup.delegated.as_ref().map(|group| {
        let controllers = cgroup.controllers.join(" ");
        let controllers =
            if controllers.is_empty() { "no controllers".into() } else { controllers };
        format!("{} is delegated: {controllers}", group.display())
    });
    let mut delegation = Finding::trial(
        "cgroup delegation",
        &cgroup.delegation,
        Level::Warn,
        &delegated.unwrap_or_default(),
    );
    let missing: Vec<&str> = ["cpu", "memory", "pids"]
        .into_iter()
        .filter(|wanted| !cgroup.controllers.iter().any(|has| has == wanted))
        .collect();
    if cgroup.delegation.is_works() && !missing.is_empty() {
        let cure = match cgroup.layout {
            CgroupLayout::Hybrid => {
                "version 1 has them; administrator: boot with systemd.unified_cgroup_hierarchy=1"
            }
            _ => "administrator: set Delegate=cpu memory pids for the user's slice",
        };
        let lost = format!("limits of {} do not work here: {cure}", missing.join(", "));
        delegation = delegation.at(Level::Warn).advise(lost);
    }
    vec![
        Finding::note(
            "cgroups",
            format!("{layout}{own}"),
            "/proc/self/mountinfo, /proc/self/cgroup",
        ),
        delegation,
        Finding::trial("systemd user session", &cgroup.systemd_user, Level::Note, "answers"),
    ]
}

fn limit(limit: Limit, show: impl Fn(u64) -> String) -> String {
    limit.soft.map_or_else(|| "unlimited".into(), show)
}

/// A size with one digit after the point, in powers of 1024.
fn bytes(number: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.iter().find(|(_, shift)| number >> shift > 0) {
        Some((unit, shift)) => {
            let tenths = (u128::from(number) * 10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{number} B"),
    }
}
