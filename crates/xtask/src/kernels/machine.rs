//! Runs a virtual machine: makes its disk with a Debian tree and the programs under test, its
//! initial file system, and starts QEMU.
//!
//! The disk is made once for all kernels; each machine's writes go to a temporary copy of QEMU's.
//! Results come back over the second serial line.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::{debian, users};

use super::fetch::Kernel;
use crate::shell::{Outcome, built, cargo, check, read};

const INIT: &str = include_str!("init.sh");
const TRIAL: &str = include_str!("trial.sh");

/// The kernel's command line. An emulated machine on a busy host has no timer that passes the
/// kernel's checks, so they are off. Old kernels wait for entropy that this machine does not have,
/// unless they trust the processor's.
const COMMAND_LINE: &str =
    "console=ttyS0 panic=-1 no_timer_check rng_core.default_quality=1000 random.trust_cpu=on quiet";

/// How much longer than on a host a program may take.
const PATIENCE: u32 = 20;

/// The longest that a kernel may take, when it is emulated on a busy machine.
const LIMIT: Duration = Duration::from_hours(4);

/// The debug build of the program.
pub(super) fn debug_build() -> Outcome<PathBuf> {
    check(&mut cargo(&["build", "--locked", "--package", "cli", "--quiet"]))?;
    Ok(built("debug", "coracle"))
}

/// Builds the differential suite, and gives its path.
fn suite() -> Outcome<PathBuf> {
    let words = ["test", "--locked", "--package", "cli", "--test", "differential", "--no-run"];
    let text = read(cargo(&words).args(["--quiet", "--message-format=json"]))?;
    text.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "differential")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| "cargo named no differential suite".to_owned())
}

/// Makes the disk. `cases`: words for the suite, none for all.
pub(super) fn disk(program: &Path, cases: &[String]) -> Outcome<PathBuf> {
    let text = |error: std::io::Error| error.to_string();
    let suite = suite()?;
    let layer = super::cache().join("layer.tar");
    fs::create_dir_all(super::cache()).map_err(text)?;
    read(Command::new(&suite).arg("--layer").arg(&layer))?;
    let tree = super::cache().join("disk");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(tree.join("trial")).map_err(text)?;
    let debian = debian::tar_with("kernels", &["uidmap"]).map_err(|skip| skip.0)?;
    read(Command::new("tar").arg("-xf").arg(debian).arg("-C").arg(&tree).arg("--numeric-owner"))?;
    people(&tree).map_err(text)?;
    // The suite looks for the program where cargo builds it.
    let place = tree.join(built("debug", "coracle").strip_prefix("/").unwrap_or(Path::new("")));
    fs::create_dir_all(place.parent().unwrap_or(&tree)).map_err(text)?;
    for (from, to) in [
        (program, &place),
        (program, &tree.join("trial/coracle")),
        (&suite, &tree.join("trial/differential")),
        (&layer, &tree.join("trial/layer.tar")),
    ] {
        fs::copy(from, to).map_err(|error| format!("{}: {error}", from.display()))?;
    }
    fs::write(tree.join("trial/run"), TRIAL).map_err(text)?;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(tree.join("trial/run"), mode).map_err(text)?;
    let settings = format!("CORACLE_TEST_PATIENCE={PATIENCE}\nCASES='{}'\n", cases.join(" "));
    fs::write(tree.join("trial/settings"), settings).map_err(text)?;
    let disk = super::cache().join("disk.img");
    let _ = fs::remove_file(&disk);
    // Without features that kernels of ten years ago do not know.
    let features = "^metadata_csum,^metadata_csum_seed,^orphan_file,^64bit";
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-t", "ext4", "-O", features, "-E", "lazy_itable_init=0", "-d"]);
    read(command.arg(&tree).arg(&disk).arg("3G"))?;
    fs::remove_dir_all(&tree).map_err(text)?;
    Ok(disk)
}

/// The two test users, as `testkit::users` makes them on a host.
fn people(tree: &Path) -> std::io::Result<()> {
    let append = |name: &str, line: &str| {
        let mut file = File::options().append(true).create(true).open(tree.join(name))?;
        file.write_all(line.as_bytes())
    };
    for (name, id) in [(users::PLAIN, 1001), (users::RANGE, 1002)] {
        append("etc/passwd", &format!("{name}:x:{id}:{id}::/home/{name}:/bin/sh\n"))?;
        append("etc/group", &format!("{name}:x:{id}:\n"))?;
        let home = tree.join("home").join(name);
        fs::create_dir_all(&home)?;
        chown(&home, Some(id), Some(id))?;
    }
    for file in ["etc/subuid", "etc/subgid"] {
        append(file, &format!("{}:100000:65536\n", users::RANGE))?;
    }
    Ok(())
}

/// A kernel with the disk.
pub(super) struct Machine<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) disk: &'a Path,
    pub(super) kvm: bool,
}

impl Machine<'_> {
    /// Runs it to its end, and returns the output of the trial.
    pub(super) fn run(&self) -> Outcome<String> {
        let home = self.kernel.image.parent().unwrap_or(Path::new("."));
        let initial = home.join("initial.cpio");
        let bytes = self.initial().map_err(|error| format!("{}: {error}", initial.display()))?;
        fs::write(&initial, bytes).map_err(|error| error.to_string())?;
        let (console, log) = (home.join("console.log"), home.join("trial.log"));
        let file = |path: &Path| format!("file:{}", path.display());
        let mut command = Command::new("qemu-system-x86_64");
        command.args(if self.kvm {
            ["-accel", "kvm", "-cpu", "host"]
        } else {
            ["-accel", "tcg,thread=multi", "-cpu", "max"]
        });
        command
            .args(["-m", "1024", "-smp", "2", "-display", "none", "-nic", "none", "-no-reboot"])
            .args(["-device", "virtio-rng-pci"])
            .args(["-monitor", "none", "-serial", &file(&console), "-serial", &file(&log)])
            .arg("-drive")
            .arg(format!("file={},format=raw,if=virtio,snapshot=on", self.disk.display()))
            .arg("-kernel")
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(&initial)
            .args(["-append", COMMAND_LINE]);
        println!("follow it in {}", log.display());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        let end = Instant::now() + LIMIT;
        let in_time = loop {
            if child.try_wait().map_err(|error| error.to_string())?.is_some() {
                break true;
            }
            if Instant::now() >= end {
                let _ = child.kill();
                let _ = child.wait();
                break false;
            }
            std::thread::sleep(Duration::from_millis(500));
        };
        let told = fs::read(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let told = String::from_utf8_lossy(&told).replace('\r', "");
        if in_time && told.contains("\n## end\n") {
            return Ok(told);
        }
        let text = fs::read(&console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let tail: Vec<&str> = text.lines().rev().take(30).collect();
        println!("{told}");
        for line in tail.into_iter().rev() {
            println!("| {line}");
        }
        Err(if in_time { "the machine ended early" } else { "it took too long" }.to_owned())
    }

    /// The initial file system: a shell, modules, and the script that uses them.
    fn initial(&self) -> std::io::Result<Vec<u8>> {
        let mut archive = Archive::default();
        for dir in ["bin", "modules", "dev", "proc"] {
            archive.entry(dir, 0o040_755, &[]);
        }
        archive.entry("bin/busybox", 0o100_755, &fs::read("/bin/busybox")?);
        archive.entry("init", 0o100_755, INIT.as_bytes());
        let mut order = String::new();
        for module in &self.kernel.modules {
            let name = module.file_name().unwrap_or_default().to_string_lossy();
            archive.entry(&format!("modules/{name}"), 0o100_644, &fs::read(module)?);
            order.push_str(&name);
            order.push('\n');
        }
        archive.entry("modules/order", 0o100_644, order.as_bytes());
        Ok(archive.finish())
    }
}

/// A cpio archive of the kind that kernels unpack:
/// <https://docs.kernel.org/driver-api/early-userspace/buffer-format.html>.
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        let (links, size) = (1, data.len() as u32);
        let header =
            [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for number in header {
            self.bytes.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_aligned_and_ends() {
        let mut archive = Archive::default();
        archive.entry("a", 0o100_644, b"12345");
        let bytes = archive.finish();
        assert_eq!(&bytes[..14], b"07070100000001");
        // A header of 110 bytes, the name and its end, the data: each part at a multiple of four.
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..120], b"12345\0\0\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert!(bytes.len().is_multiple_of(4));
    }
}
