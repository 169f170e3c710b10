//! Volumes, space, and facts about Coracle itself.

use std::ffi::OsString;
use std::path::PathBuf;

/// `volume create`.
#[derive(clap::Args, Debug)]
pub(crate) struct VolumeCreateArgs {
    /// Label: KEY[=VALUE]
    #[arg(long, value_name = "KEY[=VALUE]")]
    pub label: Vec<String>,
    /// Driver: local (default), or x for the program coracle-volume-x, which mounts it
    #[arg(short, long, value_name = "NAME")]
    pub driver: Option<String>,
    /// Option for the driver's program
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub opt: Vec<String>,
    /// Name; made up when not given
    #[arg(value_name = "VOLUME")]
    pub name: Option<String>,
}

/// `volume mount`, `volume unmount`.
#[derive(clap::Args, Debug)]
pub(crate) struct VolumeMountArgs {
    /// Volumes
    #[arg(value_name = "VOLUME", required = true)]
    pub names: Vec<String>,
}

/// `volume ls`.
#[derive(clap::Args, Debug)]
pub(crate) struct VolumeLsArgs {
    /// Print only names
    #[arg(short, long)]
    pub quiet: bool,
    /// Show only what matches: name=, label=, dangling=, driver=
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
    /// Output: table, json, or a Go template
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}

/// `volume rm`.
#[derive(clap::Args, Debug)]
pub(crate) struct VolumeRmArgs {
    /// Do not fail where a volume is not there
    #[arg(short, long)]
    pub force: bool,
    /// Volumes
    #[arg(value_name = "VOLUME", required = true)]
    pub names: Vec<String>,
}

/// `volume inspect`.
#[derive(clap::Args, Debug)]
pub(crate) struct VolumeInspectArgs {
    /// Output: json or a Go template
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Volumes
    #[arg(value_name = "VOLUME", required = true)]
    pub names: Vec<String>,
}

/// `volume prune`.
#[derive(clap::Args, Debug)]
pub(crate) struct VolumePruneArgs {
    /// Do not ask
    #[arg(short, long)]
    pub force: bool,
    /// Volumes with a name too, not only those that were made without one
    #[arg(short, long)]
    pub all: bool,
    /// Only what matches: label=
    #[arg(long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
}

/// `prune`, `system prune`.
#[derive(clap::Args, Debug)]
pub(crate) struct PruneArgs {
    /// Images that no container uses too, not only those without a name
    #[arg(short, long)]
    pub all: bool,
    /// Do not ask
    #[arg(short, long)]
    pub force: bool,
    /// Unnamed volumes that no container uses, too
    #[arg(long)]
    pub volumes: bool,
    /// Only what matches: until=, label=
    #[arg(long, value_name = "KEY=VALUE")]
    pub filter: Vec<String>,
}

/// `system df`.
#[derive(clap::Args, Debug)]
pub(crate) struct DfArgs {
    /// One line per image, container and volume
    #[arg(short, long)]
    pub verbose: bool,
    /// Output: table, json, or a Go template
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}

/// `version`, `info`.
#[derive(clap::Args, Debug)]
pub(crate) struct FormatArgs {
    /// Output: json or a Go template
    #[arg(short, long, value_name = "FORMAT")]
    pub format: Option<String>,
}

/// `doctor`.
#[derive(clap::Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Output: text or json
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}

/// `config`.
#[derive(clap::Args, Debug)]
pub(crate) struct ConfigArgs {
    /// Output: table or json
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
    /// Show only this key
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
}

/// `completion`.
#[derive(clap::Args, Debug)]
pub(crate) struct CompletionArgs {
    /// Shell
    #[arg(value_name = "SHELL", value_parser = ["bash", "zsh", "fish"])]
    pub shell: String,
}

/// `__man`.
#[derive(clap::Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory to write the pages to
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

/// `install`.
#[derive(clap::Args, Debug)]
pub(crate) struct InstallArgs {
    /// Accepted for udocker's sake
    #[arg(long)]
    pub force: bool,
    /// Accepted for udocker's sake
    #[arg(long)]
    pub purge: bool,
}

/// `mkrepo`.
#[derive(clap::Args, Debug)]
pub(crate) struct MkrepoArgs {
    /// Directory that is not there yet
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

/// `migrate udocker`.
#[derive(clap::Args, Debug)]
pub(crate) struct MigrateArgs {
    /// udocker's directory (default: ~/.udocker, or what udocker's own settings say)
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Remove from udocker's directory what has been taken over
    #[arg(long = "mv")]
    pub remove_source: bool,
}

/// No flags at all.
#[derive(clap::Args, Debug)]
pub(crate) struct NoArgs {}

/// `lab`.
#[derive(clap::Args, Debug)]
pub(crate) struct LabArgs {
    /// Words for coracle-lab
    #[arg(value_name = "WORDS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}
