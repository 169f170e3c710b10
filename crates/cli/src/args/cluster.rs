//! Clusters.

use std::ffi::OsString;
use std::path::PathBuf;

use super::containers::{GivenCommand, ProcessOptions};

/// Which cluster: its file, or its name.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Cluster file
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Cluster
    #[arg(value_name = "CLUSTER")]
    pub name: Option<String>,
}

/// `cluster explain`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterExplainArgs {
    /// Cluster file
    #[arg(short, long, value_name = "FILE", required = true)]
    pub file: PathBuf,
}

/// `cluster up`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterUpArgs {
    /// Cluster file
    #[arg(short, long, value_name = "FILE", required = true)]
    pub file: PathBuf,
    /// Return when all services are ready, or the job is submitted, and let them run
    #[arg(short, long)]
    pub detach: bool,
    /// How long other hosts wait for a driver, when this one is lost, before they end the cluster
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub grace: String,
}

/// `cluster down`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterDownArgs {
    #[command(flatten)]
    pub which: Which,
    /// Forget hosts that are not reached, with what is on them
    #[arg(long)]
    pub force: bool,
}

/// `cluster status`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterStatusArgs {
    #[command(flatten)]
    pub which: Which,
    /// table, json, or a template
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}

/// `cluster run`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterRunArgs {
    /// Cluster file
    #[arg(short, long, value_name = "FILE", required = true)]
    pub file: PathBuf,
    /// The node whose container it runs in
    #[arg(long, value_name = "NODE")]
    pub on: Option<String>,
    /// Set an environment variable; NAME alone copies it from the host
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Read environment variables from a file
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Working directory inside the container
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Give it no terminal, also where this command has one
    #[arg(short = 'T', long)]
    pub no_tty: bool,
    /// Command and arguments; [run] of the file if there are none
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}

/// `cluster exec`.
#[derive(clap::Args, Debug)]
#[command(override_usage = "coracle cluster exec [OPTIONS] -f FILE NODE COMMAND...\n       \
                            coracle cluster exec [OPTIONS] CLUSTER NODE COMMAND...")]
pub(crate) struct ClusterExecArgs {
    /// Cluster file
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub process: ProcessOptions,
    /// The cluster if no file is given; a node, service or container; command and arguments
    #[arg(
        value_name = "WORDS",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<String>,
}

/// `cluster logs`.
#[derive(clap::Args, Debug)]
#[command(override_usage = "coracle cluster logs [OPTIONS] --file FILE [NODE...]\n       \
                            coracle cluster logs [OPTIONS] CLUSTER [NODE...]")]
pub(crate) struct ClusterLogsArgs {
    /// Cluster file; before the command also -f FILE
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Go on printing as the logs grow
    #[arg(short, long)]
    pub follow: bool,
    /// Show times
    #[arg(short, long)]
    pub timestamps: bool,
    /// Print only the last N lines of each container
    #[arg(short = 'n', long, value_name = "N", default_value = "all")]
    pub tail: String,
    /// The cluster if no file is given; nodes, services or containers
    #[arg(value_name = "WORDS")]
    pub words: Vec<String>,
}

/// `cluster cp`.
#[derive(clap::Args, Debug)]
#[command(override_usage = "coracle cluster cp [OPTIONS] -f FILE SOURCE TARGET\n       \
                            coracle cluster cp [OPTIONS] CLUSTER SOURCE TARGET")]
pub(crate) struct ClusterCpArgs {
    /// Cluster file
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Keep owners and modes (archive mode)
    #[arg(short, long)]
    pub archive: bool,
    /// Follow a symbolic link that SOURCE names
    #[arg(short = 'L', long)]
    pub follow_link: bool,
    /// The cluster if no file is given; from and to: NODE:PATH, a host path, or '-' for a tar
    #[arg(value_name = "WORDS", num_args = 2..=3, required = true)]
    pub words: Vec<String>,
}

/// `cluster attach`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterAttachArgs {
    #[command(flatten)]
    pub which: Which,
}

/// `cluster scale`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterScaleArgs {
    /// Cluster file
    #[arg(short, long, value_name = "FILE", required = true)]
    pub file: PathBuf,
    /// A service, and how many containers it is to have
    #[arg(value_name = "SERVICE=N", required = true)]
    pub wanted: Vec<String>,
}

/// `cluster replace`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterReplaceArgs {
    /// Cluster file
    #[arg(short, long, value_name = "FILE", required = true)]
    pub file: PathBuf,
    /// Services
    #[arg(value_name = "SERVICE", required = true)]
    pub services: Vec<String>,
}

/// `cluster watch`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterWatchArgs {
    /// Cluster file
    #[arg(short, long, value_name = "FILE", required = true)]
    pub file: PathBuf,
}

/// `cluster node`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterNodeArgs {
    /// resume, suspend, failed or ready
    #[arg(value_name = "ACTION")]
    pub action: String,
    /// Nodes, as Slurm writes them: compute-[1-3]; those of the job of a prolog if there are none
    #[arg(value_name = "NODES")]
    pub nodes: Option<String>,
}

/// `cluster ask`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterAskArgs {}

/// `cluster agent`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterAgentArgs {}

/// `cluster idle`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterIdleArgs {}

/// `cluster files`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterFilesArgs {
    /// Have a directory there, and look only for the paths that standard input has
    #[arg(long = "in")]
    pub within: bool,
    /// Have the directory above, and look only for the paths that standard input has
    #[arg(long)]
    pub beside: bool,
    /// Where to look
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
}

/// `cluster door`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterDoorArgs {
    /// Path of the socket
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
}

/// `cluster rank`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterRankArgs {
    /// Send a signal to the ranks of this host, and print how many they are
    #[arg(long, value_name = "NUMBER", conflicts_with = "failures")]
    pub signal: Option<i32>,
    /// Print the ranks of this host that have failed, and forget them
    #[arg(long)]
    pub failures: bool,
    /// Cluster
    #[arg(value_name = "CLUSTER")]
    pub cluster: String,
    /// Name of the start that they belong to
    #[arg(value_name = "LAUNCH")]
    pub launch: String,
    /// The command of Coracle that is the rank
    #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// `cluster mpi`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterMpiArgs {
    #[command(flatten)]
    pub given: GivenCommand,
}

/// `cluster meet`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterMeetArgs {
    /// How long to try
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub within: String,
    /// Do not connect: to be known is enough
    #[arg(long)]
    pub known: bool,
    /// Nodes
    #[arg(value_name = "NODE", required = true)]
    pub nodes: Vec<String>,
}

/// `cluster probe`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterProbeArgs {
    /// How long to try
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub within: String,
    /// tcp or http
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// HOST:PORT, or HOST:PORT/PATH
    #[arg(value_name = "PLACE")]
    pub place: String,
}

/// `cluster vrrp`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterVrrpArgs {
    /// Of containers that begin at once the one with the highest has the address: 1 to 254
    #[arg(long, value_name = "NUMBER", default_value_t = 100,
          value_parser = clap::value_parser!(u8).range(1..=254))]
    pub priority: u8,
    /// Auxiliary address of the network
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub given: GivenCommand,
}

/// `cluster spread`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterSpreadArgs {
    /// Have the image IMAGE, or pull it
    #[arg(long, value_name = "IMAGE")]
    pub source: Option<String>,
    /// Unpack it when all of it is there
    #[arg(long)]
    pub unpack: bool,
    /// Where other hosts reach this one
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<std::net::Ipv4Addr>,
}
