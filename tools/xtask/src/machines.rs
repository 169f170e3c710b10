//! Makes the parts of virtual machines: kernels of distributions ([`fetch`]), the initial file
//! system, test users on a disk, and QEMU's words that all machines share.

mod archive;
pub(crate) mod fetch;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::users;

use crate::shell::target;
use archive::Archive;
use fetch::Kernel;

const INIT: &str = include_str!("machines/init.sh");
const BEGIN: &str = include_str!("machines/begin.sh");

/// The kernel's command line. An emulated machine on a busy host has no timer that passes the
/// kernel's checks, so they are off. Old kernels wait for entropy that this machine does not have,
/// unless they trust the processor's.
pub(crate) const COMMAND_LINE: &str =
    "console=ttyS0 panic=-1 no_timer_check rng_core.default_quality=1000 random.trust_cpu=on quiet";

/// The directory of kernels, disks and logs.
pub(crate) fn cache() -> PathBuf {
    target().join("kernels")
}

/// QEMU with a kernel and a disk, whose changes are thrown away; without a network. The console and
/// the trial's output go to files.
pub(crate) fn qemu(kernel: &Kernel, disk: &Path, kvm: bool) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(if kvm {
        ["-accel", "kvm", "-cpu", "host"]
    } else {
        ["-accel", "tcg,thread=multi", "-cpu", "max"]
    });
    command
        .args(["-m", "1024", "-display", "none", "-nic", "none", "-no-reboot"])
        .args(["-device", "virtio-rng-pci", "-monitor", "none"])
        .arg("-drive")
        .arg(format!("file={},format=raw,if=virtio,snapshot=on", disk.display()))
        .arg("-kernel")
        .arg(&kernel.image);
    command
}

/// The last lines of a machine's console, for messages, without an end of line.
pub(crate) fn tail(console: &Path) -> String {
    let text = fs::read(console).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(30)..];
    let shown: Vec<String> = shown.iter().map(|line| format!("| {line}")).collect();
    shown.join("\n")
}

/// The two test users, as `testkit::users` makes them on a host.
pub(crate) fn people(tree: &Path) -> std::io::Result<()> {
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

/// The first program on a disk, with a trial: the rest of a shell script.
pub(crate) fn first_program(tree: &Path, trial: &str) -> std::io::Result<()> {
    let program = tree.join("trial/run");
    fs::write(&program, [BEGIN, trial].concat())?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
}

/// The initial file system: a shell, modules, and the script that uses them.
pub(crate) fn initial(kernel: &Kernel) -> std::io::Result<Vec<u8>> {
    let mut archive = Archive::default();
    for dir in ["bin", "modules", "dev", "proc"] {
        archive.entry(dir, 0o040_755, &[]);
    }
    archive.entry("bin/busybox", 0o100_755, &fs::read("/bin/busybox")?);
    archive.entry("init", 0o100_755, INIT.as_bytes());
    let mut order = String::new();
    for module in &kernel.modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.entry(&format!("modules/{name}"), 0o100_644, &fs::read(module)?);
        order.push_str(&name);
        order.push('\n');
    }
    archive.entry("modules/order", 0o100_644, order.as_bytes());
    Ok(archive.finish())
}
