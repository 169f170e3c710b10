//! Defines requests as plain data, and reads the text forms that Docker has for parts of them.
//!
//! A front end fills a [`ContainerRequest`] from its own words: the command line from flags, an
//! HTTP server from JSON. Text forms that both share (`-v`, `-p`, `--ulimit`) are read by the
//! modules here, once; what comes out is typed.

pub mod command_line;
pub mod environment;
pub mod gpus;
pub mod host_list;
pub mod ineffective;
pub mod limits;
pub mod mounts;
pub mod networks;
pub mod options;
pub mod ports;

use std::collections::BTreeMap;
use std::path::PathBuf;

use engine::spec::{
    DeviceSpec, DnsSpec, Limits, NamespaceMode, Publish, RestartPolicy, SeccompChoice,
    UserNamespace,
};
use oci::Platform;

use crate::config::PullPolicy;
use environment::Change;
use gpus::GpuRequest;
use mounts::MountRequest;
use networks::Networks;

/// A container that is to be made, or a run of one that exists.
#[derive(Debug, Clone, Default)]
pub struct ContainerRequest {
    /// Which image, which engine.
    pub image: ImageRequest,
    /// The command and its arguments, in place of the image's; empty for the image's.
    pub command: Vec<String>,
    /// How the process is started.
    pub process: ProcessRequest,
    /// What the process sees of the file system.
    pub files: FileRequest,
    /// Names and addresses.
    pub network: NetworkRequest,
    /// How much it may use.
    pub limits: Limits,
    /// How far it is kept apart.
    pub security: SecurityRequest,
    /// What is kept about it.
    pub record: RecordRequest,
    /// Options of Docker's without effect here, as flags and values.
    pub ineffective: Vec<(&'static str, String)>,
    /// What cannot be applied is an error.
    pub strict: bool,
}

/// Which image, which engine.
#[derive(Debug, Clone, Default)]
pub struct ImageRequest {
    /// Name or id; `None` where `rootfs` is given.
    pub name: Option<String>,
    /// When to pull; `None` for the configured policy.
    pub pull: Option<PullPolicy>,
    /// Use the container of this request's name if there is one (udocker's `--pull=reuse`).
    pub reuse: bool,
    /// For which platform; `None` for the host's.
    pub platform: Option<Platform>,
    /// How the registry is reached.
    pub registry: RegistryRequest,
    /// Use this directory as it is, in place of an image.
    pub rootfs: Option<PathBuf>,
    /// The mode of execution.
    pub exec_mode: Option<String>,
    /// Whether a container without mounts lies above its image; `None` for the configured form.
    pub index: Option<bool>,
    /// Pass over what the image says of environment, user, directory and command.
    pub ignore_config: bool,
}

/// How a registry is reached.
#[derive(Debug, Clone, Default)]
pub struct RegistryRequest {
    /// Require HTTPS and check certificates; `None` for the configured behaviour.
    pub tls_verify: Option<bool>,
    /// Directory with the registry's certificates.
    pub cert_dir: Option<PathBuf>,
    /// File with credentials, in Docker's format.
    pub authfile: Option<PathBuf>,
    /// `USER[:PASSWORD]` for this request alone.
    pub creds: Option<String>,
    /// URL of a proxy.
    pub proxy: Option<String>,
    /// The registry of names that say none: a host or a URL.
    pub host: Option<String>,
}

/// How the process is started.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent requests")]
pub struct ProcessRequest {
    /// Keep standard input open.
    pub interactive: bool,
    /// A terminal of its own.
    pub tty: bool,
    /// Variables from files; those in `env` win over them.
    pub env_files: Vec<Change>,
    /// Variables.
    pub env: Vec<Change>,
    /// Variables that have these values unless something else sets them.
    pub env_defaults: Vec<(String, String)>,
    /// Pass the session's whole environment into the container.
    pub host_environment: bool,
    /// Working directory inside the container, absolute.
    pub workdir: Option<String>,
    /// `USER[:GROUP]`, by name or number.
    pub user: Option<String>,
    /// Supplementary groups, by name or number.
    pub groups: Vec<String>,
    /// Mask of permissions of new files.
    pub umask: Option<u32>,
    /// Replaces the image's entrypoint, and drops its command; empty for none.
    pub entrypoint: Option<Vec<String>>,
    /// Run a small init as process 1.
    pub init: bool,
    /// Name or number of the signal that stops the container.
    pub stop_signal: Option<String>,
    /// Seconds between that signal and `SIGKILL`.
    pub stop_timeout: Option<u32>,
}

/// What the process sees of the file system.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent requests")]
pub struct FileRequest {
    /// Binds, volumes and memory file systems, in this order.
    pub mounts: Vec<MountRequest>,
    /// Containers whose mounts are taken over.
    pub volumes_from: Vec<VolumesFrom>,
    /// Make the root file system read-only.
    pub read_only: bool,
    /// Device nodes of the host.
    pub devices: Vec<DeviceSpec>,
    /// GPUs and CDI devices, found anew at each start.
    pub gpus: GpuRequest,
    /// The request says something about GPUs, be it "none".
    pub says_gpus: bool,
    /// Mount the caller's home directory at the same path.
    pub bind_home: bool,
    /// Show the host's users and groups.
    pub host_accounts: bool,
    /// Let programs draw on the caller's screen.
    pub x11: bool,
    /// The host's graphics devices (`/dev/dri`).
    pub graphics: bool,
}

/// A container whose mounts are taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumesFrom {
    /// Name or id.
    pub container: String,
    /// Mount them read-only.
    pub read_only: bool,
}

/// Names and addresses.
#[derive(Debug, Clone, Default)]
pub struct NetworkRequest {
    /// The network, or those with names.
    pub networks: Networks,
    /// Published ports.
    pub publish: Vec<Publish>,
    /// Those that the image and `expose` name are published, too, at free ports of the host.
    pub publish_all: bool,
    /// Host name in the container.
    pub hostname: Option<String>,
    /// Further lines of `/etc/hosts`: name and address.
    pub hosts: Vec<(String, String)>,
    /// Name servers, search domains, resolver options.
    pub dns: DnsSpec,
    /// Ports that are said to be served, as `PORT/PROTOCOL`.
    pub expose: Vec<String>,
}

/// How far the container is kept apart.
#[derive(Debug, Clone, Default)]
pub struct SecurityRequest {
    /// As Docker does: namespaces, few capabilities, filtered system calls.
    pub isolate: bool,
    /// Security options, in the order in which they count.
    pub options: Vec<SecurityOption>,
    /// All capabilities of the user namespace, and no filter.
    pub privileged: bool,
    /// Settings of the kernel for the container's own namespaces.
    pub sysctls: BTreeMap<String, String>,
    /// Capabilities to add.
    pub cap_add: Vec<String>,
    /// Capabilities to drop.
    pub cap_drop: Vec<String>,
    /// Process ids.
    pub pid: Option<NamespaceMode>,
    /// Shared memory and message queues.
    pub ipc: Option<NamespaceMode>,
    /// Host name.
    pub uts: Option<NamespaceMode>,
    /// Control groups.
    pub cgroup: Option<NamespaceMode>,
    /// User ids.
    pub user: Option<UserNamespace>,
    /// Enter the namespaces of this container.
    pub join: Option<String>,
}

/// One security option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityOption {
    /// Programs may gain privileges by executing set-id programs, or not.
    NoNewPrivileges(bool),
    /// The filter of system calls.
    Seccomp(SeccompChoice),
    /// Switches something off that is never on here (SELinux, `AppArmor`).
    Nothing,
}

/// What is kept about the container.
#[derive(Debug, Clone, Default)]
pub struct RecordRequest {
    /// Its name.
    pub name: Option<String>,
    /// Labels from files; those in `labels` win over them.
    pub label_files: BTreeMap<String, String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// A new file that gets the container's id.
    pub cidfile: Option<PathBuf>,
    /// Start again after the program has ended.
    pub restart: Option<RestartPolicy>,
    /// Remove the container when its program ends.
    pub remove: bool,
    /// Its log.
    pub log: LogRequest,
}

/// A container's log; `None` for what is configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// Whether a log is kept.
    pub kept: Option<bool>,
    /// Size at which it is rotated, in bytes.
    pub max_size: Option<u64>,
    /// How many files are kept.
    pub max_files: Option<u32>,
}
