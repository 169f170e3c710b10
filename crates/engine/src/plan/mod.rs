//! The plan of a run: everything that will be done, as data.
//!
//! [`compute::plan`] is a pure function from a [`ContainerConfig`](crate::spec::ContainerConfig),
//! the [`Facts`](crate::facts::Facts) and a [`Root`] to a [`Plan`]. An engine executes it step by
//! step; `--explain` prints it; tests compare it. It holds no open file and no decision that
//! depends on anything but its inputs, with two exceptions that only the executor can take: whether
//! a process already lives in the container (then its namespaces are entered instead of made), and
//! which optional mounts exist.

mod compute;
mod identity;
mod limits;
mod mounts;
mod namespaces;
mod peers;
mod security;

pub use compute::{Overrides, PrivateBy, Request, check_hostname, plan};
pub use identity::{Accounts, KEEP_GROUPS, NoAccounts, caller_inside, home, range};
pub use limits::changed_settings;
pub use namespaces::Neighbour;
pub use peers::variables;
pub use security::{capability_names, parse_capability};

use crate::spec::MountSpec;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

/// Address under which pasta answers name queries for the host.
pub const DNS_FORWARD: &str = "169.254.1.1";

/// Address under which slirp4netns does.
pub const SLIRP_DNS: &str = "10.0.2.3";

/// How the names of containers' control groups begin.
pub(crate) const CGROUP_PREFIX: &str = "coracle-";

/// What a run will do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent decisions, as data")]
pub struct Plan {
    /// Container id.
    pub container: String,
    /// The container's directory: lock and records of who lives in it are kept in its `run/`.
    pub place: PathBuf,
    /// The files.
    pub root: Root,
    /// The root is mounted read-only.
    pub read_only_root: bool,
    /// Ids.
    pub ids: Ids,
    /// Namespaces besides user and mount.
    pub namespaces: Namespaces,
    /// Mounts in the order in which they are made.
    pub mounts: Vec<Mount>,
    /// Host name to set (private uts namespace).
    pub hostname: Option<String>,
    /// Network.
    pub network: Network,
    /// Control group.
    pub cgroup: Option<Cgroup>,
    /// Settings of the kernel in new namespaces, by paths below `/proc/sys`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sysctls: Vec<(String, String)>,
    /// The program.
    pub process: Process,
    /// Ids and owners are emulated: any can be had, and what the kernel cannot keep is recorded.
    pub emulate_root: bool,
    /// User and group of the container: they own its volumes where ids are emulated.
    #[serde(default)]
    pub user: (u32, u32),
    /// Programs of the host that the engine may need to start the container, by the keys that the
    /// engines give them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub helpers: BTreeMap<String, PathBuf>,
    /// Features that the backend inside processes does not use: [`abi::shared::Switches`] as a
    /// number.
    #[serde(default)]
    pub switches: u64,
    /// Directory beside the image's tree for files that an engine makes of the image's, for all of
    /// its containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside_image: Option<PathBuf>,
    /// The index of the only lower directory of an overlay ([`Root::Overlay`]). With it, an engine
    /// without mounts puts the two layers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<PathBuf>,
    /// The container is a boundary (`--isolate`): its program and its image may be hostile.
    #[serde(default)]
    pub isolate: bool,
    /// A small init is the first process and the program its child.
    pub init: bool,
    /// Mounts of this run alone: where somebody lives in the container already, they must be there.
    pub added: Vec<MountSpec>,
    /// Files written into the container's directory before the mounts (they are bound by `mounts`).
    pub files: Vec<EtcFile>,
    /// Arguments of a command that must start this program again so that limits hold (`systemd-run
    /// --user --scope ...`).
    pub wrapper: Option<Vec<String>>,
    /// Notes for the user (a flag without effect, as in Docker).
    pub warnings: Vec<String>,
}

impl Plan {
    /// Whether the program goes beside that of a run and belongs to it (`exec`).
    #[must_use]
    pub fn is_exec(&self) -> bool {
        // The container's own program alone may make its working directory.
        !self.process.create_cwd
    }
}

/// The tree that becomes `/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Root {
    /// Kernel overlay.
    Overlay {
        /// Lower directories, topmost first.
        lowers: Vec<PathBuf>,
        /// Writable directory.
        upper: PathBuf,
        /// Overlay's own work directory, same file system as `upper`.
        work: PathBuf,
        /// Mount with `volatile`: never sync.
        volatile: bool,
    },
    /// A directory used as it is.
    Directory {
        /// The directory.
        path: PathBuf,
    },
}

/// One line of an id map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// First id inside.
    pub inside: u32,
    /// First id outside.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// How ids are mapped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ids {
    /// One user and one group; no privilege needed.
    Single {
        /// User.
        uid: IdRange,
        /// Group.
        gid: IdRange,
    },
    /// Several, written by the helpers.
    Range {
        /// User lines.
        uids: Vec<IdRange>,
        /// Group lines.
        gids: Vec<IdRange>,
        /// `newuidmap` and `newgidmap`; `None` where the caller may write the maps itself (real
        /// root).
        helpers: Option<(PathBuf, PathBuf)>,
    },
}

/// Where one namespace comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The host's (the caller's).
    #[default]
    Host,
    /// A new one.
    New,
    /// That of this process.
    Of(u32),
}

/// Namespaces besides user and mount, which are always new (or the running container's).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Namespaces {
    /// Process ids.
    pub pid: Source,
    /// System V IPC.
    pub ipc: Source,
    /// Host name.
    pub uts: Source,
    /// Network.
    pub net: Source,
    /// Control groups.
    pub cgroup: Source,
    /// Process whose user namespace is entered instead of making one (`--join`, `container:`).
    pub user_of: Option<u32>,
}

/// Flags of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, as the user gives them")]
pub struct MountFlags {
    /// Read-only.
    pub read_only: bool,
    /// No programs.
    pub noexec: bool,
    /// Setuid bits have no effect.
    pub nosuid: bool,
    /// Device nodes do not work.
    pub nodev: bool,
    /// What the host mounts later beneath the source does not appear. Only of binds.
    pub private: bool,
}

/// One operation on the container's tree, done after its root has become `/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mount {
    /// A host file or directory with everything mounted beneath it.
    Bind {
        /// Host path.
        source: PathBuf,
        /// Path inside.
        target: PathBuf,
        /// Flags, applied to everything beneath.
        flags: MountFlags,
        /// Skip it when the host has no such file, or the container no place for it.
        optional: bool,
    },
    /// Memory.
    Tmpfs {
        /// Path inside.
        target: PathBuf,
        /// Flags.
        flags: MountFlags,
        /// `size=`, `mode=`... for the file system.
        options: Vec<(String, String)>,
    },
    /// What a process of another container has at the same path.
    Shared {
        /// The process.
        of: u32,
        /// Path in both.
        path: PathBuf,
    },
    /// A file system of the kernel: `proc`, `sysfs`, `devpts`, `mqueue`, `cgroup2`.
    Kernel {
        /// Type.
        kind: String,
        /// Path inside.
        target: PathBuf,
        /// Flags.
        flags: MountFlags,
        /// Options.
        options: Vec<(String, String)>,
        /// When the kernel refuses (an enclosing container masks its `/proc`), bind the host's
        /// instead.
        or_bind: bool,
    },
    /// A symbolic link, kept if something is there already.
    Symlink {
        /// Path inside.
        path: PathBuf,
        /// Text of the link.
        to: PathBuf,
    },
    /// Hide a file (behind `/dev/null`) or a directory (behind an empty one), if it exists.
    Mask {
        /// Path inside.
        path: PathBuf,
    },
    /// Make what is there read-only, if it exists.
    ReadOnly {
        /// Path inside.
        path: PathBuf,
    },
    /// Make the whole root read-only (after the mount points have been made).
    ReadOnlyRoot,
}

/// A small file made for this container, such as its `/etc/hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcFile {
    /// Where it is written on the host.
    pub path: PathBuf,
    /// Host file whose lines come first.
    pub base: Option<PathBuf>,
    /// Lines of the base that begin with one of these words are left out.
    pub without: Vec<String>,
    /// Text after that.
    pub text: String,
}

/// Network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Nothing to do: the host's or a joined one.
    #[default]
    Inherit,
    /// New, loopback up, nothing else.
    Loopback,
    /// New, connected by a helper program.
    Helper(Outside),
    /// The host's, with addresses and ports that are translated: networks with names, where there
    /// is no network namespace. The place is given when the container starts; a plan that is only
    /// shown has none.
    Names(Option<NetworkPlace>),
    /// New, with a device for each network with a name.
    Packets(Box<Packets>),
}

impl Network {
    /// The container's place among those with which it has networks, once it has one.
    #[must_use]
    pub fn place(&self) -> Option<&NetworkPlace> {
        match self {
            Self::Names(place) => place.as_ref(),
            Self::Packets(packets) => packets.place.as_ref(),
            Self::Inherit | Self::Loopback | Self::Helper(_) => None,
        }
    }

    /// Whether it is made of networks with names.
    #[must_use]
    pub fn is_named(&self) -> bool {
        matches!(self, Self::Names(_) | Self::Packets(_))
    }

    /// Whether it is connected from the host's namespaces.
    pub(crate) fn needs_host(&self) -> bool {
        matches!(self, Self::Helper(_) | Self::Packets(_))
    }
}

/// The way of networks with names to everything but their members.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WayOut {
    /// A helper program, by a device of its own.
    Helper(Outside),
    /// The switch, by the gateway of the first network that has one.
    Switch {
        /// Why it is none of the helpers, which have fewer limits.
        because: String,
        /// Ports.
        publish: Vec<crate::spec::Publish>,
    },
}

/// The helper program that connects a network namespace with the outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// `pasta` or `slirp4netns`.
    pub program: PathBuf,
    /// Whether it is slirp4netns.
    pub slirp: bool,
    /// The slirp4netns that is used where pasta does not start.
    pub or_slirp: Option<PathBuf>,
    /// Ports.
    pub publish: Vec<crate::spec::Publish>,
}

/// Networks with names in a network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packets {
    /// What its devices are.
    pub device: Device,
    /// The way to everything but the networks' members; `None` where there is none.
    pub outside: Option<WayOut>,
    /// The container's place, given when it starts.
    pub place: Option<NetworkPlace>,
}

/// What the devices of a network namespace are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// TAP devices.
    #[default]
    Tap,
    /// Pairs of devices, whose other ends are read through packet sockets.
    Veth,
}

/// A container's place in the table of networks ([`abi::network`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkPlace {
    /// Path of the table.
    pub table: PathBuf,
    /// The container's slot: 0 to 4095.
    pub slot: u16,
    /// The container's address in its first network.
    pub address: Ipv4Addr,
    /// Its name there, which is its host name too where it has no other.
    pub name: String,
    /// Lines of `/etc/hosts`: the names of the networks' members.
    pub hosts: String,
    /// Names are asked for at 127.0.0.11.
    pub asks: bool,
    /// The switch, where it is connected by packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch: Option<Switch>,
}

/// The process of the host that forwards frames, and what it is told and given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The path of its socket, on which one message begins a connection.
    pub socket: PathBuf,
    /// That message. With it go the devices' descriptors, a UDP socket and a TCP listener for
    /// questions for names.
    pub greeting: String,
    /// What is said after it if the switch is the container's way out; with it go the sockets of
    /// published ports. `None` where no network has a way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
    /// The arguments with which this program is started as the switch, if there is none.
    pub start: (String, PathBuf),
    /// The devices.
    pub links: Vec<Link>,
}

/// The device of one network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The container's address.
    pub address: Ipv4Addr,
    /// How many bits of it all members have.
    pub prefix: u8,
    /// The device's own address.
    pub ethernet: [u8; 6],
    /// Its longest packet, in bytes.
    pub mtu: u32,
    /// The address of the way out; `None` in a network that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<Ipv4Addr>,
    /// The container's IPv6 address, and how many bits of it all members have; `None` in a network
    /// that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<(Ipv6Addr, u8)>,
}

/// Limits through a control group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// The delegated directory.
    pub parent: PathBuf,
    /// Name of the group to make in it.
    pub name: String,
    /// File name and value, in order.
    pub settings: Vec<(String, String)>,
}

/// Supplementary groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Groups {
    /// Those of the caller (the kernel does not let one-id namespaces change them).
    Keep,
    /// These.
    Set(Vec<u32>),
}

/// Capability sets of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Bits that stay in the bounding set.
    pub bounding: u64,
    /// Bits made ambient (a user other than root keeps these over `execve`).
    pub ambient: u64,
}

/// System call filter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seccomp {
    /// None.
    #[default]
    None,
    /// Docker's default.
    Docker,
    /// A profile in Docker's JSON form.
    Profile(String),
}

/// One resource limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// `RLIMIT_*` number.
    pub resource: u32,
    /// Soft limit, `u64::MAX` for none.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

/// The program and what it is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Process {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// `KEY=VALUE`.
    pub env: Vec<String>,
    /// Working directory inside.
    pub cwd: PathBuf,
    /// Make the working directory if it is missing (the container's own, not that of an `exec`).
    pub create_cwd: bool,
    /// User inside.
    pub uid: u32,
    /// Group inside.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Groups,
    /// Some of them are the caller's own on the host.
    #[serde(default)]
    pub keeps_groups: bool,
    /// Capabilities; `None` leaves what the namespace gives.
    pub capabilities: Option<Capabilities>,
    /// Resource limits.
    pub rlimits: Vec<Rlimit>,
    /// Processors, where no control group can say it.
    pub affinity: Vec<usize>,
    /// Mask of permissions of new files; `None` keeps the caller's.
    #[serde(default)]
    pub umask: Option<u32>,
    /// How much sooner than others the kernel ends it where memory is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
    /// `no_new_privs`.
    pub no_new_privileges: bool,
    /// Filter.
    pub seccomp: Seccomp,
    /// A terminal is its controlling one.
    pub tty: bool,
}
