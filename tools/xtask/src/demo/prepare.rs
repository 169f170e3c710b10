//! Prepares a registry with an image, with as little as possible on this machine.
//!
//! As root on Debian two packages are installed if they are missing: a registry, and a program that
//! makes a Debian tree. Where that cannot be, a registry inside this process and an image from the
//! host's busybox, or with one program of the tests, stand in for them.

use std::fs;
use std::path::PathBuf;

use testkit::command::find_program;
use testkit::docker_registry::DockerRegistry;
use testkit::image::{Image, Pack};
use testkit::layer::Layer;
use testkit::registry::Registry;
use testkit::users::{self, User};
use testkit::{debian, guest};

use crate::shell::{Outcome, has};
use crate::tools::{self, is_root};

/// A program, its package, and what stands in for it.
const WANTED: &[(&str, &str, &str)] = &[
    ("docker-registry", "docker-registry", "a registry inside this program takes its place"),
    ("mmdebstrap", "mmdebstrap", "a smaller image takes the place of Debian's"),
];

/// What the image holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Debian,
    Busybox,
    /// The tests' program `guest`, without a shell.
    Guest,
}

impl Kind {
    /// The image's name without its registry.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Debian => "debian:bookworm",
            Self::Busybox => "busybox:latest",
            Self::Guest => "guest:latest",
        }
    }
}

/// One of the two registries; it ends when dropped.
pub(super) enum Served {
    Real(DockerRegistry),
    Inside(Registry),
}

impl Served {
    pub(super) fn host(&self) -> String {
        match self {
            Self::Real(registry) => registry.host(),
            Self::Inside(registry) => registry.host(),
        }
    }
}

/// What the demo needs.
pub(super) struct Prepared {
    pub(super) registry: Served,
    pub(super) kind: Kind,
    /// The image in words.
    pub(super) about: String,
    /// The image's tree as a tar file, for tools that need one.
    pub(super) tree: Option<PathBuf>,
    /// What the caller is told.
    pub(super) notes: Vec<String>,
}

/// Prepares it all. Prints nothing, since the compilation shows its progress meanwhile.
pub(super) fn prepare() -> Outcome<Prepared> {
    let mut notes = Vec::new();
    packages(&mut notes);
    let (image, kind) = image(&mut notes);
    let built = image.build();
    let size: usize = built.layers.iter().map(|layer| layer.bytes.len()).sum();
    let (repository, tag) = kind.name().split_once(':').unwrap_or((kind.name(), "latest"));
    let registry = match DockerRegistry::start() {
        Ok(registry) => {
            let pushed = registry.target().image(repository, tag, &built);
            pushed.map_err(|error| format!("pushing the image: {error}"))?;
            Served::Real(registry)
        }
        Err(error) => {
            if has("docker-registry") {
                notes.push(format!("{error}; a registry inside this program takes its place"));
            }
            let registry = Registry::start().map_err(|error| format!("a registry: {error}"))?;
            registry.image(repository, tag, &built);
            Served::Inside(registry)
        }
    };
    let about = format!("{} ({} MB compressed)", kind.name(), size / 1_000_000);
    let tree = (kind == Kind::Debian).then(|| debian::tar().ok()).flatten();
    Ok(Prepared { registry, kind, about, tree, notes })
}

/// Installs what is missing, or notes what takes its place.
fn packages(notes: &mut Vec<String>) {
    let missing = || WANTED.iter().filter(|(program, ..)| !has(program));
    let names: Vec<&str> = missing().map(|(_, package, _)| *package).collect();
    if names.is_empty() {
        return;
    }
    let why = if !is_root() {
        "only root can install it".to_owned()
    } else if !has("apt-get") {
        "this is not Debian".to_owned()
    } else {
        match tools::install_quietly(&names) {
            Ok(()) => {
                notes.push(format!("Installed: {}.", names.join(", ")));
                return;
            }
            Err(error) => error,
        }
    };
    for (program, _, instead) in missing() {
        notes.push(format!("{program} is missing ({why}): {instead}."));
    }
}

/// The best image that can be had here.
fn image(notes: &mut Vec<String>) -> (Image, Kind) {
    match debian::tar() {
        // The quick form: time counts more than bytes on a loopback.
        Ok(file) => match fs::read(&file) {
            Ok(tar) => {
                let image = Image::new().packed(tar, Pack::Zstd);
                return (with_shell(image, "bash"), Kind::Debian);
            }
            Err(error) => notes.push(format!("{}: {error}.", file.display())),
        },
        Err(reason) if has("mmdebstrap") => {
            notes.push(format!("No Debian tree ({reason}): a smaller image takes its place."));
        }
        Err(_) => {}
    }
    match busybox() {
        Some(image) => (image, Kind::Busybox),
        None => (guest::image(), Kind::Guest),
    }
}

fn with_shell(image: Image, shell: &str) -> Image {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    image.env("PATH", path).cmd(&[shell])
}

/// An image of the host's busybox, if that is a static program.
fn busybox() -> Option<Image> {
    let bytes = fs::read(find_program("busybox")?).ok()?;
    let is_dynamic = bytes.windows(8).any(|window| window == b"/ld-linu" || window == b"/ld-musl");
    if is_dynamic {
        return None;
    }
    let mut layer = Layer::new();
    for dir in ["bin", "etc", "root", "tmp", "dev", "proc", "sys"] {
        layer = layer.dir(dir);
    }
    layer = layer.file("bin/busybox", 0o755, bytes);
    for name in ["sh", "cat", "echo", "id", "ls", "mkdir", "sleep", "touch", "true", "chown", "ps"]
    {
        layer = layer.symlink(&format!("bin/{name}"), "busybox");
    }
    let passwd = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/:/bin/sh\n";
    layer = layer
        .file("etc/passwd", 0o644, passwd)
        .file("etc/group", 0o644, "root:x:0:\nwww-data:x:33:\n")
        .file("etc/os-release", 0o644, "PRETTY_NAME=\"busybox of this host\"\n");
    Some(with_shell(Image::new().layer(layer), "sh"))
}

/// The user that runs everything: a test user if root calls, else the caller.
pub(super) fn user() -> Outcome<User> {
    if is_root() {
        users::create().map_err(|error| format!("making the test users: {error}"))?;
    }
    users::all().into_iter().next().ok_or_else(|| "there is no unprivileged user".to_owned())
}
