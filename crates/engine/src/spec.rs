//! What a container is: the data in `container.json` and `state.json`.
//!
//! [`ContainerConfig`] is written once, by `create` or `run`, and says everything that the image
//! and the command line decided. [`ContainerState`] changes while the container lives. Both are
//! plain data: nothing here touches a file.
//!
//! Forward compatibility: every field except the id has a default, unknown fields are ignored, and
//! enums that may grow keep their text form (`Display`/`FromStr`), so that an older program reads
//! what a newer one wrote as far as it understands it.
//!
//! A container that runs without a supervisor (the program *became* the guest) has no one to write
//! its state: `state.json` then says `created`, and [`crate::records`] tells whether somebody lives
//! in it.

mod elsewhere;
pub mod mount_options;

pub use elsewhere::Elsewhere;

use mount_options::MountOptions;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A container as it was asked for: the contents of `container.json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, as the user gives them")]
pub struct ContainerConfig {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Time of creation, RFC 3339.
    pub created: String,
    /// The image it was made from; `None` with [`ContainerConfig::rootfs`].
    pub image: Option<ImageSource>,
    /// `--rootfs DIR`: a plain tree used as it is.
    pub rootfs: Option<PathBuf>,
    /// Program and arguments: entrypoint and command, already merged.
    pub command: Vec<String>,
    /// `KEY=VALUE`, image's first, later ones win.
    pub env: Vec<String>,
    /// Working directory inside; empty means `/`.
    pub cwd: String,
    /// `NAME|UID[:GROUP|GID]`; empty means root (or the caller with `keep-id`).
    pub user: String,
    /// `--group-add`: names or numbers; `keep-groups` keeps the caller's.
    pub group_add: Vec<String>,
    /// `--umask`; `None` for Docker's 022, or the caller's where that is kept.
    pub umask: Option<u32>,
    /// `--hostname`; needs a private uts namespace.
    pub hostname: Option<String>,
    /// Binds, volumes and tmpfs, in the order given.
    pub mounts: Vec<MountSpec>,
    /// `--device`.
    pub devices: Vec<DeviceSpec>,
    /// Of the host's devices only [`ContainerConfig::devices`] are to be seen, beside those that
    /// every program needs.
    pub own_devices: bool,
    /// Namespaces.
    pub namespaces: Namespaces,
    /// `--network` and `-p`.
    pub network: NetworkSpec,
    /// Resource limits.
    pub limits: Limits,
    /// `--cap-add` (names with or without `CAP_`, `ALL`).
    pub cap_add: Vec<String>,
    /// `--cap-drop`.
    pub cap_drop: Vec<String>,
    /// `--security-opt` and `--isolate`.
    pub security: Security,
    /// `--read-only` root.
    pub read_only: bool,
    /// `--init`: a small init as first process.
    pub init: bool,
    /// `-t`.
    pub tty: bool,
    /// `-i`.
    pub stdin_open: bool,
    /// `--rm`.
    pub auto_remove: bool,
    /// Signal that `stop` sends first; empty means `SIGTERM`.
    pub stop_signal: String,
    /// Seconds `stop` waits before it kills; `None` means 10.
    pub stop_timeout: Option<u32>,
    /// `--restart`.
    pub restart: RestartPolicy,
    /// Labels, image's and `--label`.
    pub labels: BTreeMap<String, String>,
    /// `--add-host NAME:ADDRESS` as (name, address).
    pub add_host: Vec<(String, String)>,
    /// `--dns`, `--dns-search`, `--dns-option`.
    pub dns: DnsSpec,
    /// `--execmode`: the engine to use; `None` lets the host decide.
    pub exec_mode: Option<String>,
    /// Log files of a supervised container.
    pub log: LogSpec,
    /// `linux/amd64` and the like; empty means the host's.
    pub platform: String,
    /// `--join NAME`: run in the namespaces of that container.
    pub join: Option<String>,
    /// `--detach-keys`, empty for the default.
    pub detach_keys: String,
    /// `--sysctl`: values by names.
    pub sysctls: BTreeMap<String, String>,
    /// `--expose` as `PORT/PROTOCOL`; shown and nothing else.
    pub expose: Vec<String>,
    /// `--annotation`; shown and nothing else.
    pub annotations: BTreeMap<String, String>,
    /// Options of Docker's without effect, by their flags: recorded and shown.
    pub ineffective: Vec<(String, String)>,
    /// `--strict`: what cannot be applied is an error, not a warning.
    pub strict: bool,
}

/// Where the files come from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageSource {
    /// Canonical reference.
    pub reference: String,
    /// Digest of the manifest.
    pub manifest: String,
    /// Digest of the configuration ("image id").
    pub config: String,
    /// Diff IDs of the layers, lowest first.
    pub layers: Vec<String>,
    /// Chain ID of all layers.
    pub chain: String,
}

/// What is mounted at [`MountSpec::target`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountKind {
    /// A file or directory of the host.
    #[default]
    Bind,
    /// A named volume; `source` is the path of its data.
    Volume,
    /// Memory.
    Tmpfs,
}

/// One `-v`, `--mount` or `--tmpfs`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MountSpec {
    /// What it is.
    pub kind: MountKind,
    /// Absolute host path; empty for tmpfs.
    pub source: PathBuf,
    /// Name of the volume where `kind` is [`MountKind::Volume`].
    pub name: Option<String>,
    /// Absolute path inside.
    pub target: PathBuf,
    /// Read-only, with everything mounted beneath.
    pub read_only: bool,
    /// Flags, propagation, and what a memory file system takes.
    pub options: MountOptions,
    /// Make the host directory if it is missing (Docker's `-v`, not `--mount`). The caller of the
    /// engine does that.
    pub create_source: bool,
    /// The volume was made for this container, which did not name it.
    pub unnamed: bool,
}

/// `--device HOST[:INSIDE[:rwm]]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSpec {
    /// Path on the host.
    pub source: PathBuf,
    /// Path inside.
    pub target: PathBuf,
    /// Some of `r`, `w`, `m`; without `w` the bind is read-only (which does not forbid writing to a
    /// device, see `plan`).
    pub access: String,
}

/// How one namespace is chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NamespaceMode {
    /// The profile's: host normally, private with `--isolate`.
    #[default]
    Default,
    /// The host's.
    Host,
    /// A new one.
    Private,
    /// That of another running container (name or id as the user wrote it).
    Container(String),
}

impl From<NamespaceMode> for String {
    fn from(mode: NamespaceMode) -> Self {
        match mode {
            NamespaceMode::Default => String::new(),
            NamespaceMode::Host => "host".into(),
            NamespaceMode::Private => "private".into(),
            NamespaceMode::Container(name) => format!("container:{name}"),
        }
    }
}

impl TryFrom<String> for NamespaceMode {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for NamespaceMode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "" => Self::Default,
            "host" => Self::Host,
            // `shareable` is Docker's word for a private ipc namespace that others may enter; all
            // private ones may be entered here.
            "private" | "shareable" => Self::Private,
            other => match other.strip_prefix("container:") {
                Some(name) if !name.is_empty() => Self::Container(name.into()),
                _ => return Err(format!("'{other}' is none of host, private, container:NAME")),
            },
        })
    }
}

/// How ids inside relate to ids outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UserNamespace {
    /// A range where the caller has subordinate ids, else one id.
    #[default]
    Auto,
    /// The caller is the caller inside, and no other id is mapped.
    Host,
    /// The caller is the caller inside; other ids come from the subordinate range where there is
    /// one.
    KeepId,
    /// One id, whatever the caller has (what `Auto` does without subordinate ids).
    Single,
}

impl std::str::FromStr for UserNamespace {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "" | "auto" | "private" => Self::Auto,
            "host" => Self::Host,
            "keep-id" => Self::KeepId,
            "single" => Self::Single,
            other => return Err(format!("'{other}' is none of auto, host, keep-id, single")),
        })
    }
}

/// `--pid`, `--ipc`, `--uts`, `--userns`, `--cgroupns`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Namespaces {
    /// Process ids.
    pub pid: NamespaceMode,
    /// System V IPC and POSIX message queues.
    pub ipc: NamespaceMode,
    /// Host name.
    pub uts: NamespaceMode,
    /// Control groups.
    pub cgroup: NamespaceMode,
    /// User and group ids.
    pub user: UserNamespace,
}

/// `--network`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NetworkMode {
    /// The profile's: host normally, private with `--isolate`.
    #[default]
    Default,
    /// The host's.
    Host,
    /// Loopback only.
    None,
    /// Own network through `pasta` or `slirp4netns`.
    Private,
    /// That of another running container.
    Container(String),
    /// A network with this name, and those of [`NetworkSpec::networks`].
    Named(String),
}

impl From<NetworkMode> for String {
    fn from(mode: NetworkMode) -> Self {
        match mode {
            NetworkMode::Default => String::new(),
            NetworkMode::Host => "host".into(),
            NetworkMode::None => "none".into(),
            NetworkMode::Private => "private".into(),
            NetworkMode::Container(name) => format!("container:{name}"),
            NetworkMode::Named(name) => name,
        }
    }
}

impl TryFrom<String> for NetworkMode {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl std::str::FromStr for NetworkMode {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "" | "default" => Self::Default,
            "host" => Self::Host,
            "none" => Self::None,
            // Docker's and Podman's names for a network of one's own.
            "private" | "bridge" | "pasta" | "slirp4netns" => Self::Private,
            other => match other.strip_prefix("container:") {
                Some(name) if !name.is_empty() => Self::Container(name.into()),
                None if is_network_name(other) => Self::Named(other.into()),
                _ => {
                    return Err(format!(
                        "'{other}' is none of host, none, private, container:NAME, and not the \
                         name of a network"
                    ));
                }
            },
        })
    }
}

/// Whether a network may have this name by Docker's rule, `[a-zA-Z0-9][a-zA-Z0-9_.-]*`.
fn is_network_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(is_plain)
}

/// Network and published ports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkSpec {
    /// Which network.
    pub mode: NetworkMode,
    /// `-p`.
    pub publish: Vec<Publish>,
    /// `-P` was given; what came of it is in `publish`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub publish_all: bool,
    /// The networks with names in which the container is. With [`NetworkMode::Named`] the first of
    /// them is the mode's; with all other modes there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Membership>,
}

/// A container's place in a network with a name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Membership {
    /// The network's name.
    pub name: String,
    /// Names of the container in this network, beside its own.
    pub aliases: Vec<String>,
    /// The address that it wishes there; `None` for a free one.
    pub address: Option<std::net::Ipv4Addr>,
    /// The IPv6 address that it wishes there, if it has said so. It is that of `address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<std::net::Ipv6Addr>,
}

impl NetworkSpec {
    /// The ports that the container has on the host: without a network of its own none, whatever
    /// was asked for.
    #[must_use]
    pub fn published(&self) -> &[Publish] {
        let own = matches!(self.mode, NetworkMode::Private | NetworkMode::Named(_));
        if own { &self.publish } else { &[] }
    }
}

/// One `-p [ADDRESS:]HOST[-HOST]:INSIDE[-INSIDE][/PROTOCOL]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Publish {
    /// Host address to listen on; `None` for all.
    pub address: Option<std::net::IpAddr>,
    /// First host port; 0 lets the caller choose before the run.
    pub host: u16,
    /// One of so many host ports from `host` on is taken, which the caller chooses before the run;
    /// 0 where `host` is meant.
    #[serde(skip_serializing_if = "is_zero")]
    pub among: u16,
    /// First port inside.
    pub inside: u16,
    /// Length of the range, at least 1.
    pub count: u16,
    /// `udp` instead of `tcp`.
    pub udp: bool,
}

impl Publish {
    /// The ports of the range, each on the host and inside.
    pub fn pairs(&self) -> impl Iterator<Item = (u16, u16)> + use<> {
        (self.host..=u16::MAX).zip(self.inside..=u16::MAX).take(self.count.max(1).into())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// Resource limits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// `--cpus`: number of processors' worth of time.
    pub cpus: Option<f64>,
    /// `--memory`, bytes.
    pub memory: Option<u64>,
    /// `--pids-limit`.
    pub pids: Option<u64>,
    /// `--memory-swap`: memory and swap together, bytes; -1 for no limit.
    pub memory_swap: Option<i64>,
    /// `--memory-reservation`, bytes.
    pub memory_reservation: Option<u64>,
    /// `--cpu-shares`: 2 to 262144, relative to other groups' 1024.
    pub cpu_shares: Option<u64>,
    /// `--oom-score-adj`: -1000 to 1000.
    pub oom_score_adj: Option<i32>,
    /// `--cpuset-cpus`, as `0-3,8`.
    pub cpuset_cpus: Option<String>,
    /// `--ulimit`.
    pub ulimits: Vec<Ulimit>,
    /// `--shm-size`, bytes.
    pub shm_size: Option<u64>,
}

/// `--ulimit NAME=SOFT[:HARD]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ulimit {
    /// `nofile`, `core`, `memlock`, ...
    pub name: String,
    /// Soft limit; `None` is unlimited.
    pub soft: Option<u64>,
    /// Hard limit; `None` is unlimited.
    pub hard: Option<u64>,
}

/// `--security-opt` and `--isolate`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Security {
    /// `--isolate`: Docker's defaults instead of the host's namespaces.
    pub isolate: bool,
    /// `seccomp=`.
    pub seccomp: SeccompChoice,
    /// `no-new-privileges`; `None` is the profile's.
    pub no_new_privileges: Option<bool>,
    /// `--privileged`: all capabilities of the user namespace, and no filter.
    pub privileged: bool,
}

/// `--security-opt seccomp=`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeccompChoice {
    /// The profile's: none normally, Docker's with `--isolate`.
    #[default]
    Default,
    /// None.
    Unconfined,
    /// Docker's default profile.
    Docker,
    /// The text of a profile in Docker's JSON form (the caller read the file).
    Profile(String),
}

/// `--dns*`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DnsSpec {
    /// Name servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub search: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

impl DnsSpec {
    /// Nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty() && self.search.is_empty() && self.options.is_empty()
    }
}

/// `--restart`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// Never.
    #[default]
    No,
    /// When the exit code is not 0, at most so many times (`None`: without end).
    OnFailure(Option<u32>),
    /// However it ends, as long as the supervisor lives: nothing starts it after a reboot.
    Always,
    /// The same: what Docker's daemon would do differently when it starts does not arise.
    UnlessStopped,
}

/// Rotation of log files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogSpec {
    /// Keep no log.
    pub disabled: bool,
    /// Bytes after which a new file begins.
    pub max_size: u64,
    /// Files kept.
    pub max_files: u32,
}

impl Limits {
    /// Whether a control group is needed for one of them.
    pub fn need_group(&self) -> bool {
        self.memory.is_some()
            || self.cpus.is_some()
            || self.pids.is_some()
            || self.memory_swap.is_some()
            || self.memory_reservation.is_some()
            || self.cpu_shares.is_some()
    }
}

impl Default for LogSpec {
    fn default() -> Self {
        Self { disabled: false, max_size: 10 << 20, max_files: 3 }
    }
}

/// Phase of a container's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Made, never started.
    #[default]
    Created,
    /// Its first process lives.
    Running,
    /// Ended and to be started again by its supervisor.
    Restarting,
    /// Its first process ended.
    Exited,
    /// It could not be started, or its supervisor died.
    Dead,
}

/// A process that can be told from a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessId {
    /// Number in the pid namespace of Coracle's own process.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: clock ticks since boot.
    pub start_time: u64,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Inode number of the pid namespace in which the number was read; 0 where it is not known.
    pub pid_namespace: u64,
}

/// What `state.json` holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    /// Phase.
    pub status: Status,
    /// First process of the container while it runs.
    pub init: Option<ProcessId>,
    /// Its supervisor.
    pub supervisor: Option<ProcessId>,
    /// RFC 3339, or empty.
    pub started: String,
    /// RFC 3339, or empty.
    pub finished: String,
    /// How it ended: the program's code, or 128 + signal.
    pub exit_code: Option<i32>,
    /// Killed for memory.
    pub oom_killed: bool,
    /// Times it was restarted.
    pub restart_count: u32,
    /// Why it could not run.
    pub error: Option<String>,
    /// Engine that ran it.
    pub engine: Option<String>,
    /// Name of the machine it was started on; a store may be shared by several.
    pub host: String,
    /// `/etc/machine-id` there.
    pub machine_id: String,
    /// Who sees the lock that its supervisor holds while it lives.
    pub lock: Reach,
}

/// Who sees that a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// No lock is held.
    #[default]
    None,
    /// Processes of the same kernel.
    Kernel,
    /// Every machine that has the file system.
    Hosts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_as_text() {
        for (text, mode) in [
            ("host", NetworkMode::Host),
            ("bridge", NetworkMode::Private),
            ("container:db", NetworkMode::Container("db".into())),
            ("lab", NetworkMode::Named("lab".into())),
            ("my_net-1.x", NetworkMode::Named("my_net-1.x".into())),
        ] {
            assert_eq!(text.parse::<NetworkMode>(), Ok(mode), "{text}");
        }
        assert_eq!(String::from(NetworkMode::Named("lab".into())), "lab");
        for bad in ["container:", "-lab", "a/b", "a b", "ns:/proc/1", "name=lab", "\u{fc}"] {
            assert!(bad.parse::<NetworkMode>().is_err(), "{bad}");
        }
    }

    /// Records of programs that know no networks with names, and records for them.
    #[test]
    fn the_form_on_disk() {
        let old = r#"{"mode":"private","publish":[]}"#;
        let read: NetworkSpec = serde_json::from_str(old).unwrap();
        assert_eq!((&read.mode, read.networks.len()), (&NetworkMode::Private, 0));
        assert_eq!(serde_json::to_string(&read).unwrap(), old);
        let named = NetworkSpec {
            mode: NetworkMode::Named("lab".into()),
            networks: vec![Membership {
                name: "lab".into(),
                aliases: vec!["db".into()],
                address: Some(std::net::Ipv4Addr::new(100, 80, 0, 7)),
                ipv6: None,
            }],
            ..NetworkSpec::default()
        };
        let text = serde_json::to_string(&named).unwrap();
        assert!(text.contains(r#""mode":"lab""#) && text.contains(r#""100.80.0.7""#), "{text}");
        assert_eq!(serde_json::from_str::<NetworkSpec>(&text).unwrap(), named);
        assert!(!text.contains("ipv6"), "{text}");
        let mut six = named;
        six.networks[0].ipv6 = Some("fd00::6450:7".parse().unwrap());
        let text = serde_json::to_string(&six).unwrap();
        assert_eq!(serde_json::from_str::<NetworkSpec>(&text).unwrap(), six);
    }
}
