//! Fetches kernels of distributions by `apt-get`: the image, and the modules that a machine needs
//! to find its disk.
//!
//! Each release has its own package lists below the cache; the host's lists are not touched.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{Outcome, read};

/// A distribution's release.
#[derive(Debug)]
pub(crate) struct Release {
    /// Its name, also in the archive.
    pub(crate) name: &'static str,
    archive: &'static str,
    /// The package that depends on the newest kernel.
    package: &'static str,
    /// What is kept under another name, and its modules besides the usual ones.
    more: Option<(&'static str, &'static [&'static str])>,
}

impl Release {
    /// A Debian release, with the kernel for virtual machines.
    pub(crate) const fn debian(name: &'static str) -> Self {
        let archive = "deb http://deb.debian.org/debian";
        Self { name, archive, package: "linux-image-cloud-amd64", more: None }
    }

    /// An Ubuntu release. Debian has no keys for Ubuntu's archive, so the packages are not
    /// verified; the kernel runs in a machine without a network.
    pub(crate) const fn ubuntu(name: &'static str) -> Self {
        let archive = "deb [trusted=yes] http://archive.ubuntu.com/ubuntu";
        Self { name, archive, package: "linux-image-virtual", more: None }
    }
}

impl Release {
    /// The same with more modules, kept under another name.
    pub(crate) const fn with(
        mut self,
        name: &'static str,
        modules: &'static [&'static str],
    ) -> Self {
        self.more = Some((name, modules));
        self
    }

    /// The name of its directory.
    fn home(&self) -> String {
        match self.more {
            None => self.name.to_owned(),
            Some((more, _)) => format!("{}-{more}", self.name),
        }
    }
}

/// A kernel, ready to boot.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// As `uname -r` prints it.
    pub(crate) version: String,
    pub(crate) image: PathBuf,
    /// Modules in the order in which they are loaded.
    pub(crate) modules: Vec<PathBuf>,
}

/// Modules for the disk, its file system and the engines. A module that is built in is passed over.
const MODULES: &[&str] = &[
    "crc32c_generic",
    "virtio_pci",
    "virtio_rng",
    "virtio_blk",
    "ext4",
    "overlay",
    "fuse",
    "binfmt_misc",
];

/// Fetches a release's newest kernel, once.
pub(crate) fn kernel(release: &Release) -> Outcome<Kernel> {
    let home = super::cache().join(release.home());
    let ready = home.join("ready");
    if !ready.exists() {
        let part = super::cache().join(format!("{}.part", release.home()));
        let _ = fs::remove_dir_all(&part);
        fetch(release, &part)?;
        let _ = fs::remove_dir_all(&home);
        fs::rename(&part, &home).map_err(|error| format!("{}: {error}", home.display()))?;
    }
    let text = fs::read_to_string(&ready).map_err(|error| error.to_string())?;
    let mut lines = text.lines();
    let version = lines.next().unwrap_or_default().to_owned();
    let modules = lines.map(|name| home.join(name)).collect();
    Ok(Kernel { version, image: home.join("vmlinuz"), modules })
}

fn fetch(release: &Release, into: &Path) -> Outcome {
    let text = |error: std::io::Error| error.to_string();
    let apt = Apt { place: into.join("apt") };
    apt.update(&format!("{} {} main\n", release.archive, release.name))?;
    let tree = into.join("tree");
    for package in apt.closure(release.package)? {
        apt.unpack(&package, &tree)?;
    }
    let versions = names(&tree.join("lib/modules"));
    let versions =
        if versions.is_empty() { names(&tree.join("usr/lib/modules")) } else { versions };
    let version = versions.first().ok_or("its packages have no kernel")?.clone();
    let image = find(&tree, "vmlinuz").ok_or("its packages have no vmlinuz")?;
    fs::rename(image, into.join("vmlinuz")).map_err(text)?;
    if !tree.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", tree.join("lib")).map_err(text)?;
    }
    let modules = modules(release, &tree, &version, into)?;
    let mut ready = format!("{version}\n");
    for module in modules {
        ready.push_str(&module);
        ready.push('\n');
    }
    for rest in [&tree, &apt.place] {
        fs::remove_dir_all(rest).map_err(text)?;
    }
    fs::write(into.join("ready"), ready).map_err(text)
}

/// Package lists of one release.
struct Apt {
    place: PathBuf,
}

impl Apt {
    fn command(&self, program: &str) -> Command {
        let option = |name: &str, value: &str| format!("-o{name}={}/{value}", self.place.display());
        let mut command = Command::new(program);
        command
            .arg(option("Dir::State", "state"))
            .arg(option("Dir::Cache", "cache"))
            .arg(option("Dir::Etc::sourcelist", "sources.list"))
            .args(["-qq", "-oDir::State::status=/dev/null", "-oDir::Etc::sourceparts=/dev/null"])
            .args(["-oAPT::Sandbox::User=", "-oAPT::Architecture=amd64"])
            .current_dir(&self.place);
        command
    }

    fn update(&self, sources: &str) -> Outcome {
        let text = |error: std::io::Error| error.to_string();
        for dir in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(self.place.join(dir)).map_err(text)?;
        }
        fs::write(self.place.join("sources.list"), sources).map_err(text)?;
        read(self.command("apt-get").arg("update")).map(drop)
    }

    /// The kernel's packages that a package stands for.
    fn closure(&self, package: &str) -> Outcome<Vec<String>> {
        let mut found = Vec::new();
        let mut queue = VecDeque::from([package.to_owned()]);
        while let Some(package) = queue.pop_front() {
            let text = read(self.command("apt-cache").args(["depends", "--important", &package]))?;
            queue.extend(text.lines().filter_map(|line| {
                let name = line.trim().strip_prefix("Depends: ")?;
                let ours = ["linux-image-", "linux-modules-", "linux-binary-"];
                ours.iter().any(|begin| name.starts_with(begin)).then(|| name.to_owned())
            }));
            found.push(package);
        }
        Ok(found)
    }

    fn unpack(&self, package: &str, into: &Path) -> Outcome {
        read(self.command("apt-get").args(["download", package]))?;
        let is_package = |name: &String| Path::new(name).extension().is_some_and(|e| e == "deb");
        let file = names(&self.place).into_iter().find(is_package);
        let file = self.place.join(file.ok_or_else(|| format!("{package} did not come"))?);
        read(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(into))?;
        fs::remove_file(file).map_err(|error| error.to_string())
    }
}

/// Copies the modules that are wanted and what they need, unpacked.
fn modules(release: &Release, tree: &Path, version: &str, into: &Path) -> Outcome<Vec<String>> {
    read(Command::new("depmod").arg("--basedir").arg(tree).arg(version))?;
    let mut found: Vec<String> = Vec::new();
    for module in MODULES.iter().chain(release.more.map_or(&[][..], |(_, modules)| modules)) {
        let mut command = Command::new("modprobe");
        command.arg("--dirname").arg(tree).args(["--set-version", version, "--show-depends"]);
        // Not every kernel has each of them, by this name.
        let Ok(text) = read(command.arg(module)) else { continue };
        for path in text.lines().filter_map(|line| line.strip_prefix("insmod ")) {
            let path = Path::new(path.trim());
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (plain, unpack) = match name.rsplit_once('.') {
                Some((plain, "xz")) => (plain, "xz"),
                Some((plain, "zst")) => (plain, "zstd"),
                _ => (name.as_str(), "cat"),
            };
            if found.iter().any(|known| known == plain) {
                continue;
            }
            let to = fs::File::create(into.join(plain)).map_err(|error| error.to_string())?;
            let mut command = Command::new(unpack);
            if unpack != "cat" {
                command.args(["-q", "-d", "-c"]);
            }
            let status = command.arg(path).stdout(to).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(format!("{unpack} {}", path.display()));
            }
            found.push(plain.to_owned());
        }
    }
    Ok(found)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The first file whose name begins so.
fn find(dir: &Path, begin: &str) -> Option<PathBuf> {
    let mut stack = vec![dir.to_owned()];
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let kind = entry.file_type().ok()?;
            if kind.is_dir() {
                stack.push(entry.path());
            } else if kind.is_file() && entry.file_name().to_string_lossy().starts_with(begin) {
                return Some(entry.path());
            }
        }
    }
    None
}
