//! `run` and `create`: the flags that describe a container. Names, shorts and meanings are
//! Docker's; the few that come from udocker or are Coracle's own say so. The headings group them in
//! `--help`.
//!
//! Everything here is *low*: what was typed. [`super::request`] turns it into the core's request.

use std::path::PathBuf;

use super::images::RegistryFlags;

/// How the process is started.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Process")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct ProcessFlags {
    /// Keep standard input open
    #[arg(short, long)]
    pub interactive: bool,
    /// Give the process a terminal of its own
    #[arg(short, long)]
    pub tty: bool,
    /// Set an environment variable; NAME alone copies it from the host
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Read environment variables from a file (NAME=VALUE lines)
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Set NAME=VALUE unless the image or another option sets NAME
    #[arg(long, value_name = "VARIABLE")]
    pub env_default: Vec<String>,
    /// Pass the host's whole environment into the container (udocker)
    #[arg(long)]
    pub hostenv: bool,
    /// Working directory inside the container
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// User: name or id, optionally with a group (USER[:GROUP])
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    /// Supplementary group (name or id), beside the image's; keep-groups keeps the caller's
    #[arg(long, value_name = "GROUP")]
    pub group_add: Vec<String>,
    /// Mask of permissions of new files (022)
    #[arg(long, value_name = "OCTAL")]
    pub umask: Option<String>,
    /// Run this in place of the image's entrypoint; "" clears it
    #[arg(long, value_name = "COMMAND")]
    pub entrypoint: Option<String>,
    /// Run a small init as process 1 that forwards signals and reaps
    #[arg(long)]
    pub init: bool,
    /// Signal that stops the container
    #[arg(long, value_name = "SIGNAL")]
    pub stop_signal: Option<String>,
    /// Seconds to wait after the stop signal before killing
    #[arg(long, value_name = "SECONDS")]
    pub stop_timeout: Option<i64>,
}

/// What the process sees of the file system.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Files")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct FileFlags {
    /// Mount a host path or a named volume: HOST:CONTAINER[:OPTIONS] (ro, rw, nocopy, noexec, ...);
    /// a host directory that is not there is made
    #[arg(short, long, value_name = "SOURCE:TARGET[:OPTIONS]")]
    pub volume: Vec<String>,
    /// Mount in long form: type=bind|volume|tmpfs,src=...,dst=...[,ro]
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub mount: Vec<String>,
    /// Mount what another container has mounted: CONTAINER[:ro]
    #[arg(long, value_name = "CONTAINER[:ro]")]
    pub volumes_from: Vec<String>,
    /// Mount an empty memory file system: TARGET[:OPTIONS]
    #[arg(long, value_name = "TARGET[:OPTIONS]")]
    pub tmpfs: Vec<String>,
    /// Make the container's root file system read-only
    #[arg(long)]
    pub read_only: bool,
    /// Make a host device available: HOST[:CONTAINER[:PERMISSIONS]], or its CDI name
    /// VENDOR/CLASS=NAME
    #[arg(long, value_name = "HOST[:CONTAINER[:rwm]]")]
    pub device: Vec<String>,
    /// Make the host's GPUs available with what their driver needs: all, a number, or
    /// device=INDEX|UUID,...
    #[arg(long, value_name = "GPUS")]
    pub gpus: Option<String>,
    /// Size of /dev/shm
    #[arg(long, value_name = "SIZE")]
    pub shm_size: Option<String>,
    /// Mount the caller's home directory at the same path (udocker)
    #[arg(long)]
    pub bindhome: bool,
    /// Show the host's /etc/passwd and /etc/group in the container (udocker)
    #[arg(long)]
    pub hostauth: bool,
    /// Let programs draw on the caller's screen: its socket, its key and DISPLAY
    #[arg(long)]
    pub x11: bool,
    /// Make the host's graphics devices (/dev/dri) available (udocker)
    #[arg(long)]
    pub dri: bool,
}

/// Names and addresses.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Network")]
pub(crate) struct NetworkFlags {
    /// Network: host, none, private, or one with a name (several times; also as
    /// name=NETWORK,alias=NAME,ip=ADDRESS)
    #[arg(long, visible_alias = "net", value_name = "NETWORK")]
    pub network: Vec<String>,
    /// Further name of the container in the first network
    #[arg(long, value_name = "NAME")]
    pub network_alias: Vec<String>,
    /// Address of the container in the first network
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<String>,
    /// The same by its IPv6 address: the network's IPv6 range with the IPv4 address at its end
    #[arg(long, value_name = "ADDRESS")]
    pub ip6: Option<String>,
    /// Publish a port of the container: [[IP:]HOST:]CONTAINER[/PROTOCOL]
    #[arg(short, long, value_name = "[[IP:]HOST:]CONTAINER[/PROTO]")]
    pub publish: Vec<String>,
    /// Publish each port that the image or --expose names at a free port of the host
    #[arg(short = 'P', long)]
    pub publish_all: bool,
    /// Record that the container serves a port: PORT[-PORT][/PROTOCOL]
    #[arg(long, value_name = "PORT[-PORT][/PROTO]")]
    pub expose: Vec<String>,
    /// Host name in the container
    #[arg(short = 'h', long, value_name = "NAME")]
    pub hostname: Option<String>,
    /// Add a line to /etc/hosts
    #[arg(long, value_name = "HOST:IP")]
    pub add_host: Vec<String>,
    /// Name server
    #[arg(long, value_name = "IP")]
    pub dns: Vec<String>,
    /// Domain that names are searched in
    #[arg(long, value_name = "DOMAIN")]
    pub dns_search: Vec<String>,
    /// Resolver option
    #[arg(long, visible_alias = "dns-opt", value_name = "OPTION")]
    pub dns_option: Vec<String>,
}

/// What `update` can change too.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Resources")]
pub(crate) struct LimitFlags {
    /// Number of CPUs, may be a fraction
    #[arg(long, value_name = "NUMBER")]
    pub cpus: Option<String>,
    /// Weight of the container against others, 1024 being usual
    #[arg(short, long, value_name = "NUMBER")]
    pub cpu_shares: Option<u64>,
    /// Microseconds of each period that may be used
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub cpu_quota: Option<i64>,
    /// Length of that period in microseconds (100000)
    #[arg(long, value_name = "NUMBER")]
    pub cpu_period: Option<i64>,
    /// CPUs that may be used (0-3, 0,1)
    #[arg(long, value_name = "LIST")]
    pub cpuset_cpus: Option<String>,
    /// Memory limit (512m, 2g)
    #[arg(short, long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Limit of memory and swap together (-1: no limit)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory_swap: Option<String>,
    /// Memory that is taken away last
    #[arg(long, value_name = "SIZE")]
    pub memory_reservation: Option<String>,
    /// Highest number of processes (-1: no limit)
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub pids_limit: Option<i64>,
}

/// How much it may use.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Resources")]
pub(crate) struct ResourceFlags {
    #[command(flatten)]
    pub limits: LimitFlags,
    /// How much sooner than others it is ended where memory is short (-1000 to 1000)
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub oom_score_adj: Option<i32>,
    /// Resource limit of the process: TYPE=SOFT[:HARD]; at most the caller's hard limit
    #[arg(long, value_name = "TYPE=SOFT[:HARD]")]
    pub ulimit: Vec<String>,
    /// Refuse limits and options that cannot be applied here, instead of warning
    #[arg(long)]
    pub strict: bool,
}

/// What Docker has and cannot have an effect here: recorded, shown by `inspect`, and told.
#[derive(clap::Args, Debug, Default, Clone)]
pub(crate) struct IneffectiveFlags {
    #[arg(long, hide = true)]
    pub blkio_weight: Option<u16>,
    #[arg(long, hide = true)]
    pub blkio_weight_device: Vec<String>,
    #[arg(long, hide = true)]
    pub device_read_bps: Vec<String>,
    #[arg(long, hide = true)]
    pub device_write_bps: Vec<String>,
    #[arg(long, hide = true)]
    pub device_read_iops: Vec<String>,
    #[arg(long, hide = true)]
    pub device_write_iops: Vec<String>,
    #[arg(long, hide = true)]
    pub device_cgroup_rule: Vec<String>,
    #[arg(long, hide = true)]
    pub cpu_rt_period: Option<i64>,
    #[arg(long, hide = true)]
    pub cpu_rt_runtime: Option<i64>,
    #[arg(long, hide = true)]
    pub cpuset_mems: Option<String>,
    #[arg(long, hide = true)]
    pub kernel_memory: Option<String>,
    #[arg(long, hide = true, allow_negative_numbers = true)]
    pub memory_swappiness: Option<i64>,
    #[arg(long, hide = true)]
    pub oom_kill_disable: bool,
    #[arg(long, hide = true)]
    pub cgroup_parent: Option<String>,
    #[arg(long, hide = true)]
    pub storage_opt: Vec<String>,
    #[arg(long, hide = true)]
    pub isolation: Option<String>,
    #[arg(long, hide = true)]
    pub runtime: Option<String>,
    #[arg(long, hide = true)]
    pub health_cmd: Option<String>,
    #[arg(long, hide = true)]
    pub health_interval: Option<String>,
    #[arg(long, hide = true)]
    pub health_timeout: Option<String>,
    #[arg(long, hide = true)]
    pub health_start_period: Option<String>,
    #[arg(long, hide = true)]
    pub health_start_interval: Option<String>,
    #[arg(long, hide = true)]
    pub health_retries: Option<u32>,
    #[arg(long, hide = true, conflicts_with = "health_cmd")]
    pub no_healthcheck: bool,
}

/// How far it is kept apart.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Isolation")]
pub(crate) struct SecurityFlags {
    /// Keep the container apart as Docker does: own pids, ipc, host name and network, few
    /// capabilities, filtered system calls
    #[arg(long)]
    pub isolate: bool,
    /// All capabilities in the container's user namespace, and no filter
    #[arg(long)]
    pub privileged: bool,
    /// Setting of the kernel for the container's own network or ipc namespace: NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE")]
    pub sysctl: Vec<String>,
    /// Security option: no-new-privileges, seccomp=FILE|unconfined
    #[arg(long, value_name = "OPTION")]
    pub security_opt: Vec<String>,
    /// Add a capability
    #[arg(long, value_name = "CAP")]
    pub cap_add: Vec<String>,
    /// Drop a capability
    #[arg(long, value_name = "CAP")]
    pub cap_drop: Vec<String>,
    /// Process ids: host, private or container:NAME
    #[arg(long, value_name = "MODE")]
    pub pid: Option<String>,
    /// Shared memory and message queues: host, private or container:NAME
    #[arg(long, value_name = "MODE")]
    pub ipc: Option<String>,
    /// Host name: host or private
    #[arg(long, value_name = "MODE")]
    pub uts: Option<String>,
    /// User ids: host (the caller's own id inside too), keep-id, or empty for the default (root
    /// inside)
    #[arg(long, value_name = "MODE")]
    pub userns: Option<String>,
    /// Control groups: host or private
    #[arg(long, value_name = "MODE")]
    pub cgroupns: Option<String>,
    /// Enter the namespaces of a running container (ranks of one MPI job)
    #[arg(long, value_name = "CONTAINER")]
    pub join: Option<String>,
}

/// Which image, which engine.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Image and engine")]
pub(crate) struct ImageFlags {
    /// When to pull: always, missing (the default), never or newer
    #[arg(long, value_name = "POLICY")]
    pub pull: Option<String>,
    /// Platform of the image: OS/ARCHITECTURE[/VARIANT]
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<String>,
    /// Use this plain directory as it is, in place of an image
    #[arg(long, visible_alias = "location", value_name = "DIR")]
    pub rootfs: Option<PathBuf>,
    /// Execution mode (see 'coracle doctor')
    #[arg(long, value_name = "MODE")]
    pub execmode: Option<String>,
    /// Use the image's index in modes without mounts: on (the default), or off for a whole tree of
    /// hard links
    #[arg(long, value_name = "on|off")]
    pub index: Option<String>,
    #[command(flatten)]
    pub registry: RegistryFlags,
}

/// What is kept about it.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Container")]
pub(crate) struct RecordFlags {
    /// Name of the container
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Label: KEY[=VALUE]
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    pub label: Vec<String>,
    /// Read labels from a file
    #[arg(long, value_name = "FILE")]
    pub label_file: Vec<PathBuf>,
    /// Annotation: KEY[=VALUE]
    #[arg(long, value_name = "KEY[=VALUE]")]
    pub annotation: Vec<String>,
    /// Write the container's id to a new file
    #[arg(long, value_name = "FILE")]
    pub cidfile: Option<PathBuf>,
    /// Start again after it ends: no, on-failure[:N], always, unless-stopped
    #[arg(long, value_name = "POLICY")]
    pub restart: Option<String>,
    /// Remove the container that is made here when it ends
    #[arg(long)]
    pub rm: bool,
    /// Log option: max-size=SIZE, max-file=N
    #[arg(long, value_name = "KEY=VALUE")]
    pub log_opt: Vec<String>,
    /// Log driver: json-file or none
    #[arg(long, value_name = "DRIVER")]
    pub log_driver: Option<String>,
    /// Accepted for udocker's sake: no banner is ever printed
    #[arg(long, hide = true)]
    pub nobanner: bool,
}

/// What udocker has besides. Most of it asks for what is so anyway.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "udocker")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct UdockerFlags {
    /// Pass over what the image says of environment, user, directory and command
    #[arg(long)]
    pub nometa: bool,
    /// Do not use the mount of the host that udocker makes here: there are none
    #[arg(long, value_name = "PATH", hide = true)]
    pub novol: Vec<String>,
    /// Accepted: /dev, /proc and /sys are the container's own
    #[arg(long, hide = true)]
    pub nosysdirs: bool,
    /// Accepted: the image's own /etc/passwd is always used
    #[arg(long, hide = true)]
    pub containerauth: bool,
    /// The same as --gpus all
    #[arg(long, hide = true)]
    pub nvidia: bool,
    /// Accepted: on the host's network containers reach each other
    #[arg(long, hide = true)]
    pub netcoop: bool,
}

/// All that `create` and `run` share.
#[derive(clap::Args, Debug, Default, Clone)]
pub(crate) struct ContainerFlags {
    #[command(flatten)]
    pub process: ProcessFlags,
    #[command(flatten)]
    pub files: FileFlags,
    #[command(flatten)]
    pub network: NetworkFlags,
    #[command(flatten)]
    pub resources: ResourceFlags,
    #[command(flatten)]
    pub security: SecurityFlags,
    #[command(flatten)]
    pub image: ImageFlags,
    #[command(flatten)]
    pub udocker: UdockerFlags,
    #[command(flatten)]
    pub ineffective: IneffectiveFlags,
    #[command(flatten)]
    pub record: RecordFlags,
}

/// `create`.
#[derive(clap::Args, Debug)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    pub flags: ContainerFlags,
    /// Print less: no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// Replace a container of that name (udocker)
    #[arg(long)]
    pub force: bool,
    /// Image to make the container from
    #[arg(value_name = "IMAGE", required_unless_present = "rootfs")]
    pub image: Option<String>,
    /// Command and arguments, in place of the image's
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// `run`.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub flags: ContainerFlags,
    /// Run in the background and print the container's id
    #[arg(short, long)]
    pub detach: bool,
    /// Keys that leave a container with a terminal
    #[arg(long, value_name = "KEYS")]
    pub detach_keys: Option<String>,
    /// Attach to stdin, stdout or stderr alone
    #[arg(short, long, value_name = "STREAM")]
    pub attach: Vec<String>,
    /// Pass signals on to the process
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = true,
        default_missing_value = "true",
        hide_default_value = true,
        action = clap::ArgAction::Set,
        hide_possible_values = true
    )]
    pub sig_proxy: bool,
    /// Print less: no progress while pulling
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the plan as JSON and do not run it
    #[arg(long)]
    pub explain: bool,
    /// Image that is stored; else a container, by name or id, to run in; else an image to pull
    #[arg(value_name = "CONTAINER|IMAGE", required_unless_present = "rootfs")]
    pub image: Option<String>,
    /// Command and arguments, in place of the image's
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}
