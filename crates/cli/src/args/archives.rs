//! Archives: images and trees that come and go as files.

use std::path::PathBuf;

/// `save`.
#[derive(clap::Args, Debug)]
pub(crate) struct SaveArgs {
    /// File to write; standard output when not given or '-'
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format: docker-archive, oci-archive or oci-dir
    #[arg(long, value_name = "FORMAT", default_value = "docker-archive")]
    pub format: String,
    /// Write layers uncompressed where they were stored so, else as they are
    #[arg(long, hide = true)]
    pub uncompressed: bool,
    /// Replace the file if it is there: under udocker's name alone it would be kept
    #[arg(long, hide = true)]
    pub force: bool,
    /// Images
    #[arg(value_name = "IMAGE", required = true)]
    pub images: Vec<String>,
}

/// `load`.
#[derive(clap::Args, Debug)]
pub(crate) struct LoadArgs {
    /// File or directory to read; standard input when not given or '-'
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Print less: no progress
    #[arg(short, long)]
    pub quiet: bool,
    /// Platform, where the archive holds several
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<String>,
    /// Name for an image that has none in the archive (udocker)
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
}

/// `import`.
#[derive(clap::Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct ImportArgs {
    /// Change the image's configuration: "CMD [...]", "ENV A=b", "WORKDIR /x", ...
    #[arg(short, long, value_name = "INSTRUCTION")]
    pub change: Vec<String>,
    /// Comment kept in the image's history
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Platform of the tree: OS/ARCHITECTURE[/VARIANT]
    #[arg(long, value_name = "PLATFORM")]
    pub platform: Option<String>,
    /// Print less
    #[arg(short, long)]
    pub quiet: bool,
    /// Tar file (plain, gzip or zstd), directory, or '-' for standard input
    #[arg(value_name = "FILE|DIRECTORY|-")]
    pub source: PathBuf,
    /// Make a container of the tree too, and print its id (udocker)
    #[arg(long)]
    pub tocontainer: bool,
    /// Make a container of what 'export --clone' has written, with all that it was told, and print
    /// its id (udocker)
    #[arg(long, conflicts_with = "tocontainer")]
    pub clone: bool,
    /// Name of that container (udocker)
    #[arg(long = "name", value_name = "NAME")]
    pub container: Option<String>,
    /// Remove the file when all is done (udocker)
    #[arg(long = "mv")]
    pub remove_source: bool,
    /// Name for the image
    #[arg(value_name = "NAME[:TAG]")]
    pub name: Option<String>,
}

/// `export`.
#[derive(clap::Args, Debug)]
pub(crate) struct ExportArgs {
    /// File to write; standard output when not given or '-'
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write what is known of the container too, for 'import --clone', in udocker's form
    #[arg(long)]
    pub clone: bool,
    /// Container; udocker's '-' for standard output may stand before it
    #[arg(value_name = "CONTAINER", required = true, num_args = 1..=2)]
    pub container: Vec<String>,
}

/// `cp`.
#[derive(clap::Args, Debug)]
pub(crate) struct CpArgs {
    /// Keep owners and modes (archive mode)
    #[arg(short, long)]
    pub archive: bool,
    /// Follow a symbolic link that SOURCE names
    #[arg(short = 'L', long)]
    pub follow_link: bool,
    /// What the first entry of the archive is called that '-' stands for
    #[arg(long, value_name = "NAME", hide = true)]
    pub entry: Option<String>,
    /// Print nothing
    #[arg(short, long)]
    pub quiet: bool,
    /// CONTAINER:PATH, a host path, or '-' for a tar stream from standard input
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// CONTAINER:PATH, a host path, or '-' for a tar stream to standard output
    #[arg(value_name = "TARGET")]
    pub target: String,
}
