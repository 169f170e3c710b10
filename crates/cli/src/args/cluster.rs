//! Clusters.

use std::path::PathBuf;

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

/// `cluster agent`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterAgentArgs {}

/// `cluster idle`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterIdleArgs {}

/// `cluster door`.
#[derive(clap::Args, Debug)]
pub(crate) struct ClusterDoorArgs {
    /// Path of the socket
    #[arg(value_name = "PATH")]
    pub path: PathBuf,
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
