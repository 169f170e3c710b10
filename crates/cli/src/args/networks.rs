//! Networks with names.

use std::path::PathBuf;

use containers::networks::Ports;

/// `network create`.
#[derive(clap::Args, Debug)]
pub(crate) struct NetworkCreateArgs {
    /// Addresses of the network: ADDRESS/BITS; a free range when not given. Once for IPv4, and with
    /// --ipv6 once for IPv6
    #[arg(long, value_name = "CIDR")]
    pub subnet: Vec<String>,
    /// Members with namespaces (N1, R1) have IPv6 addresses, too, which follow from their IPv4 ones
    #[arg(long)]
    pub ipv6: bool,
    /// Address of the way out; the first one of the subnet when not given
    #[arg(long, value_name = "ADDRESS")]
    pub gateway: Option<String>,
    /// Part of the subnet from which containers get addresses
    #[arg(long, value_name = "CIDR")]
    pub ip_range: Option<String>,
    /// Address that no container gets: NAME=ADDRESS, or NAME for a free one. The member with a
    /// namespace (N1, R1) that announces it has it, as keepalived does; the name leads there
    #[arg(long, value_name = "NAME[=ADDRESS]")]
    pub aux_address: Vec<String>,
    /// Members reach each other and nothing else
    #[arg(long)]
    pub internal: bool,
    /// Label: KEY[=VALUE]
    #[arg(long, value_name = "KEY[=VALUE]")]
    pub label: Vec<String>,
    /// Option that is recorded and shown
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    pub opt: Vec<String>,
    /// Driver: bridge is the only one
    #[arg(short, long, value_name = "NAME", default_value = "bridge", hide_default_value = true)]
    pub driver: String,
    /// Who meets in it: host (the containers of one machine) or cluster (of several)
    #[arg(long, value_name = "SCOPE", default_value = "host", hide_default_value = true)]
    pub scope: String,
    /// Address at which other hosts reach this one; that of the default route when not given
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,
    /// Port of this host's agent, or FIRST-LAST for a free one of these; the first free one from
    /// 7370 to 7999 when not given
    #[arg(long, value_name = "PORT")]
    pub port: Option<Ports>,
    /// Recorded: single containers may join any network
    #[arg(long)]
    pub attachable: bool,
    /// Name
    #[arg(value_name = "NETWORK")]
    pub name: String,
}

/// `network invite`.
#[derive(clap::Args, Debug)]
pub(crate) struct NetworkInviteArgs {
    /// Network
    #[arg(value_name = "NETWORK")]
    pub network: String,
}

/// `network join`.
#[derive(clap::Args, Debug)]
pub(crate) struct NetworkJoinArgs {
    /// File with the entries of all hosts
    #[arg(long, value_name = "FILE", required = true)]
    pub member: PathBuf,
    /// Address at which other hosts reach this one; that of the default route when not given
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<String>,
    /// Port of this host's agent, or FIRST-LAST for a free one of these; the first free one from
    /// 7370 to 7999 when not given
    #[arg(long, value_name = "PORT")]
    pub port: Option<Ports>,
    /// Network, which is made if there is none
    #[arg(value_name = "NETWORK")]
    pub network: String,
}

/// `network ls`.
#[derive(clap::Args, Debug)]
pub(crate) struct NetworkLsArgs {
    /// Print only ids
    #[arg(short, long)]
    pub quiet: bool,
    /// Print whole ids
    #[arg(long)]
    pub no_trunc: bool,
    /// Show only what matches: name=, id=, label=, driver=, scope=, type=, dangling=
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
    /// Output: table, json, or a Go template
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}

/// `network inspect`.
#[derive(clap::Args, Debug)]
pub(crate) struct NetworkInspectArgs {
    /// Output: json or a Go template
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Networks
    #[arg(value_name = "NETWORK", required = true)]
    pub names: Vec<String>,
}

/// `network rm`.
#[derive(clap::Args, Debug)]
pub(crate) struct NetworkRmArgs {
    /// Do not fail where a network is not there
    #[arg(short, long)]
    pub force: bool,
    /// Networks
    #[arg(value_name = "NETWORK", required = true)]
    pub names: Vec<String>,
}

/// `network prune`.
#[derive(clap::Args, Debug)]
pub(crate) struct NetworkPruneArgs {
    /// Do not ask
    #[arg(short, long)]
    pub force: bool,
    /// Only what matches: until=, label=
    #[arg(long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
}

/// `network connect`.
#[derive(clap::Args, Debug)]
pub(crate) struct NetworkConnectArgs {
    /// Address of the container in the network; a free one when not given
    #[arg(long, value_name = "ADDRESS")]
    pub ip: Option<String>,
    /// The same by its IPv6 address: the network's IPv6 range with the IPv4 address at its end
    #[arg(long, value_name = "ADDRESS")]
    pub ip6: Option<String>,
    /// Further name of the container in the network
    #[arg(long, value_name = "NAME")]
    pub alias: Vec<String>,
    /// Network
    #[arg(value_name = "NETWORK")]
    pub network: String,
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
}

/// `network disconnect`.
#[derive(clap::Args, Debug)]
pub(crate) struct NetworkDisconnectArgs {
    /// Also from a network that was removed
    #[arg(short, long)]
    pub force: bool,
    /// Network
    #[arg(value_name = "NETWORK")]
    pub network: String,
    /// Container
    #[arg(value_name = "CONTAINER")]
    pub container: String,
}
