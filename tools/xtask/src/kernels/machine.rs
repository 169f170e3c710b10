//! Runs a virtual machine: makes its disk with a Debian tree and the programs under test, its
//! initial file system, and starts QEMU.
//!
//! The disk is made once for all kernels; each machine's writes go to a temporary copy of QEMU's.
//! Results come back over the second serial line.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::debian;

use crate::machines::fetch::Kernel;
use crate::machines::{self, cache};
use crate::shell::{Outcome, built, cargo, check, read};

const TRIAL: &str = include_str!("trial.sh");

/// How much longer than on a host a program may take.
const PATIENCE: u32 = 20;

/// The longest that a kernel may take, when it is emulated on a busy machine.
const LIMIT: Duration = Duration::from_hours(4);

/// The debug build of the program.
pub(crate) fn debug_build() -> Outcome<PathBuf> {
    check(&mut cargo(&["build", "--locked", "--package", "cli", "--quiet"]))?;
    Ok(built("debug", "coracle"))
}

/// Builds the suites, and gives their path.
fn suite() -> Outcome<PathBuf> {
    let words = ["build", "--locked", "--package", "suites", "--quiet"];
    read(&mut cargo(&words))?;
    Ok(built("debug", "suites"))
}

/// Makes the disk. `cases`: words for the suite, none for all.
pub(super) fn disk(program: &Path, cases: &[String]) -> Outcome<PathBuf> {
    let text = |error: std::io::Error| error.to_string();
    let suite = suite()?;
    let layer = cache().join("layer.tar");
    fs::create_dir_all(cache()).map_err(text)?;
    read(Command::new(&suite).arg("--layer").arg(&layer))?;
    let tree = cache().join("disk");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(tree.join("trial")).map_err(text)?;
    let debian = debian::tar_with("kernels", &["uidmap"]).map_err(|skip| skip.0)?;
    read(Command::new("tar").arg("-xf").arg(debian).arg("-C").arg(&tree).arg("--numeric-owner"))?;
    machines::people(&tree).map_err(text)?;
    for (from, to) in [
        (program, &tree.join("trial/coracle")),
        (&suite, &tree.join("trial/suites")),
        (&layer, &tree.join("trial/layer.tar")),
    ] {
        fs::copy(from, to).map_err(|error| format!("{}: {error}", from.display()))?;
    }
    machines::first_program(&tree, TRIAL).map_err(text)?;
    let cases: Vec<String> = match cases {
        [] => vec!["differential".to_owned()],
        cases => cases.iter().map(|case| format!("differential::{case}")).collect(),
    };
    let settings = format!("CORACLE_TEST_PATIENCE={PATIENCE}\nCASES='{}'\n", cases.join(" "));
    fs::write(tree.join("trial/settings"), settings).map_err(text)?;
    let disk = cache().join("disk.img");
    let _ = fs::remove_file(&disk);
    // Without features that kernels of ten years ago do not know.
    let features = "^metadata_csum,^metadata_csum_seed,^orphan_file,^64bit";
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-t", "ext4", "-O", features, "-E", "lazy_itable_init=0", "-d"]);
    read(command.arg(&tree).arg(&disk).arg("3G"))?;
    fs::remove_dir_all(&tree).map_err(text)?;
    Ok(disk)
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
        let bytes = machines::initial(self.kernel)
            .map_err(|error| format!("{}: {error}", initial.display()))?;
        fs::write(&initial, bytes).map_err(|error| error.to_string())?;
        let (console, log) = (home.join("console.log"), home.join("trial.log"));
        let file = |path: &Path| format!("file:{}", path.display());
        let mut command = machines::qemu(self.kernel, self.disk, self.kvm);
        command
            .args(["-smp", "2", "-serial", &file(&console), "-serial", &file(&log)])
            .arg("-initrd")
            .arg(&initial)
            .args(["-append", machines::COMMAND_LINE]);
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
        println!("{told}\n{}", machines::tail(&console));
        Err(if in_time { "the machine ended early" } else { "it took too long" }.to_owned())
    }
}
