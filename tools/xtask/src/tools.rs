//! Installs what the tests need: Debian packages, a test program from crates.io, Python clients,
//! and two unprivileged users.
//!
//! Only root on Debian can install packages and make users. Otherwise a message names what is
//! missing, and the tests that need it are skipped with that reason. So a package that cannot be
//! installed is not an error.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{tools, users};

use crate::lab;
use crate::proot;
use crate::shell::{Outcome, cargo, check, has, read, step};

/// A program and the package that brings it.
const WANTED: &[(&str, &str)] = &[
    ("docker-registry", "docker-registry"),
    ("skopeo", "skopeo"),
    ("umoci", "umoci"),
    ("podman", "podman"),
    ("bwrap", "bubblewrap"),
    ("runc", "runc"),
    ("crun", "crun"),
    ("runsc", "runsc"),
    ("proot", "proot"),
    ("ch-run", "charliecloud-runtime"),
    ("mmdebstrap", "mmdebstrap"),
    // By these mmdebstrap makes the lab's images for a user without subordinate ids.
    ("fakechroot", "fakechroot"),
    ("fakeroot", "fakeroot"),
    ("newuidmap", "uidmap"),
    ("fuse-overlayfs", "fuse-overlayfs"),
    ("strace", "strace"),
    ("pasta", "passt"),
    ("slirp4netns", "slirp4netns"),
    ("setfattr", "attr"),
    ("zstd", "zstd"),
    ("openssl", "openssl"),
    ("setpriv", "util-linux"),
    ("tc", "iproute2"),
    ("python3", "python3-minimal"),
    ("busybox", "busybox-static"),
    ("gcc", "gcc"),
    ("git", "git"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("mkfs.vfat", "dosfstools"),
    ("make", "make"),
    // Services of the host that a container can use.
    ("Xvfb", "xvfb"),
    ("dbus-daemon", "dbus-daemon"),
    ("ssh-agent", "openssh-client"),
    ("sshd", "openssh-server"),
    // These start containers as the ranks of a job.
    ("mpiexec.openmpi", "openmpi-bin"),
    ("mpiexec.mpich", "mpich"),
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("srun", "slurm-client"),
    ("munged", "munge"),
    // Real commands of PBS over Slurm. What they load comes without them.
    ("qsub", "slurm-wlm-torque"),
    // For guests with another C library, another linker, 32 bits, another architecture.
    ("musl-gcc", "musl-tools"),
    ("ld.lld", "lld"),
    ("qemu-aarch64-static", "qemu-user-static"),
    // Looks at the page that the lab writes.
    ("chromium", "chromium"),
    // Programs that the lab measures, as far as they are small.
    ("hpcc", "hpcc"),
    ("NPopenmpi", "netpipe-openmpi"),
    ("NPmpich2", "netpipe-mpich2"),
    ("NPtcp", "netpipe-tcp"),
    ("fio", "fio"),
    ("iperf3", "iperf3"),
    ("qperf", "qperf"),
    ("nginx", "nginx-light"),
    // The balancer of a host, beside that in a container, and who asks it.
    ("haproxy", "haproxy"),
    ("wrk", "wrk"),
    // Their completions and manual pages are checked.
    ("zsh", "zsh"),
    ("fish", "fish"),
    // Shells of users on hosts.
    ("csh", "csh"),
    ("tcsh", "tcsh"),
    ("groff", "groff-base"),
];

/// Packages without a program of their own, each with a file that it installs.
const WANTED_FILES: &[(&str, &str)] = &[
    ("/usr/include/gnu/stubs-32.h", "gcc-multilib"),
    // Slurm loads it for ranks that speak PMIx.
    ("/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so", "libpmix-dev"),
    // Jobs of a Slurm on the host are in Python.
    ("/usr/lib/python3/dist-packages/mpi4py/__init__.py", "python3-mpi4py"),
    // The lab's tests compile ranks.
    ("/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h", "libopenmpi-dev"),
    ("/usr/include/x86_64-linux-gnu/mpich/mpi.h", "libmpich-dev"),
    // What `qsub` of slurm-wlm-torque loads.
    ("/usr/lib/x86_64-linux-gnu/perl5/5.36/Slurm.pm", "libslurm-perl"),
    ("/usr/share/perl5/Switch.pm", "libswitch-perl"),
    // For the clients that are Python programs.
    ("/usr/bin/pip3", "python3-pip"),
    // `PRoot` is linked to it.
    ("/usr/include/talloc.h", "libtalloc-dev"),
];

/// Installs what is missing and makes the test users if root calls; else prints what is missing.
pub fn set_up() -> Outcome {
    let missing = packages()?;
    if !missing.is_empty() {
        println!("not installed: {}", missing.join(" "));
    }
    let _ = (lab::set_up(), others());
    proot::set_up();
    Ok(())
}

/// Installs packages and makes the test users if root calls. Returns the packages that are missing
/// still; then the tests that need them are skipped with that reason.
pub(crate) fn packages() -> Outcome<Vec<&'static str>> {
    let missing = || -> Vec<&'static str> {
        let programs = WANTED.iter().filter(|(program, _)| !has(program));
        let files = WANTED_FILES.iter().filter(|(file, _)| !Path::new(file).exists());
        programs.chain(files).map(|(_, package)| *package).collect()
    };
    let names = missing();
    if !is_root() {
        return Ok(names);
    }
    if !names.is_empty() && has("apt-get") {
        step("packages");
        install(&names);
    }
    add_rust_target();
    users::create().map_err(|error| format!("making the test users: {error}"))?;
    open_tun();
    Ok(missing())
}

/// Builds and installs what has no package: pjdfstest, Python clients. Returns whether all of it is
/// there.
pub(crate) fn others() -> bool {
    build_pjdfstest();
    install_clients();
    tools::pjdfstest().is_ok() && tools::python().is_ok()
}

/// Programs for virtual machines with other kernels, with their packages.
const WANTED_FOR_KERNELS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("mke2fs", "e2fsprogs"),
    ("mmdebstrap", "mmdebstrap"),
    ("musl-gcc", "musl-tools"),
];

/// Installs what `cargo xtask kernels` needs if root calls; an error names what is still missing.
pub fn set_up_kernels() -> Outcome {
    let missing = || WANTED_FOR_KERNELS.iter().filter(|(program, _)| !has(program));
    let names: Vec<&str> = missing().map(|(_, package)| *package).collect();
    if !names.is_empty() && is_root() && has("apt-get") {
        install(&names);
    }
    let names: Vec<&str> = missing().map(|(_, package)| *package).collect();
    if !names.is_empty() {
        return Err(format!("not installed: {}", names.join(" ")));
    }
    if is_root() { Ok(()) } else { Err("only root can make the machines' disk".to_owned()) }
}

/// Builds pjdfstest as a static program, for containers of any image.
fn build_pjdfstest() {
    if let Err(error) = build_tool(tools::PJDFSTEST) {
        println!("{error}: what needs it will be skipped");
    }
}

/// Peers of networks: programs and their packages, for `cargo xtask bench net` alone.
const PEERS: &[(&str, &str)] = &[("edge", "n2n"), ("wg", "wireguard-tools"), ("tc", "iproute2")];
/// `WireGuard` without the kernel: <https://github.com/cloudflare/boringtun>.
const BORINGTUN: (&str, &str) = ("boringtun-cli", "0.7.1");

/// Installs the peers of networks that are missing, if root calls.
pub fn set_up_peers() {
    let missing = PEERS.iter().filter(|(program, _)| !has(program));
    let names: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if !names.is_empty() && is_root() && has("apt-get") {
        install(&names);
    }
}

/// The path of boringtun, which is built if it is not there.
pub fn boringtun() -> Outcome<String> {
    Ok(build_tool(BORINGTUN)?.display().to_string())
}

/// A program of crates.io under [`tools::root`], which is built statically if it is not there.
pub(crate) fn build_tool((name, version): (&str, &str)) -> Outcome<PathBuf> {
    let root = tools::directory((name, version));
    let program = root.join("bin").join(name);
    if program.exists() {
        return Ok(program);
    }
    let words = ["install", name, "--version", version, "--locked", "--quiet"];
    let mut command = cargo(&words);
    command
        .args(["--target", "x86_64-unknown-linux-gnu", "--root"])
        .arg(&root)
        .arg("--target-dir")
        .arg(root.join("build"))
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
    let built = check(&mut command);
    // The compilation's files are not needed any more; if they cannot be removed, they do no harm.
    let _ = fs::remove_dir_all(root.join("build"));
    built.map_err(|error| format!("could not build {name} ({error})"))?;
    Ok(program)
}

/// Installs clients of udocker (workflow engines in Python) where Debian's Python finds them.
fn install_clients() {
    if tools::python().is_ok() {
        return;
    }
    let directory = tools::python_place();
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    // pip warns root in general, but this directory belongs to these tests alone.
    command.args(["--root-user-action=ignore", "--target"]).arg(&directory).args(tools::PYTHON);
    if let Err(error) = check(&mut command) {
        println!(
            "could not install cwltool and miniwdl: what needs them will be skipped ({error})"
        );
    }
}

/// Adds Rust's target for musl, for a static guest program.
fn add_rust_target() {
    let target = "x86_64-unknown-linux-musl";
    if !has("rustup") {
        return;
    }
    let mut list = Command::new("rustup");
    let installed = read(list.args(["target", "list", "--installed"])).unwrap_or_default();
    if installed.lines().any(|line| line == target) {
        return;
    }
    if let Err(error) = read(Command::new("rustup").args(["target", "add", target])) {
        println!("could not add {target}: what needs it will be skipped ({error})");
    }
}

/// Gives `/dev/net/tun` the mode that udev gives it (50-udev-default.rules). On a machine without
/// udev only root can open it, and then private networks cannot be tested.
fn open_tun() {
    if let Err(error) = fs::set_permissions("/dev/net/tun", Permissions::from_mode(0o666)) {
        println!("/dev/net/tun: {error}; private networks will not be tested");
    }
}

/// Whether this is root.
pub fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn install(packages: &[&str]) {
    println!("installing {}", packages.join(" "));
    // An update fails if one source of packages fails, although Debian's own may be fine.
    let _ = apt(&["update", "-qq"]);
    if apt(&[&["install", "-y", "-qq", "--no-install-recommends"], packages].concat()) {
        return;
    }
    for package in packages {
        if !apt(&["install", "-y", "-qq", "--no-install-recommends", package]) {
            println!("could not install {package}: what needs it will be skipped");
        }
    }
}

/// Installs packages and prints nothing; an error is one line.
pub fn install_quietly(packages: &[&str]) -> Outcome {
    let words = [&["install", "-y", "-qq", "--no-install-recommends"], packages].concat();
    // The packages may be in the list that the machine has already.
    if try_apt(&words).is_ok() {
        return Ok(());
    }
    let _ = try_apt(&["update", "-qq"]);
    try_apt(&words).map_err(|text| {
        let line = text.lines().find(|line| line.starts_with("E:")).unwrap_or("no network?");
        format!("apt-get: {}", line.trim_start_matches("E: "))
    })
}

/// Runs `apt-get`; prints its error.
fn apt(words: &[&str]) -> bool {
    try_apt(words).inspect_err(|text| println!("apt-get {}: {text}", words.join(" "))).is_ok()
}

/// Runs `apt-get`; an error is what it wrote.
fn try_apt(words: &[&str]) -> Outcome {
    let output = Command::new("apt-get")
        // A machine of tests need not survive a loss of power while packages are installed.
        .args(["-o", "Dpkg::Options::=--force-unsafe-io"])
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // A package must not start its service (docker-registry would take a port).
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
