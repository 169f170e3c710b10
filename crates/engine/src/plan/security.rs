//! Computes capabilities, system call filters and resource limits, as data.

use super::{Capabilities, Rlimit, Seccomp};
use crate::error::{Error, Result};
use crate::spec::{ContainerConfig, SeccompChoice, Ulimit};

/// Names of the capabilities by bit, see capabilities(7).
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// All capabilities that we know.
const ALL: u64 = (1 << NAMES.len()) - 1;

/// Docker's default set.
const DOCKER: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The bit of a capability, from its name with or without `CAP_`, in any case.
pub fn parse_capability(name: &str) -> Option<u32> {
    let upper = name.to_ascii_uppercase();
    let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
    NAMES.iter().position(|known| *known == short).map(|bit| bit as u32)
}

/// The names (with `CAP_`) of the bits of a set.
pub fn capability_names(set: u64) -> Vec<String> {
    (0..NAMES.len())
        .filter(|bit| set >> bit & 1 == 1)
        .map(|bit| format!("CAP_{}", NAMES[bit]))
        .collect()
}

fn set_of(flag: &str, names: &[String]) -> Result<u64> {
    names.iter().try_fold(0, |set, name| {
        if name.eq_ignore_ascii_case("all") {
            return Ok(ALL);
        }
        match parse_capability(name) {
            Some(bit) => Ok(set | 1 << bit),
            None => Err(Error::Invalid {
                what: flag.into(),
                value: name.clone(),
                why: "no such capability; see capabilities(7)".into(),
            }),
        }
    })
}

/// The program's capabilities; `None` leaves all that the namespace gives to root.
///
/// A user other than root gets those that were added by name as ambient ones (as Podman does;
/// Docker gives them to nobody).
pub(super) fn capabilities(config: &ContainerConfig, uid: u32) -> Result<Option<Capabilities>> {
    let add = set_of("--cap-add", &config.cap_add)?;
    let drop = set_of("--cap-drop", &config.cap_drop)?;
    if add == 0 && drop == 0 && !config.security.isolate {
        return Ok(None);
    }
    let base = if config.security.isolate {
        DOCKER.iter().filter_map(|name| parse_capability(name)).fold(0, |set, bit| set | 1 << bit)
    } else {
        ALL
    };
    // `--cap-drop ALL --cap-add X` keeps X, in either order, as in Docker.
    let bounding = (base & !drop) | if add == ALL { ALL & !drop } else { add };
    let ambient = if uid != 0 && add != ALL { add & bounding } else { 0 };
    Ok(Some(Capabilities { bounding, ambient }))
}

/// The filter.
pub(super) fn seccomp(config: &ContainerConfig) -> Seccomp {
    match &config.security.seccomp {
        SeccompChoice::Default if config.security.isolate => Seccomp::Docker,
        SeccompChoice::Default | SeccompChoice::Unconfined => Seccomp::None,
        SeccompChoice::Docker => Seccomp::Docker,
        SeccompChoice::Profile(text) => Seccomp::Profile(text.clone()),
    }
}

/// `RLIMIT_*` numbers by Docker's names; see getrlimit(2).
const LIMITS: [(&str, u32); 16] = [
    ("cpu", 0),
    ("fsize", 1),
    ("data", 2),
    ("stack", 3),
    ("core", 4),
    ("rss", 5),
    ("nproc", 6),
    ("nofile", 7),
    ("memlock", 8),
    ("as", 9),
    ("locks", 10),
    ("sigpending", 11),
    ("msgqueue", 12),
    ("nice", 13),
    ("rtprio", 14),
    ("rttime", 15),
];

/// `--ulimit`.
pub(super) fn rlimits(ulimits: &[Ulimit]) -> Result<Vec<Rlimit>> {
    let invalid = |limit: &Ulimit, why: &str| Error::Invalid {
        what: "--ulimit".into(),
        value: limit.name.clone(),
        why: why.into(),
    };
    ulimits
        .iter()
        .map(|limit| {
            let name = limit.name.to_ascii_lowercase();
            let name = name.strip_prefix("rlimit_").unwrap_or(&name);
            let (_, resource) = LIMITS
                .iter()
                .find(|(known, _)| *known == name)
                .ok_or_else(|| invalid(limit, "no such limit; see getrlimit(2)"))?;
            let soft = limit.soft.unwrap_or(u64::MAX);
            let hard = limit.hard.unwrap_or(u64::MAX);
            if soft > hard {
                return Err(invalid(limit, "the soft limit is above the hard one"));
            }
            Ok(Rlimit { resource: *resource, soft, hard })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Security;

    #[test]
    fn docker_set_has_dockers_number() {
        let config = ContainerConfig {
            security: Security { isolate: true, ..Security::default() },
            ..ContainerConfig::default()
        };
        // CapBnd of a container of Docker 20.10 and later: 00000000a80425fb.
        assert_eq!(capabilities(&config, 0).unwrap().unwrap().bounding, 0xa804_25fb);
    }

    #[test]
    fn drop_all_and_add_one_keeps_the_one() {
        let config = ContainerConfig {
            cap_drop: vec!["all".into()],
            cap_add: vec!["cap_net_raw".into()],
            ..ContainerConfig::default()
        };
        let root = capabilities(&config, 0).unwrap().unwrap();
        assert_eq!((root.bounding, root.ambient), (1 << 13, 0));
        assert_eq!(capabilities(&config, 5).unwrap().unwrap().ambient, 1 << 13);
        assert_eq!(capability_names(root.bounding), ["CAP_NET_RAW"]);
    }

    #[test]
    fn unknown_names_are_errors() {
        let config = ContainerConfig { cap_add: vec!["fly".into()], ..ContainerConfig::default() };
        assert!(capabilities(&config, 0).is_err());
        let limit = Ulimit { name: "fly".into(), soft: None, hard: None };
        assert!(rlimits(&[limit]).is_err());
    }
}
