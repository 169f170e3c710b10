//! Containers that are there: listing, starting, entering, stopping, removing and renaming them.

use std::path::PathBuf;

use super::run::LimitFlags;

/// `ps`.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct PsArgs {
    /// Show those that do not run, too
    #[arg(short, long)]
    pub all: bool,
    /// Print only ids
    #[arg(short, long)]
    pub quiet: bool,
    /// Show the newest container, in whatever state
    #[arg(short, long)]
    pub latest: bool,
    /// Show the N newest containers, in whatever state
    #[arg(short = 'n', long, value_name = "N", default_value_t = -1, hide_default_value = true)]
    pub last: i64,
    /// Show sizes
    #[arg(short, long)]
    pub size: bool,
    /// Do not shorten
    #[arg(long)]
    pub no_trunc: bool,
    /// Show only what matches: name=, id=, status=, label=, ancestor=, exited=, before=, since=,
    /// volume=
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
    /// Output: table, json, or a Go template
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// udocker's list, with execution modes (udocker)
    #[arg(short, long)]
    pub mode: bool,
    /// udocker's list, with platforms (udocker)
    #[arg(short, long)]
    pub platform: bool,
}

/// `protect`, `unprotect`.
#[derive(clap::Args, Debug)]
pub(crate) struct ProtectArgs {
    /// Container or image
    #[arg(value_name = "CONTAINER|IMAGE")]
    pub name: String,
}

/// `rm`.
#[derive(clap::Args, Debug)]
pub(crate) struct RmArgs {
    /// Stop a container that runs, by SIGKILL
    #[arg(short, long)]
    pub force: bool,
    /// Remove its anonymous volumes too, which are kept otherwise
    #[arg(short, long)]
    pub volumes: bool,
    /// Remove every container
    #[arg(short, long)]
    pub all: bool,
    /// A machine that shares the store is gone for good: what runs there by its records does not
    /// count
    #[arg(long, value_name = "HOST")]
    pub host_is_gone: Option<String>,
    /// Containers
    #[arg(value_name = "CONTAINER", required_unless_present = "all")]
    pub containers: Vec<String>,
}

/// `start`.
#[derive(clap::Args, Debug)]
pub(crate) struct StartArgs {
    /// Attach to its output and wait for it
    #[arg(short, long)]
    pub attach: bool,
    /// Attach standard input
    #[arg(short, long)]
    pub interactive: bool,
    /// Keys that leave a container with a terminal
    #[arg(long, value_name = "KEYS")]
    pub detach_keys: Option<String>,
    /// Containers
    #[arg(value_name = "CONTAINER", required = true)]
    pub containers: Vec<String>,
}

/// `stop`.
#[derive(clap::Args, Debug)]
pub(crate) struct StopArgs {
    /// Seconds to wait before killing
    #[arg(short, long, visible_alias = "timeout", value_name = "SECONDS")]
    pub time: Option<i64>,
    /// Signal to send first
    #[arg(short, long, value_name = "SIGNAL")]
    pub signal: Option<String>,
    /// Stop every container
    #[arg(long)]
    pub all: bool,
    /// A machine that shares the store is gone for good: what runs there by its records does not
    /// count
    #[arg(long, value_name = "HOST")]
    pub host_is_gone: Option<String>,
    /// Containers
    #[arg(value_name = "CONTAINER", required_unless_present = "all")]
    pub containers: Vec<String>,
}

/// `restart`.
#[derive(clap::Args, Debug)]
pub(crate) struct RestartArgs {
    /// Seconds to wait before killing
    #[arg(short, long, visible_alias = "timeout", value_name = "SECONDS")]
    pub time: Option<i64>,
    /// Signal to send first
    #[arg(short, long, value_name = "SIGNAL")]
    pub signal: Option<String>,
    /// Containers
    #[arg(value_name = "CONTAINER", required = true)]
    pub containers: Vec<String>,
}

/// `kill`.
#[derive(clap::Args, Debug)]
pub(crate) struct KillArgs {
    /// Signal: name or number
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL")]
    pub signal: String,
    /// Containers
    #[arg(value_name = "CONTAINER", required = true)]
    pub containers: Vec<String>,
}

/// `pause` and `unpause`.
#[derive(clap::Args, Debug)]
pub(crate) struct PauseArgs {
    /// Containers
    #[arg(value_name = "CONTAINER", required = true)]
    pub containers: Vec<String>,
}

/// `wait`.
#[derive(clap::Args, Debug)]
pub(crate) struct WaitArgs {
    /// Containers
    #[arg(value_name = "CONTAINER", required = true)]
    pub containers: Vec<String>,
}

/// `logs`.
#[derive(clap::Args, Debug)]
pub(crate) struct LogsArgs {
    /// Go on printing as the log grows
    #[arg(short, long)]
    pub follow: bool,
    /// Show times
    #[arg(short, long)]
    pub timestamps: bool,
    /// Print only the last N lines
    #[arg(short = 'n', long, value_name = "N", default_value = "all")]
    pub tail: String,
    /// Only since this time (2026-01-02T13:23:37Z, or 42m for 42 minutes)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Accepted for Docker's sake: logs carry no further details
    #[arg(long, hide = true)]
    pub details: bool,
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
}

/// `attach`.
#[derive(clap::Args, Debug)]
pub(crate) struct AttachArgs {
    /// Keys that leave the container
    #[arg(long, value_name = "KEYS")]
    pub detach_keys: Option<String>,
    /// Do not attach standard input
    #[arg(long)]
    pub no_stdin: bool,
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
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
}

/// What a further process in a container has.
#[derive(clap::Args, Debug)]
pub(crate) struct ProcessOptions {
    /// Set an environment variable; NAME alone copies it from the host
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Read environment variables from a file
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Keep standard input open
    #[arg(short, long)]
    pub interactive: bool,
    /// Give the process a terminal of its own
    #[arg(short, long)]
    pub tty: bool,
    /// User: name or id, optionally with a group (USER[:GROUP])
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub user: Option<String>,
    /// Working directory inside the container
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<String>,
}

/// The last words: a command.
#[derive(clap::Args, Debug)]
pub(crate) struct GivenCommand {
    /// Command and arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<String>,
}

/// `exec`.
#[derive(clap::Args, Debug)]
pub(crate) struct ExecArgs {
    /// Run in the background
    #[arg(short, long)]
    pub detach: bool,
    /// Keys that leave a session with a terminal
    #[arg(long, value_name = "KEYS")]
    pub detach_keys: Option<String>,
    #[command(flatten)]
    pub process: ProcessOptions,
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
    #[command(flatten)]
    pub given: GivenCommand,
}

/// `top`.
#[derive(clap::Args, Debug)]
pub(crate) struct TopArgs {
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
    /// Options for ps (-eo pid,comm, aux, ...)
    #[arg(value_name = "PS OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<String>,
}

/// `stats`.
#[derive(clap::Args, Debug)]
pub(crate) struct StatsArgs {
    /// Containers that do not run too
    #[arg(short, long)]
    pub all: bool,
    /// Print once and end
    #[arg(long)]
    pub no_stream: bool,
    /// Print whole ids
    #[arg(long)]
    pub no_trunc: bool,
    /// Output: table, json, or a Go template
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Containers; all that run when none is given
    #[arg(value_name = "CONTAINER")]
    pub containers: Vec<String>,
}

/// `events`.
#[derive(clap::Args, Debug)]
pub(crate) struct EventsArgs {
    /// Only these: KEY=VALUE with container, event, image, label, scope, type or volume
    #[arg(short, long, value_name = "FILTER")]
    pub filter: Vec<String>,
    /// Begin at this time (2026-01-02T13:23:37Z, or 42m for 42 minutes ago)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// End at this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Output: json, or a Go template
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}

/// `diff`.
#[derive(clap::Args, Debug)]
pub(crate) struct DiffArgs {
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
}

/// `update`.
#[derive(clap::Args, Debug)]
pub(crate) struct UpdateArgs {
    #[command(flatten)]
    pub limits: LimitFlags,
    /// Start again after it ends: no, on-failure[:N], always, unless-stopped
    #[arg(long, value_name = "POLICY")]
    pub restart: Option<String>,
    /// Containers
    #[arg(value_name = "CONTAINER", required = true)]
    pub containers: Vec<String>,
}

/// `rename`.
#[derive(clap::Args, Debug)]
pub(crate) struct RenameArgs {
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
    /// New name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// `name`.
#[derive(clap::Args, Debug)]
pub(crate) struct NameArgs {
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
    /// Further name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// `rmname`.
#[derive(clap::Args, Debug)]
pub(crate) struct RmnameArgs {
    /// Name to take away
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// `clone`.
#[derive(clap::Args, Debug)]
pub(crate) struct CloneArgs {
    /// Name of the copy
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
}

/// `setup`.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct SetupArgs {
    /// Keep this execution mode for the container
    #[arg(long, value_name = "MODE")]
    pub execmode: Option<String>,
    /// Give the container the host's GPUs at each start, as run --gpus does; none takes them away
    #[arg(long, value_name = "GPUS")]
    pub gpus: Option<String>,
    /// The same as --gpus all (udocker)
    #[arg(long)]
    pub nvidia: bool,
    /// Accepted: what cannot be put on disk is in a table of owners, so trees need no repair
    #[arg(long, hide = true)]
    pub fixperm: bool,
    /// Accepted: nothing is written into a container's tree by running it but places for mounts
    #[arg(long, hide = true)]
    pub purge: bool,
    /// Change the mode even while the container runs
    #[arg(long)]
    pub force: bool,
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
}

/// `port`.
#[derive(clap::Args, Debug)]
pub(crate) struct PortArgs {
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
    /// Port of the container: PORT[/PROTOCOL]
    #[arg(value_name = "PORT")]
    pub port: Option<String>,
}

/// `container prune`.
#[derive(clap::Args, Debug)]
pub(crate) struct ContainerPruneArgs {
    /// Do not ask
    #[arg(short, long)]
    pub force: bool,
    /// Only what matches: until=, label=
    #[arg(long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
}
