//! Options before the command, which all commands share.

use std::path::PathBuf;

use clap::Args;

/// Options before the command.
#[derive(Args, Debug, Default, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct Global {
    /// Directory of the store (default: ~/.local/share/coracle)
    #[arg(long, visible_alias = "root", alias = "repo", value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Further store to read images from; may be repeated
    #[arg(long, value_name = "DIR")]
    pub store_ro: Vec<PathBuf>,
    /// Configuration file, in place of the usual ones
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say what is being done, in detail
    #[arg(short = 'D', long)]
    pub debug: bool,
    /// How much to say: error, warn, info, debug or trace
    #[arg(short, long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// No progress, no notes
    #[arg(short, long)]
    pub quiet: bool,
    /// Accept plain HTTP and unchecked certificates (as --tls-verify=false)
    #[arg(long)]
    pub insecure: bool,
    /// Accepted for udocker's sake: being root is no error
    #[arg(long, hide = true)]
    pub allow_root: bool,
}
