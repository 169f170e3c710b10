//! The options of `run` that not every mode can carry out, in one table: what each needs of an
//! engine, and what becomes of it in an engine that lacks that.
//!
//! An option that a mode cannot do is refused, or a warning says that it has no effect; none is
//! silently left out. A test of the contract suite walks the table: it runs each option in each
//! mode and looks at its effect.

use super::{Caps, Engine};
use crate::error::NO_NETWORK;
use crate::facts::{Facts, SharedNetwork};
use crate::spec::mount_options::Propagation;
use crate::spec::{
    ContainerConfig, MountKind, MountSpec, NamespaceMode, NetworkMode, SeccompChoice,
};
use serde::Serialize;

/// What becomes of an option in a mode. A host may lack more: a warning says so then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It has its effect.
    Done,
    /// It has none, and a warning says so.
    Warned,
    /// The run is refused.
    Refused,
}

/// One option.
pub struct Row {
    /// As messages name it.
    pub flag: &'static str,
    /// Whether a container asks for it.
    wanted: fn(&ContainerConfig, &Facts) -> bool,
    /// Whether an engine can do it.
    pub(super) has: fn(&Caps, &Facts) -> bool,
    /// What an engine does that cannot.
    otherwise: Answer,
}

const fn refused(
    flag: &'static str,
    wanted: fn(&ContainerConfig, &Facts) -> bool,
    has: fn(&Caps, &Facts) -> bool,
) -> Row {
    Row { flag, wanted, has, otherwise: Answer::Refused }
}

/// Who computes the plan warns: it knows what the host offers.
const fn warned(flag: &'static str, has: fn(&Caps, &Facts) -> bool) -> Row {
    Row { flag, wanted: |_, _| false, has, otherwise: Answer::Warned }
}

const fn own(mode: &NamespaceMode) -> bool {
    !matches!(mode, NamespaceMode::Default | NamespaceMode::Host)
}

const fn is_named(config: &ContainerConfig) -> bool {
    matches!(config.network.mode, NetworkMode::Named(_))
}

/// The network that a container would share, as that one is made.
fn shared(config: &ContainerConfig, facts: &Facts) -> Option<SharedNetwork> {
    let shares = matches!(config.network.mode, NetworkMode::Container(_));
    facts.shared_network.filter(|_| shares)
}

/// Whether an engine can share the network that a container would share.
pub(super) fn can_share(caps: &Caps, facts: &Facts, config: &ContainerConfig) -> bool {
    match shared(config, facts) {
        None => true,
        Some(SharedNetwork::Namespace) => caps.network,
        Some(SharedNetwork::Names) => translates(caps),
    }
}

/// Whether an engine's networks are translated addresses.
const fn translates(caps: &Caps) -> bool {
    caps.named_networks && !caps.network
}

fn is_limited(config: &ContainerConfig) -> bool {
    let limits = &config.limits;
    limits.memory.is_some() || limits.cpus.is_some() || limits.pids.is_some()
}

fn is_filtered(config: &ContainerConfig) -> bool {
    !matches!(config.security.seccomp, SeccompChoice::Default | SeccompChoice::Unconfined)
}

/// The table. Options of mounts are in [`MOUNTS`].
pub static OPTIONS: &[Row] = &[
    refused(
        "--isolate",
        |config, _| config.security.isolate,
        |caps, _| caps.namespaces && caps.security,
    ),
    refused("--hostname", |config, _| config.hostname.is_some(), |caps, _| caps.host_name),
    refused("--pid", |config, _| own(&config.namespaces.pid), |caps, _| caps.namespaces),
    refused("--ipc", |config, _| own(&config.namespaces.ipc), |caps, _| caps.namespaces),
    refused("--uts", |config, _| own(&config.namespaces.uts), |caps, _| caps.namespaces),
    refused("--cgroupns", |config, _| own(&config.namespaces.cgroup), |caps, _| caps.namespaces),
    // `run --join` has its container in common with others in every mode.
    refused("create --join", |config, _| config.join.is_some(), |caps, _| caps.namespaces),
    refused(
        "--publish",
        |config, _| !is_named(config) && !config.network.published().is_empty(),
        |caps, _| caps.network || caps.named_networks,
    ),
    refused(
        "--network=private",
        |config, _| config.network.mode == NetworkMode::Private,
        |caps, _| caps.network || caps.named_networks,
    ),
    refused(
        NO_NETWORK,
        |config, _| config.network.mode == NetworkMode::None,
        |caps, _| caps.network,
    ),
    refused(
        "--network=container of one in a network namespace",
        |config, facts| shared(config, facts) == Some(SharedNetwork::Namespace),
        |caps, _| caps.network,
    ),
    refused(
        "--network=container of one whose addresses are translated",
        |config, facts| shared(config, facts) == Some(SharedNetwork::Names),
        |caps, _| translates(caps),
    ),
    refused("--network with a name", |config, _| is_named(config), |caps, _| caps.named_networks),
    refused("--read-only", |config, _| config.read_only, |caps, _| caps.read_only),
    refused(
        "--cap-add or --cap-drop",
        |config, _| !config.cap_add.is_empty() || !config.cap_drop.is_empty(),
        |caps, _| caps.security,
    ),
    refused("--security-opt seccomp", |config, _| is_filtered(config), |caps, _| caps.security),
    refused(
        "--memory, --cpus or --pids-limit",
        |config, _| is_limited(config),
        |caps, _| caps.limits,
    ),
    // The kernel's flag, and where ids are emulated the view's.
    refused("--security-opt no-new-privileges", |_, _| false, |_, _| true),
    warned("--privileged", |_, _| false),
    warned("--shm-size", |caps, _| caps.namespaces),
    warned("--sysctl", |caps, _| caps.namespaces),
    // The kernel lets no program in a namespace with one id have other groups.
    warned("--group-add", |caps, facts| caps.fake_root || facts.has_range()),
    warned("--oom-score-adj", |_, _| true),
    warned("--ulimit", |_, _| true),
];

/// An option of mounts.
pub(super) struct MountRow {
    pub(super) flag: &'static str,
    pub(super) wanted: fn(&[MountSpec]) -> bool,
    pub(super) has: fn(&Caps, &Facts) -> bool,
}

/// What mounts ask for; refused where an engine cannot do it.
pub(super) static MOUNTS: &[MountRow] = &[
    MountRow { flag: "--volume", wanted: |mounts| !mounts.is_empty(), has: |caps, _| caps.binds },
    MountRow {
        flag: "a volume's option 'private'",
        wanted: |mounts| {
            let private = Some(Propagation::Private);
            mounts.iter().any(|mount| mount.options.propagation == private)
        },
        has: |caps, _| caps.private_binds,
    },
    MountRow {
        flag: "--tmpfs",
        wanted: |mounts| mounts.iter().any(|mount| mount.kind == MountKind::Tmpfs),
        has: |caps, _| caps.tmpfs,
    },
];

impl Row {
    /// Whether a container asks an engine for it that has to refuse it.
    pub(super) fn refuses(&self, caps: &Caps, facts: &Facts, config: &ContainerConfig) -> bool {
        self.otherwise == Answer::Refused
            && (self.wanted)(config, facts)
            && !(self.has)(caps, facts)
    }
}

/// What becomes of each option in an engine.
pub fn answers(engine: &dyn Engine, facts: &Facts) -> Vec<(&'static str, Answer)> {
    let caps = engine.caps();
    let options = OPTIONS
        .iter()
        .map(|row| (row.flag, if (row.has)(&caps, facts) { Answer::Done } else { row.otherwise }));
    let mounts = MOUNTS.iter().map(|row| {
        (row.flag, if (row.has)(&caps, facts) { Answer::Done } else { Answer::Refused })
    });
    options.chain(mounts).collect()
}
