//! Finds the files of NVIDIA's driver on this host: libraries, tools, loader configuration, device
//! nodes.
//!
//! A list of names would not suffice, since every release adds some. All libraries of one release
//! end in its version (`libcuda.so.550.54.15`), so every name in a directory of libraries that
//! leads to such a file belongs to the driver: the real name, the `soname` that programs look for,
//! and the one for the linker. This holds for the packages of Debian (real files in
//! `nvidia/current`, names by `/etc/alternatives`), of Ubuntu and RHEL, for NVIDIA's `.run` files
//! and for other prefixes (`/usr/local/nvidia`). Libraries of the driver with versions of their own
//! (`libnvidia-egl-wayland.so.1.1.13`) are found by name.
//!
//! The driver's root is `/`, or the directory of a driver that is kept beside the system
//! (`/run/nvidia/driver`). Nothing is executed.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::devices::{names_in, nvidia_version};
use crate::programs::read_trimmed;

/// The files of the driver that a container can use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Driver {
    /// Its version; empty in WSL, where libraries have none.
    pub version: String,
    /// Libraries for this machine, and for its 32-bit programs.
    pub libraries: Vec<Library>,
    /// Programs and files: path on the host, path in the container.
    pub files: Vec<(PathBuf, PathBuf)>,
    /// Device nodes that all GPUs need: path on the host, path in the container.
    pub nodes: Vec<(PathBuf, PathBuf)>,
    /// The GPUs, in the order of their numbers.
    pub gpus: Vec<Card>,
}

/// A library under one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Path of the file, without symbolic links.
    pub host: PathBuf,
    /// Its name in a directory of libraries: `libcuda.so.1`, `vdpau/libvdpau_nvidia.so.1`.
    pub name: PathBuf,
    /// True for a library of 32-bit programs.
    pub is_32_bit: bool,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Card {
    /// `GPU-...`, if the driver reports it.
    pub uuid: Option<String>,
    /// Its node: path on the host, path in the container.
    pub node: (PathBuf, PathBuf),
}

/// Directories of libraries, besides those in the loader's configuration. `@` stands for the
/// machine's name.
const DIRECTORIES: [&str; 16] = [
    "usr/lib/@-linux-gnu",
    "lib/@-linux-gnu",
    "usr/lib/@-linux-gnu/nvidia/current",
    "usr/lib64",
    "lib64",
    "usr/lib",
    "lib",
    "usr/lib/i386-linux-gnu",
    "usr/lib/i386-linux-gnu/nvidia/current",
    "usr/lib32",
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
    "usr/local/lib",
    "opt/nvidia/lib64",
    "run/opengl-driver/lib",
    "usr/lib/wsl/lib",
];

/// Directories beneath those, which programs look for by name.
const BENEATH: [&str; 6] =
    ["", "vdpau", "gbm", "nvidia/xorg", "xorg/modules/drivers", "xorg/modules/extensions"];

/// The directory in which Windows shows its driver.
const WSL: &str = "usr/lib/wsl/lib";

/// Prefixes of driver libraries that have versions of their own.
const OTHERS: [&str; 3] = ["libnvidia-egl-", "libnvidia-api.so", "libnvidia-nvvm"];

const PROGRAMS: [&str; 7] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
];
const PROGRAM_DIRECTORIES: [&str; 8] = [
    "usr/bin",
    "usr/sbin",
    "bin",
    "sbin",
    "usr/local/bin",
    "usr/local/nvidia/bin",
    "opt/bin",
    "usr/lib/wsl/lib",
];

/// Where a driver leaves configuration, and where programs in the container look for it.
const TOPS: [(&str, &str); 3] =
    [("etc", "/etc"), ("usr/share", "/usr/share"), ("usr/local/nvidia/share", "/usr/share")];

/// Directories beneath those; files in them that are named after NVIDIA belong to the driver.
const CONFIGURATION: [&str; 7] = [
    "glvnd/egl_vendor.d",
    "egl/egl_external_platform.d",
    "vulkan/icd.d",
    "vulkan/implicit_layer.d",
    "vulkansc/icd.d",
    "OpenCL/vendors",
    "nvidia",
];

/// Sockets of daemons that the libraries talk to.
const SOCKETS: [&str; 3] =
    ["run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket", "tmp/nvidia-mps"];

impl Driver {
    /// Finds a driver beneath `root`; `None` if there is none.
    pub fn find(root: &Path) -> Option<Driver> {
        let tree = Tree::new(root);
        let directories = tree.library_directories();
        let wsl = tree.real(WSL);
        let version = match tree.version(&directories) {
            Some(version) => version,
            None if wsl.is_some() => String::new(),
            None => return None,
        };
        let mut driver = Driver { version, ..Driver::default() };
        driver.libraries = tree.libraries(&directories, &driver.version, wsl.as_deref());
        driver.files = tree.files(&driver.version);
        if let Some(wsl) = wsl.as_deref().and_then(Path::parent) {
            driver.files.push((wsl.to_owned(), "/usr/lib/wsl".into()));
        }
        (driver.nodes, driver.gpus) = tree.nodes();
        Some(driver)
    }
}

/// A root directory in which paths are resolved.
struct Tree<'a> {
    root: &'a Path,
}

impl<'a> Tree<'a> {
    fn new(root: &'a Path) -> Self {
        Self { root }
    }

    /// Resolves a path, symbolic links included, to a path of the host.
    fn real(&self, path: &str) -> Option<PathBuf> {
        if self.root == Path::new("/") {
            return Path::new("/").join(path).canonicalize().ok();
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let top = rustix::fs::open(self.root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
        let none = ResolveFlags::empty();
        let file = sys::fs::resolve::open_in_root(&top, path, flags, none).ok()?;
        std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
    }

    fn names(&self, directory: &str) -> Vec<String> {
        self.real(directory).map(|path| names_in(&path)).unwrap_or_default()
    }

    /// Directories of libraries without duplicates and links, those of the loader's configuration
    /// first.
    fn library_directories(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.configured("etc/ld.so.conf", 0, &mut all);
        let machine = std::env::consts::ARCH;
        all.extend(DIRECTORIES.iter().map(|path| path.replace('@', machine)));
        let mut seen = Vec::new();
        all.retain(|path| {
            self.real(path).is_some_and(|real| {
                let new = real.is_dir() && !seen.contains(&real);
                seen.push(real);
                new
            })
        });
        all
    }

    /// The directories in `/etc/ld.so.conf` and the files that it includes (`ldconfig(8)`).
    fn configured(&self, file: &str, depth: usize, into: &mut Vec<String>) {
        let text = self.real(file).and_then(|path| std::fs::read_to_string(path).ok());
        for line in text.iter().flat_map(|text| text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(pattern) = line.strip_prefix("include").filter(|_| depth < 4) {
                let pattern = pattern.trim();
                let directory = file.rsplit_once('/').map_or("", |(directory, _)| directory);
                let pattern = match pattern.strip_prefix('/') {
                    Some(absolute) => absolute.to_owned(),
                    None => format!("{directory}/{pattern}"),
                };
                let (directory, name) = pattern.rsplit_once('/').unwrap_or(("", &pattern));
                let (start, end) = name.split_once('*').unwrap_or((name, ""));
                for found in self.names(directory) {
                    if found.starts_with(start) && found.ends_with(end) {
                        self.configured(&format!("{directory}/{found}"), depth + 1, into);
                    }
                }
            } else if let Some(path) = line.strip_prefix('/') {
                into.push(path.to_owned());
            }
        }
    }

    /// The version: that of the running module if there are libraries of it, else that of the first
    /// `libcuda.so.1` or `libnvidia-ml.so.1`.
    fn version(&self, directories: &[String]) -> Option<String> {
        let module = read_trimmed(self.root.join("sys/module/nvidia/version")).or_else(|| {
            nvidia_version(&read_trimmed(self.root.join("proc/driver/nvidia/version"))?)
        });
        let mut first = None;
        for directory in directories {
            for name in self.names(directory) {
                let Some(library) = ["libcuda.so", "libnvidia-ml.so"]
                    .iter()
                    .find(|library| name.starts_with(&format!("{library}.")))
                else {
                    continue;
                };
                let real = self.real(&format!("{directory}/{name}"));
                let version = real.as_deref().and_then(Path::file_name).and_then(|real| {
                    let version = real.to_str()?.strip_prefix(library)?.strip_prefix('.')?;
                    // `libcuda.so.1.1` belongs to Windows.
                    let number = version.split('.').next()?.parse::<u32>().ok()?;
                    (number >= 100).then(|| version.to_owned())
                });
                if version.is_some() && version == module {
                    return version;
                }
                first = first.or(version);
            }
        }
        first
    }

    fn libraries(&self, directories: &[String], version: &str, wsl: Option<&Path>) -> Vec<Library> {
        let ending = format!(".so.{version}");
        // The first directory that has a name wins; 32-bit libraries have the same names.
        let mut found: BTreeMap<(bool, PathBuf), PathBuf> = BTreeMap::new();
        for directory in directories {
            let windows = self.real(directory).as_deref() == wsl && wsl.is_some();
            for beneath in BENEATH {
                let place = if beneath.is_empty() {
                    directory.clone()
                } else {
                    format!("{directory}/{beneath}")
                };
                for name in self.names(&place) {
                    if !name.contains(".so") {
                        continue;
                    }
                    let named = OTHERS.iter().any(|start| name.starts_with(start));
                    let Some(real) = self.real(&format!("{place}/{name}")) else { continue };
                    let versioned = !version.is_empty()
                        && real.file_name().is_some_and(|real| {
                            real.to_string_lossy().ends_with(&ending) || real == "nvidia_drv.so"
                        });
                    if let Some(is_32_bit) =
                        (named || versioned || windows).then(|| is_32_bit(&real)).flatten()
                    {
                        found.entry((is_32_bit, Path::new(beneath).join(name))).or_insert(real);
                    }
                }
            }
        }
        found
            .into_iter()
            .map(|((is_32_bit, name), host)| Library { host, name, is_32_bit })
            .collect()
    }

    fn files(&self, version: &str) -> Vec<(PathBuf, PathBuf)> {
        let mut files = Vec::new();
        for program in PROGRAMS {
            let places = PROGRAM_DIRECTORIES.iter();
            let mut found = places.filter_map(|place| self.real(&format!("{place}/{program}")));
            // A script that starts the program from where the host has it does not find it inside.
            let first = found.next();
            let own = first.clone().into_iter().chain(found).find(|path| is_32_bit(path).is_some());
            let host = own.or(first);
            files.extend(host.map(|host| (host, Path::new("/usr/bin").join(program))));
        }
        for (top, inside) in TOPS {
            for directory in CONFIGURATION {
                let place = format!("{top}/{directory}");
                let names = self.names(&place).into_iter();
                let own = names.filter(|name| {
                    name.contains("nvidia") || name.contains("nvoptix") || directory == "nvidia"
                });
                for name in own {
                    let file = self.real(&format!("{place}/{name}"));
                    let inside = Path::new(inside).join(directory).join(name);
                    files.extend(file.filter(|host| host.is_file()).map(|host| (host, inside)));
                }
            }
        }
        let firmware = ["lib/firmware", "usr/lib/firmware", "usr/local/nvidia/firmware"]
            .iter()
            .find_map(|place| self.real(&format!("{place}/nvidia/{version}")));
        let inside = Path::new("/lib/firmware/nvidia").join(version);
        files.extend(firmware.filter(|_| !version.is_empty()).map(|host| (host, inside)));
        for socket in SOCKETS {
            files.extend(self.real(socket).map(|host| (host, Path::new("/").join(socket))));
        }
        files
    }

    /// Common nodes, and the GPUs' nodes. A driver beside the system mostly has no nodes of its
    /// own.
    fn nodes(&self) -> (Vec<(PathBuf, PathBuf)>, Vec<Card>) {
        let own = self.names("dev").iter().any(|name| name.starts_with("nvidia") || name == "dxg");
        let devices = if own { Tree { root: self.root } } else { Tree { root: Path::new("/") } };
        let node = |name: &str| {
            let host = devices.root.join("dev").join(name);
            host.exists().then(|| (host, Path::new("/dev").join(name)))
        };
        let (mut common, mut minors) = (Vec::new(), Vec::new());
        for name in devices.names("dev") {
            match name.strip_prefix("nvidia").map(str::parse::<u32>) {
                Some(Ok(minor)) => minors.push(minor),
                Some(Err(_)) => common.extend(node(&name)),
                None if name == "dxg" => common.extend(node(&name)),
                None => {}
            }
        }
        common.extend(devices.graphics().iter().filter_map(|name| node(name)));
        minors.sort_unstable();
        let cards_by_bus = self.cards_by_bus();
        let mut cards: Vec<(u32, Option<String>)> =
            cards_by_bus.into_iter().filter(|(minor, _)| minors.contains(minor)).collect();
        if cards.len() != minors.len() {
            cards = minors.into_iter().map(|minor| (minor, None)).collect();
        }
        let cards = cards.into_iter().filter_map(|(minor, uuid)| {
            node(&format!("nvidia{minor}")).map(|node| Card { uuid, node })
        });
        (common, cards.collect())
    }

    /// Minor numbers and UUIDs, in the order of the bus, in which CUDA's tools count.
    fn cards_by_bus(&self) -> Vec<(u32, Option<String>)> {
        let directory = "proc/driver/nvidia/gpus";
        let read = |bus: String| {
            let path = self.root.join(directory).join(bus).join("information");
            let text = read_trimmed(path)?;
            let value = |key: &str| {
                let mut lines = text.lines();
                lines.find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()))
            };
            Some((value("Device Minor:")?.parse().ok()?, value("GPU UUID:")))
        };
        self.names(directory).into_iter().filter_map(read).collect()
    }

    /// Graphics nodes of this vendor.
    fn graphics(&self) -> Vec<String> {
        let names = self.names("dev/dri").into_iter();
        let own = names.filter(|name| {
            let vendor = format!("sys/class/drm/{name}/device/vendor");
            read_trimmed(self.root.join(vendor)).as_deref() == Some("0x10de")
        });
        own.map(|name| format!("dri/{name}")).collect()
    }
}

/// Returns true for a library of 32-bit programs; `None` if it is not a library for this machine.
pub fn is_32_bit(path: &Path) -> Option<bool> {
    const WIDE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    let mut header = [0; 20];
    let mut file = std::fs::File::open(path).ok()?;
    std::io::Read::read_exact(&mut file, &mut header).ok()?;
    let machine = u16::from_le_bytes([header[18], header[19]]);
    match (&header[..4], machine) {
        (b"\x7fELF", WIDE) => Some(false),
        // i386 and arm.
        (b"\x7fELF", 3 | 40) => Some(true),
        _ => None,
    }
}

/// The other names of a library in its directory, made by `ldconfig` and packages.
pub fn other_names(library: &Path) -> Vec<String> {
    let (Some(directory), Ok(real)) = (library.parent(), library.canonicalize()) else {
        return Vec::new();
    };
    let own = library.file_name().unwrap_or_default().to_string_lossy();
    let stem = own.split(".so").next().unwrap_or(&own);
    let names = names_in(directory).into_iter();
    names
        .filter(|name| {
            name.starts_with(stem)
                && *name != own
                && directory.join(name).canonicalize().is_ok_and(|other| other == real)
        })
        .collect()
}
