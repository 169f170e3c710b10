//! Images: fetching, naming, looking at and removing them.

use std::path::PathBuf;

/// How a registry is talked to.
#[derive(clap::Args, Debug, Default, Clone)]
#[command(next_help_heading = "Registry")]
pub(crate) struct RegistryFlags {
    /// Require HTTPS and check certificates; --tls-verify=false allows plain HTTP
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub tls_verify: Option<bool>,
    /// Directory with the registry's certificates: *.crt to trust, *.cert and *.key to show
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
    /// File with credentials, in Docker's format
    #[arg(long, value_name = "FILE")]
    pub authfile: Option<PathBuf>,
    /// User name and password for this command (prefer 'coracle login')
    #[arg(long, value_name = "USER[:PASSWORD]")]
    pub creds: Option<String>,
    /// Proxy: http://, https:// or socks5://[USER:PASSWORD@]HOST:PORT
    #[arg(long, visible_alias = "httpproxy", value_name = "URL")]
    pub proxy: Option<String>,
    /// Registry of names that say none: HOST[:PORT] or a URL (udocker)
    #[arg(long = "registry", value_name = "URL")]
    pub host: Option<String>,
}

/// udocker's name for what the registry itself is asked here. `run` and `create` have a flag of
/// this name.
#[derive(clap::Args, Debug, Default, Clone)]
pub(crate) struct IndexFlag {
    /// Accepted for udocker's sake: the registry is asked for its index
    #[arg(long, value_name = "URL", hide = true)]
    index: Option<String>,
}

/// `pull`.
#[derive(clap::Args, Debug)]
pub(crate) struct PullArgs {
    /// Print only the name of the image
    #[arg(short, long)]
    pub quiet: bool,
    /// Platform of the image: OS/ARCHITECTURE[/VARIANT]
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<String>,
    /// Pull every tag of the repository
    #[arg(short, long)]
    pub all_tags: bool,
    /// Keep the blobs only; layers are unpacked by the first run
    #[arg(long)]
    pub no_unpack: bool,
    #[command(flatten)]
    pub registry: RegistryFlags,
    #[command(flatten)]
    pub udocker: IndexFlag,
    /// Image: [HOST[:PORT]/]NAME[:TAG][@DIGEST]
    #[arg(value_name = "IMAGE", required = true)]
    pub images: Vec<String>,
}

/// `images`.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct ImagesArgs {
    /// Show images without a name too
    #[arg(short, long)]
    pub all: bool,
    /// Print only ids
    #[arg(short, long)]
    pub quiet: bool,
    /// Show digests
    #[arg(long)]
    pub digests: bool,
    /// Do not shorten
    #[arg(long)]
    pub no_trunc: bool,
    /// Show only images that match: dangling=, reference=, before=, since=, label=
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
    /// Output: table, json, or a Go template
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// udocker's list, with each image's layers (udocker)
    #[arg(short, long)]
    pub long: bool,
    /// udocker's list, with each image's platform (udocker)
    #[arg(short, long)]
    pub platform: bool,
    /// Show only this repository or image
    #[arg(value_name = "IMAGE")]
    pub name: Option<String>,
}

/// `image inspect`.
#[derive(clap::Args, Debug)]
pub(crate) struct ImageInspectArgs {
    /// Show the index of the image's tree instead, which engines without mounts use
    #[arg(long)]
    pub index: bool,
    #[command(flatten)]
    pub inspect: InspectArgs,
}

/// `inspect`, `container inspect`.
#[derive(clap::Args, Debug)]
pub(crate) struct InspectArgs {
    /// Output: json or a Go template
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// What the name means: container, image, network or volume
    #[arg(long, value_name = "TYPE")]
    pub r#type: Option<String>,
    /// Show the container's size
    #[arg(short, long)]
    pub size: bool,
    /// Print only the path of the container's tree (udocker)
    #[arg(short = 'p', long)]
    pub root_path: bool,
    /// Containers, images, networks or volumes
    #[arg(value_name = "NAME|ID", required = true)]
    pub names: Vec<String>,
}

/// `tag`.
#[derive(clap::Args, Debug)]
pub(crate) struct TagArgs {
    /// Image that is there
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Further name for it
    #[arg(value_name = "TARGET")]
    pub target: String,
}

/// `rmi`.
#[derive(clap::Args, Debug)]
pub(crate) struct RmiArgs {
    /// Remove all of its names, and even if containers were made from it
    #[arg(short, long)]
    pub force: bool,
    /// Remove every image
    #[arg(short, long)]
    pub all: bool,
    /// Keep untagged content (removed later by 'coracle image prune')
    #[arg(long)]
    pub no_prune: bool,
    /// Images
    #[arg(value_name = "IMAGE", required_unless_present = "all")]
    pub images: Vec<String>,
}

/// `history`.
#[derive(clap::Args, Debug)]
pub(crate) struct HistoryArgs {
    /// Sizes and times for people
    #[arg(
        short = 'H',
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
    pub human: bool,
    /// Do not shorten
    #[arg(long)]
    pub no_trunc: bool,
    /// Print only ids
    #[arg(short, long)]
    pub quiet: bool,
    /// Output: table, json, or a Go template
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Image
    #[arg(value_name = "IMAGE")]
    pub image: String,
}

/// `manifest inspect`.
#[derive(clap::Args, Debug)]
pub(crate) struct ManifestInspectArgs {
    /// Show the manifest of this platform in place of the index
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<String>,
    /// Show the reference and descriptor too
    #[arg(short, long)]
    pub verbose: bool,
    /// Accept plain HTTP and unchecked certificates
    #[arg(long)]
    pub insecure: bool,
    #[command(flatten)]
    pub registry: RegistryFlags,
    #[command(flatten)]
    pub udocker: IndexFlag,
    /// Image, in the store or in a registry
    #[arg(value_name = "IMAGE")]
    pub image: String,
}

/// `verify`.
#[derive(clap::Args, Debug)]
pub(crate) struct VerifyArgs {
    /// Print nothing but what is wrong
    #[arg(short, long)]
    pub quiet: bool,
    /// Remove what is damaged, so that it is fetched again
    #[arg(long)]
    pub repair: bool,
    /// Images; all of the store when none is named
    #[arg(value_name = "IMAGE")]
    pub images: Vec<String>,
}

/// `search`.
#[derive(clap::Args, Debug)]
pub(crate) struct SearchArgs {
    /// Print every result without asking (udocker)
    #[arg(short, long, hide = true)]
    pub all: bool,
    /// Show only results that match: is-official=true, stars=N
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
    /// Output: table, json, or a Go template
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Highest number of results
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub limit: usize,
    /// Do not shorten
    #[arg(long)]
    pub no_trunc: bool,
    /// List the tags of the repository TERM
    #[arg(long)]
    pub list_tags: bool,
    #[command(flatten)]
    pub registry: RegistryFlags,
    #[command(flatten)]
    pub udocker: IndexFlag,
    /// What to look for: [HOST[:PORT]/]TERM
    #[arg(value_name = "TERM")]
    pub term: String,
}

/// `login`.
#[derive(clap::Args, Debug)]
pub(crate) struct LoginArgs {
    /// User name
    #[arg(short, long, value_name = "NAME")]
    pub username: Option<String>,
    /// Password (seen by other users in the process list: prefer --password-stdin)
    #[arg(short, long, value_name = "PASSWORD")]
    pub password: Option<String>,
    /// Read the password from standard input
    #[arg(long)]
    pub password_stdin: bool,
    /// Print who is logged in
    #[arg(long)]
    pub get_login: bool,
    #[command(flatten)]
    pub registry: RegistryFlags,
    #[command(flatten)]
    pub udocker: IndexFlag,
    /// Registry (docker.io when not given)
    #[arg(value_name = "REGISTRY")]
    pub server: Option<String>,
}

/// `logout`.
#[derive(clap::Args, Debug)]
pub(crate) struct LogoutArgs {
    /// Log out of all registries
    #[arg(short, long)]
    pub all: bool,
    /// The same as REGISTRY (udocker)
    #[arg(long = "registry", value_name = "URL")]
    pub host: Option<String>,
    /// File with credentials, in Docker's format
    #[arg(long, value_name = "FILE")]
    pub authfile: Option<PathBuf>,
    /// Registry (docker.io when not given)
    #[arg(value_name = "REGISTRY")]
    pub server: Option<String>,
}

/// `image prune`.
#[derive(clap::Args, Debug)]
pub(crate) struct ImagePruneArgs {
    /// Remove all images that no container uses, not only those without a name
    #[arg(short, long)]
    pub all: bool,
    /// Do not ask
    #[arg(short, long)]
    pub force: bool,
    /// Only what matches: until=, label=
    #[arg(long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
}
