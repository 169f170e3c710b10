//! `cargo xtask cluster nfs [3] [4] [nolock]`: uses one store on two virtual machines over NFS.
//!
//! Two machines with a Debian kernel are joined by a link of QEMU's. One exports a directory by the
//! kernel's NFS server and mounts it too; the other mounts it over the link. On both an
//! unprivileged user runs, at the same time (`nfs.sh`):
//! - the store's suite `crash` in its form for several hosts, on both mounts, and again with the
//!   server using the directory itself;
//! - the program: containers in several modes, removal and collection beside starts, `kill -9`;
//!
//! and the store's own tests on one of them. `nolock` mounts NFS 3 so that locks stay with each
//! client. Needs root, as `cargo xtask kernels` does. The machines are emulated: some ten minutes
//! for each kind of mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::debian;

use crate::kernels::machine::debug_build;
use crate::machines::fetch::{self, Kernel, Release};
use crate::machines::{self, cache};
use crate::shell::{Outcome, cargo, read, step};
use crate::tools;

const TRIAL: &str = include_str!("nfs.sh");

/// Kinds of mount, with their options.
const KINDS: &[(&str, &str)] = &[("3", "vers=3"), ("4", "vers=4.2"), ("nolock", "vers=3,nolock")];

const RELEASE: Release = Release::debian("bookworm")
    .with("nfs", &["virtio_net", "lockd", "nfsd", "nfs", "nfsv3", "nfsv4"]);

/// What the machines need to export and mount.
const PACKAGES: &[&str] =
    &["nfs-kernel-server", "nfs-common", "rpcbind", "procps", "iproute2", "uidmap"];

/// The longest that a kind may take.
const LIMIT: Duration = Duration::from_hours(1);

/// Words: kinds of mount, none for all.
pub(super) fn run(words: &[String]) -> Outcome {
    if let Some(word) = words.iter().find(|word| KINDS.iter().all(|(kind, _)| kind != word)) {
        return Err(format!("no kind of mount {word}: there are 3, 4 and nolock"));
    }
    tools::set_up_kernels()?;
    step("building");
    let disk = disk()?;
    let kernel = fetch::kernel(&RELEASE)?;
    println!("Linux {}", kernel.version);
    let mut failed = Vec::new();
    for (kind, options) in KINDS {
        if words.is_empty() || words.iter().any(|word| word == kind) {
            step(&format!("NFS, {options}"));
            let start = Instant::now();
            if let Err(error) = pair(&kernel, &disk, kind, options) {
                println!("{error}");
                failed.push(*kind);
            }
            println!("{:.0} s", start.elapsed().as_secs_f64());
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Builds the tests of the store, and gives their paths: `store`, `crash`.
fn suites() -> Outcome<[PathBuf; 2]> {
    let words = ["test", "--locked", "--package", "store", "--no-run", "--quiet"];
    let text = read(cargo(&words).args(["--message-format=json", "--tests"]))?;
    let find = |name: &str| {
        text.lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| message["target"]["name"] == name)
            .filter(|message| message["target"]["kind"][0] == "test")
            .find_map(|message| message["executable"].as_str().map(PathBuf::from))
            .ok_or_else(|| format!("cargo named no tests {name}"))
    };
    Ok([find("store")?, find("crash")?])
}

/// Makes the disk of both machines.
fn disk() -> Outcome<PathBuf> {
    let text = |error: std::io::Error| error.to_string();
    let program = debug_build()?;
    let [store, crash] = suites()?;
    let tree = cache().join("nfs-disk");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(tree.join("trial")).map_err(text)?;
    let debian = debian::tar_with("nfs", PACKAGES).map_err(|skip| skip.0)?;
    read(Command::new("tar").arg("-xf").arg(debian).arg("-C").arg(&tree).arg("--numeric-owner"))?;
    machines::people(&tree).map_err(text)?;
    let busybox = PathBuf::from("/bin/busybox");
    for (from, name) in
        [(&program, "coracle"), (&store, "store"), (&crash, "crash"), (&busybox, "busybox")]
    {
        fs::copy(from, tree.join("trial").join(name))
            .map_err(|error| format!("{}: {error}", from.display()))?;
    }
    machines::first_program(&tree, TRIAL).map_err(text)?;
    let disk = cache().join("nfs.img");
    let _ = fs::remove_file(&disk);
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-t", "ext4", "-E", "lazy_itable_init=0", "-d"]);
    read(command.arg(&tree).arg(&disk).arg("2G"))?;
    fs::remove_dir_all(&tree).map_err(text)?;
    Ok(disk)
}

/// One of two joined machines, ended with this value.
struct Machine {
    role: &'static str,
    child: Child,
    console: PathBuf,
    log: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine {
    fn start(kernel: &Kernel, disk: &Path, link: &Link<'_>) -> Outcome<Self> {
        let home = kernel.image.parent().unwrap_or(Path::new("."));
        let role = link.role;
        let console = home.join(format!("{role}.console.log"));
        let log = home.join(format!("{role}.{}.log", link.kind));
        for old in [&console, &log] {
            let _ = fs::remove_file(old);
        }
        let file = |path: &Path| format!("file:{}", path.display());
        let (server, number) = if role == "server" { ("on", 1) } else { ("off", 2) };
        let mut command = machines::qemu(kernel, disk, false);
        command
            .args(["-smp", "1", "-serial", &file(&console), "-serial", &file(&log)])
            .arg("-initrd")
            .arg(home.join("initial.cpio"))
            .arg("-netdev")
            .arg(format!(
                "stream,id=link,server={server},addr.type=unix,addr.path={}",
                link.socket.display()
            ))
            .arg("-device")
            .arg(format!("virtio-net-pci,netdev=link,mac=52:54:00:00:00:0{number},romfile="))
            .arg("-append")
            .arg(format!("{} role={role} options={}", machines::COMMAND_LINE, link.options));
        println!("follow it in {}", log.display());
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        Ok(Self { role, child, console, log })
    }

    fn has_ended(&mut self) -> Outcome<bool> {
        Ok(self.child.try_wait().map_err(|error| error.to_string())?.is_some())
    }

    /// Prints the stages of the trial, and says if all went well.
    fn report(&self) -> bool {
        let told = fs::read(&self.log).unwrap_or_default();
        let told = String::from_utf8_lossy(&told).replace('\r', "");
        let (good, stages) = judge(&told);
        for stage in stages {
            println!("{}: {stage}", self.role);
        }
        if !good {
            let lines: Vec<&str> = told.lines().collect();
            for line in &lines[lines.len().saturating_sub(60)..] {
                println!("{} | {line}", self.role);
            }
            println!("{}", machines::tail(&self.console));
        }
        good
    }
}

/// Whether a trial went well, and its stages with their results.
fn judge(told: &str) -> (bool, Vec<String>) {
    let mut stages = Vec::new();
    let mut good = true;
    let mut ended = false;
    for line in told.lines().filter_map(|line| line.strip_prefix("## ")) {
        match line.strip_prefix("code ") {
            Some(code) => {
                good &= code == "0";
                if let Some(stage) = stages.last_mut() {
                    *stage = format!("{stage}: {}", if code == "0" { "ok" } else { "failed" });
                }
            }
            None if line == "end" => ended = true,
            None => stages.push(line.to_owned()),
        }
    }
    (good && ended && !stages.is_empty(), stages)
}

/// How a machine is joined to the other.
struct Link<'a> {
    role: &'static str,
    kind: &'a str,
    options: &'a str,
    socket: &'a Path,
}

/// Runs both machines to their ends.
fn pair(kernel: &Kernel, disk: &Path, kind: &str, options: &str) -> Outcome {
    let text = |error: std::io::Error| error.to_string();
    let home = kernel.image.parent().unwrap_or(Path::new("."));
    fs::write(home.join("initial.cpio"), machines::initial(kernel).map_err(text)?).map_err(text)?;
    // The path of a socket must be short.
    let socket = std::env::temp_dir().join(format!("coracle-nfs-{}", std::process::id()));
    let _ = fs::remove_file(&socket);
    let link = |role| Link { role, kind, options, socket: &socket };
    let server = Machine::start(kernel, disk, &link("server"))?;
    let end = Instant::now() + LIMIT;
    while !socket.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
    }
    let client = Machine::start(kernel, disk, &link("client"))?;
    let mut both = [server, client];
    while Instant::now() < end {
        let mut running = false;
        for machine in &mut both {
            running |= !machine.has_ended()?;
        }
        if !running {
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    let _ = fs::remove_file(&socket);
    let good = both.iter().filter(|machine| machine.report()).count();
    if good == both.len() { Ok(()) } else { Err("not all went well".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_good_if_all_stages_and_the_end_are() {
        let good = "x\n## one\nrest\n## code 0\n## two\n## code 0\n## end\n";
        assert_eq!(judge(good), (true, vec!["one: ok".into(), "two: ok".into()]));
        assert!(!judge(&good.replace("## end\n", "")).0);
        assert!(!judge(&good.replace("two\n## code 0", "two\n## code 101")).0);
        assert!(!judge("## end\n").0);
    }
}
